"""Quantiles of columns that several parties hold, from counts in agreed bins: never from a value.

All tell how many of their values are in each of the first bins (`kernels.bins`). The bins in which a quantile must lie
are cut into parts, and counted again, until they are narrow enough: a few `Sum`s of a few numbers. No bin has fewer
rows of a party than a minimum, unless it has none (`groups`): the quantile is then known up to a wider bin.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from coterie.numerics.arrays import FloatArray
from coterie.numerics.kernels.bins import counts, cut, first_edges, is_one_number, roundest
from coterie.run.collectives import Protocol, Sum
from coterie.run.groups import agree_on_edges

PRECISION = 1e-4
"""Width of the last bins, beside the numbers in them and beside their distance from the quartiles."""
QUARTILES = (0.25, 0.75)
FINITE = float(np.finfo(float).max)


@dataclass(frozen=True)
class Quantiles:
    """A row per column, an entry per probability; NaN where a column has no values."""

    values: FloatArray
    low: FloatArray
    """The quantile of the pooled values is between these."""
    high: FloatArray
    edges: tuple[FloatArray, ...] = ()
    """The last bins of each column: of all counts that were told, none is of a part of them."""


@dataclass
class _Column:
    """What all know of one column."""

    edges: FloatArray
    counts: FloatArray

    def order_statistic(self, k: int) -> int:
        """The bin of the k-th smallest value, from 0."""
        return int(np.searchsorted(np.cumsum(self.counts), k, side="right"))

    @property
    def n(self) -> int:
        """How many values there are."""
        return int(self.counts.sum())

    def narrow(self, bins: Sequence[int], precision: float) -> npt.NDArray[np.bool_]:
        """Which of these bins need not be cut. Where half of the values are one number, its bin holds nothing else."""
        first, last = (self.order_statistic(_targets(self.n, p)[0]) for p in QUARTILES)
        low, high = self.edges[bins], self.edges[np.add(bins, 1)]
        with np.errstate(invalid="ignore", over="ignore"):
            # From the bin to the farther one of the quartiles.
            spread = np.maximum(high - self.edges[first], self.edges[last + 1] - low)
            width = precision * np.minimum(np.maximum(np.abs(low), np.abs(high)), spread)
            narrow: npt.NDArray[np.bool_] = (high - low <= np.minimum(width, FINITE)) | is_one_number(low, high)
        return narrow


def quantiles(
    columns: Sequence[FloatArray],
    probabilities: Sequence[float],
    *,
    minimum: float = 1,
    precision: float = PRECISION,
    room: float = math.inf,
) -> Protocol[Quantiles]:
    """The quantiles of every column over all agents, as numpy has them (linear), up to the widths of bins.

    columns    this agent's values of each column, finite; as many columns at every agent, and any number of rows
    minimum    a bin has at least so many rows of every agent that has any in it
    precision  how narrow bins have to be, beside the numbers in them
    room       how many numbers this may tell; with less, bins stay wider
    """
    values = [np.asarray(x, float) for x in columns]
    first, told = yield from _counted(values, [[first_edges()] for _ in values], minimum)
    known = [_Column(one[0], part) for one, part in zip(first, _split(told, first), strict=True)]
    room -= _cost(first, minimum)
    closed: list[set[float]] = [set() for _ in known]
    while True:
        wanted = [_to_cut(column, probabilities, minimum, precision) for column in known]
        wanted = [
            [k for k in bins if column.edges[k] not in shut]
            for column, bins, shut in zip(known, wanted, closed, strict=True)
        ]
        parts = [[cut(*column.edges[k : k + 2]) for k in bins] for column, bins in zip(known, wanted, strict=True)]
        size = _cost(parts, minimum)
        if not size or size > room:
            break
        room -= size
        parts, told = yield from _counted(values, parts, minimum)
        for column, bins, one, shut in zip(known, wanted, parts, closed, strict=True):
            shut |= {float(column.edges[k]) for k, edges in zip(bins, one, strict=True) if len(edges) == 2}
        known = _refined(known, wanted, parts, told)
    rows = [[_quantile(column, p, precision) for p in probabilities] for column in known]
    found = np.array(rows).reshape(len(known), len(probabilities), 3)
    edges = tuple(column.edges for column in known)
    return Quantiles(found[:, :, 0], found[:, :, 1], found[:, :, 2], edges)


def _counted(
    values: Sequence[FloatArray], parts: Sequence[Sequence[FloatArray]], minimum: float
) -> Protocol[tuple[list[list[FloatArray]], FloatArray]]:
    """The parts on which all agree, and how many values of all agents each of them has, one after the other."""
    proposed = [edges for one in parts for edges in one]
    local = [counts(x, edges).astype(np.intp) for x, one in zip(values, parts, strict=True) for edges in one]
    agreed = iter((yield from agree_on_edges(proposed, local, minimum)))
    found = [[next(agreed) for _ in one] for one in parts]
    told = yield Sum(
        np.concatenate([counts(x, e) for x, one in zip(values, found, strict=True) for e in one] or [np.empty(0)])
    )
    return found, told


def _cost(parts: Sequence[Sequence[FloatArray]], minimum: float) -> int:
    """How many numbers it takes, at most, to agree on these parts and to count them."""
    bins = [len(edges) - 1 for one in parts for edges in one]
    return sum(bins) + (sum(bins) - len(bins) if minimum > 1 else 0)


def _split(told: FloatArray, parts: Sequence[Sequence[FloatArray]]) -> list[FloatArray]:
    """The counts of each column."""
    sizes = [sum(len(edges) - 1 for edges in one) for one in parts]
    return np.split(told, np.cumsum(sizes)[:-1]) if sizes else []


def _targets(n: int, probability: float) -> tuple[int, int, float]:
    """The two order statistics between which a quantile lies, and how far it is from the first to the second."""
    place = probability * (n - 1)
    return math.floor(place), math.ceil(place), place - math.floor(place)


def _to_cut(column: _Column, probabilities: Sequence[float], minimum: float, precision: float) -> list[int]:
    if not column.n:
        return []
    ranks = {k for p in (*QUARTILES, *probabilities) for k in _targets(column.n, p)[:2]}
    found = sorted({column.order_statistic(k) for k in ranks})
    wide = ~column.narrow(found, precision) & (column.counts[found] >= minimum)
    return [k for k, yes in zip(found, wide, strict=True) if yes]


def _refined(
    known: Sequence[_Column], wanted: Sequence[list[int]], parts: Sequence[list[FloatArray]], told: FloatArray
) -> list[_Column]:
    """The columns with those bins replaced by their parts."""
    result, start = [], 0
    for column, bins, cuts in zip(known, wanted, parts, strict=True):
        edges, numbers = [column.edges[:1]], []
        replaced = dict(zip(bins, cuts, strict=True))
        for k, count in enumerate(column.counts.tolist()):
            inner = replaced.get(k)
            edges.append(column.edges[k + 1 : k + 2] if inner is None else inner[1:])
            if inner is None:
                numbers.append(np.array([count]))
            else:
                numbers.append(told[start : start + len(inner) - 1])
                start += len(inner) - 1
        result.append(_Column(np.concatenate(edges), np.concatenate(numbers)))
    return result


def _quantile(column: _Column, probability: float, precision: float) -> tuple[float, float, float]:
    """A quantile, and what it is at least and at most."""
    if not column.n:
        return math.nan, math.nan, math.nan
    k, after, share = _targets(column.n, probability)
    ends = [_statistic(column, place, precision) for place in ((k, after) if share else (k,))]
    if len(ends) == 1:
        return ends[0]
    value, low, high = (one if one == other else one + share * (other - one) for one, other in zip(*ends, strict=True))
    return value, low, high


def _statistic(column: _Column, k: int, precision: float) -> tuple[float, float, float]:
    place = column.order_statistic(k)
    low, high = column.edges[place : place + 2].tolist()
    if is_one_number(np.array(low), np.array(high)):
        return low, low, low
    count, before = column.counts[place], column.counts[:place].sum()
    if column.narrow([place], precision)[0]:
        return roundest(low, high), low, high
    if high - low > FINITE:
        finite = [end for end in (high, low) if math.isfinite(end)]
        return finite[0] if finite else math.nan, low, high
    # The values of a wide bin are taken to lie at equal distances.
    return low + (high - low) * (k - before + 0.5) / count, low, high
