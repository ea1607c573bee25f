"""The positive and the negative part of a weighted sum, with twice the usual precision.

A dual solution must balance exactly, in spite of rounding. Therefore sums (Neumaier) and products
(Dekker) carry their rounding errors along.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

SPLITTER = 134217729.0
"""2²⁷ + 1: splits a double into two halves of 26 bits."""


@numba.njit(nogil=True, cache=True)
def sides(v: Any, weights: Any, weighted: bool) -> tuple[float, float, float, float]:
    """Σ s v over the positive v and −Σ s v over the others, each as a number and its rounding
    error.
    """
    up = down = up_rest = down_rest = 0.0
    for i in range(v.size):
        term = v[i]
        rest = 0.0
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
            if up >= term:
                lost = (up - total) + term
            else:
                lost = (term - total) + up
            up_rest += lost + rest
            up = total
        else:
            total = down - term
            if down >= -term:
                lost = (down - total) - term
            else:
                lost = (-term - total) + down
            down_rest += lost - rest
            down = total
    return up, up_rest, down, down_rest


@numba.njit(nogil=True, cache=True)
def all_sides(v: Any, weights: Any, weighted: bool) -> Any:
    """The four results of `sides` for each row of v, as four rows."""
    result = np.empty((4, v.shape[0]))
    for row in range(v.shape[0]):
        up, up_rest, down, down_rest = sides(v[row], weights[row], weighted)
        result[0, row] = up
        result[1, row] = up_rest
        result[2, row] = down
        result[3, row] = down_rest
    return result
