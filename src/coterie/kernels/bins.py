"""Bins that all parties agree on without knowing anybody's numbers: first powers of 16, then parts of a bin.

The bits of a double, read as a whole number, are in the order of the doubles. A bin is cut at equal distances of these
whole numbers, so that a few cuts separate any two numbers, however large or small, and a bin that cannot be cut any
further holds one number alone.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import numpy.typing as npt

from coterie.arrays import FloatArray

PARTS = 16
"""In how many a bin is cut."""
LEAST, MOST = -8, 12
"""Powers of 16 among the first edges."""
_MAGNITUDE = np.int64(0x7FFF_FFFF_FFFF_FFFF)

Keys = npt.NDArray[np.int64]


@cache
def first_edges() -> FloatArray:
    """Edges of the first bins: powers of 16 of both signs, and a bin for 0 alone."""
    powers = 16.0 ** np.arange(LEAST, MOST + 1)
    edges = np.concatenate([[-np.inf], -powers[::-1], [0.0, np.nextafter(0.0, 1.0)], powers, [np.inf]])
    edges.setflags(write=False)
    return edges


def counts(values: FloatArray, edges: FloatArray, weights: FloatArray | None = None) -> FloatArray:
    """How many values, or how much of the weights, each bin [edges_i, edges_i+1) has; others are not counted."""
    place = np.searchsorted(edges, values, side="right") - 1
    bins = len(edges) - 1
    inside = (place >= 0) & (place < bins)
    if not inside.all():
        place, weights = place[inside], None if weights is None else weights[inside]
    found: FloatArray = np.bincount(place, weights, minlength=bins).astype(float)
    return found


def cut(low: float, high: float) -> FloatArray:
    """The edges of the parts of the bin [low, high), with both ends; two edges if it holds one number alone."""
    a, b = _keys(np.array([low, high]))
    whole, rest = divmod(int(b) - int(a), PARTS)
    inner = [int(a) + whole * part + rest * part // PARTS for part in range(PARTS + 1)]
    return _numbers(np.array(sorted(set(inner)), np.int64))


def is_one_number(low: FloatArray, high: FloatArray) -> npt.NDArray[np.bool_]:
    """Which of these bins cannot be cut."""
    return _keys(low) + 1 >= _keys(high)


def roundest(low: float, high: float) -> float:
    """The number of the bin [low, high) with the fewest digits: as good as any other, and whole where one is."""
    middle = low + (high - low) / 2 if np.isfinite([low, high]).all() else low
    for digits in range(1, 18):
        number = float(f"{middle:.{digits}g}")
        if low <= number < high:
            return number
    return low


def _keys(x: FloatArray) -> Keys:
    """Whole numbers in the order of the doubles, 0 for both zeros."""
    bits = np.asarray(x, float).view(np.int64)
    keys: Keys = np.where(bits < 0, -(bits & _MAGNITUDE), bits)
    return keys


def _numbers(keys: Keys) -> FloatArray:
    numbers: FloatArray = np.where(keys < 0, ~_MAGNITUDE | -keys, keys).view(np.float64)
    return numbers
