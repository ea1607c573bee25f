"""ROC curves of scores that several parties hold, from counts in agreed bins.

All parties send their rows of each class, or the weights of these, in each bin (`kernels.bins`).
The order of the scores within a bin is unknown. The area under the curve can therefore be wrong by
at most

    ½ Σ_b p_b n_b / (P N)        p_b, n_b: positives and negatives in bin b; P, N: all of them

The bins that contribute most are cut until this bound is below a tolerance. A bin with one number
only has ties, which rightly count half, and it contributes nothing. A bin has at least the minimum
number of rows of a class of every party that has any in it (`groups`). Where rows are few, bins
stay wide and the bound stays large.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from coterie.numerics.arrays import FloatArray
from coterie.numerics.kernels.bins import PARTS, counts, cut, first_edges, is_one_number
from coterie.run.collectives import Protocol
from coterie.run.groups import Part, agree_on_edges, checked_weights, released

TOLERANCE = 1e-3
"""Largest bound of the error of an area."""

Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Curve:
    """Positives and negatives in bins of the score, in ascending order."""

    edges: FloatArray
    positives: FloatArray
    negatives: FloatArray

    @property
    def _shares(self) -> FloatArray:
        """The contribution of each bin to the bound."""
        pairs = float(self.positives.sum() * self.negatives.sum())
        if not pairs:
            return np.zeros(len(self.positives))
        shares: FloatArray = self.positives * self.negatives / (2 * pairs)
        tied = is_one_number(self.edges[:-1], self.edges[1:])
        return np.where(tied, 0.0, shares)

    @property
    def bound(self) -> float:
        """The largest possible error of the area."""
        return float(self._shares.sum())

    @property
    def auc(self) -> float:
        """The area under the curve; NaN where a class has no rows."""
        p = self.positives
        n = self.negatives
        pairs = float(p.sum() * n.sum())
        if not pairs:
            return math.nan
        below = np.cumsum(n) - n
        ordered = p * (below + n / 2)
        return float(ordered.sum()) / pairs

    def points(self) -> FloatArray:
        """False and true positive rates from (0, 0) to (1, 1), one row per bin that has rows."""
        filled = self.positives + self.negatives > 0
        p = self.positives[filled][::-1]
        n = self.negatives[filled][::-1]
        if not (p.sum() and n.sum()):
            return np.empty((0, 2))
        false_rates = np.cumsum(n) / n.sum()
        true_rates = np.cumsum(p) / p.sum()
        rates = np.column_stack([false_rates, true_rates])
        return np.vstack([np.zeros((1, 2)), rates])

    def to_cut(self, tolerance: float, minimum: float) -> list[int]:
        """The fewest bins without which the bound is at most half of the tolerance."""
        shares = self._shares
        if shares.sum() <= tolerance:
            return []
        order = np.argsort(-shares, kind="stable")
        left = shares.sum() - np.cumsum(shares[order])
        count = int(np.argmax(left <= tolerance / 2)) + 1
        chosen = order[:count]
        enough = (self.positives + self.negatives)[chosen] >= minimum
        useful = shares[chosen] > 0
        return [int(k) for k in chosen[enough & useful]]

    def part(self, k: int) -> Curve:
        """One bin as a curve."""
        place = slice(k, k + 1)
        edges = self.edges[k : k + 2]
        return Curve(edges, self.positives[place], self.negatives[place])

    def refined(self, parts: dict[int, Curve]) -> Curve:
        """The curve with those bins replaced by their parts."""
        edges = [self.edges[:1]]
        positives = []
        negatives = []
        for k in range(len(self.positives)):
            part = parts.get(k) or self.part(k)
            edges.append(part.edges[1:])
            positives.append(part.positives)
            negatives.append(part.negatives)
        return Curve(np.concatenate(edges), np.concatenate(positives), np.concatenate(negatives))


def curves(
    scores: Sequence[FloatArray],
    positive: Sequence[Bools],
    weights: FloatArray | None = None,
    *,
    start: Sequence[Curve] | None = None,
    tolerance: float = TOLERANCE,
    minimum: float = 1,
    allowance: float = math.inf,
) -> Protocol[list[Curve]]:
    """Find a curve for each of these scores, over the rows of all agents.

    Parameters
    ----------
    scores, positive : sequence of arrays
        This agent's rows: a score each, and whether the row is of the class.
    weights : array, optional
        The weights of this agent's rows.
    start : sequence of Curve, optional
        Known curves, whose bins are only cut.
    tolerance : float, default=0.001
        Largest bound of the error of an area.
    minimum : float, default=1
        Least rows of a class in a bin, of every agent that has any in it.
    allowance : float, default=inf
        Most numbers that an agent may send. A smaller allowance gives larger bounds, or no curves.
    """
    unknown = [_unknown() for _ in scores]
    if start is None:
        known = unknown
    else:
        known = list(start)
    rows = _Rows(scores, positive, weights)
    wanted = [_first_parts(curve) for curve in known]
    cost = _cost(wanted, minimum)
    if cost > allowance:
        return unknown
    allowance -= cost
    agreed = yield from _agreed(rows, wanted, minimum)
    if start is not None:
        # A bin that stays whole was counted before.
        agreed = _divided(agreed)
    known = yield from _counted(rows, known, agreed, minimum)
    closed: list[set[float]] = [set() for _ in scores]
    while True:
        most = _affordable_bins(allowance, minimum, len(scores))
        wanted = []
        for curve, shut in zip(known, closed, strict=True):
            edges = curve.edges
            bins = [k for k in curve.to_cut(tolerance, minimum) if edges[k] not in shut]
            parts = {}
            for k in bins[:most]:
                parts[k] = cut(edges[k], edges[k + 1])
            wanted.append(parts)
        if not any(wanted):
            return known
        allowance -= _cost(wanted, minimum)
        agreed = yield from _agreed(rows, wanted, minimum)
        _close(known, agreed, closed)
        known = yield from _counted(rows, known, _divided(agreed), minimum)


def _affordable_bins(allowance: float, minimum: float, curves: int) -> int:
    """The number of bins of each curve that can be cut."""
    if minimum <= 1:
        numbers_of_a_part = 2
    else:
        numbers_of_a_part = 3
    affordable = int(min(allowance, 2**40))
    return affordable // (PARTS * numbers_of_a_part * curves)


Parts = dict[int, FloatArray]
"""Bins of a curve that are cut, by their places, and the edges of their parts."""


@dataclass(frozen=True)
class _Rows:
    """This agent's rows: a score for each curve, whether the row is of its class, and weights."""

    scores: Sequence[FloatArray]
    positive: Sequence[Bools]
    weights: FloatArray | None

    def counted(self, parts: Sequence[Parts], *, weighted: bool = True) -> list[FloatArray]:
        """Rows, or weights, of both classes in the parts of each bin, one bin after the other."""
        weights = None
        if weighted:
            weights = self.weights
        found = []
        for scores, positive, one in zip(self.scores, self.positive, parts, strict=True):
            found += [_by_class(scores, positive, weights, edges) for edges in one.values()]
        return found


