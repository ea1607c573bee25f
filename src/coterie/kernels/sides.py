"""The positive and the negative part of a weighted sum, each as if it were computed twice as precisely.

What balances a dual exactly may not be lost in rounding: sums carry their errors along (Neumaier), and so do products
(Dekker).
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

SPLITTER = 134217729.0
"""2²⁷ + 1: cuts a double into two halves of 26 bits."""


@numba.njit(nogil=True, cache=True)
def sides(v: Any, weights: Any, weighted: bool) -> tuple[float, float, float, float]:
    """Σ s v over the positive v and −Σ s v over the negative ones, each as a number and what rounding took from it."""
    up = down = up_rest = down_rest = 0.0
    for i in range(v.size):
        term, rest = v[i], 0.0
        if weighted:
            s = weights[i]
            high = SPLITTER * term - (SPLITTER * term - term)
            low = term - high
            s_high = SPLITTER * s - (SPLITTER * s - s)
            s_low = s - s_high
            product = term * s
            rest = low * s_low - (((product - high * s_high) - low * s_high) - high * s_low)
            term = product
        if term > 0.0:
            total = up + term
            up_rest += ((up - total) + term if up >= term else (term - total) + up) + rest
            up = total
        else:
            total = down - term
            down_rest += ((down - total) - term if down >= -term else (-term - total) + down) - rest
            down = total
    return up, up_rest, down, down_rest


@numba.njit(nogil=True, cache=True)
def all_sides(v: Any) -> Any:
    """The same for each row of v, without weights: four rows of results."""
    result = np.empty((4, v.shape[0]))
    for row in range(v.shape[0]):
        result[0, row], result[1, row], result[2, row], result[3, row] = sides(v[row], v[row], False)
    return result
