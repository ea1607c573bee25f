"""What every method can do: start, take a round, and show its point.

A method is a frozen dataclass of parameters; what changes lives in a State, a frozen dataclass of arrays and numbers.
All of `start`, `round` and `tune` are conversations: they may compute, or yield a word and be sent the reply.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from coterie.agent import Agent
from coterie.arrays import FloatArray
from coterie.certificate import Point
from coterie.networks import Network
from coterie.problem import Problem
from coterie.steps import Coordinate, Steps
from coterie.words import Talk

__all__ = ["Method"]


@dataclass(frozen=True)
class Method(ABC):
    """A map State → State, as one agent sees it."""

    name: ClassVar[str]
    split: ClassVar[str]
    """"samples", "features" or "users"."""
    summary: ClassVar[str]
    """One line for tables and `--help`."""

    @classmethod
    def appeal(cls, problem: Problem, network: Network) -> tuple[float, str] | None:
        """How much `method="auto"` should like this method here, and why; None: only when asked for by name."""
        return None

    def check(self, problem: Problem, network: Network) -> None:  # noqa: B027
        """Raise InvalidProblem, naming an alternative, if this method cannot solve that problem."""

    @property
    def states(self) -> tuple[type, ...]:
        """The State's class, alone."""
        return (self.state,)

    @property
    @abstractmethod
    def state(self) -> type:
        """The State's class: a frozen dataclass whose fields are arrays, numbers, strings or None."""

    @abstractmethod
    def start(self, agent: Agent) -> Talk[Any]:
        """The first State."""

    def warmed(self, agent: Agent, state: Any, point: Point) -> Any:
        """The first State moved to a point that another run came to; a method that cannot starts where it starts."""
        return state

    @abstractmethod
    def round(self, agent: Agent, state: Any, t: int) -> Talk[Any]:
        """The State after round t = 1, 2, ..."""

    @abstractmethod
    def point(self, agent: Agent, state: Any) -> Point:
        """The model and the dual that the State stands for."""

    def tunes_after(self, t: int) -> bool:
        """Whether to `tune` after round t: finitely often, so that proofs for fixed steps apply to the rest."""
        return False

    def tune(self, agent: Agent, state: Any, t: int) -> Talk[Any]:
        """The same State with better parameters."""
        raise NotImplementedError

    def publish(self, agent: Agent, state: Any) -> FloatArray | None:
        """What others may `Ask` for until the next round ends; nothing, unless a method says otherwise."""
        return None

    @property
    def can_be_accelerated(self) -> bool:
        """Whether `coordinates` says something."""
        return type(self).coordinates is not Method.coordinates

    def coordinates(self, agent: Agent, state: Any) -> tuple[Coordinate, ...]:
        """The arrays of the State on which the map acts, shared ones first; nothing: it cannot be accelerated."""
        return ()

    def accelerated(self, problem: Problem) -> Steps:
        """This method in the acceleration that suits it on that problem; as it is, if none does."""
        return self

    def settings(self) -> dict[str, Any]:
        """Name and parameters as plain values."""
        return {"name": self.name, **asdict(self)}
