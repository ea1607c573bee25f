"""Peers on one machine: a process per agent, and mutual TLS between them, as between organisations.

Each process gets its own agent's data and nothing else. It is what `coterie agent` does for several organisations, for
a program that has all the data and wants to know how that would go; keys are made for the run and forgotten after it.
"""

from __future__ import annotations

import multiprocessing as mp
import tempfile
import threading
import uuid
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any, ClassVar

from coterie.agent import Agent
from coterie.certificate import Point
from coterie.checkpoint import Checkpoint
from coterie.engines.engine import Engine
from coterie.engines.local import ctrl_c
from coterie.engines.processes import (
    Desk,
    Job,
    Task,
    driver_on,
    job_of,
    pace_of,
    put_together,
    root_cause,
    tasks_of,
    work,
)
from coterie.errors import MissingExtra, NumericalError, PartyLost
from coterie.networks import Network
from coterie.rounds import Limits, Outcome, Watch
from coterie.steps import Steps
from coterie.transport.layout import partners

__all__ = ["Peers"]


@dataclass(frozen=True)
class Peers(Engine):
    """A process per agent on this machine, talking over mutual TLS."""

    name: ClassVar[str] = "peers"
    summary: ClassVar[str] = "a process per agent on this machine, mutual TLS between them; see `coterie agent`"

    deadline: float = 30.0
    """Seconds of silence after which a process is lost."""
    restarts: int = 3
    """How often a run with a checkpoint begins again when a process is lost."""
    clock: str = "virtual"
    """Methods whose agents wake up one by one: "virtual", as in one process, or "real": nobody waits for anybody."""
    pace: float = 0.01
    """Seconds between two wake-ups of an agent, on average, where the clock is real; a round lasts as long."""

    @classmethod
    def missing(cls) -> str | None:
        try:
            import cryptography  # noqa: F401
            import grpc  # noqa: F401
        except ImportError as error:
            return f"{error.name} is needed: pip install 'coterie[peers]'"
        return None

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
        if self.missing():
            raise MissingExtra("the peers engine", "peers")
        pace = pace_of(self.clock, self.pace)
        job = job_of(agents, steps, network, limits, checkpoint, len(agents), pace)
        tasks = tasks_of(job, agents, warm)
        with ctrl_c() as pressed:
            for remaining in reversed(range(self.restarts + 1)):
                desk = Desk(job)
                try:
                    return self._attempt(job, tasks, desk, watch, pressed)
                except PartyLost as lost:
                    if checkpoint is None or not remaining:
                        return desk.ended(lost)
                except NumericalError as error:
                    return desk.ended(error)
        raise AssertionError("every attempt ends in one way or another")

    def _attempt(self, job: Job, tasks: Sequence[Task], desk: Desk, watch: Watch, pressed: threading.Event) -> Outcome:
        """One start of all processes, until they are done or one is lost."""
        from coterie.transport.keys import load_keys, provide_all

        with tempfile.TemporaryDirectory() as folder:
            made = provide_all(folder, "run", list(job.names))
            keys = [load_keys(made[name], name) for name in job.names]
        context, run_id = mp.get_context("spawn"), uuid.uuid4().hex
        pipes, processes = [], []
        for task, own in zip(tasks, keys, strict=True):
            here, there = context.Pipe()
            process = context.Process(target=_process, args=(there, job, task, run_id, self.deadline, own), daemon=True)
            process.start()
            there.close()
            pipes.append(here)
            processes.append(process)
        try:
            return _followed(job, pipes, desk, watch, pressed)
        finally:
            for process in processes:
                process.join(2.0)
                if process.is_alive():
                    process.kill()
                    process.join()
            for pipe in pipes:
                pipe.close()


def _followed(job: Job, pipes: Sequence[Connection], desk: Desk, watch: Watch, pressed: threading.Event) -> Outcome:
    """Hear what the processes say until all have come to an end."""
    addresses: dict[int, str] = {}
    ends: dict[int, Outcome] = {}
    errors: list[Exception] = []
    number_of = {pipe: process for process, pipe in enumerate(pipes)}
    talking = set(pipes)
    told_to_stop = False
    while talking:
        ready: list[Any] = wait(talking, timeout=0.2)
        if pressed.is_set() and not told_to_stop and len(addresses) == job.processes:
            pipes[0].send("stop")
            told_to_stop = True
        for pipe in ready:
            process = number_of[pipe]
            try:
                kind, thing = pipe.recv()
            except (EOFError, OSError):
                talking.discard(pipe)
                name = job.names[process]
                errors.append(PartyLost(f"{name} stopped answering: its process died.", name))
                if len(addresses) < job.processes:
                    raise errors[-1] from None
                continue
            match kind:
                case "address":
                    addresses[process] = thing
                    if len(addresses) == job.processes:
                        for other in pipes:
                            with suppress(OSError):
                                other.send([addresses[k] for k in range(job.processes)])
                case "kept":
                    desk.keep(process, thing)
                    if process == 0 and watch(thing.history[-1].round, thing.history[-1]) is True:
                        pipe.send("stop")
                case "end" if thing.error is None:
                    ends[process] = thing
                    talking.discard(pipe)
                case "end":
                    errors.append(thing.error)
                    talking.discard(pipe)
                case "error":
                    errors.append(thing)
                    talking.discard(pipe)
    if errors:
        raise root_cause(errors)
    return put_together([ends[process] for process in range(job.processes)], job)


def _process(pipe: Connection, job: Job, task: Task, run_id: str, deadline: float, keys: Any) -> None:
    """The whole run, as one process sees it."""
    import signal

    from coterie.transport.grpc_mesh import GrpcMesh

    # Ctrl-C reaches all processes of a terminal; the one that started the run decides.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    stop, process = threading.Event(), task.process
    talk = threading.Lock()

    def tell(kind: str, thing: object) -> None:
        with talk:
            pipe.send((kind, thing))

    def hear() -> None:
        with suppress(EOFError, OSError):
            while pipe.recv() == "stop":
                stop.set()

    # Who may wake up alone may ask anybody.
    neighbours = range(job.processes) if job.steps.asynchronous else partners(job.network, job.process_of, process)
    links = GrpcMesh(process, neighbours, run_id, keys, deadline, names=job.names)
    try:
        tell("address", links.address)
        links.connect(pipe.recv())
        threading.Thread(target=hear, daemon=True).start()
        links.wait()
        carrier = driver_on(job, process, links)
        outcome = work(job, task, carrier, stop_wished=stop.is_set, keep=lambda outcome: tell("kept", outcome))
        lost = outcome.error
        links.close(str(lost or ""), lost.party if isinstance(lost, PartyLost) else "")
        tell("end", outcome)
    except Exception as error:
        links.close(str(error), error.party if isinstance(error, PartyLost) else "")
        tell("error", error)
