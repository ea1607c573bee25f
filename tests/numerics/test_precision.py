"""Columns in single precision: labels, times, weights and offsets keep every digit that was given,
and proofs are about them.
"""

from __future__ import annotations

import functools

import numpy as np
import pytest

import coterie as co
from coterie.methods import METHODS
from coterie.numerics.losses import LOSSES
from tests.harness.workers import Workers

RNG = np.random.default_rng(3)
N = 120
X = RNG.standard_normal((N, 3)).astype(np.float32)
SCORES = X.astype(float) @ [1.0, 2.0, -1.0] + 0.1 * RNG.standard_normal(N)
UNIX = SCORES + 1.7e9
"""Seconds since 1970: single precision rounds them to multiples of 128."""
WEIGHTS = RNG.uniform(0.5, 2.0, N)
OFFSETS = RNG.uniform(-1.0, 1.0, N)
LOCATIONS = [loss for loss in LOSSES if LOSSES[loss]().moves_with_labels]


def objective(loss, model, y, weights=None, offset=None, X=X):
    """The objective of a linear model with an l2 penalty of 1e-3, from the data as it was given."""
    scores = X.astype(float) @ model.coef_.astype(float) + (0.0 if offset is None else offset)
    # The intercept is taken off the labels: their difference has more digits than the scores.
    each = LOSSES[loss]().each(scores, y - model.intercept_)
    weights = np.ones(N) if weights is None else weights
    return float(weights @ each / weights.sum() + 5e-4 * np.square(model.coef_.astype(float)).sum())


@pytest.mark.parametrize("loss", LOCATIONS)
@pytest.mark.parametrize("split", ["samples", "features"])
@pytest.mark.parametrize("beside", ["", "weights", "offset"])
def test_a_certificate_is_about_the_labels_that_were_given(loss, split, beside):
    data = (
        X,
        UNIX,
        WEIGHTS if beside == "weights" else None,
        OFFSETS if beside == "offset" else None,
    )
    result = co.solve(co.Problem(loss, "l2", 1e-3, intercept=True), data, split=split, agents=2)
    assert result.status.success
    certificate = result.certificate
    found = objective(loss, result.model, UNIX, *data[2:])
    assert found == pytest.approx(certificate.primal, rel=1e-6)
    # As good as the best model of columns in double precision.
    finest = co.solve(
        co.Problem(loss, "l2", 1e-3, intercept=True), (X.astype(float), *data[1:]), tol=1e-10
    )
    assert found - finest.certificate.primal <= certificate.gap + 1e-9 * certificate.unit
    assert co.verify(certificate, result.model, data).holds


@pytest.mark.parametrize(
    "method",
    ["proximal-2", "consensus", "cocoa", "gram", "lbfgs-rows", "graph-cp", "tree", "blocks"],
)
def test_methods_find_the_model_of_the_labels_that_were_given(method):
    split = METHODS[method].split
    intercept = method != "cocoa"
    y = UNIX if intercept else SCORES
    problem = co.Problem("squared", "l2", 1e-3, intercept=intercept)
    result = co.solve(problem, (X, y, WEIGHTS), split=split, agents=2, method=method)
    assert result.status.success
    assert objective("squared", result.model, y, WEIGHTS) == pytest.approx(
        result.certificate.primal, rel=1e-6
    )


@pytest.mark.parametrize("weights", [None, WEIGHTS], ids=["", "weights"])
def test_a_low_rank_model_fits_the_labels_that_were_given(weights):
    Y = np.column_stack([UNIX, 2 * SCORES])
    data = (X, Y) if weights is None else (X, Y, weights)
    result = co.solve(
        co.Problem("squared", "traceball", radius=5.0, intercept=True), data, agents=2
    )
    scores = X.astype(float) @ np.asarray(result.model.coef_, float)
    each = 0.5 * np.square(scores - (Y - result.model.intercept_)).sum(axis=1)
    s = np.ones(N) if weights is None else weights
    assert float(s @ each / s.sum()) == pytest.approx(result.certificate.primal, rel=1e-6)
    assert co.verify(result.certificate, result.model, data).holds


