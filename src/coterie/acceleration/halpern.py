"""Halpern's iteration on any method's map T, reflected and restarted: for losses and penalties with kinks.

With x₀ where it was restarted last, and k rounds since, the next round starts at

    x⁺ = (k+1)/(k+2) (x + α (T(x) − x)) + 1/(k+2) x₀,   α = 2.

The rules of the primal-dual family are proximal point steps in a metric (Lemma 2 of paper 002), for which the residual
‖T(x) − x‖ then falls like 1/k; restarted from T(x) whenever it has fallen enough, it falls linearly where everything is
piecewise linear, as for the hinge with l1 (Lu and Yang, "Restarted Halpern PDHG for Linear Programming", 2024, whose
three reasons to restart these are). One number is summed in every round.

Reflections (α = 2) do not forgive local problems that are solved roughly, as large ones are: where the residual is no
smaller at a restart than at the one before, α is 1 from then on, and where agents are few from the start.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from coterie.acceleration.wrapper import Wrapper, own_residual
from coterie.agent import Agent
from coterie.arrays import FloatArray, shared_result
from coterie.words import Sum, Talk

__all__ = ["Halpern"]

ENOUGH, SOME = 0.2, 0.8
"""Restart when the residual has fallen to the first share, or to the second and grows again, ..."""
FEW = 2
"""So few agents have blocks too large to be solved well."""
LONG = 0.36
"""... or when the rounds since the last restart are this share of all."""


@dataclass(frozen=True, slots=True)
class State:
    """Where the next round starts, the last image, which the certificate is about, and what is known since x₀."""

    start: Any
    image: Any
    anchor: Any
    """x₀."""
    k: int
    first: float
    """‖T(x₀) − x₀‖ over all agents."""
    last: float
    before: float
    """`first` of the x₀ before."""
    alpha: float


@dataclass(frozen=True)
class Halpern(Wrapper):
    """`steps`, pulled back to an anchor that is set anew now and then."""

    alpha: float = 2.0

    @property
    def state(self) -> type:
        return State

    def fresh(self, agent: Agent, inner: Any) -> State:
        return State(inner, inner, inner, 0, math.inf, math.inf, math.inf, self.alpha if agent.count > FEW else 1.0)

    def refreshed(self, agent: Agent, state: State, inner: Any) -> State:
        return replace(self.fresh(agent, inner), alpha=state.alpha)

    def advance(self, agent: Agent, state: State, image: Any, t: int) -> Talk[State]:
        parts, start, anchor, k = self.steps.coordinates(agent, image), state.start, state.anchor, state.k
        total = yield Sum(own_residual(agent, parts, start, image))
        size = math.sqrt(total[0])
        first = state.first if k else size
        alpha = 1.0 if not k and size >= state.before else state.alpha
        fallen = size <= ENOUGH * first or (size <= SOME * first and size > state.last)
        if k and (fallen or k + 1 >= LONG * t):
            return State(image, image, image, 0, math.inf, math.inf, first, alpha)

        def ahead(shared: bool) -> dict[str, FloatArray]:
            names = [part.name for part in parts if part.shared == shared]
            members = [(name, getattr(start, name), getattr(image, name), getattr(anchor, name)) for name in names]
            return {name: pull * x0 + (1 - pull) * (x + alpha * (Tx - x)) for name, x, Tx, x0 in members}

        pull = 1 / (k + 2)
        moved = shared_result(total, ahead, True) | ahead(False)
        return State(replace(image, **moved), image, anchor, k + 1, first, size, state.before, alpha)
