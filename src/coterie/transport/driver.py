"""The driver runs the protocols of the agents of this process. It checks their messages, passes
them on and counts them in the bill.
"""

from __future__ import annotations

import gc
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, TypeVar

import numpy as np

from coterie.errors import InvalidNetwork, NumericalError, ProtocolError
from coterie.numerics.arrays import FloatArray, Matrix, digest, sealed
from coterie.numerics.threads import WORTH, spread
from coterie.problems.problem import AnyProblem
from coterie.run.agent import Agent
from coterie.run.bill import Bill
from coterie.run.collectives import (
    Ask,
    Collective,
    Exchange,
    IndexArray,
    Mix,
    Protocol,
    Publication,
    Sum,
)
from coterie.run.disclosure import Guard
from coterie.run.steps import Steps
from coterie.transport.collectives import Collectives, OneProcess
from coterie.transport.distributed_gossip import DistributedGossip
from coterie.transport.gossip import Account, Gossip
from coterie.transport.links import Stop, Tag
from coterie.transport.point_to_point import PointToPoint
from coterie.transport.real_time_gossip import RealTimeGossip
from coterie.transport.sums import LARGEST, is_in_range, sums_of

T = TypeVar("T")

RECEIVED, SENT, CONTEXT = "heard", "told", "context"
MANY = 256
"""Number of agents of one process from which steps pause garbage collection. With 2,000 agents,
garbage collection took a third of the time.
"""


