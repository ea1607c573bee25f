"""ℓ(u; y) = max(0, 1 − y u), with ℓ*(v; y) = y v on y v ∈ [−1, 0]."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from coterie.numerics.arrays import FloatArray
from coterie.numerics.losses.piecewise_linear import PiecewiseLinear


@dataclass(frozen=True)
class Hinge(PiecewiseLinear):
    """The loss of the support vector machine: ℓ(u; y) = max(0, 1 − y u)."""

    name: ClassVar[str] = "hinge"
    kind: ClassVar[str] = "classification"

    @property
    def lipschitz(self) -> float:
        return 1.0

    def each(self, u: FloatArray, y: FloatArray) -> FloatArray:
        return np.maximum(1 - y * u, 0)

    def gradient(self, u: FloatArray, y: FloatArray) -> FloatArray:
        result: FloatArray = -y * (y * u < 1)
        return result

    def constant(self, mean: float) -> float:
        if mean > 0:
            return 1.0
        return -1.0

    def ends(self, y: FloatArray) -> tuple[FloatArray, FloatArray]:
        return np.minimum(-y, 0), np.maximum(-y, 0)
