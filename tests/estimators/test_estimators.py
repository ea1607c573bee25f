"""Estimators keep scikit-learn's manners, and say what was proven and what it cost."""

from __future__ import annotations

import inspect
import subprocess
import sys

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse as sp
import sklearn
from sklearn.base import ClassifierMixin, clone
from sklearn.compose import make_column_transformer
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import top_k_accuracy_score
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import coterie as co
from coterie.estimators import (
    LinearClassifier,
    LinearRegressor,
    LowRankClassifier,
    LowRankRegressor,
)
from coterie.numerics.losses.huber import Huber
from coterie.numerics.penalties.box import Box

RNG = np.random.default_rng(0)
X = RNG.standard_normal((120, 5))
NAMES = ["age", "height", "weight", "pulse", "income"]
NUMBERS = X @ np.array([1.0, -2.0, 0.0, 0.5, 3.0]) + 4.0 + 0.1 * RNG.standard_normal(120)
CLASSES = np.array(["ant", "bee", "cat"])[
    np.digitize(NUMBERS + RNG.standard_normal(120), [2.0, 6.0])
]
TWO = CLASSES == "bee"
ESTIMATORS = [(LinearRegressor, NUMBERS), (LinearClassifier, CLASSES)]
both = pytest.mark.parametrize(("estimator", "y"), ESTIMATORS)
both_splits = pytest.mark.parametrize("split", ["samples", "features"])

EQUAL_TO_SEVEN_DIGITS = (
    "a first-order method is as exact as tol, and this check wants seven digits of the scores"
)


def expected_failures(estimator):
    by_features = estimator.split == "features" and isinstance(estimator, LinearClassifier)
    if by_features or isinstance(estimator, LowRankClassifier):
        return {
            f"check_sample_weight_equivalence_on_{kind}_data": EQUAL_TO_SEVEN_DIGITS
            for kind in ("dense", "sparse")
        }
    return {}


@pytest.mark.rotates
@parametrize_with_checks([LinearRegressor(), LinearClassifier()])
def test_scikit_learn_approves(estimator, check):
    check(estimator)


@pytest.mark.slow
@pytest.mark.filterwarnings(
    "ignore::sklearn.exceptions.ConvergenceWarning"
)  # of float32 data at a tol of 1e-13
@parametrize_with_checks(
    [
        LinearRegressor("huber", penalty="elasticnet"),
        LinearRegressor(split="features", alpha=1.0, tol=1e-13),
        LinearClassifier("squared_hinge", penalty="l1", tol=1e-12),
        LinearClassifier(split="features"),
        LowRankRegressor(),
        LowRankClassifier(),
    ],
    expected_failed_checks=expected_failures,
)
def test_scikit_learn_approves_of_other_settings(estimator, check):
    check(estimator)


