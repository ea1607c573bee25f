"""Automatic runs end with a proof: they do not stall at the optimum, nor far from it."""

from __future__ import annotations

import numpy as np
import pytest

import coterie as co
from coterie.methods.second_order import careful
from coterie.methods.second_order.quadratic import solver
from coterie.run import method_choice
from coterie.run.certificate.bound import Bound
from coterie.run.stopping import limited_by_rounding
from tests.methods.automatic_problems import KINDS, case, solve

STALLED_ONCE = (
    3,
    25,
    45,
    59,
    89,
    149,
    267,
    339,
    399,
    406,
    410,
    420,
    472,
    574,
    580,
    595,
    603,
    610,
    647,
    659,
)
STALLED_ONCE += (682, 721, 750, 811, 864, 881, 895, 920, 995, 50548, 50662, 50917, 51251)
"""Seeds whose runs stalled, of every cause that was found."""
QUICK = (8, 11, 13, 14, 17, 18, 19, 20, 22, 23, 24, 26, 33, 37, 39, 51, 54, 55, 62, 69, 110)
"""Seeds of every loss in every split."""
ALLOWED = 0.005
"""The share of runs that may stall."""
RNG = np.random.default_rng(0)
X = RNG.standard_normal((60, 4))
TWO = (X[:, 0] + RNG.standard_normal(60) > 0).astype(int)


def stalled(seeds, **limits):
    """The problems whose runs end without a proof."""
    found = []
    for seed in seeds:
        one = case(seed)
        result = solve(one, **limits)
        if not result.status.success:
            found.append(
                f"{one}: {result.status}, relative gap {result.certificate.relative_gap:.2g}"
            )
    return found


def test_the_generator_has_every_loss_penalty_and_split():
    found = {case(seed).traits[:3] for seed in range(400)}
    assert {loss for loss, _, _ in found} >= {loss for loss, _ in KINDS}
    for loss in ("squared", "logistic", "hinge", "poisson"):
        for penalty in ("none", "l2", "l1", "elasticnet", "group", "box", "nonnegative"):
            assert {(loss, penalty, split) for split in ("samples", "features")} & found


def test_a_seed_is_one_problem():
    one, other = case(5), case(5)
    assert one.traits == other.traits
    np.testing.assert_array_equal(one.data[0], other.data[0])


@pytest.mark.parametrize("part", range(5))
def test_fifty_automatic_runs_do_not_stall(part):
    assert stalled((STALLED_ONCE + QUICK)[part::5]) == []


@pytest.mark.slow
def test_a_thousand_automatic_runs_hardly_ever_stall():
    found = stalled(range(1000), max_seconds=120)
    assert len(found) <= ALLOWED * 1000, "\n".join(found)


# -- columns far from 0 ----------------------------------------------------------------------------


def far_from_zero(labels, rows=90):
    rng = np.random.default_rng(5)
    table = rng.standard_normal((rows, 6)) * 10.0 ** rng.uniform(-1, 1, 6)
    scores = table @ rng.standard_normal(6)
    y = {
        "classes": np.where(scores > 0, 1.0, -1.0),
        "numbers": 1e4 * (scores + 0.3 * rng.standard_normal(rows)),
    }[labels]
    return table + 3e6 * rng.uniform(0.3, 1.0, 6), y


@pytest.mark.parametrize(
    ("loss", "penalty", "parameters", "split"),
    [
        ("huber", "nonnegative", {"threshold": 1e4}, "samples"),
        ("hinge", "l1", {"strength": 1e-4}, "samples"),
        ("hinge", "l1", {"strength": 1e-4}, "features"),
        ("squared", "group", {"strength": 1e-2, "groups": [0, 0, 0, 1, 1, 1]}, "features"),
        ("logistic", "none", {}, "samples"),
    ],
)
def test_large_means_do_not_keep_the_certificate_open(loss, penalty, parameters, split):
    data = far_from_zero("classes" if loss in ("hinge", "logistic") else "numbers")
    if loss == "logistic":
        data[1][:20] *= -1.0
    agents = [[0, 1, 2], [3, 4, 5]] if split == "features" else 3
    problem = co.Problem(loss, penalty, **parameters)
    result = co.solve(problem, data, split=split, agents=agents, tol=1e-8, progress=False)
    assert result.status.success, result
    assert co.verify(result.certificate, result.model, data).holds


