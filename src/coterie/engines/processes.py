"""Run agents in several processes: the process of each agent, the work of one process, and the
common outcome.

The processes of a run are numbered from 0, and have one agent or several. Each runs `rounds.run`
for its agents; the process that started them puts the points together.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from coterie.engines.engine import Run
from coterie.errors import (
    CoterieError,
    InvalidInput,
    InvalidProblem,
    NumericalError,
    PartyLost,
    UnknownName,
)
from coterie.numerics.arrays import as_number
from coterie.numerics.threads import one_blas_thread
from coterie.run.agent import with_data
from coterie.run.bill import Bill
from coterie.run.certificate import Point
from coterie.run.checkpoint import Checkpoint
from coterie.run.rounds import Control, Keep, Outcome, Watch, never, unwatched
from coterie.run.site import SiteForm
from coterie.run.steps import Transport
from coterie.transport.driver import Driver
from coterie.transport.layout import Layout
from coterie.transport.links import Links
from coterie.transport.point_to_point import PointToPoint

if TYPE_CHECKING:
    from coterie.transport.security import MutualTLS

T = TypeVar("T")
VERSIONS = 3
"""Snapshots that each process keeps. They are at most one certificate apart, so the newest common
one is among them.
"""


@dataclass(frozen=True)
class RunSpec:
    """A run, as all of its processes get it."""

    run: Run
    """The run, without its agents and its watch."""
    process_of: tuple[int, ...]
    """The process of each agent."""
    names: tuple[str, ...]
    """The name of each agent."""
    folder: Path | None
    """The folder in which each process has a folder for its snapshots."""
    identity: str
    pace: float | None = None
    """Seconds between two wake-ups of an agent that gossips in real time; None: on a virtual clock.
    """

    @staticmethod
    def of(run: Run, processes: int, pace: float | None = None) -> RunSpec:
        """The specification of a run for all of its processes."""
        if pace is not None and not run.steps.asynchronous:
            raise InvalidProblem(
                "clock='real' is for methods whose agents wake up one by one, such as dada. Leave "
                "it out: the agents of this method go step by step."
            )
        process_of = assigned(len(run.agents), processes)
        folder, identity = None, ""
        if run.checkpoint is not None:
            folder = run.checkpoint.folder.absolute()
            identity = run.checkpoint.identity
        bare = replace(run, agents=(), checkpoint=None, warm=None, watch=Run.watch)
        spec = RunSpec(bare, process_of, run.names, folder, identity, pace)
        if folder is not None:
            _refuse_other_layout(folder, spec)
        return spec

    @property
    def processes(self) -> int:
        """The number of processes."""
        return max(self.process_of) + 1

    def agents_of(self, process: int) -> list[int]:
        """The agents of that process."""
        return [agent for agent, owner in enumerate(self.process_of) if owner == process]

    def called(self, process: int) -> str:
        """The names of the agents of that process."""
        return " and ".join(self.names[agent] for agent in self.agents_of(process))

    def checkpoint(self, process: int) -> Checkpoint | None:
        """The folder of that process's snapshots."""
        if self.folder is None:
            return None
        agents = self.agents_of(process)
        return Checkpoint(
            self.folder / f"agents-{agents[0]}-to-{agents[-1]}", self.identity, VERSIONS
        )

    def shared_out(self, run: Run) -> list[ProcessSpec]:
        """The agents and points of each process."""
        found = []
        for process in range(self.processes):
            places = self.agents_of(process)
            agents = tuple(run.agents[agent] for agent in places)
            warm = None
            if run.warm is not None:
                warm = tuple(run.warm[agent] for agent in places)
            found.append(ProcessSpec(process, agents, warm))
        return found


@dataclass(frozen=True)
class ProcessSpec:
    """One process of a run: its agents, with their data, and the points at which they start."""

    process: int
    agents: tuple[SiteForm, ...]
    warm: tuple[Point, ...] | None


