"""Who is still there? A thread beside the words of an MPI run, because MPI has no deadline.

A collective waits for everybody, for ever. So every rank has a thread that sleeps, and now and then looks whether its
rank has waited in one word for long. If so it asks the threads of all other ranks, which answer while theirs compute:

| a rank's thread answers       | what it is                                                                       |
|-------------------------------|----------------------------------------------------------------------------------|
| nothing, up to the deadline   | frozen, or cut off: lost                                                         |
| busy, for `LONG` deadlines    | in an endless loop, or in need of a longer deadline: lost                        |
| busy, for less                | slow: it is waited for                                                           |
| waiting, but in another word  | two words were said at the same step, and none will be answered                  |

Nothing is sent while words are answered in time, and a rank only notes which word it says and which was answered.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

from coterie.errors import CoterieError, PartyLost, ProtocolError
from coterie.transport.links import Tag

QUESTION, ANSWER, VERDICT = 1, 2, 3
BEATS = 16
"""How often a thread looks up within a deadline."""
LONG = 10
"""So many deadlines a rank may be busy while another one waits for it."""


class Doing:
    """Which word a rank said last, and which one was answered last: all that a word costs for being watched."""

    __slots__ = ("answered", "said", "size")

    def __init__(self) -> None:
        self.said: Tag | None = None
        self.answered: Tag | None = None
        self.size = 0
        """How many numbers the last message of a `Sum` or a `Mix` had."""

    @contextmanager
    def waiting(self, tag: Tag) -> Iterator[None]:
        """While this rank waits in a word."""
        self.said = tag
        try:
            yield
        finally:
            self.answered = self.said


class _Standing(NamedTuple):
    """What a rank does, and for how many seconds already."""

    word: Tag | None
    """The word that it waits in; None while it computes."""
    size: int
    """How long its messages are."""
    seconds: float


class Watchdog:
    """Looks after one rank, and answers for it."""

    def __init__(
        self,
        comm: Any,
        deadline: float,
        called: Sequence[str],
        doing: Doing,
        judge: Callable[[CoterieError, Sequence[int]], None],
    ):
        """`comm` is a communicator for nothing else; `judge` is handed the error, and the ranks that are left."""
        self.comm, self.deadline, self.called, self.doing, self.judge = comm, deadline, called, doing, judge
        self._others = [rank for rank in range(comm.size) if rank != comm.rank]
        self._seen = doing.said, doing.answered
        self._since = time.monotonic()
        self._calls = 0
        self._posted: list[Any] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="coterie-watchdog", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop looking."""
        self._over.set()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    # -- the thread ---------------------------------------------------------------------------------------------------

    def _watch(self) -> None:
        while not self._over.wait(self.deadline / BEATS):
            since = self._look()
            self._answer()
            if self._word is not None and time.monotonic() > since + self.deadline / 2:
                found = self._asked(since)
                if found is not None and (error := self._verdict(found)) is not None:
                    left = sorted([self.comm.rank, *found])
                    for rank in found:
                        self._post(rank, (error, left), VERDICT)
                    self.judge(error, left)
                    return
            if self.comm.iprobe(tag=VERDICT):
                self.judge(*self.comm.recv(tag=VERDICT))
                return

    def _look(self) -> float:
        """When this rank was first seen doing what it does now; a word that came and went in between counts."""
        now = self.doing.said, self.doing.answered
        if now[0] is not self._seen[0] or now[1] is not self._seen[1]:
            self._seen, self._since = now, time.monotonic()
        return self._since

    @property
    def _word(self) -> Tag | None:
        """The word in which this rank was seen waiting."""
        said, answered = self._seen
        return None if said is answered else said

    def _post(self, to: int, thing: Any, tag: int) -> None:
        # What was posted is kept until it has left. Who cannot be written to any more is silent, and so found out.
        with suppress(RuntimeError):
            self._posted = [request for request in self._posted if not request.Test()]
            self._posted.append(self.comm.isend(thing, to, tag))

    def _answer(self) -> None:
        while self.comm.iprobe(tag=QUESTION):
            asker, call = self.comm.recv(tag=QUESTION)
            self._post(asker, (self.comm.rank, call, self._standing()), ANSWER)

    def _standing(self) -> _Standing:
        since = self._look()
        return _Standing(self._word, self.doing.size, time.monotonic() - since)

    def _asked(self, since: float) -> dict[int, _Standing] | None:
        """What the others do, as far as they answer; None if this rank does not wait any more."""
        self._calls += 1
        for rank in self._others:
            self._post(rank, (self.comm.rank, self._calls), QUESTION)
        found: dict[int, _Standing] = {}
        until = max(since + self.deadline, time.monotonic() + self.deadline / 2)
        while len(found) < len(self._others) and time.monotonic() < until:
            if self._over.wait(self.deadline / BEATS) or self._look() != since or self.comm.iprobe(tag=VERDICT):
                return None
            self._answer()
            while self.comm.iprobe(tag=ANSWER):
                rank, call, standing = self.comm.recv(tag=ANSWER)
                if call == self._calls:
                    found[rank] = standing
        return found

    def _verdict(self, found: dict[int, _Standing]) -> CoterieError | None:
        if silent := [rank for rank in self._others if rank not in found]:
            return self._lost(silent, f"has not been heard for {self.deadline:g} seconds")
        if endless := [r for r in self._others if found[r].word is None and found[r].seconds > LONG * self.deadline]:
            return self._lost(endless, f"has been computing for more than {LONG * self.deadline:g} seconds")
        standings = {self.comm.rank: self._standing(), **found}
        words = {(standing.word, standing.size) for standing in standings.values() if standing.word is not None}
        waiting = all(standing.word is not None for standing in standings.values())
        # Messages that are long on their way make all ranks wait, too, but not for different words of one step.
        if waiting and len({word.step for word, _ in words}) < len(words):
            members = [(self.called[rank], standings[rank]) for rank in sorted(standings)]
            said = "; ".join(f"{name} said {standing.word} of {standing.size} numbers" for name, standing in members)
            return ProtocolError(f"all ranks wait for each other: {said}.")
        return None

    def _lost(self, ranks: Sequence[int], why: str) -> PartyLost:
        names = " and ".join(self.called[rank] for rank in ranks)
        which = " and ".join(f"rank {rank}" for rank in ranks)
        return PartyLost(f"{names} stopped answering: {which} {why} (the deadline is {self.deadline:g}).", names)
