"""Searches along a way on data split by samples or by users: what `lbfgs-rows` and `shared` have in common."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

import numpy as np

from coterie.agent import Agent
from coterie.arrays import FloatArray, sealed, shared_result
from coterie.methods import lbfgs
from coterie.methods.lbfgs import NOTHING, QuasiNewton, State, Way, has_threshold, ridge_of
from coterie.methods.metrics import Diagonal
from coterie.methods.quasi_newton import Memory
from coterie.words import Sum, Talk

TRIALS = 2.0 ** np.arange(3, -14, -1)
"""Steps at whose values to look."""
HOPELESS, SHORTEST = 1e20, 1e-20
"""Losses of a step that leaves the range of numbers, at least; and the shortest step that is tried."""
SUFFICIENT, ROUNDING = 1e-4, 1e-13
"""The share of the linear decrease that a full step needs, and the share of P below which decreases are rounding."""


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
    value = _primal(agent, float(heard[-1]), w)
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
    down, rounding = way.steep + way.chord, ROUNDING * abs(state.value)
    step, heard, looked = 1.0, NOTHING, not (boldly or len(way.memory.S))
    hopeless = _hopeless(agent, state)
    if not looked:
        heard = yield Sum(_looked_at(along, 1.0, hopeless))
        value = _primal(agent, float(heard[-1]), state.w + way.p)
        looked = not value - state.value <= SUFFICIENT * down + rounding
    if looked:
        trials = steps[steps <= 1.0] if way.chord or has_threshold(agent) else steps
        losses = yield Sum(_losses(along, trials, hopeless))
        while down < -rounding and trials[-1] > SHORTEST and not _falls(agent, state, way, trials, losses):
            # Far from a quadratic even the shortest of these may lead uphill.
            trials = trials[-1] * trials
            losses = yield Sum(_losses(along, trials, hopeless))
        step = shared_result(losses, _best_step, agent, state, way, trials, losses)
        heard = yield Sum(along.at(step))

    def stepped() -> State:
        w = sealed(state.w + step * way.p)
        slope = sealed(heard[:-1] / agent.total + ridge_of(agent) * w)
        value = _primal(agent, float(heard[-1]), w)
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


def _primal(agent: Agent, losses: float, w: FloatArray) -> float:
    """P(w) from Σ s ℓ."""
    return agent.problem.primal(losses, agent.total, agent.problem.penalty.value(agent.problem.coefficients(w)))


def _hopeless(agent: Agent, state: State) -> float:
    """What is said of the losses after a step that leaves the range of numbers: more than all others lose."""
    return HOPELESS * max(1.0, abs(state.value) * agent.total)


def _looked_at(along: Along, step: float, hopeless: float) -> FloatArray:
    """X̃ᵀ(s∘ℓ') and Σ s ℓ after such a step, as finite numbers."""
    seen = along.at(step)
    finite = np.isfinite(seen).all(axis=-1, keepdims=True)
    if finite.all():
        return seen
    lost = np.zeros_like(seen)
    lost[..., -1] = hopeless
    return np.where(finite, seen, lost)


def _losses(along: Along, steps: FloatArray, hopeless: float) -> FloatArray:
    """Σ s ℓ after each of these steps, as finite numbers."""
    losses = along.values(steps)
    return np.where(np.isfinite(losses), losses, hopeless)


def _values(agent: Agent, state: State, way: Way, trials: FloatArray, losses: FloatArray) -> FloatArray:
    """P after each of these steps."""
    return np.array([_primal(agent, float(f), state.w + t * way.p) for t, f in zip(trials, losses, strict=True)])


def _falls(agent: Agent, state: State, way: Way, trials: FloatArray, losses: FloatArray) -> bool:
    """Whether one of these steps leads downhill."""
    return bool((_values(agent, state, way, trials, losses) < state.value).any())


def _best_step(agent: Agent, state: State, way: Way, trials: FloatArray, losses: FloatArray) -> float:
    """The best of the trial steps, or the least of the parabola around it."""
    values = _values(agent, state, way, trials, losses)
    k = int(np.argmin(values))
    if not values[k] < state.value:
        return float(trials[-1])
    if not 0 < k < len(trials) - 1 or losses[k - 1] >= _hopeless(agent, state):
        return float(trials[k])
    a, b, _ = np.polyfit(trials[k - 1 : k + 2], values[k - 1 : k + 2], 2)
    return float(np.clip(-b / (2 * a), trials[k + 1], trials[k - 1])) if a > 0 else float(trials[k])
