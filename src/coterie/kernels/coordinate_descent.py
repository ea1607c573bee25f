"""Coordinate descent on a quadratic with a penalty that falls apart into coordinates:

    min over w of  ½ wᵀHw − cᵀw + Σ_j (λ₁_j |w_j| + (λ₂_j / 2) w_j²)      with lower ≤ w ≤ upper

The residual r = c − Hw is kept up to date, so that the best w_j for the others fixed is

    w_j ← clip(soft(r_j + H_jj w_j, λ₁_j) / (H_jj + λ₂_j), lower_j, upper_j).

Between two sweeps over everything, only the coordinates that are free (neither 0 nor at a bound) are visited.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

FREE_SWEEPS = 10
"""Sweeps over the free coordinates between two over everything."""


@numba.njit(nogil=True, cache=True, error_model="numpy", fastmath={"reassoc", "contract"})
def coordinate_descent(
    H: Any, ridge: Any, threshold: Any, lower: Any, upper: Any, w: Any, r: Any, tolerance: float, max_sweeps: int
) -> float:
    """Improve w and r in place until no step of a whole sweep changes the slope by more than the tolerance.

    Returns the largest change of the last whole sweep, in units of the slope.
    """
    d = w.size
    free = np.empty(d, np.int64)
    count, largest = 0, np.inf
    for sweep in range(max_sweeps):
        whole = sweep % (FREE_SWEEPS + 1) == 0
        if whole:
            largest, count = 0.0, 0
        moved = 0.0
        for position in range(d if whole else count):
            j = position if whole else free[position]
            curvature, old = H[j, j] + ridge[j], w[j]
            slope = r[j] + H[j, j] * old
            if slope > threshold[j]:
                slope -= threshold[j]
            elif slope < -threshold[j]:
                slope += threshold[j]
            else:
                slope = 0.0
            new = slope / curvature if curvature > 0.0 else (0.0 if threshold[j] > 0.0 else old)
            new = min(max(new, lower[j]), upper[j])
            change = new - old
            if change != 0.0:
                w[j] = new
                moved = max(moved, abs(change) * curvature)
                for k in range(d):
                    r[k] -= change * H[j, k]
            if whole and ((new != 0.0 or threshold[j] == 0.0) and lower[j] < new < upper[j]):
                free[count] = j
                count += 1
        if whole:
            largest = moved
            if moved <= tolerance:
                break
    return largest
