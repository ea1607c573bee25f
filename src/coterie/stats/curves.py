"""ROC curves of scores that several parties hold, from counts in agreed bins.

All tell how much of each class is in each bin (`kernels.bins`). Within a bin the order of the scores is unknown, and
the area under the curve can be wrong by at most

    ½ Σ_b p_b n_b / (P N)        p_b, n_b: positives and negatives in bin b; P, N: all of them

The bins that contribute most are cut until this is below a tolerance. A bin that holds one number alone has ties, which
count half, as they should: it contributes nothing. No bin has fewer rows of a class and a party than a minimum, unless
it has none (`groups`): where rows are few, bins stay wide, and the bound says so.
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
from coterie.run.collectives import Protocol, Sum
from coterie.run.groups import agree_on_edges

TOLERANCE = 1e-3
"""What the bins may leave unknown of an area."""

Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Curve:
    """Positives and negatives in bins of the score, in ascending order."""

    edges: FloatArray
    positives: FloatArray
    negatives: FloatArray

    @property
    def _shares(self) -> FloatArray:
        """What each bin leaves unknown of the area."""
        pairs = float(self.positives.sum() * self.negatives.sum())
        if not pairs:
            return np.zeros(len(self.positives))
        shares: FloatArray = self.positives * self.negatives / (2 * pairs)
        return np.where(is_one_number(self.edges[:-1], self.edges[1:]), 0.0, shares)

    @property
    def bound(self) -> float:
        """The area is known up to this."""
        return float(self._shares.sum())

    @property
    def auc(self) -> float:
        """The area under the curve; NaN where a class has no rows."""
        p, n = self.positives, self.negatives
        pairs = float(p.sum() * n.sum())
        if not pairs:
            return math.nan
        below = np.cumsum(n) - n
        return float((p * (below + n / 2)).sum()) / pairs

    def points(self) -> FloatArray:
        """False and true positive rates from (0, 0) to (1, 1), one row per bin that has rows."""
        filled = self.positives + self.negatives > 0
        p, n = self.positives[filled][::-1], self.negatives[filled][::-1]
        if not (p.sum() and n.sum()):
            return np.empty((0, 2))
        rates = np.column_stack([np.cumsum(n) / n.sum(), np.cumsum(p) / p.sum()])
        return np.vstack([np.zeros((1, 2)), rates])

    def to_cut(self, tolerance: float, minimum: float) -> list[int]:
        """As few bins as possible, without which the others leave less than half of the tolerance unknown."""
        shares = self._shares
        if shares.sum() <= tolerance:
            return []
        order = np.argsort(-shares, kind="stable")
        left = shares.sum() - np.cumsum(shares[order])
        chosen = order[: int(np.argmax(left <= tolerance / 2)) + 1]
        enough = (self.positives + self.negatives)[chosen] >= minimum
        return [int(k) for k in chosen[enough & (shares[chosen] > 0)]]

    def refined(self, parts: dict[int, tuple[FloatArray, FloatArray, FloatArray]]) -> Curve:
        """The curve with those bins replaced by edges, positives and negatives of their parts."""
        edges, positives, negatives = [self.edges[:1]], [], []
        for k in range(len(self.positives)):
            local = slice(k, k + 1)
            inner = parts.get(k, (self.edges[k : k + 2], self.positives[local], self.negatives[local]))
            edges.append(inner[0][1:])
            positives.append(inner[1])
            negatives.append(inner[2])
        return Curve(np.concatenate(edges), np.concatenate(positives), np.concatenate(negatives))


def curves(
    scores: Sequence[FloatArray],
    positive: Sequence[Bools],
    weights: FloatArray | None = None,
    *,
    start: Sequence[Curve] | None = None,
    tolerance: float = TOLERANCE,
    minimum: float = 1,
    room: float = math.inf,
) -> Protocol[list[Curve]]:
    """A curve for each of these scores, over the rows of all agents.

    scores, positive   this agent's rows: a score each, and whether the row is of the class
    start              what is known already, in bins that are only cut
    minimum            a bin has at least so many rows of a class of every agent that has any in it
    room               how many numbers this may tell; with less, areas are known less well, or not at all
    """
    known = [_unknown() for _ in scores] if start is None else list(start)
    rows = _Rows(scores, positive, weights)
    wanted = [_first_parts(curve) for curve in known]
    if _cost(wanted, minimum) > room:
        return [_unknown() for _ in scores]
    closed: list[set[float]] = [set() for _ in scores]
    counted_before = start is not None
    cutting = False
    while True:
        room -= _cost(wanted, minimum)
        agreed = yield from _agreed(rows, wanted, minimum)
        if cutting:
            _close(known, agreed, closed)
        if counted_before:
            # A bin that stays whole was counted before.
            agreed = [_divided(parts) for parts in agreed]
        if any(agreed):
            told = yield Sum(np.concatenate(rows.counted(agreed)))
            known = _refined(known, agreed, told)
        counted_before = cutting = True
        numbers_of_a_bin = PARTS * (2 if minimum <= 1 else 3)
        most = int(min(room, 2**40)) // (numbers_of_a_bin * len(scores))
        wanted = []
        for curve, shut in zip(known, closed, strict=True):
            bins = [k for k in curve.to_cut(tolerance, minimum) if curve.edges[k] not in shut]
            wanted.append({k: cut(*curve.edges[k : k + 2]) for k in bins[:most]})
        if not any(wanted):
            return known


Parts = dict[int, FloatArray]
"""Bins of a curve that are cut, by their places, and the edges of their parts."""


@dataclass(frozen=True)
class _Rows:
    """This agent's rows: a score for each curve, whether the row is of its class, and weights."""

    scores: Sequence[FloatArray]
    positive: Sequence[Bools]
    weights: FloatArray | None

    def counted(self, parts: Sequence[Parts], *, weighted: bool = True) -> list[FloatArray]:
        """How much of both classes is in the parts of each bin, one bin after the other."""
        weights = self.weights if weighted else None
        found = []
        for scores, positive, one in zip(self.scores, self.positive, parts, strict=True):
            found += [_by_class(scores, positive, weights, edges) for edges in one.values()]
        return found


