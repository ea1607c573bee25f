"""Models with deviations of users whose rows are all here: Newton's steps of `shared-newton`, for
everybody at once.

    S = Σ_u (Z_uᵀD_uZ_u − H_uP_u⁻¹H_uᵀ) + Λ,   H_u = Z_uᵀD_uA_u,   P_u = A_uᵀD_uA_u + M,   D =
                                               diag(ℓ'')/N

with Z = [X, 1], and in A its columns in which users deviate. A choice among models needs many fits
of which only predictions are wanted, and no proof: these take milliseconds. What they would send is
billed as `shared-newton` does.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from coterie.data import Table
from coterie.errors import NumericalError
from coterie.networks import star
from coterie.numerics.arrays import FloatArray, is_sparse, is_tensor
from coterie.numerics.losses import Loss
from coterie.problems.shared.problem import Shared
from coterie.run.bill import Bill
from coterie.stats.choosing import Marks

COLUMNS, WASTE = 64, 4
"""More columns, or so many times as many places as rows, and another way is shorter."""
STEPS, ENOUGH, HALVINGS = 40, 1e-6, 30
"""Newton's steps at most; the share of the loss below which what they promise is enough; how often
one is halved.
"""
FLOOR = 1e-10
"""Of the curvature: keeps the intercept's positive where all scores are far away."""


def suits(problem: Any, tables: Sequence[Table]) -> bool:
    """Whether these rows and this problem are of the kind that is solved here."""
    if not isinstance(problem, Shared) or problem.penalty.name != "l2" or not problem.intercept:
        return False
    smooth = type(problem.loss).curvature is not Loss.curvature and not problem.loss.steep
    plain = all(
        table.weights is None
        and table.offset is None
        and not is_sparse(table.X)
        and not is_tensor(table.X)
        for table in tables
    )
    rows, most = sum(table.n for table in tables), max(table.n for table in tables)
    return smooth and plain and tables[0].d <= COLUMNS and len(tables) * most <= WASTE * rows + 1000


class _Padded:
    """Rows of all users, users × places × columns."""

    def __init__(self, tables: Sequence[Table], positive: Any):
        most = max((table.n for table in tables), default=0)
        self.Z = np.zeros((len(tables), most, tables[0].d + 1))
        self.y = np.ones((len(tables), most))
        self.rows = np.array([float(table.n) for table in tables])
        self.here = np.arange(most) < self.rows[:, None]
        for place, table in enumerate(tables):
            if table.n and table.y is not None:
                self.Z[place, : table.n, :-1] = table.X
                self.Z[place, : table.n, -1] = 1.0
                labels = table.y if positive is None else np.where(table.y == positive, 1.0, -1.0)
                self.y[place, : table.n] = labels

    def scores(self, w: FloatArray, own: FloatArray) -> FloatArray:
        found: FloatArray = (self.Z @ (w + own)[:, :, None])[:, :, 0]
        return found

    def each(self, function: Any, scores: FloatArray) -> FloatArray:
        """What a loss says of every row, and 0 where there is none."""
        found = np.zeros(scores.shape)
        found[self.here] = function(scores[self.here], self.y[self.here])
        return found


class Direct:
    """One fold: rows to learn from, rows kept back, and where the last fit ended."""

    def __init__(self, parts: Sequence[tuple[Table, Table]], positive: Any):
        self.kept, self.held = (
            _Padded([part[side] for part in parts], positive) for side in (0, 1)
        )
        self.positive = positive
        users, width = len(parts), self.kept.Z.shape[2]
        self.w, self.own = np.zeros(width), np.zeros((users, width))

    def marks(self, problem: Shared) -> Marks:
        """Fit, and predict the rows that were kept back."""
        bits = self._fit(problem)
        held, loss = self.held, problem.loss
        scores = held.scores(self.w, self.own)
        losses = held.each(loss.each, scores)
        if self.positive is None:
            right = -held.each(lambda u, y: np.square(loss.response(u) - y), scores)
        else:
            right = held.each(lambda u, y: ((u > 0) == (y > 0)).astype(float), scores)
        return Marks(right.sum(axis=1), losses.sum(axis=1), held.rows, bits)

    def _fit(self, problem: Shared) -> int:
        kept, loss, (users, _, width) = self.kept, problem.loss, self.kept.Z.shape
        total = float(kept.rows.sum())
        places = np.flatnonzero(np.isfinite([problem.mu] * (width - 1) + [problem.nu]))
        price = np.array([problem.mu] * (width - 1) + [problem.nu])[places]
        ridge = np.append(np.full(width - 1, problem.penalty.settings()["strength"]), 0.0)
        A = np.ascontiguousarray(kept.Z[:, :, places])
        Zt, At = (np.ascontiguousarray(one.transpose(0, 2, 1)) for one in (kept.Z, A))
        w, own = self.w, np.zeros((users, width))
        own[:, places] = self.own[:, places]
        bill = Bill(star(users, server=True))

        def value(w: FloatArray, own: FloatArray, scores: FloatArray) -> float:
            prices = float((price * np.square(own[:, places])).sum()) + float(ridge @ np.square(w))
            return float(kept.each(loss.each, scores).sum()) / total + 0.5 * prices

        scores = kept.scores(w, own)
        now = value(w, own, scores)
        for _ in range(STEPS):
            gradients = kept.each(loss.gradient, scores) / total
            curvatures = kept.each(loss.curvature, scores) / total
            by_user = (Zt @ gradients[:, :, None])[:, :, 0]
            g = by_user.sum(axis=0) + ridge * w
            S = (Zt @ (curvatures[:, :, None] * kept.Z)).sum(axis=0)
            S.flat[:: width + 1] += ridge + FLOOR * np.trace(S) / width + FLOOR
            right = -g
            way = np.zeros((users, width))
            if len(places):
                weighted = curvatures[:, :, None] * A
                H, P = Zt @ weighted, At @ weighted
                P[:, np.arange(len(places)), np.arange(len(places))] += price
                h = by_user[:, places] + price * own[:, places]
                solved = np.linalg.solve(
                    P, np.concatenate([H.transpose(0, 2, 1), h[:, :, None]], axis=2)
                )
                inverse, pull = solved[:, :, :-1], solved[:, :, -1]
                S -= (H @ inverse).sum(axis=0)
                right += (H @ pull[:, :, None])[:, :, 0].sum(axis=0)
            step = _solved(S, right)
            if len(places):
                way[:, places] = -(pull + inverse @ step)
            down = float(g @ step)
            down += float((h * way[:, places]).sum()) if len(places) else 0.0
            bill.say("rounds", "Sum", width * (width + 1) // 2 + width + 2, 8)
            if not -down > ENOUGH * abs(now):
                break
            share = 1.0
            for _ in range(HALVINGS):
                there = w + share * step, own + share * way
                after = kept.scores(*there)
                if (then := value(*there, after)) <= now + 1e-4 * share * down:
                    break
                share *= 0.5
            else:
                break
            (w, own), scores, now = there, after, then
        self.w, self.own = w, own
        return bill.total.bits


def _solved(S: FloatArray, right: FloatArray) -> FloatArray:
    found: FloatArray = np.linalg.solve(S, right)
    if not math.isfinite(float(found.sum())):
        raise NumericalError("the equations of the common model are singular. Scale the columns.")
    return found
