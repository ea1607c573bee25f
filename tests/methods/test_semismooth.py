"""`semismooth`: the pooled optimum of non-smooth losses with a ridge, its oracle, and its gap."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

import coterie as co
from coterie.data import Table, split
from coterie.errors import InvalidProblem
from coterie.methods import method
from coterie.methods.line_search import penalty_slopes, step_by_slopes
from coterie.methods.second_order import semismooth
from coterie.methods.second_order.central_path import row_bounds
from coterie.methods.second_order.oracle import Taken
from coterie.methods.second_order.semismooth import STEP_SIZES, SmoothedOracle
from coterie.networks import star
from coterie.numerics.arrays import sealed
from coterie.numerics.kernels.clipped import (
    clip_line,
    clip_lines,
    slopes_along,
    slopes_along_lines,
)
from coterie.run.bill import Bill
from coterie.run.certificate import certify
from coterie.run.rounds import introduced
from coterie.run.setup import make_agents
from coterie.stats.moments import unpacked
from coterie.transport.in_process import InProcess
from tests.harness.labels import labels_for
from tests.harness.reference import pooled_optimum

RNG = np.random.default_rng(0)
N, D = 80, 6
X = RNG.standard_normal((N, D)) * np.logspace(0, -1, D)
NUMBERS = X @ RNG.standard_normal(D) + 0.5 * RNG.standard_normal(N) + 0.3
SIGNS = np.where(NUMBERS + RNG.standard_normal(N) > 0, 1.0, -1.0)
WEIGHTS = RNG.integers(1, 4, N).astype(float)
LOSSES = ["absolute", "hinge", "quantile"]
CUTS = [slice(0, 5), slice(5, 5), slice(5, 47), slice(47, N)]
PENALTIES = {
    "small ridge": {"penalty": "l2", "strength": 1e-3},
    "ridge": {"penalty": "l2", "strength": 0.05},
    "elastic net": {"penalty": "elasticnet", "strength": 0.05, "l1_ratio": 0.5},
    "mostly l1": {"penalty": "elasticnet", "strength": 0.05, "l1_ratio": 0.95},
}
finite = st.floats(-5.0, 5.0)


def labels(name):
    return labels_for(name, NUMBERS, SIGNS)


# -- the smoothed loss -----------------------------------------------------------------------------


def naive(r, centre, width, lower, upper):
    """The dual variable of one row: argmax v r − ε/2 (v − v̄)² over a ≤ v ≤ b."""
    return float(np.clip(centre + r / width, lower, upper))


def smoothed(r, centre, width, lower, upper):
    v = naive(r, centre, width, lower, upper)
    return v * r - 0.5 * width * (v - centre) ** 2


@given(
    rows=st.lists(st.tuples(finite, st.floats(0.0, 1.0), st.floats(0.0, 3.0)), min_size=1),
    width=st.floats(1e-3, 10.0),
    lower=st.floats(-2.0, 0.0),
)
def test_rows_on_the_clipped_line_are_those_of_the_formula(rows, width, lower):
    r, share, weights = np.array(rows).T.copy()
    upper = lower + 1.0
    centre = lower + share
    v, inside, sums = np.empty(len(r)), np.empty(len(r)), np.empty(4)
    bounds = np.full(len(r), lower), np.full(len(r), upper)
    clip_line(r, centre, width, *bounds, weights, v, inside, sums)
    row_by_row = list(zip(r, centre, strict=True))
    expected = [naive(*row, width, lower, upper) for row in row_by_row]
    np.testing.assert_allclose(v, expected, rtol=1e-12, atol=1e-12)
    values = [smoothed(*row, width, lower, upper) for row in row_by_row]
    assert sums[0] == pytest.approx(float(weights @ values), abs=1e-9)
    losses = np.maximum(lower * r, upper * r)
    assert sums[1] == pytest.approx(float(weights @ (losses - v * r)), abs=1e-9)
    assert sums[1] >= -1e-12
    assert sums[2] == pytest.approx(float(weights @ (v * r)), abs=1e-9)
    is_inside = (v > lower) & (v < upper)
    assert sums[3] == is_inside.sum()
    np.testing.assert_array_equal(inside, weights * is_inside)


@given(r=finite, change=finite, share=st.floats(0.0, 1.0), width=st.floats(0.1, 5.0))
def test_slopes_are_those_of_the_smoothed_loss(r, change, share, width):
    sizes = np.array([1.0, 0.5, 0.2])
    slopes = np.empty(3)
    row = (np.array([number]) for number in (r, change, share))
    ones = np.ones(1)
    slopes_along(*row, width, np.zeros(1), ones, 2 * ones, sizes, slopes)
    h = 1e-5
    for size, slope in zip(sizes, slopes, strict=True):
        above, below = (
            smoothed(r + (size + side) * change, share, width, 0.0, 1.0) for side in (h, -h)
        )
        assert slope == pytest.approx(2 * (above - below) / (2 * h), abs=1e-3)


def test_a_batch_gets_the_bits_of_single_agents():
    rng = np.random.default_rng(3)
    r, change, centre, weights = rng.standard_normal((4, 5, 30))
    lower, upper = np.full((2, 5, 30), [[[-1.0]], [[1.0]]])
    v, inside, sums, slopes = (np.empty((5, size)) for size in (30, 30, 4, 4))
    clip_lines(r, centre, 0.3, lower, upper, weights, v, inside, sums)
    slopes_along_lines(r, change, centre, 0.3, lower, upper, weights, STEP_SIZES, slopes)
    for k in range(5):
        own = [np.empty(size) for size in (30, 30, 4, 4)]
        bounds = lower[k], upper[k], weights[k]
        clip_line(r[k], centre[k], 0.3, *bounds, *own[:3])
        slopes_along(r[k], change[k], centre[k], 0.3, *bounds, STEP_SIZES, own[3])
        for batched, single in zip((v, inside, sums, slopes), own, strict=True):
            np.testing.assert_array_equal(batched[k], single)


@given(
    curvature=st.floats(0.1, 100.0),
    minimum=st.floats(0.001, 3.0),
    known=st.booleans(),
)
def test_a_step_by_slopes_ends_at_the_minimum_of_a_parabola(curvature, minimum, known):
    sizes = np.array([1.0, 0.5, 0.2, 0.05])
    slopes = curvature * (sizes - minimum)
    step_size = step_by_slopes(sizes, slopes, -curvature * minimum if known else 0.0)
    if minimum >= 1.0:
        assert step_size == 1.0
    elif minimum < 0.05 and not known:
        assert step_size == 0.0
    else:
        assert step_size == pytest.approx(minimum, rel=1e-9)


# -- the oracle ------------------------------------------------------------------------------------


def introduced_agents(problem, y, weights=None, count=3):
    server = star(count, server=True)
    transport = InProcess(server, Bill(server))
    table = Table(X, y, weights)
    agents = make_agents(split(table, "samples", count), problem, "samples", server, 0)
    return introduced(agents, transport, "setup"), transport


def oracle_at(agent, state, w, keeps_zone):
    """The oracle of that State, moved to w."""
    r = agent.at(w, agent.centred).scores - row_bounds(agent).y
    own = np.stack([state.own[0], r])
    memory = replace(state.memory, keeps_zone=keeps_zone)
    return SmoothedOracle(agent, replace(state, w=w, memory=memory, own=own))


def by_definition(agent, state, keeps_zone):
    """X̃ᵀ(s∘v), from the formulas: in a zone that stays, v is not clipped, and elsewhere v̄."""
    bounds = row_bounds(agent)
    centre = state.own[0]
    r = agent.at(state.w, agent.centred).scores - bounds.y
    v = centre + r / state.memory.width
    if keeps_zone:
        v = np.where((centre > bounds.lower) & (centre < bounds.upper), v, centre)
    else:
        v = np.clip(v, bounds.lower, bounds.upper)
    return agent.centred.adjoint(agent.weighted(v))


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("keeps_zone", [False, True])
@pytest.mark.parametrize("loss", LOSSES)
def test_gradient_and_hessian_are_derivatives(loss, keeps_zone, intercept):
    problem = co.Problem(loss, "l2", 0.02, intercept=intercept)
    agents, transport = introduced_agents(problem, labels(loss), WEIGHTS)
    newton = method("semismooth")
    states = transport.converse([newton.start(agent) for agent in agents], "setup")
    pairs = list(zip(agents, states, strict=True))
    states = transport.converse([newton.round(a, s, 1) for a, s in pairs], "rounds")
    agent, state = agents[1], states[1]
    h = 1e-6
    at = [sealed(state.w + h * step) for step in (np.zeros(len(state.w)), *np.eye(len(state.w)))]
    oracles = [oracle_at(agent, state, w, keeps_zone) for w in at]
    here = oracles[0]
    gradient = [(there.losses - here.losses) / h for there in oracles[1:]]
    np.testing.assert_allclose(here.gradient, gradient, rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(here.gradient, by_definition(agent, state, keeps_zone), atol=1e-9)
    H = unpacked(here.hessian(), len(state.w))
    expected = np.array([(there.gradient - here.gradient) / h for there in oracles[1:]])
    np.testing.assert_allclose(H, expected, rtol=1e-4, atol=1e-4 * np.abs(H).max())
    assert np.abs(H).max() > 0


@pytest.mark.parametrize("loss", LOSSES)
def test_slopes_are_derivatives_of_values(loss):
    problem = co.Problem(loss, "l2", 0.02, intercept=False)
    agents, transport = introduced_agents(problem, labels(loss))
    states = transport.converse([method("semismooth").start(agent) for agent in agents], "setup")
    oracle = SmoothedOracle(agents[0], states[0])
    target = sealed(np.linspace(-1.0, 1.0, D))
    message = oracle.slopes(target, STEP_SIZES)
    h = 1e-6
    above, below = (oracle.values(target, STEP_SIZES + side) for side in (h, -h))
    np.testing.assert_allclose(message[:4], (above - below) / (2 * h), rtol=1e-6, atol=1e-6)
    moved = oracle_at(agents[0], states[0], target, keeps_zone=False)
    np.testing.assert_allclose(message[-D:], moved.gradient, rtol=1e-12, atol=1e-12)


quarters = st.lists(st.integers(-20, 20).map(lambda k: k / 4), min_size=3, max_size=3)


@pytest.mark.parametrize("l1_ratio", [0.0, 0.5])
def test_slopes_of_a_penalty_are_one_sided_derivatives(l1_ratio):
    problem = co.Problem("hinge", "elasticnet", 0.7, l1_ratio=l1_ratio, intercept=False)
    agent = introduced_agents(problem, SIGNS)[0][0]
    sizes = np.array([1.0, 0.5, 0.0])
    h = 1e-7

    @given(w=quarters, p=quarters)
    def holds(w, p):
        # The last coefficient comes to 0 after a whole step, where l1 has no derivative.
        w = np.array([*w, 1.0])
        p = np.array([*p, -1.0])
        slopes = penalty_slopes(agent, w, p, sizes)
        for t, side, slope in zip(sizes, (-h, -h, h), slopes, strict=True):
            value, other = (problem.penalty.value(w + size * p) for size in (t, t + side))
            assert slope == pytest.approx((other - value) / side, abs=1e-4)

    holds()


# -- the optimum -----------------------------------------------------------------------------------


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("penalty", PENALTIES)
@pytest.mark.parametrize("loss", LOSSES)
def test_the_pooled_optimum_within_the_certificate(loss, penalty, intercept):
    """Unequal blocks, one of them empty, weighted rows."""
    problem = co.Problem(loss, **PENALTIES[penalty], intercept=intercept)
    parties = [Table(X[cut], labels(loss)[cut], WEIGHTS[cut], name=str(cut)) for cut in CUTS]
    result = co.solve(problem, parties, method="semismooth", tol=1e-9, max_rounds=80)
    best = pooled_optimum(problem, X, labels(loss), WEIGHTS)[2]
    assert result.status.success
    assert -1e-7 <= result.certificate.primal - best <= result.certificate.gap + 1e-7


@pytest.mark.parametrize("storage", [np.asarray, sp.csr_array], ids=["dense", "csr"])
@pytest.mark.parametrize("agents", [1, 3])
def test_the_model_of_interior_point(storage, agents):
    problem = co.Problem("hinge", "l2", 0.01)
    data = storage(X), SIGNS
    models = [
        co.solve(problem, data, agents=agents, method=name, tol=1e-10, offset=0.1 * NUMBERS).model
        for name in ("semismooth", "interior-point")
    ]
    np.testing.assert_allclose(models[0].coef_, models[1].coef_, atol=1e-4)
    assert models[0].intercept_ == pytest.approx(models[1].intercept_, abs=1e-4)


def test_columns_in_single_precision():
    result = co.solve(
        co.Problem("absolute", "l2", 0.01), (X.astype(np.float32), NUMBERS), method="semismooth"
    )
    assert result.status.success
    assert result.model.coef_.dtype == np.float32


def test_the_same_bits_with_more_rounds_from_a_checkpoint(tmp_path):
    problem = co.Problem("quantile", "l2", 0.01, level=0.7)
    settings = {"agents": 3, "method": "semismooth", "tol": 1e-9}
    whole = co.solve(problem, (X, NUMBERS), **settings)
    co.solve(problem, (X, NUMBERS), **settings, max_rounds=4, checkpoint=tmp_path)
    rest = co.solve(problem, (X, NUMBERS), **settings, checkpoint=tmp_path)
    assert rest.rounds == whole.rounds
    np.testing.assert_array_equal(rest.model.coef_, whole.model.coef_)


@pytest.mark.parametrize("intercept", [False, True])
def test_a_warm_start_begins_at_the_dual_variables_of_the_last_run(intercept):
    problem = co.Problem("hinge", "l2", 0.01, intercept=intercept)
    cold = co.solve(problem, (X, SIGNS), method="semismooth", tol=1e-8)
    warm = co.solve(problem, (X, SIGNS), method="semismooth", tol=1e-8, warm_start=cold)
    assert warm.status.success
    assert warm.rounds <= 0.5 * cold.rounds
    same = co.solve(problem, (X, SIGNS), method="semismooth", max_rounds=0, warm_start=cold)
    np.testing.assert_allclose(same.model.coef_, cold.model.coef_, rtol=1e-12)


def test_few_rows_of_one_class_take_few_rounds():
    """4 % of one class, with an intercept: after the first steps too few rows are in the zone."""
    rng = np.random.default_rng(1)
    columns = rng.standard_normal((8000, 10))
    scores = columns @ rng.standard_normal(10) + rng.logistic(size=8000)
    signs = np.where(scores > np.quantile(scores, 0.96), 1.0, -1.0)
    problem = co.Problem("hinge", "l2", 1e-3)
    result = co.solve(problem, (columns, signs), agents=8, method="semismooth")
    assert result.status.success
    assert result.rounds <= 25


@pytest.mark.parametrize("strength", [0.1, 1e-3, 1e-6])
def test_two_rows_of_a_class_determine_the_intercept(strength):
    """After the first steps no row is in the zone, so that nothing bounds the intercept."""
    rng = np.random.default_rng(0)
    columns = rng.standard_normal((200, 5))
    scores = columns @ rng.standard_normal(5)
    signs = np.where(scores > np.quantile(scores, 0.99), 1.0, -1.0)
    problem = co.Problem("hinge", "l2", strength)
    result = co.solve(problem, (columns, signs), agents=4, method="semismooth", max_rounds=60)
    assert result.status.success


# -- what all agents know --------------------------------------------------------------------------


def duality_gap(problem, agents, points):
    """P − D, from their definitions."""
    total = sum(agent.weight for agent in agents)
    primal = problem.penalty.value(points[0].w)
    dual = 0.0
    u = np.zeros(D)
    for agent, point in zip(agents, points, strict=True):
        v = point.v
        y = agent.exact_labels
        primal += agent.summed(problem.loss.each(agent.data.X @ point.w, y)) / total
        dual -= agent.summed(problem.loss.conjugate_each(v, y)) / total
        u -= agent.data.X.T @ agent.weighted(v) / total
    return primal - dual + problem.penalty.conjugate(u)


@pytest.mark.parametrize("penalty", PENALTIES)
@pytest.mark.parametrize("loss", LOSSES)
def test_the_gap_of_the_state_is_that_of_the_certificate(loss, penalty):
    """Without an intercept the sums of a round tell the gap of the best model and dual so far; a
    certificate may find a better dual.
    """
    problem = co.Problem(loss, **PENALTIES[penalty], intercept=False)
    agents, transport = introduced_agents(problem, labels(loss), WEIGHTS)
    newton = method("semismooth")
    states = transport.converse([newton.start(agent) for agent in agents], "setup")
    gaps = []
    for t in range(1, 13):
        pairs = list(zip(agents, states, strict=True))
        states = transport.converse([newton.round(a, s, t) for a, s in pairs], "rounds")
        pairs = list(zip(agents, states, strict=True))
        points = [newton.point(a, s) for a, s in pairs]
        for agent, point in zip(agents, points, strict=True):
            lower, upper = agent.domain
            assert (point.v >= lower).all()
            assert (point.v <= upper).all()
        gaps.append(newton.expected_gap(agents[0], states[0]))
        assert gaps[-1] == pytest.approx(duality_gap(problem, agents, points), rel=1e-9)
        proofs = [certify(a, p) for a, p in zip(agents, points, strict=True)]
        bound = transport.converse(proofs, "proof")[0]
        assert bound.gap <= gaps[-1] * (1 + 1e-6) + 1e-11
    assert (np.diff(gaps) <= 0).all()
    assert gaps[-1] < 0.1 * gaps[0]


@pytest.mark.parametrize("loss", LOSSES)
def test_the_dual_value_of_the_state_is_a_lower_bound_with_an_intercept(loss):
    """At any model whose intercept is as large as that of the optimum."""
    problem = co.Problem(loss, "l2", 0.02)
    (agent,), transport = introduced_agents(problem, labels(loss), count=1)
    (state,) = transport.converse([method("semismooth").start(agent)], "setup")
    optimum = pooled_optimum(problem, X, labels(loss))[2]
    rng = np.random.default_rng(4)
    for intercept in (-30.0, -5.0, 5.0, 30.0):
        w = sealed(np.append(0.3 * rng.standard_normal(D), intercept))
        sums = SmoothedOracle(agent, state).slopes(w, STEP_SIZES)[len(STEP_SIZES) :]
        memory, is_best, _ = semismooth._judged(agent, state.memory, Taken(w, 1.0, sums=sums))
        assert is_best
        assert memory.best_dual <= optimum
        assert memory.best_primal >= optimum


def test_an_oracle_forgets_rows_of_an_earlier_centre():
    problem = co.Problem("hinge", "l2", 0.02, intercept=False)
    agents, transport = introduced_agents(problem, SIGNS)
    newton = method("semismooth")
    states = transport.converse([newton.start(agent) for agent in agents], "setup")
    for t in range(1, 13):
        pairs = list(zip(agents, states, strict=True))
        states = transport.converse([newton.round(a, s, t) for a, s in pairs], "rounds")
        gradient = SmoothedOracle(agents[0], states[0]).gradient
        expected = by_definition(agents[0], states[0], states[0].memory.keeps_zone)
        np.testing.assert_allclose(gradient, expected, atol=1e-9)


def test_a_zone_that_stays_saves_rounds_with_many_columns(monkeypatch):
    rng = np.random.default_rng(0)
    columns = rng.standard_normal((400, 60))
    scores = columns @ rng.standard_normal(60) + 5 * rng.logistic(size=400)
    rounds = []
    for small_zone in (semismooth.TUNING.small_zone, 0.0):
        monkeypatch.setattr(semismooth, "TUNING", replace(semismooth.TUNING, small_zone=small_zone))
        problem = co.Problem("hinge", "l2", 1e-3, intercept=False)
        data = columns, np.where(scores > 0, 1.0, -1.0)
        rounds.append(co.solve(problem, data, method="semismooth").rounds)
    assert rounds[0] < 0.85 * rounds[1]


@pytest.mark.parametrize(
    ("loss", "penalty", "other"),
    [
        ("logistic", {"penalty": "l2", "strength": 1.0}, "newton"),
        ("hinge", {"penalty": "l1", "strength": 1.0}, "interior-point"),
        ("hinge", {"penalty": "elasticnet", "strength": 1.0, "l1_ratio": 1.0}, "interior-point"),
        ("hinge", {"penalty": "box", "lower": -1.0, "upper": 1.0}, "interior-point"),
        ("squared", {}, "newton"),
    ],
)
def test_other_problems_are_refused_with_an_alternative(loss, penalty, other):
    with pytest.raises(InvalidProblem, match=rf"Use {other}\."):
        co.solve(co.Problem(loss, **penalty), (X, SIGNS), method="semismooth")


def test_too_many_columns_are_refused():
    with pytest.raises(InvalidProblem, match="at most 1500 columns"):
        co.solve(co.Problem("hinge", "l2", 1.0), (np.ones((N, 1600)), SIGNS), method="semismooth")
