"""The interfaces that a run needs: `Steps` of methods, and `Transport` of engines. So methods and
engines need not know each other.
"""

from __future__ import annotations

import typing
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NamedTuple, get_args, get_origin

from coterie.numerics.arrays import FloatArray
from coterie.problems.problem import AnyProblem
from coterie.run.agent import Agent, AgentForm
from coterie.run.bill import Bill
from coterie.run.certificate import Point
from coterie.run.collectives import IndexArray, Protocol, Publication

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    S = TypeVar("S", default=Any)
else:
    from typing import TypeVar

    S = TypeVar("S")
T = TypeVar("T")


class Stateful(Generic[S]):
    """A class whose State is the one that its base names: `class Gram(Method[State])`."""

    state: ClassVar[type[Any]]
    """The State's class: a frozen dataclass whose fields are arrays, numbers, strings or None."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        for base in vars(cls).get("__orig_bases__", ()):
            generic, named = get_origin(base), get_args(base)
            if (
                isinstance(generic, type)
                and issubclass(generic, Stateful)
                and isinstance(named[0], type)
            ):
                cls.state = named[0]


class Coordinate(NamedTuple):
    """One array of a State that a round maps to a new one."""

    name: str
    scale: float
    """The factor that brings all coordinates to one metric."""
    shared: bool
    """Whether all agents hold the same copy, so that it counts once."""
    counts: bool = True
    """Whether it is measured. A coordinate that depends on the others only moves with them."""


class Steps(typing.Protocol[S]):
    """A map State → State with parameters that may be tuned a few times on the way."""

    @property
    def states(self) -> tuple[type, ...]:
        """The State's class, and those of States inside it: frozen dataclasses of arrays, numbers,
        strings, None.
        """

    @property
    def can_be_accelerated(self) -> bool:
        """Whether the method has `coordinates`."""

    @property
    def first_look(self) -> int:
        """The round after which the first certificate is worth its messages."""

    @property
    def asynchronous(self) -> bool:
        """Whether agents wake up one by one: a `round` is then a wake-up that only yields `Ask`,
        and t counts the wake-ups of all agents.
        """

    @property
    def settles_after(self) -> int:
        """The round before which certificates are about a problem that still changes: they end no
        run.
        """

    def start(self, agent: Agent[Any]) -> Protocol[S]:
        """The first State."""

    def warm(self, agent: Agent[Any], state: S, point: Point) -> Protocol[S]:
        """The first State moved to the point of an earlier run."""

    def round(self, agent: Agent[Any], state: S, t: int) -> Protocol[S]:
        """The State after round t = 1, 2, ..."""

    def together(self, agent: Agent[Any]) -> tuple[str, ...] | None:
        """The fields of a State that differ between agents, if agents of equal size may take rounds
        in one batch; else None. See `batch`.
        """

    def publish(self, agent: Agent[Any], state: S) -> FloatArray | Publication | None:
        """The numbers that others may `Ask` for until the next round ends, if there are any."""

    def receive(self, agent: Agent[Any], state: S, sender: int, note: tuple[float, ...]) -> S:
        """The State after a note of another agent's `Publication` arrived."""

    def neighbours(self, agent: Agent[Any], state: S) -> IndexArray | None:
        """The agents that receive the changes of this agent's publication, and that send it theirs;
        None if that depends on more than this State.
        """

    def drawn(self, agent: Agent[Any], who: int, t: int) -> IndexArray | None:
        """The agents that agent `who` may contact in wake-up t in addition to its neighbours, as
        every agent knows them; None if others do not know them.
        """

    def point(self, agent: Agent[Any], state: S) -> Point:
        """The model and the dual variables of the State."""

    def expected_gap(self, agent: AgentForm[Any], state: S) -> float | None:
        """The gap that a certificate would show, if all agents know it without a message; else
        None.
        """

    def tunes_after(self, t: int) -> bool:
        """Whether to `tune` after round t."""

    def tune(self, agent: Agent[Any], state: S, t: int) -> Protocol[S]:
        """The same State with better parameters, or moved ahead."""

    def coordinates(self, agent: Agent[Any], state: S) -> tuple[Coordinate, ...]:
        """The arrays of the State that make up the point on which the map acts."""


class Transport(typing.Protocol):
    """Computes collectives of agents, and moves their messages."""

    bill: Bill

    def converse(self, protocols: Sequence[Protocol[T]], purpose: str) -> list[T]:
        """Run the protocols of the agents of this process to their end."""

    def take(
        self, step: Callable[..., Protocol[T]], rows: Iterable[Sequence[Any]], purpose: str
    ) -> list[T]:
        """Run this step of each agent of this process, with a row of arguments that begins with the
        agent.
        """

    def confer(
        self, protocols: Sequence[Protocol[Any]], places: Sequence[IndexArray], purpose: str
    ) -> list[Any]:
        """Run protocols of sums to their end, each for the agents at these places."""

    def publish(self, agent: int, message: FloatArray | Publication) -> None:
        """Publish a message for which others can `Ask`."""

    def gossip(
        self, agents: Sequence[Agent[AnyProblem]], states: list[Any], steps: Steps, t: int
    ) -> list[Any]:
        """Run a round of agents that wake up one by one; return the States of all."""

    def settle(self) -> None:
        """Bring the bill up to date with the gossip of all processes."""

    @property
    def one_process(self) -> bool:
        """Whether all agents of the run are in this process, and share one clock."""

    @property
    def free(self) -> bool:
        """Whether agents that wake up one by one do so in real time, and `roam` instead of
        `gossip`.
        """

    def roam(
        self,
        agents: Sequence[Agent[AnyProblem]],
        states: list[Any],
        steps: Steps,
        span: tuple[int, int],
        stop_reason: Callable[[], int],
    ) -> tuple[list[Any], int]:
        """Let the clocks run from one round to another, or until there is a reason to stop; return
        the States, and the round.
        """

    def memory(self) -> dict[str, Any]:
        """Return the arrays that a checkpoint needs in addition to the States.

        With them, a resumed run has the same bill.
        """

    def recall(self, memory: dict[str, Any]) -> None:
        """Continue from the `memory` of a checkpoint."""

    def agreed(self, t: int, stop_reason: int) -> int:
        """The reason to stop after round t, or 0: equal in every process of the run."""

    def least(self, number: int) -> int:
        """The smallest of the numbers that the processes of the run know."""