def assigned(agents: int, processes: int) -> tuple[int, ...]:
    """The process of each agent: consecutive agents together, and about equally many everywhere."""
    processes = min(agents, processes)
    return tuple(agent * processes // agents for agent in range(agents))


CLOCKS = ("virtual", "real")


def pace_of(clock: str, pace: float) -> float | None:
    """The pace of a clock in real time, None for a virtual one."""
    if clock not in CLOCKS:
        raise UnknownName("clock", clock, CLOCKS)
    if not 0 < as_number(pace) < math.inf:
        raise InvalidInput(
            "pace is the mean time between two wake-ups in seconds, a positive number, not "
            f"{pace!r}."
        )
    if clock == "real":
        return float(pace)
    return None


def work(
    spec: RunSpec,
    own: ProcessSpec,
    transport: Transport,
    *,
    stop_wished: Callable[[], bool] = never,
    watch: Watch = unwatched,
    keep: Keep | None = None,
) -> Outcome:
    """Take the rounds of a run with the agents of one process, with one thread for linear
    algebra.
    """
    agents = [with_data(agent) for agent in own.agents]
    saved = spec.checkpoint(own.process)
    with one_blas_thread():
        run = replace(spec.run, agents=agents, checkpoint=saved, warm=own.warm, watch=watch)
        return run.on(transport, stop_wished, keep)


def live(
    spec: RunSpec,
    own: ProcessSpec,
    meet: Callable[[str], Sequence[str]],
    *,
    run_id: str,
    deadline: float,
    host: str = "127.0.0.1",
    keys: MutualTLS | None = None,
    control: Control | None = None,
) -> Outcome:
    """Open the links of one process, connect to the others, `work`, and close the links.

    meet    gets the address of this process, and returns those of all processes when all have one
    keys    for mutual TLS; without them messages are not encrypted: for one trusted cluster only
    """
    from coterie.transport.grpc_mesh import GrpcMesh
    from coterie.transport.security import TrustedCluster

    control = control or Control()
    process = own.process
    neighbours: Sequence[int] = range(spec.processes)
    # Agents that wake up one by one may ask any other agent.
    if keys is not None and not spec.run.steps.asynchronous:
        neighbours = Layout(spec.run.network, spec.process_of, process).partners
    names = [spec.called(other) for other in range(spec.processes)]
    links = GrpcMesh(
        process,
        neighbours,
        run_id,
        keys or TrustedCluster(),
        deadline,
        names=names,
        listen=f"{host}:0",
    )
    try:
        links.connect(meet(links.address))
        links.wait()
        transport = driver_on(spec, process, links)
        if spec.run.secure_sums and keys is not None:
            from coterie.transport.broadcast import SignedBroadcast
            from coterie.transport.secure_sums import meet as meet_in_secret

            transport.collectives.sums = meet_in_secret(SignedBroadcast(links, spec.run.network))
        outcome = work(spec, own, transport, stop_wished=control.stop_wished, keep=control.keep)
    except BaseException as error:
        links.close(str(error), error.party if isinstance(error, PartyLost) else "")
        raise
    lost = outcome.error
    links.close(str(lost or ""), lost.party if isinstance(lost, PartyLost) else "")
    return outcome


def driver_on(spec: RunSpec, process: int, links: Links) -> Driver:
    """A transport for that process, on those links."""
    collectives = PointToPoint(spec.run.network, links, spec.process_of, process, spec.names)
    return Driver(Bill(spec.run.network), collectives, spec.pace, secure_sums=spec.run.secure_sums)


def put_together(outcomes: Sequence[Outcome], spec: RunSpec) -> Outcome:
    """The outcome of the run from those of all processes, in the order of the processes."""
    by_agent = {
        agent: point
        for process, outcome in enumerate(outcomes)
        for agent, point in zip(spec.agents_of(process), outcome.points, strict=True)
    }
    points = [by_agent[agent] for agent in range(len(spec.process_of))]
    warnings = tuple(dict.fromkeys(warning for outcome in outcomes for warning in outcome.warnings))
    # Agents are numbered process by process.
    answers = [answer for outcome in outcomes for answer in outcome.answers]
    return replace(outcomes[spec.process_of[0]], points=points, warnings=warnings, answers=answers)


def unless_error(answer: T | CoterieError) -> T:
    """Return the answer of a process, or raise the error that it returned."""
    if isinstance(answer, CoterieError):
        raise answer
    return answer


def root_cause(errors: Sequence[BaseException]) -> BaseException:
    """The error that caused the others: a process that fails leaves, and the others report a lost
    party.
    """

    def distance(error: BaseException) -> int:
        if isinstance(error, PartyLost):
            return 2
        if isinstance(error, NumericalError):
            return 1
        return 0

    return min(errors, key=distance)


@dataclass
class OutcomeStore:
    """The newest outcomes of all processes, from which a run ends if one of them dies."""

    spec: RunSpec
    kept: dict[int, dict[int, Outcome]] = field(default_factory=dict)
    """By round of the certificate, then by process."""

    def keep(self, process: int, outcome: Outcome) -> None:
        """Keep the outcome of a process, and drop outcomes older than the newest round that all
        processes have sent.
        """
        round = outcome.history[-1].round
        self.kept.setdefault(round, {})[process] = outcome
        if len(self.kept[round]) == self.spec.processes:
            self.kept = {other: rows for other, rows in self.kept.items() if other >= round}

    def ended(self, error: CoterieError) -> Outcome:
        """The newest outcome that all processes have sent, as the end of a run that failed; without
        one, raise the error.
        """
        whole = [rows for _, rows in sorted(self.kept.items()) if len(rows) == self.spec.processes]
        if not whole:
            raise error
        outcome = put_together(
            [whole[-1][process] for process in range(self.spec.processes)], self.spec
        )
        return replace(outcome, status=error.status, error=error)


def _refuse_other_layout(folder: Path, spec: RunSpec) -> None:
    """Refuse a folder of snapshots that belong to processes with other agents."""
    expected = {
        path.folder.name
        for process in range(spec.processes)
        if (path := spec.checkpoint(process)) is not None
    }
    found = {path.name for path in folder.glob("agents-*-to-*")}
    if found - expected:
        raise InvalidInput(
            f"the checkpoint in {folder} was written by {len(found)} processes, and this run has "
            f"{spec.processes}. Use as many as before, or an empty folder."
        )
