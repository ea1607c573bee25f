"""The same coefficients as scikit-learn's, to 1e-5, for every split: six models on five of the
datasets it ships.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from scipy.optimize import minimize
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits, load_iris, load_wine
from sklearn.linear_model import (
    ElasticNet,
    HuberRegressor,
    Lasso,
    LogisticRegression,
    QuantileRegressor,
    Ridge,
)
from sklearn.linear_model._huber import _huber_loss_and_gradient
from sklearn.multiclass import OneVsRestClassifier
from sklearn.preprocessing import scale
from sklearn.svm import LinearSVC

from coterie.estimators import LinearClassifier, LinearRegressor

AGREEMENT = 1e-5
DATASETS = {
    "diabetes": load_diabetes,
    "breast cancer": load_breast_cancer,
    "wine": load_wine,
    "iris": load_iris,
    "digits": load_digits,
}


@cache
def data(name: str):
    """Standardised columns, a number to predict and a class to predict.

    Where scikit-learn has classes only, the number is a noisy score of them: a median needs labels
    without ties. Columns that are constant or a multiple of another are left out, or l1 would have
    many minima.
    """
    X, y = DATASETS[name](return_X_y=True)
    X, y = X[:600, X[:600].std(axis=0) > 0], y[:600].astype(float)
    X = X[:, np.sort(np.unique(np.abs(scale(X)).round(9), axis=1, return_index=True)[1])]
    number = y if name == "diabetes" else y + np.random.default_rng(0).standard_normal(len(y))
    return scale(X), scale(number), y > np.median(y) if name != "breast cancer" else y > 0


def ridge(X, number, label, **settings):
    n = len(X)
    return Ridge(alpha=0.1 * n, tol=1e-12).fit(X, number), LinearRegressor(
        alpha=0.1, **settings
    ).fit(X, number)


def lasso(X, number, label, **settings):
    twin = Lasso(alpha=0.05, tol=1e-12, max_iter=10**6).fit(X, number)
    return twin, LinearRegressor(penalty="l1", alpha=0.05, **settings).fit(X, number)


def elastic_net(X, number, label, **settings):
    twin = ElasticNet(alpha=0.1, l1_ratio=0.3, tol=1e-12, max_iter=10**6).fit(X, number)
    return twin, LinearRegressor(penalty="elasticnet", alpha=0.1, l1_ratio=0.3, **settings).fit(
        X, number
    )


def logistic(X, number, label, **settings):
    twin = LogisticRegression(C=1 / (0.05 * len(X)), tol=1e-12, solver="newton-cholesky").fit(
        X, label
    )
    return twin, LinearClassifier(alpha=0.05, **settings).fit(X, label)


def huber(X, number, label, **settings):
    """scikit-learn fits the scale σ beside: σ Σ H(r/σ) + α‖w‖² is (2/σ)(Σ huber(r; εσ) +
    (ασ/2)‖w‖²).
    """
    twin = HuberRegressor(epsilon=1.35, alpha=0.1 * len(X), tol=1e-10).fit(X, number)
    # Its solver stops after four digits; its own objective, minimised on from there, has the rest.
    start, constants = (
        np.r_[twin.coef_, twin.intercept_, twin.scale_],
        (X, number, 1.35, twin.alpha, np.ones(len(X))),
    )
    exact = minimize(
        _huber_loss_and_gradient, start, constants, jac=True, method="BFGS", options={"gtol": 1e-9}
    ).x
    np.testing.assert_allclose(exact, start, rtol=0, atol=1e-3)
    twin.coef_, twin.intercept_, twin.scale_ = exact[:-2], exact[-2], exact[-1]
    threshold, alpha = 1.35 * twin.scale_, 0.1 * twin.scale_
    return twin, LinearRegressor("huber", threshold=threshold, alpha=alpha, **settings).fit(
        X, number
    )


def quantile(X, number, label, **settings):
    twin = QuantileRegressor(quantile=0.3, alpha=0.02).fit(X, number)
    return twin, LinearRegressor("quantile", level=0.3, penalty="l1", alpha=0.02, **settings).fit(
        X, number
    )


MODELS = (ridge, lasso, elastic_net, logistic, huber, quantile)


@pytest.mark.rotates
@pytest.mark.parametrize("split", ["samples", "features"])
@pytest.mark.parametrize("name", DATASETS)
@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.__name__)
def test_coefficients_are_scikit_learns(model, name, split):
    tol = 1e-8 if model is quantile else 1e-12
    twin, ours = model(*data(name), split=split, agents=4, tol=tol, max_rounds=100_000)
    np.testing.assert_allclose(np.ravel(ours.coef_), np.ravel(twin.coef_), rtol=0, atol=AGREEMENT)
    np.testing.assert_allclose(
        np.ravel(ours.intercept_), np.ravel(twin.intercept_), rtol=0, atol=AGREEMENT
    )


def test_more_than_two_classes_are_those_of_the_table():
    X, y = load_wine(return_X_y=True)
    X, n, c = scale(X), len(X), 0.5
    alpha, tight = 1 / (n * c), {"tol": 1e-10, "max_iter": 10**5}

    def ours(*loss, **settings):
        return LinearClassifier(
            *loss, **{"alpha": alpha, "agents": 3, "tol": 1e-10} | settings
        ).fit(X, y)

    softmax = LogisticRegression(C=c, **tight).fit(X, y)
    np.testing.assert_allclose(ours().coef_, softmax.coef_, atol=AGREEMENT)
    sparse = LogisticRegression(C=c, l1_ratio=1.0, solver="saga", tol=1e-8, max_iter=10**5).fit(
        X, y
    )
    np.testing.assert_allclose(ours(penalty="l1").coef_, sparse.coef_, atol=AGREEMENT)
    rest = OneVsRestClassifier(LogisticRegression(C=c, **tight)).fit(X, y)
    each = np.vstack([one.coef_ for one in rest.estimators_])
    for split in ("samples", "features"):
        found = ours(split=split, multi_class="one-vs-rest")
        np.testing.assert_allclose(found.coef_, each, atol=AGREEMENT)
        assert len(found.certificate_) == 3
    np.testing.assert_allclose(ours(split="features").coef_, each, atol=AGREEMENT)
    machine = LinearSVC(C=c, intercept_scaling=1000.0, **tight).fit(X, y)
    np.testing.assert_allclose(ours("squared_hinge").coef_, machine.coef_, atol=AGREEMENT)
    few = LogisticRegression(C=np.inf, **tight).fit(X[:, :2], y)
    free = LinearClassifier(penalty="none", agents=3, tol=1e-10).fit(X[:, :2], y).coef_
    np.testing.assert_allclose(np.diff(free, axis=0), np.diff(few.coef_, axis=0), atol=AGREEMENT)
