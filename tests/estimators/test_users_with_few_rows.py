"""Users with a few rows, with rows of one class, and with columns in other units are usual input:
models and proofs are finite, and what is refused is refused with an error of Coterie.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.exceptions import ConvergenceWarning

import coterie as co
from coterie.errors import CoterieError, DataWarning

UNITS = (1.0, 1.0, 1.0, 1e-9, 1e-3, 1e3, 1e9)
SHIFTS = (0.0, 0.0, 1.0, 1e6)
BOOSTED = {"count": 4, "alternations": 1, "max_rounds": 20}


@dataclass(frozen=True)
class Users:
    """The rows of all users, and the number of rows of each."""

    sizes: tuple[int, ...]
    X: np.ndarray
    y: np.ndarray
    numbers: np.ndarray

    @property
    def names(self):
        return np.repeat([f"u{k}" for k in range(len(self.sizes))], self.sizes)

    def tables(self, y):
        ends = np.cumsum(self.sizes)[:-1]
        parts = zip(np.split(self.X, ends), np.split(y, ends), strict=True)
        return [co.Table(X, labels, name=f"u{k}") for k, (X, labels) in enumerate(parts)]


@st.composite
def users(draw, least=0):
    """Up to six users with 0 to 3 rows, or a few more; some have one class, some other units."""
    sizes = draw(st.lists(st.sampled_from([0, 1, 2, 3, 3, 7, 12]), min_size=1, max_size=6))
    sizes = tuple(max(size, least) for size in sizes)
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    columns = draw(st.integers(1, 4))
    X = rng.standard_normal((sum(sizes), columns))
    numbers = X.sum(axis=1) + rng.standard_normal(len(X))
    y = (numbers > 0).astype(int)
    start = 0
    for size in sizes:
        rows = slice(start, start + size)
        start += size
        if draw(st.booleans()):
            y[rows] = draw(st.integers(0, 1))
        X[rows, 0] = X[rows, 0] * draw(st.sampled_from(UNITS)) + draw(st.sampled_from(SHIFTS))
    if draw(st.booleans()):
        X[:, -1] = 1.0  # a column that says nothing
    return Users(sizes, X, y, numbers * draw(st.sampled_from(UNITS)))


def finite(model, given):
    """Whether predictions, coefficients and the proof are numbers."""
    arrays = [value for value in vars(model.model_).values() if isinstance(value, np.ndarray)]
    arrays = [value for value in arrays if value.dtype.kind == "f"]
    assert all(np.isfinite(value).all() for value in arrays)
    assert np.isfinite(model.certificate_.gap)
    assert np.isfinite(model.decision_function(given.X, given.names)).all()


def fitted(fit):
    """The result of a fit; None where Coterie refuses. Any other exception fails the test."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.simplefilter("ignore", DataWarning)
        try:
            return fit()
        except CoterieError:
            return None


def check_classifier(given, method):
    estimator = co.PersonalizedClassifier(method=method, **BOOSTED)
    model = fitted(lambda: estimator.fit(given.X, given.y, given.names))
    if model is None:
        assert len(np.unique(given.y)) < 2
        return
    finite(model, given)
    probabilities = model.predict_proba(given.X, given.names)
    assert ((probabilities >= 0) & (probabilities <= 1)).all()
    assert np.isfinite(model.score(given.X, given.y, given.names))


def check_regressor(given, loss):
    model = fitted(lambda: co.PersonalizedRegressor(loss).fit(given.X, given.numbers, given.names))
    assert model is not None
    assert np.isfinite(model.predict(given.X, given.names)).all()
    assert np.isfinite(model.certificate_.gap)


def check_solve(given, loss, method, mu, nu):
    y = given.y * 2.0 - 1.0 if loss in ("logistic", "squared_hinge") else given.numbers
    problem = co.Shared(loss, "l2", 1e-2, mu=mu, nu=nu)
    how = {"few_rows": True} if method == "shared-newton" else {}
    tables = given.tables(y)
    result = fitted(
        lambda: co.solve(problem, tables, split="users", method=method, max_rounds=30, **how)
    )
    if result is None:
        assert not sum(given.sizes) or (
            loss in ("logistic", "squared_hinge") and len(np.unique(y)) < 2
        )
        return
    assert result.error is None
    assert np.isfinite(result.certificate.gap)
    for table in tables:
        assert np.isfinite(result.model.decision_function(table.X, table.name)).all()


QUICK, LONG = 6, 300
PRICES = st.sampled_from([(0.02, 0.05), (np.inf, 0.05), (0.02, np.inf), (1e-8, 1e-8)])


@settings(max_examples=QUICK)
@given(users(least=1), st.sampled_from(["shared", "dada", "local"]))
def test_classifiers_have_numbers(given, method):
    check_classifier(given, method)


@settings(max_examples=QUICK)
@given(users(least=1), st.sampled_from(["squared", "huber"]))
def test_regressors_have_numbers(given, loss):
    check_regressor(given, loss)


@settings(max_examples=QUICK)
@given(
    users(),
    st.sampled_from(["logistic", "squared", "huber"]),
    st.sampled_from(["shared", "shared-newton"]),
    PRICES,
)
def test_models_with_deviations_have_numbers(given, loss, method, prices):
    check_solve(given, loss, method, *prices)


@pytest.mark.slow
@settings(max_examples=LONG)
@given(
    users(least=1), st.sampled_from(["shared", "auto", "dada", "dada-linear", "local", "global"])
)
def test_many_classifiers_have_numbers(given, method):
    check_classifier(given, method)


@pytest.mark.slow
@settings(max_examples=LONG)
@given(users(least=1), st.sampled_from(["squared", "huber"]))
def test_many_regressors_have_numbers(given, loss):
    check_regressor(given, loss)


@pytest.mark.slow
@settings(max_examples=LONG)
@given(
    users(),
    st.sampled_from(["logistic", "squared", "huber", "squared_hinge"]),
    st.sampled_from(["shared", "shared-newton"]),
    PRICES,
)
def test_many_models_with_deviations_have_numbers(given, loss, method, prices):
    check_solve(given, loss, method, *prices)
