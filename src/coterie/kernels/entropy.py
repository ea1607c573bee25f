"""a log a + (1 − a) log(1 − a): the conjugate of the logistic loss, which certificates compute for every sample."""

from __future__ import annotations

import math
from typing import Any

import numba

__all__ = ["negative_entropy"]


@numba.njit(nogil=True, cache=True, error_model="numpy")
def negative_entropy(a: Any) -> None:
    """Put it in the place of every a, and ∞ where a is not in [0, 1]."""
    for i in range(a.size):
        if not 0.0 <= a[i] <= 1.0:
            a[i] = math.inf
        elif 0.0 < a[i] < 1.0:
            a[i] = a[i] * math.log(a[i]) + (1.0 - a[i]) * math.log1p(-a[i])
        else:
            a[i] = 0.0
