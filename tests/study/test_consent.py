"""Nothing is sent before somebody at the party agreed to the page, once for each version of the
study.
"""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from coterie.commands.exit_codes import REFUSED
from coterie.errors import CorruptFile, InvalidInput, Refused
from coterie.numerics.arrays import digest
from coterie.study.consent import require
from coterie.study.crosstab import crosstab_together
from coterie.study.description import describe_together
from coterie.study.disclosure import disclosure, most_curious
from coterie.study.party import fit_together, read_own
from coterie.study.proof import verify_together
from coterie.study.scores import evaluate_together
from coterie.study.study import load_party, load_study
from tests.harness.parties import data, together, write_data, write_study
from tests.harness.shell import shell


@pytest.fixture
def folder(tmp_path):
    write_study(tmp_path, network="path")
    write_data(tmp_path, data("features"))
    return tmp_path


def test_a_script_is_refused_with_what_to_type(folder):
    ran = shell("agent", str(folder / "ada" / "party.toml"), "--json")
    assert ran.exit_code == REFUSED
    assert "you have not approved this page, and there is no terminal" in ran.text
    assert not (folder / "ada" / "consent.json").exists()


def test_one_is_asked_once_for_each_version_of_the_study_operation_and_page(folder):
    own, study = load_party(folder / "ada" / "party.toml")
    page, asked = disclosure(study, "ada", read_own(own, study), "fit"), []

    def answer(yes):
        return lambda shown: asked.append(shown) or yes

    with pytest.raises(Refused, match="ada does not agree to what `fit` sends"):
        require(own, study, "fit", page, answer(False))
    require(own, study, "fit", page, answer(True))
    require(own, study, "fit", page, answer(False))
    require(own, study, "fit", page, None)
    assert asked == [page, page]
    record = json.loads((folder / "ada" / "consent.json").read_text())
    assert record[study.run_id]["fit"]["page"] == digest(page)
    require(own, study, "fit", page + "more", answer(True))
    with pytest.raises(InvalidInput, match="ada has not approved what `verify` sends"):
        require(own, study, "verify", page + "more", None)
    require(own, study, "verify", page + "more", answer(True))
    (folder / "study.toml").write_text("tol = 0.5\n" + (folder / "study.toml").read_text())
    own, study = load_party(folder / "ada" / "party.toml")
    require(own, study, "fit", page, answer(True))
    assert asked == [page, page, page + "more", page + "more", page]


@pytest.mark.parametrize("content", ["[]", '{"run": []}', '{"run": {"fit": []}}', "{"])
def test_a_changed_record_is_named(folder, content):
    own, study = load_party(folder / "ada" / "party.toml")
    (folder / "ada" / "consent.json").write_text(content)
    with pytest.raises(CorruptFile, match=r"consent\.json was changed: delete it"):
        require(own, study, "fit", "page", True)


def test_every_operation_asks_with_a_page_of_its_own(tmp_path):
    """Consent to one operation is none to another."""
    write_study(tmp_path, split="samples", tol=1e-3)
    write_data(tmp_path, data("samples"))
    pages = []

    def consent(page):
        pages.append(page)
        return True

    works = {
        "fit": fit_together,
        "describe": describe_together,
        "crosstab": partial(crosstab_together, rows="x0", columns="y"),
        "evaluate": lambda own, study, consent: evaluate_together(
            own, study, own.data, consent=consent
        ),
        "verify": verify_together,
    }
    for operation, work in works.items():
        if operation == "crosstab":
            write_data(tmp_path, [rounded(table) for table in data("samples")])
        together(tmp_path, work=work, consent=consent)
        assert len(pages) == 3, operation
        assert all(f"`coterie {COMMANDS.get(operation, operation)}`" in page for page in pages)
        together(tmp_path, work=work, consent=lambda page: pytest.fail("asked again"))
        pages.clear()
        if operation == "crosstab":
            write_data(tmp_path, data("samples"))


COMMANDS = {"fit": "agent"}


def rounded(table):
    return replace(table, X=np.round(table.X), y=np.sign(table.y))


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({}, "all labels, and after as many rounds"),
        ({"split": "samples"}, "the sums over all parties, and the model"),
        ({"split": "samples", "secure-sums": False}, "your rows and labels"),
    ],
)
def test_the_page_says_in_one_line_what_the_most_curious_could_compute(tmp_path, settings, words):
    write_study(tmp_path, **settings)
    study = load_study(tmp_path / "study.toml")
    assert words in most_curious(study)
    page = disclosure(study, "bea", data(study.split)[1])
    assert page.splitlines()[2] == f"Worst case: another party can compute {most_curious(study)}."
    shown = shell("provision", str(tmp_path / "study.toml"), "--party", "ada").output
    assert most_curious(study) in " ".join(shown.split())
