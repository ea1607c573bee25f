"""Newton's method for non-smooth losses and few columns: `semismooth`.

The losses `hinge`, `absolute` and `quantile` are ℓ(r) = max over a ≤ v ≤ b of v r, for residuals
r = X̃w − y with weights s. Around a centre v̄, with a width ε > 0, the smooth loss

    ℓ_ε(r) = max over a ≤ v ≤ b of v r − ε (v − v̄)²/2

has an oracle like any other: with v(r) = clip(v̄ + r/ε, a, b) and Z = {i : a < v_i < b},

    ∇f = X̃ᵀ(s∘v)/n,        H = X̃_Zᵀ diag(s) X̃_Z/(n ε)

At each (w, v) the duality gap follows from sums that a round has anyway:

    gap = Σ s (ℓ(r) − v r)/n + (g(w) + g*(−∇f) + ⟨∇f, w⟩)

The first part is due to the centre, the second part to the equations that the last step has left.

- A round takes a step of Newton's method, shortened by a search on slopes: values of P would hide
  a slope under their rounding, and only a slope tells where between two steps the minimum is.
- When the second part is below `solved` × the first, the round ends with v̄ ← v and a smaller ε.
- When the step was shorter than all that were tried, Z had too few rows for that w: ε grows.
- When Z has at most `small_zone` rows per column, the next step keeps Z: the rows in Z follow the
  line v̄ + r/ε, and the others keep their v̄. Otherwise many columns need two to three times the
  rounds.

A round sends two `Sum`s, and a third one after a step that was shortened. Only rows in Z are in the
Hessian: at the end there are about as many as columns.

It is an augmented Lagrangian method for the dual problem whose inner problems are solved by
semismooth Newton steps, as in X. Li, D. Sun and K.-C. Toh, "A highly efficient semismooth Newton
augmented Lagrangian method for solving Lasso problems" (2018).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np

from coterie.errors import InvalidProblem
from coterie.methods.auto.costs import Outlook, Sizes, equations_work, products_work
from coterie.methods.line_search import penalty_at, penalty_slopes, step_by_slopes
from coterie.methods.second_order.central_path import row_bounds
from coterie.methods.second_order.interior_point import WIDEST
from coterie.methods.second_order.newton import ProximalNewton, State
from coterie.methods.second_order.oracle import Aim, Kept, Oracle, Taken
from coterie.methods.second_order.quadratic import rounded
from coterie.networks import Network
from coterie.numerics.arrays import FloatArray, sealed, shared_result
from coterie.numerics.kernels import clipped
from coterie.numerics.tuning import Tuning, tuned
from coterie.problems.problem import Problem
from coterie.run.agent import Agent, AgentForm
from coterie.run.certificate import Point
from coterie.run.collectives import Protocol, Sum
from coterie.run.disclosure import TOTALS, Case, Counts, Disclosure, triangle
from coterie.stats.moments import moment_message

STEP_SIZES = np.array([1.0, 0.5, 0.2, 0.05])
"""The sizes of the steps at which the search asks for slopes."""
EXPECTED_ROUNDS = 16
EXPECTED_SUMS = 2.5
"""Rounds, and sums per round, that "auto" assumes."""
EXPECTED_SHARE = 0.3
"""The share of the rows in a Hessian that "auto" assumes."""
EXPECTED_PASSES = 6.0
"""Passes over the rows in a round that "auto" assumes."""
TALL = 1000
"""Rows per column from which on "auto" chooses it. With fewer rows it is often faster than
`interior-point`, too, but sends more than 1.5 times the bits.
"""
MEASURED = "measured: a1a, and three sets of 3,000 to 20,000 rows with 10 to 180 columns"


@dataclass(frozen=True)
class _Tuning(Tuning):
    first_width: float = tuned(
        2.5, "The first ε, in units of the labels' scale over the interval of v.", MEASURED
    )
    warm: float = tuned(
        0.1,
        "The factor of the first ε after a warm start, whose dual variables are the centre.",
        "measured: paths of nine strengths on three sets",
        below=1,
    )
    narrower: float = tuned(0.35, "The factor of ε when the centre moves.", MEASURED, below=1)
    narrower_kept: float = tuned(
        0.7, "The same when the next step keeps its zone.", MEASURED, below=1
    )
    wider: float = tuned(
        3.0,
        "The factor of ε after a step shorter than all that were tried: too few rows were in Z.",
        "measured: 4 % of one class, and the sets above",
        above=1,
    )
    solved: float = tuned(
        3.0, "The centre moves when the second part of the gap is below this × the first.", MEASURED
    )
    solved_kept: float = tuned(30.0, "The same with a small zone.", MEASURED)
    small_zone: float = tuned(3.0, "Rows per column up to which a zone is small.", MEASURED)


TUNING = _Tuning()


@dataclass(frozen=True, slots=True)
class Memory:
    """The memory between two rounds, equal at all agents. The State's `own` has v̄ and r, and its
    `v` the best dual variables so far.
    """

    width: float
    """ε."""
    keeps_zone: bool
    """Whether the next step keeps the zone from before the centre moved: the rows whose v̄ is not
    at a bound.
    """
    best_w: FloatArray
    best_primal: float = np.inf
    best_dual: float = -np.inf


class _Clipped(NamedTuple):
    """The agent's own rows at one model, on the clipped line."""

    r: FloatArray
    v: FloatArray
    inside: FloatArray
    """The weight of each row that is not clipped; else 0."""
    sums: FloatArray
    """Σ s ℓ_ε, Σ s (ℓ − v r), Σ s v r, and the number of rows that are not clipped."""
    adjoint: FloatArray
    """X̃ᵀ(s∘v)."""


