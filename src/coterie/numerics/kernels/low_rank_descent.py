"""Coordinate descent on a quadratic of many columns with l1, where the matrix is the sum of two
parts:

    min over p of  cᵀp + ½ pᵀ (A + U diag(signs) Uᵀ) p + Σ_j λ_j |w_j + p_j|

A is H on the few columns that have a `place` in H, and diagonal on all others. U has a row per
column. Each step updates the products Hp and Uᵀp. It costs as many multiplications as U has
columns, and, for a column of H, as H has rows.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

FREE_SWEEPS = 8
"""Number of sweeps over the nonzero coefficients between two sweeps over all."""
LEAST = 1e-3
"""Least curvature, as a share of A's: rounding in U must not make a step too long."""


@numba.njit(nogil=True, cache=True, error_model="numpy", fastmath={"reassoc", "contract"})
def low_rank_descent(
    H: Any,
    place: Any,
    diagonal: Any,
    U: Any,
    signs: Any,
    c: Any,
    threshold: Any,
    w: Any,
    share: float,
    sweeps: int,
) -> Any:
    """The minimiser p.

    Starts at 0 and ends when no step of a whole sweep gains more than `share` of the first sweep's
    best.
    """
    d, rank, block = w.size, signs.size, H.shape[0]
    p = np.zeros(d)
    block_product = np.zeros(block)
    moments = np.zeros(rank)
    curvature = np.empty(d)
    chosen = np.arange(d)
    for j in range(d):
        second = diagonal[j]
        for a in range(rank):
            second += signs[a] * U[j, a] * U[j, a]
        curvature[j] = max(second, LEAST * diagonal[j])
    count = d
    whole = True
    first = 0.0
    for sweep in range(sweeps):
        largest = 0.0
        for position in range(count):
            j = chosen[position]
            if not curvature[j] > 0.0:
                continue
            k = place[j]
            if k >= 0:
                product = block_product[k]
            else:
                product = diagonal[j] * p[j]
            gradient = c[j] + product
            for a in range(rank):
                gradient += signs[a] * U[j, a] * moments[a]
            old = w[j] + p[j]
            target = curvature[j] * old - gradient
            new = 0.0
            if target > threshold[j]:
                new = (target - threshold[j]) / curvature[j]
            elif target < -threshold[j]:
                new = (target + threshold[j]) / curvature[j]
            change = new - old
            if change != 0.0:
                p[j] += change
                largest = max(largest, change * change * curvature[j])
                for a in range(rank):
                    moments[a] += U[j, a] * change
                if k >= 0:
                    for m in range(block):
                        block_product[m] += change * H[k, m]
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
