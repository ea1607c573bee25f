"""Count the pairs of rows whose scores have the order of their times: the sums of a concordance
index.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from coterie.numerics.kernels.compiled import compiled


@compiled
def _add(tree: Any, place: int, weight: float) -> None:
    place += 1
    while place < tree.size:
        tree[place] += weight
        place += place & -place


@compiled
def _below(tree: Any, place: int) -> float:
    """The weight of all places before `place`."""
    total = 0.0
    while place > 0:
        total += tree[place]
        place -= place & -place
    return total


@compiled
def ordered_pairs(
    time: Any, event: Any, entry: Any, rank: Any, weights: Any, leaving: Any, entering: Any
) -> Any:
    """Σ s_i s_j over pairs of an event i and a row j that outlives it: pairs where j has a lower
    score, an equal score, and all pairs.

    `rank` numbers the distinct scores from 0. `leaving` sorts the rows by time and `entering` by
    entry, last first.
    """
    n = time.size
    if n == 0:
        return 0.0, 0.0, 0.0
    tree = np.zeros(rank.max() + 2)
    total = 0.0
    first = 0
    out = 0
    lower = 0.0
    equal = 0.0
    every = 0.0
    while first < n:
        now = time[leaving[first]]
        last = first
        # A row that is censored at this time outlives the rows that have an event at it.
        while last < n and time[leaving[last]] == now:
            j = leaving[last]
            if not event[j]:
                _add(tree, rank[j], weights[j])
                total += weights[j]
            last += 1
        while out < n and entry[entering[out]] >= now:
            # Row j is in the tree, because it leaves after it enters. Before its entry it is not at
            # risk.
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
