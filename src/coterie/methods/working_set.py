"""Newton's step for many columns beside l1: on those columns only that are not 0, or want to leave it.

Where these are few, or rows are dense, all agents add up the triangle of the Hessian on them and minimise the quadratic
model. Sparse rows with many rare columns would make that triangle too large to send. Of these, all columns that want to
move do so at once: the agents add up the diagonal of H, and its triangle on the `BLOCK` columns of the largest
curvature, which many rows share. What else there is of H they learn in steps of a quasi-Newton method (Scheinberg and
Tang, 2016, "Practical inexact proximal quasi-Newton method with global complexity analysis"):

    B₀  = H on the block, diag H elsewhere
    p   = argmin ⟨∇f(w), p⟩ + ½ pᵀBp + g(w + p)                                                coordinate descent, alone
    y   = ∇f(w + p) − ∇f(w)                                      a `Sum` of a number for each column in play, and of f
    B⁺  = B − (Bp)(Bp)ᵀ/(pᵀBp) + yyᵀ/(pᵀy)                                                       so that B⁺p = y
    w⁺  = w + p                           if P falls; if not, B⁺ knows better or p is shortened, and w stays where it is

Rare columns have few rows in common, so that the Hessian without the block is nearly diagonal, and a dozen such steps
reach the optimum on the columns in play. As only differences of slopes travel, single precision is enough for them:
their error is relative to the step. Every round begins with the whole slope in double precision.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from coterie.agent import Agent, Here
from coterie.arrays import CentredDesign, Design, FloatArray, is_sparse, sealed, shared_result
from coterie.kernels.low_rank_descent import low_rank_descent
from coterie.methods.quadratic import diagonal, minimiser, packed, second_moment, unpacked
from coterie.words import Sum, Talk

Columns = npt.NDArray[np.intp]

EXACT, MOST, SPARSE = 256, 1500, 0.02
"""Columns in play up to which all of their triangle is added up: the first number, or the second unless at most that
share of the data is not 0."""
FIRST = 200
"""Columns that may come into play at once; or as many as are in play already, if these are more."""
BLOCK = 128
"""Columns on which all of H is added up, where it is not on all columns in play."""
STEPS, MORE_STEPS, FEW = 8, 24, 0.1
"""Steps of the quasi-Newton method in a round at most; and if only so small a share of the columns came into play."""
NEARER = 0.1, 0.01
"""A round ends when the optimality conditions on the columns in play are so much nearer to holding than they were on
all columns when it began: the second number when they nearly held."""
FARTHEST = 10.0
"""Where the conditions fail by more than this, in units of λ, the columns in play are not yet the right ones."""
MIXED, TRUSTED = 8, 10.0
"""Slopes that are mixed to a better dual, and what their shares may add up to without their signs."""
SWEEPS, SHARE = 40, 1e-2
"""Sweeps of coordinate descent in a step at most, and the share of the gain at which they end."""
DECREASE = 0.01
"""The share of the linear decrease that a step must come to."""
PATIENCE, SHORTEST, LONGEST = 1, 0.1, 0.5
"""After so many steps in succession that failed though B learned from each, and after one from which it did not, the
next one is a share of the last between these."""
FLAT = 0.1
"""Where ℓ'' is constant by pieces, it counts as this share of its largest value at least."""
GIVE_UP = 8
"""A round ends after so many steps in succession that failed."""
SINGLE = 1e-5
"""The share of a number in single precision that is not trusted."""
LARGEST = 1e30
"""What fits into single precision, with others of its kind."""


class Target(NamedTuple):
    """Where to go from w."""

    w: FloatArray
    slope: FloatArray
    """∇f where it began."""
    losses: float
    """Σ s ℓ there."""
    v: FloatArray | None = None
    """A dual of its own rows that is better than the slopes at w, if there is one."""


class Wanted(NamedTuple):
    """Columns that are not 0 or want to leave it, and the intercept."""

    all: Columns
    few: Columns
    """Those that are not 0 and the steepest others: at most as many again, or `FIRST` in all."""


def target(agent: Agent, w: FloatArray, here: Here, curvature: FloatArray) -> Talk[Target]:
    """The minimum on the columns in play, of the quadratic model or nearly that of P itself."""
    total = yield Sum(np.append(here.adjoint, here.losses))
    slope = shared_result(total, lambda: total[:-1] / agent.total)
    wanted = shared_result(total, _wanted, agent, w, slope)
    few = True
    if len(wanted.all) > EXACT:
        X = agent.data.X
        filled, cells = yield Sum(np.array([X.nnz if is_sparse(X) else X.size, math.prod(X.shape)], float))
        few = len(wanted.few) <= MOST and float(filled) > SPARSE * float(cells)
    columns = wanted.few if few else wanted.all
    found, v = yield from (_exactly if few else _step_by_step)(agent, w, slope, columns, here, curvature)

    def placed() -> FloatArray:
        z = w.copy()
        z[columns] = found
        return sealed(z)

    return Target(shared_result(total, placed), slope, float(total[-1]), v)


def _wanted(agent: Agent, w: FloatArray, slope: FloatArray) -> Wanted:
    pull = np.abs(slope)
    pull[w != 0] = np.inf
    if agent.problem.intercept:
        pull[-1] = np.inf
    held = int(np.isinf(pull).sum())
    wanted = np.flatnonzero(pull > _threshold(agent))
    most = max(FIRST, 2 * held)
    return Wanted(wanted, wanted if len(wanted) <= most else np.sort(np.argsort(-pull, kind="stable")[:most]))


def _exactly(
    agent: Agent, w: FloatArray, slope: FloatArray, columns: Columns, here: Here, curvature: FloatArray
) -> Talk[tuple[FloatArray, FloatArray | None]]:
    message = yield Sum(packed(second_moment(agent.centred, curvature, columns)))

    def minimum() -> FloatArray:
        H = unpacked(message, len(columns)) / agent.total
        return minimiser(agent, H, slope[columns], w[columns])[0]

    return shared_result(message, minimum), None


def _step_by_step(
    agent: Agent, w: FloatArray, slope: FloatArray, columns: Columns, here: Here, curvature: FloatArray
) -> Talk[tuple[FloatArray, FloatArray | None]]:
    design, loss = _restricted(agent.centred, columns), agent.problem.loss
    if loss.conjugate_curvature is not None:
        # A column may have no rows but flat ones, and its curvature is then still to come.
        curvature = np.maximum(curvature, agent.weighted(np.full(len(curvature), FLAT * loss.smoothness)))
    bends = yield Sum(diagonal(design, curvature))
    block = shared_result(bends, _largest, agent, bends)
    message = yield Sum(packed(second_moment(design, curvature, block)))
    model = shared_result(message, _first, agent, w, slope, columns, bends, block, message)
    scores, slopes, values = here.scores, here.slopes, loss.each(here.scores, here.y)
    duals = [slopes]
    new = np.count_nonzero(w[columns] == 0)
    most = STEPS if new > FEW * len(columns) else MORE_STEPS
    for _ in range(MORE_STEPS):
        if model.steps == most or model.failures == GIVE_UP or not model.way.any():
            break
        there = scores + design.forward(model.way)
        slopes_there, values_there = loss.gradient(there, here.y), loss.each(there, here.y)
        change = design.adjoint(agent.weighted(slopes_there - slopes)) / model.unit
        more = float(agent.weighted(values_there - values).sum())
        reply = yield Sum(np.clip(np.append(change, more), -LARGEST, LARGEST).astype(np.float32))
        taken = model.steps
        model = shared_result(reply, model.after, reply)
        if model.steps > taken:
            scores, slopes, values = there, slopes_there, values_there
            duals.append(slopes)
    if not model.steps:
        # A part of the last step is better than to stay.
        return model.w + model.way, None
    shares = shared_result(model.w, model.mixture)
    v = None if shares is None else sum(share * dual for share, dual in zip(shares, duals[-len(shares) :], strict=True))
    return model.w, v


@dataclass(frozen=True)
class _Model:
    """What all agents know of P on the columns in play, and the step that follows from it."""

    total: float
    """n."""
    w: FloatArray
    slope: FloatArray
    """∇f(w)."""
    ridge: FloatArray
    threshold: FloatArray
    unit: FloatArray
    """What changes of n ∇f are divided by before they travel: the root of the diagonal of n H."""
    H: FloatArray
    place: npt.NDArray[np.int64]
    bends: FloatArray
    """B₀: H of the columns with a place there, `bends` of all."""
    enough: float
    """How near to hold the optimality conditions must be."""
    way: FloatArray
    """p."""
    bend: float = 0.0
    """pᵀBp, without the ridge."""
    ways: tuple[FloatArray, ...] = ()
    changes: tuple[FloatArray, ...] = ()
    """All p of this round, and the y that they led to."""
    slopes: tuple[FloatArray, ...] = ()
    """∇f wherever w has been before."""
    steps: int = 0
    failures: int = 0
    """Steps that were taken, and those in succession that were not."""

    def after(self, reply: FloatArray) -> _Model:
        """What is known after a step, from what was said about it."""
        p, y = self.way, reply[:-1].astype(float) * self.unit / self.total
        there = self.w + p
        linear = self._change(self.slope, there)
        # P is convex, and so falls by at least what its slope over there says: less rounding than in f(w + p) − f(w).
        least, losses = self._change(self.slope + y, there), float(reply[-1]) / self.total
        noisy = SINGLE * abs(losses) > abs(linear)
        gained = min(least, 0.5 * (least + linear) if noisy else losses + self._change(np.zeros(len(p)), there))
        learned = replace(self, ways=(*self.ways, p), changes=(*self.changes, y))
        if gained <= DECREASE * linear:
            steps = self.steps + 1
            slopes, w = (*self.slopes, self.slope), sealed(there)
            moved = replace(learned, w=w, slope=self.slope + y, slopes=slopes, steps=steps, failures=0)
            return moved.aimed()
        failures, bend = self.failures + 1, float(p @ y)
        known = replace(learned if bend > self.bend else self, failures=failures)
        if bend > self.bend and failures <= PATIENCE:
            return known.aimed()
        # What B learned does not help, or was learned too far away: a shorter step will be one.
        share = min(LONGEST, max(SHORTEST, -linear / bend if bend > 0 else 0.0))
        return replace(known, way=share * p, bend=share**2 * self.bend)

    def aimed(self) -> _Model:
        """The same with p = argmin ⟨∇f(w), p⟩ + ½ pᵀBp + g(w + p), or 0 if w is good enough."""
        if violation(self.w, self.slope, self.ridge, self.threshold) <= self.enough:
            return replace(self, way=np.zeros(len(self.w)))
        U, signs = self._updates()
        H, inside = self.H.copy(), self.place >= 0
        H.flat[:: len(H) + 1] += self.ridge[inside]
        descend: Any = low_rank_descent
        slope, bends = self.slope + self.ridge * self.w, self.bends + self.ridge
        p: FloatArray = descend(H, self.place, bends, U, signs, slope, self.threshold, self.w, SHARE, SWEEPS)
        return replace(self, way=p, bend=float(p @ self._start(p)) + float(signs @ (U.T @ p) ** 2))

    def _start(self, p: FloatArray) -> FloatArray:
        """B₀p, without the ridge."""
        image: FloatArray = self.bends * p
        inside = self.place >= 0
        image[inside] = self.H @ p[inside]
        return image

    def _updates(self) -> tuple[FloatArray, FloatArray]:
        """B − B₀ as U diag(signs) Uᵀ."""
        U, signs, rank = np.empty((len(self.w), 2 * len(self.ways))), np.empty(2 * len(self.ways)), 0
        for p, y in zip(self.ways, self.changes, strict=True):
            bend = float(p @ y)
            if not bend > 1e-10 * math.sqrt(float(p @ p) * float(y @ y)):
                continue
            image = self._start(p)
            image += U[:, :rank] @ (signs[:rank] * (U[:, :rank].T @ p))
            expected = float(p @ image)
            if not expected > 0:
                continue
            U[:, rank], U[:, rank + 1] = image / math.sqrt(expected), y / math.sqrt(bend)
            signs[rank : rank + 2] = -1.0, 1.0
            rank += 2
        return np.ascontiguousarray(U[:, :rank]), signs[:rank]

    def mixture(self) -> FloatArray | None:
        """Shares of the last slopes, which add up to 1, so that their sum violates |q_j| ≤ λ less than the last does.

        As Massias, Gramfort and Salmon (2018, "Celer") extrapolate a dual: the least squares of q_j + λ sign(w_j) on
        the columns that are not 0. Slopes of the loss are a dual, and so is their mixture, once in the domain.
        """
        free = (self.w != 0) | (self.threshold == 0)
        seen = np.array([*self.slopes, self.slope][-MIXED:])
        left = seen[:, free] + self.threshold[free] * np.sign(self.w[free])
        G = left @ left.T
        if self.ridge.any() or not np.trace(G) > 0:
            return None
        G.flat[:: len(G) + 1] += 1e-12 * np.trace(G)
        shares = np.linalg.solve(G, np.ones(len(G)))
        shares /= shares.sum()
        worst, before = (np.abs(q[self.threshold > 0]).max(initial=0.0) for q in (shares @ seen, self.slope))
        return shares if worst < before and np.abs(shares).sum() < TRUSTED else None

    def _change(self, slope: FloatArray, there: FloatArray) -> float:
        """⟨slope, p⟩ + g(w + p) − g(w), added up so that what cancels does so column by column."""
        p, w = self.way, self.w
        kink = np.where(there * w > 0, np.sign(w) * p, np.abs(there) - np.abs(w))
        return float(((slope + self.ridge * (w + 0.5 * p)) * p + self.threshold * kink).sum())


def violation(w: FloatArray, slope: FloatArray, ridge: FloatArray, threshold: FloatArray) -> float:
    """By how much the conditions for a minimum fail at most, as a slope."""
    steep = slope + ridge * w
    fails = np.where(w != 0, np.abs(steep + threshold * np.sign(w)), np.maximum(np.abs(steep) - threshold, 0.0))
    return float(fails.max(initial=0.0))


def _first(
    agent: Agent,
    w: FloatArray,
    slope: FloatArray,
    columns: Columns,
    bends: FloatArray,
    block: Columns,
    message: FloatArray,
) -> _Model:
    n, l1 = agent.total, _threshold(agent)
    ridge, threshold = np.full(len(w), agent.problem.penalty.strong_convexity), np.full(len(w), l1)
    if agent.problem.intercept:
        ridge[-1] = threshold[-1] = 0.0
    began = violation(w, slope, ridge, threshold)
    if l1 > 0:
        began = min(began, FARTHEST * l1)
    most, least = NEARER
    enough = began * min(most, max(least, began / l1 if l1 > 0 else most))
    place = np.full(len(columns), -1)
    place[block] = np.arange(len(block))
    unit = np.sqrt(bends)
    unit[unit == 0] = 1.0
    model = _Model(
        n,
        w[columns],
        slope[columns],
        ridge[columns],
        threshold[columns],
        unit,
        unpacked(message, len(block)) / n,
        place,
        bends / n,
        enough,
        way=np.empty(0),
    )
    return model.aimed()


def _largest(agent: Agent, bends: FloatArray) -> Columns:
    """The columns of the largest curvature; the intercept, which is in play and the last one, is among them."""
    size = bends.copy()
    if agent.problem.intercept:
        size[-1] = np.inf
    return np.sort(np.argsort(-size, kind="stable")[:BLOCK])


def _restricted(design: Design, columns: Columns) -> Design:
    """Those columns of it; the last one may be that of the intercept."""
    d = design.X.shape[1]
    own = columns[columns < d]
    X, intercept = design.X[:, own], len(own) < len(columns)
    if isinstance(design, CentredDesign):
        return CentredDesign(X, intercept, design.centre[own], design.unit)
    return Design(X, intercept)


def _threshold(agent: Agent) -> float:
    """λ₁."""
    penalty = agent.problem.penalty
    return penalty.value(np.ones(1)) - 0.5 * penalty.strong_convexity
