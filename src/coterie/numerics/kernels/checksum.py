"""A checksum of numbers in memory: it shows that they have changed, in a twentieth of the time of
a digest. It is no digest, because other numbers with the same checksum are easy to find.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from coterie.numerics.kernels.compiled import compiled

FACTOR = np.uint64(0x9E3779B97F4A7C15)
"""An odd number, by which sums are multiplied before each word."""


@compiled
def checksum(words: Any, start: Any) -> Any:
    """Σ words · FACTOR^place, modulo 2⁶⁴, of four interleaved parts: the processor computes them at
    the same time.
    """
    a = b = c = d = np.uint64(start)
    whole = words.size // 4 * 4
    for i in range(0, whole, 4):
        a = a * FACTOR + np.uint64(words[i])
        b = b * FACTOR + np.uint64(words[i + 1])
        c = c * FACTOR + np.uint64(words[i + 2])
        d = d * FACTOR + np.uint64(words[i + 3])
    for i in range(whole, words.size):
        a = a * FACTOR + np.uint64(words[i])
    return ((a * FACTOR + b) * FACTOR + c) * FACTOR + d
