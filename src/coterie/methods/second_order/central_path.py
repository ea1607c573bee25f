"""The central path of non-smooth losses: positions of rows and model on it, and steps along it.

`interior_point.py` has the formulas and explains the symbols.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from coterie.methods.second_order import careful
from coterie.methods.second_order.barriers import LONGEST, Barrier, barrier_of
from coterie.methods.second_order.quadratic import ridge_of, solver
from coterie.numerics.arrays import Design, FloatArray
from coterie.numerics.kernels import barrier as kernel
from coterie.numerics.tuning import Tuning, tuned
from coterie.run.agent import Agent
from coterie.stats.moments import packed, second_moment, unpacked


@dataclass(frozen=True)
class _Tuning(Tuning):
    barrier_weight: float = tuned(
        0.3,
        "The weight of all products of the barrier; that of the rows is 2.",
        "measured: a1a, w8a, diabetes, breast cancer and digits, non-smooth losses, all penalties",
    )
    negligible: float = tuned(
        1e-7,
        "The Hessian, which only shapes the steps, leaves out rows below this share of the "
        "largest θ.",
        "measured: a1a and w8a, where no round more is needed",
    )
    negligible_without_ridge: float = tuned(
        1e-13,
        "The same share where only the rows give some direction curvature.",
        "rounding: the precision of float64 sums",
    )
    rounding: float = tuned(
        1e-15,
        "A relative change of a value below this is 0.",
        "rounding: the precision of float64",
    )


TUNING = _Tuning()


# -- rows ------------------------------------------------------------------------------------------


class RowBounds(NamedTuple):
    """The facts about an agent's rows that do not follow from the model."""

    y: FloatArray
    """The score at which the loss of each row is non-smooth."""
    lower: FloatArray
    upper: FloatArray
    """Bounds of the dual variables."""
    weights: FloatArray
    idle: npt.NDArray[np.intp]
    """Rows of weight 0."""


def row_bounds(agent: Agent) -> RowBounds:
    """Return the bounds of the agent's own rows, computed once."""
    if "row bounds" not in agent.scratch:
        agent.scratch["row bounds"] = _row_bounds(agent)
    bounds: RowBounds = agent.scratch["row bounds"]
    return bounds


def _row_bounds(agent: Agent) -> RowBounds:
    y = agent.exact_labels
    lower, upper = agent.problem.loss.domain(y)
    lower = lower.astype(float, copy=False)
    upper = upper.astype(float, copy=False)
    if agent.data.weights is None:
        weights = np.ones(y.shape)
    else:
        weights = agent.data.weights.astype(float)
    idle = np.flatnonzero(weights == 0)
    # An offset moves the non-smooth point: ℓ(u + o; y) is a function of r = u − (y − o).
    if agent.offset is not None:
        y = y - agent.offset
    return RowBounds(y, lower, upper, weights, idle)


def on_path(agent: Agent, w: FloatArray, mu: float) -> tuple[FloatArray, FloatArray]:
    """Return v on the central path, and θ = dv/dr there."""
    rows = row_bounds(agent)
    r = agent.at(w, agent.centred).scores - rows.y
    v = np.empty(len(r))
    theta = np.empty(len(r))
    centre: Any = kernel.centre
    centre(r, mu, rows.lower, rows.upper, v, theta)
    return v, theta


class Way(NamedTuple):
    """A direction of the rows, towards products s p = c and t q = e."""

    aim: FloatArray
    """Rows c, e, θ and g: Δv = θ Δr + g."""
    moves: FloatArray
    """Rows Δv, Δs, Δt, and the speed of each row of data towards a bound; empty before Δr is
    known.
    """
    longest: float = 0.0
    """The longest step size that stays inside, at most 2."""