def test_a_completed_matrix_has_the_values_that_were_given():
    places = np.array([[k % 8, (3 * k) % 7] for k in range(N)], np.float32)
    problem = co.Problem("completion", "traceball", radius=50.0, intercept=True, shape=(8, 7))
    single, double = (
        co.solve(problem, (pairs, UNIX), agents=2) for pairs in (places, places.astype(float))
    )
    assert single.certificate.primal == pytest.approx(double.certificate.primal, rel=1e-4)


def test_times_that_differ_in_the_last_digits_are_different_times():
    # Rounded to single precision, most of them would be one time.
    times = 1.7e9 + RNG.permutation(N)
    labels = co.survival_labels(times, RNG.random(N) < 0.8)
    problem = co.Problem("cox", "l2", 1e-3, intercept=False)
    for weights in ((), (WEIGHTS,)):
        single, double = (
            co.solve(problem, (rows, labels, *weights), agents=1) for rows in (X, X.astype(float))
        )
        np.testing.assert_allclose(single.model.coef_, double.model.coef_, rtol=1e-5, atol=1e-6)
        assert single.certificate.primal == pytest.approx(double.certificate.primal, rel=1e-9)
        assert co.verify(single.certificate, single.model, (X, labels, *weights)).holds


def test_a_common_model_with_deviations_fits_the_labels_that_were_given():
    users = np.arange(N) % 3
    problem = co.Shared("squared", "l2", 1e-3, mu=0.05)
    single, double = (
        co.solve(problem, (rows, UNIX, users), split="users") for rows in (X, X.astype(float))
    )
    assert single.certificate.primal == pytest.approx(double.certificate.primal, rel=1e-6)
    np.testing.assert_allclose(
        single.model.predict(X, users.astype(str)),
        double.model.predict(X.astype(float), users.astype(str)),
        atol=1e-2,
    )


def test_weights_keep_their_digits():
    weights = 1.0 + 1e-9 * np.arange(N)
    result = co.solve(
        co.Problem("squared", "l2", 1e-3, intercept=True), (X, UNIX, weights), agents=2
    )
    held = result.parties.sites
    np.testing.assert_array_equal(np.concatenate([agent.data.weights for agent in held]), weights)
    np.testing.assert_array_equal(np.concatenate([agent.data.y for agent in held]), UNIX)
    assert {agent.data.X.dtype for agent in held} == {np.dtype(np.float32)}


@pytest.mark.parametrize("secure", [False, True])
@pytest.mark.parametrize("engine", ["local", Workers()], ids=["local", "workers"])
def test_every_engine_and_secure_sums_fit_the_labels_that_were_given(engine, secure):
    parts = [(X[rows], UNIX[rows], WEIGHTS[rows]) for rows in np.array_split(np.arange(N), 3)]
    sources = parts if engine == "local" else [functools.partial(tuple, part) for part in parts]
    problem = co.Problem("squared", "l2", 1e-3, intercept=True)
    result = co.solve(problem, sources, engine=engine, secure_sums=secure)
    assert objective("squared", result.model, UNIX, WEIGHTS) == pytest.approx(
        result.certificate.primal, rel=1e-6
    )


def test_estimators_predict_labels_that_were_given():
    linear = co.LinearRegressor(alpha=1e-3).fit(X, UNIX, sample_weight=WEIGHTS)
    assert np.abs(linear.predict(X) - UNIX).max() < 1.0
    assert linear.coef_.dtype == np.float32
    many = co.LowRankRegressor(5.0).fit(X, np.column_stack([UNIX, UNIX]))
    assert np.abs(many.predict(X)[:, 0] - UNIX).max() < 20.0
    model = linear.result_.model
    assert np.abs(model.predict(X) - UNIX).max() < 1.0


def test_labels_that_methods_in_single_precision_cannot_hold_are_refused():
    with pytest.raises(co.CoterieError, match="too large for float32"):
        co.solve(co.Problem("squared", "l2", 1e-3, intercept=True), (X, 1e39 * SCORES))
