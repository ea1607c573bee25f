"""Coordinate descent on a quadratic with a separable penalty:

    min over w of  ½ wᵀHw − cᵀw + Σ_j (λ₁_j |w_j| + (λ₂_j / 2) w_j²)      with lower ≤ w ≤ upper

Each step updates the residual r = c − Hw. With the other coordinates fixed, the best w_j is

    w_j ← clip(soft(r_j + H_jj w_j, λ₁_j) / (H_jj + λ₂_j), lower_j, upper_j).

Between two sweeps over all coordinates, the method visits only free ones (neither 0 nor at a
bound).
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

FREE_SWEEPS = 10
"""Number of sweeps over the free coordinates between two sweeps over all."""


@numba.njit(nogil=True, cache=True, error_model="numpy", fastmath={"reassoc", "contract"})
def coordinate_descent(
    H: Any,
    ridge: Any,
    threshold: Any,
    lower: Any,
    upper: Any,
    w: Any,
    r: Any,
    tolerance: float,
    max_sweeps: int,
) -> float:
    """Improve w and r in place until no step of a whole sweep changes the gradient by more than the
    tolerance.

    Returns the largest change of the gradient by one step of the last whole sweep.
    """
    d = w.size
    free = np.empty(d, np.int64)
    count = 0
    largest = np.inf
    for sweep in range(max_sweeps):
        whole = sweep % (FREE_SWEEPS + 1) == 0
        if whole:
            largest = 0.0
            visited = d
            count = 0
        else:
            visited = count
        moved = 0.0
        for position in range(visited):
            if whole:
                j = position
            else:
                j = free[position]
            curvature = H[j, j] + ridge[j]
            old = w[j]
            target = r[j] + H[j, j] * old
            if target > threshold[j]:
                target -= threshold[j]
            elif target < -threshold[j]:
                target += threshold[j]
            else:
                target = 0.0
            if curvature > 0.0:
                new = target / curvature
            elif threshold[j] > 0.0:
                new = 0.0
            else:
                new = old
            new = min(max(new, lower[j]), upper[j])
            change = new - old
            if change != 0.0:
                w[j] = new
                moved = max(moved, abs(change) * curvature)
                for k in range(d):
                    r[k] -= change * H[j, k]
            is_free = (new != 0.0 or threshold[j] == 0.0) and lower[j] < new < upper[j]
            if whole and is_free:
                free[count] = j
                count += 1
        if whole:
            largest = moved
            if moved <= tolerance:
                break
    return largest
