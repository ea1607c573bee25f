"""The central path of losses with kinks: where samples and model stand on it, and the steps along
it.

Formulas and words are those of `interior_point.py`.
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
from coterie.methods.second_order.quadratic import solver
from coterie.numerics.arrays import Design, FloatArray
from coterie.numerics.kernels import barrier as kernel
from coterie.numerics.tuning import Tuning, tuned
from coterie.run.agent import Agent
from coterie.stats.moments import packed, second_moment, unpacked


@dataclass(frozen=True)
class _Tuning(Tuning):
    barrier_weight: float = tuned(
        0.3,
        "What the products of the barrier weigh together, beside 2 of the samples.",
        (
            "measured: a1a, w8a, diabetes, breast cancer and digits, all losses with kinks and all "
            "penalties"
        ),
    )
    negligible: float = tuned(
        1e-7,
        (
            "Rows with less than this share of the largest θ are left out of the Hessian, which "
            "only "
            "shapes the steps."
        ),
        "measured: a1a and w8a, where no round more is needed",
    )
    negligible_without_ridge: float = tuned(
        1e-13,
        "The same where some direction has no curvature but the rows'.",
        "rounding: what float64 sees of a sum",
    )
    rounding: float = tuned(
        1e-15,
        "A change of a value that is smaller, in units of it, is 0.",
        "rounding: what float64 sees",
    )


TUNING = _Tuning()


# -- samples ---------------------------------------------------------------------------------------


class Kinks(NamedTuple):
    """What does not follow from the model: where the kinks are, bounds and weights."""

    y: FloatArray
    lower: FloatArray
    upper: FloatArray
    weights: FloatArray
    idle: npt.NDArray[np.intp]
    """Samples of weight 0."""


def kinks_of(agent: Agent) -> Kinks:
    """Those of its own samples, made once."""
    if "kinks" not in agent.scratch:
        y = agent.exact_labels
        # An offset moves the kink: ℓ(u + o; y) is a function of r = u − (y − o).
        if agent.offset is None:
            kinks_at = y
        else:
            kinks_at = y - agent.offset
        lower, upper = (side.astype(float, copy=False) for side in agent.problem.loss.domain(y))
        if agent.data.weights is None:
            weights = np.ones(len(y))
        else:
            weights = agent.data.weights.astype(float)
        agent.scratch["kinks"] = Kinks(
            kinks_at, lower, upper, weights, np.flatnonzero(weights == 0)
        )
    kinks: Kinks = agent.scratch["kinks"]
    return kinks


def on_path(agent: Agent, w: FloatArray, mu: float) -> tuple[FloatArray, FloatArray]:
    """v on the central path, and how it changes with r."""
    kinks = kinks_of(agent)
    r = agent.at(w, agent.centred).scores - kinks.y
    v = np.empty(len(r))
    theta = np.empty(len(r))
    centre: Any = kernel.centre
    centre(r, mu, kinks.lower, kinks.upper, v, theta)
    return v, theta


class Way(NamedTuple):
    """Where the samples go: to products s p = c and t q = e."""

    aim: FloatArray
    """Rows c, e, θ and g: Δv = θ Δr + g."""
    moves: FloatArray
    """Rows Δv, Δs, Δt, and how fast each sample nears an edge; empty before Δr is known."""
    longest: float = 0.0
    """The longest step that stays inside, at most 2."""


class Samples:
    """Its own samples: where they stand, and where they are going."""

    def __init__(self, kinks: Kinks, r: FloatArray, v: FloatArray, s: FloatArray, t: FloatArray):
        self.kinks = kinks
        self.v = v
        self.s = s
        self.t = t
        self._here = r, v, s, t, kinks.lower, kinks.upper
        self._shape = 4, len(r)

    def complementarity(self) -> float:
        """Σ ω (s p + t q)."""
        add: Any = kernel.complementarity
        total: float = add(*self._here[1:], self.kinks.weights)
        return total

    def aimed(self, mu: float, last: Way | None = None) -> Way:
        """Towards products of μ, before the change of r is known; corrected for what a last way
        misses of them.
        """
        aim = np.empty(self._shape)
        pull: Any = kernel.pull
        pull(*self._here, mu, last.moves if last else np.zeros(self._shape), aim)
        return Way(aim, aim[:0])

    def recentred(self, way: Way, step: float, least: float, most: float) -> Way:
        """As before, and towards products between those after that step."""
        aim = np.empty(self._shape)
        recentre: Any = kernel.recentre
        recentre(*self._here, way.moves, step, least, most, way.aim, aim)
        return Way(aim, aim[:0])

    def moved(self, way: Way, dr: FloatArray) -> Way:
        """The same with the directions for that change of r; samples of weight 0 stay."""
        moves = np.empty(self._shape)
        move: Any = kernel.move
        move(dr, *self._here[1:], way.aim, moves)
        if self.kinks.idle.size:
            moves[:, self.kinks.idle] = 0.0
        fastest = float(np.maximum.reduce(moves[3], initial=0.0))
        if math.isnan(fastest):  # samples at an edge that go nowhere
            fastest = float(np.fmax.reduce(moves[3], initial=0.0))
        return Way(way.aim, moves, 1.0 / max(fastest, 1 / LONGEST))

    def quadratic(self, way: Way) -> float:
        """How Σ ω (s p + t q) changes with the square of the step; with the step it goes to what is
        aimed at.
        """
        add: Any = kernel.quadratic
        total: float = add(self.kinks.weights, way.moves)
        return total

    def after(self, alpha: float, way: Way) -> tuple[FloatArray, FloatArray, FloatArray]:
        """v, s and t after the share α of the way."""
        dv, ds, dt = alpha * way.moves[:3]
        return self.v + dv, self.s + ds, self.t + dt


# -- the model -------------------------------------------------------------------------------------


def barrier_at(agent: Agent, lengths: FloatArray) -> Barrier:
    """That of the penalty, remembered for the same lengths."""
    known: tuple[FloatArray, Barrier] | None = agent.scratch.get("barrier")
    if known is None or known[0] is not lengths:
        pieces = agent.problem.penalty.pieces
        width = agent.design.shape[1]
        assert pieces is not None
        made = barrier_of(
            pieces, width, width - agent.problem.intercept, TUNING.barrier_weight, lengths
        )
        agent.scratch["barrier"] = known = lengths, made
    return known[1]


class Terms:
    """What follows from w and the problem: residuals, and the penalty's parts."""

    def __init__(
        self, agent: Agent, w: FloatArray, lengths: FloatArray, careful_design: Design | None = None
    ):
        self.agent = agent
        self.w = w
        self.barrier = barrier_at(agent, lengths)
        self.kinks = kinks_of(agent)
        self.careful_design = careful_design
        self.r = agent.at(w, agent.centred).scores - self.kinks.y

    @property
    def ridge(self) -> FloatArray:
        """λ₂ of every coordinate, 0 for an intercept."""
        if "ridge" not in self.agent.scratch:
            problem = self.agent.problem
            width = len(self.w)
            self.agent.scratch["ridge"] = np.full(width, problem.penalty.strong_convexity)
            self.agent.scratch["ridge"][width - problem.intercept :] = 0.0
        ridge: FloatArray = self.agent.scratch["ridge"]
        return ridge

    def hessian(self, theta: FloatArray, *more: FloatArray) -> FloatArray:
        """A message: its own triangle of X̃ᵀ(ωθ)X̃, without the rows that do not matter, and then
        more.
        """
        problem = self.agent.problem
        ridged = problem.penalty.strong_convexity > 0 and not problem.intercept
        least = (TUNING.negligible if ridged else TUNING.negligible_without_ridge) * theta.max(
            initial=0.0
        )
        design = self.careful_design or self.agent.centred
        return packed(second_moment(design, self.agent.weighted(theta) * (theta >= least)), *more)

    def equations(self, message: FloatArray, x: FloatArray) -> Callable[[FloatArray], FloatArray]:
        """What multiplies by (X̃ᵀ(ωθ)X̃/n + C + λ₂)⁻¹; what cannot move does not."""
        if self.careful_design is not None:
            M = unpacked(message, self.careful_design.shape[1]) / self.agent.total
            C = np.diag(self.ridge)
            self.barrier.add_curvature(self.w, x, C)
            if self.barrier.stuck.any():
                free = np.flatnonzero(~self.barrier.stuck)
            else:
                free = np.arange(len(self.w))
            return careful.Equations(self.agent, self.careful_design, M, C, free)
        H = unpacked(message, len(self.w))
        H /= self.agent.total
        self.barrier.add_curvature(self.w, x, H)
        # Near the optimum θ is huge or tiny by nature: what looks singular is not.
        if not self.barrier.stuck.any():
            return solver(H, self.ridge, least_pivot=0.0)[0]
        free = np.flatnonzero(~self.barrier.stuck)
        solve = solver(H[np.ix_(free, free)], self.ridge[free], least_pivot=0.0)[0]

        def solved(b: FloatArray) -> FloatArray:
            dw = np.zeros(len(b))
            dw[free] = solve(b[free])
            return dw

        return solved

    def best(
        self, mu: float, dw: FloatArray, promised: float, shares: FloatArray, losses: FloatArray
    ) -> tuple[float, bool]:
        """The best of those steps, and whether a shorter one could not be told from staying."""
        ways = [self.w + share * dw for share in shares]
        values = losses / self.agent.total
        values += [
            self.barrier.value(w, mu) + float(0.5 * self.ridge @ w**2 + mu * self.barrier.tilt @ w)
            for w in ways
        ]
        return float(shares[int(np.argmin(values))]), not shares[
            -1
        ] * promised > TUNING.rounding * abs(values[0])
