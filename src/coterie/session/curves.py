"""ROC curves of scores that several parties hold, from counts in agreed bins.

All tell how much of each class is in each bin (`kernels.bins`). Within a bin the order of the scores is unknown, and
the area under the curve can be wrong by at most

    ½ Σ_b p_b n_b / (P N)        p_b, n_b: positives and negatives in bin b; P, N: all of them

The bins that contribute most are cut until this is below a tolerance. A bin that holds one number alone has ties, which
count half, as they should: it contributes nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from coterie.arrays import FloatArray
from coterie.kernels.bins import PARTS, counts, cut, first_edges, is_one_number
from coterie.words import Sum, Talk

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
        below = np.cumsum(n) - n
        return float((p * (below + n / 2)).sum()) / pairs if pairs else math.nan

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
            here = slice(k, k + 1)
            inner = parts.get(k, (self.edges[k : k + 2], self.positives[here], self.negatives[here]))
            edges.append(inner[0][1:])
            positives.append(inner[1])
            negatives.append(inner[2])
        return Curve(np.concatenate(edges), np.concatenate(positives), np.concatenate(negatives))


def curves(
    scores: Sequence[FloatArray],
    positive: Sequence[Bools],
    weights: FloatArray | None = None,
    *,
    tolerance: float = TOLERANCE,
    minimum: float = 1,
    room: float = math.inf,
) -> Talk[list[Curve]]:
    """A curve for each of these scores, over the rows of all agents.

    scores, positive   this agent's rows: a score each, and whether the row is of the class
    minimum            a bin with fewer rows, of all agents together, is not cut
    room               how many numbers this may tell; with less, areas are known less well, or not at all
    """
    known = [Curve(np.array([-np.inf, np.inf]), np.zeros(1), np.zeros(1)) for _ in scores]
    fits = 2 * len(scores) * (len(first_edges()) - 1) <= room
    wanted: list[list[FloatArray]] = [[first_edges()] if fits else [] for _ in scores]
    bins: list[list[int]] = [[] for _ in scores]
    while any(wanted):
        said = [
            _by_class(u, yes, weights, edges)
            for u, yes, parts in zip(scores, positive, wanted, strict=True)
            for edges in parts
        ]
        told = yield Sum(np.concatenate(said))
        room -= told.size
        start = 0
        for place, parts in enumerate(wanted):
            found = []
            for edges in parts:
                size = len(edges) - 1
                found.append((edges, told[start : start + size], told[start + size : start + 2 * size]))
                start += 2 * size
            if bins[place]:
                known[place] = known[place].refined(dict(zip(bins[place], found, strict=True)))
            elif found:
                known[place] = Curve(*found[0])
        most = int(min(room, 2**40)) // (2 * PARTS * len(scores))
        bins = [curve.to_cut(tolerance, minimum)[:most] for curve in known]
        wanted = [[cut(*curve.edges[k : k + 2]) for k in chosen] for curve, chosen in zip(known, bins, strict=True)]
    return known


def _by_class(scores: FloatArray, positive: Bools, weights: FloatArray | None, edges: FloatArray) -> FloatArray:
    parts = [counts(scores[rows], edges, None if weights is None else weights[rows]) for rows in (positive, ~positive)]
    return np.concatenate(parts)
