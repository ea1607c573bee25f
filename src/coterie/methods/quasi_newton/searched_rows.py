"""The form of quasi-Newton methods on data split by samples or by users, whose step sizes are
searched.

A round is one `Sum` of ∇f(w + p) and its value, d + 1 numbers. Where P does not fall enough there,
and in the first round, a `Sum` of values at trial steps finds the step size, and another one ∇f
there.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from coterie.methods.line_search import Line, best_step, hopeless, most_of_search, objective_at
from coterie.methods.quasi_newton.metrics import Diagonal
from coterie.methods.quasi_newton.pairs import Memory
from coterie.methods.quasi_newton.rounds import (
    NOTHING,
    Form,
    Found,
    State,
    Way,
    gradient_at,
    has_threshold,
    memory_after,
    ridge_of,
    stretched,
    way_of_pairs,
    with_curvature,
)
from coterie.numerics.arrays import FloatArray, shared_result
from coterie.run.agent import Agent
from coterie.run.collectives import Protocol, Sum, alone
from coterie.run.disclosure import Counts

TRIALS = 2.0 ** np.arange(3, -14, -1)
"""Step sizes whose values are sent together."""


class Along(ABC):
    """What an agent knows of its rows along a way from its model."""

    @abstractmethod
    def at(self, step_size: float) -> FloatArray:
        """X̃ᵀ(s∘ℓ') and Σ s ℓ after such a step."""

    @abstractmethod
    def values(self, step_sizes: FloatArray) -> FloatArray:
        """Σ s ℓ after each of these steps."""

    def after(self, state: Any) -> Any:
        """That State with what the agent learned of its own rows."""
        return state


def curvatures_of(agent: Agent, curvature: FloatArray) -> FloatArray:
    """s ℓ'' of its rows; s where none of them is curved."""
    curvatures = agent.weighted(curvature)
    return np.where(
        curvatures.any(axis=-1, keepdims=True),
        curvatures,
        agent.weighted(np.ones(curvatures.shape)),
    )


def started(
    agent: Agent, w: FloatArray, curvatures: FloatArray, adjoint: FloatArray, losses: Any
) -> Protocol[State]:
    """The first State at w, from the diagonal of the agent's Hessian, its gradient and its
    losses.
    """
    own = np.concatenate([curvatures, adjoint, np.array([losses]).T], axis=-1)
    received = yield Sum(own)
    first: State = shared_result(received, _first, agent, w, received)
    # Each agent keeps its own array, at which it has computed its losses.
    return replace(first, w=w)


def _first(agent: Agent, w: FloatArray, received: FloatArray) -> State:
    width = len(w)
    base = with_curvature(received[:width] / agent.total + ridge_of(agent))
    gradient = gradient_at(agent, w, received[width:-1])
    objective = objective_at(agent, float(received[-1]), w)
    return State(w, gradient, Memory.empty(width, 1), base, objective)


class Searched(Form):
    """Where rows or users are split, and the best step size is searched among a few."""

    def __init__(
        self,
        look: Callable[[FloatArray], Along],
        most: int,
        step_sizes: FloatArray = TRIALS,
        boldly: bool = False,
    ):
        """`look` says what an agent knows of its rows along a way, `most` how many pairs to
        remember.

        Of the first step nothing is known, so its size is searched, unless values are expensive:
        `boldly` tries 1.
        """
        self._look = look
        self._most = most
        self._step_sizes = step_sizes
        self._boldly = boldly

    def way(self, agent: Agent, state: State, t: int) -> Protocol[Way]:
        yield from ()  # every agent has all columns
        return shared_result(state.gradient, _way, agent, state, t)

    def search(self, agent: Agent, state: State, way: Way) -> Protocol[Found]:
        along = self._look(way.p)
        line = Line(state.w, way.p, state.objective, way.steep + way.chord)
        step_size = 1.0
        received = NOTHING
        whole = math.inf
        if self._boldly or len(way.memory.S):
            received = yield Sum(_finite(agent, line, along.at(1.0)))
            whole = objective_at(agent, float(received[-1]), state.w + way.p)
        if not line.is_some(whole):
            trials = self._step_sizes
            if way.chord or has_threshold(agent):
                trials = trials[trials <= 1.0]
            step_size = yield from best_step(agent, line, whole, along.values, trials, between=True)
            step_size = step_size or float(trials[-1])
            received = yield Sum(along.at(step_size))
        return Found(along.after(state), received, step_size, received[:-1], float(received[-1]))

    def learned(
        self, agent: Agent, state: State, way: Way, found: Found, gradient: FloatArray
    ) -> tuple[Memory, float]:
        change = gradient - state.gradient
        if float(change @ way.p) * found.step_size > 0:
            keeps = 1.0
        else:
            keeps = -1.0
        stretch = state.stretch
        if has_threshold(agent):
            left = float(gradient @ way.p) + way.chord
            stretch = stretched(stretch, found.step_size, left < 0 and found.step_size == 1.0)
        return memory_after(way.memory, found.step_size * way.p, change, keeps, self._most), stretch


def most_of_searched_step(width: int, step_sizes: FloatArray = TRIALS) -> Counts:
    """What a search adds to a round: its trials, and the gradient and the losses after its step."""
    collectives, numbers = most_of_search(step_sizes)
    return 1 + collectives, width + 1 + numbers


def _way(agent: Agent, state: State, t: int) -> Way:
    return alone(way_of_pairs(agent, state, [Diagonal(state.base)], t, _own))


def _own(x: FloatArray) -> Protocol[FloatArray]:
    """The sum over all columns, of which each agent has all."""
    yield from ()
    return x


def _finite(agent: Agent, line: Line, message: FloatArray) -> FloatArray:
    """That message, with a loss that ends the search at agents for which it has left the range of
    numbers.
    """
    finite = np.isfinite(message).all(axis=-1, keepdims=True)
    if finite.all():
        return message
    lost = np.zeros_like(message)
    lost[..., -1] = hopeless(agent, line)
    return np.where(finite, message, lost)
