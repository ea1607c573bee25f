"""A sparse row as two arrays, sorted keys and their values, and how to change one entry of it."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np


@numba.njit(nogil=True, cache=True)
def entry(keys: Any, values: Any, key: int, otherwise: float) -> float:
    """The value of that key, or `otherwise`."""
    place = np.searchsorted(keys, key)
    return values[place] if place < keys.size and keys[place] == key else otherwise


@numba.njit(nogil=True, cache=True)
def with_entry(keys: Any, values: Any, key: int, value: float, keep_zero: bool) -> Any:
    """New arrays with that value at that key; a zero is taken out, unless it is to be kept."""
    place = np.searchsorted(keys, key)
    there = place < keys.size and keys[place] == key
    if value == 0.0 and not keep_zero:
        if not there:
            return keys, values
        return np.delete(keys, place), np.delete(values, place)
    if there:
        values = values.copy()
        values[place] = value
        return keys, values
    new_keys, new_values = np.empty(keys.size + 1, keys.dtype), np.empty(keys.size + 1)
    new_keys[place], new_values[place] = key, value
    for old in range(keys.size):
        new = old + (old >= place)
        new_keys[new], new_values[new] = keys[old], values[old]
    return new_keys, new_values
