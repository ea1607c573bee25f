"""Predictors that somebody has already: fitted scikit-learn classifiers, or functions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from coterie.arrays import FloatArray, Matrix
from coterie.errors import InvalidProblem
from coterie.predictors.predictors import Predictors

__all__ = ["Given"]


@dataclass(frozen=True)
class Given(Predictors):
    """Each is a fitted classifier of two classes, or a function of X that returns one finite number per row.

    They are shared by all users, and cannot be written to a file: Coterie never pickles.
    """

    predictors: tuple[Any, ...]

    def __post_init__(self) -> None:
        for predictor in self.predictors:
            classes = getattr(predictor, "classes_", None)
            if classes is None and not callable(predictor):
                raise InvalidProblem(
                    f"{predictor!r} is neither a fitted classifier nor a function. Fit it on public rows first."
                )
            if classes is not None and len(classes) != 2:
                raise InvalidProblem(f"{predictor!r} knows {len(classes)} classes; a base predictor knows two.")
        if not self.predictors:
            raise InvalidProblem("there are no base predictors. Give at least one, or predictors='stumps'.")

    @property
    def count(self) -> int:
        """How many were given."""
        return len(self.predictors)

    def values(self, X: Matrix) -> FloatArray:
        """±1 of a classifier, whatever a function returns."""
        columns = [_values(predictor, X) for predictor in self.predictors]
        for predictor, column in zip(self.predictors, columns, strict=True):
            if column.shape != (X.shape[0],) or not np.isfinite(column).all():
                raise InvalidProblem(
                    f"{predictor!r} returned shape {column.shape} for {X.shape[0]} rows, or values that are not "
                    "finite. It must return one finite number per row."
                )
        return np.column_stack(columns)

    def settings(self) -> dict[str, Any]:
        """Their names only."""
        return {"name": "given", "predictors": [_name(predictor) for predictor in self.predictors]}


def _values(predictor: Any, X: Matrix) -> FloatArray:
    classes = getattr(predictor, "classes_", None)
    if classes is None:
        function: Callable[[Matrix], Any] = predictor
        return np.asarray(function(X), float)
    if X.shape[0] == 0:
        return np.empty(0)
    return np.where(np.asarray(predictor.predict(X)) == classes[1], 1.0, -1.0)


def _name(predictor: Any) -> str:
    return str(getattr(predictor, "__name__", type(predictor).__name__))
