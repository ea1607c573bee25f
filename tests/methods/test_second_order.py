"""`gram`, `newton`, `interior-point`: the pooled optimum in few rounds, whatever the penalty,
blocks and columns.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits
from sklearn.linear_model import Lasso, LogisticRegression, Ridge
from sklearn.preprocessing import scale

import coterie as co
from coterie.data import Table, split
from coterie.methods import METHODS, method
from coterie.methods.auto.costs import MEMORY, Link, Sizes
from coterie.methods.second_order import linear as linear_newton
from coterie.methods.second_order import quadratic, sampled_rows
from coterie.methods.second_order.central_path import RowBounds, Samples
from coterie.networks import network, star
from coterie.numerics import local_loss
from coterie.numerics.arrays import CentredDesign, Design
from coterie.numerics.kernels import barrier
from coterie.numerics.losses import LOSSES, loss
from coterie.numerics.losses.loss import Loss
from coterie.numerics.penalties.l1 import L1
from coterie.run.bill import Bill
from coterie.run.rounds import introduced
from coterie.run.setup import make_agents
from coterie.stats import moments
from coterie.stats.moments import diagonal, packed, second_moment, unpacked
from coterie.transport.in_process import InProcess
from papers import datasets
from tests.harness.labels import labels_for
from tests.harness.reference import pooled_optimum

RNG = np.random.default_rng(0)
N, D, K = 80, 8, 4
X = RNG.standard_normal((N, D)) * np.logspace(0, -1, D)
NUMBERS = X @ RNG.standard_normal(D) + 0.5 * RNG.standard_normal(N) + 0.3
SIGNS = np.where(NUMBERS + RNG.standard_normal(N) > 0, 1.0, -1.0)
WEIGHTS = RNG.integers(1, 4, N).astype(float)
PENALTIES = {
    "none": {},
    "l2": {"strength": 0.05},
    "l1": {"strength": 0.05},
    "elasticnet": {"strength": 0.05, "l1_ratio": 0.5},
    "group": {"strength": 0.02, "groups": (0, 0, 1, 1, 1, 2, 2, 2)},
    "nonnegative": {},
    "box": {"lower": -0.3, "upper": 0.4},
    "l1ball": {"radius": 1.0},
}


@dataclass(frozen=True)
class Unknown(L1):
    """A penalty that says only what every penalty must say."""

    name: ClassVar[str] = "unknown"
    pieces: ClassVar[None] = None  # type: ignore[assignment]


SMOOTH = ["huber", "logistic", "squared", "squared_hinge"]
KINKS = ["absolute", "hinge", "quantile"]
CASES = [("gram", "squared", penalty) for penalty in PENALTIES]
CASES += [("newton", name, penalty) for name in SMOOTH for penalty in PENALTIES]
CASES += [("interior-point", name, penalty) for name in KINKS for penalty in PENALTIES]
CASES += [("semismooth", name, penalty) for name in KINKS for penalty in ("l2", "elasticnet")]
ROUNDS = {"gram": 1, "newton": 15, "interior-point": 25, "semismooth": 28}


def labels(name):
    return labels_for(name, NUMBERS, SIGNS)


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize(("which", "name", "penalty"), CASES)
def test_the_pooled_optimum_within_the_certificate(which, name, penalty, intercept):
    """Unequal blocks, one of them empty, weighted rows."""
    problem = co.Problem(name, penalty, intercept=intercept, **PENALTIES[penalty])
    cuts = [slice(0, 5), slice(5, 5), slice(5, 47), slice(47, N)]
    parties = [Table(X[cut], labels(name)[cut], WEIGHTS[cut], name=str(cut)) for cut in cuts]
    result = co.solve(problem, parties, method=which, tol=1e-9, max_rounds=30)
    best = pooled_optimum(problem, X, labels(name), WEIGHTS)[2]
    assert result.status.success
    assert -1e-7 <= result.certificate.primal - best <= result.certificate.gap + 1e-7
    assert result.rounds <= ROUNDS[which if name != "squared" else "gram"]


@pytest.mark.parametrize(
    "storage", [np.asarray, sp.csr_array, sp.csc_array], ids=["dense", "csr", "csc"]
)
@pytest.mark.parametrize("agents", [1, 3])
def test_gram_is_scikit_learns_answer_after_one_round_of_one_letter(storage, agents):
    data = (storage(X), NUMBERS)
    ridge = co.solve(
        co.Problem("squared", "l2", 0.1, intercept=True), data, agents=agents, method="gram"
    )
    twin = Ridge(alpha=0.1 * N, tol=1e-14).fit(X, NUMBERS)
    np.testing.assert_allclose(
        [*ridge.model.coef_, ridge.model.intercept_], [*twin.coef_, twin.intercept_], atol=1e-8
    )
    lasso = co.solve(
        co.Problem("squared", "l1", 0.05, intercept=False), data, agents=agents, method="gram"
    )
    twin = Lasso(alpha=0.05, fit_intercept=False, tol=1e-15, max_iter=100_000).fit(X, NUMBERS)
    np.testing.assert_allclose(lasso.model.coef_, twin.coef_, atol=1e-8)
    assert (lasso.model.coef_ == 0).tolist() == (twin.coef_ == 0).tolist()
    assert (ridge.rounds, lasso.rounds) == (1, 1)
    assert lasso.bill.scalars == 2 * agents * (D * (D + 1) // 2 + D)


def test_gram_refines_what_squaring_the_data_lost():
    """A condition number of 1e6 is 1e12 once squared: the equations alone are right to four
    digits.
    """
    U, V = (np.linalg.qr(RNG.standard_normal((rows, D)))[0] for rows in (N, D))
    hard, truth = U @ np.diag(np.logspace(0, -6, D)) @ V.T, V @ np.ones(D)
    server = star(K, server=True)
    transport = InProcess(server, Bill(server))
    members = make_agents(
        split(Table(hard, hard @ truth), "samples", K),
        co.Problem("squared", intercept=False),
        "samples",
        server,
        0,
    )
    members, gram, errors = introduced(members, transport, "setup"), method("gram"), []
    states = transport.converse([gram.start(agent) for agent in members], "setup")
    for t in range(1, 5):
        states = transport.converse(
            [gram.round(a, s, t) for a, s in zip(members, states, strict=True)], "rounds"
        )
        errors.append(np.linalg.norm(states[0].w - truth))
    assert errors[-1] < 1e-8 < 1e-6 < errors[0]
    assert transport.bill.scalars == 2 * K * (D * (D + 3) // 2 + 3 * D)


@pytest.mark.parametrize("agents", [1, 5])
def test_a_path_costs_one_letter(agents):
    strengths = np.logspace(0, -3, 6)
    found = co.path(
        co.Problem("squared", "elasticnet", 1.0, intercept=False),
        (X, NUMBERS),
        strengths,
        agents=agents,
        method="gram",
    )
    spent = [result.bill.scalars for result in found.results]
    assert spent == [2 * agents * (D * (D + 1) // 2 + D), 0, 0, 0, 0, 0]
    for strength, result in zip(strengths, found.results, strict=True):
        problem = co.Problem("squared", "elasticnet", strength, intercept=False)
        assert result.status == "optimal"
        assert result.certificate.primal == pytest.approx(
            pooled_optimum(problem, X, NUMBERS)[2], abs=1e-7
        )


def test_a_letter_of_other_data_is_not_used():
    first = co.solve(
        co.Problem("squared", "l1", 0.1, intercept=False), (X, NUMBERS), agents=K, method="gram"
    )
    for data, intercept in [
        ((X, NUMBERS + 1), False),
        ((X, NUMBERS, WEIGHTS), False),
        ((X, NUMBERS), True),
    ]:
        problem = co.Problem("squared", "l1", 0.1, intercept=intercept)
        again = co.solve(problem, data, agents=K, method="gram", warm_start=first)
        assert again.status == "optimal"
        assert again.bill.scalars > 0


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize(
    ("hessian", "penalty"), [("products", "l2"), ("products", "none"), ("active", "l1")]
)
@pytest.mark.parametrize("name", ["logistic", "huber", "squared_hinge"])
def test_many_columns_come_to_the_same_model(name, hessian, penalty, intercept):
    problem = co.Problem(name, penalty, intercept=intercept, **PENALTIES[penalty])
    data = (sp.csr_array(X), labels(name))
    whole, parts = (
        co.solve(problem, data, agents=K, method="newton", hessian=h, tol=1e-12)
        for h in ("full", hessian)
    )
    np.testing.assert_allclose(parts.model.coef_, whole.model.coef_, atol=1e-5)
    assert parts.status.success
    assert parts.rounds <= 20


def test_only_the_columns_in_play_travel():
    wide = RNG.standard_normal((60, 2000))
    y = np.where(wide[:, 0] - wide[:, 1] + 0.1 * RNG.standard_normal(60) > 0, 1.0, -1.0)
    result = co.solve(
        co.Problem("logistic", "l1", 0.1, intercept=False), (wide, y), agents=3, method="newton"
    )
    assert result.status == "optimal"
    assert np.count_nonzero(result.model.coef_) < 60
    assert result.bill.scalars < 2 * 3 * result.rounds * (2000 + 200 * 201 / 2 + 20)
    twin = LogisticRegression(
        l1_ratio=1, C=1 / 6, solver="liblinear", fit_intercept=False, tol=1e-6
    ).fit(wide, y)
    np.testing.assert_allclose(result.model.coef_, twin.coef_[0], atol=1e-3)


def test_sparse_least_squares_send_a_few_columns_in_place_of_all():
    wide = RNG.standard_normal((300, 400))
    y = wide[:, 0] - 2 * wide[:, 1] + 0.1 * RNG.standard_normal(300)
    problem = co.Problem("squared", "l1", 0.4, intercept=False)
    few, all_of_them = (
        co.solve(problem, (wide, y), agents=3, method=name) for name in ("newton", "gram")
    )
    np.testing.assert_allclose(few.model.coef_, all_of_them.model.coef_, atol=1e-10)
    assert 10 * few.bill.scalars < all_of_them.bill.scalars


@pytest.mark.parametrize("name", ["huber", "squared_hinge"])
def test_what_changed_of_the_hessian_adds_up_to_all_of_it(name):
    """Curvatures go up and down, between 0, the floor and 1."""
    server = star(K, server=True)
    transport, newton = InProcess(server, Bill(server)), method("newton")
    tables = split(Table(3 * X, labels(name), WEIGHTS), "samples", K)
    members = make_agents(
        tables, co.Problem(name, "l2", 1e-3, intercept=False), "samples", server, 0
    )
    members = introduced(members, transport, "setup")
    states = transport.converse([newton.start(agent) for agent in members], "setup")
    curvatures = []
    for t in range(1, 6):
        states = transport.converse(
            [newton.round(a, s, t) for a, s in zip(members, states, strict=True)], "rounds"
        )
        curvatures.append(np.concatenate([state.own for state in states]))
        expected = 9 * X.T @ (curvatures[-1][:, None] * X)
        np.testing.assert_allclose(unpacked(states[0].memory.triangle, D), expected, atol=1e-9)
    changes = np.diff(curvatures, axis=0)
    assert (changes < -0.5).any()
    assert name == "squared_hinge" or (changes > 0.5).any()


def test_newton_converges_quadratically():
    history = co.solve(
        co.Problem("logistic", "l2", 1e-3, intercept=False),
        (X, SIGNS),
        agents=K,
        method="newton",
        tol=1e-14,
        check_every=1,
    ).history
    gaps = history.gap[history.gap > 1e-13]
    orders = np.log(gaps[2:] / gaps[1:-1]) / np.log(gaps[1:-1] / gaps[:-2])
    assert orders[-1] > 1.6
    assert len(history) <= 8


@pytest.mark.parametrize(
    ("name", "which"),
    [("logistic", "newton"), ("hinge", "interior-point"), ("hinge", "semismooth")],
)
def test_some_rounds_go_without_a_certificate_and_none_is_added(name, which):
    """A proof is small beside a Hessian of so many columns, but takes time."""
    rng = np.random.default_rng(0)
    wide = rng.standard_normal((400, 60))
    y = np.where(wide @ rng.standard_normal(60) + 5 * rng.standard_normal(400) > 0, 1.0, -1.0)
    run = {"agents": K, "method": which, "tol": 1e-8}
    found, always = (
        co.solve(co.Problem(name, "l2", 1e-4, intercept=False), (wide, y), **run, check_every=n)
        for n in (None, 1)
    )
    assert found.rounds == always.rounds
    assert len(found.history) < len(always.history) == always.rounds
    assert found.certificate.gap == always.certificate.gap


@pytest.mark.parametrize("start", [1e3, -1e3])
@pytest.mark.parametrize("name", SMOOTH)
def test_newton_comes_back_from_far_away(name, start):
    """Where the loss is flat, the raised curvature and the short trial steps lead back."""
    problem = co.Problem(name, "l2", 1e-3, intercept=False)
    far = co.solve(problem, (X, labels(name)), agents=K, method="newton", max_rounds=0)
    far.model.coef_[:] = start
    result = co.solve(
        problem, (X, labels(name)), agents=K, method="newton", warm_start=far, max_rounds=60
    )
    assert result.status == "optimal"


@pytest.mark.parametrize("which", ["gram", "newton"])
def test_float32_data_is_kept_and_added_up_in_float64(which):
    single = X.astype("f4")
    result = co.solve(
        co.Problem("squared", "l2", 0.01, intercept=False),
        (single, NUMBERS),
        agents=K,
        method=which,
        tol=1e-6,
    )
    assert result.model.coef_.dtype == np.float32
    twin = Ridge(alpha=0.01 * N, fit_intercept=False, tol=1e-14).fit(
        single.astype(float), NUMBERS.astype("f4")
    )
    np.testing.assert_allclose(result.model.coef_, twin.coef_, rtol=1e-5, atol=1e-6)
    assert result.status == "optimal"


@pytest.mark.parametrize("which", ["gram", "newton"])
@pytest.mark.parametrize("penalty", ["l1ball", "box"])
def test_rounding_to_float32_keeps_to_the_bounds(which, penalty):
    problem = co.Problem("squared", penalty, intercept=False, **PENALTIES[penalty])
    result = co.solve(problem, (X.astype("f4"), NUMBERS), agents=K, method=which, tol=1e-5)
    assert result.status == "optimal"
    assert problem.penalty.value(result.model.coef_.astype(float)) == 0


@pytest.mark.parametrize("intercept", [False, True, "centred"])
@pytest.mark.parametrize("columns", [None, [0, 3, 7]])
@pytest.mark.parametrize("storage", [np.asarray, sp.csr_array])
def test_second_moments_are_those_of_numpy(storage, columns, intercept):
    holes = X * (RNG.random(X.shape) < 0.4)
    full = np.column_stack([holes, np.ones(N)]) if intercept else holes
    chosen = None if columns is None else np.array([*columns, D] if intercept else columns)
    expected = full.T @ (WEIGHTS[:, None] * full)
    expected = expected if chosen is None else expected[np.ix_(chosen, chosen)]
    centre = RNG.standard_normal(D)
    if intercept == "centred":
        full = np.column_stack([holes - centre, np.full(N, 3.0)])
        expected = full.T @ (WEIGHTS[:, None] * full)
        expected = expected if chosen is None else expected[np.ix_(chosen, chosen)]
        design = CentredDesign(storage(holes), True, centre, 3.0)
    else:
        design = Design(storage(holes), intercept)
    found = second_moment(design, WEIGHTS, chosen)
    np.testing.assert_allclose(unpacked(packed(found), len(found)), expected, atol=1e-10)
    np.testing.assert_allclose(
        diagonal(design, WEIGHTS), np.einsum("ij,ij,i->j", full, full, WEIGHTS), atol=1e-10
    )


@pytest.mark.parametrize("name", SMOOTH)
def test_curvature_is_the_derivative_of_the_gradient(name):
    u, y = 2 * RNG.standard_normal(400), np.where(RNG.random(400) < 0.5, 1.0, -1.0)
    ell, step = loss(name), 1e-6
    away = np.abs(u - y) if name == "huber" else np.abs(y * u)
    smooth = np.abs(away - 1) > 1e-4  # where ℓ'' does not jump
    difference = (ell.gradient(u + step, y) - ell.gradient(u - step, y)) / (2 * step)
    np.testing.assert_allclose(ell.curvature(u, y)[smooth], difference[smooth], atol=1e-6)
    assert ell.curvature(u, y).max() <= ell.smoothness


@pytest.mark.parametrize("name", KINKS)
def test_kinks_are_refused_with_an_alternative(name):
    assert type(loss(name)).curvature is Loss.curvature
    with pytest.raises(co.CoterieError, match=r"second derivative.*proximal-1"):
        co.solve(co.Problem(name, "l2", 0.1, intercept=False), (X, labels(name)), method="newton")


@pytest.mark.parametrize(
    ("problem", "options", "words"),
    [
        (
            co.Problem("logistic", "l2", 0.1, intercept=False),
            {"method": "gram"},
            r"squared loss.*newton",
        ),
        (
            co.Problem("logistic", "l1", 0.1, intercept=False),
            {"method": "newton", "hessian": "products"},
            r"l2 and none.*full",
        ),
        (
            co.Problem("logistic", "l1", 0.1, intercept=False),
            {"method": "newton", "hessian": "some"},
            r"'auto', 'full'",
        ),
        (
            co.Problem("logistic", "l1", 0.1, intercept=False),
            {"method": "newton", "products": 0},
            r"whole number from 1",
        ),
        (
            co.Problem("squared", "l1", 0.1, intercept=False),
            {"link": (0.0, 1e6)},
            r"link takes two positive numbers, \(seconds per hop",
        ),
        (
            co.Problem("logistic", "l2", 0.1, intercept=False),
            {"method": "interior-point"},
            r"non-smooth losses.*newton",
        ),
        (
            co.Problem("hinge", Unknown(0.1), intercept=False),
            {"method": "interior-point"},
            r"no barrier for the 'unknown'.*proximal-1",
        ),
    ],
)
def test_mistakes_name_the_fix(problem, options, words):
    with pytest.raises(co.CoterieError, match=words):
        co.solve(problem, (X, SIGNS), **options)


@pytest.mark.parametrize(
    ("name", "penalty", "columns", "link", "expected"),
    [
        ("squared", "l1", 100, Link(), "gram"),
        ("squared", "l1", 1_000, Link(), "newton"),
        ("squared", "l1", 20_000, Link(), "newton"),
        ("squared", "box", 20_000, Link(), "proximal-1"),
        ("logistic", "l2", 100, Link(), "newton"),
        ("logistic", "box", 3_000, Link(), "proximal-1"),
        ("hinge", "l2", 100, Link(), "semismooth"),
        ("hinge", "l2", 101, Link(), "interior-point"),
        ("quantile", "elasticnet", 20, Link(), "semismooth"),
        ("absolute", "l1", 20, Link(), "interior-point"),
        ("hinge", "l2", 20_000, Link(), "proximal-1"),
        ("hinge", "l2", 20_000, Link(latency=1e-5, bandwidth=1e10), "relay"),
        ("hinge", "l1", 20_000, Link(latency=1e-5, bandwidth=1e10), "proximal-1"),
        ("hinge", "l2", 100, Link(latency=1e-5, bandwidth=1e10), "semismooth"),
        ("hinge", "box", 100, Link(), "interior-point"),
        ("hinge", "box", 3_000, Link(), "proximal-1"),
        ("absolute", "nonnegative", 100, Link(), "interior-point"),
        ("quantile", "group", 8, Link(), "interior-point"),
        ("quantile", "l1ball", 100, Link(), "interior-point"),
        ("squared", "l2", 1_000, Link(latency=1e-5, bandwidth=1e6), "proximal-1"),
        ("squared", "l2", 1_000, Link(latency=1.0, bandwidth=1e8), "gram"),
    ],
)
def test_auto_weighs_rounds_bits_and_work(name, penalty, columns, link, expected):
    sizes = Sizes(100_000, columns, 100_000 * 50, 8, link)
    problem = co.Problem(name, penalty, intercept=False, **PENALTIES[penalty])
    fitting = [entry for entry in METHODS.values() if entry.split == "samples"]
    scores = {entry.name: entry.score(problem, star(8, server=True), sizes) for entry in fitting}
    liked = {entry: score for entry, score in scores.items() if score is not None}
    assert max(liked, key=lambda entry: liked[entry][0]) == expected


@given(st.floats(-50, 50), st.floats(1e-6, 10), st.floats(-3, 0), st.floats(0.01, 3))
def test_the_central_path_of_one_term(r, mu, lower, width):
    """v = argmax v r + μ log((b − v)(v − a)), θ = dv/dr, and the value by brute force."""
    one, a, b = np.array([r]), np.array([lower]), np.array([lower + width])
    v, theta, ahead, values = (np.empty(1) for _ in range(4))
    barrier.centre(one, mu, a, b, v, theta)
    grid = lower + width * np.linspace(0, 1, 20_001)[1:-1]
    heights = grid * r + mu * np.log((b - grid) * (grid - a))
    values[:] = 0.0
    barrier.smoothed(one, np.zeros(1), mu, a, b, np.ones(1), np.array([1.0]), values)
    assert values[0] >= heights.max() - 1e-9 * (1 + abs(heights.max()))
    assert values[0] == pytest.approx(heights.max(), abs=0.01 * (abs(r) + mu) * width + 1e-9)
    step = 1e-5 * (abs(r) + mu)
    barrier.centre(one + step, mu, a, b, ahead, np.empty(1))
    barrier.centre(one - step, mu, a, b, v, np.empty(1))
    assert theta[0] == pytest.approx((ahead[0] - v[0]) / (2 * step), rel=1e-3, abs=1e-9)


def samples(count, weights=None, seed=0):
    """Samples somewhere inside, and how their residuals change."""
    rng = np.random.default_rng(seed)
    lower, upper = -rng.uniform(0.1, 1.0, count), rng.uniform(0.1, 1.0, count)
    v, s, t = (
        lower + (upper - lower) * rng.uniform(0.05, 0.95, count),
        rng.uniform(0.1, 2, count),
        rng.random(count) + 0.1,
    )
    weights = np.ones(count) if weights is None else weights
    rows = RowBounds(np.zeros(count), lower, upper, weights, np.flatnonzero(weights == 0))
    return Samples(rows, s - t, v, s, t), rng.standard_normal(count)


def products_after(own, way, step):
    v, s, t = own.after(step, way)
    return s * (own.rows.upper - v), t * (v - own.rows.lower)


def test_samples_go_where_they_aim():
    """The products of a step α are (1 − α) of what they were, α of the aim, and α² of the
    second-order term.
    """
    own, dr = samples(7)
    before = products_after(own, own.moved(own.aimed(0.0), dr), 0.0)
    way = own.moved(own.aimed(0.3), dr)
    dv, ds, dt, _ = way.moves
    np.testing.assert_allclose(ds - dt, dr, rtol=1e-12, atol=1e-12)
    for step in (1e-3, 0.4, 1.0):
        for after, old, square in zip(
            products_after(own, way, step), before, (-ds * dv, dt * dv), strict=True
        ):
            np.testing.assert_allclose(
                after, (1 - step) * old + step * 0.3 + step**2 * square, rtol=1e-9, atol=1e-12
            )
    assert own.complementarity() == pytest.approx(sum(side.sum() for side in before))
    assert own.quadratic(way) == pytest.approx((dt * dv - ds * dv).sum())
    # The corrector aims at what the first move misses.
    c, e, _, _ = own.aimed(0.3, way).aim
    np.testing.assert_allclose([c - 0.3, e - 0.3], [ds * dv, -dt * dv], rtol=1e-12)


def test_the_longest_step_of_samples_ends_at_the_first_edge():
    own, dr = samples(9, seed=1)
    way = own.moved(own.aimed(0.1), 3 * dr)
    assert 0 < way.longest < 2

    def rooms(step: float) -> float:
        return np.array([*products_after(own, way, step), *own.after(step, way)[1:]]).min()

    assert rooms(0.999 * way.longest) > 0 > rooms(1.001 * way.longest)


def test_outlying_products_of_samples_are_aimed_at():
    own, dr = samples(9, seed=2)
    way = own.moved(own.aimed(0.5), dr)
    aim = own.recentred(way, 0.7, 0.2, 1.0).aim
    for side, after in enumerate(products_after(own, way, 0.7)):
        wanted = way.aim[side] + np.maximum(np.clip(after, 0.2, 1.0) - after, -1.0)
        np.testing.assert_allclose(aim[side], wanted, rtol=1e-12)


def test_a_sample_of_weight_zero_neither_moves_nor_shortens_the_step():
    weights = np.array([1.0, 1.0, 0.0])
    own, dr = samples(3, weights)
    dr[2] = 1e3
    way = own.moved(own.aimed(0.5), dr)
    assert (way.moves[:, 2] == 0).all()
    alone, _ = samples(3)
    with_it = alone.moved(alone.aimed(0.5), dr)
    assert with_it.longest < 0.01 < way.longest
    np.testing.assert_array_equal(way.moves[:, :2], with_it.moves[:, :2])


@pytest.mark.skipif(
    not os.environ.get("COTERIE_DATA"), reason="set COTERIE_DATA to the folder with the data files"
)
@pytest.mark.parametrize("penalty", ["l2", "l1"])
def test_a_real_machine_in_a_few_rounds(penalty):
    """a1a, λ = 1/n: first-order methods need hundreds."""
    table = datasets.a1a().train
    result = co.solve(
        co.Problem("hinge", penalty, 1 / table.n, intercept=False), (table.X, table.y), agents=10
    )
    assert "interior-point" in result.explanation
    assert result.status == "optimal"
    assert result.rounds <= 25


def classes(y):
    return np.where(y > y.mean(), 1.0, -1.0)


def real(name):
    """Real data, on one scale: rows and numbers as labels."""
    if name in ("a1a", "w8a", "har_stairs"):
        table = getattr(datasets, name)().train
        return table.X, table.y
    rows, y = {"diabetes": load_diabetes, "cancer": load_breast_cancer, "digits": load_digits}[
        name
    ](return_X_y=True)
    return (rows / 16 if name == "digits" else scale(rows)), (
        scale(y) if name == "diabetes" else y - y.mean()
    )


DATA = pytest.mark.skipif(
    not os.environ.get("COTERIE_DATA"), reason="set COTERIE_DATA to the folder with the data"
)
MANY = {
    **PENALTIES,
    "group": {"strength": 0.01},
    "box": {"lower": -0.3, "upper": 0.4},
    "bounded below": {},
}


def made_for(name, penalty, width, **settings):
    """That problem for so many columns, in groups of three."""
    settings = {"intercept": False, **MANY[penalty], **settings}
    if penalty == "group":
        settings["groups"] = tuple(np.arange(width) // 3)
    if penalty == "bounded below":
        penalty, settings = (
            "box",
            {"lower": np.where(np.arange(width) % 2, -1.0, 0.0), "upper": np.inf, **settings},
        )
    return co.Problem(name, penalty, **settings)


def with_outliers(rows, y, factor, where):
    rows, y = rows.copy(), y.copy()
    rows[int(np.argmax(np.abs(y)))] *= factor  # one row in another unit
    if where == "labels":
        y[3] *= factor
    if where == "many":
        rows[::7] *= factor / 10
    return rows, y


def trial(name, penalty, data, factor, where, intercept, **run):
    rows, y = with_outliers(*real(data), factor, where)
    y = classes(y) if LOSSES[name].kind == "classification" else y
    problem = made_for(name, penalty, rows.shape[1], intercept=intercept)
    return co.solve(problem, (rows, y), agents=K, max_rounds=60, **run)


@pytest.mark.parametrize("factor", [300, 1000])
@pytest.mark.parametrize("penalty", PENALTIES)
@pytest.mark.parametrize("name", SMOOTH)
def test_a_row_in_another_unit_costs_a_few_rounds(name, penalty, factor):
    """Where the loss is flat nearly everywhere, a full step is thousands of times too long."""
    result = trial(name, penalty, "diabetes", factor, "rows", factor == 300, method="newton")
    assert result.status.success
    assert result.rounds <= (1 if name == "squared" else 20)


@pytest.mark.parametrize("factor", [300, 1000])
def test_auto_copes_with_a_row_in_another_unit(factor):
    for penalty in ("l2", "l1"):
        result = trial("huber", penalty, "diabetes", factor, "labels", True)
        assert "Method newton" in result.explanation
        assert result.status == "optimal"


@pytest.mark.slow
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize(
    ("factor", "where"), [(300, "labels"), (300, "many"), (1000, "labels"), (1e4, "rows")]
)
@pytest.mark.parametrize("data", ["diabetes", "cancer", "digits"])
@pytest.mark.parametrize("penalty", PENALTIES)
@pytest.mark.parametrize("name", SMOOTH)
def test_outliers_of_all_kinds(name, penalty, data, factor, where, intercept):
    result = trial(name, penalty, data, factor, where, intercept, method="newton")
    assert result.status == "optimal" or result.certificate.relative_gap < 1e-4


@pytest.mark.parametrize(
    ("hessian", "penalty"),
    [
        ("full", "l2"),
        ("full", "l1"),
        ("full", "box"),
        ("full", "group"),
        ("products", "l2"),
        ("active", "l1"),
    ],
)
@pytest.mark.parametrize("name", ["huber", "logistic", "squared_hinge"])
def test_every_round_lowers_the_objective_or_is_at_its_end(name, hessian, penalty):
    rows, y = with_outliers(*real("diabetes"), 1000, "rows")
    problem, server = made_for(name, penalty, rows.shape[1]), star(K, server=True)
    y = classes(y) if LOSSES[name].kind == "classification" else y
    transport, newton = InProcess(server, Bill(server)), method("newton", hessian=hessian)
    members = make_agents(split(Table(rows, y), "samples", K), problem, "samples", server, 0)
    members = introduced(members, transport, "setup")
    states = transport.converse([newton.start(agent) for agent in members], "setup")
    values = []
    for t in range(1, 31):
        values.append(
            problem.loss.value(rows @ states[0].w, y) / len(y) + problem.penalty.value(states[0].w)
        )
        states = transport.converse(
            [newton.round(a, s, t) for a, s in zip(members, states, strict=True)], "rounds"
        )
    falls = -np.diff(values) / values[0]
    moving = np.array(values[:-1]) - values[-1] > 1e-9 * values[0]
    assert (falls[moving] > 0).all()
    assert (falls > -1e-12).all()
    assert not moving[-10:].any()
    assert values[-1] < 0.99 * values[0]


@pytest.mark.parametrize("long", [1.0, 1e2, 1e4])
@pytest.mark.parametrize("penalty", [name for name in PENALTIES if name not in ("none", "l2")])
def test_the_minimum_of_a_long_thin_quadratic(penalty, long):
    """One direction is 10⁸ times as steep as the others: the slope at z is in the penalty's
    subdifferential.
    """
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((60, 12))
    rows[0] *= long
    y = rows @ rng.standard_normal(12) + rng.standard_normal(60)
    H, c = rows.T @ rows / 60, rows.T @ y / 60
    problem, server = made_for("squared", penalty, 12), star(1, server=True)
    (agent,) = make_agents([Table(rows, y)], problem, "samples", server, 0)
    z = quadratic.minimiser(agent, H, -c, np.zeros(12))[0]
    # Fenchel and Young: g(z) + g*(u) = ⟨z, u⟩ for a subgradient u
    slope = c - H @ z
    u = problem.penalty.scale_into_domain(slope) * slope
    gap = problem.penalty.value(z) + problem.penalty.conjugate(u) - z @ u
    if penalty == "nonnegative":
        assert (slope <= 1e-9 * np.abs(c).max()).all()
        u, gap = slope, float(np.abs(z @ slope))
    assert np.abs(u - slope).max() <= 1e-7 * np.abs(c).max()
    assert gap <= 1e-9 * (y @ y / 60)


KINKED = [
    ("a1a", 25), ("cancer", 25), ("digits", 25), ("diabetes", 25),
    pytest.param("w8a", 60, marks=pytest.mark.slow), pytest.param("har_stairs", 40, marks=pytest.mark.slow),
]  # fmt: skip


@DATA
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize(("data", "most"), KINKED)
@pytest.mark.parametrize("penalty", ["box", "group", "l1ball", "bounded below"])
def test_kinks_and_bounds_on_real_data_in_a_few_rounds(penalty, data, most, intercept):
    """First-order methods need 70 to 3,000 rounds."""
    rows, y = real(data)
    for name in KINKS:
        problem = made_for(name, penalty, rows.shape[1], intercept=intercept)
        labels = classes(y) if name == "hinge" else y
        result = co.solve(problem, (rows, labels), agents=K, max_rounds=100)
        assert "Method interior-point" in result.explanation
        assert result.status.success
        assert result.rounds <= (100 if (data, penalty) == ("w8a", "bounded below") else most)


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("penalty", [*PENALTIES, "bounded below"])
@pytest.mark.parametrize("name", KINKS)
def test_the_dual_of_a_point_is_feasible(name, penalty, intercept):
    """As it is said, not as the certificate would mend it, and so the claim is about all models."""
    server = star(K, server=True)
    transport, interior = InProcess(server, Bill(server)), method("interior-point")
    problem = made_for(name, penalty, D, intercept=intercept)
    members = make_agents(
        split(Table(X, labels(name)), "samples", K), problem, "samples", server, 0
    )
    members = introduced(members, transport, "setup")
    states = transport.converse([interior.start(agent) for agent in members], "setup")
    for t in range(1, 16):
        states = transport.converse(
            [interior.round(a, s, t) for a, s in zip(members, states, strict=True)], "rounds"
        )
        points = [interior.point(a, s) for a, s in zip(members, states, strict=True)]
        v, w = np.concatenate([point.v for point in points]), points[0].w
        y = np.concatenate([agent.labels for agent in members])
        lower, upper = problem.loss.domain(y)
        assert ((lower <= v) & (v <= upper)).all()
        assert problem.penalty.value(problem.coefficients(w)) < np.inf
    slope = -np.concatenate([agent.data.X for agent in members]).T @ v / N
    if penalty == "none":
        np.testing.assert_allclose(slope, 0, atol=1e-12)
    elif penalty in ("nonnegative", "bounded below"):
        assert slope.max() < 1e-12
    else:
        assert problem.penalty.scale_into_domain(slope) > 1 - 1e-9
    assert not intercept or abs(v.sum()) < 1e-9 * N


@pytest.mark.parametrize("penalty", ["nonnegative", "bounded below"])
@pytest.mark.parametrize("name", KINKS)
def test_one_sided_bounds_are_proven_for_all_models(name, penalty):
    result = co.solve(
        made_for(name, penalty, D), (X, labels(name)), agents=K, method="interior-point"
    )
    assert result.status == "optimal"
    assert result.certificate.radius is None


@pytest.mark.parametrize("name", KINKS)
def test_nothing_is_made_up_for_columns_without_numbers(name):
    """Nor for those whose bounds are equal."""
    empty = X * (np.arange(D) != 2)
    lower, upper = np.array([0.0] * 7 + [0.25]), np.array([np.inf] * 7 + [0.25])
    for intercept in (False, True):
        problem = co.Problem(name, "box", lower=lower, upper=upper, intercept=intercept)
        result = co.solve(problem, (empty, labels(name)), agents=K, method="interior-point")
        assert result.status == "optimal"
        assert result.model.coef_[2] == 0.0
        assert result.model.coef_[7] == 0.25


@pytest.mark.parametrize("start", [0.0, 1e-9, 0.2, 0.4])
def test_a_start_at_the_bounds_costs_nothing(start):
    problem = co.Problem("hinge", "box", lower=0.0, upper=0.4, intercept=False)
    warm = co.solve(problem, (X, SIGNS), agents=K, method="interior-point", max_rounds=0)
    warm.model.coef_[:] = start
    result = co.solve(problem, (X, SIGNS), agents=K, method="interior-point", warm_start=warm)
    assert result.status == "optimal"
    assert result.rounds <= 15


def test_a_poor_proof_does_not_keep_a_run_from_the_next_one():
    """The first gap is a million times what the method expects, and the third one small enough."""
    rng = np.random.default_rng(1)
    scales = np.logspace(0, 2, 8)
    rows = rng.standard_normal((120, 8)) * scales
    score = rows @ (rng.standard_normal(8) / scales)
    rng.standard_normal(120)
    data, problem = (
        (rows**3, score + rng.standard_normal(120)),
        co.Problem("absolute", "l1", 1e-6, intercept=False),
    )
    often, seldom = (
        co.solve(
            problem,
            data,
            agents=3,
            method="interior-point",
            tol=1e-8,
            max_rounds=60,
            check_every=every,
        )
        for every in (1, None)
    )
    assert often.status == seldom.status == "optimal"
    assert seldom.rounds <= often.rounds + 2


@pytest.mark.parametrize("penalty", ["l2", "l1"])
@pytest.mark.parametrize("name", KINKS)
def test_weights_of_eight_orders_of_magnitude(name, penalty):
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((400, 10))
    y = rows @ rng.standard_normal(10) + rng.standard_normal(400)
    data = rows, np.sign(y) if name == "hinge" else y, 10.0 ** rng.uniform(-4, 4, 400)
    result = co.solve(
        co.Problem(name, penalty, 1e-3, intercept=False),
        data,
        agents=K,
        method="interior-point",
        tol=1e-8,
        max_rounds=60,
    )
    assert result.status == "optimal"


def test_in_one_process_auto_reckons_with_memory():
    """Messages cost next to nothing there, and one machine does the work of all agents: Hessians
    pay.
    """
    sizes = {
        link: Sizes(20_000, 784, 20_000 * 784, 8, link)
        for link in (MEMORY, Link(latency=0.02, bandwidth=1e7))
    }
    problem, graph = co.Problem("logistic", "l2", 1e-4, intercept=False), star(8, server=True)
    scores = [{name: METHODS[name].score(problem, graph, size)[0] for name in ("newton", "lbfgs-rows")}
              for size in sizes.values()]  # fmt: skip
    assert scores[0]["newton"] > scores[0]["lbfgs-rows"] > 2.0
    assert scores[1]["newton"] < scores[1]["lbfgs-rows"]
    rng = np.random.default_rng(0)
    data = rng.standard_normal((40, 3)), rng.standard_normal(40)
    ridge = co.Problem("squared", "l2", 0.1, intercept=False)
    assert co.solve(ridge, data, agents=2).explanation.endswith("in memory.")
    assert (
        "at 20 ms and 100 Mbit/s" in co.solve(ridge, data, agents=2, link=(0.02, 1e8)).explanation
    )
    here, elsewhere = (
        co.plan(ridge, data, agents=2, engine=engine).wire_seconds for engine in ("local", "mpi")
    )
    assert here < 1e-3 < elsewhere


def test_auto_knows_what_independent_columns_are_worth():
    """Slopes alone take few rounds there, and hundreds where all columns are images of a few."""
    problem, graph = co.Problem("logistic", "l2", 1e-4, intercept=False), star(2, server=True)
    sizes = [
        Sizes(6000, 1000, 6_000_000, 2, MEMORY, independence=share) for share in (None, 1.0, 0.01)
    ]
    gradients, hessians = (
        [METHODS[name].score(problem, graph, size)[0] for size in sizes]
        for name in ("lbfgs-rows", "newton")
    )
    assert [a > b for a, b in zip(gradients, hessians, strict=True)] == [False, True, False]


@pytest.mark.parametrize(("few", "share", "rounds"), [(True, 0.3, 2), (False, 0.02, 1)])
def test_a_lasso_in_one_process_adds_up_products_of_the_columns_in_play(few, share, rounds):
    """Where few are, of these; where nearly all are, of all columns at once."""
    rng = np.random.default_rng(3)
    rows, weights = (
        rng.standard_normal((3000, 400)),
        rng.standard_normal(400) * (np.arange(400) < (10 if few else 400)),
    )
    numbers = rows @ weights + rng.standard_normal(3000)
    strength = share * np.abs(rows.T @ numbers).max() / 3000
    result = co.solve(
        co.Problem("squared", "l1", strength, intercept=False), (rows, numbers), agents=4, tol=1e-9
    )
    assert "Method newton" in result.explanation
    assert result.status == "optimal"
    assert result.rounds <= rounds
    most = 40 if few else 400
    assert result.bill.total.bits <= 64 * 2 * 4 * result.rounds * (most * (most + 3) / 2 + 5 * 400)


def test_auto_says_what_it_reckoned_with():
    result = co.solve(
        co.Problem("squared", "l1", 0.1, intercept=False), (X, NUMBERS), agents=K, link=(0.5, 1e6)
    )
    assert "Method gram" in result.explanation
    assert "500 ms and 1 Mbit/s" in result.explanation


@pytest.mark.parametrize("where", ["ring", "path"])
def test_any_network_can_add(where):
    problem = co.Problem("logistic", "elasticnet", 0.01, intercept=False)
    there = co.solve(problem, (X, SIGNS), agents=K, method="newton", network=network(where, K))
    here = co.solve(problem, (X, SIGNS), agents=K, method="newton")
    np.testing.assert_allclose(there.model.coef_, here.model.coef_, atol=1e-9)


@pytest.mark.parametrize(
    ("name", "penalty", "which"),
    [
        ("logistic", "l1", "newton"),
        ("huber", "l2", "newton"),
        ("hinge", "box", "interior-point"),
        ("absolute", "nonnegative", "interior-point"),
        ("quantile", "l1ball", "interior-point"),
        ("quantile", "elasticnet", "semismooth"),
    ],
)
def test_a_run_that_stopped_goes_on_as_if_it_had_not(name, penalty, which, tmp_path):
    problem, run = (
        co.Problem(name, penalty, intercept=False, **PENALTIES[penalty]),
        {"agents": K, "method": which, "tol": 1e-9},
    )
    whole = co.solve(problem, (X, labels(name)), **run)
    co.solve(problem, (X, labels(name)), checkpoint=tmp_path, max_rounds=2, **run)
    resumed = co.solve(problem, (X, labels(name)), checkpoint=tmp_path, **run)
    assert (resumed.model.coef_ == whole.model.coef_).all()
    assert resumed.rounds == whole.rounds


@pytest.mark.parametrize(
    ("problem", "shift", "scales"),
    [
        (co.Problem("squared", "l2", 1e-3, intercept=True), 1e4, (1.0, 1.0, 1.0)),
        (co.Problem("logistic", "l2", 1e-3, intercept=True), 1e4, (1.0, 1.0, 1.0)),
        (co.Problem("squared", "l2", 1e-3, intercept=True), 1e8, (1.0, 1.0, 1.0)),
        (co.Problem("huber", "l2", 1e-3, intercept=True), 1e8, (1.0, 1.0, 1.0)),
        (co.Problem("absolute", "l2", 1e-3, intercept=True), 1e6, (1.0, 1.0, 1.0)),
        (co.Problem("squared", "none", intercept=False), 0.0, (1e4, 1.0, 1e-4)),
    ],
)
def test_columns_on_scales_of_their_own_are_fitted(problem, shift, scales):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((200, 3))
    y = X @ [1.0, 2.0, 3.0] + 0.1 * rng.standard_normal(200)
    labels = np.sign(y) if problem.loss.kind == "classification" else y
    result = co.solve(problem, (X * scales + shift, labels), agents=3, max_rounds=100)
    assert result.status.success
    assert result.rounds <= 15


@pytest.mark.parametrize(
    "twins", [False, True], ids=["columns far from dependent", "columns nearly dependent"]
)
def test_single_precision_costs_no_rounds(twins, monkeypatch):
    rng = np.random.default_rng(0)
    A = rng.standard_normal((400, linear_newton.TUNING.single_from + 20))
    if twins:
        A[:, -1] = A[:, 0] + 1e-4 * A[:, -1]
    y = np.where(A @ rng.standard_normal(A.shape[1]) + 3 * rng.standard_normal(400) > 0, 1.0, -1.0)
    precisions = []

    def noted(*arguments, single=False):
        precisions.append(single)
        return second_moment(*arguments, single=single)

    def rounds():
        precisions.clear()
        result = co.solve(
            co.Problem("logistic", "l2", 1e-9 if twins else 1e-3, intercept=False),
            (A, y),
            agents=4,
            tol=1e-11,
        )
        assert result.status == "optimal"
        return result.rounds

    monkeypatch.setattr(moments, "second_moment", noted)
    monkeypatch.setattr(local_loss, "LEAST", 10**9)  # a batch multiplies out all agents at once
    few = rounds()
    assert precisions[:4] == [True] * 4  # in the first round nothing is known of H
    assert precisions[4:] == [not twins] * 4 * (few - 1)
    monkeypatch.setattr(linear_newton, "TUNING", replace(linear_newton.TUNING, single_from=10**6))
    assert few <= rounds() + 1
    assert not any(precisions)


@pytest.mark.parametrize("penalty", ["l2", "l1"])
def test_long_steps_need_only_some_rows(penalty, monkeypatch, tmp_path):
    rng = np.random.default_rng(3)
    n, d = 2000, 15
    A = rng.standard_normal((n, d))
    y = np.where(A @ rng.standard_normal(d) + rng.standard_normal(n) > 0, 1.0, -1.0)
    counts = []

    def counted(design, scale, *more, **how):
        counts.append(np.count_nonzero(scale) / len(scale))
        return second_moment(design, scale, *more, **how)

    monkeypatch.setattr(moments, "second_moment", counted)
    monkeypatch.setattr(local_loss, "LEAST", 10**9)  # a batch multiplies out all agents at once
    monkeypatch.setattr(sampled_rows, "TUNING", replace(sampled_rows.TUNING, sampled_from=n * d))
    problem, run = (
        co.Problem("logistic", penalty, 1e-3, intercept=True),
        {"agents": K, "method": "newton", "tol": 1e-9},
    )
    result = co.solve(problem, (A, y), **run)
    shares = np.reshape(counts, (-1, K))
    assert shares[0] == pytest.approx(np.full(K, 1 / sampled_rows.TUNING.thinnest), rel=0.02)
    assert (shares[-1] == 1).all()
    counts.clear()
    co.solve(problem, (A, y), warm_start=result, **run)
    co.solve(problem, (sp.csr_array(A), y), **run)
    co.solve(problem, co.Table(A, y, weights=np.full(n, 2.0)), **run)
    co.solve(
        co.Problem("logistic", "group", 1e-3, groups=tuple(range(d)), intercept=False),
        (A, y),
        **run,
    )
    assert set(counts) == {1.0}
    counts.clear()
    parts = [(A[:1000], y[:1000]), (sp.csr_array(A[1000:]), y[1000:])]
    mixed = co.solve(problem, parts, method="newton", tol=1e-9)
    assert np.reshape(counts, (-1, 2))[0] == pytest.approx(
        [1 / sampled_rows.TUNING.thinnest, 1.0], rel=0.02
    )
    assert mixed.certificate.primal == pytest.approx(result.certificate.primal, rel=1e-8)
    stopped = {**run, "checkpoint": tmp_path, "check_every": 1}
    co.solve(problem, (A, y), max_rounds=1, **stopped)
    resumed = co.solve(problem, (A, y), **stopped)
    np.testing.assert_array_equal(
        resumed.model.coef_, co.solve(problem, (A, y), check_every=1, **run).model.coef_
    )
    monkeypatch.setattr(sampled_rows, "TUNING", replace(sampled_rows.TUNING, thinnest=1))
    counts.clear()
    whole = co.solve(problem, (A, y), **run)
    assert set(counts) == {1.0}
    assert result.rounds <= whole.rounds + 1
    assert result.certificate.primal == pytest.approx(whole.certificate.primal, rel=1e-8)


@pytest.mark.parametrize("rows", [0, 1, 6, 7, 8, 100])
def test_a_sample_stands_for_all(rows):
    some = sampled_rows.thinned(np.full(rows, 0.25), 7)
    assert some.sum() == pytest.approx(0.25 * rows)
    assert np.count_nonzero(some) == -(-rows // 7)


@pytest.mark.parametrize("size", [1e-30, 1e-20, 1.0, 1e30])
def test_moments_in_single_precision(size):
    A, weights = size * np.random.default_rng(0).standard_normal((50, 7)), np.linspace(-1, 2, 50)
    exact = np.triu(A.T @ (weights[:, None] * A))
    found = np.triu(moments.second_moment(Design(A, False), weights))
    np.testing.assert_allclose(found, exact, rtol=1e-12, atol=1e-12 * size**2)
    found = np.triu(moments.second_moment(Design(A, False), weights, single=True))
    lost = 1e-38 if size == 1e-30 else 0.0  # squares that are 0 in single precision
    np.testing.assert_allclose(found, exact, rtol=0, atol=1e-5 * np.abs(exact).max() + lost)


@pytest.mark.parametrize("name", KINKS)
@pytest.mark.parametrize("penalty", ["l2", "l1", "box"])
def test_certificates_are_put_off_until_the_products_are_small(name, penalty):
    """No round is lost by it, and most certificates are spared."""
    problem = co.Problem(name, penalty, intercept=False, **PENALTIES[penalty])
    often, asked = (
        co.solve(
            problem,
            (X, labels(name)),
            agents=K,
            method="interior-point",
            tol=1e-8,
            check_every=every,
        )
        for every in (1, None)
    )
    assert often.status == asked.status == "optimal"
    assert asked.rounds <= often.rounds
    assert len(asked.history) <= len(often.history) / 2
