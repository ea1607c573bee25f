"""A round of every quasi-Newton method.

    p   = −H ∇P(w), or the way to the minimum of the model with the l1 penalty     `way`: from pairs
        of earlier steps
    t   about argmin P(w + t p), and ∇f(w + t p)                                   `search`: these
    are the messages
    w⁺  = w + t p

A `Form` says how `way` and `search` are done, and what is remembered of a step: where columns are
split, where rows are split, and where rows are split and the curvature of each pair is known.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

import numpy as np

from coterie.errors import InvalidProblem
from coterie.methods.line_search import objective_at
from coterie.methods.method import Method, Rows
from coterie.methods.quasi_newton import pairs
from coterie.methods.quasi_newton.metrics import Metric
from coterie.methods.quasi_newton.pairs import Memory
from coterie.networks import Network
from coterie.numerics.arrays import FloatArray, sealed, shared_result, whole_number
from coterie.numerics.penalties.pieces import Pieces
from coterie.numerics.tuning import Tuning, tuned
from coterie.problems.problem import Problem
from coterie.run.agent import Agent
from coterie.run.collectives import Protocol

NOTHING: FloatArray = np.empty(0)


def nothing() -> FloatArray:
    """The empty array, where a State has no such numbers."""
    return NOTHING


@dataclass(frozen=True)
class _Tuning(Tuning):
    stiffer: float = tuned(0.5, "By how much the first guess is made stiffer ...", below=1)
    short: float = tuned(0.5, "... after a step shorter than this, ...", below=1, costs=1.6)
    softer: float = tuned(2.0, "... and softer after a full one.", above=1)


TUNING = _Tuning()


@dataclass(frozen=True, slots=True)
class State:
    """The state of one agent between two rounds."""

    w: FloatArray
    gradient: FloatArray
    """∇f + ridge w on this agent's columns."""
    memory: Memory
    base: FloatArray
    """The diagonal of the first guess of the Hessian."""
    objective: float = 0.0
    """P(w), split by samples."""
    stretch: float = 1.0
    """With l1: how much softer the first guess is made."""


S = TypeVar("S", bound=State)


class Way(NamedTuple):
    """The direction of a step."""

    memory: Memory
    """The pairs, with all their inner products."""
    p: FloatArray
    linear: float = 0.0
    """⟨ridge w, p⟩ of this agent's columns."""
    quadratic: float = 0.0
    """⟨p, ridge p⟩."""
    chord: float = 0.0
    """Σ threshold |w + p| − threshold |w|."""
    steep: float = 0.0
    """⟨gradient, p⟩."""


class Found(NamedTuple):
    """The result of a search along a way."""

    state: Any
    """The State, with what the agent now knows of its own rows."""
    received: FloatArray
    """The reply that all agents compute the next model from, read-only; an array of its own where
    each has columns.
    """
    step_size: float
    adjoint: FloatArray
    """n ∇f after the step, on this agent's columns."""
    losses: float | None = None
    """n f after the step, split by samples."""
    keeps: float = 1.0
    """Whether to remember the pair: 1; 0: not; −1: forget all pairs."""
    stretch: float = 1.0


class Form(ABC):
    """What one form of the method does in a round."""

    @abstractmethod
    def way(self, agent: Agent, state: Any, t: int) -> Protocol[Way]:
        """The direction of the step."""

    @abstractmethod
    def search(self, agent: Agent, state: Any, way: Way) -> Protocol[Found]:
        """The size of the step, and the gradient after it."""

    @abstractmethod
    def learned(
        self, agent: Agent, state: Any, way: Way, found: Found, gradient: FloatArray
    ) -> tuple[Memory, float]:
        """The pairs and the stretch after the step, where ∇f + ridge w is that gradient."""


@dataclass(frozen=True)
class QuasiNewton(Method[S, Rows], Generic[S]):
    """A quasi-Newton method; a subclass names its form."""

    instead: ClassVar[str]
    """What to use for other penalties."""

    memory: int = 30
    """Pairs of steps and changes of the gradient to remember, at most: 2 · memory numbers for each
    of its columns.
    """

    def __post_init__(self) -> None:
        whole_number(f"{self.name}: memory", self.memory)

    @abstractmethod
    def form(self, agent: Agent, state: S) -> Form:
        """How this agent takes its rounds."""

    def check(self, problem: Problem, network: Network) -> None:
        if not is_for(problem):
            raise InvalidProblem(
                f"{self.name} is for the penalties none, l2, l1 and elasticnet, and this problem "
                "has "
                f"{problem.penalty.name!r}. Use {self.instead}."
            )

    @property
    def states(self) -> tuple[type, ...]:
        return self.state, Memory

    def round(self, agent: Agent, state: S, t: int) -> Protocol[S]:
        form = self.form(agent, state)
        way = yield from form.way(agent, state, t)
        found = yield from form.search(agent, state, way)
        known = shared_result(found.received, _after, form, agent, state, way, found)
        after: S = replace(found.state, **known)
        return after


