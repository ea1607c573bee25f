"""ℓ(u; y) = log(1 + e^{−y u}), with ℓ*(v; y) = a log a + (1 − a) log(1 − a) for a = −y v ∈ [0, 1].

Both proximal maps come from one root t of one equation, where σ(t) = 1 / (1 + e^{−t}):

    prox_{sℓ*}(u) = −y σ(t),   s t + σ(t) = −y u
    prox_{sℓ}(u)  = −y t,      t + s σ(t) = −y u

so neither is a difference of large numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from scipy.special import expit

from coterie.numerics.arrays import FloatArray, is_tensor, namespace
from coterie.numerics.kernels.entropy import bernoulli_divergence, negative_entropy
from coterie.numerics.kernels.logistic_prox import logistic_root
from coterie.numerics.losses.loss import Loss, Step


@dataclass(frozen=True)
class Logistic(Loss):
    """Logistic regression: ℓ(u; y) = log(1 + e^{−y u})."""

    name: ClassVar[str] = "logistic"
    dispersion: ClassVar[bool | None] = False
    kind: ClassVar[str] = "classification"
    conjugate_entropy: ClassVar[bool] = True
    tensors: ClassVar[bool] = True

    @property
    def smoothness(self) -> float:
        return 0.25

    @property
    def lipschitz(self) -> float:
        return 1.0

    def each(self, u: FloatArray, y: FloatArray) -> FloatArray:
        return _by_blocks(_losses, u, y)

    def gradient(self, u: FloatArray, y: FloatArray) -> FloatArray:
        return _by_blocks(_gradients, u, y)

    def curvature(self, u: FloatArray, y: FloatArray) -> FloatArray:
        return _by_blocks(_curvatures, u, y)

    def probability(self, u: FloatArray, y: Step) -> FloatArray:
        result: FloatArray = expit(y * u)
        return result

    def conjugate_each(self, v: FloatArray, y: FloatArray) -> FloatArray:
        a: FloatArray = np.asarray(-y * v)
        compute: Any = negative_entropy
        compute(a.ravel(order="K"))
        return a

    def fenchel_young_each(self, u: FloatArray, v: FloatArray, y: FloatArray) -> FloatArray:
        # kl(t, p) + kl(1 − t, 1 − p) for t = −y v and p = σ(−y u)
        margin = np.asarray(y * u)
        t = np.asarray(-y * v)
        result: FloatArray = np.empty_like(margin)
        compute: Any = bernoulli_divergence
        compute(margin.ravel(), t.ravel(), result.reshape(-1))
        return result

    def constant(self, mean: float) -> float:
        if abs(mean) < 1.0:
            return 2.0 * math.atanh(mean)
        return math.copysign(math.inf, mean)

    def domain(self, y: FloatArray) -> tuple[FloatArray, FloatArray]:
        return np.minimum(-y, 0), np.maximum(-y, 0)

    def dual_prox(self, u: FloatArray, y: FloatArray, step: Step) -> FloatArray:
        result: FloatArray = -y * expit(logistic_root(-y * u, step, 1.0))
        return result.astype(np.result_type(u, y, step), copy=False)

    def prox(self, u: FloatArray, y: FloatArray, step: Step) -> FloatArray:
        result: FloatArray = -y * logistic_root(-y * u, 1.0, step)
        return result.astype(np.result_type(u, y, step), copy=False)


BLOCK = 8192
"""Samples of a block, so that intermediate results stay in the cache."""


def _by_blocks(
    formula: Callable[[FloatArray, FloatArray], FloatArray], u: FloatArray, y: FloatArray
) -> FloatArray:
    """Apply the formula to blocks of samples."""
    if is_tensor(u) or u.ndim != 1 or u.size <= BLOCK or u.shape != y.shape:
        return formula(u, y)
    result: FloatArray = np.empty(u.size, np.result_type(u, y))
    for start in range(0, u.size, BLOCK):
        rows = slice(start, start + BLOCK)
        result[rows] = formula(u[rows], y[rows])
    return result


def _losses(u: FloatArray, y: FloatArray) -> FloatArray:
    # log(1 + e^{−m}) = log(1 + e^{−|m|}) − min(m, 0)
    xp = namespace(u)
    margin = y * u
    result: FloatArray = xp.log1p(xp.exp(-xp.abs(margin))) - margin.clip(None, 0)
    return result


def _gradients(u: FloatArray, y: FloatArray) -> FloatArray:
    # −y σ(−y u)
    other = -y
    result: FloatArray = other * _sigmoid(other * u)
    return result


def _curvatures(u: FloatArray, y: FloatArray) -> FloatArray:
    share = _sigmoid(-abs(u))
    return share * (1 - share)


def _sigmoid(t: FloatArray) -> FloatArray:
    result: FloatArray
    if is_tensor(t):
        result = namespace(t).special.expit(t)
    else:
        result = expit(t)
    return result
