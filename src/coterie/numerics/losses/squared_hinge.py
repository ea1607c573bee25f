"""ℓ(u; y) = max(0, 1 − y u)², with ℓ*(v; y) = y v + v²/4 on y v ≤ 0."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from coterie.numerics.arrays import FloatArray, namespace
from coterie.numerics.losses.loss import Loss, Step


@dataclass(frozen=True)
class SquaredHinge(Loss):
    """The smooth relative of the hinge: ℓ(u; y) = max(0, 1 − y u)²."""

    name: ClassVar[str] = "squared_hinge"
    kind: ClassVar[str] = "classification"
    tensors: ClassVar[bool] = True

    @property
    def smoothness(self) -> float:
        return 2.0

    @property
    def lipschitz(self) -> float:
        return np.inf

    @property
    def conjugate_curvature(self) -> float:
        return 0.5

    def each(self, u: FloatArray, y: FloatArray) -> FloatArray:
        margin: FloatArray = (1 - y * u).clip(0, None)
        return margin**2

    def gradient(self, u: FloatArray, y: FloatArray) -> FloatArray:
        gradients: FloatArray = -2 * y * (1 - y * u).clip(0, None)
        return gradients

    def curvature(self, u: FloatArray, y: FloatArray) -> FloatArray:
        curvature: FloatArray = 2.0 * (namespace(u).ones_like(u) * (y * u < 1))
        return curvature

    def conjugate_each(self, v: FloatArray, y: FloatArray) -> FloatArray:
        inside = np.clip(v, *self.domain(y))
        return np.where(inside == v, inside * (y + inside / 4), np.inf)

    def fenchel_young_each(self, u: FloatArray, v: FloatArray, y: FloatArray) -> FloatArray:
        # (m₊ − t/2)² + t m₋ for a margin m = 1 − y u and t = −y v ≥ 0
        margin = 1 - y * u
        t = -y * v
        positive = np.maximum(margin, 0)
        negative = np.maximum(-margin, 0)
        terms = (positive - t / 2) ** 2 + t * negative
        return np.where(t >= 0, terms, np.inf)

    def constant(self, mean: float) -> float:
        return mean

    def domain(self, y: FloatArray) -> tuple[FloatArray, FloatArray]:
        zero = np.zeros_like(y)
        infinite = np.full_like(y, np.inf)
        return np.where(y > 0, -infinite, zero), np.where(y > 0, zero, infinite)

    def dual_prox(self, u: FloatArray, y: FloatArray, step: Step) -> FloatArray:
        # s (y + v/2) + v − u = 0, where the solution has y v ≤ 0
        return np.clip((u - step * y) / (1 + step / 2), *self.domain(y))

    def prox(self, u: FloatArray, y: FloatArray, step: Step) -> FloatArray:
        # 2 s (m⁺ − 1) + m⁺ − m = 0 for a margin m = y u below 1; a margin above 1 stays
        margin = y * u
        return y * np.maximum(margin, (margin + 2 * step) / (1 + 2 * step))
