"""Gossip in real time: every agent has its own Poisson clock in seconds, and never waits for
another agent.

A process handles the ticks of its own agents. An agent that wakes up reads this process's copies of
its neighbours' publications, takes a step, and publishes. Ticks during a step are missed. No
process knows how often another process's agents woke up. An agent's t is K · (own ticks − 1) + its
number + 1, which on average agrees with the virtual clock.

    message  from, to                        content
    NEWS     publisher, to the processes of  the agent, and the changes since the last NEWS to this
             its receivers                   process
    NOTES    the same                        for each note: sender, receiver, how many numbers, the
                                             numbers
    END      all, to all                     the stretch is over; the END of agent 0's process ends
                                             it for all

`Ask(peers)` fetches publications. The links answer in the background, even while the peer computes.
A peer that does not answer in time is left out. A stretch lasts until the next certificate. It ends
when the END of all processes has arrived. Then no message is in transit, and the States are a
consistent cut, which can be certified and saved. A lost party is reported at the end of the
stretch; until then the others continue without it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

from coterie.errors import PartyLost, ProtocolError
from coterie.numerics.arrays import FloatArray, sealed
from coterie.problems.problem import AnyProblem
from coterie.run.agent import Agent
from coterie.run.collectives import Ask, Publication
from coterie.run.steps import Steps
from coterie.transport.distributed_gossip import LONGEST_NOTE, BetweenProcesses
from coterie.transport.gossip import CLOCKS, InTransit, unfit
from coterie.transport.links import Stop, Tag
from coterie.transport.point_to_point import PointToPoint

M = TypeVar("M")
NEWS, NOTES, END = 0.0, 1.0, 2.0
CARD = 4
"""Number of numbers with which an answer begins."""
NAP = 0.005
"""Seconds between two checks for messages, while no agent of this process has to wake up."""
PATIENCE = 1.0
"""Seconds to wait for the answer to an `Ask`."""


class RealTimeGossip(BetweenProcesses):
    """One process's part of gossip in real time. `pace` is the mean time between two ticks of a
    clock, in seconds.
    """

    def __init__(self, collectives: PointToPoint, pace: float):
        super().__init__(collectives)
        self._poll = collectives.poll
        self._receive = collectives.receive
        self._links = collectives.links
        self.pace = pace
        self._outbox: dict[int, list[float]] = {}
        self._known: dict[tuple[int, int], FloatArray] = {}
        """The x of each agent of this process as another process knows it, by (process, agent)."""
        self.ticks = [0] * self.count
        """Number of wake-ups of each agent of this process."""
        self.gone: dict[int, PartyLost] = {}
        """The processes that are lost or have left, each with the error that reported it."""
        self._copies: set[int] = set()
        self._ended: set[int] = set()
        self._span = 0, 0
        self._stop = Stop()

    # -- a stretch ---------------------------------------------------------------------------------

    def stretch(
        self,
        agents: Sequence[Agent[AnyProblem]],
        states: Sequence[Any],
        steps: Steps,
        span: tuple[int, int],
        stop_reason: Callable[[], int],
    ) -> tuple[list[Any], int]:
        """Let the clocks run from one round to another, `pace` seconds each. Returns the States and
        the round reached.

        The process of agent 0 decides when the stretch is over: when the time is up, or there is a
        `stop_reason`.
        """
        local = self._seat(agents, states, steps)
        self._span = span
        self._tag = Tag("rounds", span[0], "stretch")
        self._ended = set()
        leads = self.collectives.layout.leads
        began = time.monotonic()
        end = began + (span[1] - span[0]) * self.pace
        clocks = {
            who: np.random.default_rng([agents[0].seed, CLOCKS, 1 + who, self.ticks[who]])
            for who in local
        }
        rings = {who: began + clock.exponential(self.pace) for who, clock in clocks.items()}
        while not self._over(leads, end, stop_reason):
            who = min(rings, key=rings.__getitem__)
            if (early := rings[who] - time.monotonic()) > 0:
                time.sleep(min(early, NAP))
                continue
            self.ticks[who] += 1
            self._wake(who, (self.ticks[who] - 1) * self.count + who + 1)
            rings[who] = time.monotonic() + clocks[who].exponential(self.pace)
        if leads:
            reached = min(span[1], span[0] + int((time.monotonic() - began) / self.pace))
            self.collectives.stop = self._stop = Stop(reached, stop_reason())
        self._close()
        return [self._states[agent] for agent in local], self._stop.at

    def agreed(self) -> int:
        """Return the reason to stop that the process of agent 0 had at the end of the stretch."""
        return self._stop.reason

    def _over(self, leads: bool, end: float, stop_reason: Callable[[], int]) -> bool:
        self._take_in()
        if leads:
            return time.monotonic() >= end or stop_reason() > 0
        return self.process_of[0] in self._ended or self.process_of[0] in self.gone

    def _take_in(self) -> None:
        """Process the messages that have arrived."""
        for process in self._others:
            while process not in self._ended and process not in self.gone:
                try:
                    message = self._next(process, self._poll)
                except PartyLost as error:
                    self.gone[process] = error
                    break
                if message is None:
                    break
                self._read_message(process, message)

    def _next(self, process: int, receive: Callable[[int, Tag], M]) -> M:
        """Return the next message. Afterwards, unless this process leads, the stop is the one in
        its header, whatever earlier messages had.
        """
        if not self.collectives.layout.leads:
            self.collectives.stop = Stop()
        return receive(process, self._tag)

    def _close(self) -> None:
        """Send END, and wait for the END of all other processes."""
        self._send_numbers(self._others, [END])
        for process in self._others:
            while process not in self._ended and process not in self.gone:
                self._read_message(process, self._next(process, self._receive))
        if self.gone:
            raise next(iter(self.gone.values()))

    # -- messages ----------------------------------------------------------------------------------

    def _hand_on(self, process: int, numbers: list[float]) -> None:
        """Deliver the notes of a message of that process. They begin after its first number."""
        start = 1
        while start < len(numbers):
            head = np.array(numbers[start : start + 3])
            sender, receiver, length = _whole(head) if head.size == 3 else (-1, -1, 0)
            start += 3 + length
            whole = 0 < length <= max(LONGEST_NOTE, self._board.shape[1]) and start <= len(numbers)
            if not (whole and self._lives(sender, process) and self._lives(receiver, self.process)):
                raise ProtocolError(
                    f"{self._called(process)} sent a note in the name of others, or to others."
                )
            note = tuple(numbers[start - length : start])
            if not np.isfinite(note).all():
                raise unfit(sender)
            super()._send(sender, receiver, note)

    def _news(self, process: int, peer: int) -> FloatArray:
        """Return the changes in the publication of one of this process's agents that the other
        process does not have yet.
        """
        publication = self._publications[peer]
        known = self._known.get((process, peer))
        changed = np.flatnonzero(publication.x if known is None else publication.x != known)
        self._known[process, peer] = publication.x.copy()
        card = [self._bodies[peer], publication.head, publication.sparse, changed.size]
        return np.concatenate(
            [card, changed if changed.size < publication.x.size else [], publication.x[changed]]
        )

    def _learn(self, peer: int, answer: FloatArray, start: int) -> int:
        """Store one peer's part of an answer. Returns where the next part begins."""
        body, head, sparse, changes = _whole(answer[start : start + CARD])
        start += CARD
        row = self._board[peer]
        if changes == row.size:
            row[:] = answer[start : start + changes]
            start += changes
        else:
            row[_whole(answer[start : start + changes])] = answer[
                start + changes : start + 2 * changes
            ]
            start += 2 * changes
        self._bodies[peer] = body
        self._publications[peer] = Publication(sealed(row.copy()), head, bool(sparse))
        return start

    def _send(self, sender: int, receiver: int, note: tuple[float, ...]) -> None:
        if self.process_of[receiver] == self.process:
            super()._send(sender, receiver, note)
        else:
            self._outbox[self.process_of[receiver]] += [sender, receiver, len(note), *note]

    def _send_numbers(
        self, processes: Sequence[int], numbers: Sequence[float] | FloatArray
    ) -> None:
        for process in processes:
            if process not in self.gone:
                self.collectives.send(process, np.asarray(numbers, float), self._tag)

    def _read_message(self, process: int, message: FloatArray) -> None:
        kind = message[0] if message.size else None
        try:
            if kind == END:
                self._end(process)
            elif kind == NEWS and self._lives(int(message[1]), process):
                self._take_copy(int(message[1]), message, 2)
            elif kind == NOTES:
                self._hand_on(process, message.tolist())
            else:
                raise ValueError("unknown message type, or in the name of others")
        except (ValueError, IndexError, OverflowError) as error:
            raise ProtocolError(
                f"{self._called(process)} sent a malformed message: {error}."
            ) from error

    def _end(self, process: int) -> None:
        self._ended.add(process)
        if process == self.process_of[0]:
            # The header contains the round reached and the reason to stop.
            self._stop = self.collectives.stop
            if not self._span[0] <= self._stop.at <= self._span[1]:
                raise ValueError(f"the stretch of rounds {self._span} ended with {self._stop}")

    def _take_copy(self, peer: int, message: FloatArray, start: int) -> None:
        self._learn(peer, message, start)
        if not np.isfinite(self._board[peer].sum()):
            raise unfit(peer)
        self._copies.add(peer)

    def publish(self, who: int, publication: Publication) -> None:
        """Store a publication so that other processes can fetch it, and send the messages that it
        requires.
        """
        first = who not in self._publications
        self._outbox = {process: [NOTES] for process in self._others}
        super().publish(who, publication)
        self._offer(who)
        if first:
            return
        receivers = [*(map(int, publication.to) if publication.changed else ()), *publication.new]
        for process in sorted(
            {self.process_of[receiver] for receiver in receivers} - {self.process}
        ):
            # The first message has the whole publication. This process does not know what the other
            # process has fetched meanwhile.
            self._known.setdefault((process, who), np.full(publication.x.size, np.nan))
            self._send_numbers([process], np.concatenate([[NEWS, who], self._news(process, who)]))
        for process, notes in self._outbox.items():
            if len(notes) > 1:
                self._send_numbers([process], notes)

    def _deliver(self, message: InTransit) -> None:
        super()._deliver(message)
        self._offer(message.receiver)

    def _offer(self, who: int) -> None:
        """Let the links answer for this agent. Certificates use the agent's number, so the
        publication has another number: the number of agents is added.
        """
        publication = self._publications[who]
        card = [self._bodies[who], publication.head, publication.sparse, publication.x.size]
        self._links.publish(self.count + who, np.concatenate([card, publication.x]))

    # -- asking ------------------------------------------------------------------------------------

    def _answer(self, who: int, collective: Ask, tick: int) -> tuple[Any, list[tuple[int, int]]]:
        peers = np.asarray(collective.peers, np.intp)
        if collective.weights is None:
            known = [self._fetched(peer) for peer in peers.tolist()]
        else:
            known = [peer in self._copies or self._fetched(peer) for peer in peers.tolist()]
        if not all(known):
            weights = None if collective.weights is None else collective.weights[known]
            collective = msgspec.structs.replace(collective, peers=peers[known], weights=weights)
        return super()._answer(who, collective, tick)

    def _fetched(self, peer: int) -> bool:
        """Ask for that peer's publication, and return whether this process has it now."""
        owner = self.process_of[peer]
        if owner == self.process:
            return True
        if owner in self.gone:
            return False
        try:
            publication = self._links.ask(owner, self.count + peer, PATIENCE)
        except PartyLost as error:
            self.gone[owner] = error
            return False
        if publication is None:
            return False
        try:
            self._take_copy(peer, publication, 0)
        except (ValueError, IndexError, OverflowError) as error:
            raise ProtocolError(
                f"{self._called(owner)} answered with a malformed message: {error}."
            ) from error
        return True

    # -- checkpoints -------------------------------------------------------------------------------

    def memory(self) -> dict[str, npt.NDArray[np.int64]]:
        return super().memory() | {"ticks": np.array(self.ticks)}

    def recall(self, memory: dict[str, npt.NDArray[np.int64]]) -> None:
        super().recall(memory)
        self.ticks = memory["ticks"].tolist() if "ticks" in memory else self.ticks


def _whole(numbers: FloatArray) -> list[int]:
    if not np.isfinite(numbers).all():
        raise ProtocolError(
            "a message has something that is not finite where whole numbers belong."
        )
    return [int(number) for number in numbers.tolist()]
