"""Entropies and divergences that certificates compute for every sample."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from coterie.numerics.kernels.compiled import compiled

NEAR = 0.1
"""Below this |x|, a series gives x − log(1 + x), because the difference would lose digits."""
TINY = 1e-3
"""Below this |x|, six terms of the series are enough."""
SERIES = 1.0 / np.arange(2, 20)
FAR = 1e8
"""Above this x, and below x = −1/2, the divergence uses log a − log c: there nothing cancels."""


@compiled
def negative_entropy(a: Any) -> None:
    """Replace every a by a log a + (1 − a) log(1 − a), the logistic conjugate; by ∞ where a is not
    in [0, 1].
    """
    for i in range(a.size):
        if not 0.0 <= a[i] <= 1.0:
            a[i] = math.inf
        elif 0.0 < a[i] < 1.0:
            a[i] = a[i] * math.log(a[i]) + (1.0 - a[i]) * math.log1p(-a[i])
        else:
            a[i] = 0.0


@compiled
def divergence(a: float, c: float, log_c: float) -> float:
    """kl(a, c) = a log(a/c) − a + c ≥ 0 for a ≥ 0 and c > 0; c may underflow, therefore log c is an
    argument, too.
    """
    if a == 0.0:
        return c
    # kl = a (x − log(1 + x)) with c = a (1 + x)
    x = (c - a) / a
    if abs(x) > NEAR:
        if -0.5 < x < FAR:
            return a * (x - math.log1p(x))
        return max(a * (math.log(a) - log_c) - a + c, 0.0)
    # Σ over k ≥ 2 of (−x)ᵏ / k, with the terms that count in float64: fewer where x is small
    last = SERIES.size - 1
    if abs(x) < TINY:
        last = 5
    total = 0.0
    for k in range(last, -1, -1):
        total = SERIES[k] - x * total
    return a * x * x * total


@compiled
def divergences(a: Any, log_c: Any, out: Any) -> None:
    """kl(a, c) of every a and c, and ∞ where a is negative."""
    for i in range(a.size):
        if a[i] >= 0.0:
            out[i] = divergence(a[i], math.exp(log_c[i]), log_c[i])
        else:
            out[i] = math.inf


@compiled
def bernoulli_divergence(margin: Any, t: Any, out: Any) -> None:
    """kl(t, p) + kl(1 − t, 1 − p) for p = 1 / (1 + e^margin), and ∞ where t is not in [0, 1]."""
    for i in range(margin.size):
        if not 0.0 <= t[i] <= 1.0:
            out[i] = math.inf
            continue
        size = abs(float(margin[i]))
        tail = math.exp(-size)
        log_large = -math.log1p(tail)
        log_small = log_large - size
        large = 1.0 / (1.0 + tail)
        small = tail / (1.0 + tail)
        share = float(t[i])
        rest = 1.0 - share
        if margin[i] > 0.0:
            out[i] = divergence(share, small, log_small) + divergence(rest, large, log_large)
        else:
            out[i] = divergence(share, large, log_large) + divergence(rest, small, log_small)
