"""The choice of a model for users: in one process as at workers, for every candidate."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import scipy.sparse as sp

import coterie as co
from coterie.errors import CoterieError
from coterie.numerics.threads import one_blas_thread
from tests.harness.worker_cases import same
from tests.harness.workers import Visited, Workers

SMALL = co.Personal("stumps", count=4, mu=1.0)


def users(loss="logistic", sparse=False, sizes=(24, 20, 3, 22)):
    random = np.random.default_rng(4)
    tables = []
    for place, n in enumerate(sizes):
        X = random.standard_normal((n, 3))
        y = X[:, 0] + 2.0 * place + 0.3 * random.standard_normal(n)
        if loss == "logistic":
            y = np.where(y > 2.0, 1.0, -1.0)
        tables.append(co.Table(sp.csr_array(X) if sparse else X, y, name=f"user {place}"))
    return tables


def choices(tables, engines, **how):
    """The choice of tables in this process, and at the workers of each engine."""
    sources = [partial(same, table) for table in tables]
    data = {"local": tables}
    with one_blas_thread():
        return [
            co.choose(data.get(engine, sources), engine=engine, progress=False, **how)
            for engine in ("local", *engines)
        ]


def assert_same_choice(found, expected):
    assert found.choice == expected.choice
    assert found.trials == expected.trials
    assert found.cost == expected.cost
    assert found.result.model.digest() == expected.result.model.digest()
    assert found.result.bill.total == expected.result.bill.total
    assert found.result.explanation == expected.result.explanation


@pytest.mark.parametrize(
    ("loss", "sparse"), [("logistic", False), ("squared", False), ("logistic", True)]
)
def test_users_at_workers_choose_as_in_one_process(loss, sparse):
    expected, found, visited = choices(users(loss, sparse), [Workers(), Visited()], loss=loss)
    assert {trial["choice"] for trial in expected.trials} >= {"pooled", "levels", "shared"}
    assert expected.cost.bits > sum(trial["bits"] for trial in expected.trials) > 0
    assert_same_choice(found, expected)
    assert (visited.choice, visited.cost) == (expected.choice, expected.cost)
    for own, other in zip(visited.trials, expected.trials, strict=True):
        assert own.pop("choice") == other.pop("choice")
        assert own == pytest.approx(other, rel=1e-12)


def test_boosted_models_are_candidates_at_workers_too():
    expected, found = choices(users(), [Workers()], boosted=SMALL)
    assert {trial["choice"] for trial in expected.trials} >= {"pooled", "global", "local"}
    assert_same_choice(found, expected)


@pytest.mark.parametrize("loss", ["logistic", "squared"])
def test_a_user_without_held_out_rows_counts_in_no_fold(loss):
    """A user with one row has no row in two of the folds."""
    expected, found = choices(users(loss, sizes=(12, 1, 12)), [Workers()], loss=loss, folds=3)
    assert {trial["folds"] for trial in expected.trials} >= {3}
    assert all(np.isfinite([trial["loss"], trial["score"]]).all() for trial in expected.trials)
    assert_same_choice(found, expected)


REFUSED = {
    "one class": (users(sizes=(5,)), {}, "one class|two classes"),
    "several classes": (users(), {"loss": "multinomial"}, "a loss of one score"),
    "messages to neighbours": (
        users(),
        {"boosted": SMALL, "secure_sums": True},
        "secure sums are for one model",
    ),
    "one fold": (users(), {"folds": 1}, "folds"),
    "a method": (users(), {"method": "newton"}, "no keyword of co.choose called 'method'"),
    "a wrong keyword": (users(), {"fold": 3}, "no keyword of co.choose called 'fold'"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_it_is_refused_with_the_same_message_everywhere(case):
    tables, how, words = REFUSED[case]
    messages = set()
    for engine, data in (("local", tables), (Workers(), [partial(same, one) for one in tables])):
        with pytest.raises(CoterieError, match=words) as refused:
            co.choose(data, engine=engine, progress=False, **how)
        messages.add(str(refused.value))
    assert len(messages) == 1, messages


def test_it_is_the_choice_of_the_estimator():
    tables = users()
    found = co.choose(tables, seed=0, progress=False)
    X, y = np.concatenate([one.X for one in tables]), np.concatenate([one.y for one in tables])
    names = np.repeat([one.name for one in tables], [one.n for one in tables])
    estimator = co.PersonalizedClassifier(method="shared", random_state=0).fit(X, y, names)
    assert estimator.choice_ == found.choice
    assert estimator.choice_cost_.bits == pytest.approx(found.cost.bits, rel=0.05)
    for own, other in zip(estimator.trials_, found.trials, strict=True):
        assert own["choice"] == other["choice"]
        assert own["loss"] == pytest.approx(other["loss"], rel=1e-3)
