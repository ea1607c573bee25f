"""Nothing is sent before somebody at the party agreed to the page, once for each version of the
study.
"""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from coterie import cli
from coterie.errors import InvalidInput, Refused
from coterie.numerics.arrays import digest
from coterie.study.consent import ask_once
from coterie.study.disclosure import disclosure, most_curious
from coterie.study.party import read_own
from coterie.study.study import load_party, load_study
from tests.harness.parties import data, write_data, write_study


@pytest.fixture
def folder(tmp_path):
    write_study(tmp_path, network="path")
    write_data(tmp_path, data("features"))
    return tmp_path


def test_a_script_is_refused_with_what_to_type(folder):
    ran = CliRunner().invoke(cli.app, ["agent", str(folder / "ada" / "party.toml"), "--json"])
    assert isinstance(ran.exception, InvalidInput)
    assert "party.toml --show`, then start with --yes" in str(ran.exception)
    assert not (folder / "ada" / "consent.json").exists()


def test_one_is_asked_once_for_each_version_of_the_study_and_the_page(folder):
    own, study = load_party(folder / "ada" / "party.toml")
    page, asked = disclosure(study, "ada", read_own(own, study)), []

    def answer(yes):
        return lambda: asked.append(yes) or yes

    with pytest.raises(Refused, match="ada does not agree"):
        ask_once(own, study, page, answer(False))
    ask_once(own, study, page, answer(True))
    ask_once(own, study, page, answer(False))
    assert asked == [False, True]
    record = json.loads((folder / "ada" / "consent.json").read_text())
    assert record[study.run_id]["page"] == digest(page)
    ask_once(own, study, page + "more", answer(True))
    (folder / "study.toml").write_text("tol = 0.5\n" + (folder / "study.toml").read_text())
    own, study = load_party(folder / "ada" / "party.toml")
    ask_once(own, study, page, answer(True))
    assert asked == [False, True, True, True]


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
    assert f"The most curious party could compute: {most_curious(study)}." in page.splitlines()
    shown = (
        CliRunner()
        .invoke(cli.app, ["provision", str(tmp_path / "study.toml"), "--party", "ada"])
        .output
    )
    assert most_curious(study) in " ".join(shown.split())
