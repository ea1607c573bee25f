"""The columns themselves and a constant: their weighted sums are the linear classifiers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from coterie.arrays import FloatArray, Matrix, is_sparse
from coterie.predictors.predictors import Predictors

__all__ = ["Linear"]


@dataclass(frozen=True)
class Linear(Predictors):
    """h_j(x) = x_j for each column, and h(x) = 1 for the intercept."""

    columns: int

    @property
    def count(self) -> int:
        """One more than there are columns."""
        return self.columns + 1

    def values(self, X: Matrix) -> FloatArray:
        """The rows with a one behind."""
        dense = X.toarray() if is_sparse(X) else np.asarray(X, float)
        return np.column_stack([dense, np.ones(len(dense))])

    def settings(self) -> dict[str, Any]:
        """The number of columns."""
        return {"name": "linear", "columns": self.columns}
