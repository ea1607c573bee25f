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

from coterie.acceleration.wrapper import Wrapped, Wrapper, own_residual
from coterie.agent import Agent
from coterie.arrays import FloatArray, shared_result
from coterie.tuning import Tuning, tuned
from coterie.words import Sum, Talk

PDLP = "paper: the three reasons of PDLP to restart (Applegate et al. 2021), kept by Lu and Yang 2024"


@dataclass(frozen=True)
class _Tuning(Tuning):
    enough: float = tuned(0.2, "Restart when the residual has fallen to this share of the first, ...", PDLP, below=1)
    some: float = tuned(0.8, "... or to this share and grows again, ...", PDLP, below=1)
    long: float = tuned(0.36, "... or when the rounds since the last restart are this share of all.", PDLP, below=1)
    few: int = tuned(
        2,
        "So few agents have blocks too large to be solved well.",
        "measured: reflections do not forgive rough solves",
        costs=2.5,
    )


TUNING = _Tuning()


@dataclass(frozen=True, slots=True)
class State(Wrapped):
    """Where a run stands, and what is known since x₀."""

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
class Halpern(Wrapper[State]):
    """`steps`, pulled back to an anchor that is reset from time to time."""

    alpha: float = 2.0

    def fresh(self, agent: Agent, inner: Any) -> State:
        return State(
            inner, inner, inner, 0, math.inf, math.inf, math.inf, self.alpha if agent.count > TUNING.few else 1.0
        )

    def refreshed(self, agent: Agent, state: State, inner: Any) -> State:
        return replace(self.fresh(agent, inner), alpha=state.alpha)

    def advance(self, agent: Agent, state: State, image: Any, t: int) -> Talk[State]:
        parts, start, anchor, k = self.steps.coordinates(agent, image), state.start, state.anchor, state.k
        total = yield Sum(own_residual(agent, parts, start, image))
        size = math.sqrt(total[0])
        first = state.first if k else size
        alpha = 1.0 if not k and size >= state.before else state.alpha
        if k and restarts(size**2, first**2, state.last**2, k + 1, t):
            return State(image, image, image, 0, math.inf, math.inf, first, alpha)

        def ahead(shared: bool) -> dict[str, FloatArray]:
            names = [part.name for part in parts if part.shared == shared]
            members = [(name, getattr(start, name), getattr(image, name), getattr(anchor, name)) for name in names]
            return {name: pull * x0 + (1 - pull) * (x + alpha * (Tx - x)) for name, x, Tx, x0 in members}

        pull = 1 / (k + 2)
        moved = shared_result(total, ahead, True) | ahead(False)
        return State(replace(image, **moved), image, anchor, k + 1, first, size, state.before, alpha)


def restarts(now: float, first: float, before: float, k: int, t: int) -> bool:
    """Whether to restart, k rounds after the last time and t after the start: from squared residuals."""
    enough, some = TUNING.enough**2 * first, TUNING.some**2 * first
    return now <= enough or (before < now <= some) or k >= TUNING.long * t
