"""ℓ(u; y) = ½ (u − y)², with ℓ*(v; y) = ½ v² + y v."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from coterie.numerics.arrays import FloatArray, namespace
from coterie.numerics.losses.loss import Loss, Step


@dataclass(frozen=True)
class Squared(Loss):
    """Least squares: ℓ(u; y) = ½ (u − y)²."""

    name: ClassVar[str] = "squared"
    dispersion: ClassVar[bool | None] = True
    kind: ClassVar[str] = "regression"
    quadratic: ClassVar[bool] = True
    moves_with_labels: ClassVar[bool] = True
    tensors: ClassVar[bool] = True

    @property
    def smoothness(self) -> float:
        return 1.0

    @property
    def lipschitz(self) -> float:
        return np.inf

    @property
    def conjugate_curvature(self) -> float:
        return 1.0

    def each(self, u: FloatArray, y: FloatArray) -> FloatArray:
        r = u - y
        return 0.5 * r * r

    def gradient(self, u: FloatArray, y: FloatArray) -> FloatArray:
        return u - y

    def curvature(self, u: FloatArray, y: FloatArray) -> FloatArray:
        ones: FloatArray = namespace(u).ones_like(u)
        return ones

    def conjugate_each(self, v: FloatArray, y: FloatArray) -> FloatArray:
        return v * (0.5 * v + y)

    def fenchel_young_each(self, u: FloatArray, v: FloatArray, y: FloatArray) -> FloatArray:
        r = u - y - v
        return 0.5 * r * r

    def constant(self, mean: float) -> float:
        return mean

    def domain(self, y: FloatArray) -> tuple[FloatArray, FloatArray]:
        return np.full_like(y, -np.inf), np.full_like(y, np.inf)

    def dual_prox(self, u: FloatArray, y: FloatArray, step: Step) -> FloatArray:
        # s v + s y + v − u = 0
        return (u - step * y) / (1.0 + step)

    def prox(self, u: FloatArray, y: FloatArray, step: Step) -> FloatArray:
        return (u + step * y) / (1.0 + step)
