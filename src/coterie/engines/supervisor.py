"""Follows the processes of a run from their start to their end, and starts all of them again when one is lost.

| a process says      | then                                                                                        |
|---------------------|---------------------------------------------------------------------------------------------|
| address             | when all have said theirs, each is told everybody's                                         |
| kept                | what it would have come to if a party were lost now: it is stored, and `watch` is told      |
| end, error          | it is over there                                                                            |
| lost                | it died. Step by step nothing more can come of it; in real time the others go on and find   |
|                     | out by themselves                                                                           |

With a checkpoint, a run that lost a process begins again from the newest snapshot that all processes have.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, Protocol

from coterie.arrays import whole_number
from coterie.engines.engine import Engine
from coterie.engines.local import ctrl_c
from coterie.engines.processes import OutcomeStore, ProcessSpec, RunSpec, live, put_together, root_cause
from coterie.errors import NumericalError, PartyLost
from coterie.rounds import Outcome, Watch

Event = tuple[int, Literal["address", "kept", "end", "error", "lost"], Any]
"""Which process, what kind of news, and the news."""
LISTEN_SECONDS = 0.2


class Processes(Protocol):
    """The processes of one attempt, as a supervisor sees them."""

    def listen(self, talking: Collection[int], seconds: float) -> Iterable[Event]:
        """What those processes say; nothing, if none of them says anything within that time."""

    def introduce(self, addresses: Sequence[str]) -> None:
        """Tell all processes where the others are."""

    def stop(self) -> None:
        """Tell the process of agent 0 that the run should end after the current round."""


@dataclass(frozen=True, kw_only=True)
class Supervised(Engine):
    """An engine whose processes are followed from their start to their end."""

    deadline: float = 30.0
    """Seconds of silence after which a process is lost."""
    restarts: int = 3
    """How often a run with a checkpoint begins again when a process is lost."""
    clock: str = "virtual"
    """Methods whose agents wake up one by one: "virtual", as in one process, or "real": nobody waits for anybody."""
    pace: float = 0.01
    """Seconds between two wake-ups of an agent, on average, where the clock is real; a round lasts as long."""

    def __post_init__(self) -> None:
        whole_number("restarts", self.restarts, least=0)


def report(
    tell: Callable[[str, Any], None], hear: Callable[[], Sequence[str]], spec: RunSpec, own: ProcessSpec, **how: Any
) -> None:
    """The other end: one process lives, and tells its supervisor, from whom it hears everybody's addresses."""

    def meet(address: str) -> Sequence[str]:
        tell("address", address)
        return hear()

    try:
        tell("end", live(spec, own, meet, keep=partial(tell, "kept"), **how))
    except Exception as error:
        tell("error", error)


def supervise(
    spec: RunSpec, watch: Watch, restarts: int, start: Callable[[], AbstractContextManager[Processes]]
) -> Outcome:
    """The outcome of a run; `start` starts all processes, and its end ends them."""
    with ctrl_c() as pressed:
        for remaining in reversed(range(restarts + 1)):
            store = OutcomeStore(spec)
            try:
                with start() as processes:
                    return _followed(spec, processes, store, watch, pressed)
            except PartyLost as lost:
                if spec.folder is None or not remaining:
                    return store.ended(lost)
            except NumericalError as error:
                return store.ended(error)
    raise AssertionError("every attempt ends in one way or another")


def _followed(
    spec: RunSpec, processes: Processes, store: OutcomeStore, watch: Watch, pressed: threading.Event
) -> Outcome:
    addresses: dict[int, str] = {}
    ends: dict[int, Outcome] = {}
    errors: list[Exception] = []
    talking = set(range(spec.processes))
    seconds, stopped = LISTEN_SECONDS, False
    while talking:
        heard = list(processes.listen(talking, seconds))
        if not heard and not seconds:
            break
        if pressed.is_set() and not stopped and len(addresses) == spec.processes:
            processes.stop()
            stopped = True
        for process, kind, news in heard:
            if kind == "address":
                addresses[process] = news
                if len(addresses) == spec.processes:
                    processes.introduce([addresses[other] for other in range(spec.processes)])
            elif kind == "kept":
                store.keep(process, news)
                if process == spec.process_of[0] and watch(news.history[-1].round, news.history[-1]) is True:
                    processes.stop()
            else:
                talking.discard(process)
                if kind == "lost" and (spec.pace is None or len(addresses) < spec.processes):
                    seconds = 0.0  # take in what was said before, and then give up
                if kind == "end" and news.error is None:
                    ends[process] = news
                else:
                    errors.append(news.error if kind == "end" else news)
    if errors:
        raise root_cause(errors)
    return put_together([ends[process] for process in range(spec.processes)], spec)
