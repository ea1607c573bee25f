"""Run one process per agent on this machine, with mutual TLS between processes.

Each process gets only the data of its own agent. The engine does on one machine what
`coterie agent` does for several organisations. It is for a program that has all the data, and tests
how a run between organisations would behave. The engine makes keys for each run, and deletes them
after it.
"""

from __future__ import annotations

import multiprocessing as mp
import signal
import tempfile
import threading
import uuid
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any, ClassVar

from coterie.engines.engine import Run
from coterie.engines.processes import ProcessSpec, RunSpec, pace_of
from coterie.engines.supervisor import Event, Supervised, report, supervise
from coterie.errors import InvalidInput, MissingExtra, PartyLost
from coterie.run.rounds import Outcome

LAST_SECONDS = 2.0
"""Seconds that a process has to end by itself after a run without errors."""


@dataclass(frozen=True)
class Peers(Supervised):
    """Run each agent in a process on this machine; processes communicate over mutual TLS."""

    name: ClassVar[str] = "peers"
    summary: ClassVar[str] = (
        "a process per agent on this machine, mutual TLS between them; see `coterie agent`"
    )
    turn_seconds: ClassVar[float] = 0.001
    start_seconds: ClassVar[float] = 5.0
    apart: ClassVar[bool] = True
    needs: ClassVar[tuple[str, ...]] = ("cryptography", "grpc")

    def run(self, run: Run) -> Outcome:
        if self.missing():
            raise MissingExtra("the peers engine", "peers")
        _refuse_repeated_script()
        spec = RunSpec.of(run, len(run.agents), pace_of(self.clock, self.pace))
        own = spec.shared_out(run)
        return supervise(
            spec, run.watch, self.restarts, lambda: _Children(spec, own, self.deadline)
        )


def _refuse_repeated_script() -> None:
    """Refuse to start processes in a process that is itself starting.

    A starting process imports the user's script. A script without a guard would begin the same fit
    again.
    """
    if getattr(mp.current_process(), "_inheriting", False):
        raise InvalidInput(
            "the peers engine starts processes, and each of them imports your script. Put the "
            "calls of the script below a line: if __name__ == '__main__':"
        )


class _Children:
    """Child processes on this machine, each connected by a pipe."""

    def __init__(self, spec: RunSpec, specs: Sequence[ProcessSpec], deadline: float):
        from coterie.transport.keys import load_keys, provide_all

        self._spec = spec
        with tempfile.TemporaryDirectory() as folder:
            made = provide_all(folder, "run", list(spec.names))
            keys = [load_keys(made[name], name) for name in spec.names]
        context = mp.get_context("spawn")
        run_id = uuid.uuid4().hex
        self._pipes: list[Connection] = []
        self._connected: set[int] = set()
        self._children = []
        for own, key in zip(specs, keys, strict=True):
            local, there = context.Pipe()
            child = context.Process(
                target=_child, args=(there, spec, own, run_id, deadline, key), daemon=True
            )
            child.start()
            there.close()
            self._pipes.append(local)
            self._children.append(child)

    def __enter__(self) -> _Children:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        for child in self._children:
            child.join(LAST_SECONDS if kind is None else 0)
            if child.is_alive():
                child.kill()
                child.join()
        for pipe in self._pipes:
            pipe.close()

    def listen(self, running: Collection[int], seconds: float) -> Iterator[Event]:
        by_pipe = {self._pipes[process]: process for process in running}
        for pipe in wait(list(by_pipe), timeout=seconds):
            assert isinstance(pipe, Connection)
            process = by_pipe[pipe]
            try:
                event = pipe.recv()
            except (EOFError, OSError):
                yield process, "lost", self._lost(process)
            else:
                self._connected.add(process)
                yield (process, *event)

    def _lost(self, process: int) -> PartyLost:
        name = self._spec.names[process]
        if process in self._connected:
            return PartyLost(f"{name} stopped answering: its process died.", name)
        return PartyLost(f"the process of {name} did not start: see its error above.", name)

    def introduce(self, addresses: Sequence[str]) -> None:
        for pipe in self._pipes:
            with suppress(OSError):
                pipe.send(addresses)

    def stop(self) -> None:
        with suppress(OSError):
            self._pipes[0].send("stop")


def _child(
    pipe: Connection, spec: RunSpec, own: ProcessSpec, run_id: str, deadline: float, keys: Any
) -> None:
    """Run one process of the engine, from start to end."""
    # Ctrl-C reaches all processes of a terminal. Only the process that started the run handles it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    stop = threading.Event()

    def wait_for_stop() -> None:
        with suppress(EOFError, OSError):
            while pipe.recv() == "stop":
                stop.set()

    def addresses() -> Sequence[str]:
        found: Sequence[str] = pipe.recv()
        threading.Thread(target=wait_for_stop, daemon=True).start()
        return found

    how = {"run_id": run_id, "deadline": deadline, "keys": keys, "stop_wished": stop.is_set}
    report(lambda *message: pipe.send(message), addresses, spec, own, **how)
