"""Softmax row by row, which methods and certificates of several classes compute all the time."""

from __future__ import annotations

import math
from typing import Any

import numba


@numba.njit(nogil=True, cache=True, error_model="numpy")
def log_softmax_rows(scores: Any, out: Any) -> None:
    """u_c − log Σ_k e^{u_k} of every row, in double precision."""
    rows, classes = scores.shape
    for i in range(rows):
        most = float(scores[i, 0])
        for c in range(1, classes):
            most = max(most, float(scores[i, c]))
        total = 0.0
        for c in range(classes):
            total += math.exp(scores[i, c] - most)
        shift = most + math.log(total)
        for c in range(classes):
            out[i, c] = scores[i, c] - shift
