"""Gossip of agents in several processes, with the same wake-ups, publications and bill as in one
process.

The order of the wake-ups is drawn from (seed, round), so that every process knows it without a
message. The process of the agent that wakes up leads. A process follows if one of its agents is a
neighbour of that agent, or is drawn in that wake-up (`Steps.neighbours`, `Steps.drawn`). Both facts
are known to both processes. All other processes skip the wake-up, and hear nothing of it.

    message     from, to                       content
    questions   leader to processes of peers   the agents asked
    answers     back to the leader             for each agent asked: its head, and its vector unless
                                               the leader's process has a copy of it
    updates     leader to all that follow      the change of the vector, to processes of `to`; the
                                               notes; the vector, to processes of `new`

`updates` describes the bytes. The last update of a wake-up ends it; if nothing changed, an empty
message does. The process of an agent knows the version of the agent's vector that each other
process holds (`_held`). It sends the step or the changed entries if that is the last version, and
otherwise the whole vector. At the start, neighbours' vectors that are not zero are copied.

After a round, all processes exchange empty messages with the process of agent 0, so that all learn
whether an agent failed and when to stop. Before a certificate, `settle` adds up the accounts; that
is not billed.
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
from coterie.transport.sums import is_in_range
from coterie.transport.updates import (
    ANSWER,
    ASKED,
    CHANGES,
    COPY,
    HEAD,
    NOTE,
    STEP,
    VERSION_BITS,
    Bytes,
    Message,
    bits_for,
    encode,
)

BILLED = ("Ask", "Exchange")
"""The collectives under which gossip is billed."""
LONGEST_NOTE = 8
"""Largest length of a note, unless its receiver's own publication is longer."""


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
        self._rounds: list[int] = []
        """The numbers that this process billed for each round since the last `settle`."""
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

    def _lives(self, agent: int, process: int) -> bool:
        return 0 <= agent < self.count and self.process_of[agent] == process

    def _called(self, process: int) -> str:
        return "the process of agent " + " and ".join(
            map(str, self.collectives.layout.agents_of[process])
        )

    # -- the bill ----------------------------------------------------------------------------------

    def settle(self, bill: Bill) -> None:
        """Add to every process's bill the cost of all processes since they last settled."""
        costs = np.zeros((len(BILLED), self.count, 3))
        used = np.zeros(len(BILLED))
        for _, collective, table in self.bill.state()["apart"]:
            costs[BILLED.index(collective)] = table
            used[BILLED.index(collective)] = 1
        account = np.concatenate([used, costs.ravel(), self._rounds])
        self.bill = Bill(self.network)
        self._rounds = []
        others = [np.zeros_like(account)] * (len(self.collectives.local) - 1)
        tag = self.collectives.tag("engine", "account")
        total = self.collectives.total([account, *others], tag)
        was_used, spent, rounds = np.split(total, [used.size, used.size + costs.size])
        tables = spent.reshape(costs.shape).astype(int).tolist()
        for sent, collective, table in zip(was_used, BILLED, tables, strict=True):
            if sent:
                for agent, cost in enumerate(table):
                    bill.send("rounds", collective, agent, *cost)
        bill.amend(rounds.astype(int).tolist())


