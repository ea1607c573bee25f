"""A sparse row as two arrays, sorted keys and their values: read entries, and change them in new
arrays.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np


@numba.njit(nogil=True, cache=True)
def entry(keys: Any, values: Any, key: int, otherwise: float) -> float:
    """The value at `key`, or `otherwise` if the row has no such key."""
    place = np.searchsorted(keys, key)
    found = otherwise
    if place < keys.size and keys[place] == key:
        found = values[place]
    return found


@numba.njit(nogil=True, cache=True)
def entries(keys: Any, values: Any, wanted: Any, otherwise: Any) -> Any:
    """The values at the keys `wanted`, or the entries of `otherwise` for keys that the row does not
    have.
    """
    found = otherwise.copy()
    for place, at in enumerate(np.searchsorted(keys, wanted)):
        if at < keys.size and keys[at] == wanted[place]:
            found[place] = values[at]
    return found


@numba.njit(nogil=True, cache=True)
def with_entries(keys: Any, values: Any, changed: Any, to: Any) -> Any:
    """New arrays with the values `to` at the sorted keys `changed`; entries that become 0 are
    removed.
    """
    size = keys.size + changed.size
    new_keys = np.empty(size, keys.dtype)
    new_values = np.empty(size)
    count = at = 0
    for place in range(changed.size):
        while at < keys.size and keys[at] < changed[place]:
            new_keys[count] = keys[at]
            new_values[count] = values[at]
            count += 1
            at += 1
        if at < keys.size and keys[at] == changed[place]:
            at += 1
        if to[place] != 0.0:
            new_keys[count] = changed[place]
            new_values[count] = to[place]
            count += 1
    while at < keys.size:
        new_keys[count] = keys[at]
        new_values[count] = values[at]
        count += 1
        at += 1
    return new_keys[:count].copy(), new_values[:count].copy()


@numba.njit(nogil=True, cache=True)
def with_entry(keys: Any, values: Any, key: int, value: float, keep_zero: bool) -> Any:
    """New arrays with `value` at `key`; a zero is removed, unless `keep_zero`."""
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
    new_keys = np.empty(keys.size + 1, keys.dtype)
    new_values = np.empty(keys.size + 1)
    new_keys[place] = key
    new_values[place] = value
    for old in range(keys.size):
        new = old + (old >= place)
        new_keys[new] = keys[old]
        new_values[new] = values[old]
    return new_keys, new_values


@numba.njit(nogil=True, cache=True)
def without_largest(keys: Any, values: Any) -> Any:
    """New arrays without the entry of the largest value (the last one, if there are several)."""
    largest = 0
    for place in range(values.size):
        if values[place] >= values[largest]:
            largest = place
    return np.delete(keys, largest), np.delete(values, largest)
