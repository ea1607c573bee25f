"""Pairs of rows in the order of their scores, which concordance counts."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np


@numba.njit(nogil=True, cache=True, error_model="numpy")
def _add(tree: Any, place: int, weight: float) -> None:
    place += 1
    while place < tree.size:
        tree[place] += weight
        place += place & -place


@numba.njit(nogil=True, cache=True, error_model="numpy")
def _below(tree: Any, place: int) -> float:
    """The weight of all places before this one."""
    total = 0.0
    while place > 0:
        total += tree[place]
        place -= place & -place
    return total


@numba.njit(nogil=True, cache=True, error_model="numpy")
def ordered_pairs(time: Any, event: Any, entry: Any, rank: Any, weights: Any, leaving: Any, entering: Any) -> Any:
    """Σ s_i s_j over pairs of an event i and a row j that is at risk then and later: with a lower score, an equal one,
    and all of them.

    `rank` numbers the different scores from 0, `leaving` are rows by time and `entering` rows by entry, last first.
    """
    n = time.size
    tree = np.zeros(rank.max() + 2 if n else 1)
    total, first, out = 0.0, 0, 0
    lower, equal, every = 0.0, 0.0, 0.0
    while first < n:
        now = time[leaving[first]]
        last = first
        # Who is censored at this time outlives those who have an event at it.
        while last < n and time[leaving[last]] == now:
            j = leaving[last]
            if not event[j]:
                _add(tree, rank[j], weights[j])
                total += weights[j]
            last += 1
        while out < n and entry[entering[out]] >= now:
            # It had left, and had not entered: it is in the tree, because it leaves after it enters.
            j = entering[out]
            _add(tree, rank[j], -weights[j])
            total -= weights[j]
            out += 1
        for k in range(first, last):
            i = leaving[k]
            if event[i]:
                below = _below(tree, rank[i])
                upto = _below(tree, rank[i] + 1)
                lower += weights[i] * below
                equal += weights[i] * (upto - below)
                every += weights[i] * total
        for k in range(first, last):
            i = leaving[k]
            if event[i]:
                _add(tree, rank[i], weights[i])
                total += weights[i]
        first = last
    return lower, equal, every
