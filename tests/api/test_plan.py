"""`coterie plan`: what it predicts from a part of the rows is what happens to all of them."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

import coterie as co
from coterie.errors import InvalidProblem

RNG = np.random.default_rng(3)
X = RNG.standard_normal((12_000, 12))
NUMBERS = X @ RNG.standard_normal(12) + RNG.standard_normal(12_000)
SIGNS = np.where(NUMBERS > 0, 1.0, -1.0)


@pytest.mark.parametrize(
    ("problem", "y", "settings"),
    [
        (co.Problem("squared", "l2", 0.01, intercept=False), NUMBERS, {"method": "proximal-2"}),
        (
            co.Problem("logistic", "l1", 0.01, intercept=False),
            SIGNS,
            {"method": "proximal-2", "agents": 5},
        ),
        (co.Problem("hinge", "l2", 0.1, intercept=False), SIGNS, {"method": "cocoa", "tol": 1e-4}),
        (
            co.Problem("squared", "l2", 0.1, intercept=False),
            NUMBERS,
            {"split": "features", "agents": 4, "network": "ring", "tol": 1e-4},
        ),
    ],
    ids=["squared", "lasso", "hinge", "features"],
)
def test_the_prediction_comes_true(problem, y, settings):
    planned = co.plan(problem, (X, y), **settings)
    happened = co.solve(problem, (X, y), **settings)
    assert planned.method == happened.certificate.settings["method"]["name"]
    assert happened.rounds / 3 <= planned.rounds <= 3 * happened.rounds
    for bits, cost in zip(planned.bits_per_party, happened.bill.per_agent, strict=True):
        assert bits / planned.rounds == pytest.approx(cost.bits / happened.rounds, rel=0.35)
    assert happened.bill.total.bits / 4 <= planned.bits <= 4 * happened.bill.total.bits


TASKS = X[:900] @ RNG.standard_normal((12, 3)) + 0.1 * RNG.standard_normal((900, 3))
KINDS = np.array(["low", "middle", "high"])[TASKS.argmax(axis=1)]
ENTRIES = np.column_stack([RNG.integers(0, 20, 900), RNG.integers(0, 15, 900)]).astype(float)
TRACE = {"penalty": "traceball", "radius": 4.0}
SMALL = {
    "auto": (co.Problem("squared", "l2", 0.1, intercept=False), (X[:900], NUMBERS[:900]), {}),
    "cocoa": (
        co.Problem("hinge", "l2", 0.1, intercept=False),
        (X[:900], SIGNS[:900]),
        {"method": "cocoa", "agents": 3},
    ),
    "ring": (
        co.Problem("squared", "l1", 0.1, intercept=False),
        (X[:900], NUMBERS[:900]),
        {"split": "features", "network": "ring"},
    ),
    "low rank": (co.Problem("squared", **TRACE), (X[:900], TASKS), {}),
    "classes": (co.Problem("multinomial", **TRACE), (X[:900], KINDS), {"method": "dfw-trace"}),
    "completion": (co.Problem("completion", shape=(20, 15), **TRACE), (ENTRIES, TASKS[:, 0]), {}),
    "personal": (
        co.Personal(count=12),
        (X[:900], SIGNS[:900], np.arange(900) % 5),
        {"split": "users"},
    ),
}


@pytest.mark.parametrize("case", SMALL)
def test_where_all_rows_are_fitted_the_plan_is_the_bill(case):
    problem, data, settings = SMALL[case]
    planned = co.plan(problem, data, tol=1e-2, **settings)
    happened = co.solve(problem, data, tol=1e-2, **settings)
    assert happened.status == "optimal"
    assert planned.method == happened.certificate.settings["method"]["name"]
    assert planned.rounds == happened.rounds
    assert planned.bits_per_party == tuple(cost.bits for cost in happened.bill.per_agent)
    assert planned.turns == happened.bill.seconds(latency=1.0, bandwidth=math.inf)


@pytest.mark.parametrize("case", ["classes", "personal"])
def test_of_a_part_the_rounds_are_those_of_the_whole(case):
    problem, (rows, labels, *users), settings = SMALL[case]
    more = np.random.default_rng(1).integers(0, len(rows), 6000)
    data = (rows[more], labels[more], *(user[more] for user in users))
    planned = co.plan(problem, data, tol=1e-2, **settings)
    assert "4,0" in planned.basis
    happened = co.solve(problem, data, tol=1e-2, **settings)
    assert happened.rounds / 2 <= planned.rounds <= 2 * happened.rounds
    assert happened.bill.total.bits / 2 <= planned.bits <= 2 * happened.bill.total.bits


@pytest.mark.parametrize("loss", ["multinomial", "squared", "completion"])
def test_low_rank_data_is_not_made_up(loss):
    options = {"shape": (20, 15)} if loss == "completion" else {}
    with pytest.raises(InvalidProblem, match=f"{loss} needs other labels. Give data"):
        co.plan(co.Problem(loss, **TRACE, **options), (600, 8))


def test_links_and_engines_cost_time():
    problem, data = co.Problem("squared", "l2", 0.1, intercept=False), (2_000, 10)
    near, far = (
        co.plan(problem, data, method="proximal-2", link=(latency, 1e8)) for latency in (0.001, 0.1)
    )
    assert near.rounds == far.rounds
    assert far.wire_seconds - near.wire_seconds == pytest.approx(far.turns * 0.099)
    slow = co.plan(problem, data, method="proximal-2", link=(0.001, 1e4))
    assert slow.wire_seconds - near.wire_seconds == pytest.approx(
        max(slow.bits_per_party) * (1e-4 - 1e-8)
    )
    assert co.plan(problem, data, engine="spark").engine_seconds > near.engine_seconds == 0.0
    assert near.seconds == pytest.approx(near.wire_seconds + near.computing_seconds)


def test_a_run_that_is_cut_short_is_continued_by_its_trend():
    problem, settings = (
        co.Problem("squared", "l1", 1e-2, intercept=False),
        {"method": "proximal-2", "acceleration": "none"},
    )
    data = (X[:600] * np.logspace(0, 1, 12), NUMBERS[:600])
    happened = co.solve(problem, data, **settings)
    planned = co.plan(problem, data, max_rounds=happened.rounds // 2, **settings)
    assert "iteration_limit" in planned.basis
    assert happened.rounds / 4 <= planned.rounds <= 4 * happened.rounds


def test_links_that_cannot_be_are_refused():
    with pytest.raises(InvalidProblem, match="bits per second"):
        co.plan(co.Problem(intercept=False), (10, 2), link=(0.1, 0.0))


def test_the_command(shell, tmp_path):
    file = tmp_path / "patients.csv"
    np.savetxt(
        file,
        np.column_stack([X[:300], NUMBERS[:300]]),
        delimiter=",",
        header=",".join("abcdefghijklm"),
        comments="",
    )
    command = ["plan", file, "--target", "m", "--strength", "0.1", "--agents", "3"]
    code, text, _ = shell(*command)
    assert code == 0
    assert "Rounds: 1. " in text
    assert "total" in text
    found = json.loads(shell(*command, "--json")[1])
    assert found["rounds"] >= 1
    assert len(found["bits_per_party"]) == 4
    assert found["seconds"] > 0


def test_a_billion_rows_are_planned_without_being_made():
    """Split by samples messages do not grow with the rows; split by features they do."""
    problem = co.Problem("squared", "l2", 0.1, intercept=False)
    small, large = (
        co.plan(problem, (rows, 8), agents=20, method="lbfgs-rows") for rows in (8000, 10**9)
    )
    assert large.bits_per_party == small.bits_per_party
    assert "4,000 of 1,000,000,000 rows" in large.basis
    thin, long = (co.plan(problem, (rows, 8), split="features", agents=4) for rows in (8000, 10**8))
    assert long.bits > 1000 * thin.bits
