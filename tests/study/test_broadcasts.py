"""What parties tell all others outside of sums: what is sent is declared, and what is declared is
sent.
"""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pytest

from coterie.study import broadcasts
from coterie.study.broadcasts import BROADCASTS, COMMITMENTS, FITTED_WITHOUT, TOTALS, Broadcast
from coterie.study.description import describe_together
from coterie.study.disclosure import OPERATIONS, disclosure
from coterie.study.proof import verify_together
from coterie.study.scores import evaluate_together, predict_together
from coterie.study.session import Session
from coterie.study.study import load_study
from coterie.transport.broadcast import SignedBroadcast
from tests.harness.parties import ANYTHING, NAMES, data, together, write_data, write_study

RIDGE = {"loss": "squared", "penalty": "l2", "strength": 0.1, "intercept": True}
MATCHING = {"ids", "order"}
MASKING = {"masks", "seeds", "check keys"}
STUDIES = {
    "samples": {"split": "samples", "problem": RIDGE, "prepare": 'numbers = "standardise"'},
    "features": {"split": "features", "problem": RIDGE, "labels-shared": True},
}


def test_every_broadcast_is_listed_once():
    declared = [one for one in vars(broadcasts).values() if isinstance(one, Broadcast)]
    assert sorted(one.about for one in declared) == sorted(one.about for one in BROADCASTS)
    assert len({one.about for one in BROADCASTS}) == len(BROADCASTS)


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
def test_what_is_sent_is_what_the_page_says(tmp_path, split, monkeypatch):
    tables = wanted(tmp_path, split)
    study = load_study(tmp_path / "study.toml")
    sent = defaultdict(set)
    operation = "fit"
    plain = SignedBroadcast.all_gather

    def recorded(self, mine, about):
        sent[operation].add(about)
        return plain(self, mine, about)

    monkeypatch.setattr(SignedBroadcast, "all_gather", recorded)
    together(tmp_path)
    works = {"describe": describe_together, "verify": verify_together}
    file = {name: tmp_path / name / "data.csv" for name in NAMES}
    works["evaluate"] = lambda own, study: evaluate_together(
        own, study, file[own.party], consent=True
    )
    if split == "features":
        works["predict"] = lambda own, study: predict_together(
            own, study, file[own.party], consent=True
        )
    for operation, work in works.items():
        for found in together(tmp_path, work=work):
            assert not isinstance(found, BaseException), (operation, found)
    page = disclosure(study, NAMES[0], tables[0])
    queries = {one.name: {query.__name__ for query in one.discloses} for one in OPERATIONS}
    for operation, labels in sent.items():
        declared = {
            one.about: one.sent
            for one in BROADCASTS
            if operation in one.operations and one.applies(study)
        }
        assert all(text in page for text in declared.values())
        said = (
            labels
            - MATCHING
            - (MASKING if "masks" in declared else set())
            - queries.get(operation, set())
        )
        assert said <= declared.keys(), operation
        unsaid = declared.keys() - labels - {FITTED_WITHOUT.about, TOTALS.about}
        assert not unsaid, operation
    assert np.sum([len(one) for one in sent.values()]) > 20
