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
def entries(keys: Any, values: Any, wanted: Any, otherwise: Any) -> Any:
    """The values of these keys, or for each what `otherwise` has."""
    found = otherwise.copy()
    for place, at in enumerate(np.searchsorted(keys, wanted)):
        if at < keys.size and keys[at] == wanted[place]:
            found[place] = values[at]
    return found


@numba.njit(nogil=True, cache=True)
def with_entries(keys: Any, values: Any, changed: Any, to: Any) -> Any:
    """New arrays with these values at these keys, which are sorted; zeros are taken out."""
    new_keys, new_values = np.empty(keys.size + changed.size, keys.dtype), np.empty(keys.size + changed.size)
    count = at = 0
    for place in range(changed.size):
        while at < keys.size and keys[at] < changed[place]:
            new_keys[count], new_values[count] = keys[at], values[at]
            count, at = count + 1, at + 1
        if at < keys.size and keys[at] == changed[place]:
            at += 1
        if to[place] != 0.0:
            new_keys[count], new_values[count] = changed[place], to[place]
            count += 1
    while at < keys.size:
        new_keys[count], new_values[count] = keys[at], values[at]
        count, at = count + 1, at + 1
    return new_keys[:count].copy(), new_values[:count].copy()


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


@numba.njit(nogil=True, cache=True)
def without_largest(keys: Any, values: Any) -> Any:
    """New arrays without the entry of the largest value; of several, without the last."""
    largest = 0
    for place in range(values.size):
        if values[place] >= values[largest]:
            largest = place
    return np.delete(keys, largest), np.delete(values, largest)
