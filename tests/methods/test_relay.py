"""`relay`: dual coordinate ascent in turns, whoever has which rows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp

import coterie as co
from coterie.data import Table, split
from coterie.errors import InvalidProblem
from coterie.methods import method
from coterie.methods.primal_dual.dual_block import knows, shuffled
from coterie.methods.primal_dual.relay import TUNING
from coterie.networks import star
from coterie.numerics.losses import LOSSES
from coterie.run.bill import Bill
from coterie.run.certificate import introduce
from coterie.run.setup import make_agents
from coterie.transport.in_process import InProcess
from tests.harness.labels import labels_for
from tests.harness.reference import pooled_optimum

RNG = np.random.default_rng(0)
N, D, K = 60, 8, 4
X = RNG.standard_normal((N, D))
NUMBERS = X @ RNG.standard_normal(D) + 0.5 * RNG.standard_normal(N)
SIGNS = np.where(NUMBERS + RNG.standard_normal(N) > 0, 1.0, -1.0)
WEIGHTS = RNG.integers(1, 4, N).astype(float)
LAM = 0.05
KNOWN = [name for name, entry in LOSSES.items() if knows(entry())]


def labels(name):
    return labels_for(name, NUMBERS, SIGNS)


def states_after_each_round(problem, table, agents, rounds):
    network, steps = star(agents, server=True), method("relay")
    members = make_agents(split(table, "samples", agents), problem, "samples", network, 0)
    transport = InProcess(network, Bill(network))
    statistics = transport.converse([introduce(agent) for agent in members], "setup")
    members = [
        replace(agent, statistics=known) for agent, known in zip(members, statistics, strict=True)
    ]
    states = transport.converse([steps.start(agent) for agent in members], "setup")
    for t in range(1, rounds + 1):
        states = transport.converse(
            [steps.round(a, s, t) for a, s in zip(members, states, strict=True)], "rounds"
        )
        yield states


@pytest.mark.parametrize("weights", [None, WEIGHTS], ids=["", "weights"])
@pytest.mark.parametrize("loss", KNOWN)
def test_it_reaches_the_pooled_optimum(loss, weights):
    problem, y = co.Problem(loss, "l2", LAM, intercept=False), labels(loss)
    data = (X, y) if weights is None else (X, y, weights)
    result = co.solve(problem, data, agents=K, method="relay", tol=1e-7, max_rounds=60_000)
    assert result.status == "optimal"
    best = pooled_optimum(problem, X, y, weights)[2]
    assert -1e-8 <= result.certificate.primal - best <= result.certificate.gap + 1e-8


@pytest.mark.rotates
@pytest.mark.parametrize(
    "kind", [np.asarray, sp.csr_array, lambda A: A.astype("f4")], ids=["dense", "sparse", "f4"]
)
@pytest.mark.parametrize(
    "agents", [1, 15, [40, 20], [30, 0, 30]], ids=["one", "many", "unequal", "one empty"]
)
def test_any_split_and_any_array(agents, kind):
    problem = co.Problem("hinge", "l2", LAM, intercept=False)
    result = co.solve(
        problem, (kind(X), SIGNS), agents=agents, method="relay", tol=1e-5, max_rounds=100_000
    )
    assert result.status == "optimal"
    assert (
        result.certificate.primal - pooled_optimum(problem, X, SIGNS)[2]
        <= result.certificate.gap + 1e-6
    )


@pytest.mark.parametrize("loss", ["hinge", "logistic", "huber"])
def test_w_follows_from_v_and_the_dual_never_falls(loss):
    problem, y = co.Problem(loss, "l2", LAM, intercept=False), labels(loss)
    before = -np.inf
    for states in states_after_each_round(problem, Table(X, y, WEIGHTS), K, 10 * K * TUNING.parts):
        v, n = np.concatenate([state.v for state in states]), WEIGHTS.sum()
        w = -X.T @ (WEIGHTS * v) / (n * LAM)
        for state in states:
            np.testing.assert_allclose(state.w, w, atol=1e-12)
        dual = problem.dual(problem.loss.conjugate(v, y, WEIGHTS), n, 0.5 * LAM * w @ w)
        assert dual >= before - 1e-13
        before = dual


def test_everybody_speaks_as_often_and_sweeps_all_rows_once_in_a_lap():
    """In the first lap each row's v is its best for the others as they were: no row is passed over,
    none seen twice.
    """
    problem, before, moves = (
        co.Problem("squared", "l2", LAM, intercept=False),
        [np.zeros(N // K)] * K,
        np.zeros(K, int),
    )
    changed = [np.zeros(N // K, int) for _ in range(K)]
    for states in states_after_each_round(problem, Table(X, NUMBERS), K, K * TUNING.parts):
        moved = [k for k in range(K) if not np.array_equal(states[k].v, before[k])]
        assert len(moved) == 1
        moves[moved[0]] += 1
        for k in range(K):
            changed[k] += states[k].v != before[k]
        before = [state.v for state in states]
    assert (moves == TUNING.parts).all()
    assert all((rows == 1).all() for rows in changed)


def test_one_agent_takes_the_steps_of_dual_coordinate_descent():
    """Hsieh and others: α_i ← clip(α_i − (y_i x_iᵀw − 1)/‖x_i‖², 0, C), w = Σ α_i y_i x_i, for C =
    1/(nλ).
    """
    C, w, alpha = 1 / (N * LAM), np.zeros(D), np.zeros(N)
    rounds = states_after_each_round(
        co.Problem("hinge", "l2", LAM, intercept=False),
        Table(X, SIGNS),
        1,
        TUNING.settled * TUNING.parts,
    )
    for lap in range(TUNING.settled):
        order = shuffled(N, np.random.default_rng([0, 1, lap]))
        for part in np.random.default_rng([0, 0, lap]).permutation(TUNING.parts):
            for i in order[part :: TUNING.parts]:
                new = np.clip(alpha[i] - (SIGNS[i] * X[i] @ w - 1) / (X[i] @ X[i]), 0, C)
                w += (new - alpha[i]) * SIGNS[i] * X[i]
                alpha[i] = new
            (state,) = next(rounds)
            np.testing.assert_allclose(state.w, w, atol=1e-12)
            np.testing.assert_allclose(state.v, -SIGNS * alpha / C, atol=1e-12)


@pytest.mark.parametrize(
    ("problem", "words"),
    [
        (co.Problem("hinge", "l1", 0.1, intercept=False), "l2 penalty.*'l1'.*proximal-1"),
        (co.Problem("hinge", "l2", 0.1, intercept=True), "intercept"),
        (co.Problem("logistic", "elasticnet", 0.1, l1_ratio=0.5, intercept=False), "'elasticnet'"),
    ],
)
def test_what_it_cannot_do(problem, words):
    with pytest.raises(InvalidProblem, match=words):
        co.solve(problem, (X, SIGNS), method="relay")


def test_a_warm_start_begins_where_the_last_run_ended():
    problem = co.Problem("hinge", "l2", LAM, intercept=False)
    first = co.solve(problem, (X, SIGNS), agents=K, method="relay", tol=1e-6, max_rounds=60_000)
    again = co.solve(problem, (X, SIGNS), agents=K, method="relay", tol=1e-6, warm_start=first)
    assert again.rounds < first.rounds / 2
