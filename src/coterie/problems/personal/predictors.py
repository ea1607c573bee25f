"""Base predictors: the functions h_1, ..., h_n. Every user's classifier is a weighted sum of
them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from coterie.errors import InvalidProblem
from coterie.numerics.arrays import FloatArray, Matrix, is_sparse, whole_number


class Predictors(ABC):
    """n functions h_j that map a row x to a number. A positive number is for the second class."""

    @property
    @abstractmethod
    def count(self) -> int:
        """n, the number of predictors."""

    @abstractmethod
    def values(self, X: Matrix) -> FloatArray:
        """The numbers h_j(x_i), one row per row of X and one column per predictor."""

    @abstractmethod
    def settings(self) -> dict[str, Any]:
        """Everything that defines the predictors, as plain values."""


@dataclass(frozen=True)
class Stumps(Predictors):
    """Stumps: each compares one column with one threshold."""

    columns: tuple[int, ...]
    thresholds: tuple[float, ...]

    def __post_init__(self) -> None:
        if len(self.columns) != len(self.thresholds) or not self.columns:
            raise InvalidProblem(
                f"{len(self.columns)} columns and {len(self.thresholds)} thresholds do not match. "
                "Give one of each."
            )

    @staticmethod
    def spread(
        lower: npt.ArrayLike, upper: npt.ArrayLike, count: int | None = None, constant: bool = False
    ) -> Stumps:
        """Spread `count` stumps (default: 10 per column) evenly over the columns. Within a column,
        thresholds are spread evenly between its lower and its upper end.

        `constant` adds a stump that is 1 for every row, because its threshold is the most negative
        finite number.
        """
        low = np.asarray(lower, float)
        high = np.asarray(upper, float)
        n = Stumps.number(low.size, count)
        of_column = [len(part) for part in np.array_split(np.arange(n), low.size)]
        columns = np.repeat(np.arange(low.size), of_column)
        place = np.concatenate([(np.arange(own) + 1) / (own + 1) for own in of_column])
        thresholds = low[columns] + place * (high - low)[columns]
        used = columns.tolist()
        heights = thresholds.tolist()
        if constant:
            used.append(0)
            heights.append(-float(np.finfo(float).max))
        return Stumps(tuple(used), tuple(heights))

    @staticmethod
    def number(columns: int, count: int | None = None, constant: bool = False) -> int:
        """The number of stumps that `spread` makes for this number of columns."""
        if count is None:
            spread = 10 * columns
        else:
            spread = whole_number("count", count)
        return spread + constant

    @property
    def count(self) -> int:
        """The number of stumps."""
        return len(self.columns)

    def values(self, X: Matrix) -> FloatArray:
        """1 where the column is above the threshold, else −1."""
        columns = np.array(self.columns)
        if is_sparse(X):
            used = X[:, columns].toarray()
        else:
            used = X[:, columns]
        return np.where(used > np.array(self.thresholds), 1.0, -1.0)

    def settings(self) -> dict[str, Any]:
        """The columns and the thresholds."""
        return {
            "name": "stumps",
            "columns": list(self.columns),
            "thresholds": list(self.thresholds),
        }


@dataclass(frozen=True)
class Linear(Predictors):
    """h_j(x) = x_j for each column, and h(x) = 1 for the intercept if `constant` is set."""

    columns: int
    constant: bool = True

    @property
    def count(self) -> int:
        """The number of columns, plus one with an intercept."""
        return self.columns + self.constant

    def values(self, X: Matrix) -> FloatArray:
        """The rows, with a last column of ones if there is an intercept."""
        dense: FloatArray
        if is_sparse(X):
            dense = X.toarray()
        else:
            dense = np.asarray(X, float)
        if self.constant:
            return np.column_stack([dense, np.ones(len(dense))])
        return dense

    def settings(self) -> dict[str, Any]:
        """The number of columns."""
        return {"name": "linear", "columns": self.columns, "constant": self.constant}


@dataclass(frozen=True)
class Given(Predictors):
    """Given predictors: each is a fitted classifier of two classes, or a function of X that returns
    one finite number per row.

    All users share them. They cannot be written to a file, because Coterie never pickles.
    """

    predictors: tuple[Any, ...]

    def __post_init__(self) -> None:
        for predictor in self.predictors:
            classes = getattr(predictor, "classes_", None)
            if classes is None and not callable(predictor):
                raise InvalidProblem(
                    f"{predictor!r} is neither a fitted classifier nor a function. Fit it on "
                    "public rows first."
                )
            if classes is not None and len(classes) != 2:
                raise InvalidProblem(
                    f"{predictor!r} knows {len(classes)} classes; a base predictor knows two."
                )
        if not self.predictors:
            raise InvalidProblem(
                "there are no base predictors. Give at least one, or predictors='stumps'."
            )

    @property
    def count(self) -> int:
        """The number of given predictors."""
        return len(self.predictors)

    def values(self, X: Matrix) -> FloatArray:
        """±1 for a classifier, and the returned number for a function."""
        columns = [_values(predictor, X) for predictor in self.predictors]
        for predictor, column in zip(self.predictors, columns, strict=True):
            if column.shape != (X.shape[0],) or not np.isfinite(column).all():
                raise InvalidProblem(
                    f"{predictor!r} returned shape {column.shape} for {X.shape[0]} rows, or "
                    "values that are not "
                    "finite. It must return one finite number per row."
                )
        return np.column_stack(columns)

    def settings(self) -> dict[str, Any]:
        """The names of the predictors only."""
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
