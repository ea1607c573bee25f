"""Base of accelerations: a round is that of the method; between two rounds the acceleration moves
the point.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np

from coterie.numerics.arrays import FloatArray
from coterie.run.agent import Agent
from coterie.run.certificate import Point
from coterie.run.collectives import Protocol, Publication
from coterie.run.steps import Coordinate, Stateful, Steps


@dataclass(frozen=True, slots=True)
class Wrapped:
    """The common part of all wrapped States."""

    start: Any
    """The start of the next round."""
    image: Any
    """The end of the last round, which is certified."""


W = TypeVar("W", bound=Wrapped)


@dataclass(frozen=True)
class Wrapper(Stateful[W], ABC):
    """A method whose next round starts from a better point than the end of the last round.

    The messages of `advance` are billed as tuning, so that the cost of a round stays the same.
    """

    steps: Steps[Any]

    @abstractmethod
    def fresh(self, agent: Agent, inner: Any) -> W:
        """The wrapped State that remembers nothing."""

    def refreshed(self, agent: Agent, state: W, inner: Any) -> W:
        """The wrapped State after the method changed its parameters."""
        return self.fresh(agent, inner)

    @abstractmethod
    def advance(self, agent: Agent, state: W, image: Any, t: int) -> Protocol[W]:
        """The wrapped State from which round t + 1 starts, after round t led from `state.start` to
        `image`.
        """

    @property
    def states(self) -> tuple[type, ...]:
        """The wrapped State's class, and what is inside it."""
        return (self.state, *self.steps.states)

    @property
    def first_look(self) -> int:
        """As the method itself."""
        return self.steps.first_look

    def start(self, agent: Agent) -> Protocol[W]:
        """The first State, wrapped."""
        return self.fresh(agent, (yield from self.steps.start(agent)))

    def warm(self, agent: Agent, state: W, point: Point) -> Protocol[W]:
        """The method's own first State, moved, and nothing remembered."""
        return self.fresh(agent, (yield from self.steps.warm(agent, state.start, point)))

    def round(self, agent: Agent, state: W, t: int) -> Protocol[W]:
        """The method's own round."""
        return replace(state, image=(yield from self.steps.round(agent, state.start, t)))

    def together(self, agent: Agent) -> tuple[str, ...] | None:
        """Accelerated agents are not computed in a batch."""
        return None

    def tunes_after(self, t: int) -> bool:
        """Always: this is where the point is moved ahead."""
        return True

    def tune(self, agent: Agent, state: W, t: int) -> Protocol[W]:
        """Move ahead; start again when the method changes its own parameters, for then its map is
        another one.
        """
        if self.steps.tunes_after(t):
            tuned = yield from self.steps.tune(agent, state.image, t)
            if tuned is not state.image:
                return self.refreshed(agent, state, tuned)
        return (yield from self.advance(agent, state, state.image, t))

    def publish(self, agent: Agent, state: W) -> FloatArray | Publication | None:
        """What the method itself publishes of the image."""
        return self.steps.publish(agent, state.image)

    def receive(self, agent: Agent, state: W, sender: int, note: tuple[float, ...]) -> W:
        """Nothing is sent between rounds of a method that can be accelerated."""
        return state

    @property
    def asynchronous(self) -> bool:
        """A map of all agents together is what can be accelerated."""
        return False

    @property
    def settles_after(self) -> int:
        """As the method itself."""
        return self.steps.settles_after

    def point(self, agent: Agent, state: W) -> Point:
        """Of the image: a point that the method itself produced."""
        return self.steps.point(agent, state.image)

    def expected_gap(self, agent: Agent, state: W) -> float | None:
        """As the method itself."""
        return self.steps.expected_gap(agent, state.image)

    @property
    def can_be_accelerated(self) -> bool:
        """Once is enough."""
        return False

    def coordinates(self, agent: Agent, state: W) -> tuple[Coordinate, ...]:
        """None."""
        return ()


def relaxed(parts: tuple[Coordinate, ...], start: Any, image: Any, alpha: float) -> Any:
    """x + α (T(x) − x): the image, with its coordinates farther from the start."""
    ahead = {}
    for part in parts:
        before = getattr(start, part.name)
        ahead[part.name] = move = getattr(image, part.name) - before
        move *= alpha
        move += before
    return replace(image, **ahead)


def own_residual(agent: Agent, parts: tuple[Coordinate, ...], start: Any, image: Any) -> FloatArray:
    """The agent's share of ‖T(x) − x‖² as a message. Shared coordinates count at the first agent
    only.
    """
    total = 0.0
    for part in parts:
        if part.counts and (agent.index == 0 or not part.shared):
            move = getattr(image, part.name) - getattr(start, part.name)
            total += part.scale**2 * float(np.vdot(move, move))
    return np.array([total])
