"""The base class of engines. An engine takes a `Run`, and returns its outcome."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from typing import Any, ClassVar, TypeVar

from coterie.data.remote import Rows, Source
from coterie.errors import InvalidData
from coterie.installation import extra_command
from coterie.networks import Network
from coterie.numerics.threads import cores
from coterie.run.agent import forms_of_agents
from coterie.run.certificate import Point
from coterie.run.checkpoint import Checkpoint
from coterie.run.rescue import Rescuable
from coterie.run.rounds import Control, Conversation, Keep, Outcome, Start, Watch, never, unwatched
from coterie.run.rounds import run as take_rounds
from coterie.run.settings import Limits
from coterie.run.site import SiteForm
from coterie.run.steps import Steps, Transport

T = TypeVar("T")


@dataclass(frozen=True)
class Run:
    """A run, as an engine gets it."""

    agents: Sequence[SiteForm]
    """A `SiteForm` of each party for a `Conversation`, and an `AgentForm` for rounds."""
    steps: Steps | Rescuable | Conversation
    network: Network
    limits: Limits
    checkpoint: Checkpoint | None = None
    warm: Sequence[Point] | None = None
    """The point of each agent, from an earlier result."""
    watch: Watch = unwatched
    secure_sums: bool = False
    """Whether sums are of whole numbers, and between organisations masked."""
    sent: dict[str, Any] | None = None
    """The state of a bill: the communication cost before the run, of a preparation."""

    @property
    def names(self) -> tuple[str, ...]:
        """The name of each agent."""
        return tuple(agent.data.name for agent in self.agents)

    def on(
        self,
        transport: Transport,
        stop_wished: Callable[[], bool] = never,
        keep: Keep | None = None,
    ) -> Outcome:
        """Take the rounds with the agents of this process and a transport for their messages; see
        `rounds.run`.
        """
        if isinstance(self.steps, Conversation):
            return self.steps.on(self.agents, transport, self.sent)
        agents = forms_of_agents(self.agents)
        start = Start(self.checkpoint, self.warm, self.sent)
        control = Control(stop_wished, self.watch, keep)
        return take_rounds(agents, self.steps, transport, self.limits, start, control)


class Engine(ABC):
    """Puts agents somewhere and runs the rounds there."""

    name: ClassVar[str]
    summary: ClassVar[str]
    """One line for tables and `--help`."""
    in_memory: ClassVar[bool] = False
    """Whether all agents share this machine, so that messages cost almost nothing."""
    apart: ClassVar[bool] = False
    """Whether agents stand for organisations, so that sums are secure by default."""
    needs: ClassVar[tuple[str, ...]] = ()
    """Packages without which it does not work; those of this library's engines come with the extra
    of its name.
    """

    turn_seconds: ClassVar[float] = 0.0
    """Seconds that it adds to a hop: half of what a round of one `Sum` (two hops) of 500 numbers
    takes for 8 agents on an idle machine with two cores, as `benchmarks/engines.py` measures it; on
    a busy machine, many times as much.
    """
    start_seconds: ClassVar[float] = 0.0
    """Seconds until a tiny fit is done where nothing runs yet, measured there, too. A session or a
    cluster that is up already takes a second or two.
    """

    @abstractmethod
    def run(self, run: Run) -> Outcome:
        """Run until a limit is reached."""

    def hosting(self, data: Any, agents: Any) -> tuple[Engine, list[Source]] | None:
        """For data that is read where agents run: the engine that reads it, and a source for each
        agent. None for data in this process.

        A list with callables is such data: each is called where its agent runs.
        """
        if isinstance(data, Rows):
            kind = type(data.frame)
            fitting = {"pyspark": "spark", "ray": "ray"}.get(
                kind.__module__.partition(".")[0], "spark' or 'ray"
            )
            raise InvalidData(
                f"Rows of a {kind.__name__} are in a cluster: use engine='{fitting}', not "
                f"'{self.name}'."
            )
        if isinstance(data, list) and any(callable(part) for part in data):
            return self, [part if callable(part) else partial(_given, part) for part in data]
        return None

    def held(self) -> AbstractContextManager[None]:
        """Within this context, workers that `ask` or `run` started stay, with the data that they
        have read.
        """
        return nullcontext()

    def cores(self) -> AbstractContextManager[None]:
        """Within this context, this process uses as many threads as the engine leaves to it."""
        return cores(1)

    def ask(self, questions: Sequence[Callable[[], T]]) -> list[T]:
        """The answers to one question per agent, each asked where that agent's data is."""
        return [question() for question in questions]

    @property
    def writes_output(self) -> bool:
        """Whether this process prints and writes files; where all processes run the same script,
        only one of them.
        """
        return True

    @classmethod
    def missing(cls) -> str | None:
        """The package that must be installed before this engine works, or None."""
        absent = next((package for package in cls.needs if find_spec(package) is None), None)
        if absent is None:
            return None
        return f"{absent} is needed: {extra_command(cls.name)}"


def _given(part: Any) -> Any:
    return part
