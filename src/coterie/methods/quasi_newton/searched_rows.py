"""Searches along a way on data split by samples or by users: what `lbfgs-rows` and `shared` have in common."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

import numpy as np

from coterie.methods.line_search import Line, best_step, hopeless, objective_at
from coterie.methods.quasi_newton import lbfgs
from coterie.methods.quasi_newton.lbfgs import NOTHING, QuasiNewton, State, Way, has_threshold, ridge_of
from coterie.methods.quasi_newton.metrics import Diagonal
from coterie.methods.quasi_newton.pairs import Memory
from coterie.numerics.arrays import FloatArray, sealed, shared_result
from coterie.run.agent import Agent
from coterie.run.collectives import Sum, Talk

TRIALS = 2.0 ** np.arange(3, -14, -1)
"""Steps at whose values to look."""


class Along(Protocol):
    """What an agent sees of its rows along a way from where it stands."""

    def at(self, step: float) -> FloatArray:
        """X̃ᵀ(s∘ℓ') and Σ s ℓ after such a step."""

    def values(self, steps: FloatArray) -> FloatArray:
        """Σ s ℓ after each of these steps."""


def bends_of(agent: Agent, curvature: FloatArray) -> FloatArray:
    """s ℓ'' of its rows; s where none of them is bent."""
    bends = agent.weighted(curvature)
    return np.where(bends.any(axis=-1, keepdims=True), bends, agent.weighted(np.ones(bends.shape)))


def started(agent: Agent, w: FloatArray, heard: FloatArray) -> State:
    """The first State at w, from the sums of the diagonal of the Hessian, the gradient and the losses."""
    ridge, n = ridge_of(agent), agent.total
    base = heard[: len(w)] / n + ridge
    base[base <= 0] = base.max(initial=0.0) or 1.0
    slope = sealed(heard[len(w) : -1] / n + ridge * w)
    value = objective_at(agent, float(heard[-1]), w)
    return State(w, slope, Memory.empty(len(w), 1), base, 0.0, NOTHING, NOTHING, NOTHING, 0.0, 0, 0.0, 1.0, value)


def searched(
    method: QuasiNewton,
    agent: Agent,
    state: State,
    t: int,
    look: Callable[[FloatArray], Along],
    steps: FloatArray = TRIALS,
    boldly: bool = False,
) -> Talk[State]:
    """The State after a round; `look` says what an agent sees of its rows along a way.

    Of the first round's step nothing is known, so that it is looked for, unless values are dear: `boldly` tries 1.
    """

    def aimed() -> Way:
        return _alone(method.way(agent, state, [Diagonal(state.base)], t, _as_it_is))

    way = shared_result(state.slope, aimed)
    along = look(way.p)
    line = Line(state.w, way.p, state.value, way.steep + way.chord)
    step, heard, whole = 1.0, NOTHING, math.inf
    if boldly or len(way.memory.S):
        heard = yield Sum(_seen(agent, line, along, 1.0))
        whole = objective_at(agent, float(heard[-1]), state.w + way.p)
    if not line.is_some(whole):
        trials = steps[steps <= 1.0] if way.chord or has_threshold(agent) else steps
        step = yield from best_step(agent, line, whole, along.values, trials, between=True)
        step = step or float(trials[-1])
        heard = yield Sum(along.at(step))

    def stepped() -> State:
        w = sealed(state.w + step * way.p)
        slope = sealed(heard[:-1] / agent.total + ridge_of(agent) * w)
        value = objective_at(agent, float(heard[-1]), w)
        change = slope - state.slope
        keeps = 1.0 if float(change @ way.p) * step > 0 else -1.0
        stretch = state.stretch
        if has_threshold(agent):
            left = float(slope @ way.p) + way.chord
            stretch = lbfgs.TUNING.stretched(stretch, step, left < 0 and step == 1.0)
        memory = method.after(agent, way.memory, step * way.p, change, keeps)
        return replace(state, w=w, slope=slope, memory=memory, stretch=stretch, value=value)

    return shared_result(heard, stepped)


def _as_it_is(x: FloatArray) -> Talk[FloatArray]:
    """All columns are here."""
    yield from ()
    return x


def _alone(talk: Talk[Way]) -> Way:
    """The end of a conversation in which nobody has to be asked."""
    try:
        next(talk)
    except StopIteration as end:
        way: Way = end.value
        return way
    raise AssertionError("this conversation has no words")


def _seen(agent: Agent, line: Line, along: Along, step: float) -> FloatArray:
    """X̃ᵀ(s∘ℓ') and Σ s ℓ after such a step, as finite numbers."""
    seen = along.at(step)
    finite = np.isfinite(seen).all(axis=-1, keepdims=True)
    if finite.all():
        return seen
    lost = np.zeros_like(seen)
    lost[..., -1] = hopeless(agent, line)
    return np.where(finite, seen, lost)
