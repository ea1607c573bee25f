"""Entropies and divergences, which certificates compute for every sample."""

from __future__ import annotations

import math
from typing import Any

import numba
import numpy as np

NEAR = 0.1
"""Below this |x|, x − log(1 + x) is summed as a series: the difference would lose its digits."""
TINY = 1e-3
"""Below this |x|, six terms of that series are enough."""
SERIES = 1.0 / np.arange(2, 20)
FAR = 1e8
"""Beyond it, and where c is less than half of a, logarithms take the place of the quotient: nothing cancels there."""


@numba.njit(nogil=True, cache=True, error_model="numpy")
def negative_entropy(a: Any) -> None:
    """Put a log a + (1 − a) log(1 − a), the logistic conjugate, in the place of every a; ∞ where a is not in [0, 1]."""
    for i in range(a.size):
        if not 0.0 <= a[i] <= 1.0:
            a[i] = math.inf
        elif 0.0 < a[i] < 1.0:
            a[i] = a[i] * math.log(a[i]) + (1.0 - a[i]) * math.log1p(-a[i])
        else:
            a[i] = 0.0


@numba.njit(nogil=True, cache=True, error_model="numpy")
def divergence(a: float, c: float, log_c: float) -> float:
    """kl(a, c) = a log(a/c) − a + c ≥ 0 for a ≥ 0 and c > 0, which may be so small that only its logarithm is known."""
    if a == 0.0:
        return c
    # kl = a (x − log(1 + x)) with c = a (1 + x)
    x = (c - a) / a
    if abs(x) > NEAR:
        near = -0.5 < x < FAR
        return a * (x - math.log1p(x)) if near else max(a * (math.log(a) - log_c) - a + c, 0.0)
    # Σ over k ≥ 2 of (−x)ᵏ / k: all that float64 sees of it, which is less where x is small
    total = 0.0
    for k in range(5 if abs(x) < TINY else SERIES.size - 1, -1, -1):
        total = SERIES[k] - x * total
    return a * x * x * total


@numba.njit(nogil=True, cache=True, error_model="numpy")
def divergences(a: Any, log_c: Any, out: Any) -> None:
    """kl(a, c) of every a and c, and ∞ where a is negative."""
    for i in range(a.size):
        out[i] = divergence(a[i], math.exp(log_c[i]), log_c[i]) if a[i] >= 0.0 else math.inf


@numba.njit(nogil=True, cache=True, error_model="numpy")
def bernoulli_divergence(margin: Any, t: Any, out: Any) -> None:
    """kl(t, p) + kl(1 − t, 1 − p) for p = 1 / (1 + e^margin), and ∞ where t is not in [0, 1]."""
    for i in range(margin.size):
        if not 0.0 <= t[i] <= 1.0:
            out[i] = math.inf
            continue
        size = abs(float(margin[i]))
        tail = math.exp(-size)
        log_large = -math.log1p(tail)
        large, small, log_small = 1.0 / (1.0 + tail), tail / (1.0 + tail), log_large - size
        share = float(t[i])
        if margin[i] > 0.0:
            out[i] = divergence(share, small, log_small) + divergence(1.0 - share, large, log_large)
        else:
            out[i] = divergence(share, large, log_large) + divergence(1.0 - share, small, log_small)
