"""Gossip of agents in several processes, with the same wake-ups, publications and bill as in one
process.

The order of the wake-ups is drawn from (seed, round). Every process therefore knows it without a
message, and all handle the same wake-ups. The process of the agent that wakes up leads, and the
others follow:

    message     from, to                       content
    questions   leader to processes of peers   ASKED, and the agents asked
    answers     back to the leader             for each agent asked: body, head, sparse, how many
                                               numbers of x changed since the last answer to this
                                               process, their places (unless all changed), and
                                               their values
    the end     leader to all other processes  DONE, and for each note: sender, receiver, its
                                               length, the numbers; or FAILED: the publication is
                                               not finite, and all processes stop

A process answers with the publications of its agents before this wake-up: it has received the end
of all earlier wake-ups. Each process bills the wake-ups that it leads. After a round the processes
add up their accounts, so that all hold the same bill.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from coterie.errors import NumericalError, ProtocolError
from coterie.numerics.arrays import FloatArray, sealed
from coterie.problems.problem import AnyProblem
from coterie.run.agent import Agent
from coterie.run.bill import Bill
from coterie.run.collectives import Ask, Publication
from coterie.run.steps import Steps
from coterie.transport.collectives import Collectives
from coterie.transport.gossip import Gossip, unfit, wake_ups
from coterie.transport.links import Tag

ASKED, DONE, FAILED = 0.0, 1.0, 2.0
CARD = 4
"""Number of numbers with which an answer begins."""
LONGEST_NOTE = 8
"""Largest length of a note, unless its receiver's own publication is longer."""
BILLED = ("Ask", "Exchange")
"""The collectives under which gossip is billed."""


class BetweenProcesses(Gossip):
    """One process's part of the gossip, with any clock: notes, changes of publications, and the
    common bill.
    """

    def __init__(self, collectives: Collectives):
        super().__init__()
        self.collectives = collectives
        self.network = collectives.network
        self.process_of = collectives.process_of
        self.process = collectives.process
        self._others = collectives.layout.others
        self._tag = Tag("rounds", 0, "wake-up")
        self._outbox: dict[int, list[float]] = {}
        self._known: dict[tuple[int, int], FloatArray] = {}
        """The x of each agent of this process as another process knows it, by (process, agent)."""
        self.open(Bill(self.network), self.network.agents)

    def _seat(
        self, agents: Sequence[Agent[AnyProblem]], states: Sequence[Any], steps: Steps
    ) -> list[int]:
        """Register the agents of this process and their States, by their numbers."""
        local = [agent.index for agent in agents]
        self._agents = dict(zip(local, agents, strict=True))
        self._states = dict(zip(local, states, strict=True))
        self._steps = steps
        return local

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

    def _lives(self, agent: int, process: int) -> bool:
        return 0 <= agent < self.count and self.process_of[agent] == process

    def _called(self, process: int) -> str:
        return "the process of agent " + " and ".join(
            map(str, self.collectives.layout.agents_of[process])
        )

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

    # -- the bill ----------------------------------------------------------------------------------

    def settle(self, bill: Bill) -> None:
        """Add to every process's bill the cost of all processes since they last settled."""
        account = np.zeros((len(BILLED), 3 * self.count + 1))
        for _, collective, table in self.bill.state()["apart"]:
            account[BILLED.index(collective)] = [*np.ravel(table), 1]
        self.bill = Bill(self.network)
        for collective, (*spent, sent) in zip(BILLED, self._pooled(account).tolist(), strict=True):
            if sent:
                for agent in range(self.count):
                    bill.send(
                        "rounds", collective, agent, *map(int, spent[3 * agent : 3 * agent + 3])
                    )

    def _pooled(self, account: FloatArray) -> FloatArray:
        """Return the sum of the processes' accounts. The process of agent 0 adds them."""
        tag = Tag("engine", self._tag.step, "account")
        hub = self.process_of[0]
        if self.process != hub:
            self.collectives.send(hub, account, tag)
            return self.collectives.receive(hub, tag).reshape(account.shape)
        for process in self._others:
            account += self.collectives.receive(process, tag).reshape(account.shape)
        for process in self._others:
            self.collectives.send(process, account, tag)
        return account


class DistributedGossip(BetweenProcesses):
    """One process's part of the gossip on the clock that all processes share."""

    def run(
        self, agents: Sequence[Agent[AnyProblem]], states: list[Any], steps: Steps, t: int
    ) -> list[Any]:
        """Run K wake-ups of the agents of all processes. Returns the States of the agents of this
        process.
        """
        local = self._seat(agents, states, steps)
        for tick, who in wake_ups(agents[0].seed, self.count, t):
            self._tag = Tag("rounds", tick, "wake-up")
            if self.process_of[who] == self.process:
                self._lead(who, tick)
            else:
                self._follow(who)
        return [self._states[agent] for agent in local]

    def _lead(self, who: int, tick: int) -> None:
        self._outbox = {process: [DONE] for process in self._others}
        try:
            self._wake(who, tick)
        except NumericalError:
            self._end({process: [FAILED] for process in self._others})
            raise
        self._end(self._outbox)

    def _end(self, collectives: dict[int, list[float]]) -> None:
        for process, numbers in collectives.items():
            self.collectives.send(process, np.array(numbers), self._tag)

    def _follow(self, who: int) -> None:
        leader = self.process_of[who]
        while (message := self._received(leader))[0] == ASKED:
            peers = _whole(message[1:])
            if not (peers and all(self._lives(peer, self.process) for peer in peers)):
                raise ProtocolError(f"{self._called(leader)} asked for agents of other processes.")
            self.collectives.send(
                leader, np.concatenate([self._news(leader, peer) for peer in peers]), self._tag
            )
        if message[0] == FAILED:
            raise unfit(who)
        self._hand_on(leader, message.tolist())

    def _received(self, process: int) -> FloatArray:
        message = self.collectives.receive(process, self._tag)
        if not (message.ndim == 1 and message.size and np.isfinite(message[0])):
            raise ProtocolError(f"{self._called(process)} sent an unknown message type.")
        return message

    def _answer(self, who: int, collective: Ask, tick: int) -> tuple[Any, list[tuple[int, int]]]:
        self._fetch(int(peer) for peer in collective.peers)
        return super()._answer(who, collective, tick)

    def _fetch(self, peers: Iterable[int]) -> None:
        """Ask the processes of those peers for the changes, all at once, and store them where
        `Gossip` reads them.
        """
        by_process: dict[int, list[int]] = {}
        for peer in peers:
            if self.process_of[peer] != self.process:
                by_process.setdefault(self.process_of[peer], []).append(peer)
        for process, asked in by_process.items():
            self.collectives.send(process, np.array([ASKED, *asked]), self._tag)
        for process, asked in by_process.items():
            answer = self.collectives.receive(process, self._tag)
            start = 0
            for peer in asked:
                start = self._learn(peer, answer, start)


def _whole(numbers: FloatArray) -> list[int]:
    if not np.isfinite(numbers).all():
        raise ProtocolError(
            "a message has something that is not finite where whole numbers belong."
        )
    return [int(number) for number in numbers.tolist()]
