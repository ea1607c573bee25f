"""Laws of `lbfgs`: its matrix is that of BFGS, its searches are exact, and it needs few rounds
where others crawl.
"""

from __future__ import annotations

import os
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
import scipy.optimize
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

import coterie as co
from coterie.errors import InvalidProblem
from coterie.methods.auto.costs import Sizes
from coterie.methods.columns import envelope
from coterie.methods.columns.column_costs import numbers_sent
from coterie.methods.quasi_newton import curved_pairs
from coterie.methods.quasi_newton import pairs as quasi_newton
from coterie.methods.quasi_newton.metrics import Block, Diagonal, block_of
from coterie.methods.quasi_newton.pairs import Memory
from coterie.networks import network, ring, star
from coterie.numerics.arrays import Design
from coterie.numerics.losses import LOSSES, loss
from coterie.run.bill import Bill
from coterie.run.collectives import Sum
from coterie.run.rounds import introduced
from coterie.run.setup import make_agents
from coterie.transport.in_process import InProcess
from tests.harness.correlated import correlated

RNG = np.random.default_rng(0)
N, D, M = 150, 12, 6
X = RNG.standard_normal((N, D)) @ (np.eye(D) + 0.3 * RNG.standard_normal((D, D)))
NUMBERS = X @ RNG.standard_normal(D) + RNG.standard_normal(N)
SIGNS = np.where(NUMBERS - 0.5 > 0, 1.0, -1.0)
COUNTS = 0.5 + RNG.poisson(np.exp(np.clip(X @ RNG.standard_normal(D) / 6, -3, 2)))


def labels(name):
    if LOSSES[name].kind == "classification":
        return SIGNS
    return COUNTS if loss(name).steep else NUMBERS


LATER = pytest.mark.slow
APART = {"split": "features", "agents": M, "network": "ring"}
PENALTIES = {
    "none": {},
    "l2": {"strength": 0.05},
    "l1": {"strength": 0.05},
    "elasticnet": {"strength": 0.05},
}


def told(protocol):
    """The end of a conversation of one speaker: a `Sum` is what it said."""
    reply = None
    try:
        while True:
            reply = protocol.send(reply).x
    except StopIteration as end:
        return end.value


def summed(x):
    return (yield Sum(x))


def some_pairs(rng, pairs, metrics):
    """Pairs of a quadratic, and their inner products as a run comes to know them, one by one."""
    A = rng.standard_normal((D, D))
    hessian, memory = A @ A.T + np.eye(D), Memory.empty(D, len(metrics))
    for k in range(pairs):
        step = rng.standard_normal(D)
        memory = memory.with_pair(step, hessian @ step, 4)
        memory, _ = told(quasi_newton.known(memory, metrics, k % len(metrics), step, summed))
    return memory


def bfgs(memory, first, scale):
    """The inverse Hessian by the recursion that everybody knows."""
    H = scale * np.linalg.inv(first)
    for s, y in zip(memory.S, memory.Y, strict=True):
        V = np.eye(len(s)) - np.outer(y, s) / (s @ y)
        H = V.T @ H @ V + np.outer(s, s) / (s @ y)
    return H