# -- a class that no row has -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("penalty", "strength"), [("l2", 1e-2), ("l1", 1e-2), ("elasticnet", 1e-3), ("none", None)]
)
@pytest.mark.parametrize("classes", [(0, 1, 2), (0, 1, 2, 3, 4)])
def test_an_absent_class_does_not_keep_the_certificate_open(penalty, strength, classes):
    problem = co.Problem("multinomial", penalty, strength, intercept=True, classes=classes)
    result = co.solve(problem, (X, TWO), agents=3, progress=False)
    assert result.status.success
    assert result.rounds < 30
    assert co.verify(result.certificate, result.model, (X, TWO)).holds
    present = co.solve(
        problem.changed(loss=co.Problem("multinomial", classes=(0, 1)).loss),
        (X, TWO),
        progress=False,
    )
    # The others are as if the class was not there.
    assert result.certificate.primal == pytest.approx(present.certificate.primal, abs=1e-5)
    np.testing.assert_allclose(result.model.predict_proba(X)[:, 2:], 0.0, atol=1e-5)


def test_an_absent_class_in_the_middle_and_with_weights():
    y, weights = np.where(TWO == 1, 2, 0), RNG.uniform(0.2, 2.0, len(TWO))
    problem = co.Problem("multinomial", "l2", 1e-2, intercept=True, classes=(0, 1, 2))
    for secure in (False, True):
        result = co.solve(problem, (X, y, weights), agents=3, secure_sums=secure, progress=False)
        assert result.status == "optimal"
        assert co.verify(result.certificate, result.model, (X, y, weights)).holds


# -- tolerances below rounding ---------------------------------------------------------------------


def raw_columns():
    rng = np.random.default_rng(1)
    n = 120
    columns = (
        rng.normal(50, 15, n),
        rng.normal(5e4, 2e4, n),
        rng.normal(1e6, 3e5, n),
        rng.normal(2000, 10, n),
    )
    table = np.column_stack(columns)
    scores = (table[:, 0] - 50) / 15 - (table[:, 1] - 5e4) / 2e4
    return table, scores, rng


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("split", ["samples", "features"])
@pytest.mark.parametrize("loss", ["logistic", "squared", "hinge"])
def test_a_tolerance_below_rounding_ends_at_once_and_says_what_is_reachable(loss, split, intercept):
    table, scores, rng = raw_columns()
    y = scores + rng.standard_normal(len(scores))
    if loss != "squared":
        y = np.where(scores + rng.logistic(size=len(scores)) > 0, 1, -1)
    problem = co.Problem(loss, "none", intercept=intercept)
    result = co.solve(problem, (table, y), split=split, agents=2, tol=1e-12, progress=False)
    assert result.status == "stalled"
    assert result.rounds < 40
    assert result.certificate.relative_gap < 1e-5
    assert "below what rounding allows" in result.warnings[-1]
    assert f"{result.certificate.relative_gap:.2g}" in result.warnings[-1]
    assert result.warnings[-1] in str(result)


def test_rounding_that_still_falls_is_no_reason_to_end():
    bound = Bound.of(1.0, 3e-6, 2e-6)
    assert limited_by_rounding(bound, 1e-6)
    assert not limited_by_rounding(bound, 1e-6, falls=True)
    assert not limited_by_rounding(Bound.of(1.0, 3e-6, 1e-9), 1e-6)
    assert limited_by_rounding(Bound.of(1.0, 1.1e-6, 0.9e-6), 1e-6, falls=True)
    assert not limited_by_rounding(bound, 1e-5)


