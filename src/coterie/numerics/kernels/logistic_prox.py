"""The root t of  α t + β σ(t) = q,  σ(t) = 1 / (1 + e^{−t}),  for α, β > 0: both proximal maps of
the logistic loss.

Since σ(−t) = 1 − σ(t), q > β/2 is the mirror image of β − q, so that only t ≤ 0 is needed. There
the left side is increasing and convex, and e^t keeps its relative accuracy however small it is.

The start is the root of the equation with e^t in place of σ(t): t = log(ω α/β), where ω + log ω = z
:= log(β/α) + q/α. Its error is at most about log 2, and Newton's method, kept between two points
that enclose the root, needs few steps from there. The error after a Newton step of length d is at
most d²/2 (because σ'' ≤ σ' for t ≤ 0).
"""

from __future__ import annotations

import math

import numba
import numpy as np

from coterie.numerics.arrays import FloatArray
from coterie.numerics.kernels.compiled import compiled

MAX_STEPS = 60
LAST_STEP = 1e-8
NEGLIGIBLE = -800.0
"""e^t is 0 in double precision below this t."""


@compiled
def _start(shift: float, log_ratio: float) -> float:
    z = shift + log_ratio
    if z > 1.0:
        return math.log(z - math.log(z)) - log_ratio
    e = math.exp(z)
    return shift - e / (1.0 + e)


@compiled
def _nonpositive_root(q: float, alpha: float, beta: float) -> float:
    if q < NEGLIGIBLE * alpha:
        return q / alpha
    low = (q - 0.5 * beta) / alpha
    high = min(q / alpha, 0.0)
    start = _start(q / alpha, math.log(beta / alpha))
    t = min(max(start, low), high)
    for _ in range(MAX_STEPS):
        e = math.exp(t)
        sigma = e / (1.0 + e)
        residual = alpha * t + beta * sigma - q
        if residual > 0.0:
            high = t
        else:
            low = t
        step = residual / (alpha + beta * sigma / (1.0 + e))
        t -= step
        if abs(step) <= LAST_STEP:
            break
        if not low <= t <= high:
            t = 0.5 * (low + high)
    return t


@compiled
def scalar_root(q: float, alpha: float, beta: float) -> float:
    """The root t of α t + β σ(t) = q, for other kernels."""
    if q > 0.5 * beta:
        return -_nonpositive_root(beta - q, alpha, beta)
    return _nonpositive_root(q, alpha, beta)


# numba has no types.
@numba.vectorize(cache=True)  # type: ignore[no-untyped-call, untyped-decorator]
def _root(q: float, alpha: float, beta: float) -> float:
    return scalar_root(q, alpha, beta)


def logistic_root(q: FloatArray, alpha: float | FloatArray, beta: float | FloatArray) -> FloatArray:
    """The root t of α t + β σ(t) = q, element by element, in double precision whatever the
    arguments are.
    """
    numbers = (np.asarray(x, np.float64) for x in (q, alpha, beta))
    with np.errstate(over="ignore", under="ignore"):
        root: FloatArray = _root(*numbers)
    return root
