"""Collectives among processes with links between them.

    `Sum`       with a server: each process sends its messages to the process of agent 0, which adds
                in the order of the agents; on a graph: messages go up the spanning tree, and each
                agent adds its children's sums, the last child first; the aggregate comes back
    `Mix`       messages go to the processes of the neighbours, which take their rows of the same
                matrix product
    `Exchange`  messages go to the processes of the neighbours
    `Ask`       the links answer, after all agents have published and before one of them publishes
                again
    gossip      see `distributed_gossip`; in real time, `real_time_gossip`

The header of every message contains the stop.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from coterie.errors import ProtocolError
from coterie.networks import Network
from coterie.numerics.arrays import FloatArray, Matrix
from coterie.transport.collectives import Collectives, of_bytes, unexpected_type
from coterie.transport.links import Links, Stop, Tag
from coterie.transport.sums import LARGEST, is_in_range

PIECE = 3 * 2**17
"""Bytes of the longest piece of a sum: a multiple of 24 and of 8 bytes."""


class PointToPoint(Collectives):
    """Collectives over links."""

    checked: ClassVar[frozenset[str]] = frozenset({"Sum", "Mix", "Exchange"})

    def __init__(
        self,
        network: Network,
        links: Links,
        process_of: Sequence[int],
        process: int,
        names: Sequence[str] | None = None,
    ):
        self.links = links
        super().__init__(network, process_of, process, names)

    @property
    def stop(self) -> Stop:
        """The stop, as far as this process knows it. The links send it with every message."""
        return self.links.stop

    @stop.setter
    def stop(self, stop: Stop) -> None:
        self.links.stop = stop

    def publish(self, agent: int, message: FloatArray) -> None:
        super().publish(agent, message)
        self.links.publish(agent, message)

    def total(self, messages: Sequence[FloatArray], tag: Tag) -> FloatArray:
        if not self.layout.others:
            return self._in_order(messages)
        encoded = self._encoded(messages, tag)
        if self.sums.root is not None:
            encoded = [self._by_the_helper(self.sums.root, encoded[0], tag)]
        added = self._served if self.network.server else self._climbed
        total = _joined(
            [added([message[piece] for message in encoded], tag) for piece in _pieces(encoded[0])]
        )
        first = messages[0].reshape(-1)
        way = self.layout.receives_from, self.layout.sends_to
        if self.sums.root is not None:
            # The other processes check the whole numbers of the aggregate. The root cannot check
            # them.
            numbers = self.sums.decoded(self._handed_down(total, tag, *way), first.dtype)
        elif self.layout.receives_from is None:
            numbers = self._handed_down(self.sums.decoded(total, first.dtype), tag, *way)
        else:
            numbers = self._handed_down(first, tag, *way)
        self._note(numbers)
        return numbers.reshape(messages[0].shape)

    def _note(self, numbers: FloatArray) -> None:
        """Take down an aggregate that all processes receive, and compare it with them."""
        if self.transcript is not None:
            self.transcript.update(numbers.data)
        if self.compare is not None:
            self.compare()

    def total_of(self, agent: int, messages: Sequence[FloatArray], tag: Tag) -> FloatArray:
        """Pass the message of that agent on to all: down the spanning tree with its root at that
        agent, or through the server.
        """
        if not self.layout.others:
            return self.sums.alone(messages[self.local.index(agent)])
        numbers = messages[0].reshape(-1)
        if agent in self.local:
            numbers = self.sums.alone(messages[self.local.index(agent)].reshape(-1))
        received = self._handed_down(numbers, tag, *self.layout.relay(agent))
        self._note(received)
        return received.reshape(messages[0].shape)

    def _encoded(self, messages: Sequence[FloatArray], tag: Tag) -> list[npt.NDArray[Any]]:
        """Return the messages of this process's agents in the form in which they are sent."""
        heard = b"" if self.transcript is None else self.transcript.digest()
        return [self.sums.encoded(message, tag, heard) for message in messages]

    def total_at(self, agent: int, messages: Sequence[FloatArray], tag: Tag) -> FloatArray | None:
        """Return the sum at one agent: up the spanning tree with its root at that agent, or through
        the server.
        """
        if not self.layout.others:
            return super().total_at(agent, messages, tag)
        holder = self.process_of[agent]
        encoded = self._encoded(messages, tag)
        if self.sums.root is not None and self.sums.root != holder:
            encoded = [self._by_the_helper(self.sums.root, encoded[0], tag)]
        kept: list[npt.NDArray[Any]] = []
        if self.sums.exact and self.network.server and self.process == holder:
            # Exact sums do not depend on the order. The receiver adds its own numbers to the
            # server's sum.
            kept = encoded
            encoded = [np.zeros_like(message) for message in kept]
        total = self._collected_in_pieces(encoded, tag, agent)
        if self.process != holder:
            return None
        for message in kept:
            self.sums.add(total, message)
        return self.sums.decoded(total, messages[0].dtype).reshape(messages[0].shape)

    def _collected_in_pieces(
        self, messages: Sequence[npt.NDArray[Any]], tag: Tag, agent: int
    ) -> npt.NDArray[Any]:
        """Return the sum of all messages. `_collected` computes it for each piece."""
        pieces = []
        for piece in _pieces(messages[0]):
            parts = [message[piece] for message in messages]
            pieces.append(self._collected(parts, tag, agent))
        return _joined(pieces)

    def _collected(
        self, messages: Sequence[npt.NDArray[Any]], tag: Tag, agent: int
    ) -> npt.NDArray[Any]:
        """Return the sum of all messages at the process of that agent. In other processes the
        result has no meaning.
        """
        if not self.network.server:
            return self._climbed(messages, tag, self._way_to(agent), agent)
        total = self._served(messages, tag)
        holder = self.process_of[agent]
        server = self.process_of[0]
        if holder != server and self.process == server:
            self.send(holder, total, tag)
        if holder != server and self.process == holder:
            return np.array(self._expected(server, tag, total.size, total.dtype))
        return total

    def _handed_down(
        self,
        total: npt.NDArray[Any],
        tag: Tag,
        source: int | None,
        targets: Sequence[int],
    ) -> npt.NDArray[Any]:
        """Pass the aggregate down from the root. Only at the root, `total` is the aggregate. In
        other processes it only has the aggregate's size and type.
        """
        parts = []
        for piece in _pieces(total):
            numbers = total[piece]
            if source is not None:
                numbers = self._expected(source, tag, numbers.size, numbers.dtype)
            for process in targets:
                self.send(process, numbers, tag)
            parts.append(numbers)
        if len(parts) > 1:
            return _joined(parts)
        return parts[0].copy()

    def _by_the_helper(self, root: int, mine: npt.NDArray[Any], tag: Tag) -> npt.NDArray[Any]:
        """Return the numbers that this process adds to an aggregate. The root adds 0, because the
        helper adds the root's message.
        """
        if self.process == root:
            for piece in _pieces(mine):
                self.send(self.sums.helper, mine[piece], tag)
            return np.zeros_like(mine)
        if self.process == self.sums.helper:
            received = [
                self._expected(root, tag, mine[piece].size, mine.dtype) for piece in _pieces(mine)
            ]
            self.sums.absorb(mine, _joined(received))
        return mine

    def mixed(self, rule: str | Matrix, messages: Sequence[FloatArray], tag: Tag) -> FloatArray:
        operator = self._mixing.operator(rule, messages[0].dtype, messages[0].size)
        received = self._swapped(messages, tag)
        absent = np.zeros(messages[0].size, messages[0].dtype)
        rows = [received.get(agent, absent) for agent in operator.agents]
        mixed: FloatArray = self._mixing.product(operator.matrix, rows)
        return mixed[operator.wanted]

    def _served(self, messages: Sequence[FloatArray], tag: Tag) -> FloatArray:
        """Return the sum of all messages in the order of the agents. All processes send their
        messages to the process of agent 0, and only there the result is the sum.
        """
        server = self.process_of[0]
        if self.process != server:
            self.send(server, _stacked(messages), tag)
            return messages[0]
        size = messages[0].size
        dtype = messages[0].dtype
        received = dict(zip(self.local, messages, strict=True))
        total: FloatArray | None = None
        for agent, owner in enumerate(self.process_of):
            if agent not in received:
                agents = self.layout.agents_of[owner]
                stack = self._expected(owner, tag, len(agents) * size, dtype).reshape(
                    len(agents), size
                )
                received |= zip(agents, stack, strict=True)
            message = received.pop(agent)
            if total is None:
                total = message.copy()
            else:
                self.sums.add(total, message)
        assert total is not None
        return total

    def _climbed(
        self,
        messages: Sequence[FloatArray],
        tag: Tag,
        upwards: Sequence[tuple[int, int]] | None = None,
        root: int | None = None,
    ) -> FloatArray:
        """Return the sum of the messages of this process's agents and the agents below them in the
        tree. At the process of the root, return the sum of all messages.
        """
        own = dict(zip(self.local, messages, strict=True))
        size = messages[0].size
        dtype = messages[0].dtype
        partial: dict[int, FloatArray] = {}
        if upwards is None:
            upwards = self._upwards
        if root is None:
            root = self._root
        for child, parent in upwards:
            child_is_local = child in own
            parent_is_local = parent in own
            if not (child_is_local or parent_is_local):
                continue
            if child_is_local:
                below = partial.pop(child) if child in partial else own[child]
                if not parent_is_local:
                    self.send(self.process_of[parent], below, tag)
                    continue
            else:
                below = self._expected(self.process_of[child], tag, size, dtype)
            if parent not in partial:
                partial[parent] = own[parent].copy()
            self.sums.add(partial[parent], below)
        if root in partial:
            return partial[root]
        return messages[0]

    def _refuse_out_of_range(self, message: npt.NDArray[Any], process: int, tag: Tag) -> None:
        """Refuse numbers that are not finite, or so large that sums of them are not. Only the
        process that receives a message can name its sender.
        """
        if message.dtype.kind != "f" or is_in_range(message):
            return
        allowed = np.abs(message.astype(float)) <= LARGEST
        wrong = message.size - int(np.count_nonzero(allowed))
        raise ProtocolError(
            f"{tag.collective}: {self.called(process)} sent {wrong} of {message.size} numbers that "
            "are not finite or too large."
        )

    def _swapped(self, messages: Sequence[FloatArray], tag: Tag) -> dict[int, FloatArray]:
        """Return the messages, all of one size, of this process's agents and of their neighbours in
        other processes.
        """
        size = messages[0].size
        dtype = messages[0].dtype
        received = {
            agent: message.reshape(-1) for agent, message in zip(self.local, messages, strict=True)
        }
        for process, agents in self.layout.outgoing.items():
            self.send(process, _stacked([received[agent] for agent in agents]), tag)
        for process, agents in self.layout.incoming.items():
            stack = self._expected(process, tag, len(agents) * size, dtype).reshape(
                len(agents), size
            )
            received |= zip(agents, stack, strict=True)
        return received

    def exchanged(self, messages: dict[int, FloatArray], tag: Tag) -> dict[int, FloatArray]:
        for process, agents in self.layout.outgoing.items():
            for agent in agents:
                self.send(process, messages[agent], tag)
        received = dict(messages)
        for process, agents in self.layout.incoming.items():
            for agent in agents:
                received[agent] = self._message(process, tag)
                self._refuse_out_of_range(received[agent], process, tag)
        return received

    def fetched(self, peers: Sequence[int]) -> dict[int, FloatArray]:
        # No agent asks before all agents have published.
        self.total([np.zeros(1)] * len(self.local), self.tag("engine", "published"))
        found: dict[int, FloatArray] = {}
        for peer in peers:
            owner = self.process_of[peer]
            if owner == self.process:
                message = self.published.get(peer)
            else:
                message = self.links.ask(owner, peer)
            if message is not None:
                found[peer] = message
        return found

    # -- single messages ---------------------------------------------------------------------------

    def send(self, process: int, message: npt.NDArray[Any], tag: Tag) -> None:
        self.links.send(process, message, tag)

    def receive(self, process: int, tag: Tag) -> FloatArray:
        message = _of_numbers(self.links.receive(process, tag), tag).reshape(-1)
        self._refuse_out_of_range(message, process, tag)
        return message

    def receive_bytes(self, process: int, tag: Tag) -> npt.NDArray[np.uint8]:
        """Return the next message of that process, which is packed bits and not numbers."""
        return of_bytes(self.links.receive(process, tag).reshape(-1), tag)

    def poll(self, process: int, tag: Tag) -> FloatArray | None:
        """Return the next message of that process if it has arrived, otherwise None. It is like
        `receive`, but does not wait.
        """
        message = self.links.poll(process, tag)
        if message is None:
            return None
        message = _of_numbers(message, tag).reshape(-1)
        self._refuse_out_of_range(message, process, tag)
        return message

    def _message(self, process: int, tag: Tag) -> FloatArray:
        return _of_numbers(self.links.receive(process, tag), tag)

    def _expected(self, process: int, tag: Tag, size: int, dtype: Any) -> FloatArray:
        message = self.links.receive(process, tag).reshape(-1)
        if message.size != size or message.dtype != dtype:
            raise ProtocolError(
                f"{tag.collective}: {self.names[self.local[0]]} expected {size} numbers of type "
                f"{dtype}, and "
                f"{self.called(process)} sent {message.size} of type {message.dtype} at the same "
                "step."
            )
        self._refuse_out_of_range(message, process, tag)
        return message


def _of_numbers(message: FloatArray, tag: Tag) -> FloatArray:
    if message.dtype.kind != "f":
        raise unexpected_type(message, tag)
    return message


def _pieces(message: npt.NDArray[Any]) -> list[slice]:
    """Return the pieces of a long message. A process adds each piece while the next one is on its
    way.
    """
    length = max(1, PIECE // message.itemsize)
    return [slice(start, start + length) for start in range(0, message.size, length)] or [
        slice(0, 0)
    ]


def _joined(pieces: list[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    if len(pieces) == 1:
        return pieces[0]
    return np.concatenate(pieces)


def _stacked(messages: Sequence[FloatArray]) -> FloatArray:
    if len(messages) == 1:
        return messages[0]
    return np.concatenate([message.reshape(-1) for message in messages])