class DistributedGossip(BetweenProcesses):
    """One process's part of the gossip on the clock that all processes share."""

    def __init__(self, collectives: Collectives):
        super().__init__(collectives)
        agents_of = collectives.layout.agents_of
        self._place = {
            agent: place for agents in agents_of.values() for place, agent in enumerate(agents)
        }
        """The place of each agent among those of its process."""
        self._width = {process: bits_for(len(agents)) for process, agents in agents_of.items()}
        self._held: dict[tuple[int, int], tuple[int, int]] = {}
        """By (process, agent): the versions of the vector and of the head of an agent of this
        process that the other process holds.
        """
        self._copied = False
        """Whether the first vectors were copied to the processes of neighbours."""
        self._outbox: dict[int, list[tuple[int, list[tuple[int, int]], FloatArray]]] = {}
        self._failed: tuple[int, ...] = ()
        """The tick at which an agent of this process failed first, and the agent."""

    def run(
        self, agents: Sequence[Agent[AnyProblem]], states: list[Any], steps: Steps, t: int
    ) -> list[Any]:
        """Run K wake-ups of the agents of all processes. Returns the States of the agents of this
        process.
        """
        local = self._seat(agents, states, steps)
        self._tag = Tag("rounds", (t - 1) * self.count, "wake-up")
        before = self.bill.scalars
        if not self._copied:
            self._copy_first()
        for tick, who in wake_ups(agents[0].seed, self.count, t):
            self._tag = Tag("rounds", tick, "wake-up")
            if self.process_of[who] == self.process:
                self._lead(who, tick)
            elif self._follows(who, tick):
                self._follow(who)
        self._meet()
        self._rounds.append(self.bill.scalars - before)
        return [self._states[agent] for agent in local]

    def _meet(self) -> None:
        """Exchange messages with the process of agent 0. They are empty unless an agent failed."""
        hub = self.process_of[0]
        if self.process == hub:
            found = [self._failed, *(self._heard(process) for process in self._others)]
            self._failed = min((failed for failed in found if failed), default=())
            for process in self._others:
                self.collectives.send(process, np.array(self._failed, float), self._tag)
        else:
            self.collectives.send(hub, np.array(self._failed, float), self._tag)
            self._failed = self._heard(hub)
        if self._failed:
            raise unfit(self._failed[1])

    def _heard(self, process: int) -> tuple[int, ...]:
        failed = self.collectives.receive(process, self._tag).tolist()
        if failed and not (len(failed) == 2 and 0 <= failed[1] < self.count):
            raise ProtocolError(f"{self._called(process)} named an agent that does not exist.")
        return tuple(map(int, failed))

    # -- who hears of a wake-up --------------------------------------------------------------------

    def _neighbours(self, agent: int) -> list[int] | None:
        found = self._steps.neighbours(self._agents[agent], self._states[agent])
        return None if found is None else [int(other) for other in found]

    def _drawn(self, who: int, tick: int) -> list[int] | None:
        found = self._steps.drawn(self._agents[self.collectives.local[0]], who, tick)
        return None if found is None else [int(other) for other in found]

    def _audience(self, who: int, tick: int) -> list[int]:
        """The processes that follow the wake-up of an agent of this process."""
        neighbours = self._neighbours(who)
        drawn = self._drawn(who, tick)
        if neighbours is None or drawn is None:
            return list(self._others)
        return sorted({self.process_of[agent] for agent in neighbours + drawn} - {self.process})

    def _follows(self, who: int, tick: int) -> bool:
        """Whether this process follows the wake-up of an agent of another process."""
        drawn = self._drawn(who, tick)
        if drawn is None or any(self.process_of[agent] == self.process for agent in drawn):
            return True
        known = [self._neighbours(agent) for agent in self.collectives.local]
        return any(neighbours is None or who in neighbours for neighbours in known)

    # -- a wake-up ---------------------------------------------------------------------------------

    def _lead(self, who: int, tick: int) -> None:
        self._outbox = {process: [] for process in self._audience(who, tick)}
        try:
            self._wake(who, tick)
        except NumericalError:
            # The others learn it at the end of the round, all at once.
            self._failed = self._failed or (tick, who)
        for process, updates in self._outbox.items():
            for place, (kind, fields, numbers) in enumerate(updates):
                last = place == len(updates) - 1
                self._send_bytes(process, encode(kind, fields, numbers, last))
            if not updates:
                self._send_bytes(process, np.empty(0, np.uint8))

    def _send_bytes(self, process: int, message: Bytes) -> None:
        self.collectives.send(process, message, self._tag)

    def _follow(self, who: int) -> None:
        leader = self.process_of[who]
        while True:
            content = self.collectives.receive_bytes(leader, self._tag)
            if not content.size:
                return
            message = Message.of(content)
            if message.kind == ASKED:
                self._reply(leader, message)
            elif message.kind == NOTE:
                self._take_note(leader, message)
            else:
                self._learn(who, message)
            if message.last:
                return

    def publish(self, who: int, publication: Publication) -> None:
        """Store a publication, and send the messages that it requires."""
        first = who not in self._publications
        before = None if first else self._board[who].copy()
        if any(not np.isfinite(note).all() for note in publication.notes.values()):
            raise unfit(who)
        super().publish(who, publication)
        if before is None:
            return
        receivers = [int(agent) for agent in publication.to] if publication.changed else []
        for process in sorted({self.process_of[agent] for agent in receivers} - {self.process}):
            self._outbox[process].append(self._update(process, who, publication, before))
        new = {self.process_of[agent] for agent in publication.new} - {self.process}
        for process in sorted(new - {self.process_of[agent] for agent in receivers}):
            self._outbox[process].append(self._copy(COPY, process, who, publication))

    def _send(self, sender: int, receiver: int, note: tuple[float, ...]) -> None:
        process = self.process_of[receiver]
        if process == self.process:
            super()._send(sender, receiver, note)
        elif note:
            fields = [
                (self._place[sender], self._width[self.process]),
                (self._place[receiver], self._width[process]),
            ]
            self._outbox[process].append((NOTE, fields, np.array(note)))

    def _take_note(self, process: int, message: Message) -> None:
        widths = [self._width[process], self._width[self.process]]
        sender, receiver = message.fields(widths)
        note = message.numbers(sum(widths))
        longest = max(LONGEST_NOTE, self._board.shape[1])
        if not (is_in_range(note) and 0 < note.size <= longest):
            raise ProtocolError(f"{self._called(process)} sent a note that is not of a method.")
        super()._send(
            self._agent(process, sender),
            self._agent(self.process, receiver),
            tuple(note.tolist()),
        )

    def _agent(self, process: int, place: int) -> int:
        agents = self.collectives.layout.agents_of[process]
        if place >= len(agents):
            raise ProtocolError(f"{self._called(process)} named an agent that does not exist.")
        return agents[place]

    # -- vectors -----------------------------------------------------------------------------------

    def _copy_first(self) -> None:
        """Copy the first vectors to the processes of neighbours. Those that are zero are known."""
        self._copied = True
        processes = {
            agent: self._processes_of_neighbours(agent) for agent in self.collectives.local
        }
        for who, receivers in processes.items():
            publication = self._publications[who]
            zero = not publication.x[publication.head :].any() and not self._bodies[who]
            for process in self._others:
                self._held[process, who] = (0 if zero else -1), -1
            for process in receivers:
                if zero:
                    self._send_bytes(process, np.empty(0, np.uint8))
                else:
                    self._send_bytes(process, encode(*self._copy(COPY, process, who, publication)))
        for agent in self._neighbours_elsewhere():
            content = self.collectives.receive_bytes(self.process_of[agent], self._tag)
            if content.size:
                self._learn(agent, Message.of(content))

    def _neighbours_elsewhere(self) -> list[int]:
        """The neighbours of this process's agents that other processes have."""
        found: set[int] = set()
        for own in self.collectives.local:
            found.update(self._neighbours(own) or ())
        return [agent for agent in sorted(found) if self.process_of[agent] != self.process]

    def _processes_of_neighbours(self, agent: int) -> list[int]:
        neighbours = self._neighbours(agent) or []
        return sorted({self.process_of[other] for other in neighbours} - {self.process})

    def _update(
        self, process: int, who: int, publication: Publication, before: FloatArray
    ) -> tuple[int, list[tuple[int, int]], FloatArray]:
        """The shortest message that brings the process's copy of the vector up to date."""
        head = publication.head
        held, held_head = self._held[process, who]
        body = self._bodies[who]
        if held != body - 1:
            return self._copy(COPY, process, who, publication)
        vector = publication.x[head:]
        agent = (self._place[who], self._width[self.process])
        width = bits_for(vector.size)
        self._held[process, who] = body, held_head
        if publication.step is not None:
            place, size = publication.step
            if (_stepped(before[head:], place, size, publication.radius) == vector).all():
                return STEP, [agent, (place, width)], np.array([size])
        if not publication.sparse:
            return CHANGES, [agent], vector
        changed = np.flatnonzero(before[head:] != vector)
        if changed.size > np.count_nonzero(vector):
            return self._copy(COPY, process, who, publication)
        return CHANGES, [agent, *((place, width) for place in changed.tolist())], vector[changed]

    def _copy(
        self, kind: int, process: int, who: int, publication: Publication
    ) -> tuple[int, list[tuple[int, int]], FloatArray]:
        """The whole vector, and before it the head in an ANSWER."""
        body = self._bodies[who]
        head, vector = np.split(publication.x, [publication.head])
        fields = [(self._place[who], self._width[self.process]), (body, VERSION_BITS)]
        if publication.sparse:
            width = bits_for(vector.size)
            filled = np.flatnonzero(vector)
            fields += [(place, width) for place in filled.tolist()]
            vector = vector[filled]
        held_head = self._held.get((process, who), (-1, -1))[1]
        self._held[process, who] = body, (body if kind == ANSWER else held_head)
        return kind, fields, np.concatenate([head, vector]) if kind == ANSWER else vector

    def _learn(self, peer: int, message: Message) -> None:
        """Bring this process's copy of one publication up to date."""
        mine = next(iter(self._publications.values()))
        process = self.process_of[peer]
        head = mine.head
        x = self._board[peer].copy()
        vector = x[head:]
        agent = self._width[process]
        width = bits_for(vector.size) if mine.sparse else 0
        if self._agent(process, message.fields([agent])[0]) != peer:
            raise ProtocolError(f"{self._called(process)} sent an update of another agent.")
        if message.kind == HEAD:
            numbers = message.numbers(agent)
            _fits(numbers.size <= head)
            x[: numbers.size] = numbers
        elif message.kind == STEP:
            _, place = message.fields([agent, bits_for(vector.size)])
            numbers = message.numbers(agent + bits_for(vector.size))
            _fits(numbers.size == 1 and place < vector.size)
            vector[:] = _stepped(vector, place, float(numbers[0]), mine.radius)
            self._bodies[peer] += 1
        elif message.kind in (CHANGES, COPY, ANSWER):
            fixed = agent
            if message.kind != CHANGES:
                self._bodies[peer] = message.fields([agent, VERSION_BITS])[1]
                fixed += VERSION_BITS
                vector[:] = 0.0
            else:
                self._bodies[peer] += 1
            plain = head if message.kind == ANSWER else 0
            numbers = self._entries(message, fixed, plain, width, vector, mine.sparse)
            x[:plain] = numbers[:plain]
        else:
            raise ProtocolError(f"{self._called(process)} sent an unknown kind of message.")
        if not is_in_range(x):
            raise ProtocolError(
                f"{self._called(process)} sent numbers that are not finite or too large."
            )
        self._board[peer] = x
        self._publications[peer] = Publication(sealed(x), head, mine.sparse)

    def _entries(
        self,
        message: Message,
        fixed: int,
        plain: int,
        width: int,
        vector: FloatArray,
        sparse: bool,
    ) -> FloatArray:
        """Write the entries of a message to the vector, and return all its numbers."""
        if not sparse:
            numbers = message.numbers(fixed)
            _fits(numbers.size == plain + vector.size)
            vector[:] = numbers[plain:]
            return numbers
        places, numbers = message.entries(fixed, plain, width)
        _fits(max(places, default=0) < vector.size)
        vector[places] = numbers[plain:]
        return numbers

    # -- questions ---------------------------------------------------------------------------------

    def _answer(self, who: int, collective: Ask, tick: int) -> tuple[Any, list[tuple[int, int]]]:
        if collective.weights is None or self._neighbours(who) is None:
            self._fetch(int(peer) for peer in collective.peers)
        return super()._answer(who, collective, tick)

    def _fetch(self, peers: Iterable[int]) -> None:
        """Ask the processes of those peers for what changed, all at once, and store it where
        `Gossip` reads it.
        """
        by_process: dict[int, list[int]] = {}
        for peer in peers:
            if self.process_of[peer] != self.process:
                by_process.setdefault(self.process_of[peer], []).append(peer)
        for process, asked in by_process.items():
            agents = self.collectives.layout.agents_of[process]
            fields = [(int(agent in asked), 1) for agent in agents]
            self._send_bytes(process, encode(ASKED, fields))
        for process, asked in by_process.items():
            for peer in sorted(asked):
                content = self.collectives.receive_bytes(process, self._tag)
                self._learn(peer, Message.of(content))

    def _reply(self, leader: int, message: Message) -> None:
        agents = self.collectives.layout.local
        wanted = message.fields([1] * len(agents))
        _fits(any(wanted))
        for agent, asked in zip(agents, wanted, strict=True):
            if asked:
                self._send_bytes(leader, encode(*self._news(leader, agent)))

    def _news(self, process: int, peer: int) -> tuple[int, list[tuple[int, int]], FloatArray]:
        """What the process does not have of a publication: the vector, the head, or one number."""
        publication = self._publications[peer]
        body = self._bodies[peer]
        held, held_head = self._held[process, peer]
        if held != body:
            return self._copy(ANSWER, process, peer, publication)
        self._held[process, peer] = body, body
        length = 1 if held_head == body else publication.head
        agent = (self._place[peer], self._width[self.process])
        return HEAD, [agent], publication.x[: min(length, publication.head)]


def _stepped(vector: FloatArray, place: int, size: float, radius: float) -> FloatArray:
    """(1 − |s|) x, plus s β at one place."""
    stepped = vector * (1.0 - abs(size))
    stepped[place] += size * radius
    return stepped


def _fits(whole: bool) -> None:
    if not whole:
        raise ProtocolError("a gossip message does not fit the publications of this run.")
