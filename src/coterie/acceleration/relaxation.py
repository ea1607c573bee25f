"""Over-relaxation of any method's map T: the next round starts at x + α (T(x) − x), 1 < α < 2.

It costs no message. The rules of the primal-dual family are proximal point steps in a metric (Lemma 2 of paper 002),
for which it converges whenever the plain step does.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from coterie.acceleration.wrapper import Wrapper
from coterie.agent import Agent
from coterie.words import Talk

__all__ = ["Relaxation"]


@dataclass(frozen=True, slots=True)
class State:
    """Where the next round starts, and the last image, which the certificate is about."""

    start: Any
    image: Any


@dataclass(frozen=True)
class Relaxation(Wrapper):
    """`steps`, over-relaxed by `alpha`."""

    alpha: float = 1.9

    @property
    def state(self) -> type:
        return State

    def fresh(self, agent: Agent, inner: Any) -> State:
        return State(inner, inner)

    def advance(self, agent: Agent, state: State, image: Any, t: int) -> Talk[State]:
        changes = {}
        for name, _, _ in self.steps.coordinates(agent, image):
            x, Tx = getattr(state.start, name), getattr(image, name)
            changes[name] = x + self.alpha * (Tx - x)
        yield from ()  # there is nothing to ask
        return State(replace(image, **changes), image)
