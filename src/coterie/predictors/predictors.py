"""What every set of base predictors can do."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from coterie.arrays import FloatArray, Matrix

__all__ = ["Predictors"]


class Predictors(ABC):
    """n functions of a row, h_j: x ↦ a number; positive speaks for the second class."""

    @property
    @abstractmethod
    def count(self) -> int:
        """n, the number of predictors."""

    @abstractmethod
    def values(self, X: Matrix) -> FloatArray:
        """h_j(x_i), one row per row of X and one column per predictor."""

    @abstractmethod
    def settings(self) -> dict[str, Any]:
        """Everything that defines them, as plain values."""