class SmoothedOracle(Oracle):
    """Σ s ℓ_ε of the agent's own rows; after the centre moved with few rows in the zone, the
    quadratic function of a zone that stays.
    """

    def __init__(self, agent: Agent, state: State):
        super().__init__(agent, state.w)
        self.memory: Memory = state.memory
        self.centre = state.own[..., 0, :]
        self._r = state.own[..., 1, :]
        self._bounds = row_bounds(agent)
        self._best_v = state.v
        known: tuple[FloatArray, _Clipped] | None = agent.scratch.get("clipped")
        if self.memory.keeps_zone:
            lower, upper = self._bounds.lower, self._bounds.upper
            zone = (self.centre > lower) & (self.centre < upper)
            self._curvature = zone / self.memory.width
            self._line = self.centre + self._curvature * self._r
        elif known is not None and known[0] is state.own:
            self._here = known[1]
        else:
            self._here = self._at(self._r)

    @property
    def losses(self) -> Any:
        if self.memory.keeps_zone:
            return 0.5 * self.agent.summed((self.centre + self._line) * self._r)
        return self._here.sums[..., 0]

    @property
    def gradient(self) -> FloatArray:
        if self.memory.keeps_zone:
            return self.agent.centred.adjoint(self.agent.weighted(self._line))
        return self._here.adjoint

    def hessian(self, *more: FloatArray) -> FloatArray:
        if self.memory.keeps_zone:
            curvature = self.agent.weighted(self._curvature)
        else:
            curvature = self._here.inside / self.memory.width
        return moment_message(self.agent.centred, curvature, False, *more, thin=True)

    def values(self, target: FloatArray, step_sizes: FloatArray) -> FloatArray:
        change = self._change(target)
        rows = [self._clipped(self._r + t * change) for t in step_sizes.tolist()]
        return np.stack([sums[..., 0] for _, _, sums in rows], axis=-1)

    def slopes(self, target: FloatArray, step_sizes: FloatArray) -> FloatArray:
        """Return a message: the derivatives of Σ s ℓ_ε on the way to the target, after steps of
        these sizes, and then the facts after a whole step.
        """
        bounds = self._bounds
        r = self._r
        self._way = self._change(target)
        slopes = np.empty((*r.shape[:-1], len(step_sizes)))
        along: Any = clipped.slopes_along if r.ndim == 1 else clipped.slopes_along_lines
        along(
            r,
            self._way,
            self.centre,
            self.memory.width,
            bounds.lower,
            bounds.upper,
            bounds.weights,
            step_sizes,
            slopes,
        )
        return np.concatenate([slopes, self.facts(1.0)], axis=-1)

    def facts(self, step_size: float) -> FloatArray:
        """Return a message: the sums of `_Clipped` that make up the gap after a step of that size
        on the last way, and the gradient there.
        """
        self._there = self._at(self._r + step_size * self._way)
        return np.concatenate([self._there.sums[..., 1:], self._there.adjoint], axis=-1)

    def kept_after(self, aim: Aim, taken: Taken) -> Kept:
        memory, is_best, moves = shared_result(taken.sums, _judged, self.agent, self.memory, taken)
        there = self._there
        centre = there.v if moves else self.centre
        own = np.stack([centre, there.r], axis=-2)
        if memory.width == self.memory.width:
            # The next round begins with the same function at the same model.
            self.agent.scratch["clipped"] = own, there
        return Kept(memory, own, there.v if is_best else self._best_v)

    def _change(self, target: FloatArray) -> FloatArray:
        """Return the change of the residuals on the way to the target."""
        return self.agent.centred.forward(target - self.w)

    def _at(self, r: FloatArray) -> _Clipped:
        v, inside, sums = self._clipped(r)
        adjoint = self.agent.centred.adjoint(self.agent.weighted(v))
        return _Clipped(r, v, inside, sums, adjoint)

    def _clipped(self, r: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return v, the weights of the rows that are not clipped, and the sums of `_Clipped`."""
        bounds = self._bounds
        v = np.empty(r.shape)
        inside = np.empty(r.shape)
        sums = np.empty((*r.shape[:-1], 4))
        clip: Any = clipped.clip_line if r.ndim == 1 else clipped.clip_lines
        clip(
            r,
            self.centre,
            self.memory.width,
            bounds.lower,
            bounds.upper,
            bounds.weights,
            v,
            inside,
            sums,
        )
        return v, inside, sums


@dataclass(frozen=True)
class Semismooth(ProximalNewton):
    """Newton's method on a smoothed loss whose centre moves."""

    name: ClassVar[str] = "semismooth"
    summary: ClassVar[str] = (
        "Newton's method for non-smooth losses with l2 or elasticnet, and few columns"
    )
    disclosure: ClassVar[Disclosure] = Disclosure(
        sent="the gradient, and the Hessian XᵀDX of those of your rows that are close to where the "
        "loss has no derivative: one number per column and one per pair of columns, as part of a "
        "sum",
        learned="second moments of few rows, and of other ones in each round: these rows can be "
        "reconstructed, with their labels",
        secure=TOTALS,
        most=lambda case: _most(case),
        sometimes=lambda case: _sometimes(case),
    )
    memory: ClassVar[type | None] = Memory

    @classmethod
    def outlook(cls, problem: Problem, sizes: Sizes) -> Outlook | None:
        width = sizes.width(problem)
        fits = problem.loss.conjugate_curvature == 0.0 and _has_ridge(problem)
        if not fits or width > WIDEST or sizes.rows < TALL * width:
            return None
        passes = EXPECTED_PASSES * sizes.rows_work
        return Outlook(
            rounds=EXPECTED_ROUNDS,
            sums=EXPECTED_SUMS,
            scalars=width * (width + 6) / 2,
            work=EXPECTED_SHARE * products_work(sizes, width) + passes,
            what="few rounds suffice",
            shared=equations_work(width),
        )

    @classmethod
    def rescues(cls, problem: Problem, sizes: Sizes) -> bool:
        return False

    def check(self, problem: Problem, network: Network) -> None:
        if problem.loss.conjugate_curvature != 0.0:
            raise InvalidProblem(
                "semismooth is for non-smooth losses (hinge, absolute, quantile); this problem has "
                f"{problem.loss.name!r}. Use newton."
            )
        if not _has_ridge(problem):
            raise InvalidProblem(
                "semismooth needs a penalty with a ridge (l2, or elasticnet with l1_ratio below "
                f"1); this problem has {problem.penalty.name!r}. Use interior-point."
            )

    def start(self, agent: Agent) -> Protocol[State]:
        width = agent.design.shape[1]
        if width > WIDEST:
            raise InvalidProblem(
                f"semismooth adds up Hessians of at most {WIDEST} columns; this problem has "
                f"{width}. Use proximal-1."
            )
        state = yield from super().start(agent)
        bounds = row_bounds(agent)
        # The interval of v has one length for all rows of a loss.
        lowest, highest = agent.problem.loss.domain(np.ones(1))
        length = float(highest[0] - lowest[0])
        memory = Memory(TUNING.first_width * agent.known.label_scale / length, False, state.w)
        centre = 0.5 * (bounds.lower + bounds.upper)
        own = _rows_at(agent, state.w, centre)
        return replace(state, memory=memory, own=own, v=centre)

    def warmed(self, agent: Agent, state: State, point: Point) -> State:
        moved = super().warmed(agent, state, point)
        memory = replace(state.memory, best_w=moved.w)
        centre = state.own[..., 0, :]
        if point.v is not None:
            bounds = row_bounds(agent)
            centre = np.clip(point.v.astype(float), bounds.lower, bounds.upper)
            memory = replace(memory, width=TUNING.warm * memory.width)
        own = _rows_at(agent, moved.w, centre)
        return replace(moved, memory=memory, own=own, v=centre)

    def oracle(self, agent: Agent, state: State) -> SmoothedOracle:
        return SmoothedOracle(agent, state)

    def search(self, agent: Agent, oracle: Any, aim: Aim, t: int) -> Protocol[Taken]:
        received = yield Sum(oracle.slopes(aim.target, STEP_SIZES))
        w, step_size, sums = shared_result(
            received, _searched, agent, oracle.memory, oracle.w, aim, received
        )
        if step_size != 1.0:
            sums = yield Sum(oracle.facts(step_size))
        return Taken(w, step_size, sums=sums)

    def together(self, agent: Agent) -> tuple[str, ...] | None:
        return ("own", "v")

    def point(self, agent: Agent, state: State) -> Point:
        assert state.v is not None
        v = state.v.astype(agent.design.dtype, copy=False)
        return Point(rounded(agent, state.memory.best_w), v)

    def expected_gap(self, agent: AgentForm, state: State) -> float | None:
        gap: float = state.memory.best_primal - state.memory.best_dual
        return gap


def _has_ridge(problem: Problem) -> bool:
    """Return whether the penalty is a ridge, or a ridge and l1."""
    pieces = problem.penalty.pieces
    return pieces is not None and pieces.has_ridge and set(pieces.kinds) <= {"l1"}


def _rows_at(agent: Agent, w: FloatArray, centre: FloatArray) -> FloatArray:
    """Return the `own` of a State: v̄, and the residuals at w."""
    r = agent.at(w, agent.centred).scores - row_bounds(agent).y
    return np.stack([centre, r], axis=-2)


# -- what all agents compute from sums -------------------------------------------------------------


def _searched(
    agent: Agent, memory: Memory, w: FloatArray, aim: Aim, received: FloatArray
) -> tuple[FloatArray, float, FloatArray]:
    """Return the model after a step to where P_ε has about no slope, the size of the step, and the
    facts after a whole step.
    """
    p = aim.target - w
    losses = received[: len(STEP_SIZES)] / agent.total
    slopes = losses + penalty_slopes(agent, w, p, STEP_SIZES)
    first_slope = 0.0
    if not memory.keeps_zone:
        first_slope = float(aim.gradient @ p + penalty_slopes(agent, w, p, np.zeros(1))[0])
    step_size = step_by_slopes(STEP_SIZES, slopes, first_slope)
    facts = sealed(received[len(STEP_SIZES) :].copy())
    if step_size == 1.0:
        return aim.target, step_size, facts
    return sealed(w + step_size * p), step_size, facts


def _judged(agent: Agent, last: Memory, taken: Taken) -> tuple[Memory, bool, bool]:
    """Return the memory of the next round, whether v is the best one so far, and whether the centre
    moves to it.
    """
    w = taken.w
    sums = taken.sums
    n = agent.total
    missing, linear, count = sums[:3].tolist()
    missing /= n
    gradient = sums[3:] / n
    primal = missing + linear / n + penalty_at(agent, w)
    left, of_intercept = _left(agent, w, gradient)
    dual = primal - missing - left - of_intercept
    is_small = count <= TUNING.small_zone * len(w)
    if is_small:
        moves = left < TUNING.solved_kept * missing
        narrower = TUNING.narrower_kept
    else:
        moves = left < TUNING.solved * missing
        narrower = TUNING.narrower
    is_best = dual >= last.best_dual
    memory = replace(last, keeps_zone=moves and is_small, best_dual=max(dual, last.best_dual))
    if primal <= last.best_primal:
        memory = replace(memory, best_w=w, best_primal=primal)
    if moves:
        memory = replace(memory, width=last.width * narrower)
    elif _needs_rows(agent, last, taken, count):
        memory = replace(memory, width=last.width * TUNING.wider)
    return memory, is_best, moves


def _needs_rows(agent: Agent, last: Memory, taken: Taken, count: float) -> bool:
    """Return whether the zone has too few rows for the way to the minimum of P_ε."""
    if agent.problem.intercept and count == 0.0:
        return True
    return not last.keeps_zone and taken.step_size < STEP_SIZES[-1]


def _left(agent: Agent, w: FloatArray, gradient: FloatArray) -> tuple[float, float]:
    """Return the second part of the gap, and what an intercept adds to it for the largest intercept
    that is likely.
    """
    problem = agent.problem
    left = problem.penalty.fenchel_young(problem.coefficients(w), -problem.coefficients(gradient))
    if not problem.intercept:
        return left, 0.0
    slope = float(gradient[-1])
    scale = agent.known.label_scale / agent.known.unit
    usual = scale * abs(slope)
    return left + usual, abs(slope * w[-1]) + slope * w[-1]


def _most(case: Case) -> Counts:
    """Return the largest counts of a round with a whole step."""
    return 2, triangle(case.width) + 2 * case.width + len(STEP_SIZES) + 4


def _sometimes(case: Case) -> Counts:
    """Return the largest counts of what a shortened step adds."""
    return 1, case.width + 3
