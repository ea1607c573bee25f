"""Linear models of several classes: one row of coefficients per class, and probabilities."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from scipy.special import softmax

from coterie.data.preparation.prepared import Prepared
from coterie.errors import InvalidData
from coterie.numerics.arrays import FloatArray, Matrix, product
from coterie.problems.models.model import Model
from coterie.problems.multiclass.loss import Softmax
from coterie.problems.problem import Problem


@dataclass(frozen=True)
class MulticlassModel(Model[Problem[Softmax]]):
    """Scores X·coef_ᵀ + intercept_, one per class; their softmax is the probabilities."""

    kind: ClassVar[str] = "multiclass"
    one_score: ClassVar[bool] = False

    coef_: FloatArray
    """A row per class, a column per column of the data."""
    intercept_: FloatArray
    problem: Problem[Softmax]
    classes_: npt.NDArray[Any]
    columns: tuple[str, ...] | None = None
    preparation: Prepared | None = None

    def units(self) -> str:
        """The meaning of a coefficient, and the unit of its column."""
        column = "column"
        if self.preparation is not None and self.preparation.scales:
            column = "scaled column"
        return f"coefficients: change of the score of a class per unit of the {column}"

    def decision_function(self, X: Matrix) -> FloatArray:
        """One score per class for every row. The columns of a frame are found by their names."""
        X = self._read(X).X
        if X.shape[1] != self.coef_.shape[1]:
            raise InvalidData(
                f"the model has {self.coef_.shape[1]} columns, but the data has {X.shape[1]}. "
                "Give the columns of the fit."
            )
        scores: FloatArray = product(X, self.coef_.T) + self.intercept_
        return scores

    def predict(self, X: Matrix) -> npt.NDArray[Any]:
        """The most probable class of every row."""
        best = np.argmax(self.decision_function(X), axis=1)
        classes: npt.NDArray[Any] = self.classes_[best]
        return classes

    def predict_proba(self, X: Matrix) -> FloatArray:
        """The probability of every class, in the order of `classes_`."""
        probabilities: FloatArray = softmax(self.decision_function(X), axis=1)
        return probabilities

    @classmethod
    def _restored(cls, header: Any, arrays: Any) -> dict[str, Any]:
        found = super()._restored(header, {})
        return {**found, "coef_": arrays["coef"], "intercept_": arrays["intercept"]}
