"""Coordinate descent on a quadratic of many columns with l1, where the matrix is known in parts:

    min over p of  cᵀp + ½ pᵀ (A + U diag(signs) Uᵀ) p + Σ_j λ_j |w_j + p_j|

A is H on the few columns that have a `place` in H, diagonal on all others, and U has a row per column. The products Hp
and Uᵀp are kept up to date, so that a step costs as many multiplications as U has columns, and H where it counts.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

FREE_SWEEPS = 8
"""Sweeps over the coefficients that are not 0 between two over everything."""
LEAST = 1e-3
"""A curvature is at least this share of A's: rounding in U must not make a step too long."""


@numba.njit(nogil=True, cache=True, error_model="numpy", fastmath={"reassoc", "contract"})
def low_rank_descent(
    H: Any, place: Any, diagonal: Any, U: Any, signs: Any, c: Any, threshold: Any, w: Any, share: float, sweeps: int
) -> Any:
    """p, from 0 on, until no step of a whole sweep gains more than that share of the best one of the first sweep."""
    d, rank, block = w.size, signs.size, H.shape[0]
    p, image, moments = np.zeros(d), np.zeros(block), np.zeros(rank)
    curvature, chosen = np.empty(d), np.arange(d)
    for j in range(d):
        bend = diagonal[j]
        for a in range(rank):
            bend += signs[a] * U[j, a] * U[j, a]
        curvature[j] = max(bend, LEAST * diagonal[j])
    count, whole, first = d, True, 0.0
    for sweep in range(sweeps):
        largest = 0.0
        for position in range(count):
            j = chosen[position]
            if not curvature[j] > 0.0:
                continue
            k = place[j]
            slope = c[j] + (image[k] if k >= 0 else diagonal[j] * p[j])
            for a in range(rank):
                slope += signs[a] * U[j, a] * moments[a]
            old = w[j] + p[j]
            pull, new = curvature[j] * old - slope, 0.0
            if pull > threshold[j]:
                new = (pull - threshold[j]) / curvature[j]
            elif pull < -threshold[j]:
                new = (pull + threshold[j]) / curvature[j]
            change = new - old
            if change != 0.0:
                p[j] += change
                largest = max(largest, change * change * curvature[j])
                for a in range(rank):
                    moments[a] += U[j, a] * change
                if k >= 0:
                    for m in range(block):
                        image[m] += change * H[k, m]
        if sweep == 0:
            first = largest
        if largest <= share * first:
            if whole:
                break
            whole = True
        else:
            whole = sweep % FREE_SWEEPS == FREE_SWEEPS - 1
        count = 0
        for j in range(d):
            if whole or w[j] + p[j] != 0.0:
                chosen[count] = j
                count += 1
    return p
