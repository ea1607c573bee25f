"""Halpern's iteration on any method's map T, reflected and restarted: for non-smooth losses and
penalties.

With x₀ the point of the last restart, and k rounds since then, the next round starts at

    x⁺ = (k+1)/(k+2) (x + α (T(x) − x)) + 1/(k+2) x₀,   α = 2.

The rules of the primal-dual family are proximal point steps in a metric (Lemma 2 of paper 002), for
which the residual ‖T(x) − x‖ then falls like 1/k. With a restart from T(x) whenever it has fallen
enough, it falls linearly for piecewise linear problems, such as the hinge with l1 (Lu and Yang,
"Restarted Halpern PDHG for Linear Programming", 2024, with the same three reasons to restart).
Agents sum one number in every round.

Reflections (α = 2) fail if local problems are solved roughly, as large ones are. Therefore α is 1
as soon as the residual at a restart is no smaller than at the one before, and from the start if
there are few agents.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from coterie.numerics.acceleration.wrapper import Wrapped, Wrapper, own_residual
from coterie.numerics.arrays import FloatArray, shared_result
from coterie.numerics.tuning import Tuning, tuned
from coterie.run.agent import Agent
from coterie.run.collectives import Protocol, Sum
from coterie.run.disclosure import discloses

PDLP = (
    "paper: the three reasons of PDLP to restart (Applegate et al. 2021), kept by Lu and Yang 2024"
)


@dataclass(frozen=True)
class _Tuning(Tuning):
    enough: float = tuned(
        0.2, "Restart when the residual has fallen to this share of the first one.", PDLP, below=1
    )
    some: float = tuned(
        0.8, "Restart when the residual has fallen to this share and grows again.", PDLP, below=1
    )
    long: float = tuned(
        0.36, "Restart when the rounds since the last restart are this share of all.", PDLP, below=1
    )
    few: int = tuned(
        2,
        "The number of agents up to which blocks are too large to be solved well.",
        "measured: reflections fail with rough local solutions",
        costs=2.5,
    )


TUNING = _Tuning()


@dataclass(frozen=True, slots=True)
class State(Wrapped):
    """The state of a run, and its residuals since x₀."""

    anchor: Any
    """x₀."""
    k: int
    first: float
    """‖T(x₀) − x₀‖ over all agents."""
    last: float
    before: float
    """`first` of the previous x₀."""
    alpha: float


@dataclass(frozen=True)
class Halpern(Wrapper[State]):
    """`steps`, pulled back to an anchor that is reset from time to time."""

    alpha: float = 2.0

    def fresh(self, agent: Agent, inner: Any) -> State:
        alpha = 1.0
        if agent.count > TUNING.few:
            alpha = self.alpha
        return State(inner, inner, inner, 0, math.inf, math.inf, math.inf, alpha)

    def refreshed(self, agent: Agent, state: State, inner: Any) -> State:
        return replace(self.fresh(agent, inner), alpha=state.alpha)

    @discloses(
        "the sum of squares of your own changes of State, one number, as part of a sum",
        most=lambda case: (1, 1),
    )
    def advance(self, agent: Agent, state: State, image: Any, t: int) -> Protocol[State]:
        parts = self.steps.coordinates(agent, image)
        start = state.start
        anchor = state.anchor
        k = state.k
        total = yield Sum(own_residual(agent, parts, start, image))
        size = math.sqrt(total[0])
        first = state.first
        alpha = state.alpha
        if k == 0:
            first = size
            if size >= state.before:
                alpha = 1.0
        if k and restarts(size**2, first**2, state.last**2, k + 1, t):
            return State(image, image, image, 0, math.inf, math.inf, first, alpha)

        def ahead(shared: bool) -> dict[str, FloatArray]:
            new = {}
            for part in parts:
                if part.shared == shared:
                    x = getattr(start, part.name)
                    Tx = getattr(image, part.name)
                    x0 = getattr(anchor, part.name)
                    new[part.name] = pull * x0 + (1 - pull) * (x + alpha * (Tx - x))
            return new

        pull = 1 / (k + 2)
        moved = shared_result(total, ahead, True) | ahead(False)
        return State(
            replace(image, **moved), image, anchor, k + 1, first, size, state.before, alpha
        )


def restarts(now: float, first: float, before: float, k: int, t: int) -> bool:
    """Return whether to restart, k rounds after the last restart and t after the start, from
    squared residuals.
    """
    enough = TUNING.enough**2 * first
    some = TUNING.some**2 * first
    return now <= enough or (before < now <= some) or k >= TUNING.long * t
