"""Softmax row by row, which methods and certificates of several classes compute all the time."""

from __future__ import annotations

import math
from typing import Any

import numba


@numba.njit(nogil=True, cache=True, error_model="numpy")
def log_softmax_rows(scores: Any, out: Any) -> None:
    """u_c − log Σ_k e^{u_k} of every row, in double precision.

    The largest score is taken off first: what all scores of a row have in common, however large, costs no digits.
    """
    rows, classes = scores.shape
    for i in range(rows):
        best = 0
        for c in range(1, classes):
            if scores[i, c] > scores[i, best]:
                best = c
        most = float(scores[i, best])
        others = 0.0
        for c in range(classes):
            if c != best:
                others += math.exp(float(scores[i, c]) - most)
        shift = math.log1p(others)
        for c in range(classes):
            out[i, c] = (float(scores[i, c]) - most) - shift
