"""Linear models with any loss and penalty, on data held by several parties. Several classes are
fitted by softmax, or one against the rest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from scipy.special import softmax
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.metrics import accuracy_score, r2_score
from sklearn.utils.metaestimators import available_if

from coterie.errors import InvalidData, InvalidProblem
from coterie.estimators.distributed import Distributed, explained
from coterie.numerics.arrays import FloatArray, Matrix, product
from coterie.numerics.losses import LOSSES, Loss
from coterie.numerics.losses.huber import Huber
from coterie.numerics.losses.quantile import Quantile
from coterie.numerics.penalties import PENALTIES, Penalty
from coterie.problems.problem import Problem
from coterie.stats.scoring import explained_deviance

SOFTMAX = "multinomial"


@explained
@dataclass(eq=False, repr=False, kw_only=True)
class Linear(Distributed):
    """A linear model.

    Parameters
    ----------
    penalty : "l2", "l1", "elasticnet", "nonnegative" or "none"
        Name of the penalty, or a `Penalty`, which has its own parameters.
    alpha : float or list of float
        Strength of the penalty, or that of every column.
    l1_ratio : float
        Share of the l1 part in "elasticnet".
    factors : list of float or dict, optional
        Factors of the strength, for l1, l2 and elasticnet: one per column, or by the names of
        columns, 1 for the others. A column with factor 0 is unpenalised.
    fit_intercept : bool
        Whether the intercept b is fitted. It is never penalised.
    split : "samples" or "features"
        Whether agents hold different rows or different columns.
    """

    loss: str | Loss
    penalty: str | Penalty = "l2"
    alpha: float | Sequence[float] = 1e-3
    l1_ratio: float = 0.5
    factors: Any = None
    fit_intercept: bool = True
    split: str = "samples"
    _loss_kind: ClassVar[str]

    def _problem(self) -> Problem:
        """The problem that the parameters describe. A loss of the other kind raises an error."""
        return self._problem_of(self.loss)

    def _problem_of(self, loss: str | Loss) -> Problem:
        wanted: set[str] = set()
        if isinstance(loss, Loss):
            chosen = type(loss)
        else:
            chosen = LOSSES[loss]
            wanted = {field.name for field in fields(chosen)}
        if chosen.kind != self._loss_kind:
            raise self._refusal(chosen)
        return self._with_parameters(loss, wanted)

    def _refusal(self, chosen: type[Loss]) -> InvalidProblem:
        """The error for a loss of the other kind."""
        fitting = [name for name, entry in LOSSES.items() if entry.kind == self._loss_kind]
        other = "LinearRegressor"
        if self._loss_kind == "regression":
            other = "LinearClassifier"
        return InvalidProblem(
            f"loss={chosen.name!r} is for {chosen.kind}; use {other}, or one of: "
            f"{', '.join(fitting)}."
        )

    def _with_parameters(self, loss: str | Loss, wanted: set[str]) -> Problem:
        """The problem with this loss, and with the parameters that the loss or the penalty has."""
        if isinstance(self.penalty, str):
            wanted |= {field.name for field in fields(PENALTIES[self.penalty])}
        given: dict[str, Any] = {"strength": self.alpha}
        for name in ("l1_ratio", "threshold", "level"):
            given[name] = getattr(self, name, None)
        parameters = {name: value for name, value in given.items() if name in wanted}
        return Problem(
            loss, self.penalty, intercept=self.fit_intercept, factors=self.factors, **parameters
        )


@explained
@dataclass(eq=False, repr=False, kw_only=True)
class LinearRegressor(RegressorMixin, Linear):
    """A certified linear model: min over w, b of (1/n) Σ sᵢ loss(xᵢ·w + b, yᵢ) + alpha ·
    penalty(w).

    `LinearRegressor(penalty="l1", alpha=a)` fits the model of `Lasso(alpha=a)`. With
    `loss="quantile"`, it fits that of `QuantileRegressor(alpha=a)`. `LinearRegressor(alpha=a / n)`
    fits the model of `Ridge(alpha=a)`.

    Parameters
    ----------
    loss : "squared", "huber", "absolute", "quantile", "poisson" or "gamma"
        Name of the loss, or a `Loss`.
    threshold : float
        Residual at which the Huber loss becomes linear, in the unit of y. scikit-learn's `epsilon`
        is a multiple of a scale that it estimates: see docs/estimators.md.
    level : float
        Level of the quantile, between 0 and 1.

    Attributes
    ----------
    coef_, intercept_ : the coefficients and the intercept of the model
    """

    loss: str | Loss = field(default="squared", kw_only=False)
    threshold: float = Huber.threshold
    level: float = Quantile.level
    _loss_kind = "regression"
    _reading: ClassVar[Mapping[str, Any]] = {"y_numeric": True}

    def _take(self, models: Sequence[Any], dtype: Any, one: bool) -> None:
        self.coef_, self.intercept_ = models[0].coef_, models[0].intercept_

    def predict(self, X: Any, offset: Any = None) -> FloatArray:
        """Predict X·coef_ + intercept_ + offset. For "poisson" and "gamma", predict the
        exponential of this score, which is the mean.
        """
        return self._problem().loss.response(self._scores(X, offset))

    def score(self, X: Any, y: Any, sample_weight: Any = None, offset: Any = None) -> float:
        """R² of the predictions. For "poisson" and "gamma", D²: the share of the deviance that the
        predictions explain.
        """
        loss = self._problem().loss
        if not loss.steep:
            return float(r2_score(y, self.predict(X, offset), sample_weight=sample_weight))
        labels = np.asarray(y, float)
        if not np.all(loss.accepts(labels)):
            raise InvalidData(f"the {loss.name} loss is for {loss.labels}; y has other values.")
        weights = np.ones(len(labels))
        if sample_weight is not None:
            weights = np.asarray(sample_weight, float)
        offsets = np.zeros(len(labels))
        if offset is not None:
            offsets = np.broadcast_to(np.asarray(offset, float), labels.shape)
        scores = np.asarray(self._scores(X, offset), float)
        return explained_deviance(loss, scores, labels, weights, offsets)

    def _scores(self, X: Any, offset: Any) -> FloatArray:
        scores = product(self._checked(X), self.coef_) + np.float64(self.intercept_)
        return self._with_offset(scores, offset)


def _has_probabilities(estimator: LinearClassifier) -> bool:
    loss = estimator.loss
    if loss == SOFTMAX:
        return True
    chosen: type[Loss] | None
    if isinstance(loss, Loss):
        chosen = type(loss)
    else:
        chosen = dict(LOSSES).get(loss)
    if chosen is not None and chosen.probability is not Loss.probability:
        return True
    raise AttributeError(
        f"loss={estimator.loss!r} has no probabilities; use loss='logistic', or decision_function."
    )


@explained
@dataclass(eq=False, repr=False, kw_only=True)
class LinearClassifier(ClassifierMixin, Linear):
    """A certified linear classifier: min over w, b of (1/n) Σ sᵢ loss(yᵢ(xᵢ·w + b)) + alpha ·
    penalty(w).

    `LinearClassifier(alpha=1 / (n * C))` fits the model of `LogisticRegression(C=C)`. With
    `loss="hinge"`, it fits a linear SVM.

    For more than two classes, `loss="logistic"` is softmax, `loss="multinomial"`. Other losses,
    other methods and data split by features always fit one class against the rest, which is one
    problem per class. `result_`, `certificate_`, `bill_`, `dual_gap_` and `n_iter_` then have one
    entry per class.

    Parameters
    ----------
    loss : "logistic", "multinomial", "hinge" or "squared_hinge"
        Name of the loss, or a `Loss`.
    multi_class : "auto" or "one-vs-rest"
        Treatment of more than two classes: softmax where possible, or one class against the rest.
    class_weight : dict, "balanced" or None
        Weights of the classes, which multiply the weights of the samples.

    Attributes
    ----------
    classes_ : the labels, sorted
    coef_, intercept_ : the model, one row per class, or one row for two classes
    """

    loss: str | Loss = field(default="logistic", kw_only=False)
    multi_class: str = "auto"
    class_weight: Any = None
    _loss_kind = "classification"

    def _problem(self) -> Problem:
        if self.multi_class not in ("auto", "one-vs-rest"):
            raise InvalidProblem(
                f"multi_class is 'auto' or 'one-vs-rest', not {self.multi_class!r}."
            )
        if self.loss == SOFTMAX:
            return self._with_parameters(SOFTMAX, set())
        return super()._problem()

    def _is_softmax(self) -> bool:
        """Whether one problem fits all classes, given the classes of the labels."""
        if self.loss == SOFTMAX:
            return True
        if self.loss != "logistic" or len(self.classes_) <= 2 or self.multi_class != "auto":
            return False
        return self.split == "samples" and self.method in ("auto", "softmax-newton")

    def _problem_for_classes(self, problem: Problem) -> Problem:
        if self._is_softmax():
            return self._with_parameters(SOFTMAX, set())
        return problem

    def _labels(
        self, X: Matrix, y: npt.NDArray[Any], weights: FloatArray | None
    ) -> tuple[list[npt.NDArray[Any]], FloatArray | None]:
        place, weights = self._classes(y, weights)
        if len(self.classes_) == 2 or self._is_softmax():
            return [y], weights
        return [np.where(place == k, 1, -1) for k in range(len(self.classes_))], weights

    def _take(self, models: Sequence[Any], dtype: Any, one: bool) -> None:
        self.coef_ = np.vstack([model.coef_ for model in models])
        self.intercept_ = np.hstack([model.intercept_ for model in models]).astype(self.coef_.dtype)

    def decision_function(self, X: Any, offset: Any = None) -> FloatArray:
        """The scores. For two classes, one number per row, which is positive for the second class.
        Else one number per row and class.
        """
        scores: FloatArray = product(self._checked(X), self.coef_.T) + self.intercept_
        if offset is not None or self._results[0].model.problem.offset:
            return self._with_offset(scores.ravel(), offset)
        if len(self.classes_) > 2:
            return scores
        if scores.shape[1] == 1:
            return scores.ravel()
        return scores[:, 1] - scores[:, 0]

    def predict(self, X: Any, offset: Any = None) -> npt.NDArray[Any]:
        """The class with the largest score."""
        scores = self.decision_function(X, offset)
        if scores.ndim == 1:
            places = (scores > 0).astype(int)
        else:
            places = scores.argmax(axis=1)
        predicted: npt.NDArray[Any] = self.classes_[places]
        return predicted

    @available_if(_has_probabilities)
    def predict_proba(self, X: Any, offset: Any = None) -> FloatArray:
        """The probabilities of the classes. Those of one class against the rest are scaled so that
        they add up to 1.
        """
        scores = self.decision_function(X, offset)
        if self._is_softmax():
            if scores.ndim == 1:
                scores = np.column_stack([0 * scores, scores])
            return np.asarray(softmax(scores, axis=1))
        probability = self._problem().loss.probability
        positive = probability(scores, 1.0)
        if scores.ndim == 1:
            return np.column_stack([probability(scores, -1.0), positive])
        totals = positive.sum(axis=1, keepdims=True)
        uniform = np.full_like(positive, 1.0 / len(self.classes_))
        shares: FloatArray = np.divide(positive, totals, out=uniform, where=totals > 0)
        return shares

    @available_if(_has_probabilities)
    def predict_log_proba(self, X: Any, offset: Any = None) -> FloatArray:
        """The logarithms of the probabilities."""
        with np.errstate(divide="ignore"):
            logarithms: FloatArray = np.log(self.predict_proba(X, offset))
        return logarithms

    def score(self, X: Any, y: Any, sample_weight: Any = None, offset: Any = None) -> float:
        """The accuracy: the share of rows whose class is predicted correctly."""
        return float(accuracy_score(y, self.predict(X, offset), sample_weight=sample_weight))
