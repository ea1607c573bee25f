"""Groups of rows that parties add up: only with enough rows of every party that has any.

A group with fewer rows of a party than `minimum`, but some, is `small`. Its sums would be nearly
about single rows, for
whoever knows the rest of the total. Every table, bin, category and cluster comes through here:

    groups with a fixed meaning    `allowed`: all parties say which groupings they object to, and
                                   these are not told
    bins of a number               `agree_on_edges`: edges that leave a small bin at some party are
                                   left out
    categories                     `pooled`: a party counts rows of its own small categories among
                                   "other"
    cells of a two-way table       `stats.suppression.withheld`: a party tells no small cell, and
                                   none that totals need to hide it
    missing values                 `without_few`: a party leaves a few values out, so that no count
                                   of them is small

All of these messages are made by one function, `released`. It is told how many rows each cell of a
message is about, and refuses a small one, whichever rule has failed. Descriptions, evaluations and
two-way tables send no other sums: between organisations, the guard refuses them.

A partition without small groups has none after some of its groups are pooled, so edges to which
each party agrees alone can be used by all. Parties say only to which groupings and edges they
object, added up. Where the minimum is 1, nothing is small and nothing is said.
"""

from __future__ import annotations

from bisect import bisect, insort
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from coterie.numerics.arrays import FloatArray
from coterie.run.collectives import Protocol, Sum

Bools = npt.NDArray[np.bool_]


def small(counts: npt.ArrayLike, minimum: float) -> Bools:
    """Which groups have some rows here, but fewer than the minimum."""
    found = np.asarray(counts)
    return (found > 0) & (found < minimum)


class SmallCell(AssertionError):
    """A message about a few rows: a rule about small groups has failed."""


class Part(NamedTuple):
    """Numbers of a message, and the rows of this party that they are about."""

    numbers: npt.ArrayLike
    rows: npt.ArrayLike
    """Of each number, or of each group that the numbers tell apart."""


def released(minimum: float, whole: int, *cells: Part) -> Sum:
    """The sum of these numbers over all parties; refuses a small cell before it leaves this party.

    Parameters
    ----------
    minimum : float
        Least rows of a cell, if it has any.
    whole : int
        Rows of this party. How many they are is on its card, and `minimum-rows` is about them: all
        rows together are no cell.
    *cells : Part
        The parts of the message.
    """
    for _, rows in cells:
        counts = np.ravel(np.asarray(rows))
        few = counts[small(counts, minimum) & (counts != whole)]
        if len(few):
            raise SmallCell(
                f"a message is about {int(few.min())} rows of this party, fewer than the minimum "
                f"of {minimum:g}. Nothing of it was sent."
            )
    numbers = [np.ravel(np.asarray(numbers, float)) for numbers, _ in cells]
    return Sum(np.concatenate([np.empty(0), *numbers]), released=True)


def objections(flags: npt.ArrayLike) -> Sum:
    """The sum of flags: whether a party objects to a group. They say nothing about its rows but
    that.
    """
    return Sum(np.asarray(flags, float), released=True)


def allowed(groupings: Sequence[npt.ArrayLike], minimum: float) -> Protocol[list[bool]]:
    """Which groupings leave no small group at any party; each is given by its counts of rows
    here.
    """
    if minimum <= 1 or not groupings:
        return [True] * len(groupings)
    own = [float(small(counts, minimum).any()) for counts in groupings]
    objected = yield objections(own)
    return [not parties for parties in objected.tolist()]


def agree_on_edges(
    proposed: Sequence[FloatArray],
    counts: Sequence[npt.NDArray[np.intp]],
    minimum: float,
    order: Sequence[int] | None = None,
) -> Protocol[list[FloatArray]]:
    """The proposed bins, several rows of edges, without the inner edges that leave a small bin at
    some party.

    counts   for each row of edges the rows here, bins × groups that are told apart
    order    which inner edges to try first, where there is one row of edges; else those in the
             middle
    """
    if minimum <= 1 or not proposed:
        return list(proposed)
    kept = [
        keepable(own, minimum, halving(len(own) - 1) if order is None else order) for own in counts
    ]
    objected = yield objections(np.concatenate([1.0 - one for one in kept]))
    agreed = np.split(objected == 0, np.cumsum([len(one) for one in kept])[:-1])
    return [
        np.concatenate([e[:1], e[1:-1][yes], e[-1:]])
        for e, yes in zip(proposed, agreed, strict=True)
    ]


def keepable(counts: npt.NDArray[np.intp], minimum: float, order: Sequence[int]) -> Bools:
    """Which inner edges of bins this party can agree to, tried in that order: no bin between two of
    them is small.
    """
    bins = counts.reshape(len(counts), -1)
    below = np.vstack([np.zeros((1, bins.shape[1]), bins.dtype), np.cumsum(bins, axis=0)])
    edges, kept = [0, len(bins)], np.zeros(max(len(bins) - 1, 0), np.bool_)
    for inner in order:
        edge = inner + 1
        place = bisect(edges, edge)
        low, high = edges[place - 1], edges[place]
        parts = np.concatenate([below[edge] - below[low], below[high] - below[edge]])
        if not small(parts, minimum).any():
            insort(edges, edge)
            kept[inner] = True
    return kept


def halving(count: int) -> list[int]:
    """The numbers 0 to count − 1: the one in the middle, those in the middle of both halves, and so
    on.
    """
    found: list[int] = []
    parts = [(0, count)]
    for low, high in parts:
        if low < high:
            middle = (low + high) // 2
            found.append(middle)
            parts += [(low, middle), (middle + 1, high)]
    return found


def pooled(counts: npt.NDArray[np.intp], minimum: float) -> tuple[npt.NDArray[np.intp], int]:
    """The rows of each category here that are told, and how many count among "other": no number of
    them is small.

    All rows of small categories count among "other". If these are few, a few rows of the largest
    category do, too.
    """
    rows = np.where(small(counts, minimum), 0, counts)
    while small(others := int(counts.sum() - rows.sum()), minimum) and rows.any():
        largest = int(rows.argmax())
        rows[largest] -= min(int(minimum) - others, rows[largest])
        rows = np.where(small(rows, minimum), 0, rows)
    return rows, others


def left_over(which: npt.NDArray[np.intp], told: npt.NDArray[np.intp]) -> Bools:
    """Which rows count among "other": of each category, the rows after as many as `pooled` tells.

    which    the category of every row
    told     the rows of each category that are told
    """
    order = np.argsort(which, kind="stable")
    counts = np.bincount(which, minlength=len(told))
    first = np.cumsum(counts) - counts
    rank = np.empty(len(which), np.intp)
    rank[order] = np.arange(len(which)) - first[which[order]]
    return rank >= told[which]


def without_few(missing: Bools, minimum: float) -> Bools:
    """The missing values of a column, and as many of its last values as it takes: neither they nor
    the rest are small.

    Always the same values are left out, so that two descriptions do not differ by a row.
    """
    gone = missing.copy()
    there = np.flatnonzero(~missing)
    absent = len(missing) - len(there)
    if small(absent, minimum):
        gone[there[len(there) - (int(minimum) - absent) :]] = True
    if small(len(gone) - gone.sum(), minimum):
        gone[:] = True
    return gone
