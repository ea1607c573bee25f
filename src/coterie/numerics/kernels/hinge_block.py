"""Solve one user's block of `perso-linear`:

    min over ‖θ‖₂ ≤ β of  (s/m) Σ_i max(0, 1 − [Aθ]_i) + (q/2) ‖θ − centre‖²,   θ = (q centre +
                          (s/m) Aᵀu) / (q + ν)

by coordinate ascent in the multipliers 0 ≤ u_i ≤ 1 of its rows. ν is the multiplier of the ball,
and mostly 0.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from coterie.numerics.arrays import FloatArray
from coterie.numerics.kernels.compiled import compiled

EXACT = 1e-9
"""Largest difference between 1 and a margin whose multiplier is free."""
HALVINGS = 60


def mean_hinge(A: FloatArray, theta: FloatArray) -> float:
    """(1/m) Σ_i max(0, 1 − [Aθ]_i), and 0 for a user without rows."""
    if len(A) == 0:
        return 0.0
    return float(np.maximum(0.0, 1.0 - A @ theta).mean())


@compiled
def _ascend(A: Any, centre: Any, s: float, q: float, p: float, u: Any, sweeps: int) -> Any:
    """Improve u in place for p = q + ν. Returns θ."""
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
            margin = 0.0
            square = 0.0
            for j in range(columns):
                margin += A[i, j] * theta[j]
                square += A[i, j] * A[i, j]
            short = 1.0 - margin
            rests_below = u[i] <= 0.0 and short <= 0.0
            rests_above = u[i] >= 1.0 and short >= 0.0
            if rests_below or rests_above:
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


@compiled
def hinge_block(A: Any, centre: Any, s: float, q: float, beta: float, u: Any, sweeps: int) -> Any:
    """The minimiser θ. Starts from the multipliers `u` and improves them in place."""
    theta = _ascend(A, centre, s, q, q, u, sweeps)
    if math.sqrt((theta * theta).sum()) <= beta:
        return theta
    # ‖θ‖ falls as ν grows.
    low = q
    high = 2.0 * q
    while True:
        theta = _ascend(A, centre, s, q, high, u, sweeps)
        if math.sqrt((theta * theta).sum()) <= beta:
            break
        low = high
        high *= 2.0
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
