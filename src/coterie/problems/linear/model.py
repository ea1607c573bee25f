"""Linear models: one number or one of two classes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from coterie.data.check import valid_offset
from coterie.data.preparation.prepared import Prepared
from coterie.data.read import values_of
from coterie.errors import InvalidData
from coterie.numerics.arrays import FloatArray, Matrix, product
from coterie.problems.models.model import Model
from coterie.problems.problem import Problem

MEANINGS = {
    "squared": "change of the mean, in units of the label,",
    "huber": "change of the centre, in units of the label,",
    "absolute": "change of the median, in units of the label,",
    "quantile": "change of the quantile, in units of the label,",
    "logistic": "change of the log odds",
    "poisson": "change of the logarithm of the mean",
    "gamma": "change of the logarithm of the mean",
    "cox": "change of the logarithm of the hazard",
}
"""The meaning of a coefficient, by loss."""
SCORE = "change of the score"
"""The meaning for any other loss."""


@dataclass(frozen=True)
class LinearModel(Model[Problem[Any]]):
    """u = X·coef_ + intercept_; a number for regression, one of two classes for classification.

    A model that was fitted with offsets needs them to predict, and adds one to each score:
    predict(X, offset=...).
    """

    kind: ClassVar[str] = "linear"

    coef_: FloatArray
    intercept_: float
    problem: Problem[Any]
    classes_: npt.NDArray[Any] | None = None
    columns: tuple[str, ...] | None = None
    part: str | None = None
    """The party and the study of this part, where the parties have different columns: "clinic of
    readmission".
    """
    preparation: Prepared | None = None
    run: str | None = None
    """For a part: the digest of its run, which is the same at all parties of that run. Only parts
    of one run add up to a model.
    """

    def of_run(self, run: str) -> Self:
        if self.part is None:
            return self
        return replace(self, run=run)

    def units(self) -> str:
        """The meaning of a coefficient, and the unit of its column."""
        meaning = f"coefficients: {MEANINGS.get(self.problem.loss.name, SCORE)}"
        if self.preparation is None or not self.preparation.scales:
            return f"{meaning} per unit of the column"
        return (
            f"{meaning} per unit of the scaled column in coef_, per unit of the raw column in "
            "tables"
        )

    def in_raw_units(self) -> tuple[FloatArray, float]:
        """Coefficients and constant per unit of the raw columns, where the preparation scaled some
        of them.
        """
        if self.preparation is None or not self.preparation.scales:
            return self.coef_, self.intercept_
        A, offsets = self.preparation.units()
        constant = self.intercept_ + float(self.coef_ @ offsets)
        return self.coef_ @ A, constant

    def decision_function(self, X: Matrix, offset: Any = None) -> FloatArray:
        """The scores X·coef_ + intercept_ + offset. The columns of a frame are found by their
        names.
        """
        X = self._read(X).X
        if X.shape[1] != len(self.coef_):
            raise InvalidData(
                f"the model has {len(self.coef_)} columns, but the data has {X.shape[1]}. Give "
                "the columns of the fit."
            )
        # In double precision: an intercept may be far larger than the products.
        scores = product(X, self.coef_) + np.float64(self.intercept_)
        return self.with_offset(scores, offset)

    def with_offset(self, scores: FloatArray, offset: Any) -> FloatArray:
        """The scores with the offsets added, if the model was fitted with some."""
        if offset is None and self.problem.offset:
            raise InvalidData(
                "the model was fitted with an offset: give that of the new rows, with offset=. "
                "For rows of one unit of exposure it is 0."
            )
        if offset is not None and not self.problem.offset:
            raise InvalidData("the model was fitted without an offset. Leave it out.")
        if offset is None:
            return scores
        if np.ndim(offset) == 0:
            given = np.full(len(scores), offset)
        else:
            given = values_of(offset, "data", "offset")
        shifted: FloatArray = scores + valid_offset(given, "data", len(scores))
        return shifted

    def predict(self, X: Matrix, offset: Any = None) -> npt.NDArray[Any]:
        """Numbers for regression, classes for classification."""
        return self.answers(self.decision_function(X, offset))

    def answers(self, scores: FloatArray) -> npt.NDArray[Any]:
        """The predictions for these scores; for counts and amounts, their means."""
        if self.classes_ is None:
            numbers: npt.NDArray[Any] = self.problem.loss.response(scores)
            return numbers
        positive = (scores > 0).astype(int)
        classes: npt.NDArray[Any] = self.classes_[positive]
        return classes

    def predict_proba(self, X: Matrix, offset: Any = None) -> FloatArray:
        """The probabilities of the two classes, where the loss has them (logistic)."""
        return self.probabilities(self.decision_function(X, offset))

    def probabilities(self, scores: FloatArray) -> FloatArray:
        """The probabilities of the two classes for these scores."""
        loss = self.problem.loss
        negative = loss.probability(scores, -1.0)
        positive = loss.probability(scores, 1.0)
        return np.column_stack([negative, positive])

    def _notes(self) -> dict[str, Any]:
        return {"part": self.part, "run": self.run}

    @classmethod
    def _restored(cls, header: Mapping[str, Any], arrays: Mapping[str, Any]) -> dict[str, Any]:
        found = super()._restored(header, {})
        part = {"part": header.get("part"), "run": header.get("run")}
        return {**found, "coef_": arrays["coef"], "intercept_": float(arrays["intercept"]), **part}
