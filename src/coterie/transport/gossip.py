"""Gossip: each agent wakes up by its own clock, a Poisson process of rate one.

A round is K ticks of all clocks together, one unit of time on average. Of K independent clocks the
next one to tick is uniform among all. Therefore (seed, round) determines the order of the wake-ups.
An agent that wakes up reads the messages that it received. It may `Ask` peers, computes, and
publishes a `Publication`:

    sent numbers                          when                        bits on the bill
    the entries of x that changed         on publishing, to `to`      Z + ⌈log₂ n⌉ for each entry
                                                                      and receiver
    the first number of x                 in answer to `Ask(peers)`   Z
    the rest of x                         the same, unless the asker  Z for each number of the head,
                                          has it already              Z + ⌈log₂ n⌉ for each entry
                                                                      that is not 0
    `notes`                               on publishing               Z for each number
    the whole vector, to new neighbours   on publishing               Z + ⌈log₂ n⌉ for each entry,
                                                                      under `Exchange`

Where messages may be lost or delayed (`lost`, `late`), every agent keeps its own copies of the
messages received. With `record`, every wake-up records the agents whose publications it read, and
their versions. A `replay` of such a record gives the same States bit by bit.
"""

from __future__ import annotations

import heapq
import typing
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from coterie.errors import InvalidProblem, NumericalError, ProtocolError
from coterie.numerics.arrays import FloatArray, as_number, sealed
from coterie.numerics.kernels.boosting import weighted_rows
from coterie.problems.problem import AnyProblem
from coterie.run.agent import Agent
from coterie.run.bill import Bill
from coterie.run.collectives import Ask, Publication
from coterie.run.disclosure import Guard
from coterie.run.steps import Steps

MEMORY = 1_000_000
"""Number of publications that all agents together remember having read."""
CLOCKS, DELAYS = 0x11, 0x12
"""Numbers of the random streams for clocks and delays."""


class Sight(NamedTuple):
    """One line of a record: the tick, the agent that woke up, and the publications that it read, as
    (agent, version).
    """

    tick: int
    agent: int
    seen: tuple[tuple[int, int], ...]
    mail: tuple[tuple[int, int, tuple[float, ...]], ...]
    """The notes that arrived before, as (sender, receiver, numbers)."""


class InTransit(NamedTuple):
    """A message in transit. Heaps order messages by arrival."""

    arrival: float
    number: int
    sender: int
    receiver: int
    version: int
    note: tuple[float, ...]


class Account(typing.Protocol):
    """Counts the numbers that this process sends, and may refuse to send more."""

    sent: int
    context: bytes
    """A digest of the aggregates received before."""

    def count(self, message: FloatArray) -> None:
        """Count a message before it is sent."""
        ...

    def receive(self, total: FloatArray) -> None:
        """Update `context` with an aggregate that this process received."""
        ...


