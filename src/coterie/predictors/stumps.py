"""Decision stumps: h(x) = +1 if x_c > θ, else −1."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from coterie.arrays import FloatArray, Matrix, is_sparse, whole_number
from coterie.errors import InvalidProblem
from coterie.predictors.predictors import Predictors

__all__ = ["Stumps"]


@dataclass(frozen=True)
class Stumps(Predictors):
    """One threshold on one column each."""

    columns: tuple[int, ...]
    thresholds: tuple[float, ...]

    def __post_init__(self) -> None:
        if len(self.columns) != len(self.thresholds) or not self.columns:
            raise InvalidProblem(
                f"{len(self.columns)} columns and {len(self.thresholds)} thresholds do not match. Give one of each."
            )

    @staticmethod
    def spread(lower: npt.ArrayLike, upper: npt.ArrayLike, count: int | None = None) -> Stumps:
        """`count` stumps (10 a column) spread evenly over the columns and, within each, between its two ends."""
        low, high = np.asarray(lower, float), np.asarray(upper, float)
        n = 10 * low.size if count is None else whole_number("count", count)
        of_column = [len(part) for part in np.array_split(np.arange(n), low.size)]
        columns = np.repeat(np.arange(low.size), of_column)
        place = np.concatenate([(np.arange(own) + 1) / (own + 1) for own in of_column])
        thresholds = low[columns] + place * (high - low)[columns]
        return Stumps(tuple(columns.tolist()), tuple(thresholds.tolist()))

    @property
    def count(self) -> int:
        """The number of stumps."""
        return len(self.columns)

    def values(self, X: Matrix) -> FloatArray:
        """±1."""
        columns = np.array(self.columns)
        used = X[:, columns].toarray() if is_sparse(X) else X[:, columns]
        return np.where(used > np.array(self.thresholds), 1.0, -1.0)

    def settings(self) -> dict[str, Any]:
        """Columns and thresholds."""
        return {"name": "stumps", "columns": list(self.columns), "thresholds": list(self.thresholds)}