# -- units that are rounding -----------------------------------------------------------------------


@pytest.mark.parametrize("split", ["samples", "features"])
@pytest.mark.parametrize("label", [1.0, 3.0, 0.1, 7.3, 1e6])
@pytest.mark.parametrize("loss", ["poisson", "gamma"])
def test_one_count_for_all_has_a_unit_that_is_no_rounding(loss, label, split):
    y = np.full(len(X), label)
    result = co.solve(
        co.Problem(loss, "l2", 1e-2, intercept=True), (X, y), split=split, agents=3, progress=False
    )
    assert result.status == "optimal"
    # What a mean loses that is off by a thousandth.
    assert result.certificate.unit == pytest.approx(
        5e-7 * (label if loss == "poisson" else 1.0), rel=1e-2
    )


def test_weights_alone_are_no_unit_where_nobody_else_is_at_risk():
    rng = np.random.default_rng(3)
    weights = rng.uniform(0.1, 3.0, 12)
    data = [(X[i : i + 1], np.ones((1, 2)), weights[i : i + 1]) for i in range(12)]
    result = co.solve(co.Problem("cox", "l2", 1e-2, intercept=False), data, progress=False)
    assert result.status == "optimal"
    assert result.certificate.unit == 1.0


def test_labels_of_a_low_rank_model_may_all_be_one():
    y = np.full((60, 3), 1e6)
    problem = co.Problem("squared", "traceball", radius=1.0, intercept=True)
    result = co.solve(problem, (X, y), agents=2, progress=False)
    assert result.status == "optimal"
    assert result.certificate.unit > 1e-3


# -- careful steps ---------------------------------------------------------------------------------


def test_the_secant_is_that_of_a_parabola_around_the_minimum():
    loss = co.Problem("huber", "none", threshold=0.5, intercept=False).loss
    y, r = np.zeros(5), np.array([-3.0, -0.4, 0.0, 0.5, 10.0])
    secant = careful.secant(loss, r, loss.gradient(r, y), y)
    np.testing.assert_allclose(secant, [0.5 / 3, 1.0, 0.0, 1.0, 0.05])


def test_equations_on_a_plane_are_exact_where_columns_have_large_means():
    rng = np.random.default_rng(0)
    E, c = rng.standard_normal((50, 3)), np.array([1e6, 2e6, -1e6])
    design = np.column_stack([E - E.mean(axis=0), np.ones(50)])
    solve_there = careful._solver(design.T @ design, [np.append(c, -1.0)], 1e-12)
    x = solve_there(np.array([1.0, 2.0, 3.0, 0.0]))
    assert abs(c @ x[:3] - x[3]) <= 1e-9
    left = design.T @ (design @ x) - np.array([1.0, 2.0, 3.0, 0.0])
    # What is left is orthogonal to the plane.
    np.testing.assert_allclose(
        left - left @ np.append(c, -1.0) / (c @ c + 1) * np.append(c, -1.0), 0.0, atol=1e-6
    )
    plain = solver(np.array((E + c).T @ (E + c)), np.zeros(3))[0](np.array([1.0, 2.0, 3.0]))
    assert np.isfinite(plain).all()


# -- faces on which a quadratic is flat ------------------------------------------------------------


def test_a_weak_threshold_leads_down_a_flat_valley():
    rng = np.random.default_rng(4)
    X = (rng.standard_normal((30, 90)) > 0.3).astype(float)
    y = np.round(2e3 + X[:, :5].sum(axis=1) + 0.3 * rng.standard_normal(30))
    problem = co.Problem("squared", "l1", 1e-2, intercept=False)
    result = co.solve(problem, (X, y), agents=3, method="gram", max_rounds=3, progress=False)
    assert result.status == "optimal"
    assert (result.model.coef_ != 0).sum() <= 30


# -- users' deviations where columns have large means ----------------------------------------------


