"""Collectives: how the processes of a run add, mix and exchange messages. A `Driver` needs one of
them.

| kind             | where agents live                                         |
|------------------|-----------------------------------------------------------|
| `OneProcess`     | all in this process                                       |
| `PointToPoint`   | in processes with links between them                      |
| `MpiCollectives` | in the ranks of an MPI run                                |

Every process adds in the same order, or whole numbers in any order (`sums`). Iterates therefore do
not depend on where agents live. Every message contains the *stop*: the round after which the
process of agent 0 wants to end, and the reason (time is up, Ctrl-C). Thus all processes stop after
the same round without an additional message.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, NoReturn, cast

import numpy as np

from coterie.errors import NumericalError
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
    """The words whose messages are checked before they are sent, because receivers do not know the
    sender.
    """
    defers: ClassVar[bool] = False
    """Whether a `complain` waits for the next `Sum`, which tells it to all processes."""
    failures: tuple[type[Exception], ...] = ()
    """Errors of the transport that `explain` translates."""
    stop: Stop
    """When to stop, as far as this process knows."""

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
        self.here = self.layout.here
        self.names = list(names) if names else [f"agent {j}" for j in range(network.agents)]
        self.stop = Stop()
        self.transcript: hashlib._Hash | None = None
        """If set, a digest of all totals, which must be the same in every process."""
        self.sums = PlainSums()
        """How the messages of a `Sum` are added."""
        self.published: dict[int, FloatArray] = {}
        self._mixing = Mixing(network, self.here, self.layout.at_hand)
        self._step = 0
        if not network.server:
            tree = network.tree()
            self._upwards = [
                (int(j), int(tree.parents[j])) for j in reversed(tree.order) if tree.parents[j] >= 0
            ]
            self._root = int(tree.order[0])

    def tag(self, purpose: str, collective: str) -> Tag:
        """A tag for the next messages."""
        self._step += 1
        return Tag(purpose, self._step, collective)

    @abstractmethod
    def total(self, messages: Sequence[FloatArray], tag: Tag) -> FloatArray:
        """The sum over all agents of all processes, in a new array."""

    def total_at(self, agent: int, messages: Sequence[FloatArray], tag: Tag) -> FloatArray | None:
        """The same, for one agent only; None in the processes of others. In one trusted cluster all
        may compute it.
        """
        total = self.total(messages, tag)
        return total if agent in self.here else None

    @abstractmethod
    def mixed(self, rule: str | Matrix, messages: Sequence[FloatArray], tag: Tag) -> FloatArray:
        """The product of the mixing matrix and all messages: the rows of the agents here."""

    @abstractmethod
    def exchanged(self, messages: dict[int, FloatArray], tag: Tag) -> dict[int, FloatArray]:
        """The messages of the agents here, and of the agents elsewhere that have a neighbour
        here.
        """

    @abstractmethod
    def fetched(self, peers: Sequence[int]) -> dict[int, FloatArray]:
        """The last publications of these peers, after all agents have published."""

    def send(self, process: int, message: FloatArray, tag: Tag) -> None:
        """Send a message to one other process, for agents that gossip."""
        raise NotImplementedError

    def receive(self, process: int, tag: Tag) -> FloatArray:
        """Wait for the next message of that process; it is flat and read-only."""
        raise NotImplementedError

    def publish(self, agent: int, message: FloatArray) -> None:
        """Put a message where others can `Ask` for it."""
        self.published[agent] = sealed(np.array(message))

    def of_all(self, rows: Sequence[Sequence[float]], about: str) -> FloatArray:
        """Collect one row of numbers from every agent of all processes; not billed."""
        if not self.layout.others:
            return np.array(rows, float)
        table = np.zeros((len(rows), self.network.agents, len(rows[0])))
        for mine, agent, row in zip(table, self.here, rows, strict=True):
            mine[agent] = row
        return self.total(list(table), self.tag("engine", about))

    def complain(self, error: NumericalError) -> None:
        """Stop, because a message of an agent here is not finite."""
        raise error

    def blame(self, own: NumericalError, mine: bool) -> NumericalError:
        """The error for a total that is not finite; `own` is the error as this process sees it,
        `mine` if it is from here.
        """
        return own

    def explain(self, error: Exception) -> NoReturn:
        """Raise an error that explains one of the `failures`."""
        raise error

    def called(self, process: int) -> str:
        """The names of the agents of that process."""
        return " and ".join(self.names[agent] for agent in self.layout.agents_of[process])

    def _adopt(self, stop: Stop) -> None:
        """Take over the stop of another process, unless this process has one already."""
        if not self.stop.reason:
            self.stop = stop

    # -- sums in the order that all transports keep ------------------------------------------------

    def _in_order(self, messages: Sequence[FloatArray] | FloatArray) -> FloatArray:
        """The sum of all messages, in a new array."""
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
        """The same additions in the same order, for many agents at once."""
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
        # Each agent adds its children's sums, the last child first; deeper agents have done so
        # before.
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
    """All agents in this process: one matrix product for every `Mix`, and no message is sent."""

    checked: ClassVar[frozenset[str]] = frozenset({"Exchange"})

    def __init__(self, network: Network, names: Sequence[str] | None = None):
        super().__init__(network, [0] * network.agents, 0, names)

    def total(self, messages: Sequence[FloatArray], tag: Tag) -> FloatArray:
        return self._in_order(messages)

    def mixed(self, rule: str | Matrix, messages: Sequence[FloatArray], tag: Tag) -> FloatArray:
        matrix = self._mixing.operator(rule, messages[0].dtype, messages[0].size).matrix
        return self._mixing.product(matrix, [message.reshape(-1) for message in messages])

    def exchanged(self, messages: dict[int, FloatArray], tag: Tag) -> dict[int, FloatArray]:
        return messages

    def fetched(self, peers: Sequence[int]) -> dict[int, FloatArray]:
        return {peer: self.published[peer] for peer in peers if peer in self.published}
