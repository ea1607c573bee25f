"""ℓ(u; y) = eᵘ − y u for counts y ≥ 0 of mean eᵘ, with ℓ*(v; y) = a log a − a for a = v + y ≥ 0.

Both proximal maps come from Wright's ω, the root of ω + log ω = x:

    prox_{sℓ*}(u) = s ω((u + y)/s − log s) − y
    prox_{sℓ}(u)  = log(ω/s)                          for ω = ω(u + s y + log s)
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from coterie.numerics.arrays import FloatArray
from coterie.numerics.kernels.entropy import divergences
from coterie.numerics.losses.log_link import LogLink, exponential, log_root, more_exact, root
from coterie.numerics.losses.loss import Step


@dataclass(frozen=True)
class Poisson(LogLink):
    """Counts, or rates with an offset: the mean is eᵘ, ℓ(u; y) = eᵘ − y u."""

    name: ClassVar[str] = "poisson"
    counts: ClassVar[bool] = True
    dispersion: ClassVar[bool | None] = False
    labels: ClassVar[str] = "counts, 0 or more"

    def accepts(self, y: FloatArray) -> Any:
        return y >= 0

    def each(self, u: FloatArray, y: FloatArray) -> FloatArray:
        value, beyond = exponential(u)
        result: FloatArray = value * (1 + beyond) - y * u
        return result

    def sizes(self, u: FloatArray, y: FloatArray) -> FloatArray:
        value, beyond = exponential(u)
        result: FloatArray = value * (1 + beyond) + np.abs(y * u)
        return result

    def gradient(self, u: FloatArray, y: FloatArray) -> FloatArray:
        result: FloatArray = exponential(u)[0] - y
        return result

    def curvature(self, u: FloatArray, y: FloatArray) -> FloatArray:
        return exponential(u)[0]

    def conjugate_each(self, v: FloatArray, y: FloatArray) -> FloatArray:
        a = v + y
        log_a = np.log(np.where(a > 0, a, 1))
        values = a * (log_a - 1)
        return np.where(a >= 0, values, np.inf).astype(a.dtype, copy=False)

    def fenchel_young_each(self, u: FloatArray, v: FloatArray, y: FloatArray) -> FloatArray:
        # kl(a, eᵘ)
        result: FloatArray = np.empty(np.broadcast(u, v).shape)
        compute: Any = divergences
        a = np.asarray(v + y, float)
        logs = np.asarray(u, float)
        compute(a.ravel(), logs.ravel(), result.reshape(-1))
        return result.astype(u.dtype, copy=False)

    def constant(self, mean: float) -> float:
        if mean > 0:
            return math.log(mean)
        return LEAST

    def domain(self, y: FloatArray) -> tuple[FloatArray, FloatArray]:
        return -y, np.full_like(y, np.inf)

    def dual_prox(self, u: FloatArray, y: FloatArray, step: Step) -> FloatArray:
        a = root(u + y, step)
        way = step * np.log(np.maximum(a, TINY))
        error = np.abs(u) + np.abs(way) + step
        exact = more_exact(a - y, u - way, a + y, error)
        result = np.maximum(exact, -y)
        return result.astype(np.result_type(u, y), copy=False)

    def prox(self, u: FloatArray, y: FloatArray, step: Step) -> FloatArray:
        return log_root(u + step * y, step).astype(np.result_type(u, y), copy=False)


TINY = np.finfo(float).tiny
LEAST = -30.0
"""The score of the null model where all counts are 0, in place of −∞."""