@pytest.mark.parametrize("rows", [8, 40])
@pytest.mark.parametrize("mean", [1e4, 1e6])
@pytest.mark.parametrize("loss", ["squared", "logistic", "poisson"])
def test_users_deviate_from_a_common_model_of_columns_with_large_means(loss, mean, rows):
    rng = np.random.default_rng(5)
    n, d = 4 * rows, 12
    X = rng.standard_normal((n, d))
    scores = X @ rng.standard_normal(d) / np.sqrt(d)
    labels = {
        "squared": scores + rng.standard_normal(n),
        "logistic": np.where(scores > 0, 1.0, -1.0),
    }
    y = labels.get(loss, rng.poisson(np.exp(scores)).astype(float))
    table = X + mean * rng.uniform(0.3, 1.0, d)
    data = table, y, np.arange(n) % 4
    result = co.solve(
        co.Shared(loss, "l2", 1e-2, mu=1e-2), data, split="users", progress=False, max_rounds=100
    )
    assert result.status == "optimal"
    assert result.rounds <= 12
    assert co.verify(result.certificate, result.model, data).holds


# -- several classes where columns have large means ------------------------------------------------


@pytest.mark.parametrize("mean", [1e4, 1e5, pytest.param(1e6, marks=pytest.mark.slow)])
def test_softmax_without_an_intercept_is_proven_where_columns_have_large_means(mean):
    rng = np.random.default_rng(8)
    table = rng.standard_normal((40, 12))
    classes = np.argmax(table[:, :3] + rng.gumbel(size=(40, 3)), axis=1)
    table += mean * rng.uniform(0.3, 1.0, 12)
    problem = co.Problem("multinomial", "l1", 1e-3, intercept=False)
    result = co.solve(problem, (table, classes), agents=2, progress=False)
    assert result.status == "optimal"
    assert co.verify(result.certificate, result.model, (table, classes)).holds


# -- columns in single precision, some of them far from 0 ------------------------------------------


@pytest.mark.parametrize("method", ["auto", "tree", "dynamic-diffusion"])
def test_all_parties_send_one_precision_wherever_their_columns_are(method):
    table = X.astype(np.float32)
    table[:, 2:] += np.float32(1e4)
    problem = co.Problem("squared", "l2", 1e-2)
    result = co.solve(
        problem,
        (table, X[:, 0]),
        split="features",
        agents=2,
        method=method,
        max_rounds=5,
        progress=False,
    )
    assert result.rounds > 0


def test_costs_are_compared_once_for_identical_problems(monkeypatch):
    monkeypatch.setattr(method_choice, "_remembered", {})
    compared, liked = [], method_choice.MethodChoice.liked
    monkeypatch.setattr(
        method_choice.MethodChoice, "liked", lambda self: compared.append(1) or liked(self)
    )
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((60, 3)), rng.standard_normal(60)

    def fit(strength=0.1, rows=60, **run):
        problem = co.Problem("squared", "l2", strength)
        result = co.solve(problem, (X[:rows], y[:rows]), agents=3, progress=False, **run)
        return result.explanation, len(compared)

    first = fit()
    assert first[1] == 1
    assert fit() == first, "another problem that is equal, of the same size"
    others = [
        {"strength": 0.2},
        {"rows": 57},
        {"secure_sums": True},
        {"link": (0.02, 1e8)},
        {"network": "ring"},
        {"acceleration": "none"},
    ]
    for count, other in enumerate(others, start=2):
        assert fit(**other)[1] == count
    assert fit(method="newton")[1] == 7, "nothing is compared for a method with a name"


def test_few_problems_are_remembered(monkeypatch):
    monkeypatch.setattr(method_choice, "_remembered", {})
    monkeypatch.setattr(method_choice, "REMEMBERED", 3)
    X, y = np.eye(4), np.arange(4.0)
    for strength in (0.1, 0.2, 0.3, 0.4):
        co.solve(co.Problem("squared", "l2", strength), (X, y), agents=2, progress=False)
    assert len(method_choice._remembered) == 1
