"""ℓ(u; y) = y e⁻ᵘ + u for amounts y > 0 of mean eᵘ, with ℓ*(v; y) = a log(a/y) − a for a = 1 − v ≥
0.

Both proximal maps come from Wright's ω, the root of ω + log ω = x:

    prox_{sℓ*}(u) = 1 − s ω((1 − u + s log y)/s − log s)
    prox_{sℓ}(u)  = log(s y/ω)                        for ω = ω(s − u + log(s y))
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
class Gamma(LogLink):
    """For positive amounts whose spread grows with their mean eᵘ, such as costs and times:
    ℓ(u; y) = y e⁻ᵘ + u.
    """

    name: ClassVar[str] = "gamma"
    dispersion: ClassVar[bool | None] = True
    labels: ClassVar[str] = "amounts above 0"

    def accepts(self, y: FloatArray) -> Any:
        return y > 0

    def each(self, u: FloatArray, y: FloatArray) -> FloatArray:
        value, beyond = exponential(-u)
        mean = y * value * (1 + beyond)
        result: FloatArray = mean + u
        return result

    def sizes(self, u: FloatArray, y: FloatArray) -> FloatArray:
        value, beyond = exponential(-u)
        result: FloatArray = y * value * (1 + beyond) + np.abs(u)
        return result

    def gradient(self, u: FloatArray, y: FloatArray) -> FloatArray:
        result: FloatArray = 1 - y * exponential(-u)[0]
        return result

    def curvature(self, u: FloatArray, y: FloatArray) -> FloatArray:
        result: FloatArray = y * exponential(-u)[0]
        return result

    def expected_curvature(self, u: FloatArray, y: FloatArray) -> FloatArray:
        return np.ones_like(u)

    def conjugate_each(self, v: FloatArray, y: FloatArray) -> FloatArray:
        a = 1 - v
        log_a = np.log(np.where(a > 0, a, 1))
        values = a * (log_a - np.log(y) - 1)
        return np.where(a >= 0, values, np.inf).astype(a.dtype, copy=False)

    def fenchel_young_each(self, u: FloatArray, v: FloatArray, y: FloatArray) -> FloatArray:
        # kl(a, y e⁻ᵘ)
        result: FloatArray = np.empty(np.broadcast(u, v).shape)
        compute: Any = divergences
        logs = np.log(y.astype(float)) - u
        a = np.asarray(1 - v.astype(float))
        compute(a.ravel(), logs.ravel(), result.reshape(-1))
        return result.astype(u.dtype, copy=False)

    def constant(self, mean: float) -> float:
        return math.log(mean)

    def domain(self, y: FloatArray) -> tuple[FloatArray, FloatArray]:
        return np.full_like(y, -np.inf), np.ones_like(y)

    def dual_prox(self, u: FloatArray, y: FloatArray, step: Step) -> FloatArray:
        a = root(1 - u + step * np.log(y), step)
        log_a = np.log(np.maximum(a, TINY))
        change = step * (log_a - np.log(y))
        error = np.abs(u) + np.abs(change) + step
        exact = more_exact(1 - a, u + change, 1 + a, error)
        result = np.minimum(exact, 1)
        return result.astype(np.result_type(u, y), copy=False)

    def prox(self, u: FloatArray, y: FloatArray, step: Step) -> FloatArray:
        result: FloatArray = -log_root(step - u, step * y)
        return result.astype(np.result_type(u, y), copy=False)


TINY = np.finfo(float).tiny