@given(seed=st.integers(0, 2**32 - 1), pairs=st.integers(0, 6), turn=st.integers(0, 1))
@settings(max_examples=40, deadline=None)
def test_the_matrix_is_that_of_bfgs(seed, pairs, turn):
    rng = np.random.default_rng(seed)
    lengths, G = rng.uniform(0.5, 2.0, D), rng.standard_normal((D, D))
    firsts = [np.diag(lengths), G @ G.T + np.eye(D)]
    metrics = [Diagonal(lengths), Block(firsts[1])]
    memory, slope = some_pairs(rng, pairs, metrics), rng.standard_normal(D)
    memory, along = told(quasi_newton.known(memory, metrics, turn, slope, summed))
    H = bfgs(memory, firsts[turn], quasi_newton.gamma(memory, turn))
    way = quasi_newton.along_gradient(memory, metrics[turn], turn, slope, along)
    np.testing.assert_allclose(way, -H @ slope, rtol=1e-6, atol=1e-8 * np.abs(H @ slope).max())

    # With a threshold: no coordinate of the minimum of the model can be moved to a better one.
    w, threshold = rng.standard_normal(D) * (rng.random(D) < 0.5), np.full(D, 0.3)
    threshold[-1] = 0.0
    z = told(
        quasi_newton.minimum(
            quasi_newton.Model(memory, metrics[turn], turn, slope, w, threshold, 1.0), summed
        )
    )
    pull = slope + np.linalg.solve(H, z - w)
    size = 1e-5 * (np.abs(slope).max() + np.linalg.cond(H))
    assert (np.abs(pull + threshold * np.sign(z))[z != 0] <= size).all()
    assert (np.abs(pull)[z == 0] <= threshold[z == 0] + size).all()


def test_a_block_is_that_of_the_own_columns():
    block = block_of(Design(X, intercept=True), 0.5, np.append(np.full(D, 0.1), 0.0))
    wide = np.column_stack([X, np.ones(N)])
    np.testing.assert_allclose(
        block.matrix, 0.5 * wide.T @ wide + np.diag([*[0.1] * D, 0.0]), rtol=1e-6
    )
    np.testing.assert_allclose(block.times(block.inverse(np.eye(D + 1))), np.eye(D + 1), atol=1e-8)


def label_agent(problem, y, weights=None):
    graph = star(3, server=True)
    tables = co.data.split(co.Table(X, y, weights), "features", 3)
    agents = introduced(
        make_agents(tables, problem, "features", graph, 0), InProcess(graph, Bill(graph)), "setup"
    )
    return next(agent for agent in agents if agent.data.y is not None)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("name", sorted(LOSSES))
def test_the_search_is_exact(name, weighted):
    """Along any line, for the loss or its envelope, the step is where scipy finds the minimum."""
    y = labels(name)
    weights = RNG.uniform(0.5, 2.0, N) if weighted else None
    agent = label_agent(co.Problem(name, "l2", 0.1, intercept=False), y, weights)
    scores, image, s = (
        RNG.standard_normal(N),
        RNG.standard_normal(N),
        1.0 if weights is None else weights,
    )
    width = 0.0 if envelope.is_smooth(agent) else 0.7
    centre = np.clip(RNG.standard_normal(N), *loss(name).domain(y)) if width else np.zeros(N)
    image = -np.sign(s * envelope.gradients(agent, scores, centre, width) @ image) * image
    falls = (s * envelope.gradients(agent, scores, centre, width)) @ image / agent.total + 0.01 < 0

    def value(t):
        u = scores + t * image
        v = envelope.gradients(agent, u, centre, width)
        each = loss(name).each(u, y) if not width else u * v - loss(name).conjugate_each(v, y)
        return (
            float((s * (each - width / 2 * (v - centre) ** 2)).sum()) / agent.total
            + 0.01 * t
            + 0.05 * t * t
        )

    for most in (1.0, np.inf):
        t = envelope.step_along(agent, scores, image, centre, width, (0.01, 0.1), most)
        best = scipy.optimize.minimize_scalar(
            value, bounds=(0.0, min(most, 100.0)), method="bounded"
        ).fun
        assert value(t) <= best + 1e-9
        assert 0 < t <= most if falls else t == 0
    assert envelope.step_along(agent, scores, -image, centre, width, (0.0, 0.0), 1.0) == 0.0


def everyones(loss_name, penalty):
    problem = co.Problem(
        loss_name, penalty, intercept=penalty in ("l1", "l2"), **PENALTIES[penalty]
    )
    return problem, labels(loss_name)


