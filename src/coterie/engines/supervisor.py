"""Follow the processes of a run from their start to their end, and start all of them again when one
is lost.

| a process sends | the supervisor                                                             |
|-----------------|----------------------------------------------------------------------------|
| address         | sends all addresses to each process when it knows them all                 |
| kept            | stores this outcome, for the case that a process is lost, and calls `watch` |
| end, error      | notes that the process has ended                                           |
| lost            | notes that it died; in real time, the other processes go on without it     |

With a checkpoint, a run that lost a process begins again from the newest checkpoint that all
processes have.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, Protocol

from coterie.engines.engine import Engine
from coterie.engines.local import ctrl_c
from coterie.engines.processes import (
    OutcomeStore,
    ProcessSpec,
    RunSpec,
    live,
    put_together,
    root_cause,
)
from coterie.errors import NumericalError, PartyLost
from coterie.numerics.arrays import whole_number
from coterie.run.rounds import Control, Outcome, Watch, never

Event = tuple[int, Literal["address", "kept", "end", "error", "lost"], Any]
"""The number of a process, the kind of its message, and the message."""
LISTEN_SECONDS = 0.2


class Processes(Protocol):
    """The processes of one attempt, as a supervisor sees them."""

    def listen(self, running: Collection[int], seconds: float) -> Iterable[Event]:
        """Return the messages that these processes send within `seconds`."""

    def introduce(self, addresses: Sequence[str]) -> None:
        """Send all addresses to all processes."""

    def stop(self) -> None:
        """Ask the process of agent 0 to end the run after the current round."""


@dataclass(frozen=True, kw_only=True)
class Supervised(Engine):
    """An engine whose processes are followed from their start to their end."""

    deadline: float = 30.0
    """Seconds of silence after which a process is lost."""
    restarts: int = 3
    """How often a run with a checkpoint begins again when a process is lost."""
    clock: str = "virtual"
    """Methods whose agents wake up one by one: "virtual", as in one process, or "real": no agent
    waits for another.
    """
    pace: float = 0.01
    """Seconds between two wake-ups of an agent, on average, where the clock is real; a round lasts
    as long.
    """

    def __post_init__(self) -> None:
        whole_number("restarts", self.restarts, least=0)


def report(
    send: Callable[[str, Any], None],
    receive_addresses: Callable[[], Sequence[str]],
    spec: RunSpec,
    own: ProcessSpec,
    *,
    stop_wished: Callable[[], bool] = never,
    **how: Any,
) -> None:
    """Run one process, and report to its supervisor, which sends the addresses of all processes."""
    control = Control(stop_wished, keep=partial(send, "kept"))

    def meet(address: str) -> Sequence[str]:
        send("address", address)
        return receive_addresses()

    try:
        send("end", live(spec, own, meet, control=control, **how))
    except Exception as error:
        send("error", error)


def supervise(
    spec: RunSpec,
    watch: Watch,
    restarts: int,
    start: Callable[[], AbstractContextManager[Processes]],
) -> Outcome:
    """The outcome of a run; `start` starts all processes, and its end ends them."""
    with ctrl_c() as pressed:
        for remaining in reversed(range(restarts + 1)):
            store = OutcomeStore(spec)
            try:
                with start() as processes:
                    return _follow(_Followed(spec, processes, store, watch), pressed)
            except PartyLost as lost:
                if spec.folder is None or not remaining:
                    return store.ended(lost)
            except NumericalError as error:
                return store.ended(error)
    raise AssertionError("every attempt ends in one way or another")


class _Followed:
    """The processes of one attempt, as their supervisor knows them."""

    def __init__(self, spec: RunSpec, processes: Processes, store: OutcomeStore, watch: Watch):
        self.spec = spec
        self.processes = processes
        self.store = store
        self.watch = watch
        self.running = set(range(spec.processes))
        self.seconds = LISTEN_SECONDS
        self._addresses: dict[int, str] = {}
        self._ends: dict[int, Outcome] = {}
        self._errors: list[Exception] = []

    @property
    def all_met(self) -> bool:
        """Whether every process has sent its address."""
        return len(self._addresses) == self.spec.processes

    def take(self, process: int, kind: str, news: Any) -> None:
        """Handle a message of a process."""
        if kind == "address":
            self._addresses[process] = news
            if self.all_met:
                self.processes.introduce(
                    [self._addresses[other] for other in range(self.spec.processes)]
                )
        elif kind == "kept":
            self.store.keep(process, news)
            last = news.history[-1]
            if process == self.spec.process_of[0] and self.watch(last.round, last) is True:
                self.processes.stop()
        else:
            self._end(process, kind, news)

    def _end(self, process: int, kind: str, news: Any) -> None:
        self.running.discard(process)
        if kind == "lost" and (self.spec.pace is None or not self.all_met):
            self.seconds = 0.0  # read the messages that were sent before, and then give up
        error = news.error if kind == "end" else news
        if error is None:
            self._ends[process] = news
        else:
            self._errors.append(error)

    def outcome(self) -> Outcome:
        """The outcome of all processes; raises the error that caused the others."""
        if self._errors:
            raise root_cause(self._errors)
        return put_together(
            [self._ends[process] for process in range(self.spec.processes)], self.spec
        )


def _follow(followed: _Followed, pressed: threading.Event) -> Outcome:
    """Listen to the processes until all have ended; `pressed` is set by Ctrl-C."""
    stopped = False
    while followed.running:
        received = list(followed.processes.listen(followed.running, followed.seconds))
        if not received and not followed.seconds:
            break
        if pressed.is_set() and not stopped and followed.all_met:
            followed.processes.stop()
            stopped = True
        for process, kind, news in received:
            followed.take(process, kind, news)
    return followed.outcome()
