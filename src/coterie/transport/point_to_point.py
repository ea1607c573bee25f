"""Words among agents that live in several processes, over point-to-point links.

Every sum is made in the order in which `in_process` makes it, so the iterates do not depend on where agents live:

| word       | how it travels                                                                                      |
|------------|-----------------------------------------------------------------------------------------------------|
| `Sum`      | with a server: to the process of agent 0, which adds in the order of the agents; on a graph: up the |
|            | spanning tree, each agent adding its children's sums, the last child first. The total comes back.   |
| `Mix`      | to the processes of the neighbours, which take their rows of the same matrix product                |
| `Exchange` | to the processes of the neighbours                                                                  |
| `Ask`      | the links answer, when everybody has published and before anybody publishes again                   |
| gossip     | see `distributed_gossip`; in real time, `real_time_gossip`                                          |

The header of every message has the *stop*: after which round the process of agent 0 wants to end, and why (time is up,
Ctrl-C). It travels with the words, so all processes stop after the same round without a message more. What engines tell
each other beside the words (`least`, the sizes of unequal messages) is not billed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from coterie.agent import Agent
from coterie.arrays import FloatArray, Matrix, sealed
from coterie.bill import Bill
from coterie.errors import ProtocolError
from coterie.networks import Network
from coterie.steps import Steps
from coterie.transport.distributed_gossip import DistributedGossip
from coterie.transport.driver import LONG, Driver, Even
from coterie.transport.links import Links, Stop, Tag
from coterie.transport.real_time_gossip import RealTimeGossip
from coterie.words import Ask, Exchange, Mix, Publication, Sum

__all__ = ["Operator", "PointToPoint", "partners"]

WHOLE_PRODUCT = 64
"""Up to so many agents a dense `Mix` is the whole product, absent messages being 0: the same bits as in process."""
HEARD = "heard"


class Operator(NamedTuple):
    """A part of a mixing matrix: which messages it takes, and which rows of the product are wanted."""

    matrix: Matrix
    agents: Sequence[int]
    """Whose messages it takes, in that order; those that are not at hand count as 0."""
    wanted: npt.NDArray[np.intp] | slice


class PointToPoint(Driver):
    """Answers the words of the agents of this process, together with the other processes."""

    def __init__(
        self,
        network: Network,
        bill: Bill,
        links: Links,
        process_of: Sequence[int],
        process: int,
        names: Sequence[str] | None = None,
        pace: float | None = None,
    ):
        """`process_of[j]` is the process of agent j; with a `pace`, gossip is in real time (see `real_time_gossip`)."""
        super().__init__(network, bill, names)
        self.links, self.process_of, self.process, self.pace = links, list(process_of), process, pace
        self.here = [agent for agent, owner in enumerate(process_of) if owner == process]
        self._step = 0
        self.stop = Stop()
        self._published: dict[int, FloatArray] = {}
        self._operators: dict[tuple[str | int, Any, bool], tuple[str | Matrix, Operator]] = {}
        self._agents_of: dict[int, list[int]] = {}
        for agent, owner in enumerate(process_of):
            self._agents_of.setdefault(owner, []).append(agent)
        self._told_by, self._tells = _relay(network, self.process_of, process)
        # Process by process: which of my agents have a neighbour there, and which of its agents have one here.
        self._outgoing, self._incoming = _crossings(network, self.process_of, process)
        self._at_hand = sorted({*self.here, *(agent for agents in self._incoming.values() for agent in agents)})
        self._gossip: DistributedGossip | None = None
        self.transcript: hashlib._Hash | None = None
        """If set, a digest of all totals: what every process must have heard alike."""
        self._reach = 0 if len(self._agents_of) == 1 else 1 if network.server else max(1, network.diameter)

    def publish(self, agent: int, message: FloatArray | Publication) -> None:
        """Put a message where others can `Ask` for it."""
        if isinstance(message, Publication):
            self._scattered().publish(agent, message)
        else:
            self._put_up(agent, message)

    def _put_up(self, agent: int, message: FloatArray) -> None:
        self._published[agent] = sealed(np.array(message))
        self.links.publish(agent, message)

    def _scattered(self) -> DistributedGossip:
        if self._gossip is None:
            how = (self.network, self.process_of, self.process, self._send, self._receive)
            self._gossip = (
                DistributedGossip(*how)
                if self.pace is None
                else RealTimeGossip(*how, self._arrived, self.links, self.pace)
            )
        return self._gossip

    def memory(self) -> dict[str, Any]:
        """The digest of the totals so far, and what the agents of this process have read, if they gossip."""
        heard = {} if self.transcript is None else {HEARD: np.frombuffer(self.transcript.digest(), np.uint8)}
        return heard | ({} if self._gossip is None else self._gossip.memory())

    def recall(self, memory: dict[str, Any]) -> None:
        """Go on from the `memory` of a snapshot."""
        if self.transcript is not None and HEARD in memory:
            self.transcript.update(memory[HEARD].tobytes())
        if read := {name: array for name, array in memory.items() if name != HEARD}:
            self._scattered().recall(read)

    def gossip(self, agents: Sequence[Agent], states: list[Any], steps: Steps, t: int) -> list[Any]:
        """A round of agents that wake up one by one, here and elsewhere; returns the States of those here."""
        assert self._gossip is not None, "agents publish a Message before they wake up"
        states = self._gossip.run(agents, states, steps, t)
        self._gossip.settle(self.bill)
        return states

    @property
    def free(self) -> bool:
        """Whether gossip is in real time."""
        return self.pace is not None

    def roam(
        self,
        agents: Sequence[Agent],
        states: list[Any],
        steps: Steps,
        span: tuple[int, int],
        stop_reason: Callable[[], int],
    ) -> tuple[list[Any], int]:
        """Gossip in real time from one round to another; see `rounds.Carrier`."""
        assert isinstance(self._gossip, RealTimeGossip), "agents publish a Message before they wake up"
        states, reached = self._gossip.stretch(agents, states, steps, span, stop_reason)
        self._gossip.settle(self.bill)
        return states, reached

    def agreed(self, t: int, stop_reason: int) -> int:
        """The reason to stop that takes effect after round t, or 0: everywhere that of the process of agent 0."""
        if isinstance(self._gossip, RealTimeGossip):
            return self._gossip.agreed()
        if stop_reason and not self.stop.reason and self.process == self.process_of[0]:
            self.stop = Stop(t + self._reach, stop_reason)
        return self.stop.reason if t >= self.stop.at else 0

    @property
    def stop(self) -> Stop:
        """When to stop, as far as this process knows."""
        return self.links.stop

    @stop.setter
    def stop(self, stop: Stop) -> None:
        self.links.stop = stop

    def least(self, number: int) -> int:
        """The smallest of the processes' numbers."""
        return int(self._everybodys([[float(number)]] * len(self.here), "least").min())

    # -- one answer per word ------------------------------------------------------------------------------------------

    def _sum(self, words: Sequence[Sum], purpose: str) -> Sequence[FloatArray]:
        messages = [word.x for word in words]
        self._same_shape("Sum", messages)
        self._all_finite("Sum", messages)
        total = self._sum_of_all(messages, self._tag(purpose, "Sum"))
        self._finite("Sum", total, messages)
        self.bill.say(purpose, "Sum", total.size, total.itemsize)
        sealed(total)
        return [total] * len(words)

    def _mix(self, words: Sequence[Mix], purpose: str) -> Sequence[FloatArray]:
        self._needs_edges("Mix")
        messages = [word.x for word in words]
        first = messages[0]
        rule = self._same_rule(words)
        self._same_shape("Mix", messages)
        self._all_finite("Mix", messages)
        mixed = self._mixed(self._operator(rule, first.dtype, first.size), messages, self._tag(purpose, "Mix"))
        self._finite("Mix", mixed, messages)
        self.bill.say(purpose, "Mix", first.size, first.itemsize)
        sealed(mixed)
        return list(mixed) if first.ndim == 1 else [row.reshape(first.shape) for row in mixed]

    def _mixed(self, operator: Operator, messages: Sequence[FloatArray], tag: Tag) -> FloatArray:
        """The rows of the product that my agents want."""
        heard = self._swapped(messages, tag)
        absent = np.zeros(messages[0].size, messages[0].dtype)
        mixed: FloatArray = self._product(operator.matrix, [heard.get(agent, absent) for agent in operator.agents])
        return mixed[operator.wanted]

    def _exchange(self, words: Sequence[Exchange], purpose: str) -> Sequence[dict[int, FloatArray]]:
        self._needs_edges("Exchange")
        messages = [sealed(np.array(word.x)) for word in words]
        self._all_finite("Exchange", messages)
        sizes = self._everybodys([[message.size, message.itemsize] for message in messages], "sizes")
        heard = self._exchanged(dict(zip(self.here, messages, strict=True)), self._tag(purpose, "Exchange"))
        for agent, message in heard.items():
            if [message.size, message.itemsize] != sizes[agent].tolist():
                raise ProtocolError(f"Exchange: the message of {self.names[agent]} is not of the size it announced.")
        self.bill.exchange(purpose, [(int(size), int(itemsize)) for size, itemsize in sizes])
        return [{j: heard[j] for j in self.network.neighbours(agent)} for agent in self.here]

    def _ask(self, words: Sequence[Ask], purpose: str) -> Sequence[dict[int, FloatArray]]:
        kept = dict(self._published)
        tells = {agent: word.tell for agent, word in zip(self.here, words, strict=True) if word.tell is not None}
        for agent, message in tells.items():
            self._put_up(agent, message)
        public = self._asked_for(sorted({int(peer) for word in words for peer in word.peers}))
        answers = [{int(peer): public[peer] for peer in word.peers if peer in public} for word in words]
        # Of what is told, who gossips has the vector already: what is new are the edge's two weights.
        held = 2 if tells and self._gossip is not None else None
        asked = np.zeros((self.network.agents, 3))
        for answer in answers:
            for peer, message in answer.items():
                size = held or message.size
                asked[peer] += (1, size, 8 * message.itemsize * size)
        # Only when everybody has been answered may anybody go on and publish something newer.
        everything = self._sum_of_all(
            [asked.reshape(-1), *([np.zeros(asked.size)] * (len(words) - 1))], self._tag("engine", "asked")
        )
        for peer, counts in enumerate(everything.reshape(-1, 3)):
            if counts[0]:
                self.bill.send(purpose, "Ask", peer, *map(int, counts))
        for agent in tells.keys() & kept.keys():
            self._put_up(agent, kept[agent])
        return answers

    # -- travelling ---------------------------------------------------------------------------------------------------

    def _sum_of_all(self, messages: Sequence[FloatArray], tag: Tag) -> FloatArray:
        """The sum over all agents of all processes, in the order that `in_process` keeps."""
        if len(self._agents_of) == 1:
            return self._total(messages)
        shape = messages[0].shape
        total = self._served(messages, tag) if self.network.server else self._climbed(messages, tag)
        if self._told_by is not None:
            total = self._receive(self._told_by, tag, messages[0].size, messages[0].dtype).copy()
        for process in self._tells:
            self._send(process, total, tag)
        if self.transcript is not None:
            self.transcript.update(total.data)
        return total.reshape(shape)

    def _served(self, messages: Sequence[FloatArray], tag: Tag) -> FloatArray:
        """At the process of agent 0, everybody's messages added in the order of the agents; the others send theirs."""
        server = self.process_of[0]
        if self.process != server:
            self._send(server, _stacked(messages), tag)
            return messages[0]
        size, dtype = messages[0].size, messages[0].dtype
        heard = {agent: message.reshape(-1) for agent, message in zip(self.here, messages, strict=True)}
        total: FloatArray | None = None
        for agent, owner in enumerate(self.process_of):
            if agent not in heard:
                agents = self._agents_of[owner]
                stack = self._receive(owner, tag, len(agents) * size, dtype).reshape(len(agents), size)
                heard |= zip(agents, stack, strict=True)
            message = heard.pop(agent)
            if total is None:
                total = message.copy()
            else:
                total += message
        assert total is not None
        return total

    def _climbed(self, messages: Sequence[FloatArray], tag: Tag) -> FloatArray:
        """The sum of what is at and below my agents in the tree; at the root's process, of everything."""
        own = {agent: message.reshape(-1) for agent, message in zip(self.here, messages, strict=True)}
        size, dtype = messages[0].size, messages[0].dtype
        partial: dict[int, FloatArray] = {}
        for child, parent in self._upwards:
            child_here, parent_here = child in own, parent in own
            if not (child_here or parent_here):
                continue
            if child_here:
                below = partial.pop(child) if child in partial else own[child]
                if not parent_here:
                    self._send(self.process_of[parent], below, tag)
                    continue
            else:
                below = self._receive(self.process_of[child], tag, size, dtype)
            if parent in partial:
                partial[parent] += below
            else:
                partial[parent] = own[parent] + below
        return partial[self._root] if self._root in partial else messages[0].reshape(-1)

    def _swapped(self, messages: Sequence[FloatArray], tag: Tag) -> dict[int, FloatArray]:
        """The messages, all of one size, of my agents and of the agents elsewhere that have a neighbour here."""
        size, dtype = messages[0].size, messages[0].dtype
        heard = {agent: message.reshape(-1) for agent, message in zip(self.here, messages, strict=True)}
        for process, agents in self._outgoing.items():
            self._send(process, _stacked([heard[agent] for agent in agents]), tag)
        for process, agents in self._incoming.items():
            heard |= zip(
                agents, self._receive(process, tag, len(agents) * size, dtype).reshape(len(agents), size), strict=True
            )
        return heard

    def _exchanged(self, messages: dict[int, FloatArray], tag: Tag) -> dict[int, FloatArray]:
        """The messages of my agents, and those of the agents of other processes that have a neighbour here."""
        for process, agents in self._outgoing.items():
            for agent in agents:
                self._send(process, messages[agent], tag)
        heard = {agent: self._message(process, tag) for process, agents in self._incoming.items() for agent in agents}
        return messages | heard

    def _asked_for(self, peers: Sequence[int]) -> dict[int, FloatArray]:
        """What those peers last published, once everybody has."""
        self._everybodys([[0.0]] * len(self.here), "published")
        found: dict[int, FloatArray] = {}
        for peer in peers:
            owner = self.process_of[peer]
            message = self._published.get(peer) if owner == self.process else self.links.ask(owner, peer)
            if message is not None:
                found[peer] = message
        return found

    def _everybodys(self, rows: Sequence[Sequence[float]], about: str) -> FloatArray:
        """One row of numbers per agent, from all processes."""
        table = np.zeros((len(rows), self.network.agents, len(rows[0])))
        for mine, agent, row in zip(table, self.here, rows, strict=True):
            mine[agent] = row
        return self._sum_of_all(list(table), self._tag("engine", about))

    def _tag(self, purpose: str, word: str) -> Tag:
        self._step += 1
        return Tag(purpose, self._step, word)

    def _send(self, process: int, message: FloatArray, tag: Tag) -> None:
        self.links.send(process, message, tag)

    def _receive(self, process: int, tag: Tag, size: int | None = None, dtype: Any = None) -> FloatArray:
        message = self._message(process, tag).reshape(-1)
        if size is not None and (message.size != size or message.dtype != dtype):
            who = " and ".join(self.names[agent] for agent in self._agents_of[process])
            raise ProtocolError(
                f"{tag.word}: {self.names[self.here[0]]} expected {size} numbers of type {dtype}, and {who} sent "
                f"{message.size} of type {message.dtype} at the same step."
            )
        return message

    def _message(self, process: int, tag: Tag) -> FloatArray:
        return _of_numbers(self.links.receive(process, tag), tag)

    def _arrived(self, process: int, tag: Tag) -> FloatArray | None:
        message = self.links.poll(process, tag)
        return None if message is None else _of_numbers(message, tag).reshape(-1)

    # -- checks and products ------------------------------------------------------------------------------------------

    def _all_finite(self, word: str, messages: Sequence[FloatArray]) -> None:
        """Refuse to send what is not finite: only here is it known who said it."""
        for message in messages:
            self._finite(word, message, messages)

    def _operator(self, rule: str | Matrix, dtype: Any, size: int) -> Operator:
        key = (rule if isinstance(rule, str) else id(rule), dtype, size >= LONG)
        if key not in self._operators:
            matrix = self._matrix(rule, dtype, size)
            here, m = np.array(self.here), self.network.agents
            if isinstance(matrix, Even) or (isinstance(matrix, np.ndarray) and m <= WHOLE_PRODUCT):
                # A row of a short product is a view: cheaper, and nothing much is kept alive with it.
                short = size < LONG and here[-1] - here[0] == len(here) - 1
                operator = Operator(matrix, range(m), slice(here[0], here[-1] + 1) if short else here)
            elif isinstance(matrix, np.ndarray):
                operator = Operator(matrix[here][:, self._at_hand], self._at_hand, slice(None))
            else:
                operator = Operator(_chosen(matrix, here, self._at_hand), self._at_hand, slice(None))
            self._operators[key] = rule, operator
        return self._operators[key][1]