def _unknown() -> Curve:
    """One bin with all scores; its rows are unknown."""
    return Curve(np.array([-np.inf, np.inf]), np.zeros(1), np.zeros(1))


def _first_parts(curve: Curve) -> Parts:
    """The bins of a curve that contain some of the first edges."""
    parts = {}
    for k, (low, high) in enumerate(pairwise(curve.edges.tolist())):
        parts[k] = _within(low, high)
    (divided,) = _divided([parts])
    return divided


def _divided(bins: Sequence[Parts]) -> list[Parts]:
    """The parts of each curve without bins that stay whole."""
    return [{k: edges for k, edges in parts.items() if len(edges) > 2} for parts in bins]


def _close(known: Sequence[Curve], agreed: Sequence[Parts], closed: Sequence[set[float]]) -> None:
    """Remember the bins that a party cannot cut, by their lower edges."""
    for curve, parts, shut in zip(known, agreed, closed, strict=True):
        whole = [k for k, edges in parts.items() if len(edges) == 2]
        shut |= {float(curve.edges[k]) for k in whole}


def _agreed(rows: _Rows, wanted: Sequence[Parts], minimum: float) -> Protocol[list[Parts]]:
    """The parts on which all parties agree."""
    counted = rows.counted(wanted, weighted=False)
    local = [one.reshape(2, -1).T.astype(np.intp) for one in counted]
    proposed = [edges for parts in wanted for edges in parts.values()]
    agreed_edges = yield from agree_on_edges(proposed, local, minimum)
    agreed = iter(agreed_edges)
    return [{k: next(agreed) for k in parts} for parts in wanted]


def _counted(
    rows: _Rows, known: list[Curve], agreed: Sequence[Parts], minimum: float
) -> Protocol[list[Curve]]:
    """The curves with bins replaced by their parts, which all parties count."""
    if not any(agreed):
        return known
    counted = rows.counted(agreed)
    about = rows.counted(agreed, weighted=False)
    cells = [Part(numbers, own) for numbers, own in zip(counted, about, strict=True)]
    total = yield released(minimum, len(rows.scores[0]), *cells)
    total = checked_weights(total, "scores in bins")
    found = []
    start = 0
    for curve, parts in zip(known, agreed, strict=True):
        inner = {}
        for k, edges in parts.items():
            bins = len(edges) - 1
            middle = start + bins
            end = middle + bins
            inner[k] = Curve(edges, total[start:middle], total[middle:end])
            start = end
        found.append(curve.refined(inner))
    return found


def _within(low: float, high: float) -> FloatArray:
    """The first edges between these two, and both."""
    first = first_edges()
    inner = first[(first > low) & (first < high)]
    return np.concatenate([[low], inner, [high]])


def _cost(wanted: Sequence[Parts], minimum: float) -> int:
    """The most numbers that it takes to agree on these bins and to count both classes in them."""
    bins = [len(edges) - 1 for parts in wanted for edges in parts.values()]
    if minimum > 1:
        return 3 * sum(bins) - len(bins)
    return 2 * sum(bins)


def _by_class(
    scores: FloatArray, positive: Bools, weights: FloatArray | None, edges: FloatArray
) -> FloatArray:
    """Counts, or weights, of both classes in bins."""
    parts = []
    for rows in (positive, ~positive):
        shares = None
        if weights is not None:
            shares = weights[rows]
        parts.append(counts(scores[rows], edges, shares))
    return np.concatenate(parts)
