"""Quantiles of columns that several parties hold, from counts in agreed bins.

All parties send the number of their values in each of the first bins (`kernels.bins`). The bins
that hold a quantile are cut into parts and counted again, until they are narrow enough: a few
`Sum`s of a few numbers. A bin has at least the minimum number of rows of every party that has any
in it (`groups`). Otherwise the bin stays wider, and so do the bounds of the quantile.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from coterie.numerics.arrays import FloatArray
from coterie.numerics.kernels.bins import counts, cut, first_edges, is_one_number, roundest
from coterie.run.collectives import Protocol, Sum
from coterie.run.groups import Part, agree_on_edges, checked_counts, released, wrong_counts

PRECISION = 1e-4
"""Width of the last bins, relative to the numbers in them and to their distance from the quartiles.
"""
QUARTILES = (0.25, 0.75)
VALUES = "values in bins"
FINITE = float(np.finfo(float).max)

Parts = dict[int, FloatArray]
"""Bins of a column that are cut, by their places, and the edges of their parts."""


@dataclass(frozen=True)
class Quantiles:
    """A row per column, an entry per probability; NaN where a column has no values."""

    values: FloatArray
    low: FloatArray
    """The lower bounds of the quantiles of the pooled values; `high` has the upper bounds."""
    high: FloatArray
    edges: tuple[FloatArray, ...] = ()
    """The last bins of each column: no count that a party sent is of a part of them."""


@dataclass(frozen=True)
class _Column:
    """The counts of one column that all parties know."""

    edges: FloatArray
    counts: FloatArray
    closed: frozenset[float] = field(default=frozenset())
    """The lower edges of bins that a party cannot cut."""

    def order_statistic(self, k: int) -> int:
        """The bin of the k-th smallest value, from 0."""
        return int(np.searchsorted(np.cumsum(self.counts), k, side="right"))

    @property
    def n(self) -> int:
        """The number of values."""
        return int(self.counts.sum())

    def narrow(self, bins: Sequence[int], precision: float) -> npt.NDArray[np.bool_]:
        """Whether each of these bins is narrow enough. Where half of the values are one number,
        only a bin of one number is narrow.
        """
        first, last = (self.order_statistic(_targets(self.n, p)[0]) for p in QUARTILES)
        low = self.edges[bins]
        high = self.edges[np.add(bins, 1)]
        with np.errstate(invalid="ignore", over="ignore"):
            # From the bin to the farther quartile.
            above = high - self.edges[first]
            below = self.edges[last + 1] - low
            spread = np.maximum(above, below)
            size = np.maximum(np.abs(low), np.abs(high))
            width = precision * np.minimum(size, spread)
            narrow: npt.NDArray[np.bool_] = high - low <= np.minimum(width, FINITE)
            narrow |= is_one_number(low, high)
        return narrow

    def to_cut(self, probabilities: Sequence[float], minimum: float, precision: float) -> Parts:
        """The parts of the bins that hold a quantile, or a quartile, and are too wide."""
        if not self.n:
            return {}
        ranks: set[int] = set()
        for p in (*QUARTILES, *probabilities):
            first, second, _ = _targets(self.n, p)
            ranks |= {first, second}
        bins = sorted({self.order_statistic(k) for k in ranks})
        wide = ~self.narrow(bins, precision)
        enough = self.counts[bins] >= minimum
        parts = {}
        for k, chosen in zip(bins, wide & enough, strict=True):
            low, high = self.edges[k : k + 2]
            if chosen and low not in self.closed:
                parts[k] = cut(low, high)
        return parts

    def refined(self, parts: Parts, counted: FloatArray) -> _Column:
        """The column with bins replaced by their parts, which have these counts."""
        edges = [self.edges[:1]]
        numbers = []
        start = 0
        for k in range(len(self.counts)):
            if k not in parts:
                edges.append(self.edges[k + 1 : k + 2])
                numbers.append(self.counts[k : k + 1])
                continue
            inner = parts[k]
            end = start + len(inner) - 1
            if counted[start:end].sum() != self.counts[k]:
                raise wrong_counts(VALUES)
            edges.append(inner[1:])
            numbers.append(counted[start:end])
            start = end
        whole = [k for k, inner in parts.items() if len(inner) == 2]
        uncut = {float(self.edges[k]) for k in whole}
        closed = self.closed | uncut
        return _Column(np.concatenate(edges), np.concatenate(numbers), closed)


def quantiles(
    columns: Sequence[FloatArray],
    probabilities: Sequence[float],
    *,
    minimum: float = 1,
    precision: float = PRECISION,
    allowance: float = math.inf,
) -> Protocol[Quantiles]:
    """Find the quantiles of every column over all agents, as numpy defines them (linear), up to the
    widths of bins.

    Parameters
    ----------
    columns : sequence of arrays
        This agent's finite values of each column. All agents have the same number of columns.
    probabilities : sequence of float
        The wanted quantiles.
    minimum : float, default=1
        Least rows in a bin, of every agent that has any in it.
    precision : float, default=1e-4
        Width of the last bins, relative to the numbers in them.
    allowance : float, default=inf
        Most numbers that an agent may send; with a smaller allowance, bins stay wider.
    """
    values = [np.asarray(x, float) for x in columns]
    wanted: list[Parts] = [{0: first_edges()} for _ in values]
    allowance -= _cost(wanted, minimum)
    agreed, counted = yield from _counted(values, wanted, minimum)
    known = []
    for parts, numbers in zip(agreed, counted, strict=True):
        known.append(_Column(parts[0], numbers))
    while True:
        wanted = [column.to_cut(probabilities, minimum, precision) for column in known]
        size = _cost(wanted, minimum)
        if not size or size > allowance:
            break
        allowance -= size
        agreed, counted = yield from _counted(values, wanted, minimum)
        known = list(map(_Column.refined, known, agreed, counted))
    rows = [[_quantile(column, p, precision) for p in probabilities] for column in known]
    found = np.array(rows).reshape(len(known), len(probabilities), 3)
    values_found, low, high = np.moveaxis(found, 2, 0)
    edges = tuple(column.edges for column in known)
    return Quantiles(values_found, low, high, edges)


def _counted(
    values: Sequence[FloatArray], wanted: Sequence[Parts], minimum: float
) -> Protocol[tuple[list[Parts], list[FloatArray]]]:
    """For each column the parts on which all parties agree, and the counts of all values in
    them.
    """
    proposed = []
    local = []
    for x, parts in zip(values, wanted, strict=True):
        for edges in parts.values():
            proposed.append(edges)
            local.append(counts(x, edges).astype(np.intp))
    agreed_edges = yield from agree_on_edges(proposed, local, minimum)
    found = iter(agreed_edges)
    agreed = [{k: next(found) for k in parts} for parts in wanted]
    messages = [_counts_in(x, parts) for x, parts in zip(values, agreed, strict=True)]
    total = yield _released(values, messages, minimum)
    own = np.concatenate([np.empty(0), *messages])
    total = checked_counts(total, own, VALUES)
    ends = np.cumsum([len(message) for message in messages], dtype=np.intp)
    return agreed, np.split(total, ends)[:-1]


def _released(values: Sequence[FloatArray], messages: Sequence[FloatArray], minimum: float) -> Sum:
    """The counts of all columns; all values of a column together are no bin."""
    sums = [
        released(minimum, len(x), Part(message, message))
        for x, message in zip(values, messages, strict=True)
    ]
    return Sum(np.concatenate([np.empty(0), *(one.x for one in sums)]), released=True)


def _counts_in(values: FloatArray, parts: Parts) -> FloatArray:
    """The counts in the parts of all bins, one bin after the other."""
    numbers = [counts(values, edges) for edges in parts.values()]
    return np.concatenate([np.empty(0), *numbers])


def _cost(wanted: Sequence[Parts], minimum: float) -> int:
    """The most numbers that it takes to agree on these parts and to count them."""
    bins = [len(edges) - 1 for parts in wanted for edges in parts.values()]
    if minimum > 1:
        return 2 * sum(bins) - len(bins)
    return sum(bins)


def _targets(n: int, probability: float) -> tuple[int, int, float]:
    """The two order statistics around a quantile, and its distance from the first as a share of
    their distance.
    """
    place = probability * (n - 1)
    first = math.floor(place)
    return first, math.ceil(place), place - first


def _quantile(column: _Column, probability: float, precision: float) -> tuple[float, float, float]:
    """A quantile and its bounds."""
    if not column.n:
        return math.nan, math.nan, math.nan
    k, after, share = _targets(column.n, probability)
    first = _statistic(column, k, precision)
    if not share:
        return first
    second = _statistic(column, after, precision)
    bounds = []
    for one, other in zip(first, second, strict=True):
        bounds.append(_between(one, other, share))
    value, low, high = bounds
    return value, low, high


def _between(one: float, other: float, share: float) -> float:
    """The number that divides the way from one to the other in that share."""
    if one == other:
        return one
    return one + share * (other - one)


def _statistic(column: _Column, k: int, precision: float) -> tuple[float, float, float]:
    """The k-th smallest value and its bounds."""
    place = column.order_statistic(k)
    low, high = column.edges[place : place + 2].tolist()
    if is_one_number(np.array(low), np.array(high)):
        return low, low, low
    if column.narrow([place], precision)[0]:
        return roundest(low, high), low, high
    if high - low > FINITE:
        for end in (high, low):
            if math.isfinite(end):
                return end, low, high
        return math.nan, low, high
    # In a wide bin, values are assumed to lie at equal distances.
    before = column.counts[:place].sum()
    in_bin = k - before + 0.5
    value = low + (high - low) * in_bin / column.counts[place]
    return value, low, high
