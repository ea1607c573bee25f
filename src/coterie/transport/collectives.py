"""Collectives: how the processes of a run add, mix and exchange messages. Every `Driver` uses one.

| kind             | where the agents run                                      |
|------------------|-----------------------------------------------------------|
| `OneProcess`     | all in this process                                       |
| `PointToPoint`   | in processes with links between them                      |
| `MpiCollectives` | in the ranks of an MPI run                                |

Every process adds floating-point numbers in the same order, or integers in any order (`sums`).
Iterates therefore do not depend on the process in which an agent runs. Every message contains the
*stop*. The stop is the round after which the process of agent 0 ends the run, and the reason (time
is up, Ctrl-C). All processes therefore stop after the same round without an additional message.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NoReturn, cast

import numpy as np
import numpy.typing as npt

from coterie.errors import NumericalError, ProtocolError
from coterie.networks import Network
from coterie.numerics.arrays import FloatArray, Matrix, sealed
from coterie.numerics.kernels.message_sums import add_in_order, add_upwards
from coterie.transport.layout import Layout
from coterie.transport.links import Stop, Tag
from coterie.transport.mixing import Mixing
from coterie.transport.sums import ExactSums, PlainSums


class Collectives(ABC):
    """The collectives of one process. `messages` has one array for each agent of this process."""

    checked: ClassVar[frozenset[str]]
    """The collectives whose messages the sender checks first, because receivers do not know the
    sender.
    """
    defers: ClassVar[bool] = False
    """Whether an error passed to `complain` waits for the next `Sum`, which sends it to all
    processes.
    """
    failures: tuple[type[Exception], ...] = ()
    """Errors of the transport that `explain` translates."""
    stop: Stop
    """The stop, as far as this process knows it."""

    def __init__(
        self,
        network: Network,
        process_of: Sequence[int],
        process: int,
        names: Sequence[str] | None = None,
    ):
        self.network = network
        self.layout = Layout(network, process_of, process)
        self.process = process
        self.process_of = self.layout.process_of
        self.local = self.layout.local
        self.names = list(names) if names else [f"agent {j}" for j in range(network.agents)]
        self.stop = Stop()
        self.transcript: hashlib._Hash | None = None
        """If set, a digest of all aggregates. It must be the same in every process."""
        self.compare: Callable[[], None] | None = None
        """If set, called after each aggregate, before an agent computes with it."""
        self.sums = PlainSums()
        """The method that adds the messages of a `Sum`."""
        self.published: dict[int, FloatArray] = {}
        self._mixing = Mixing(network, self.local, self.layout.at_hand)
        self._step = 0
        self._ways: dict[int, list[tuple[int, int]]] = {}
        if not network.server:
            self._root = int(network.tree().order[0])
            self._upwards = self._way_to(self._root)

    def _way_to(self, root: int) -> list[tuple[int, int]]:
        """Return the pairs of child and parent in the spanning tree with that root, the last child
        first.
        """
        if root not in self._ways:
            tree = self.network.tree(root)
            self._ways[root] = [
                (int(j), int(tree.parents[j])) for j in reversed(tree.order) if tree.parents[j] >= 0
            ]
        return self._ways[root]

    def tag(self, purpose: str, collective: str) -> Tag:
        """Return a tag for the next messages."""
        self._step += 1
        return Tag(purpose, self._step, collective)

    @abstractmethod
    def total(self, messages: Sequence[FloatArray], tag: Tag) -> FloatArray:
        """Return the sum over all agents of all processes, in a new array."""

    def total_at(self, agent: int, messages: Sequence[FloatArray], tag: Tag) -> FloatArray | None:
        """Return the sum over all agents in the process of `agent`, and None in all other
        processes. In one trusted cluster every process may compute it. On a graph, agents add along
        the spanning tree with its root at `agent`, in all transports.
        """
        if self.network.server:
            total = self.total(messages, tag)
            return total if agent in self.local else None
        usual = self._root, self._upwards
        self._root, self._upwards = agent, self._way_to(agent)
        try:
            total = self.total(messages, tag)
        finally:
            self._root, self._upwards = usual
        return total if agent in self.local else None

    def total_of(self, agent: int, messages: Sequence[FloatArray], tag: Tag) -> FloatArray:
        """Return the message of `agent`, as a sum with zeros, in a new array. The other messages
        have its size and type.
        """
        given = [
            message if other == agent else np.zeros_like(message)
            for other, message in zip(self.local, messages, strict=True)
        ]
        return self.total(given, tag)

    @abstractmethod
    def mixed(self, rule: str | Matrix, messages: Sequence[FloatArray], tag: Tag) -> FloatArray:
        """Return the rows of this process's agents in the product of the mixing matrix and all
        messages.
        """

    @abstractmethod
    def exchanged(self, messages: dict[int, FloatArray], tag: Tag) -> dict[int, FloatArray]:
        """Return the messages of this process's agents, and of their neighbours in other
        processes.
        """

    @abstractmethod
    def fetched(self, peers: Sequence[int]) -> dict[int, FloatArray]:
        """Return the latest publications of these peers, after all agents have published."""

    def send(self, process: int, message: npt.NDArray[Any], tag: Tag) -> None:
        """Send a message to one other process, for agents that use gossip."""
        raise NotImplementedError

    def receive(self, process: int, tag: Tag) -> FloatArray:
        """Wait for the next message of that process. The message is flat and read-only."""
        raise NotImplementedError

    def receive_bytes(self, process: int, tag: Tag) -> npt.NDArray[np.uint8]:
        """Wait for the next message of that process, which is packed bits and not numbers."""
        raise NotImplementedError

    def publish(self, agent: int, message: FloatArray) -> None:
        """Store a message so that other agents can `Ask` for it."""
        self.published[agent] = sealed(np.array(message))

    def of_all(self, rows: Sequence[Sequence[float]], about: str) -> FloatArray:
        """Collect one row of numbers from every agent of all processes. The bill does not count
        it.
        """
        if not self.layout.others:
            return np.array(rows, float)
        table = np.zeros((len(rows), self.network.agents, len(rows[0])))
        for mine, agent, row in zip(table, self.local, rows, strict=True):
            mine[agent] = row
        return self.total(list(table), self.tag("engine", about))

    def complain(self, error: NumericalError) -> None:
        """Stop, because a message of an agent of this process is not finite."""
        raise error

    def blame(self, own: NumericalError, mine: bool) -> NumericalError:
        """Return the error for a sum that is not finite. `own` is the error as this process sees
        it. `mine` is true if an agent of this process sent a number that is not finite.
        """
        return own

    def explain(self, error: Exception) -> NoReturn:
        """Raise an error that explains one of the `failures`."""
        raise error

    def called(self, process: int) -> str:
        """Return the names of the agents of that process."""
        return " and ".join(self.names[agent] for agent in self.layout.agents_of[process])

    def _adopt(self, stop: Stop) -> None:
        """Adopt the stop of another process, unless this process has one already."""
        if not self.stop.reason:
            self.stop = stop

    # -- sums in the order that all transports keep ------------------------------------------------

    def _in_order(self, messages: Sequence[FloatArray] | FloatArray) -> FloatArray:
        """Return the sum of all messages, in a new array."""
        if isinstance(self.sums, ExactSums):
            return self.sums.at_once(list(messages))
        if isinstance(messages, np.ndarray):
            return self._sum_of_rows(messages)
        if not self.network.server:
            return self._tree_sum(messages)
        # The server adds in the order of the agents.
        total = messages[0].copy() if len(messages) == 1 else messages[0] + messages[1]
        for message in messages[2:]:
            total += message
        return total

    def _sum_of_rows(self, messages: FloatArray) -> FloatArray:
        """Return the sum of the rows, added in the same order as separate messages. It is faster
        for many agents.
        """
        total: FloatArray
        if self.network.server:
            total = messages[0].copy()
            cast(Any, add_in_order)(messages[1:], total)
        else:
            partial = messages.copy()
            cast(Any, add_upwards)(partial, *np.array(self._upwards, np.intp).reshape(-1, 2).T)
            total = partial[self._root].copy()
        return total

    def _tree_sum(self, messages: Sequence[FloatArray]) -> FloatArray:
        # Each agent adds the sums of its children, the last child first. Deeper agents have added
        # theirs before.
        partial: dict[int, FloatArray] = {}
        for child, parent in self._upwards:
            below = partial.pop(child, messages[child])
            if parent in partial:
                partial[parent] += below
            else:
                partial[parent] = np.add(
                    messages[parent], below, out=None if below is messages[child] else below
                )
        return partial.get(self._root, np.array(messages[self._root]))


class OneProcess(Collectives):
    """All agents in this process: one matrix product for every `Mix`, and no message between
    processes.
    """

    checked: ClassVar[frozenset[str]] = frozenset({"Exchange"})

    def __init__(self, network: Network, names: Sequence[str] | None = None):
        super().__init__(network, [0] * network.agents, 0, names)

    def total(self, messages: Sequence[FloatArray], tag: Tag) -> FloatArray:
        return self._in_order(messages)

    def total_of(self, agent: int, messages: Sequence[FloatArray], tag: Tag) -> FloatArray:
        return self.sums.alone(messages[agent])

    def mixed(self, rule: str | Matrix, messages: Sequence[FloatArray], tag: Tag) -> FloatArray:
        matrix = self._mixing.operator(rule, messages[0].dtype, messages[0].size).matrix
        return self._mixing.product(matrix, [message.reshape(-1) for message in messages])

    def exchanged(self, messages: dict[int, FloatArray], tag: Tag) -> dict[int, FloatArray]:
        return messages

    def fetched(self, peers: Sequence[int]) -> dict[int, FloatArray]:
        return {peer: self.published[peer] for peer in peers if peer in self.published}


def of_bytes(message: npt.NDArray[Any], tag: Tag) -> npt.NDArray[np.uint8]:
    """Return a message that must be packed bits."""
    if message.dtype != np.uint8:
        raise unexpected_type(message, tag)
    return message


def unexpected_type(message: npt.NDArray[Any], tag: Tag) -> ProtocolError:
    """Return the error about a message of another type than the collective has."""
    return ProtocolError(f"{tag.collective}: unexpected payload of type {message.dtype}.")
