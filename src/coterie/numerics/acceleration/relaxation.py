"""Over-relaxation of any method's map T: the next round starts at x + α (T(x) − x), 1 < α < 2.

The rules of the primal-dual family are proximal point steps in a metric (Lemma 2 of paper 002).
With these, relaxed steps converge whenever the plain step does, and residuals ‖T(x) − x‖ never
grow. Rough local solutions can break that. So every ten rounds the agents sum the residual, one
number, and α goes half-way back to the plain step when the residual has grown.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from coterie.numerics.acceleration.wrapper import Wrapped, Wrapper, own_residual, relaxed
from coterie.numerics.tuning import Tuning, tuned
from coterie.run.agent import Agent
from coterie.run.collectives import Protocol, Sum
from coterie.run.disclosure import discloses


@dataclass(frozen=True)
class _Tuning(Tuning):
    look_every: int = tuned(10, "Rounds from one sum of the residual to the next.")
    grown: float = tuned(1.5, "α goes back when the residual has grown by this factor.", above=1)


TUNING = _Tuning()


@dataclass(frozen=True, slots=True)
class State(Wrapped):
    """The state of a run, and the largest α."""

    alpha: float
    residual: float
    """‖T(x) − x‖ over all agents when it was last summed."""


@dataclass(frozen=True)
class Relaxation(Wrapper[State]):
    """`steps`, over-relaxed by `alpha`."""

    alpha: float = 1.9

    def fresh(self, agent: Agent, inner: Any) -> State:
        return State(inner, inner, self.alpha, math.inf)

    def refreshed(self, agent: Agent, state: State, inner: Any) -> State:
        return replace(self.fresh(agent, inner), alpha=state.alpha)

    @discloses(
        "the sum of squares of your own changes of State, one number in some rounds, as part of a "
        "sum",
        most=lambda case: (1, 1),
    )
    def advance(self, agent: Agent, state: State, image: Any, t: int) -> Protocol[State]:
        parts = self.steps.coordinates(agent, image)
        alpha = state.alpha
        residual = state.residual
        if t % TUNING.look_every == 0:
            total = yield Sum(own_residual(agent, parts, state.start, image))
            residual = math.sqrt(total[0])
            if residual > TUNING.grown * state.residual:
                alpha = 1 + 0.5 * (alpha - 1)
        return State(relaxed(parts, state.start, image, alpha), image, alpha, residual)
