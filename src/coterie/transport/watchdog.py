"""A thread in each MPI rank that finds ranks that no longer answer, because MPI has no deadline.

An MPI collective waits for all ranks, without limit. Every rank therefore has a thread that checks
at intervals how long its rank has waited in one collective. If the wait is long, the thread asks
the threads of all other ranks. These threads answer while their ranks compute:

    answer of a rank's thread        meaning
    nothing, up to the deadline      the rank is frozen or cut off: it is lost
    busy, for `LONG` deadlines       the rank is in an endless loop, or needs a longer deadline: it
                                     is lost
    busy, for less                   the rank is slow: the others wait for it
    waiting in another collective    two ranks began different collectives at one step: none can end

As long as collectives end in time, the threads send nothing. A rank then only records the last
collective that it started and the last one that ended.
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
"""Number of checks of a thread within one deadline."""
LONG = 10
"""Number of deadlines for which a rank may compute while another rank waits for it."""


class Doing:
    """The last collective that a rank started and the last one that ended. Recording them is the
    only cost of the watchdog.
    """

    __slots__ = ("answered", "last", "size")

    def __init__(self) -> None:
        self.last: Tag | None = None
        self.answered: Tag | None = None
        self.size = 0
        """Number of numbers in the last message of a `Sum` or a `Mix`."""

    @contextmanager
    def waiting(self, tag: Tag) -> Iterator[None]:
        """Record that this rank waits in a collective."""
        self.last = tag
        try:
            yield
        finally:
            self.answered = self.last


class _Standing(NamedTuple):
    """The state of a rank: waiting in a collective or computing, and for how many seconds."""

    collective: Tag | None
    """The collective in which the rank waits; None while it computes."""
    size: int
    """Number of numbers in the rank's messages."""
    seconds: float


class Watchdog:
    """Watches one rank, and answers other ranks for it."""

    def __init__(
        self,
        comm: Any,
        deadline: float,
        called: Sequence[str],
        doing: Doing,
        judge: Callable[[CoterieError, Sequence[int]], None],
    ):
        """Start the thread. `comm` is a communicator for the watchdogs only. The thread calls
        `judge` with the error and the remaining ranks.
        """
        self.comm = comm
        self.deadline = deadline
        self.called = called
        self.doing = doing
        self.judge = judge
        self._others = [rank for rank in range(comm.size) if rank != comm.rank]
        self._seen = doing.last, doing.answered
        self._since = time.monotonic()
        self._calls = 0
        self._posted: list[Any] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="coterie-watchdog", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop the thread."""
        self._over.set()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    # -- the thread --------------------------------------------------------------------------------

    def _watch(self) -> None:
        while not self._over.wait(self.deadline / BEATS):
            since = self._look()
            self._answer()
            if self._waits_in is not None and time.monotonic() > since + self.deadline / 2:
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
        """Return when this rank began its current wait or computation, as far as the checks have
        seen.
        """
        now = self.doing.last, self.doing.answered
        if now[0] is not self._seen[0] or now[1] is not self._seen[1]:
            self._seen = now
            self._since = time.monotonic()
        return self._since

    @property
    def _waits_in(self) -> Tag | None:
        """The collective in which this rank waits; None while it computes."""
        last, answered = self._seen
        return None if last is answered else last

    def _post(self, to: int, thing: Any, tag: int) -> None:
        # A posted message is kept until it is sent. A rank that can receive no more messages gives
        # no answer and counts as silent.
        with suppress(RuntimeError):
            self._posted = [request for request in self._posted if not request.Test()]
            self._posted.append(self.comm.isend(thing, to, tag))

    def _answer(self) -> None:
        while self.comm.iprobe(tag=QUESTION):
            asker, call = self.comm.recv(tag=QUESTION)
            self._post(asker, (self.comm.rank, call, self._standing()), ANSWER)

    def _standing(self) -> _Standing:
        since = self._look()
        return _Standing(self._waits_in, self.doing.size, time.monotonic() - since)

    def _asked(self, since: float) -> dict[int, _Standing] | None:
        """Return the standings of the ranks that answer; None if this rank no longer waits, is
        closing, or has received a verdict.
        """
        self._calls += 1
        for rank in self._others:
            self._post(rank, (self.comm.rank, self._calls), QUESTION)
        found: dict[int, _Standing] = {}
        until = max(since + self.deadline, time.monotonic() + self.deadline / 2)
        while len(found) < len(self._others) and time.monotonic() < until:
            if (
                self._over.wait(self.deadline / BEATS)
                or self._look() != since
                or self.comm.iprobe(tag=VERDICT)
            ):
                return None
            self._answer()
            while self.comm.iprobe(tag=ANSWER):
                rank, call, standing = self.comm.recv(tag=ANSWER)
                if call == self._calls:
                    found[rank] = standing
        return found

    def _verdict(self, found: dict[int, _Standing]) -> CoterieError | None:
        silent = [rank for rank in self._others if rank not in found]
        if silent:
            return self._lost(silent, f"sent no message for {self.deadline:g} seconds")
        longest = LONG * self.deadline
        endless = [
            rank
            for rank in self._others
            if found[rank].collective is None and found[rank].seconds > longest
        ]
        if endless:
            return self._lost(endless, f"has been computing for more than {longest:g} seconds")
        return self._deadlock({self.comm.rank: self._standing(), **found})

    def _deadlock(self, standings: dict[int, _Standing]) -> ProtocolError | None:
        """Return the error if all ranks wait and two of them wait in one step in different
        collectives or with messages of different sizes. If messages are slow, all ranks may also
        wait; that is no error.
        """
        collectives = set()
        for standing in standings.values():
            if standing.collective is None:
                return None
            collectives.add((standing.collective, standing.size))
        if len({collective.step for collective, _ in collectives}) == len(collectives):
            return None
        members = [(self.called[rank], standings[rank]) for rank in sorted(standings)]
        standings_text = "; ".join(
            f"{name} yielded {standing.collective} of {standing.size} numbers"
            for name, standing in members
        )
        return ProtocolError(f"all ranks wait for each other: {standings_text}.")

    def _lost(self, ranks: Sequence[int], why: str) -> PartyLost:
        names = " and ".join(self.called[rank] for rank in ranks)
        which = " and ".join(f"rank {rank}" for rank in ranks)
        return PartyLost(
            f"{names} stopped answering: {which} {why} (the deadline is {self.deadline:g}).", names
        )
