"""MPI: one rank per agent, started by mpiexec. Every rank runs the same script and comes to the same result.

    mpiexec -n 8 python -m coterie fit patients.csv --target ill --engine mpi
    mpiexec -n 8 python my_script.py            # in which co.solve(..., engine="mpi") is called

With fewer ranks than agents, ranks have several agents each. Where a rank dies, mpiexec ends the run and names it; the
same command continues it from `checkpoint=`. With `mpiexec --with-ft ulfm` (Open MPI 5) the others go on, and the run
ends with the status party_lost, the best model so far, and the name of the party.
"""

from __future__ import annotations

import atexit
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

from coterie.agent import Agent
from coterie.bill import Bill
from coterie.carriers.ranks import Ranks
from coterie.certificate import Point
from coterie.checkpoint import Checkpoint
from coterie.engines.engine import Engine
from coterie.engines.local import ctrl_c
from coterie.engines.places import Desk, homes_of, job_of, put_together, tasks_of, work
from coterie.errors import CoterieError, InvalidInput, MissingExtra, NumericalError, PartyLost
from coterie.networks import Network
from coterie.rounds import Limits, Outcome, Watch
from coterie.statuses import Status
from coterie.steps import Steps

__all__ = ["Mpi"]

T = TypeVar("T")


@dataclass(frozen=True)
class Mpi(Engine):
    """One rank per agent."""

    name: ClassVar[str] = "mpi"
    summary: ClassVar[str] = "one rank of an MPI run per agent, started by mpiexec"

    @classmethod
    def missing(cls) -> str | None:
        try:
            _world()
        except (ImportError, RuntimeError) as error:
            return f"mpi4py and an MPI library are needed: pip install 'coterie[mpi]' ({error})"
        return None

    @property
    def speaks(self) -> bool:
        """Only rank 0 prints and writes."""
        return bool(_world().rank == 0)

    @property
    def ranks(self) -> int:
        """How many ranks this run has: one without mpiexec."""
        return int(_world().size)

    def ask(self, questions: Sequence[Callable[[], T]]) -> list[T]:
        """Every rank answers for the agents that will live there, and all are told all answers, or the first error."""
        world = _world()
        homes = homes_of(len(questions), world.size)
        answers: dict[int, T | CoterieError] = {}
        for agent, home in enumerate(homes):
            if home == world.rank:
                try:
                    answers[agent] = questions[agent]()
                except CoterieError as error:
                    answers[agent] = error
        everybodys = {agent: answer for own in world.allgather(answers) for agent, answer in own.items()}
        return [_unless_error(everybodys[agent]) for agent in range(len(questions))]

    def run(
        self,
        agents: Sequence[Agent],
        steps: Steps,
        network: Network,
        limits: Limits,
        checkpoint: Checkpoint | None,
        warm: Sequence[Point] | None,
        watch: Watch,
    ) -> Outcome:
        world = _world()
        if world.size > len(agents):
            raise InvalidInput(
                f"{world.size} ranks for {len(agents)} agents: start with mpiexec -n {len(agents)}, or give "
                f"agents={world.size}."
            )
        job = job_of(agents, steps, network, limits, checkpoint, world.size)
        task = tasks_of(job, agents, warm)[world.rank]
        carrier = Ranks(network, Bill(network), world, job.homes, job.names)
        desk = Desk(job)

        def keep(outcome: Outcome) -> None:
            for place, other in enumerate(carrier.gathered(outcome)):
                desk.keep(place, other)

        try:
            with ctrl_c() as pressed:
                outcome = work(
                    job, task, carrier, stop_wished=pressed.is_set, watch=watch, keep=keep if _survives() else _forget
                )
            if isinstance(outcome.error, PartyLost):
                raise outcome.error
            return put_together(carrier.gathered(outcome), job)
        except PartyLost as lost:
            atexit.register(_leave)
            return desk.ended(lost)
        except NumericalError:
            raise
        except Exception:
            # The other ranks wait for a word that will never come.
            traceback.print_exc()
            sys.stderr.flush()
            world.Abort(1)
            raise


def _unless_error(answer: T | CoterieError) -> T:
    if isinstance(answer, CoterieError):
        raise answer
    return answer


def _survives() -> bool:
    """Whether the other ranks go on when one dies."""
    return os.environ.get("OMPI_MCA_mpi_ft_enable") == "1"  # noqa: SIM112


def _leave() -> None:
    """End the process without MPI_Finalize, which may wait for the dead."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(Status.PARTY_LOST.exit_code)


def _forget(outcome: Outcome) -> None:
    pass


def _world() -> Any:
    try:
        from mpi4py import MPI
    except ImportError as missing:
        raise MissingExtra("the mpi engine", "mpi") from missing
    return MPI.COMM_WORLD