def test_import_does_not_wait_for_scikit_learn():
    code = (
        "import sys, coterie; early = 'sklearn' in sys.modules; coterie.LinearRegressor; assert "
        "not early"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@both
@both_splits
def test_what_was_proven_and_what_it_cost(estimator, y, split):
    fitted = estimator(split=split, agents=4).fit(X, y)
    several = isinstance(fitted.result_, tuple)
    results = fitted.result_ if several else (fitted.result_,)
    assert len(results) == (3 if estimator is LinearClassifier and split == "features" else 1)
    for place, result in enumerate(results):
        assert result.status == "optimal"
        certificate = fitted.certificate_[place] if several else fitted.certificate_
        bill = fitted.bill_[place] if several else fitted.bill_
        labels = np.where(y == fitted.classes_[place], 1, -1) if several else y
        assert co.verify(certificate, result.model, (X, labels)).holds
        assert np.ravel(fitted.dual_gap_)[place] == certificate.gap
        assert np.ravel(fitted.n_iter_)[place] == bill.rounds == result.rounds
        np.testing.assert_array_equal(
            np.atleast_2d(fitted.coef_)[place] if several else fitted.coef_, result.model.coef_
        )
    assert fitted.score(X, y) > 0.8


def test_two_classes_are_one_problem_with_their_own_labels():
    y = np.where(TWO, "yes", "no")
    fitted = LinearClassifier().fit(X, y)
    assert fitted.coef_.shape == (1, 5)
    assert list(fitted.result_.model.classes_) == list(fitted.classes_) == ["no", "yes"]
    np.testing.assert_array_equal(fitted.predict(X), fitted.result_.model.predict(X))
    np.testing.assert_allclose(fitted.predict_proba(X), fitted.result_.model.predict_proba(X))
    assert co.verify(fitted.certificate_, fitted.result_.model, (X, y)).holds


def test_several_classes_are_scikit_learns_one_against_the_rest():
    twin = OneVsRestClassifier(LogisticRegression(C=1 / (0.01 * 120), tol=1e-10)).fit(X, CLASSES)
    fitted = LinearClassifier(alpha=0.01, tol=1e-10, multi_class="one-vs-rest").fit(X, CLASSES)
    np.testing.assert_allclose(fitted.predict_proba(X), twin.predict_proba(X), atol=1e-5)
    np.testing.assert_allclose(
        np.exp(fitted.predict_log_proba(X)), twin.predict_proba(X), atol=1e-5
    )
    np.testing.assert_array_equal(fitted.predict(X), twin.predict(X))


def test_only_the_logistic_loss_has_probabilities():
    fitted = LinearClassifier("hinge").fit(X, TWO)
    assert not hasattr(fitted, "predict_proba")
    assert hasattr(LinearClassifier(), "predict_proba")
    with pytest.raises(AttributeError) as refusal:
        fitted.predict_proba(X)
    assert "use loss='logistic'" in str(refusal.value.__cause__)


@both
@both_splits
def test_weights_are_copies_and_zeros_are_absence(estimator, y, split):
    weights = RNG.integers(0, 3, 120)
    weighted = estimator(split=split, alpha=0.1, tol=1e-9).fit(X, y, sample_weight=weights)
    copied = estimator(split=split, alpha=0.1, tol=1e-9).fit(
        np.repeat(X, weights, axis=0), np.repeat(y, weights)
    )
    np.testing.assert_allclose(weighted.coef_, copied.coef_, atol=1e-4)
    np.testing.assert_allclose(weighted.intercept_, copied.intercept_, atol=1e-3)


@pytest.mark.parametrize("weight", ["balanced", {False: 1.0, True: 5.0}])
def test_class_weights_are_scikit_learns(weight):
    twin = LogisticRegression(class_weight=weight, tol=1e-10)
    fitted = LinearClassifier(class_weight=weight, tol=1e-11)
    of_row = np.ones(120) if weight == "balanced" else np.where(TWO, 5.0, 1.0)
    fitted.set_params(alpha=1 / of_row.sum()).fit(X, TWO)
    np.testing.assert_allclose(fitted.coef_, twin.fit(X, TWO).coef_, atol=1e-4)


@both
@pytest.mark.parametrize("layout", [sp.csr_matrix, sp.csc_array, sp.coo_array, np.asfortranarray])
def test_layouts_agree(estimator, y, layout):
    dense, other = estimator(tol=1e-9).fit(X, y), estimator(tol=1e-9).fit(layout(X), y)
    np.testing.assert_allclose(other.coef_, dense.coef_, atol=1e-5)
    np.testing.assert_allclose(
        other.predict(layout(X[:9])) == dense.predict(X[:9]) if y is CLASSES else 1, 1
    )


@both
@both_splits
@pytest.mark.parametrize("method", ["auto", "first order"])
def test_float32_is_kept(estimator, y, split, method):
    method = method if method == "auto" else {"samples": "proximal-1", "features": "tree"}[split]
    fitted = estimator(split=split, method=method, alpha=0.01, tol=1e-4).fit(
        X.astype(np.float32), y
    )
    assert fitted.coef_.dtype == np.float32
    scores = (
        fitted.predict(X.astype(np.float32))
        if y is NUMBERS
        else fitted.decision_function(X.astype(np.float32))
    )
    # Predicted numbers have the digits of labels, which may be far larger than what columns add to
    # the intercept.
    assert scores.dtype == (np.float64 if y is NUMBERS else np.float32)
    double = estimator(split=split, method=method, alpha=0.01).fit(X, y)
    np.testing.assert_allclose(fitted.coef_, double.coef_, atol=0.05)


@both
@pytest.mark.parametrize(("output", "frame"), [("pandas", pd.DataFrame), ("polars", pl.DataFrame)])
def test_frames_and_pipelines(estimator, y, output, frame):
    data = frame(dict(zip(NAMES, X.T, strict=True)))
    parts = make_column_transformer(
        (StandardScaler(), NAMES[:3]), remainder="passthrough", verbose_feature_names_out=False
    )
    model = make_pipeline(
        parts, estimator(split="features", agents=[NAMES[:2], NAMES[2:]])
    ).set_output(transform=output)
    model.fit(data, y)
    assert list(model[-1].feature_names_in_) == NAMES
    assert model[-1].n_features_in_ == 5
    assert model.score(data, y) > 0.8
    results = model[-1].result_ if isinstance(model[-1].result_, tuple) else (model[-1].result_,)
    assert [[p.columns for p in result.certificate.participants] for result in results] == [
        [2, 3]
    ] * len(results)


@both
def test_grids_copies_and_folds(estimator, y):
    search = GridSearchCV(
        estimator(), {"alpha": [1e-3, 10.0], "split": ["samples", "features"]}, cv=3
    ).fit(X, y)
    assert search.best_params_["alpha"] == 1e-3
    copy = clone(search.best_estimator_)
    assert copy.get_params() == search.best_estimator_.get_params()
    assert not hasattr(copy, "coef_")
    assert cross_val_score(copy, X, y, cv=3).min() > 0.6


@both
@both_splits
def test_a_warm_start_saves_rounds(estimator, y, split):
    method = {"samples": "proximal-1", "features": "tree"}[split]
    fitted = estimator(split=split, method=method, warm_start=True).fit(X, y)
    cold = np.sum(fitted.n_iter_)
    assert np.sum(fitted.fit(X, y).n_iter_) <= cold / 2
    fresh = estimator(split=split, method=method).fit(X[:60], y[:60])
    np.testing.assert_allclose(fitted.fit(X[:60], y[:60]).coef_, fresh.coef_, atol=0.05)
    assert np.sum(estimator(split=split, method=method).fit(X, y).fit(X, y).n_iter_) == cold


@both
def test_a_checkpoint_goes_on(estimator, y, tmp_path):
    settings = {"method": "proximal-2", "checkpoint": tmp_path / "saved"}
    with pytest.warns(ConvergenceWarning, match="Raise max_rounds"):
        estimator(max_rounds=5, **settings).fit(X, y)
    whole, resumed = estimator(method="proximal-2").fit(X, y), estimator(**settings).fit(X, y)
    np.testing.assert_array_equal(resumed.coef_, whole.coef_)
    assert sum(1 for _ in (tmp_path / "saved").rglob("*.npz")) >= (3 if y is CLASSES else 1)


def test_random_state_is_the_seed():
    seeds = [
        LinearRegressor(random_state=state).fit(X, NUMBERS).certificate_.settings["seed"]
        for state in (None, 7, np.int64(8), np.random.RandomState(3))
    ]
    assert seeds == [0, 7, 8, np.random.RandomState(3).randint(2**31 - 1)]


def test_objects_in_place_of_names():
    fitted = LinearRegressor(Huber(threshold=0.5), penalty=Box(lower=0.0, upper=1.0)).fit(
        X, NUMBERS
    )
    named = LinearRegressor("huber", threshold=0.5, penalty=Box(lower=0.0, upper=1.0)).fit(
        X, NUMBERS
    )
    assert fitted.coef_.min() >= 0
    np.testing.assert_array_equal(fitted.coef_, named.coef_)


@pytest.mark.parametrize("loss", ["squared", "huber", "absolute", "quantile"])
def test_the_tolerance_is_not_fooled_by_an_offset(loss):
    """P(0) of y + 1e4 is huge; the best constant is what a model is measured by."""
    settings = {"alpha": 1e-2, "threshold": 1.0, "agents": 3}
    near = LinearRegressor(loss, **settings).fit(X, NUMBERS)
    far = LinearRegressor(loss, **settings).fit(X, NUMBERS + 1e4)
    assert far.dual_gap_ <= 3 * max(1e-6 * np.std(NUMBERS) ** 2, near.dual_gap_)
    np.testing.assert_allclose(far.coef_, near.coef_, atol=2e-2)
    assert far.intercept_ - near.intercept_ == pytest.approx(1e4, abs=0.05)


@pytest.mark.skipif(
    not hasattr(sklearn, "callback") and sklearn.__version__ < "1.9",
    reason="scikit-learn 1.9 has callbacks",
)
@both
def test_scikit_learns_callbacks_hear_every_certificate_and_may_stop(estimator, y):
    class Listener:
        def __init__(self, patience):
            self.received, self.patience = [], patience

        def setup(self, estimator, context): ...
        def teardown(self, estimator, context): ...
        def on_fit_task_begin(self, estimator, context): ...

        def on_fit_task_end(self, estimator, context):
            self.received.append(context.task_name)
            return (
                context.task_name == "certificate"
                and self.received.count("certificate") >= self.patience
            )

    patient, hasty = Listener(10**6), Listener(1)
    fitted = estimator(method="proximal-2").set_callbacks(patient).fit(X, y)
    results = fitted.result_ if isinstance(fitted.result_, tuple) else (fitted.result_,)
    assert patient.received.count("certificate") == sum(len(result.history) for result in results)
    assert patient.received.count("problem") == len(results)
    assert patient.received[-1] == "fit"
    with pytest.warns(ConvergenceWarning, match="Stopped by hand"):
        estimator(method="proximal-2").set_callbacks(hasty).fit(X, y)
    assert hasty.received.count("certificate") <= len(results)


# -- low rank --------------------------------------------------------------------------------------

PATTERNS = RNG.standard_normal((5, 2)) @ RNG.standard_normal((2, 7))
MANY = X @ PATTERNS
WINNERS = np.array(list("abcdefg"))[MANY.argmax(axis=1)]


def test_several_numbers_at_once_have_few_patterns():
    radius = np.linalg.norm(PATTERNS, "nuc")
    fitted = LowRankRegressor(radius=0.9 * radius, agents=3).fit(X, MANY)
    assert fitted.rank_ == len(fitted.singular_values_) == 2
    assert fitted.singular_values_.sum() == pytest.approx(0.9 * radius, rel=1e-6)
    assert fitted.coef_.shape == (7, 5)
    np.testing.assert_allclose(fitted.predict(X), X @ fitted.coef_.T + fitted.intercept_, atol=1e-9)
    shifted = LowRankRegressor(radius=0.9 * radius, agents=3).fit(X + 5.0, MANY + 9.0)
    np.testing.assert_allclose(shifted.predict(X + 5.0), fitted.predict(X) + 9.0, atol=1e-6)
    assert not LowRankRegressor(radius=radius, fit_intercept=False).fit(X, MANY).intercept_.any()
    assert fitted.score(X, MANY) > 0.95
    assert fitted.dual_gap_ == fitted.certificate_.gap <= 1e-6 * fitted.certificate_.primal_at_zero
    assert co.verify(fitted.certificate_, fitted.result_.model, (X, MANY)).holds
    single = LowRankRegressor(radius=radius).fit(X, MANY[:, 0])
    assert single.coef_.shape == (5,)
    np.testing.assert_allclose(single.predict(X), MANY[:, 0], atol=1e-2)


def test_many_classes_by_their_most_probable_ones():
    fitted = LowRankClassifier(radius=20.0, agents=3, tol=1e-3).fit(X, WINNERS)
    assert list(fitted.classes_) == sorted(set(WINNERS))
    shares = fitted.predict_proba(X)
    np.testing.assert_allclose(shares.sum(axis=1), 1.0)
    np.testing.assert_allclose(np.log(shares), fitted.predict_log_proba(X))
    np.testing.assert_array_equal(fitted.classes_[shares.argmax(axis=1)], fitted.predict(X))
    np.testing.assert_array_equal(fitted.predict_top_k(X, 1).ravel(), fitted.predict(X))
    scores = [fitted.top_k_score(X, WINNERS, k) for k in (1, 2, len(fitted.classes_))]
    assert scores[0] == fitted.score(X, WINNERS) > 0.8
    assert scores == sorted(scores)
    assert scores[-1] == 1.0
    twin = top_k_accuracy_score(WINNERS, fitted.decision_function(X), k=2, labels=fitted.classes_)
    assert scores[1] == pytest.approx(twin)
    assert fitted.bill_ is fitted.result_.bill
    with pytest.raises(co.CoterieError, match="between 1 and the"):
        fitted.predict_top_k(X, 99)


@pytest.mark.parametrize(
    ("estimator", "y"), [(LowRankRegressor, MANY), (LowRankClassifier, WINNERS)]
)
def test_low_rank_starts_where_it_was_and_keeps_float32(estimator, y):
    fitted = estimator(warm_start=True).fit(X, y)
    cold = fitted.n_iter_
    assert fitted.fit(X, y).n_iter_ <= max(2, cold // 2)
    assert estimator(tol=1e-3).fit(X.astype(np.float32), y).coef_.dtype == np.float32


@pytest.mark.parametrize(
    "estimator", [LinearClassifier, LinearRegressor, LowRankClassifier, LowRankRegressor]
)
def test_signature_and_docstring_have_every_parameter_once_and_its_own_first(estimator):
    first, *others = inspect.signature(estimator).parameters.values()
    assert first.name in ("loss", "radius")
    assert first.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD
    assert {parameter.kind for parameter in others} == {inspect.Parameter.KEYWORD_ONLY}
    names = [parameter.name for parameter in (first, *others)]
    assert sorted(names) == sorted(estimator().get_params())
    assert names.index("max_rounds") > names.index(
        "class_weight" if issubclass(estimator, ClassifierMixin) else first.name
    )
    told = (
        inspect.getdoc(estimator)
        .partition("Parameters\n----------\n")[2]
        .partition("Attributes\n----------\n")
    )
    listed = [
        name
        for line in told[0].splitlines()
        if line[:1].strip()
        for name in line.partition(" :")[0].split(", ")
    ]
    assert sorted(listed) == sorted(names)
    for fitted in ("coef_", "certificate_", "n_features_in_"):
        assert told[2].count(fitted) == 1


def test_a_parameter_of_a_loss_has_one_default():
    """`LinearRegressor("huber")` and `Problem("huber")` are the same question."""
    for loss, parameter in (("huber", "threshold"), ("quantile", "level")):
        assert getattr(co.LinearRegressor(loss), parameter) == getattr(
            co.Problem(loss).loss, parameter
        )
