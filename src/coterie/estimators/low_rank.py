"""Models with a coefficient matrix of low rank, on rows held by several parties. They predict one
of many classes, or several numbers per row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from scipy.special import log_softmax, softmax
from sklearn.base import ClassifierMixin, MultiOutputMixin, RegressorMixin

from coterie.data.remote import Rows
from coterie.errors import InvalidProblem
from coterie.estimators.distributed import Distributed, explained
from coterie.numerics.arrays import FloatArray, Matrix, product
from coterie.problems.problem import Problem


@explained
@dataclass(eq=False, repr=False, kw_only=True)
class LowRank(Distributed):
    """A model with a coefficient matrix W of low rank.

    Parameters
    ----------
    radius : float
        Largest trace norm of the coefficients. A small radius gives a low rank.
    fit_intercept : bool
        Whether the intercept b is fitted. It is never penalised. Columns are centred without a
        stored centred copy.

    Attributes
    ----------
    intercept_ : b, one number per target or class
    singular_values_, rank_ : the singular values and the rank of W
    """

    radius: float = field(default=10.0, kw_only=False)
    fit_intercept: bool = True
    split: ClassVar[str] = "samples"
    _task: ClassVar[str]

    def _problem(self) -> Problem:
        return Problem(self._task, "traceball", radius=self.radius, intercept=self.fit_intercept)

    def _take(self, models: Sequence[Any], dtype: Any, one: bool) -> None:
        (model,) = models
        dtype = dtype or model.U.dtype
        self._left, self._right = (model.U * model.s).astype(dtype), model.V.astype(dtype)
        self.singular_values_, self.rank_ = model.s.astype(dtype), model.rank_
        self.coef_ = self._right @ self._left.T
        self.intercept_: Any = (
            np.zeros(len(model.V), dtype) if model.b is None else model.b.astype(float)
        )

    def _scores(self, X: Any) -> FloatArray:
        products = product(self._checked(X), self._left) @ self._right.T
        scores: FloatArray = products + np.atleast_1d(self.intercept_)
        return scores


@explained
@dataclass(eq=False, repr=False, kw_only=True)
class LowRankRegressor(MultiOutputMixin, RegressorMixin, LowRank):
    """A certified multi-task model: min of (1/n) Σ sᵢ ½‖xᵢW + b − yᵢ‖² over all W of trace norm at
    most `radius`.

    Data is split by samples.

    Attributes
    ----------
    coef_ : Wᵀ, one row per target, or a vector if y is a vector
    """

    _task = "squared"
    _reading: ClassVar[Mapping[str, Any]] = {"multi_output": True, "y_numeric": True}

    def _of_rows(self, rows: Rows) -> Rows:
        if isinstance(rows.target, str):
            return replace(rows, target=[rows.target])
        return replace(rows, target=list(rows.target))

    def _labels(
        self, X: Matrix, y: npt.NDArray[Any], weights: FloatArray | None
    ) -> tuple[list[npt.NDArray[Any]], FloatArray | None]:
        if y.ndim == 1:
            y = y.reshape(-1, 1)
        return super()._labels(X, y, weights)

    def _take(self, models: Sequence[Any], dtype: Any, one: bool) -> None:
        super()._take(models, dtype, one)
        if one and len(self.coef_) == 1:
            self.coef_ = self.coef_.ravel()
            self.intercept_ = self.intercept_[0]

    def predict(self, X: Any) -> FloatArray:
        """Predict one number per row, or one number per row and target."""
        scores = self._scores(X)
        if self.coef_.ndim == 2:
            return scores
        return scores.ravel()


@explained
@dataclass(eq=False, repr=False, kw_only=True)
class LowRankClassifier(ClassifierMixin, LowRank):
    """A certified multinomial model: least mean of −log softmax(xᵢW + b)[yᵢ] over all W of trace
    norm at most `radius`.

    Data is split by samples.

    Parameters
    ----------
    class_weight : dict, "balanced" or None
        Weights of the classes, which multiply the weights of the samples.

    Attributes
    ----------
    classes_ : the labels, sorted
    coef_ : Wᵀ, one row per class
    """

    class_weight: Any = None
    tol: float = 1e-4
    _task = "multinomial"

    def _labels(
        self, X: Matrix, y: npt.NDArray[Any], weights: FloatArray | None
    ) -> tuple[list[npt.NDArray[Any]], FloatArray | None]:
        return [y], self._classes(y, weights)[1]

    def decision_function(self, X: Any) -> FloatArray:
        """One score per row and class. For two classes, one number per row: the score of the second
        class minus that of the first.
        """
        scores = self._scores(X)
        if len(self.classes_) == 2:
            return scores[:, 1] - scores[:, 0]
        return scores

    def predict(self, X: Any) -> npt.NDArray[Any]:
        """The most probable class."""
        scores = self._scores(X)
        predicted: npt.NDArray[Any] = self.classes_[scores.argmax(axis=1)]
        return predicted

    def predict_proba(self, X: Any) -> FloatArray:
        """The probability of every class."""
        probabilities: FloatArray = softmax(self._scores(X), axis=1)
        return probabilities

    def predict_log_proba(self, X: Any) -> FloatArray:
        """The logarithms of the probabilities."""
        logarithms: FloatArray = log_softmax(self._scores(X), axis=1)
        return logarithms

    def predict_top_k(self, X: Any, k: int = 5) -> npt.NDArray[Any]:
        """The k most probable classes of every row, the most probable first."""
        scores = self._scores(X)
        if not 1 <= k <= len(self.classes_):
            raise InvalidProblem(
                f"k must be between 1 and the {len(self.classes_)} classes, not {k!r}."
            )
        best = np.argsort(-scores, axis=1, kind="stable")[:, :k]
        predicted: npt.NDArray[Any] = self.classes_[best]
        return predicted

    def top_k_score(self, X: Any, y: Any, k: int = 5, sample_weight: Any = None) -> float:
        """The share of rows whose class is among their k most probable classes."""
        found = (self.predict_top_k(X, k) == np.asarray(y)[:, None]).any(axis=1)
        return float(np.average(found, weights=sample_weight))
