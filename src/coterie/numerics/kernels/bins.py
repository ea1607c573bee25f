"""Bins that all parties compute alike without seeing any data: first powers of 16, then parts of a
bin.

The bits of doubles, read as whole numbers (keys), have the order of the doubles. `cut` divides a
bin into parts with equally many keys. A few cuts therefore separate any two numbers, and a bin that
cannot be cut holds only one number.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import numpy.typing as npt

from coterie.numerics.arrays import FloatArray

PARTS = 16
"""Number of parts into which `cut` divides a bin."""
LEAST, MOST = -8, 12
"""Smallest and largest power of 16 among the first edges."""
_MAGNITUDE = np.int64(0x7FFF_FFFF_FFFF_FFFF)

Keys = npt.NDArray[np.int64]


@cache
def first_edges() -> FloatArray:
    """Edges of the first bins: powers of 16 of both signs, and a bin for 0 alone."""
    powers = 16.0 ** np.arange(LEAST, MOST + 1)
    zero = [0.0, np.nextafter(0.0, 1.0)]
    edges = np.concatenate([[-np.inf], -powers[::-1], zero, powers, [np.inf]])
    edges.setflags(write=False)
    return edges


def counts(values: FloatArray, edges: FloatArray, weights: FloatArray | None = None) -> FloatArray:
    """Count the values in each bin [edges_i, edges_i+1), or sum their weights. Values outside all
    bins are ignored.
    """
    place = np.searchsorted(edges, values, side="right") - 1
    bins = len(edges) - 1
    inside = (place >= 0) & (place < bins)
    if not inside.all():
        place = place[inside]
        if weights is not None:
            weights = weights[inside]
    found: FloatArray = np.bincount(place, weights, minlength=bins).astype(float)
    return found


def cut(low: float, high: float) -> FloatArray:
    """The edges of the parts of the bin [low, high), with both ends; two edges if the bin holds
    only one number.
    """
    first, last = (int(key) for key in _keys(np.array([low, high])))
    whole, rest = divmod(last - first, PARTS)
    edges = {first + whole * part + rest * part // PARTS for part in range(PARTS + 1)}
    return _numbers(np.array(sorted(edges), np.int64))


def is_one_number(low: FloatArray, high: FloatArray) -> npt.NDArray[np.bool_]:
    """Whether each bin [low, high) holds only one number, so that it cannot be cut."""
    return _keys(low) + 1 >= _keys(high)


def roundest(low: float, high: float) -> float:
    """The number of the bin [low, high) with the fewest digits: a whole number if there is one."""
    middle = low
    if np.isfinite([low, high]).all():
        middle = low + (high - low) / 2
    for digits in range(1, 18):
        number = float(f"{middle:.{digits}g}")
        if low <= number < high:
            return number
    return low


def _keys(x: FloatArray) -> Keys:
    """The whole numbers that have the order of the doubles; 0 and −0 have the key 0."""
    bits = np.asarray(x, float).view(np.int64)
    keys: Keys = np.where(bits < 0, -(bits & _MAGNITUDE), bits)
    return keys


def _numbers(keys: Keys) -> FloatArray:
    bits = np.where(keys < 0, ~_MAGNITUDE | -keys, keys)
    numbers: FloatArray = bits.view(np.float64)
    return numbers