class Samples:
    """The positions of an agent's rows, and the directions in which they move."""

    def __init__(self, rows: RowBounds, r: FloatArray, v: FloatArray, s: FloatArray, t: FloatArray):
        self.rows = rows
        self.r = r
        self.v = v
        self.s = s
        self.t = t
        self._shape = 4, len(r)

    def complementarity(self) -> float:
        """Return Σ ω (s p + t q)."""
        rows = self.rows
        add: Any = kernel.complementarity
        total: float = add(self.v, self.s, self.t, rows.lower, rows.upper, rows.weights)
        return total

    def aimed(self, mu: float, last: Way | None = None) -> Way:
        """Aim at products of μ, before the change of r is known, corrected for the second-order
        term of a last way.
        """
        rows = self.rows
        aim = np.empty(self._shape)
        if last:
            moves = last.moves
        else:
            moves = np.zeros(self._shape)
        pull: Any = kernel.pull
        pull(self.r, self.v, self.s, self.t, rows.lower, rows.upper, mu, moves, aim)
        return Way(aim, aim[:0])

    def recentred(self, way: Way, step: float, least: float, most: float) -> Way:
        """Correct the aim of a way, so that products after that step lie between these."""
        rows = self.rows
        aim = np.empty(self._shape)
        before = way.aim
        last = way.moves
        recentre: Any = kernel.recentre
        # fmt: off
        recentre(self.r, self.v, self.s, self.t, rows.lower, rows.upper,
                 last, step, least, most, before, aim)
        # fmt: on
        return Way(aim, aim[:0])

    def moved(self, way: Way, dr: FloatArray) -> Way:
        """Add the directions for that change of r to a way; rows of weight 0 stay."""
        rows = self.rows
        moves = np.empty(self._shape)
        move: Any = kernel.move
        move(dr, self.v, self.s, self.t, rows.lower, rows.upper, way.aim, moves)
        if rows.idle.size:
            moves[:, rows.idle] = 0.0
        speeds = moves[3]
        fastest = float(np.maximum.reduce(speeds, initial=0.0))
        if math.isnan(fastest):  # rows at a bound that do not move
            fastest = float(np.fmax.reduce(speeds, initial=0.0))
        longest = 1.0 / max(fastest, 1 / LONGEST)
        return Way(way.aim, moves, longest)

    def quadratic(self, way: Way) -> float:
        """Return the coefficient of the squared step size in Σ ω (s p + t q). The linear term
        leads to the products at which the way aims.
        """
        add: Any = kernel.quadratic
        total: float = add(self.rows.weights, way.moves)
        return total

    def after(self, alpha: float, way: Way) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return v, s and t after the share α of the way."""
        dv, ds, dt = alpha * way.moves[:3]
        return self.v + dv, self.s + ds, self.t + dt


# -- the model -------------------------------------------------------------------------------------


def barrier_at(agent: Agent, lengths: FloatArray) -> Barrier:
    """Return the barrier of the penalty, remembered for the same lengths."""
    known: tuple[FloatArray, Barrier] | None = agent.scratch.get("barrier")
    if known is not None and known[0] is lengths:
        return known[1]
    pieces = agent.problem.penalty.pieces
    width = agent.design.shape[1]
    count = width - agent.problem.intercept
    assert pieces is not None
    barrier = barrier_of(pieces, width, count, TUNING.barrier_weight, lengths)
    agent.scratch["barrier"] = lengths, barrier
    return barrier


class Terms:
    """Quantities that follow from w and the problem: residuals, and the parts of the penalty."""

    def __init__(
        self, agent: Agent, w: FloatArray, lengths: FloatArray, careful_design: Design | None = None
    ):
        self.agent = agent
        self.w = w
        self.barrier = barrier_at(agent, lengths)
        self.rows = row_bounds(agent)
        self.careful_design = careful_design
        self.r = agent.at(w, agent.centred).scores - self.rows.y

    @property
    def ridge(self) -> FloatArray:
        """λ₂ of every coordinate, 0 for an intercept."""
        scratch = self.agent.scratch
        if "ridge" not in scratch:
            problem = self.agent.problem
            pieces = problem.penalty.pieces
            assert pieces is not None
            scratch["ridge"] = ridge_of(pieces.ridge, len(self.w), problem.intercept)
        ridge: FloatArray = scratch["ridge"]
        return ridge

    def hessian(self, theta: FloatArray, *more: FloatArray) -> FloatArray:
        """Return a message: the triangle of X̃ᵀ(ωθ)X̃ of the agent's rows that matter, and then
        more numbers.
        """
        problem = self.agent.problem
        if problem.penalty.strong_convexity > 0 and not problem.intercept:
            negligible = TUNING.negligible
        else:
            negligible = TUNING.negligible_without_ridge
        least = negligible * theta.max(initial=0.0)
        design = self.careful_design or self.agent.centred
        weights = self.agent.weighted(theta) * (theta >= least)
        moment = second_moment(design, weights)
        return packed(moment, *more)

    def equations(self, message: FloatArray, x: FloatArray) -> Callable[[FloatArray], FloatArray]:
        """Return b ↦ (X̃ᵀ(ωθ)X̃/n + C + λ₂)⁻¹b; entries that cannot move get 0."""
        if self.careful_design is not None:
            return self._careful_equations(message, x, self.careful_design)
        H = unpacked(message, len(self.w))
        H /= self.agent.total
        self.barrier.add_curvature(self.w, x, H)
        # Near the optimum θ is huge or tiny by nature: a matrix that looks singular is not.
        if not self.barrier.stuck.any():
            return solver(H, self.ridge, least_pivot=0.0)[0]
        free = np.flatnonzero(~self.barrier.stuck)
        H_free = H[np.ix_(free, free)]
        solve = solver(H_free, self.ridge[free], least_pivot=0.0)[0]

        def solved(b: FloatArray) -> FloatArray:
            dw = np.zeros(len(b))
            dw[free] = solve(b[free])
            return dw

        return solved

    def _careful_equations(
        self, message: FloatArray, x: FloatArray, design: Design
    ) -> careful.Equations:
        M = unpacked(message, design.shape[1]) / self.agent.total
        C = np.diag(self.ridge)
        self.barrier.add_curvature(self.w, x, C)
        free = np.flatnonzero(~self.barrier.stuck)
        return careful.Equations(self.agent, design, M, C, free)

    def _penalty_at(self, w: FloatArray, mu: float) -> float:
        """Return the smoothed penalty."""
        ridge_and_tilt = 0.5 * self.ridge @ w**2 + mu * self.barrier.tilt @ w
        return self.barrier.value(w, mu) + float(ridge_and_tilt)

    def best(
        self, mu: float, dw: FloatArray, promised: float, shares: FloatArray, losses: FloatArray
    ) -> tuple[float, bool]:
        """Return the best of these step sizes, and whether rounding hides the gain of a shorter
        step.
        """
        values = losses / self.agent.total
        values += [self._penalty_at(self.w + share * dw, mu) for share in shares]
        best = int(np.argmin(values))
        gain = shares[-1] * promised
        is_hidden = not gain > TUNING.rounding * abs(values[0])
        return float(shares[best]), is_hidden
