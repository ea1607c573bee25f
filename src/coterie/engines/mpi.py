"""MPI: one rank per agent, started by mpiexec. Every rank runs the same script and comes to the
same result.

    mpiexec -n 8 python -m coterie fit patients.csv --target ill --engine mpi
    mpiexec -n 8 python my_script.py            # in which co.solve(..., engine="mpi") is called

With fewer ranks than agents, ranks have several agents each. Where a rank dies, mpiexec ends the
run and names it; where one is frozen for longer than the deadline, the others do (see `watchdog`).
The same command continues the run from `checkpoint=`. With `mpiexec --with-ft ulfm` (Open MPI 5)
the others go on, and the run ends with the status party_lost, the best model so far, and the name
of the party.
"""

from __future__ import annotations

import atexit
import os
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any, ClassVar, TypeVar

from coterie.engines.engine import Engine, Run
from coterie.engines.local import ctrl_c
from coterie.engines.processes import (
    OutcomeStore,
    RunSpec,
    assigned,
    put_together,
    unless_error,
    work,
)
from coterie.errors import (
    CoterieError,
    InvalidInput,
    MissingExtra,
    NumericalError,
    PartyLost,
    ProtocolError,
)
from coterie.installation import extra_command
from coterie.run.agent import with_data
from coterie.run.bill import Bill
from coterie.run.rounds import Outcome
from coterie.run.statuses import Status
from coterie.transport.driver import Driver
from coterie.transport.mpi_collectives import MpiCollectives

T = TypeVar("T")

EAGER_BYTES = 32768
"""Messages up to so long are handed over within a machine without asking: ranks that share a core
would wait for it.
"""
LAST_SECONDS = 2.0
"""For the other ranks, to end what they are doing, before all are ended."""


@dataclass(frozen=True)
class Mpi(Engine):
    """One rank per agent."""

    name: ClassVar[str] = "mpi"
    summary: ClassVar[str] = "one rank of an MPI run per agent, started by mpiexec"
    turn_seconds: ClassVar[float] = 0.0001
    start_seconds: ClassVar[float] = 6.6

    deadline: float = 30.0
    """Seconds of silence after which a rank is lost; one that computes is waited for ten times as
    long.
    """

    @classmethod
    def missing(cls) -> str | None:
        try:
            _world()
        except MissingExtra:
            return f"mpi4py is needed: {extra_command('mpi')}"
        except RuntimeError as error:
            return f"mpi4py finds no MPI library ({error}): {extra_command('mpi')}"
        return None

    @property
    def writes_output(self) -> bool:
        """Only rank 0 prints and writes."""
        return bool(_world().rank == 0)

    @property
    def ranks(self) -> int:
        """The number of ranks of this run: one without mpiexec."""
        return int(_world().size)

    def ask(self, questions: Sequence[Callable[[], T]]) -> list[T]:
        """Answer the questions of the agents of each rank there, and send all answers, or the first
        error, to all ranks.
        """
        world = _world()
        answers: dict[int, T | CoterieError] = {}
        for agent, owner in enumerate(assigned(len(questions), world.size)):
            if owner == world.rank:
                try:
                    answers[agent] = questions[agent]()
                except CoterieError as error:
                    answers[agent] = error
        of_all: dict[int, T | CoterieError] = {}
        for own in world.allgather(answers):
            of_all |= own
        return [unless_error(of_all[agent]) for agent in range(len(questions))]

    def run(self, run: Run) -> Outcome:
        world = _world()
        if world.size > len(run.agents):
            raise InvalidInput(
                f"{world.size} ranks for {len(run.agents)} agents: start with mpiexec -n "
                f"{len(run.agents)}, or give agents={world.size}."
            )
        spec = RunSpec.of(run, world.size)
        own = spec.shared_out(run)[world.rank]
        store = OutcomeStore(spec)
        try:
            # Read the data before any rank waits for a message: reading may take long.
            own = replace(own, agents=tuple(with_data(agent) for agent in own.agents))
            judge = None if _survives() else _end_all
            ranks = MpiCollectives(
                run.network, world, spec.process_of, spec.names, self.deadline, judge
            )
            with closing(ranks), ctrl_c() as pressed:

                def keep(outcome: Outcome) -> None:
                    if judge is None:
                        for process, other in enumerate(ranks.gathered(outcome)):
                            store.keep(process, other)

                try:
                    transport = Driver(Bill(run.network), ranks, secure_sums=run.secure_sums)
                    outcome = work(
                        spec, own, transport, stop_wished=pressed.is_set, watch=run.watch, keep=keep
                    )
                    if isinstance(outcome.error, PartyLost):
                        raise outcome.error
                    everything = put_together(ranks.gathered(outcome), spec)
                    ranks.leave()
                    return everything
                except PartyLost as lost:
                    atexit.register(_leave, ranks.left)
                    return store.ended(lost)
        except (NumericalError, PartyLost):
            raise
        except Exception as error:
            # The other ranks wait for a message that will never arrive.
            traceback.print_exc()
            sys.stderr.flush()
            world.Abort(error.status.exit_code if isinstance(error, ProtocolError) else 1)
            raise


def _survives() -> bool:
    """Whether the other ranks go on when one dies."""
    return os.environ.get("OMPI_MCA_mpi_ft_enable") == "1"  # noqa: SIM112


def _leave(left: Sequence[int]) -> None:
    """End the process without MPI_Finalize, which may wait for the dead; `left` are the others of a
    frozen rank.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    if left and _world().rank == left[0]:
        time.sleep(LAST_SECONDS)
        _world().Abort(Status.PARTY_LOST.exit_code)
    os._exit(Status.PARTY_LOST.exit_code)


def _end_all(error: CoterieError, left: Sequence[int]) -> None:
    """End all ranks, also frozen ones; the first rank that is left prints the reason."""
    if _world().rank == left[0]:
        print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
    else:
        time.sleep(LAST_SECONDS)
    _world().Abort(error.status.exit_code)


def prepare_environment() -> None:
    """Set the variable that Open MPI reads when it starts, if it is not set; other libraries ignore
    it.
    """
    os.environ.setdefault("OMPI_MCA_btl_sm_eager_limit", str(EAGER_BYTES))


def _world() -> Any:
    prepare_environment()
    try:
        from mpi4py import MPI
    except ImportError as missing:
        raise MissingExtra("the mpi engine", "mpi") from missing
    return MPI.COMM_WORLD
