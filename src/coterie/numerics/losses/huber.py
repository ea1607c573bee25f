"""ℓ(u; y) = ½ r² for |r| ≤ h and h |r| − ½ h² beyond, r = u − y, h = threshold; ℓ*(v; y) = ½ v² + y
v on |v| ≤ h.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from coterie.errors import InvalidProblem
from coterie.numerics.arrays import FloatArray, as_number, namespace, precision_of
from coterie.numerics.losses.loss import Loss, Step, towards_zero


@dataclass(frozen=True)
class Huber(Loss):
    """Least squares with a limited influence of outliers: quadratic up to a residual of
    `threshold`, linear beyond.
    """

    name: ClassVar[str] = "huber"
    kind: ClassVar[str] = "regression"
    moves_with_labels: ClassVar[bool] = True
    tensors: ClassVar[bool] = True
    threshold: float = 1.35
    """The residual from which on the loss is linear, in the unit of the labels."""

    def __post_init__(self) -> None:
        if not 0 < as_number(self.threshold) < math.inf:
            raise InvalidProblem(
                f"the huber threshold must be a positive number, not {self.threshold!r}; "
                "for no threshold use 'squared', for one of 0 use 'absolute'."
            )
        object.__setattr__(self, "threshold", float(self.threshold))

    @property
    def smoothness(self) -> float:
        return 1.0

    @property
    def lipschitz(self) -> float:
        return self.threshold

    @property
    def conjugate_curvature(self) -> float:
        return 1.0

    def each(self, u: FloatArray, y: FloatArray) -> FloatArray:
        r = u - y
        gradient = self._clipped(r, y)
        return gradient * (r - gradient / 2)

    def gradient(self, u: FloatArray, y: FloatArray) -> FloatArray:
        return self._clipped(u - y, y)

    def curvature(self, u: FloatArray, y: FloatArray) -> FloatArray:
        curvature: FloatArray = namespace(u).ones_like(u) * (abs(u - y) <= self.threshold)
        return curvature

    def conjugate_each(self, v: FloatArray, y: FloatArray) -> FloatArray:
        inside = self._clipped(v, y)
        return np.where(inside == v, inside * (inside / 2 + y), np.inf)

    def fenchel_young_each(self, u: FloatArray, v: FloatArray, y: FloatArray) -> FloatArray:
        # ½ (c − v)² + (r − c)(c − v) for r = u − y and c its nearest point in [−h, h]
        r = u - y
        c = self._clipped(r, y)
        distance = c - v
        values = distance * (0.5 * distance + (r - c))
        return np.where(self._clipped(v, y) == v, values, np.inf)

    def _clipped(self, r: FloatArray, y: FloatArray) -> FloatArray:
        bound = towards_zero(self.threshold, precision_of(y))
        clipped: FloatArray = namespace(r).clip(r, -bound, bound)
        return clipped

    def domain(self, y: FloatArray) -> tuple[FloatArray, FloatArray]:
        bound = towards_zero(self.threshold, y.dtype)
        return np.full_like(y, -bound), np.full_like(y, bound)

    def dual_prox(self, u: FloatArray, y: FloatArray, step: Step) -> FloatArray:
        return np.clip((u - step * y) / (1 + step), *self.domain(y))

    def prox(self, u: FloatArray, y: FloatArray, step: Step) -> FloatArray:
        # s (x − y) + x − u = 0 where |x − y| ≤ h there; beyond, u moves by s h
        gradient = (u - y) / (1 + step)
        inside = np.clip(gradient, *self.domain(y))
        return np.where(inside == gradient, (u + step * y) / (1 + step), u - step * inside)
