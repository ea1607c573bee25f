"""Base of accelerations: a round is that of the method; between two rounds the acceleration moves
the point.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np

from coterie.numerics.arrays import FloatArray
from coterie.run.agent import Agent, AgentForm
from coterie.run.certificate import Point
from coterie.run.collectives import IndexArray, Protocol, Publication
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
        """Return the wrapped State with an empty memory."""

    def refreshed(self, agent: Agent, state: W, inner: Any) -> W:
        """Return the wrapped State after the method changed its parameters."""
        return self.fresh(agent, inner)

    @abstractmethod
    def advance(self, agent: Agent, state: W, image: Any, t: int) -> Protocol[W]:
        """Return the wrapped State from which round t + 1 starts, after round t led from
        `state.start` to `image`.
        """

    @property
    def states(self) -> tuple[type, ...]:
        """The class of the wrapped State, and those of the State inside."""
        return (self.state, *self.steps.states)

    @property
    def first_look(self) -> int:
        """The value of the method itself."""
        return self.steps.first_look

    def start(self, agent: Agent) -> Protocol[W]:
        """Return the first State, wrapped."""
        inner = yield from self.steps.start(agent)
        return self.fresh(agent, inner)

    def warm(self, agent: Agent, state: W, point: Point) -> Protocol[W]:
        """Return the first State of the method, moved to that point, with an empty memory."""
        inner = yield from self.steps.warm(agent, state.start, point)
        return self.fresh(agent, inner)

    def round(self, agent: Agent, state: W, t: int) -> Protocol[W]:
        """Take a round of the method."""
        image = yield from self.steps.round(agent, state.start, t)
        return replace(state, image=image)

    def together(self, agent: Agent) -> tuple[str, ...] | None:
        """Accelerated agents are not computed in a batch."""
        return None

    def tunes_after(self, t: int) -> bool:
        """Return True: `tune` moves the point ahead after every round."""
        return True

    def tune(self, agent: Agent, state: W, t: int) -> Protocol[W]:
        """Move the point ahead. When the method changes its own parameters, start again, because
        its map is then another one.
        """
        if self.steps.tunes_after(t):
            tuned = yield from self.steps.tune(agent, state.image, t)
            if tuned is not state.image:
                return self.refreshed(agent, state, tuned)
        return (yield from self.advance(agent, state, state.image, t))

    def publish(self, agent: Agent, state: W) -> FloatArray | Publication | None:
        """Publish the numbers that the method publishes of the image."""
        return self.steps.publish(agent, state.image)

    def neighbours(self, agent: Agent, state: W) -> IndexArray | None:
        """Return the neighbours in the image."""
        return self.steps.neighbours(agent, state.image)

    def drawn(self, agent: Agent, who: int, t: int) -> IndexArray | None:
        """Return the agents that agent `who` may contact in wake-up t."""
        return self.steps.drawn(agent, who, t)

    def receive(self, agent: Agent, state: W, sender: int, note: tuple[float, ...]) -> W:
        """Return the State: methods that can be accelerated send nothing between rounds."""
        return state

    @property
    def asynchronous(self) -> bool:
        """False: only a map of all agents together can be accelerated."""
        return False

    @property
    def settles_after(self) -> int:
        """The value of the method itself."""
        return self.steps.settles_after

    def point(self, agent: Agent, state: W) -> Point:
        """Return the point of the image, which the method itself produced."""
        return self.steps.point(agent, state.image)

    def expected_gap(self, agent: AgentForm, state: W) -> float | None:
        """The value of the method itself."""
        return self.steps.expected_gap(agent, state.image)

    @property
    def can_be_accelerated(self) -> bool:
        """False: a method is accelerated once."""
        return False

    def coordinates(self, agent: Agent, state: W) -> tuple[Coordinate, ...]:
        """Return no coordinates."""
        return ()


def relaxed(parts: tuple[Coordinate, ...], start: Any, image: Any, alpha: float) -> Any:
    """Return x + α (T(x) − x): the image, with its coordinates farther from the start."""
    ahead = {}
    for part in parts:
        before = getattr(start, part.name)
        move = getattr(image, part.name) - before
        move *= alpha
        move += before
        ahead[part.name] = move
    return replace(image, **ahead)


def own_residual(agent: Agent, parts: tuple[Coordinate, ...], start: Any, image: Any) -> FloatArray:
    """Return the agent's share of ‖T(x) − x‖² as a message. Shared coordinates count at the first
    agent only.
    """
    total = 0.0
    for part in parts:
        if part.counts and (agent.index == 0 or not part.shared):
            move = getattr(image, part.name) - getattr(start, part.name)
            total += part.scale**2 * float(np.vdot(move, move))
    return np.array([total])