@pytest.mark.parametrize(
    "penalty",
    ["l2", "l1", pytest.param("none", marks=LATER), pytest.param("elasticnet", marks=LATER)],
)
@pytest.mark.parametrize("name", sorted(LOSSES))
def test_every_loss_reaches_the_optimum(name, penalty):
    problem, y = everyones(name, penalty)
    weights = RNG.uniform(0.5, 2.0, N) if penalty == "l2" else None
    data = co.Table(X, y, weights)
    separable = LOSSES[name].kind == "classification" and penalty == "none"
    tol = 1e-6 if problem.loss.smooth else 1e-4
    result = co.solve(
        problem, data, **APART, method="lbfgs", tol=tol, max_rounds=150 if separable else 1500
    )
    assert result.status.success or separable or result.certificate.relative_gap < 1e-4
    if separable:
        return  # there is no best model
    pooled = co.solve(problem, data, agents=1, tol=1e-7)
    assert pooled.certificate.dual <= result.certificate.primal + 1e-9
    assert result.certificate.dual <= pooled.certificate.primal + 1e-9


@pytest.mark.parametrize(
    "penalty", ["l1", pytest.param("l2", marks=LATER), pytest.param("elasticnet", marks=LATER)]
)
@pytest.mark.parametrize("name", [name for name in sorted(LOSSES) if loss(name).smooth])
def test_rows_apart_reach_the_same(name, penalty):
    problem, y = everyones(name, penalty)
    if LOSSES[name].kind == "classification" and penalty == "none":
        pytest.skip("labels that can be told apart have no best model")
    weights = RNG.uniform(0.5, 2.0, N) if penalty == "l2" else None
    result = co.solve(problem, co.Table(X, y, weights), agents=4, method="lbfgs-rows", tol=1e-7)
    apart = co.solve(problem, co.Table(X, y, weights), **APART, method="lbfgs", tol=1e-7)
    assert result.status.success
    assert apart.status.success
    np.testing.assert_allclose(result.model.coef_, apart.model.coef_, atol=2e-3)


def rare_columns(n=6000, d=20_000):
    """Rows of length 1 with 60 numbers each, a few columns with most of them: like text."""
    rng = np.random.default_rng(0)
    share = 1.0 / np.arange(1, d + 1) ** 0.9
    places = rng.choice(d, 60 * n, p=share / share.sum())
    rows = sp.csr_array(
        (rng.uniform(0.2, 2.0, 60 * n), (np.repeat(np.arange(n), 60), places)), shape=(n, d)
    )
    rows = sp.csr_array(sp.diags_array(1.0 / np.sqrt(rows.multiply(rows).sum(axis=1))) @ rows)
    scores = rows @ (6.0 * rng.standard_normal(d) * (rng.random(d) < 0.2))
    return rows, np.where(scores + 0.3 * rng.logistic(size=n) > 0, 1.0, -1.0)


@pytest.mark.parametrize("strength", [1e-3, 1e-5])
def test_many_columns_cost_a_third_of_the_bits_and_half_of_the_sums_of_newton(strength):
    problem, data = co.Problem("logistic", "l2", strength, intercept=False), rare_columns()
    newton = co.solve(problem, data, agents=8, method="newton", hessian="products", tol=1e-6)
    result = co.solve(problem, data, agents=8, tol=1e-6, link=(0.02, 1e8))
    assert "Method lbfgs-rows " in result.explanation
    assert newton.status == result.status == "optimal"
    assert (
        result.certificate.primal
        <= newton.certificate.primal + newton.certificate.gap + result.certificate.gap
    )
    assert 3 * result.bill.bits <= newton.bill.bits
    assert 2 * result.bill.messages <= newton.bill.messages
    assert 2.7 * result.bill.total.bits <= newton.bill.total.bits
    assert 1.8 * result.bill.total.messages <= newton.bill.total.messages


