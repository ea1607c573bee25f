"""Sums over risk sets, which survival models compute all the time: rows are at risk at an interval of event times.

    at_risk    out[k] = Σ over rows i with first_i ≤ k < end_i of values[i]
    exposed    out[i] = Σ over event times k with first_i ≤ k < end_i of values[k]

Event times are numbered stratum by stratum. Where every row is at risk from the beginning of its stratum, one pass in
the order of time is enough, and what rounding takes off is carried along. Rows that enter later take a tree over the
event times: each interval is made of at most 2 log₂ K of its nodes, and nothing is ever subtracted.
"""

from __future__ import annotations

from typing import Any

import numba


@numba.njit(nogil=True, cache=True, error_model="numpy")
def at_risk_in_order(values: Any, order: Any, end: Any, opening: Any, out: Any) -> None:
    """Rows in `order` leave last first; `opening` is the first event time of each event time's stratum."""
    place, total, lost = 0, 0.0, 0.0
    for k in range(out.size - 1, -1, -1):
        if k + 1 == out.size or opening[k + 1] != opening[k]:
            total, lost = 0.0, 0.0
        while place < order.size and end[order[place]] == k + 1:
            value = values[order[place]]
            new = total + value
            back = new - total
            lost += (total - (new - back)) + (value - back)
            total = new
            place += 1
        out[k] = total + lost


@numba.njit(nogil=True, cache=True, error_model="numpy")
def exposed_in_order(values: Any, order: Any, end: Any, opening: Any, out: Any) -> None:
    """Sums from the beginning of each stratum; rows that are never at risk keep what `out` has."""
    place, total, lost = order.size - 1, 0.0, 0.0
    for k in range(values.size):
        if opening[k] == k:
            total, lost = 0.0, 0.0
        value = values[k]
        new = total + value
        back = new - total
        lost += (total - (new - back)) + (value - back)
        total = new
        while place >= 0 and end[order[place]] == k + 1:
            out[order[place]] = total + lost
            place -= 1


@numba.njit(nogil=True, cache=True, error_model="numpy")
def at_risk_by_tree(values: Any, order: Any, first: Any, end: Any, tree: Any, out: Any) -> None:
    """`tree` has two places for each event time, and its content does not matter."""
    count = out.size
    tree[:] = 0.0
    for i in order:
        left, right, value = first[i] + count, end[i] + count, values[i]
        while left < right:
            if left & 1:
                tree[left] += value
                left += 1
            if right & 1:
                right -= 1
                tree[right] += value
            left >>= 1
            right >>= 1
    for node in range(1, count):
        tree[2 * node] += tree[node]
        tree[2 * node + 1] += tree[node]
    for place in range(count):
        out[place] = tree[count + place]


@numba.njit(nogil=True, cache=True, error_model="numpy")
def exposed_by_tree(values: Any, order: Any, first: Any, end: Any, tree: Any, out: Any) -> None:
    """The same tree the other way."""
    count = values.size
    for place in range(count):
        tree[count + place] = values[place]
    for node in range(count - 1, 0, -1):
        tree[node] = tree[2 * node] + tree[2 * node + 1]
    for i in order:
        left, right, total = first[i] + count, end[i] + count, 0.0
        while left < right:
            if left & 1:
                total += tree[left]
                left += 1
            if right & 1:
                right -= 1
                total += tree[right]
            left >>= 1
            right >>= 1
        out[i] = total
