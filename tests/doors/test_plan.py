"""`coterie plan`: what it predicts from a part of the rows is what happens to all of them."""

from __future__ import annotations

import json
import subprocess
import sys

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
        (co.Problem("squared", "l2", 0.01), NUMBERS, {"method": "proximal-2"}),
        (co.Problem("logistic", "l1", 0.01), SIGNS, {"method": "proximal-2", "agents": 5}),
        (co.Problem("hinge", "l2", 0.1), SIGNS, {"method": "cocoa", "tol": 1e-4}),
        (co.Problem("squared", "l2", 0.1), NUMBERS, {"split": "features", "agents": 4, "network": "ring", "tol": 1e-4}),
    ],
    ids=["squared", "lasso", "hinge", "features"],
)
def test_the_prediction_comes_true(problem, y, settings):
    planned = co.plan(problem, (X, y), **settings)
    happened = co.solve(problem, (X, y), **settings)
    assert planned.method == happened.certificate.settings["method"]["name"]
    assert happened.rounds / 3 <= planned.rounds <= 3 * happened.rounds
    for bits, cost in zip(planned.bits_per_party, happened.bill.per_agent, strict=True):
        assert bits / planned.rounds == pytest.approx(cost.bits / happened.rounds, rel=0.3)
    assert happened.bill.total.bits / 4 <= planned.bits <= 4 * happened.bill.total.bits


def test_links_and_engines_cost_time():
    problem, data = co.Problem("squared", "l2", 0.1), (2_000, 10)
    near, far = (co.plan(problem, data, method="proximal-2", link=(latency, 1e8)) for latency in (0.001, 0.1))
    assert near.rounds == far.rounds
    assert far.wire_seconds - near.wire_seconds == pytest.approx(far.turns * 0.099)
    slow = co.plan(problem, data, method="proximal-2", link=(0.001, 1e4))
    assert slow.wire_seconds - near.wire_seconds == pytest.approx(max(slow.bits_per_party) * (1e-4 - 1e-8))
    assert co.plan(problem, data, engine="spark").engine_seconds > near.engine_seconds == 0.0
    assert near.seconds == pytest.approx(near.wire_seconds + near.computing_seconds)


def test_a_run_that_is_cut_short_is_continued_by_its_trend():
    problem, settings = co.Problem("squared", "l1", 1e-2), {"method": "proximal-2", "acceleration": "none"}
    data = (X[:600] * np.logspace(0, 1, 12), NUMBERS[:600])
    happened = co.solve(problem, data, **settings)
    planned = co.plan(problem, data, max_rounds=happened.rounds // 2, **settings)
    assert "iteration_limit" in planned.basis
    assert happened.rounds / 4 <= planned.rounds <= 4 * happened.rounds


def test_links_that_cannot_be_are_refused():
    with pytest.raises(InvalidProblem, match="bits a second"):
        co.plan(co.Problem(), (10, 2), link=(0.1, 0.0))


def test_the_command(tmp_path):
    file = tmp_path / "patients.csv"
    np.savetxt(
        file, np.column_stack([X[:300], NUMBERS[:300]]), delimiter=",", header=",".join("abcdefghijklm"), comments=""
    )
    command = [
        sys.executable,
        "-m",
        "coterie",
        "plan",
        str(file),
        "--target",
        "m",
        "--strength",
        "0.1",
        "--agents",
        "3",
    ]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "rounds" in text
    assert "in all" in text
    found = json.loads(subprocess.run([*command, "--json"], capture_output=True, text=True, check=True).stdout)
    assert found["rounds"] >= 1
    assert len(found["bits_per_party"]) == 4
    assert found["seconds"] > 0