def _after(form: Form, agent: Agent, state: State, way: Way, found: Found) -> dict[str, Any]:
    """What a State says of all agents, or of this agent's columns, after a step."""
    w = sealed(state.w + found.step_size * way.p)
    gradient = gradient_at(agent, w, found.adjoint)
    memory, stretch = form.learned(agent, state, way, found, gradient)
    if found.losses is None:
        objective = 0.0
    else:
        objective = objective_at(agent, found.losses, w)
    return {
        "w": w,
        "gradient": gradient,
        "memory": memory,
        "stretch": stretch,
        "objective": objective,
    }


# -- what forms with plain pairs share -------------------------------------------------------------


def way_of_pairs(
    agent: Agent, state: State, metrics: Sequence[Metric], t: int, add: pairs.Add
) -> Protocol[Way]:
    """The direction from that State; the metrics take turns."""
    turn = t % len(metrics)
    ridge = ridge_of(agent)
    threshold = threshold_of(agent)
    metric = metrics[turn]
    memory, along = yield from pairs.known(state.memory, metrics, turn, state.gradient, add)
    p: FloatArray
    if has_threshold(agent):
        model = pairs.Model(memory, metric, turn, state.gradient, state.w, threshold, state.stretch)
        target = yield from pairs.minimum(model, add)
        p = target - state.w
    else:
        p = pairs.along_gradient(memory, metric, turn, state.gradient, along)
    pull = ridge * p
    chord = float(threshold @ (np.abs(state.w + p) - np.abs(state.w)))
    return Way(memory, p, float(pull @ state.w), float(pull @ p), chord, float(state.gradient @ p))


def memory_after(
    memory: Memory, step: FloatArray, change: FloatArray, keeps: float, most: int
) -> Memory:
    """With the new pair, without it (0), or without all (−1)."""
    if keeps < 0:
        return Memory.empty(len(step), len(memory.YDY))
    if not keeps:
        return memory
    return memory.with_pair(step, change, most)


def stretched(stretch: float, step_size: float, full: bool) -> float:
    """How soft the first guess is after a step of that size."""
    if full:
        return stretch * TUNING.softer
    if step_size < TUNING.short:
        return stretch * TUNING.stiffer
    return stretch * 1.0


# -- the penalty -----------------------------------------------------------------------------------


def is_for(problem: Problem) -> bool:
    """Whether its penalty is none, l2, l1 or both of these."""
    pieces = problem.penalty.pieces
    return pieces is not None and not set(pieces.kinds) - {"l1"}


def gradient_at(agent: Agent, w: FloatArray, adjoint: FloatArray) -> FloatArray:
    """∇f + ridge w on the agent's columns, where n ∇f is `adjoint`."""
    return sealed(adjoint / agent.total + ridge_of(agent) * w)


def with_curvature(base: FloatArray) -> FloatArray:
    """A first guess of the Hessian in which every column has some curvature: a column that is 0
    has none, and any positive number will do.
    """
    base[base <= 0] = base.max(initial=0.0) or 1.0
    return base


def ridge_of(agent: Agent) -> FloatArray:
    """The ridge of every column."""
    return _per_column(agent, _pieces(agent).ridge)


def threshold_of(agent: Agent) -> FloatArray:
    """The l1 penalty of every column."""
    return _per_column(agent, _pieces(agent).threshold)


def has_threshold(agent: Agent) -> bool:
    """Whether the penalty has an l1 part."""
    return _pieces(agent).has_threshold


def _pieces(agent: Agent) -> Pieces:
    pieces = agent.problem.penalty.pieces
    assert pieces is not None
    return pieces


def _per_column(agent: Agent, number: float | FloatArray) -> FloatArray:
    """That number, or those numbers, for each of its columns, 0 for the intercept's."""
    numbers = np.zeros(agent.design.shape[1])
    numbers[: len(numbers) - agent.design.intercept] = number
    return numbers
