"""Counts and amounts: the means are exponentials of scores, so nothing bounds a slope, and nothing
may overflow.
"""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.linear_model import GammaRegressor, PoissonRegressor

import coterie as co
from coterie.errors import InvalidData, InvalidProblem

TWINS = {"poisson": PoissonRegressor, "gamma": GammaRegressor}
RNG = np.random.default_rng(0)
N, D = 200, 5
X = RNG.standard_normal((N, D)) * np.linspace(0.3, 1.5, D) + 0.5
MEANS = np.exp(X @ np.array([0.5, -0.3, 0.2, 0.4, -0.2]))


def labels(loss: str, size: float = 1.0) -> np.ndarray:
    rng = np.random.default_rng(1)
    return (
        rng.poisson(size * MEANS).astype(float)
        if loss == "poisson"
        else rng.gamma(2.0, size * MEANS / 2)
    )


@pytest.mark.parametrize("storage", [np.asarray, sp.csr_array], ids=["dense", "sparse"])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("loss", TWINS)
def test_scikit_learn_has_the_same_answer(loss, intercept, weighted, storage):
    y, weights = labels(loss), RNG.uniform(0.5, 2.0, N) if weighted else None
    twin = TWINS[loss](alpha=0.01, fit_intercept=intercept, solver="newton-cholesky", tol=1e-10)
    twin.fit(X, y, sample_weight=weights)
    data = (storage(X), y) if weights is None else (storage(X), y, weights)
    result = co.solve(co.Problem(loss, "l2", 0.01, intercept=intercept), data, agents=4, tol=1e-12)
    np.testing.assert_allclose(result.model.coef_, twin.coef_, atol=1e-6)
    assert result.model.intercept_ == pytest.approx(twin.intercept_, abs=1e-6)
    np.testing.assert_allclose(result.model.predict(X), twin.predict(X), rtol=1e-5)
    assert co.verify(result.certificate, result.model, data).holds
    fitted = co.LinearRegressor(loss, alpha=0.01, fit_intercept=intercept, tol=1e-11).fit(
        X, y, weights
    )
    np.testing.assert_allclose(fitted.predict(X), twin.predict(X), rtol=1e-5)
    assert fitted.score(X, y, weights) == pytest.approx(twin.score(X, y, weights), abs=1e-6)


@pytest.mark.parametrize("penalty", ["l1", "elasticnet", "none", "nonnegative"])
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("size", [1e-3, 1e6])
@pytest.mark.parametrize("loss", TWINS)
def test_counts_of_a_million_do_not_overflow(loss, size, intercept, penalty):
    """A first step of Newton's from scores of 0 would lead to e to the power of a million."""
    problem = co.Problem(
        loss, penalty, intercept=intercept, **({"strength": 0.01} if "l" in penalty[:2] else {})
    )
    y = labels(loss, size)
    result = co.solve(problem, (X, y), agents=3, tol=1e-7, max_rounds=60)
    assert result.status.success
    assert co.verify(result.certificate, result.model, (X, y)).holds


def test_no_counts_at_all():
    result = co.solve(co.Problem("poisson", "l2", 0.1, intercept=True), (X, np.zeros(N)), agents=2)
    assert result.status == "optimal"
    assert result.model.predict(X).max() < 1e-6


@pytest.mark.parametrize("loss", TWINS)
def test_columns_apart(loss):
    problem, y = co.Problem(loss, "l2", 0.01, intercept=True), labels(loss, 100.0)
    pooled = co.solve(problem, (X, y), agents=1, tol=1e-12)
    apart = co.solve(problem, (X, y), split="features", agents=3, tol=1e-9, max_rounds=5000)
    assert apart.status == "optimal"
    np.testing.assert_allclose(apart.model.coef_, pooled.model.coef_, atol=1e-3)
    assert apart.certificate.primal - pooled.certificate.primal <= apart.certificate.gap


@pytest.mark.parametrize(
    ("loss", "bad", "words"),
    [("poisson", -1.0, "counts, 0 or more"), ("gamma", 0.0, "amounts above 0")],
)
def test_labels_that_are_none_are_refused_by_party_and_row(loss, bad, words):
    y = labels(loss)
    y[[7, 9]] = bad
    parties = [co.Table(X[:50], labels(loss)[:50], name="ann"), co.Table(X, y, name="bea")]
    with pytest.raises(
        InvalidData, match=rf"bea.*row 7 has the label {bad:g}, and so has 1 more.*{words}"
    ):
        co.solve(co.Problem(loss, "l2", 0.1, intercept=False), parties)


def test_a_method_that_knows_no_such_slope_says_so():
    with pytest.raises(InvalidProblem, match="poisson"):
        co.solve(
            co.Problem("poisson", "l2", 0.1, intercept=False),
            (X, labels("poisson")),
            split="features",
            method="pvrd2",
        )