def partners(network: Network, process_of: Sequence[int], process: int) -> list[int]:
    """The other processes that a process exchanges messages with."""
    told_by, tells = _relay(network, process_of, process)
    outgoing, _ = _crossings(network, process_of, process)
    found = {*tells, *outgoing} | ({told_by} if told_by is not None else set())
    if not network.server:
        parents = network.tree().parents
        crossing = [(process_of[child], process_of[parent]) for child, parent in enumerate(parents) if parent >= 0]
        found |= {other for pair in crossing if process in pair for other in pair}
    return sorted(found - {process})


def _relay(network: Network, process_of: Sequence[int], process: int) -> tuple[int | None, list[int]]:
    """From which process a total comes to this one, and to which it goes on from here."""
    if network.server:
        server = process_of[0]
        return (None, sorted(set(process_of) - {server})) if process == server else (server, [])
    tree = network.tree()
    told_by: dict[int, int | None] = {}
    for agent in map(int, tree.order):
        parent = int(tree.parents[agent])
        # The first agent of a process in the order of the tree has its parent elsewhere, or is the root.
        told_by.setdefault(process_of[agent], process_of[parent] if parent >= 0 else None)
    return told_by[process], [other for other, source in told_by.items() if source == process]


def _crossings(
    network: Network, process_of: Sequence[int], process: int
) -> tuple[dict[int, list[int]], dict[int, list[int]]]:
    if network.server:
        return {}, {}
    outgoing: dict[int, set[int]] = {}
    incoming: dict[int, set[int]] = {}
    for agent, owner in enumerate(process_of):
        if owner == process:
            for other in network.neighbours(agent):
                if process_of[other] != process:
                    outgoing.setdefault(process_of[other], set()).add(agent)
                    incoming.setdefault(process_of[other], set()).add(other)
    return _sorted(outgoing), _sorted(incoming)


def _sorted(sets: dict[int, set[int]]) -> dict[int, list[int]]:
    return {process: sorted(sets[process]) for process in sorted(sets)}


def _chosen(matrix: Matrix, rows: npt.NDArray[np.intp], columns: Sequence[int]) -> Matrix:
    """Some rows of a sparse matrix for messages in that order; each row adds in the order in which it did."""
    part = matrix[rows]
    position = np.zeros(matrix.shape[1], part.indices.dtype)
    position[list(columns)] = np.arange(len(columns))
    return sp.csr_array((part.data, position[part.indices], part.indptr), shape=(len(rows), len(columns)))


def _of_numbers(message: FloatArray, tag: Tag) -> FloatArray:
    if message.dtype.kind != "f":
        raise ProtocolError(f"{tag.word}: unexpected payload of type {message.dtype}.")
    return message


def _stacked(messages: Sequence[FloatArray]) -> FloatArray:
    return messages[0] if len(messages) == 1 else np.concatenate([message.reshape(-1) for message in messages])
