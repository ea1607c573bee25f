"""What a run needs of a method, as a protocol: methods, accelerations and engines need not know each other."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

from coterie.agent import Agent
from coterie.arrays import FloatArray
from coterie.certificate import Point
from coterie.words import Talk

__all__ = ["Coordinate", "Steps"]


class Coordinate(NamedTuple):
    """One array of a State that a round maps to a new one."""

    name: str
    scale: float
    """By how much it is multiplied so that all coordinates are measured in one metric."""
    shared: bool
    """Whether all agents hold the same copy, so that it counts once."""


class Steps(Protocol):
    """A map State → State with parameters that may be tuned a few times on the way."""

    @property
    def states(self) -> tuple[type, ...]:
        """The State's class, and those of States inside it: frozen dataclasses of arrays, numbers, strings, None."""
        ...

    @property
    def can_be_accelerated(self) -> bool:
        """Whether `coordinates` says something."""
        ...

    def start(self, agent: Agent) -> Talk[Any]:
        """The first State."""
        ...

    def warmed(self, agent: Agent, state: Any, point: Point) -> Any:
        """The first State moved to a point that another run came to."""
        ...

    def round(self, agent: Agent, state: Any, t: int) -> Talk[Any]:
        """The State after round t = 1, 2, ..."""
        ...

    def publish(self, agent: Agent, state: Any) -> FloatArray | None:
        """What others may `Ask` for until the next round ends, if anything."""
        ...

    def point(self, agent: Agent, state: Any) -> Point:
        """The model and the dual that the State stands for."""
        ...

    def tunes_after(self, t: int) -> bool:
        """Whether to `tune` after round t."""
        ...

    def tune(self, agent: Agent, state: Any, t: int) -> Talk[Any]:
        """The same State with better parameters, or moved ahead."""
        ...

    def coordinates(self, agent: Agent, state: Any) -> tuple[Coordinate, ...]:
        """The arrays of the State that make up the point on which the map acts."""
        ...
