"""The common part of absolute, quantile and hinge: ℓ*(v; y) = y v on an interval [a, b] around 0.

    ℓ(u; y) = max(a (u − y), b (u − y))
    prox_{sℓ*}(u) = clip(u − s y, [a, b])
    prox_{sℓ}(u)  = clip(y, [u − s b, u − s a])

For labels −1 and +1 the hinge max(0, 1 − y u) is of this kind: [a, b] = [−1, 0] for y = 1 and [0,
1] for y = −1.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

import numpy as np

from coterie.numerics.arrays import FloatArray
from coterie.numerics.losses.loss import Loss, Step


@dataclass(frozen=True)
class PiecewiseLinear(Loss):
    """ℓ(u; y) = max(a (u − y), b (u − y)): a subclass gives [a, b], and nothing else."""

    @abstractmethod
    def ends(self, y: FloatArray) -> tuple[Step, Step]:
        """Return a and b, for every label or for all of them, in the precision of the labels."""

    def domain(self, y: FloatArray) -> tuple[FloatArray, FloatArray]:
        lower, upper = self.ends(y)
        return np.full(y.shape, lower, y.dtype), np.full(y.shape, upper, y.dtype)

    @property
    def smoothness(self) -> float:
        return np.inf

    @property
    def conjugate_curvature(self) -> float:
        return 0.0

    def each(self, u: FloatArray, y: FloatArray) -> FloatArray:
        r = u - y
        lower, upper = self.ends(y)
        return np.maximum(lower * r, upper * r)

    def gradient(self, u: FloatArray, y: FloatArray) -> FloatArray:
        lower, upper = self.ends(y)
        return upper * (u > y) + lower * (u < y)

    def conjugate_each(self, v: FloatArray, y: FloatArray) -> FloatArray:
        inside = np.clip(v, *self.ends(y))
        return np.where(inside == v, y * inside, np.inf)

    def fenchel_young_each(self, u: FloatArray, v: FloatArray, y: FloatArray) -> FloatArray:
        # |r| times the distance of v from the gradient on that side, r = u − y
        r = u - y
        lower, upper = self.ends(y)
        gradient = np.where(r > 0, upper, lower)
        terms: FloatArray = r * (gradient - v)
        inside = (lower <= v) & (v <= upper)
        if inside.all():
            return terms
        return np.where(inside, terms, np.inf)

    def dual_prox(self, u: FloatArray, y: FloatArray, step: Step) -> FloatArray:
        return np.clip(u - step * y, *self.ends(y))

    def prox(self, u: FloatArray, y: FloatArray, step: Step) -> FloatArray:
        lower, upper = self.ends(y)
        return np.clip(y, u - step * upper, u - step * lower)
