"""Softmax of each row, for methods and certificates of multiclass models."""

from __future__ import annotations

import math
from typing import Any

from coterie.numerics.kernels.compiled import compiled


@compiled
def log_softmax_rows(scores: Any, out: Any) -> None:
    """u_c − log Σ_k e^{u_k} of every row, in double precision.

    The largest score is subtracted first, so that a large constant in all scores of a row costs no
    digits.
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
