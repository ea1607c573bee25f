"""The benchmark's own parts: the baselines are what their papers say, the tables count, losing rows are explained."""

from __future__ import annotations

import numpy as np
import pytest
from benchmarks.baselines import run
from benchmarks.baselines.cola import Cola
from benchmarks.baselines.decentralised import Extra, Subgradient, Tracking
from benchmarks.bench import PAGE, WHY, lost, number, page, rounds_table, seconds_table, solvers
from benchmarks.peers import PEERS, missing
from benchmarks.problems import Case
from tests.reference import pooled_optimum

import coterie as co
from coterie.networks import network

RNG = np.random.default_rng(0)
X = RNG.standard_normal((200, 10))
NUMBERS = X @ RNG.standard_normal(10) + RNG.standard_normal(200)


def case(loss, penalty, **parameters):
    problem = co.Problem(loss, penalty, 0.05, **parameters)
    return Case("x", problem, X, NUMBERS if problem.loss.kind == "regression" else np.sign(NUMBERS), 4)


@pytest.mark.parametrize(
    ("baseline", "loss", "penalty"),
    [
        (Extra(), "squared", "l2"),
        (Extra(), "logistic", "l1"),
        (Tracking(0.3), "logistic", "l2"),
        (Cola(), "squared", "l1"),
        (Cola(), "squared", "l2"),
    ],
    ids=lambda value: getattr(value, "name", value),
)
def test_baselines_come_to_the_pooled_optimum(baseline, loss, penalty):
    one = case(loss, penalty)
    best = pooled_optimum(one.problem, X, one.y)[2]
    (near, _), (nearer, megabytes) = run(baseline, one, network("ring", 4), best, (1e-3, 1e-6), 300)
    assert 1 < near < nearer < 300
    sent = {"EXTRA": 10, "gradient tracking": 20, "CoLA": 200}[baseline.name]
    assert megabytes == pytest.approx(nearer * 2 * 4 * sent * 8 / 1e6), "both directions of every edge of the ring"


def test_subgradients_are_slow_but_sure():
    one = case("hinge", "l2")
    best = pooled_optimum(one.problem, X, one.y)[2]
    assert np.isfinite(run(Subgradient(10.0), one, network("ring", 4), best, (0.1,), 500)[0][0])


@pytest.mark.parametrize("peer", [peer for peer in PEERS if peer.package == "sklearn"], ids=lambda peer: peer.name)
def test_scikit_learn_solves_our_objective(peer):
    for kind in peer.knows:
        loss, penalty = kind.split()
        one = case(loss, penalty, **({"level": 0.7} if loss == "quantile" else {}))
        reached = one.objective(peer.fit(one, 1e-8))
        assert reached == pytest.approx(pooled_optimum(one.problem, X, one.y)[2], rel=1e-5)


def test_a_peer_that_is_not_there_is_left_out_with_its_reason():
    absent = next((peer for peer in PEERS if missing(peer)), None)
    if absent is None:
        pytest.skip("every peer is installed")
    out: dict[str, str] = {}
    found = solvers(case(*next(iter(absent.knows)).split()), out)
    assert absent.name not in found
    assert "Error" in out[absent.name]
    assert "Coterie" in found


def test_tables_and_losing_rows():
    problem = "hinge l2, a set"
    rows = [
        {"table": "seconds", "problem": problem, "solver": name, "to 1e-03": a, "to 1e-06": b, "megabytes": 1.0}
        | {"proven": 1e-12, "agreement": 1e-10}
        for name, a, b in (("Coterie", 2.0, 4.0), ("fast", 1.0, 1.0), ("slow", 6.0, np.inf))
    ]
    table = "\n".join(seconds_table(rows))
    assert "| fast | 1 | 1 | 0.5 | 0.25 | 1 |" in table
    assert "| slow | 6 | – | 3 | – | 1 |" in table
    assert lost(rows) == [f"- {problem}: fast is 4 times faster: {WHY['hinge l2']}."]
    counted = {"rounds to 1e-03": 3, "MB to 1e-03": 0.5, "rounds to 1e-06": np.inf, "MB to 1e-06": np.inf}
    rows.append({"table": "rounds", "problem": problem, "solver": "ours", **counted})
    assert rounds_table(rows[-1:])[-1] == f"| {problem} | ours | 3 | 0.5 | – | – |"
    whole = page(rows, {"somebody": "not installed"}, quick=True)
    assert whole.startswith(PAGE[:14])
    assert "somebody: not installed" in whole
    assert number(1234.5) == "1234"