class Gossip:
    """The clocks, the publications, and the lost or delayed messages of one run.

    lost    the probability that a message does not arrive
    late    the average delay of a message, in rounds
    record  whether to keep, in `sights`, the publications that every wake-up read
    replay  the `sights` of an earlier run: repeat its wake-ups and its reads
    """

    guard: Guard | None = None
    account: Account | None = None

    def __init__(
        self,
        lost: float = 0.0,
        late: float = 0.0,
        *,
        record: bool = False,
        replay: Sequence[Sight] | None = None,
    ):
        if not 0 <= as_number(lost) < 1:
            raise InvalidProblem(f"lost is a probability from 0, below 1, not {lost!r}.")
        if not 0 <= as_number(late) < np.inf:
            raise InvalidProblem(f"late is a mean delay in rounds, from 0, not {late!r}.")
        self.lost = float(lost)
        self.late = float(late)
        self.record = record
        self.sights: list[Sight] = []
        self._script = None if replay is None else {sight.tick: sight for sight in replay}
        self._immediate = lost == 0 and late == 0 and replay is None
        """Whether all agents see every publication at once, so that one board is enough."""

    def open(self, bill: Bill, agents: int) -> None:
        """Begin a run with this number of agents."""
        self.bill = bill
        self.count = agents
        self._agents: Sequence[Agent[AnyProblem]] | dict[int, Agent[AnyProblem]] = ()
        self._states: list[Any] | dict[int, Any] = []
        self.sights = []
        self._board: FloatArray = np.empty((0, 0))
        self._publications: dict[int, Publication] = {}
        self._versions = [0] * agents
        self._bodies = [0] * agents
        """Number of changes of each agent's publication (`_versions`) and of its vector
        (`_bodies`).
        """
        self._counted: dict[int, tuple[int, int]] = {}
        """For each agent: the version of its vector, and the number of entries in a message with
        that vector.
        """
        self._mail: list[tuple[int, int, tuple[float, ...]]] = []
        self._editions: dict[tuple[int, int], FloatArray] = {}
        """With lost or delayed messages: all versions that an agent may still read."""
        self._arrived: list[dict[int, int]] = [{} for _ in range(agents)]
        self._read: list[dict[int, int]] = [{} for _ in range(agents)]
        self._in_flight: list[InTransit] = []
        self._messages_sent = 0
        self._now = 0.0
        self._delays = np.random.default_rng(0)

    # -- a round -----------------------------------------------------------------------------------

    def run(
        self, agents: Sequence[Agent[AnyProblem]], states: list[Any], steps: Steps, t: int
    ) -> list[Any]:
        """Run K wake-ups. Returns the States of all agents."""
        K = len(agents)
        self._agents = agents
        self._states = states
        self._steps = steps
        self._delays = np.random.default_rng([agents[0].seed, DELAYS, t])
        for tick, who in wake_ups(agents[0].seed, K, t):
            self._now = tick / K
            if self._script is not None:
                who = self._script[tick].agent
                self._hand_out(self._script[tick].mail)
            elif self._in_flight:
                self._land()
            self._wake(who, tick)
        if self.record:
            self.sights.append(Sight(-t, -1, (), self._taken()))
        elif self._script is not None:
            self._hand_out(self._script[-t].mail)
        return states

    def _taken(self) -> tuple[tuple[int, int, tuple[float, ...]], ...]:
        mail = tuple(self._mail)
        self._mail = []
        return mail

    def _hand_out(self, mail: Sequence[tuple[int, int, tuple[float, ...]]]) -> None:
        for sender, receiver, note in mail:
            self._deliver(InTransit(0.0, 0, sender, receiver, 0, note))

    def _wake(self, who: int, tick: int) -> None:
        agent = self._agents[who]
        mail = self._taken() if self.record else ()
        seen = []
        protocol = self._steps.round(agent, self._states[who], tick)
        reply = None
        while True:
            try:
                collective = protocol.send(reply)
            except StopIteration as end:
                state = end.value
                break
            if type(collective) is not Ask:
                raise ProtocolError(
                    f"{agent.data.name} woke up alone and yielded {type(collective).__name__}; it "
                    "can only Ask."
                )
            if self.guard is not None:
                self.guard.check(protocol, collective)
            reply, looked = self._answer(who, collective, tick)
            seen += looked
        if self.record:
            self.sights.append(Sight(tick, who, tuple(seen), mail))
        self._states[who] = state
        publication = self._steps.publish(agent, state)
        if isinstance(publication, Publication):
            self.publish(who, publication)

    # -- reading -----------------------------------------------------------------------------------

    def _answer(self, who: int, collective: Ask, tick: int) -> tuple[Any, list[tuple[int, int]]]:
        if collective.weights is None:
            return self._asked(who, collective, tick)
        if self._immediate:
            total: FloatArray = weighted_rows(
                self._board, np.asarray(collective.peers, np.intp), collective.weights
            )
            looked = (
                [(int(peer), self._versions[peer]) for peer in collective.peers]
                if self.record
                else []
            )
            return total, looked
        looked = [(int(peer), self._copy_of(who, int(peer), tick)) for peer in collective.peers]
        rows = np.array([self._editions[edition] for edition in looked]).reshape(
            len(looked), self._board.shape[1]
        )
        return weighted_rows(rows, np.arange(len(looked)), collective.weights), looked

    def _copy_of(self, who: int, peer: int, tick: int) -> int:
        """Return the version of the peer's publication that this agent holds."""
        if self._script is not None:
            return dict(self._script[tick].seen)[peer]
        return self._arrived[who].setdefault(peer, self._versions[peer])

    def _asked(
        self, who: int, collective: Ask, tick: int
    ) -> tuple[dict[int, FloatArray], list[tuple[int, int]]]:
        """Return the latest publication of each peer that answers. If the asker has read a vector
        already, the peer sends only one number again.
        """
        answer: dict[int, FloatArray] = {}
        looked = []
        known = self._read[who]
        send = self.bill.send
        if len(known) > MEMORY // self.count + len(collective.peers):
            known.clear()
        for peer in map(int, collective.peers):
            publication = self._publications[peer]
            version = self._versions[peer]
            body = self._bodies[peer]
            if self._script is not None:
                seen = dict(self._script[tick].seen)
                if peer not in seen:
                    continue
                answer[peer] = self._editions[peer, seen[peer]]
            elif self.lost and self._delays.random() < self.lost:
                continue
            else:
                answer[peer] = publication.x
            if collective.again or known.get(peer) != body:
                self._bill(
                    "Ask", peer, 1, publication.head, self._filled(peer, publication), publication
                )
                known[peer] = body
            else:
                send("rounds", "Ask", peer, 1, 1, 64)
            self._arrived[who][peer] = version
            looked.append((peer, version))
        return answer, looked

    # -- writing -----------------------------------------------------------------------------------

    def publish(self, who: int, publication: Publication) -> None:
        """Store a publication for other agents to read, and send the messages that it requires."""
        x = publication.x
        if not np.isfinite(x.sum()):
            raise unfit(who)
        first = who not in self._publications
        self._put_up(who, publication)
        if first:
            return
        if publication.changed:
            self._bodies[who] += 1
            self._bill("Ask", who, len(publication.to), 0, publication.changed, publication)
            if not self._immediate:
                for receiver in publication.to:
                    self._send(who, int(receiver), ())
        if publication.new:
            self._bill(
                "Exchange",
                who,
                len(publication.new),
                0,
                self._filled(who, publication),
                publication,
            )
        for length, copies in Counter(map(len, publication.notes.values())).items():
            self._bill("Ask", who, copies, length, 0, publication)
        for receiver, note in publication.notes.items():
            self._send(who, receiver, note)

    def _put_up(self, who: int, publication: Publication) -> None:
        if self._board.shape != (self.count, publication.x.size):
            self._board = np.zeros((self.count, publication.x.size))
        if self.guard is not None:
            self._count(who, publication, self.guard)
        self._board[who] = publication.x
        self._publications[who] = publication
        self._versions[who] += 1
        if not self._immediate:
            self._editions[who, self._versions[who]] = sealed(np.array(publication.x))

    def _count(self, who: int, publication: Publication, guard: Guard) -> None:
        """Count the numbers that others can learn from this publication."""
        changed = publication.x[publication.x != self._board[who]]
        message = np.concatenate([changed, *publication.notes.values()])
        guard.publish(message.size)
        if self.account is not None:
            self.account.count(message)

    def _bill(
        self,
        collective: str,
        who: int,
        copies: int,
        plain: int,
        entries: int,
        publication: Publication,
    ) -> None:
        length = publication.x.size - publication.head if publication.sparse else 1
        self.bill.entries("rounds", collective, who, copies, plain, entries, length)

    def _filled(self, who: int, publication: Publication) -> int:
        """Return the number of entries of the vector to send. It is counted once for each version
        of the vector.
        """
        body, count = self._counted.get(who, (-1, 0))
        if body != self._bodies[who]:
            vector = publication.x[publication.head :]
            count = int(np.count_nonzero(vector)) if publication.sparse else vector.size
            self._counted[who] = self._bodies[who], count
        return count

    def _send(self, sender: int, receiver: int, note: tuple[float, ...]) -> None:
        if self._script is not None or (self.lost and self._delays.random() < self.lost):
            return
        self._messages_sent += 1
        delay = self._delays.exponential(self.late) if self.late else 0.0
        message = InTransit(
            self._now + delay, self._messages_sent, sender, receiver, self._versions[sender], note
        )
        if delay:
            heapq.heappush(self._in_flight, message)
        else:
            self._deliver(message)

    def _land(self) -> None:
        while self._in_flight and self._in_flight[0].arrival <= self._now:
            self._deliver(heapq.heappop(self._in_flight))

    def _deliver(self, message: InTransit) -> None:
        sender = message.sender
        receiver = message.receiver
        if not self._immediate:
            held = self._arrived[receiver]
            held[sender] = max(held.get(sender, 0), message.version)
        if message.note:
            agent = self._agents[receiver]
            self._states[receiver] = self._steps.receive(
                agent, self._states[receiver], sender, message.note
            )
            if self.record:
                self._mail.append((sender, receiver, message.note))
            # The receiver's degree may have changed. No message is sent for that.
            publication = self._steps.publish(agent, self._states[receiver])
            if isinstance(publication, Publication) and not (
                self._immediate and publication.x is self._publications[receiver].x
            ):
                self._put_up(receiver, publication)
                self._bodies[receiver] += publication.changed > 0

    def holds(self, who: int, peer: int) -> bool:
        """Return whether that agent has the peer's newest vector already."""
        return self._immediate or self._arrived[who].get(peer) == self._versions[peer]

    def settle(self, bill: Bill) -> None:
        """Bill the rounds since the last call. This class bills every wake-up at once."""

    # -- checkpoints -------------------------------------------------------------------------------

    def memory(self) -> dict[str, npt.NDArray[np.int64]]:
        """Return the versions of the vectors that each agent has read. They decide which vectors
        are sent and billed again.
        """
        read = [
            (who, peer, body)
            for who, known in enumerate(self._read)
            for peer, body in known.items()
        ]
        return {"bodies": np.array(self._bodies), "read": np.array(read, np.int64).reshape(-1, 3)}

    def recall(self, memory: dict[str, npt.NDArray[np.int64]]) -> None:
        """Continue from the `memory` of a checkpoint."""
        if memory:
            self._bodies = memory["bodies"].tolist()
            for who, peer, body in memory["read"].tolist():
                self._read[who][peer] = body


def wake_ups(seed: int, agents: int, t: int) -> Iterator[tuple[int, int]]:
    """Return the ticks of round t, counted from 1 over all rounds, each with the agent that wakes
    up.
    """
    order = np.random.default_rng([seed, CLOCKS, t]).integers(agents, size=agents).tolist()
    return enumerate(order, (t - 1) * agents + 1)


def unfit(who: int) -> NumericalError:
    """Return the error for a publication with numbers that are not finite."""
    return NumericalError(f"agent {who} published numbers that are not finite.")
