"""Add up groups of rows over parties, without small groups.

A group is small at a party if the party has some rows in it, but fewer than `minimum`. A recipient
that knows the rest of the aggregate can compute the party's sum over a small group, which is about
few rows. Every table, bin, category and cluster passes through this module:

    groups with a fixed meaning    `allowed`: parties object to groupings, and no party sends a
                                   grouping to which one of them objects
    bins of a number               `agree_on_edges`: edges that leave a small bin at some party are
                                   left out
    categories                     `pooled`: a party counts rows of its own small categories among
                                   "other"
    cells of a two-way table       `stats.suppression.withheld`: a party withholds small cells, and
                                   the cells that would reveal them through totals
    missing values                 `without_few`: a party leaves a few values out, so that no count
                                   of them is small

One function, `released`, makes all of these messages. Its arguments include the number of rows of
each cell of a message. It refuses a small cell, whichever rule has failed. Descriptions,
evaluations and two-way tables send no other sums: between organisations, the guard refuses them.

If a partition has no small groups, it has none after some groups are pooled. So all parties can use
the edges to which each party agrees on its own. Parties send only their objections to groupings and
edges, as part of a sum. With a minimum of 1, no group is small, and parties send no objections.
"""

from __future__ import annotations

from bisect import bisect, insort
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from coterie.errors import ProtocolError
from coterie.numerics.arrays import FloatArray
from coterie.run.collectives import Protocol, Sum

Bools = npt.NDArray[np.bool_]
MOST_ROWS = 2.0**53
"""Largest count that a sum may contain."""


def small(counts: npt.ArrayLike, minimum: float) -> Bools:
    """Return which of these counts of rows are above 0 and below the minimum."""
    found = np.asarray(counts)
    return (found > 0) & (found < minimum)


OBJECTIONS = "objections to small groups"


class SmallCell(AssertionError):
    """A rule about small groups has failed: a message is about too few rows."""


class Part(NamedTuple):
    """Numbers of a message, and how many rows of this party each is about."""

    numbers: npt.ArrayLike
    rows: npt.ArrayLike
    """Counts of rows: one for each number, or one for each group that the numbers distinguish."""


def released(minimum: float, whole: int, *cells: Part) -> Sum:
    """Return a collective that sums these numbers over all parties; refuse a small cell first.

    The refusal comes before any number leaves this party.

    Parameters
    ----------
    minimum : float
        Least number of rows of a cell that has rows.
    whole : int
        Number of rows of this party. The party's card states this number, and `minimum-rows`
        limits it, so all rows together do not count as a cell.
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


def checked_counts(total: FloatArray, own: npt.ArrayLike, what: str) -> FloatArray:
    """Return counts from a sum; refuse counts that no parties have together.

    Masks hide who sent which number, so the error names no party.

    Parameters
    ----------
    total : array
        The sum over all parties.
    own : array
        What this party added to it. The sum contains at least that.
    what : str
        What is counted, for the error.

    Raises
    ------
    ProtocolError
        If a count is no whole number, too large, or below the count of this party.
    """
    whole = np.isfinite(total) & (total == np.round(total))
    possible = whole & (total >= np.ravel(np.asarray(own))) & (total <= MOST_ROWS)
    if not possible.all():
        raise wrong_counts(what)
    return total


def checked_weights(total: FloatArray, what: str) -> FloatArray:
    """Return sums of weights of rows; refuse sums below 0, as `checked_counts` does."""
    if not (total >= 0).all():
        raise wrong_counts(what)
    return total


def wrong_counts(what: str) -> ProtocolError:
    """Return the error about counts that contradict others, or are impossible."""
    return ProtocolError(f"the counts of {what} do not add up: a party sent wrong numbers.")


def objections(flags: npt.ArrayLike) -> Sum:
    """Return a collective that sums flags: whether a party objects to each group.

    A flag discloses nothing else about the rows of the party.
    """
    return Sum(np.asarray(flags, float), released=True)


def allowed(groupings: Sequence[npt.ArrayLike], minimum: float) -> Protocol[list[bool]]:
    """Return which groupings leave no small group at any party.

    A grouping is given by this party's number of rows in each of its groups.
    """
    if minimum <= 1 or not groupings:
        return [True] * len(groupings)
    own = [float(small(counts, minimum).any()) for counts in groupings]
    total = yield objections(own)
    objected = checked_counts(total, own, OBJECTIONS)
    return [not parties for parties in objected.tolist()]


def agree_on_edges(
    proposed: Sequence[FloatArray],
    counts: Sequence[npt.NDArray[np.intp]],
    minimum: float,
    order: Sequence[int] | None = None,
) -> Protocol[list[FloatArray]]:
    """Return the proposed bins without the inner edges that leave a small bin at some party.

    proposed  arrays of edges, one for each set of bins
    counts    number of rows of this party, one array for each array of edges: bins × groups within
              a bin
    order     order in which to try the inner edges of every array; by default those in the middle
              come first (`halving`)
    """
    if minimum <= 1 or not proposed:
        return list(proposed)
    kept = [
        keepable(own, minimum, halving(len(own) - 1) if order is None else order) for own in counts
    ]
    flags = np.concatenate([1.0 - one for one in kept])
    total = yield objections(flags)
    objected = checked_counts(total, flags, OBJECTIONS)
    agreed = np.split(objected == 0, np.cumsum([len(one) for one in kept])[:-1])
    return [
        np.concatenate([e[:1], e[1:-1][yes], e[-1:]])
        for e, yes in zip(proposed, agreed, strict=True)
    ]


def keepable(counts: npt.NDArray[np.intp], minimum: float, order: Sequence[int]) -> Bools:
    """Return which inner edges of bins this party can accept, tried in that order.

    No bin between two accepted edges is small.
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
    """Return the numbers 0 to count − 1 in bisection order.

    The middle number comes first, then the middle of each half, and so on.
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
    """Return the rows that this party counts in each category, and those it counts as "other".

    None of these counts is small. All rows of small categories count as "other". If their number is
    small, some rows of the largest category count as "other", too.
    """
    rows = np.where(small(counts, minimum), 0, counts)
    while small(others := int(counts.sum() - rows.sum()), minimum) and rows.any():
        largest = int(rows.argmax())
        rows[largest] -= min(int(minimum) - others, rows[largest])
        rows = np.where(small(rows, minimum), 0, rows)
    return rows, others


def left_over(which: npt.NDArray[np.intp], told: npt.NDArray[np.intp]) -> Bools:
    """Return which rows count as "other": the last rows of each category.

    The party counts the first rows of a category in the category itself.

    which    category of each row
    told     number of rows that the party counts in each category, from `pooled`
    """
    order = np.argsort(which, kind="stable")
    counts = np.bincount(which, minlength=len(told))
    first = np.cumsum(counts) - counts
    rank = np.empty(len(which), np.intp)
    rank[order] = np.arange(len(which)) - first[which[order]]
    return rank >= told[which]


def without_few(missing: Bools, minimum: float) -> Bools:
    """Return which values of a column to leave out: missing values and, if needed, its last values.

    Neither the number of values left out nor the number of the rest is small. The function always
    leaves out the same values, so that two descriptions do not differ by a row.
    """
    gone = missing.copy()
    there = np.flatnonzero(~missing)
    absent = len(missing) - len(there)
    if small(absent, minimum):
        gone[there[len(there) - (int(minimum) - absent) :]] = True
    if small(len(gone) - gone.sum(), minimum):
        gone[:] = True
    return gone
