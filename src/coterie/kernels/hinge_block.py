"""One user's own part of `perso-linear`, exactly:

    min over ‖θ‖₂ ≤ β of  (s/m) Σ_i max(0, 1 − [Aθ]_i) + (q/2) ‖θ − centre‖²,   θ = (q centre + (s/m) Aᵀu) / (q + ν)

by coordinate ascent in its multipliers 0 ≤ u_i ≤ 1. ν is that of the ball, and mostly 0.
"""

from __future__ import annotations

import math
from typing import Any

import numba
import numpy as np

from coterie.arrays import FloatArray

EXACT = 1e-9
"""By how much a margin may miss 1 where its multiplier is free."""
HALVINGS = 60


def mean_hinge(A: FloatArray, theta: FloatArray) -> float:
    """(1/m) Σ_i max(0, 1 − [Aθ]_i), and 0 for a user without rows."""
    return float(np.maximum(0.0, 1.0 - A @ theta).mean()) if len(A) else 0.0


@numba.njit(nogil=True, cache=True, error_model="numpy")
def _ascend(A: Any, centre: Any, s: float, q: float, p: float, u: Any, sweeps: int) -> Any:
    """θ at p = q + ν, and u in place."""
    rows, columns = A.shape
    theta = np.empty(columns)
    share = s / max(rows, 1)
    for j in range(columns):
        theta[j] = q * centre[j]
    for i in range(rows):
        for j in range(columns):
            theta[j] += share * u[i] * A[i, j]
    for j in range(columns):
        theta[j] /= p
    if share == 0.0:
        return theta
    for _ in range(sweeps):
        worst = 0.0
        for i in range(rows):
            margin, square = 0.0, 0.0
            for j in range(columns):
                margin += A[i, j] * theta[j]
                square += A[i, j] * A[i, j]
            short = 1.0 - margin
            if (u[i] <= 0.0 and short <= 0.0) or (u[i] >= 1.0 and short >= 0.0):
                continue
            if square == 0.0:
                u[i] = 1.0
                continue
            now = min(max(u[i] + short * p / (share * square), 0.0), 1.0)
            change = share * (now - u[i]) / p
            u[i] = now
            worst = max(worst, abs(short))
            for j in range(columns):
                theta[j] += change * A[i, j]
        if worst <= EXACT:
            break
    return theta


@numba.njit(nogil=True, cache=True, error_model="numpy")
def hinge_block(A: Any, centre: Any, s: float, q: float, beta: float, u: Any, sweeps: int) -> Any:
    """The minimiser, from multipliers `u` that are as good as known; they are changed in place."""
    theta = _ascend(A, centre, s, q, q, u, sweeps)
    if math.sqrt((theta * theta).sum()) <= beta:
        return theta
    # ‖θ‖ falls as ν grows.
    low, high = q, 2.0 * q
    while True:
        theta = _ascend(A, centre, s, q, high, u, sweeps)
        if math.sqrt((theta * theta).sum()) <= beta:
            break
        low, high = high, 2.0 * high
    for _ in range(HALVINGS):
        middle = 0.5 * (low + high)
        theta = _ascend(A, centre, s, q, middle, u, sweeps)
        if math.sqrt((theta * theta).sum()) <= beta:
            high = middle
        else:
            low = middle
        if high - low <= 1e-15 * high:
            break
    return _ascend(A, centre, s, q, high, u, sweeps) * (1.0 - 1e-15)