def test_every_round_says_half_a_number_per_column_and_the_curvature_of_its_steps():
    how = {"agents": 3, "method": "lbfgs-rows", "max_rounds": 4, "check_every": 4, "tol": 1e-15}
    result = co.solve(co.Problem("squared", "l2", 0.1, intercept=False), (X, NUMBERS), **how)
    numbers = [D + 17 + (k + 1) * (k + 2) // 2 for k in range(4)]
    assert result.bill.scalars == 6 * sum(numbers)
    assert result.bill.bits == 32 * result.bill.scalars


@given(seed=st.integers(0, 2**32 - 1), pairs=st.integers(1, 6))
@settings(max_examples=25, deadline=None)
def test_curved_pairs_are_those_of_block_bfgs_however_old_they_are(seed, pairs):
    """Changes of the slope that were measured where ℓ'' was larger, in a length of their own, tell
    the same.
    """
    rng, ridge = np.random.default_rng(seed), 0.3
    G, S, slope, diagonal = (rng.standard_normal(shape) for shape in ((D, D), (pairs, D), D, D))
    hessian, diagonal = G @ G.T + ridge * np.eye(D), diagonal**2 + 0.1
    old = rng.uniform(0.5, 9.0, (pairs, 1)) * (S @ (hessian - ridge * np.eye(D)))
    agent = replace(
        label_agent(co.Problem("squared", "l2", ridge, intercept=False), NUMBERS),
        data=co.Table(X, NUMBERS),
        scratch={},
    )
    none = np.empty((0, 0, 0))
    memory = Memory(S, old, S @ (hessian - ridge * np.eye(D)) @ S.T, none, none)
    state = curved_pairs.CurvedState(np.zeros(D), slope, memory, diagonal, softer=0.5)
    inverse = np.linalg.inv(S @ hessian @ S.T)
    V = np.eye(D) - hessian @ S.T @ inverse @ S
    H = S.T @ inverse @ S + V.T @ np.diag(1.0 / (0.5 * diagonal + ridge)) @ V
    p = curved_pairs.aimed(agent, state)
    np.testing.assert_allclose(p, -H @ slope, rtol=1e-5, atol=1e-6 * np.abs(H @ slope).max())


def test_rows_of_kinks_and_other_penalties_are_refused():
    with pytest.raises(InvalidProblem, match="is not differentiable"):
        co.solve(co.Problem("hinge", "l2", 0.1, intercept=False), (X, SIGNS), method="lbfgs-rows")
    for method, settings_ in (("lbfgs", APART), ("lbfgs-rows", {})):
        with pytest.raises(InvalidProblem, match="none, l2, l1 and elasticnet"):
            co.solve(
                co.Problem("squared", "nonnegative", intercept=False),
                (X, NUMBERS),
                **settings_,
                method=method,
            )
        with pytest.raises(InvalidProblem, match="whole number"):
            co.solve(
                co.Problem(intercept=False), (X, NUMBERS), **settings_, method=method, memory=0
            )


def test_any_network_gives_the_same_answer_and_its_bill():
    """A round sends n + 4 numbers to the label agent, n + 3 from it, and to all 8 for each pair that
    is remembered; l1 needs some more.
    """
    problem, rounds, memory = co.Problem("logistic", "l2", 0.01, intercept=True), 9, 5
    found = []
    for name in ("ring", "star", "path", "lattice", "complete", "erdos-renyi"):
        graph = network(name, M)
        how = {
            "split": "features",
            "agents": M,
            "network": graph,
            "method": "lbfgs",
            "memory": memory,
        }
        result = co.solve(
            problem, (X, SIGNS), **how, tol=1e-14, max_rounds=rounds, check_every=rounds
        )
        rows = rounds * (2 * N + 7)
        products = sum(8 * min(t, memory) for t in range(rounds))
        assert result.bill.scalars == (M - 1) * rows + 2 * (M - 1) * products
        found.append(result.model.coef_)
    np.testing.assert_allclose(found[1:], found[:1] * 5, atol=1e-6)


@pytest.mark.parametrize("kind", ["one factor", "spectrum", "powers", "binary"])
@pytest.mark.parametrize("name", ["squared", "logistic"])
def test_nearly_dependent_columns_take_few_rounds(kind, name):
    """Where `tree` needs hundreds to thousands; the sizes of the issue are in `make bench`."""
    columns, numbers, signs = correlated(kind, 500, 8)
    problem = co.Problem(name, "l2", 1e-3, intercept=True)
    data = columns, numbers if name == "squared" else signs
    result = co.solve(
        problem, data, split="features", agents=8, network="ring", method="lbfgs", tol=1e-6
    )
    assert result.status == "optimal"
    assert result.rounds <= 60


@pytest.mark.parametrize(("kind", "name"), [("powers", "hinge"), ("one factor", "absolute")])
def test_kinks_take_a_third_of_the_rounds_and_bits_of_tree(kind, name):
    columns, numbers, signs = correlated(kind, 400, 4)
    problem = co.Problem(name, "l2", 1e-3, intercept=True)
    data = columns, numbers if name == "absolute" else signs
    apart = {"split": "features", "agents": 4, "network": "ring", "tol": 1e-5}
    fast = co.solve(problem, data, **apart, method="lbfgs")
    assert fast.status == "optimal"
    slow = co.solve(problem, data, **apart, method="tree", max_rounds=3 * fast.rounds)
    assert not slow.status.success or 3 * fast.bill.total.bits < slow.bill.total.bits


@pytest.mark.slow
@pytest.mark.skipif(not os.environ.get("COTERIE_DATA"), reason="needs a1a")
def test_kinks_beside_l1_take_a_third_of_what_tree_takes():
    """Hinge l1 on 119 binary columns, 16 parties on a ring: tree has 6e-6 after 12,000 rounds and
    9.3 GB.
    """
    table = pytest.importorskip("papers.datasets").a1a().train
    problem = co.Problem("hinge", "l1", 1 / table.n, intercept=False)
    apart = {"split": "features", "agents": 16, "network": "ring", "tol": 1e-6}
    stays = co.solve(
        problem, (table.X, table.y.astype(float)), **apart, method="lbfgs", max_rounds=1000
    )
    assert stays.status == "optimal"
    assert stays.bill.total.bits <= 8e9
    moves = co.solve(problem, (table.X, table.y.astype(float)), **apart)
    assert (moves.status, moves.rounds) == ("optimal", 1)


def test_a_warm_start_goes_on_from_the_point():
    for name, labels, penalty in (("logistic", SIGNS, "l1"), ("hinge", SIGNS, "l2")):
        problem = co.Problem(name, penalty, 0.02, intercept=True)
        cold = co.solve(problem, (X, labels), **APART, method="lbfgs", tol=1e-6)
        warm = co.solve(problem, (X, labels), **APART, method="lbfgs", tol=1e-6, warm_start=cold)
        assert warm.rounds <= max(5, cold.rounds // 4)
    problem = co.Problem("logistic", "l2", 0.02, intercept=False)
    cold = co.solve(problem, (X, SIGNS), agents=3, method="lbfgs-rows", tol=1e-6)
    assert (
        co.solve(
            problem, (X, SIGNS), agents=3, method="lbfgs-rows", tol=1e-6, warm_start=cold
        ).rounds
        <= 2
    )


@pytest.mark.parametrize("method", ["lbfgs", "lbfgs-rows"])
def test_a_resumed_run_is_the_run_that_never_stopped(tmp_path, method):
    problem = co.Problem("logistic", "l1", 0.01, intercept=True)
    how = {
        **(APART if method == "lbfgs" else {"agents": 3}),
        "method": method,
        "tol": 1e-9,
        "check_every": 4,
    }
    whole = co.solve(problem, (X, SIGNS), **how, max_rounds=12)
    co.solve(problem, (X, SIGNS), **how, max_rounds=8, checkpoint=tmp_path)
    resumed = co.solve(problem, (X, SIGNS), **how, max_rounds=12, checkpoint=tmp_path)
    assert resumed.model.digest() == whole.model.digest()
    assert resumed.bill == whole.bill


def test_single_precision_halves_the_rounds_bits_and_empty_parties_take_part():
    problem = co.Problem("logistic", "l2", 0.02, intercept=True)
    how = {
        "split": "features",
        "network": ring(4),
        "method": "lbfgs",
        "tol": 1e-4,
        "check_every": 15,
        "max_rounds": 15,
    }
    tables = co.data.split(co.Table(X, SIGNS), "features", [[0, 1, 2], [], list(range(3, 12)), []])
    double = co.solve(problem, tables, **how)
    single = co.solve(problem, [replace(t, X=t.X.astype(np.float32)) for t in tables], **how)
    assert double.status == "optimal"
    np.testing.assert_allclose(single.model.coef_, double.model.coef_, atol=1e-2)
    assert single.bill.bits < 0.7 * double.bill.bits


def test_units_of_columns_do_not_matter():
    scales = 10.0 ** np.random.default_rng(0).permutation(np.linspace(-3, 3, D))
    problem = co.Problem("squared", "none", intercept=False)
    for how in ({**APART, "method": "lbfgs"}, {"agents": 3, "method": "lbfgs-rows"}):
        plain, scaled = (
            co.solve(problem, (X * s, NUMBERS), **how, tol=1e-6) for s in (np.ones(D), scales)
        )
        assert scaled.status.success
        assert scaled.rounds <= 1.5 * plain.rounds + 2
        np.testing.assert_allclose(scaled.model.coef_ * scales, plain.model.coef_, atol=1e-2)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["one factor", "spectrum", "powers", "binary"])
@pytest.mark.parametrize("name", ["squared", "logistic"])
def test_sixteen_parties_on_a_ring(kind, name):
    columns, numbers, signs = correlated(kind, 3000, 16)
    problem = co.Problem(name, "l2", 1e-3, intercept=True)
    data = columns, numbers if name == "squared" else signs
    result = co.solve(
        problem, data, split="features", agents=16, network="ring", method="lbfgs", tol=1e-6
    )
    assert result.status == "optimal"
    assert result.rounds <= 60


@pytest.mark.parametrize(
    ("name", "penalty"), [pytest.param("logistic", "l1", marks=LATER), ("hinge", "l2")]
)
def test_a_run_needs_six_vectors_per_agent_and_its_pairs(name, penalty):
    """6 n floats an agent, 2 · memory · d_j of pairs, and some kB of objects, beside the columns
    themselves.
    """
    n, m, d, rng = 4096, 8, 16, np.random.default_rng(0)
    columns = rng.standard_normal((n, d))
    parts = co.data.split(
        co.Table(columns, np.sign(columns @ rng.standard_normal(d))), "features", m
    )
    problem = co.Problem(name, penalty, 1e-3, intercept=False)
    run = {
        "split": "features",
        "network": "ring",
        "method": "lbfgs",
        "tol": 1e-14,
        "check_every": 9,
        "memory": 20,
    }
    co.solve(problem, parts, **run, max_rounds=3)
    tracemalloc.start()
    co.solve(problem, parts, **run, max_rounds=27)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    pairs = 2 * 20 * d
    assert peak <= 8 * (6 * n * m + 3 * pairs) + 128 * 1024 * m


def test_few_sparse_columns_beside_l1_are_expected_to_be_sent_once():
    """Agents of one owner do not rotate them, so that the one with the labels needs no rounds."""
    rng = np.random.default_rng(3)
    X = (rng.random((300, 60)) < 0.1).astype(float)
    y = np.where(X @ rng.standard_normal(60) > 0, 1.0, -1.0)
    problem = co.Problem("hinge", "l1", 1e-2, intercept=False)
    link = {"agents": 6, "split": "features", "network": "ring", "link": (0.02, 1e8)}
    result = co.solve(problem, (sp.csr_array(X), y), **link)
    assert "Method blocks" in result.explanation
    assert (result.status, result.rounds) == ("optimal", 1)
    sizes = Sizes(300, 60, int(np.count_nonzero(X)), 6)
    sent = numbers_sent(problem, ring(6), sizes)["blocks"]
    assert 0.5 <= sent / (result.bill.total.bits / 64) <= 2