class Driver:
    """Answers the collectives of the agents of this process, together with the other processes; see
    `steps.Transport`.
    """

    def __init__(
        self,
        bill: Bill,
        collectives: Collectives,
        pace: float | None = None,
        *,
        secure_sums: bool = False,
    ):
        """Create the driver. With a `pace`, agents that wake up one by one do so in real time (see
        `real_time_gossip`).
        """
        if secure_sums and not collectives.sums.exact:
            collectives.sums = sums_of(secure_sums, collectives.network.agents)
        self.bill = bill
        self.collectives = collectives
        self.pace = pace
        self.network = collectives.network
        self.names = collectives.names
        self.local = collectives.local
        self.process = collectives.process
        self._answers: dict[type, Callable[[Sequence[Any], str], Sequence[Any]]] = {
            Sum: self._sum,
            Mix: self._mix,
            Exchange: self._exchange,
            Ask: self._ask,
        }
        self._gossip: Gossip | None = None
        self.account: Account | None = None
        self.guard: Guard | None = None
        """Between organisations: refuses messages that the operation does not declare."""
        self.numbers = 0
        """Count of numbers that an agent of this process holds. It decides whether agents run in
        threads.
        """

    def take(
        self, step: Callable[..., Protocol[T]], rows: Iterable[Sequence[Any]], purpose: str
    ) -> list[T]:
        """Run a step for each agent of this process. Each row has the arguments of one call; the
        agent is the first argument.
        """
        with self._without_collection():
            return self.converse([step(*row) for row in rows], purpose)

    def _without_collection(self) -> AbstractContextManager[None]:
        """Pause garbage collection if there are many agents. Python would otherwise search all
        their objects repeatedly, and free nothing.
        """
        if len(self.local) >= MANY and gc.isenabled():
            return _no_collection()
        return nullcontext()

    def confer(
        self, protocols: Sequence[Protocol[T]], places: Sequence[IndexArray], purpose: str
    ) -> list[T]:
        """Run protocols that consist of sums, each for one group of agents: the agents at `places`
        in `local`.

        A protocol sends one row for each agent of its group. All protocols receive the same
        aggregate.
        """
        reply: FloatArray | None = None
        try:
            with self._without_collection():
                while True:
                    yielded = [_sent((protocol, reply)) for protocol in protocols]
                    if any(ended for ended, _ in yielded):
                        return self._ends(yielded, [int(place[0]) for place in places])
                    collectives = [collective for _, collective in yielded]
                    for collective in collectives:
                        if type(collective) is not Sum:
                            raise ProtocolError(
                                f"a group of agents yielded {_name(collective)}; they can "
                                "only yield Sum."
                            )
                    self._guard(protocols, collectives)
                    rows: Any = self._by_agents(
                        [collective.x for collective in collectives], places
                    )
                    if not self.one_process:
                        rows = list(rows)
                    reply = self._total(rows, purpose)
        except self.collectives.failures as error:
            self.collectives.explain(error)

    def _guard(self, protocols: Sequence[Protocol[Any]], collectives: Sequence[Collective]) -> None:
        """Refuse messages that no declaration covers, before they are sent."""
        if self.guard is not None:
            for protocol, collective in zip(protocols, collectives, strict=True):
                self.guard.check(protocol, collective, self.local[0])

    def _tag(self, purpose: str, collective: str) -> Tag:
        """Return a tag for the messages of the collective that was checked last."""
        tag = self.collectives.tag(purpose, collective)
        if self.guard is not None:
            self.guard.begin(tag)
        return tag

    def _by_agents(self, parts: Sequence[FloatArray], places: Sequence[IndexArray]) -> FloatArray:
        """Return an array with one row for each agent of this process."""
        first = parts[0]
        if len(parts) == 1:
            return np.ascontiguousarray(first.reshape(len(places[0]), -1))
        for part, place in zip(parts, places, strict=True):
            if part.shape[-1:] != first.shape[-1:] or part.dtype != first.dtype:
                raise self._misfit("Sum", first[-1:], part[-1:], self.local[place[0]])
        rows: FloatArray = np.empty((len(self.local), first.shape[-1]), first.dtype)
        for part, place in zip(parts, places, strict=True):
            rows[place] = part
        return rows

    def converse(self, protocols: Sequence[Protocol[T]], purpose: str) -> list[T]:
        """Run the protocols of the agents of this process to their end, step by step. Return their
        values.
        """
        replies: Sequence[Any] = [None] * len(protocols)
        try:
            while True:
                # Free the messages of the last step before the agents compute more.
                collectives: list[Collective] = []
                yielded: list[tuple[bool, Any]] = []
                if self.numbers >= WORTH:
                    yielded = spread(
                        _sent, list(zip(protocols, replies, strict=True)), self.numbers
                    )
                    if any(ended for ended, _ in yielded):
                        return self._ends(yielded, range(len(yielded)))
                    collectives = [collective for _, collective in yielded]
                else:
                    try:
                        for protocol, reply in zip(protocols, replies, strict=True):
                            collectives.append(protocol.send(reply))
                    except StopIteration as end:
                        return self._ended(protocols, replies, collectives, end.value)
                if not collectives:
                    return []
                kind = type(collectives[0])
                for collective in collectives:
                    if type(collective) is not kind:
                        raise self._disagreement(collectives, [])
                self._guard(protocols, collectives)
                replies = self._answers[kind](collectives, purpose)
        except self.collectives.failures as error:
            self.collectives.explain(error)

    def _ends(self, yielded: Sequence[tuple[bool, Any]], places: Sequence[int]) -> list[Any]:
        """Return the values of all protocols, when at least one has ended. All must end at the same
        step.
        """
        collectives = [collective for ended, collective in yielded if not ended]
        if collectives:
            silent = [place for place, (ended, _) in zip(places, yielded, strict=True) if ended]
            raise self._disagreement(collectives, silent)
        return [value for _, value in yielded]

    def _ended(
        self,
        protocols: Sequence[Protocol[T]],
        replies: Sequence[Any],
        collectives: list[Collective],
        first: T,
    ) -> list[T]:
        """Return the values of all protocols, when the protocol after those that sent `collectives`
        is the first to end. All must end at the same step.
        """
        results = [first]
        silent = [len(collectives)]
        for k in range(len(collectives) + 1, len(protocols)):
            try:
                collectives.append(protocols[k].send(replies[k]))
            except StopIteration as end:
                results.append(end.value)
                silent.append(k)
        if collectives:
            raise self._disagreement(collectives, silent)
        return results

    def agreed(self, t: int, stop_reason: int) -> int:
        """Return the reason to stop after round t, or 0. The process of agent 0 decides it for all
        processes.
        """
        if isinstance(self._gossip, RealTimeGossip):
            return self._gossip.agreed()
        collectives = self.collectives
        layout = self.collectives.layout
        if not layout.others:
            return stop_reason
        if stop_reason and not collectives.stop.reason and layout.leads:
            collectives.stop = Stop(t + layout.reach, stop_reason)
        if t >= collectives.stop.at:
            return collectives.stop.reason
        return 0

    def least(self, number: int) -> int:
        """Return the smallest `number` of all processes."""
        return int(self.collectives.of_all([[float(number)]] * len(self.local), "least").min())

    # -- agents that wake up one by one ------------------------------------------------------------

    def publish(self, agent: int, message: FloatArray | Publication) -> None:
        """Store a message so that other agents can `Ask` for it."""
        if isinstance(message, Publication):
            self._gossiping().publish(agent, message)
            return
        if self.guard is not None:
            self.guard.publish(message.size)
        self._check("Ask", [message])
        self.collectives.publish(agent, message)

    def _gossiping(self) -> Gossip:
        if self._gossip is None:
            self._gossip = self._new_gossip()
            self._gossip.guard = self.guard
            self._gossip.account = self.account
        return self._gossip

    def _new_gossip(self) -> Gossip:
        if self.pace is None:
            return DistributedGossip(self.collectives)
        assert isinstance(self.collectives, PointToPoint), (
            "only links are looked at without waiting"
        )
        return RealTimeGossip(self.collectives, self.pace)

    def gossip(
        self, agents: Sequence[Agent[AnyProblem]], states: list[Any], steps: Steps, t: int
    ) -> list[Any]:
        """Run a round of agents that wake up one by one, in all processes.

        Returns the States of the agents of this process.
        """
        try:
            return self._gossiping().run(agents, states, steps, t)
        except self.collectives.failures as error:
            self.collectives.explain(error)
        except NumericalError:
            self.settle()  # all processes fail in the same round
            raise

    def settle(self) -> None:
        """Bring the bill up to date with the gossip of all processes."""
        if self._gossip is None:
            return
        try:
            self._gossip.settle(self.bill)
        except self.collectives.failures as error:
            self.collectives.explain(error)

    @property
    def one_process(self) -> bool:
        """Whether all agents of the run are in this process, and share one clock."""
        return isinstance(self.collectives, OneProcess)

    @property
    def free(self) -> bool:
        """Whether agents that use gossip do so in real time."""
        return self.pace is not None

    def roam(
        self,
        agents: Sequence[Agent[AnyProblem]],
        states: list[Any],
        steps: Steps,
        span: tuple[int, int],
        stop_reason: Callable[[], int],
    ) -> tuple[list[Any], int]:
        """Gossip in real time from one round to another; see `steps.Transport`."""
        gossip = self._gossiping()
        assert isinstance(gossip, RealTimeGossip), "only with a pace do clocks run in real time"
        states, reached = gossip.stretch(agents, states, steps, span, stop_reason)
        gossip.settle(self.bill)
        return states, reached

    def memory(self) -> dict[str, Any]:
        """Return the state that a checkpoint needs: the digest of all aggregates so far, the state
        of the account and, for gossip, the versions that the agents of this process have read.
        """
        transcript = self.collectives.transcript
        memory: dict[str, Any] = {}
        if transcript is not None:
            memory[RECEIVED] = np.frombuffer(transcript.digest(), np.uint8)
        if self.account is not None:
            memory[SENT] = np.array([self.account.sent])
            memory[CONTEXT] = np.frombuffer(self.account.context, np.uint8)
        if self._gossip is not None:
            memory |= self._gossip.memory()
        return memory

    def recall(self, memory: dict[str, Any]) -> None:
        """Continue from the `memory` of a checkpoint."""
        if self.collectives.transcript is not None and RECEIVED in memory:
            self.collectives.transcript.update(memory[RECEIVED].tobytes())
        if self.account is not None and SENT in memory:
            self.account.sent = max(self.account.sent, int(memory[SENT][0]))
        if self.account is not None and CONTEXT in memory:
            self.account.context = memory[
                CONTEXT
            ].tobytes()  # messages that are sent again were counted before
        if read := {
            name: array for name, array in memory.items() if name not in (RECEIVED, SENT, CONTEXT)
        }:
            self._gossiping().recall(read)

    # -- one answer per collective -----------------------------------------------------------------

    def _sum(self, collectives: Sequence[Sum], purpose: str) -> Sequence[FloatArray]:
        messages = [collective.x for collective in collectives]
        self._same_shape("Sum", messages)
        if any(collective.of is not None for collective in collectives):
            return self._sum_of(collectives, messages, purpose)
        if collectives[0].to is not None or any(
            collective.to is not None for collective in collectives
        ):
            return self._sum_at(collectives, messages, purpose)
        return [self._total(messages, purpose)] * len(collectives)

    def _sum_at(
        self, collectives: Sequence[Sum], messages: Sequence[FloatArray], purpose: str
    ) -> Sequence[Any]:
        """Return the aggregate to one agent, and None to all others. On a graph, messages go up a
        tree with its root at that agent. No process sends the aggregate back down.
        """
        to = collectives[0].to
        if to is None or any(collective.to != to for collective in collectives):
            raise ProtocolError("the agents sent their parts of a sum to different agents.")
        self._check("Sum", messages)
        self._fits(messages)
        total = self.collectives.total_at(to, messages, self._tag(purpose, "Sum"))
        itemsize = self.collectives.sums.bytes_of(messages[0].dtype)
        self.bill.say(purpose, f"Sum to {to}", messages[0].size, itemsize)
        if total is None:
            return [None] * len(collectives)
        self._finite("Sum", total, messages)
        return [sealed(total) if agent == to else None for agent in self.local]

    def _sum_of(
        self, collectives: Sequence[Sum], messages: Sequence[FloatArray], purpose: str
    ) -> Sequence[FloatArray]:
        """Return the message of one agent to all agents. It is no secret and has no masks."""
        of = collectives[0].of
        if of is None or any(collective.of != of for collective in collectives):
            raise ProtocolError("the agents expected the message of different agents.")
        if of in self.local:
            self._check("Sum", messages)
            self._fits(messages)
        total = self.collectives.total_of(of, messages, self._tag(purpose, "Sum"))
        self._finite("Sum", total, messages)
        if self.account is not None:
            self.account.receive(total)
        self.bill.say(purpose, f"Sum of {of}", total.size, total.itemsize)
        return [sealed(total)] * len(collectives)

    def _total(self, messages: Sequence[FloatArray], purpose: str) -> FloatArray:
        """Return the sum of all agents' messages. The messages of this process's agents may be the
        rows of one array.
        """
        self._check("Sum", messages)
        self._fits(messages)
        total = self.collectives.total(messages, self._tag(purpose, "Sum"))
        self._finite("Sum", total, messages)
        if self.account is not None:
            self.account.receive(total)
        self.bill.say(purpose, "Sum", total.size, self.collectives.sums.bytes_of(total.dtype))
        return sealed(total)

    def _mix(self, collectives: Sequence[Mix], purpose: str) -> Sequence[FloatArray]:
        self._needs_edges("Mix")
        messages = [collective.x for collective in collectives]
        first = messages[0]
        rule = self._same_rule(collectives)
        self._same_shape("Mix", messages)
        self._check("Mix", messages)
        mixed = self.collectives.mixed(rule, messages, self._tag(purpose, "Mix"))
        if not self.collectives.defers:
            self._finite("Mix", mixed, messages)
        self.bill.say(purpose, "Mix", first.size, first.itemsize)
        sealed(mixed)
        if first.ndim == 1:
            return list(mixed)
        return [row.reshape(first.shape) for row in mixed]

    def _exchange(
        self, collectives: Sequence[Exchange], purpose: str
    ) -> Sequence[dict[int, FloatArray]]:
        self._needs_edges("Exchange")
        messages = [sealed(np.array(collective.x)) for collective in collectives]
        self._check("Exchange", messages)
        sizes = self.collectives.of_all(
            [[message.size, message.itemsize] for message in messages], "sizes"
        )
        own = dict(zip(self.local, messages, strict=True))
        received = self.collectives.exchanged(own, self._tag(purpose, "Exchange"))
        for agent, message in received.items():
            if [message.size, message.itemsize] != sizes[agent].tolist():
                raise ProtocolError(
                    f"Exchange: the message of {self.names[agent]} is not of the size it announced."
                )
        self.bill.exchange(purpose, [(int(size), int(itemsize)) for size, itemsize in sizes])
        return [{j: received[j] for j in self.network.neighbours(agent)} for agent in self.local]

    def _ask(self, collectives: Sequence[Ask], purpose: str) -> Sequence[dict[int, FloatArray]]:
        published = {
            agent: collective.tell
            for agent, collective in zip(self.local, collectives, strict=True)
            if collective.tell is not None
        }
        if published and len(published) < len(collectives):
            raise ProtocolError("some agents sent a message with their Ask, but others did not.")
        self._check("Ask", list(published.values()))
        kept = dict(self.collectives.published)
        for agent, message in published.items():
            self.collectives.publish(agent, message)
        wanted = set().union(*(map(int, collective.peers) for collective in collectives))
        public = self.collectives.fetched(sorted(wanted))
        answers = [
            {int(peer): public[peer] for peer in collective.peers if peer in public}
            for collective in collectives
        ]
        asked = self._amounts_asked(answers, bool(published))
        # All agents must have their answers before one of them continues and publishes a newer
        # message.
        if self.collectives.layout.others:
            rows = [asked, *([np.zeros_like(asked)] * (len(collectives) - 1))]
            asked = self.collectives.total(rows, self.collectives.tag("engine", "asked"))
        for peer, counts in enumerate(asked):
            if counts[0]:
                self.bill.send(purpose, "Ask", peer, *map(int, counts))
        for agent in published.keys() & kept.keys():
            self.collectives.publish(agent, kept[agent])
        return answers

    def _amounts_asked(
        self, answers: Sequence[dict[int, FloatArray]], published: bool
    ) -> FloatArray:
        """Return one row for each agent: the number of messages, numbers and bits that it sent in
        these answers.

        With `published`, all agents sent a message with their `Ask`. An agent that uses gossip may
        already have the vector of such a message. Then only two weights of the edge are new.
        """
        asked: FloatArray = np.zeros((self.network.agents, 3))
        for agent, answer in zip(self.local, answers, strict=True):
            for peer, message in answer.items():
                size = message.size
                if published and self._gossip is not None and self._gossip.holds(agent, peer):
                    size = 2
                asked[peer] += (1, size, 8 * message.itemsize * size)
        return asked

    # -- checks ------------------------------------------------------------------------------------

    def _same_shape(self, collective: str, messages: Sequence[FloatArray]) -> None:
        first = messages[0]
        shape = first.shape
        dtype = first.dtype
        for message in messages:
            if message is not first and (message.shape != shape or message.dtype != dtype):
                agent = next(
                    agent for agent, x in zip(self.local, messages, strict=True) if x is message
                )
                raise self._misfit(collective, first, message, agent)

    def _misfit(
        self, collective: str, first: FloatArray, message: FloatArray, agent: int
    ) -> ProtocolError:
        return ProtocolError(
            f"{collective}: {self.names[self.local[0]]} sent {first.dtype}{first.shape} and "
            f"{self.names[agent]} sent "
            f"{message.dtype}{message.shape} at the same step."
        )

    def _same_rule(self, collectives: Sequence[Mix]) -> str | Matrix:
        rule = collectives[0].rule
        if not all(
            collective.rule is rule or _same_rule(collective.rule, rule)
            for collective in collectives
        ):
            raise ProtocolError("the agents asked for different mixing rules at the same step.")
        return rule

    def _check(self, collective: str, messages: Sequence[FloatArray]) -> None:
        """Count the numbers to be sent; the account refuses to exceed its limit. Refuse a message
        that is not finite, if only this process would know its sender.
        """
        if self.account is not None:
            for message in messages:
                self.account.count(message)
        if collective in self.collectives.checked:
            for message in messages:
                if not is_in_range(message):
                    self.collectives.complain(self._not_finite(collective, messages)[0])

    def _fits(self, messages: Sequence[FloatArray]) -> None:
        """Refuse a message with a number that secure sums cannot represent."""
        if not self.collectives.sums.exact:
            return
        for agent, message in zip(self.local, messages, strict=True):
            if (place := self.collectives.sums.misfit(message)) < 0:
                continue
            if not np.isfinite(message.reshape(-1)[place]):
                self.collectives.complain(self._not_finite("Sum", messages)[0])
            self.collectives.complain(
                NumericalError(
                    f"{self.names[agent]} has a number for a Sum that secure sums cannot hold: "
                    "they go up to about "
                    "4e28 over the number of parties. Rescale the columns or labels with large "
                    "values."
                )
            )

    def _finite(self, collective: str, result: FloatArray, messages: Sequence[FloatArray]) -> None:
        if not _is_finite(result):
            raise self.collectives.blame(*self._not_finite(collective, messages))

    def _not_finite(
        self, collective: str, messages: Sequence[FloatArray]
    ) -> tuple[NumericalError, bool]:
        """Return the error that names the agent with the number, and whether this agent is in this
        process.
        """
        for agent, message in zip(self.local, messages, strict=True):
            if bad := int(np.size(message) - np.isfinite(message).sum()):
                text = (
                    f"{self.names[agent]} sent {collective} with {bad} of {message.size} numbers "
                    "not finite."
                )
                return NumericalError(text), True
            if not is_in_range(message):
                text = (
                    f"{self.names[agent]} has a number for a {collective} that is too large: they "
                    f"go up to {LARGEST:.2g}. Rescale the columns or labels with large values."
                )
                return NumericalError(text), True
        return NumericalError(
            f"{collective}: the numbers of all agents are finite, but their sum is not."
        ), False

    def _needs_edges(self, collective: str) -> None:
        if self.network.server:
            raise InvalidNetwork(
                f"{collective} needs agents that send messages to each other, but here all agents "
                "send to a server."
            )

    def _disagreement(
        self, collectives: Sequence[Collective], silent: Sequence[int]
    ) -> ProtocolError:
        if silent:
            ended = ", ".join(self.names[self.local[k]] for k in silent)
            first = next(k for k in range(len(self.local)) if k not in silent)
            open_step = f"{self.names[self.local[first]]} yielded {_name(collectives[0])}"
            return ProtocolError(f"{ended} ended the round while {open_step}.")
        other = next(
            k
            for k, collective in enumerate(collectives)
            if type(collective) is not type(collectives[0])
        )
        one = f"{self.names[self.local[0]]} yielded {_name(collectives[0])}"
        return ProtocolError(
            f"at the same step {one} and {self.names[self.local[other]]} yielded "
            f"{_name(collectives[other])}."
        )


@contextmanager
def _no_collection() -> Iterator[None]:
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _sent(member: tuple[Protocol[T], Any]) -> tuple[bool, Any]:
    """Send a reply to a protocol. Returns False and its next collective, or True and its value."""
    protocol, reply = member
    try:
        return False, protocol.send(reply)
    except StopIteration as end:
        return True, end.value


def _is_finite(message: FloatArray) -> bool:
    flat = message.reshape(-1)
    # ‖x‖² is finite unless an entry is infinite, NaN or huge. In most cases one pass is enough, and
    # vdot never warns.
    return math.isfinite(np.vdot(flat, flat)) or bool(np.isfinite(flat).all())


def _same_rule(one: str | Matrix, other: str | Matrix) -> bool:
    if isinstance(one, str) or isinstance(other, str):
        return isinstance(one, str) and isinstance(other, str) and one == other
    return digest(one) == digest(other)


def _name(collective: Collective) -> str:
    return type(collective).__name__
