"""Sums over risk sets for survival models: each row is at risk during an interval of event times.

    at_risk    out[k] = Σ over rows i with first_i ≤ k < end_i of values[i]
    exposed    out[i] = Σ over event times k with first_i ≤ k < end_i of values[k]

Event times are numbered stratum by stratum. If every row is at risk from the beginning of its
stratum, one pass in the order of time is enough; it also sums the rounding errors. Rows that enter
later need a tree over the K event times: each interval consists of at most 2 log₂ K of its nodes,
and no number is ever subtracted.
"""

from __future__ import annotations

from typing import Any

from coterie.numerics.kernels.compiled import compiled


@compiled
def at_risk_in_order(values: Any, order: Any, end: Any, opening: Any, out: Any) -> None:
    """`order` sorts the rows by `end`, last first; `opening` is the first event time of each event
    time's stratum.
    """
    place = 0
    total = 0.0
    lost = 0.0
    for k in range(out.size - 1, -1, -1):
        if k + 1 == out.size or opening[k + 1] != opening[k]:
            total = 0.0
            lost = 0.0
        while place < order.size and end[order[place]] == k + 1:
            value = values[order[place]]
            new = total + value
            back = new - total
            lost += (total - (new - back)) + (value - back)
            total = new
            place += 1
        out[k] = total + lost


@compiled
def exposed_in_order(values: Any, order: Any, end: Any, opening: Any, out: Any) -> None:
    """Sums from the beginning of each stratum. `out` stays unchanged for rows that are never at
    risk.
    """
    place = order.size - 1
    total = 0.0
    lost = 0.0
    for k in range(values.size):
        if opening[k] == k:
            total = 0.0
            lost = 0.0
        value = values[k]
        new = total + value
        back = new - total
        lost += (total - (new - back)) + (value - back)
        total = new
        while place >= 0 and end[order[place]] == k + 1:
            out[order[place]] = total + lost
            place -= 1


@compiled
def at_risk_by_tree(values: Any, order: Any, first: Any, end: Any, tree: Any, out: Any) -> None:
    """`tree` is work space with two entries for each event time; its content does not matter."""
    count = out.size
    tree[:] = 0.0
    for i in order:
        left = first[i] + count
        right = end[i] + count
        value = values[i]
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


@compiled
def exposed_by_tree(values: Any, order: Any, first: Any, end: Any, tree: Any, out: Any) -> None:
    """Sum values over each row's interval, with `tree` as in `at_risk_by_tree`."""
    count = values.size
    for place in range(count):
        tree[count + place] = values[place]
    for node in range(count - 1, 0, -1):
        tree[node] = tree[2 * node] + tree[2 * node + 1]
    for i in order:
        left = first[i] + count
        right = end[i] + count
        total = 0.0
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
