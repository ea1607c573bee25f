"""What parties tell all others outside of sums: what is sent is declared, and what is declared is
sent.
"""

from __future__ import annotations

import numpy as np
import pytest

from coterie.api.verify import claimed
from coterie.run.disclosure import Guard, Undeclared
from coterie.run.finish import introduced_again
from coterie.study import align, broadcasts
from coterie.study.broadcasts import (
    COMMITMENTS,
    FITTED_WITHOUT,
    HELLO,
    LEAVING,
    ROUND,
    TOTALS,
    Broadcast,
)
from coterie.study.description import describe_together
from coterie.study.disclosure import MESSAGES, OPERATIONS, disclosure, messages
from coterie.study.fits import Fits
from coterie.study.party import fit_together
from coterie.study.proof import verify_together
from coterie.study.scores import evaluate_together, predict_together
from coterie.study.session import Session, transport_of
from coterie.study.study import load_study
from tests.harness.parties import ANYTHING, NAMES, data, together, write_data, write_study
from tests.harness.wire import Wire

RIDGE = {"loss": "squared", "penalty": "l2", "strength": 0.1, "intercept": True}
STUDIES = {
    "samples": {"split": "samples", "problem": RIDGE, "prepare": 'numbers = "standardise"'},
    "features": {"split": "features", "problem": RIDGE, "labels-shared": True},
}


def test_every_broadcast_is_listed_once():
    found = [*vars(broadcasts).values(), *vars(align).values()]
    declared = [one for one in found if isinstance(one, Broadcast)]
    assert sorted(one.about for one in declared) == sorted(one.about for one in MESSAGES)
    labels = [label for one in MESSAGES for label in one.labels]
    assert len({*labels}) == len(labels)


def test_a_message_that_is_not_on_the_page_of_an_operation_is_refused(tmp_path):
    write_study(tmp_path)
    session = Session(None, load_study(tmp_path / "study.toml"), None, None, None, "describe")
    with pytest.raises(AssertionError, match="describe: 'digests' is not on the page"):
        session.all_gather("", COMMITMENTS, str)


def wanted(tmp_path, split):
    """A study of that split with data, and new rows for each party."""
    settings = dict(STUDIES[split])
    recipes = settings.pop("prepare", None)
    write_study(tmp_path, policy=ANYTHING, tol=1e-3, **settings)
    if recipes is not None:
        file = tmp_path / "study.toml"
        file.write_text(file.read_text().replace("[problem]", f"[prepare]\n{recipes}\n[problem]"))
    tables = data(split)
    write_data(tmp_path, tables)
    return tables


@pytest.mark.parametrize("split", STUDIES)
def test_what_is_sent_is_what_the_page_says(tmp_path, split):
    tables = wanted(tmp_path, split)
    study = load_study(tmp_path / "study.toml")
    wire = Wire()
    works = {"fit": fit_together, "describe": describe_together, "verify": verify_together}
    file = {name: tmp_path / name / "data.csv" for name in NAMES}
    works["evaluate"] = lambda own, study: evaluate_together(
        own, study, file[own.party], consent=True
    )
    if split == "features":
        works["predict"] = lambda own, study: predict_together(
            own, study, file[own.party], consent=True
        )
    with wire.recorded():
        for operation, work in works.items():
            for found in together(tmp_path, work=work):
                assert not isinstance(found, BaseException), (operation, found)
    page = disclosure(study, NAMES[0], tables[0])
    queries = {one.name: {query.__name__ for query in one.discloses} for one in OPERATIONS}
    for operation, labels in wire.labels.items():
        declared = messages(study, operation)
        assert all(one.sentence in page for one in declared)
        known = {label for one in declared for label in one.labels}
        assert labels.keys() <= known | queries.get(operation, set()), operation
        unsaid = [one for one in declared if not labels.keys() & {*one.labels}]
        assert not {*unsaid} - RARE, operation
    assert len(wire.labels) == len(works)


RARE = {HELLO, LEAVING, FITTED_WITHOUT, TOTALS, ROUND}
"""Sent when parties connect or leave, with an option, or by some methods."""


# -- what is not declared --------------------------------------------------------------------------


class Curious(Fits):
    """Sends something that no declaration is about, when the rounds are over."""

    message = None

    def fit(self, problem, **more):
        found = super().fit(problem, **more)
        type(self).message(self)
        return found


def sum_without_a_check(fits):
    """A sum that goes around the driver."""
    collectives = transport_of(fits.session).collectives
    collectives.total([np.zeros(3)], collectives.tag("rounds", "Sum"))


def row_of_numbers(fits):
    """A message of the engine that nobody declared."""
    transport_of(fits.session).collectives.of_all([[1.0]], "ages")


def plain_bytes(fits):
    """Bytes under a label of their own."""
    fits.session.broadcast.all_gather(b"ages", "ages")


def digest_under_another_name(fits):
    """A declared message of another operation."""
    fits.session.broadcast.all_gather(b"ages", claimed.__name__)


def publication(fits):
    """What others can ask for, of an operation without a method."""
    Guard("describe", [introduced_again]).publish(3)


@pytest.mark.parametrize(
    ("message", "words"),
    [
        (sum_without_a_check, r"Sum \(step \d+, rounds\) is neither a declared message"),
        (row_of_numbers, "ages .* is neither"),
        (plain_bytes, "ages .* is neither"),
        (digest_under_another_name, "claimed .* is neither"),
        (publication, "no declaration is about a publication"),
    ],
)
def test_nothing_undeclared_leaves_a_party(tmp_path, monkeypatch, message, words):
    write_study(tmp_path, policy=ANYTHING, tol=1e-3, split="samples", problem=RIDGE)
    monkeypatch.setattr(Curious, "message", message)
    monkeypatch.setattr("coterie.study.party.Fits", Curious)
    with pytest.raises(Undeclared, match=words):
        together(tmp_path, data("samples"))
