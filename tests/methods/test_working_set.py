"""Many rare columns beside l1: the pooled optimum, few rounds and few bits, however the
quasi-Newton steps go.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import scipy.sparse as sp
from benchmarks.problems import wide
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression

import coterie as co
from coterie.data import Table
from coterie.methods import METHODS
from coterie.methods.auto.costs import Link, Sizes
from coterie.methods.second_order import low_rank_model, quadratic, working_set
from coterie.networks import star
from coterie.numerics.arrays import digest
from coterie.numerics.kernels.low_rank_descent import low_rank_descent

N = 5_000
TABLE = wide(N, N)
SCORES = TABLE.X @ np.random.default_rng(7).standard_normal(N)
NUMBERS = SCORES / SCORES.std() + np.random.default_rng(8).standard_normal(N)
STRENGTH = 3 / N
"""As for 100,000 rows and 3e-5: a column needs a few rows to be in the model."""


def labels(loss):
    return TABLE.y if loss in ("logistic", "squared_hinge") else NUMBERS


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("loss", ["logistic", "squared_hinge", "squared", "huber"])
def test_many_rare_columns_take_few_rounds_and_few_bits(loss, intercept):
    """A twentieth of the data, of a gigabyte and of the columns; triangles of the columns in play
    would take more.
    """
    problem = co.Problem(loss, "l1", STRENGTH, intercept=intercept)
    result = co.solve(problem, (TABLE.X, labels(loss)), agents=8, method="newton", tol=1e-4)
    assert result.status == "optimal"
    assert result.rounds <= 12
    assert result.bill.total.bits / 8e6 <= 50
    assert np.count_nonzero(result.model.coef_) > 400


def test_auto_comes_to_liblinears_model():
    result = co.solve(
        co.Problem("logistic", "l1", STRENGTH, intercept=False),
        (TABLE.X, TABLE.y),
        agents=8,
        tol=1e-9,
    )
    assert "Method newton" in result.explanation
    assert result.status == "optimal"
    assert result.rounds <= 12
    C = 1 / (N * STRENGTH)
    twin = LogisticRegression(
        l1_ratio=1, C=C, solver="liblinear", fit_intercept=False, tol=1e-7
    ).fit(TABLE.X, TABLE.y)
    np.testing.assert_allclose(result.model.coef_, twin.coef_[0], atol=1e-3)
    assert np.count_nonzero(result.model.coef_) > working_set.TUNING.exact


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
def test_a_hundred_thousand_columns(seed):
    table = wide(seed=seed)
    result = co.solve(
        co.Problem("logistic", "l1", 3e-5, intercept=False), (table.X, table.y), agents=8, tol=1e-4
    )
    assert result.status == "optimal"
    assert result.rounds <= 60
    assert result.bill.total.bits / 8e9 <= 1


@pytest.mark.parametrize("penalty", [{"penalty": "l1"}, {"penalty": "elasticnet", "l1_ratio": 0.7}])
@pytest.mark.parametrize("storage", [sp.csr_array, sp.csc_array])
def test_however_the_rows_are_apart(penalty, storage):
    """One agent, three, eight with an empty one and weights that split rows: one optimum."""
    X, y = TABLE.X[:2000], TABLE.y[:2000]
    problem, found = co.Problem("logistic", strength=1e-3, intercept=False, **penalty), []
    for cuts in ([0, 2000], [0, 300, 1900, 2000], [0, 100, 100, 500, 600, 700, 900, 1500, 2000]):
        parties = [Table(storage(X[a:b]), y[a:b], name=f"{a} to {b}") for a, b in pairwise(cuts)]
        found.append(co.solve(problem, parties, method="newton", tol=1e-10))
    halves = np.repeat([0.25, 0.75], 2000)
    twice = Table(sp.vstack([X, X], format="csr"), np.tile(y, 2), halves)
    found.append(co.solve(problem, twice, agents=3, method="newton", tol=1e-10))
    assert np.count_nonzero(found[0].model.coef_) > 200
    for result in found:
        assert result.status == "optimal"
        np.testing.assert_allclose(result.model.coef_, found[0].model.coef_, atol=1e-5)


@pytest.fixture
def always_step_by_step(monkeypatch):
    monkeypatch.setattr(working_set, "TUNING", replace(working_set.TUNING, exact=0, sparse=1.0))


RNG = np.random.default_rng(0)
SMALL = RNG.standard_normal((80, 8)) * np.logspace(0, -1, 8)
SIGNAL = SMALL @ RNG.standard_normal(8) + 0.5 * RNG.standard_normal(80) + 0.3
WEIGHTS = RNG.integers(1, 4, 80).astype(float)


@pytest.mark.parametrize("block", [0, 3, 128])
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("penalty", ["l1", "elasticnet"])
@pytest.mark.parametrize("loss", ["logistic", "squared_hinge", "squared", "huber"])
def test_steps_come_to_newtons_model(
    loss, penalty, intercept, block, always_step_by_step, monkeypatch
):
    """Dense columns of different lengths, weighted rows, an empty party."""
    monkeypatch.setattr(working_set, "TUNING", replace(working_set.TUNING, block=block))
    y = np.where(SIGNAL > 0, 1.0, -1.0) if loss in ("logistic", "squared_hinge") else SIGNAL
    problem = co.Problem(loss, penalty, 0.05, intercept=intercept)
    cuts = [slice(0, 5), slice(5, 5), slice(5, 47), slice(47, 80)]
    parties = [Table(SMALL[cut], y[cut], WEIGHTS[cut], name=str(cut)) for cut in cuts]
    whole, steps = (
        co.solve(problem, parties, method="newton", hessian=h, tol=1e-11)
        for h in ("full", "active")
    )
    assert steps.status == "optimal"
    assert steps.rounds <= 12
    np.testing.assert_allclose(steps.model.coef_, whole.model.coef_, atol=1e-5)


@pytest.mark.parametrize("scale", [1e-8, 1e8])
def test_the_unit_of_the_columns_does_not_matter(scale, always_step_by_step):
    y = np.where(SIGNAL > 0, 1.0, -1.0)
    plain, scaled = (
        co.solve(
            co.Problem("logistic", "l1", 0.05 * k, intercept=False),
            (k * SMALL, y),
            agents=3,
            method="newton",
            hessian="active",
        )
        for k in (1.0, scale)
    )
    assert scaled.status == "optimal"
    assert scaled.rounds == plain.rounds
    np.testing.assert_allclose(scale * scaled.model.coef_, plain.model.coef_, rtol=1e-4, atol=1e-8)


def test_a_round_whose_steps_all_fail_goes_on_nevertheless(always_step_by_step, monkeypatch):
    monkeypatch.setattr(low_rank_model, "TUNING", replace(low_rank_model.TUNING, decrease=1e9))
    y = np.where(SIGNAL > 0, 1.0, -1.0)
    problem = co.Problem("logistic", "l1", 0.01, intercept=False)
    history = co.solve(
        problem,
        (SMALL, y),
        agents=2,
        method="newton",
        hessian="active",
        max_rounds=6,
        check_every=1,
    ).history
    assert (np.diff(history.primal) < 0).all()


def test_flat_rows_do_not_throw_the_steps_out(always_step_by_step):
    """Columns whose rows are all outliers of Huber's loss have no curvature where the steps
    begin.
    """
    X = sp.csr_array(sp.random_array((400, 300), density=0.01, rng=np.random.default_rng(1)))
    y = 3 * np.random.default_rng(2).standard_normal(400)
    result = co.solve(
        co.Problem("huber", "l1", 1e-3, intercept=False),
        (X, y),
        agents=4,
        method="newton",
        hessian="active",
        tol=1e-6,
    )
    assert result.status == "optimal"
    assert result.rounds <= 20


def test_a_run_that_stopped_goes_on_as_if_it_had_not(tmp_path):
    problem, run = (
        co.Problem("logistic", "l1", STRENGTH, intercept=False),
        {"agents": 3, "method": "newton", "tol": 1e-9},
    )
    whole = co.solve(problem, (TABLE.X, TABLE.y), **run)
    co.solve(problem, (TABLE.X, TABLE.y), checkpoint=tmp_path, max_rounds=2, **run)
    resumed = co.solve(problem, (TABLE.X, TABLE.y), checkpoint=tmp_path, **run)
    assert (resumed.model.coef_ == whole.model.coef_).all()


def model(rng, d=7, block=3, pairs=2, ridge=0.0):
    """A model of a convex quadratic, and B as a matrix by the formula."""
    H = np.cov(rng.standard_normal((d, 3 * d))) + 0.1 * np.eye(d)
    inside = np.sort(rng.choice(d, block, replace=False))
    place = np.full(d, -1)
    place[inside] = np.arange(block)
    ways = tuple(rng.standard_normal(d) for _ in range(pairs))
    changes = tuple(H @ p for p in ways)
    B = np.diag(np.diag(H))
    B[np.ix_(inside, inside)] = H[np.ix_(inside, inside)]
    for p, y in zip(ways, changes, strict=True):
        B += np.outer(y, y) / (p @ y) - np.outer(B @ p, B @ p) / (p @ B @ p)
    w = np.where(rng.random(d) < 0.5, rng.standard_normal(d), 0.0)
    known = low_rank_model.Model(
        1.0, w, rng.standard_normal(d), np.full(d, ridge), np.full(d, 0.3), np.ones(d),
        H[np.ix_(inside, inside)], place, np.diag(H).copy(), 0.0, np.zeros(d), ways=ways, changes=changes,
    )  # fmt: skip
    return known, H, B


@given(st.integers(0, 2**32 - 1), st.integers(0, 7), st.integers(0, 4))
@settings(deadline=None)
def test_the_matrix_is_that_of_bfgs(seed, block, pairs):
    known, _, B = model(np.random.default_rng(seed), block=block, pairs=pairs)
    U, signs = known._updates()
    start = np.column_stack([known._start(unit) for unit in np.eye(7)])
    found = start + U @ np.diag(signs) @ U.T
    np.testing.assert_allclose(found, B, atol=1e-9)
    if pairs:
        np.testing.assert_allclose(found @ known.ways[-1], known.changes[-1], atol=1e-9)


@given(st.integers(0, 2**32 - 1), st.sampled_from([0.0, 0.2]))
@settings(deadline=None)
def test_coordinate_descent_finds_the_minimum_of_the_model(seed, ridge):
    """The naive twin: coordinate descent on the whole matrix, and the conditions for a minimum."""
    known, _, B = model(np.random.default_rng(seed), ridge=ridge)
    U, signs = known._updates()
    H = known.H + ridge * np.eye(len(known.H))
    slope = known.gradient + ridge * known.w
    p = low_rank_descent(
        H, known.place, known.curvatures + ridge, U, signs, slope, known.threshold, known.w, 1e-28, 10_000
    )  # fmt: skip
    infinite = np.full(7, np.inf)
    twin = quadratic._by_coordinates(
        lambda: False,
        False,
        quadratic.Quadratic(B, known.gradient, known.w),
        quadratic.Coordinates(np.full(7, ridge), known.threshold, -infinite, infinite),
    )
    np.testing.assert_allclose(known.w + p, twin, atol=1e-6)
    assert (
        low_rank_model.violation(
            twin, known.gradient + B @ (twin - known.w), known.ridge, known.threshold
        )
        < 1e-9
    )


@given(st.integers(0, 2**32 - 1))
@settings(deadline=None)
def test_a_step_is_taken_if_and_only_if_the_objective_falls(seed):
    rng = np.random.default_rng(seed)
    known, H, _ = model(rng)
    p = rng.standard_normal(7) * rng.choice([0.1, 1.0, 10.0])
    known = replace(known, way=p)
    losses = float(known.gradient @ p + 0.5 * p @ H @ p)
    after = known.after(np.append(H @ p, losses))
    falls = losses + 0.3 * (np.abs(known.w + p).sum() - np.abs(known.w).sum())
    linear = known._change(known.gradient, known.w + p)
    assert (after.steps == 1) == (falls <= low_rank_model.TUNING.decrease * linear)
    np.testing.assert_allclose(after.w, known.w + p if after.steps else known.w)
    np.testing.assert_allclose(
        after.gradient, known.gradient + H @ p if after.steps else known.gradient
    )


@given(st.integers(0, 2**32 - 1), st.booleans())
@settings(deadline=None)
def test_a_mixture_of_slopes_is_a_better_dual(seed, intercept):
    """Shares add up to 1, are those of least squares by brute force, and are used only if the worst
    column gains.
    """
    rng = np.random.default_rng(seed)
    known, _, _ = model(rng)
    w = rng.choice([-1.0, 0.0, 1.0], 7)
    threshold = np.full(7, 0.3)
    threshold[-1] *= not intercept
    gradients = [
        np.where(w != 0, -threshold * w, 0.1) + 0.1 * rng.standard_normal(7) for _ in range(4)
    ]
    known = replace(
        known, w=w, threshold=threshold, gradients=tuple(gradients[:-1]), gradient=gradients[-1]
    )
    shares = known.mixture()
    free = (w != 0) | (threshold == 0)
    if shares is None:
        return
    assert shares.sum() == pytest.approx(1.0)
    mixed = shares @ np.array(gradients)
    penalised = threshold > 0
    assert np.abs(mixed[penalised]).max() < np.abs(gradients[-1][penalised]).max()
    left = lambda mixture: np.linalg.norm((mixture @ np.array(gradients) + threshold * w)[free])  # noqa: E731
    for _ in range(20):
        others = rng.standard_normal(4)
        assert left(shares) <= left(shares + 0.1 * (others - others.mean())) + 1e-5
    assert replace(known, ridge=np.full(7, 0.1)).mixture() is None


def test_a_mixture_proves_more_than_the_last_slopes(monkeypatch):
    gaps = []
    for most in (low_rank_model.TUNING.trusted, 0.0):
        monkeypatch.setattr(low_rank_model, "TUNING", replace(low_rank_model.TUNING, trusted=most))
        run = {"agents": 3, "method": "newton", "tol": 1e-13, "max_rounds": 4, "check_every": 1}
        gaps.append(
            co.solve(
                co.Problem("logistic", "l1", STRENGTH, intercept=False), (TABLE.X, TABLE.y), **run
            ).history.gap
        )
    assert gaps[0].min() < 0.7 * gaps[1].min()


def test_auto_knows_sparse_rows():
    for nonzeros, link in ((3_000_000, Link()), (3_000_000, Link(latency=1.0, bandwidth=1e9))):
        sizes = Sizes(100_000, 100_000, nonzeros, 8, link)
        problem = co.Problem("logistic", "l1", 3e-5, intercept=False)
        fitting = [entry for entry in METHODS.values() if entry.split == "samples"]
        scores = {
            entry.name: entry.score(problem, star(8, server=True), sizes) for entry in fitting
        }
        liked = {entry: score for entry, score in scores.items() if score is not None}
        assert max(liked, key=lambda entry: liked[entry][0]) == "newton"
    sparse, dense = (
        METHODS["newton"].score(problem, star(8, server=True), Sizes(5_000, 5_000, cells, 8))[0]
        for cells in (150_000, 25_000_000)
    )
    assert sparse != dense


def test_the_benchmark_makes_the_same_data_every_time():
    again = wide.__wrapped__(N, N)
    assert digest(again.X, again.y) == digest(TABLE.X, TABLE.y)
    assert digest(wide(N, N, seed=1).X) != digest(TABLE.X)
    counts = np.sort(np.bincount(TABLE.X.indices, minlength=N))[::-1]
    assert counts[:500].sum() > 0.5 * counts.sum(), "a tenth of the columns has most of the ones"
    assert set(TABLE.X.data) == {1.0}
    assert 0.3 < (TABLE.y > 0).mean() < 0.7