def _unknown() -> Curve:
    """One bin that nothing is known of."""
    return Curve(np.array([-np.inf, np.inf]), np.zeros(1), np.zeros(1))


def _first_parts(curve: Curve) -> Parts:
    """The bins of a curve in which there are some of the first edges."""
    parts = {k: _within(*ends) for k, ends in enumerate(pairwise(curve.edges.tolist()))}
    return _divided(parts)


def _divided(parts: Parts) -> Parts:
    """Without bins that stay whole."""
    return {k: edges for k, edges in parts.items() if len(edges) > 2}


def _close(known: Sequence[Curve], agreed: Sequence[Parts], closed: Sequence[set[float]]) -> None:
    """Remember which bins a party cannot cut, by their lower edges."""
    for curve, parts, shut in zip(known, agreed, closed, strict=True):
        shut |= {float(curve.edges[k]) for k, edges in parts.items() if len(edges) == 2}


def _agreed(rows: _Rows, wanted: Sequence[Parts], minimum: float) -> Protocol[list[Parts]]:
    """The parts on which all agree."""
    local = [one.reshape(2, -1).T.astype(np.intp) for one in rows.counted(wanted, weighted=False)]
    proposed = [edges for parts in wanted for edges in parts.values()]
    agreed = iter((yield from agree_on_edges(proposed, local, minimum)))
    return [{k: next(agreed) for k in parts} for parts in wanted]


def _refined(known: Sequence[Curve], agreed: Sequence[Parts], told: FloatArray) -> list[Curve]:
    """The curves with those bins replaced by what was told of their parts."""
    found = []
    at = 0
    for curve, parts in zip(known, agreed, strict=True):
        inner = {}
        for k, edges in parts.items():
            size = len(edges) - 1
            inner[k] = edges, told[at : at + size], told[at + size : at + 2 * size]
            at += 2 * size
        found.append(curve.refined(inner))
    return found


def _within(low: float, high: float) -> FloatArray:
    """The first edges between these two, and both."""
    first = first_edges()
    return np.concatenate([[low], first[(first > low) & (first < high)], [high]])


def _cost(wanted: Sequence[Parts], minimum: float) -> int:
    """How many numbers it takes, at most, to agree on these bins and to count both classes in them."""
    bins = [len(edges) - 1 for parts in wanted for edges in parts.values()]
    if minimum > 1:
        return 3 * sum(bins) - len(bins)
    return 2 * sum(bins)


def _by_class(scores: FloatArray, positive: Bools, weights: FloatArray | None, edges: FloatArray) -> FloatArray:
    """Counts, or weights, of both classes in bins."""
    parts = []
    for rows in (positive, ~positive):
        shares = None if weights is None else weights[rows]
        parts.append(counts(scores[rows], edges, shares))
    return np.concatenate(parts)
