"""Buffers of MPI collectives, kept from one collective to the next. A round then only starts the
collective and waits for it.

A row has an agent's numbers. A header follows, of whole numbers of 8 bytes:

    Sum    the round to stop at, the reason to stop, whether there is a complaint, a code of the
           collective
    Mix    the round to stop at, the reason to stop

For a `Sum` the header is at the end of the row. For a `Mix` all headers are behind the table,
because the table is a factor of the matrix product.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from coterie.numerics.arrays import FloatArray
from coterie.transport.layout import Layout

K = TypeVar("K")
IntArray: TypeAlias = npt.NDArray[np.int64]

SMALL_BYTES = 2**17
"""Largest total size, in bytes, for which every rank receives all messages: one collective instead
of two.
"""
SUM_HEADER = 4
STOP_BYTES = 16
MOST = 32
"""Number of message sizes whose buffers are kept."""


class SumBuffer(NamedTuple):
    """Kept for every `Sum` of one size: buffers, the views of them that a round needs, and the
    collective.
    """

    size: int
    table: FloatArray
    """The messages of all agents, or one slice of them, one per row; zeros may follow."""
    messages: Sequence[FloatArray]
    """The rows of the table without zeros, by agent."""
    own: Sequence[FloatArray]
    """Views for the messages of this process's agents."""
    headers: IntArray
    """View of the headers of this process's agents."""
    received: IntArray
    """The headers of all agents, rank by rank."""
    swap: Callable[[], object]
    held: Sequence[Any]
    """MPI objects to free at the end."""
    slices: tuple[FloatArray, FloatArray, Callable[[], object]] | None = None
    """For sums of slices: the buffers of this rank's slice and of all slices, and the second
    collective.
    """


class NeighbourBuffer(NamedTuple):
    """Kept for every `Mix` of one size."""

    own: Sequence[FloatArray]
    """Views for the messages of this process's agents."""
    stops: IntArray
    """The headers of the messages in the table."""
    quiet: bytes
    """The bytes of these headers while no process wants to stop."""
    stack: FloatArray
    """The factor of the product: the messages that this process needs. For the whole product, the
    messages of all agents (0 if not received).
    """
    copies: Sequence[tuple[FloatArray, FloatArray]]
    """For the whole product: the rows for received messages, each with the buffer in which its
    message arrives.
    """
    swap: Callable[[], object]
    held: Sequence[Any]


Buffer = TypeVar("Buffer", SumBuffer, NeighbourBuffer)


class MpiBuffers:
    """The buffers of one rank. `near` is the communicator of the graph. `persistent` selects
    collectives that are prepared once.
    """

    def __init__(self, mpi: Any, comm: Any, near: Any, layout: Layout, persistent: bool):
        self._mpi = mpi
        self._comm = comm
        self._near = near
        self._layout = layout
        self._persistent = persistent
        self._agents = layout.network.agents
        self._counts = [len(layout.agents_of[k]) for k in range(comm.size)]
        self.by_rank = [agent for rank in range(comm.size) for agent in layout.agents_of[rank]]
        """The agents in the order in which their rows arrive."""
        self.row_of = np.argsort(self.by_rank)
        self._sums: dict[tuple[int, str], SumBuffer] = {}
        self._neighbours: dict[tuple[int, str, bool], NeighbourBuffer] = {}

    def for_sum(self, size: int, dtype: Any) -> SumBuffer:
        """Return the buffer for a `Sum` of messages of `size` numbers."""
        key = size, dtype.char
        small = self._agents * size * dtype.itemsize <= SMALL_BYTES
        make = self._gathering if small else self._slicing
        return self._sums.get(key) or _keep(self._sums, key, make(size, dtype))

    def for_mix(self, size: int, dtype: Any, whole: bool) -> NeighbourBuffer:
        """Return the buffer for a `Mix` of messages of `size` numbers. `whole` is true if this
        process computes the whole product.
        """
        key = size, dtype.char, whole
        return self._neighbours.get(key) or _keep(
            self._neighbours, key, self._near_by(size, dtype, whole)
        )

    def free(self) -> None:
        """Free all MPI objects."""
        for buffer in (*self._sums.values(), *self._neighbours.values()):
            _discard(buffer)

    def _gathering(self, size: int, dtype: Any) -> SumBuffer:
        numbers, width = _widths(size, dtype)
        table = np.zeros((self._agents, width), dtype)
        wire = np.zeros((len(self._layout.local), width), dtype)
        swap, held = self._prepared(
            self._comm, "Allgatherv", wire, [table, [n * width for n in self._counts]]
        )
        headers, received = (rows[:, numbers:].view(np.int64) for rows in (wire, table))
        messages = [table[row, :size] for row in self.row_of]
        own = list(wire[:, :size])
        return SumBuffer(size, table[:, :numbers], messages, own, headers, received, swap, held)

    def _slicing(self, size: int, dtype: Any) -> SumBuffer:
        ranks = self._comm.size
        local = len(self._layout.local)
        length = -(-size // self._comm.size)
        numbers, width = _widths(length, dtype)
        table = np.zeros((self._agents, width), dtype)
        wire = np.zeros((ranks, local, width), dtype)
        counts = [local * width] * ranks, [n * width for n in self._counts]
        swap, held = self._prepared(self._comm, "Alltoallv", [wire, counts[0]], [table, counts[1]])
        mine = np.zeros(length, dtype)
        of_all = np.zeros(ranks * length, dtype)
        swap_again, more = self._prepared(self._comm, "Allgather", mine, of_all)
        headers, received = (
            rows.reshape(-1, width)[:, numbers:].view(np.int64) for rows in (wire, table)
        )
        messages = [table[row, :length] for row in self.row_of]
        own = [wire[:, row, :length] for row in range(local)]
        slices = mine, of_all, swap_again
        return SumBuffer(
            length, table[:, :numbers], messages, own, headers, received, swap, held + more, slices
        )

    def _near_by(self, size: int, dtype: Any, whole: bool) -> NeighbourBuffer:
        """Return the buffer of a `Mix`. Messages leave from rows of a table, and those of
        neighbours arrive in other rows. The headers follow the table.
        """
        from mpi4py.util.dtlib import from_numpy_dtype

        layout = self._layout
        rows = {agent: row for row, agent in enumerate(layout.at_hand)}
        width = size * dtype.itemsize
        number = from_numpy_dtype(dtype)
        behind = -(-len(rows) * width // STOP_BYTES) * STOP_BYTES
        buffer = np.zeros(behind + len(rows) * STOP_BYTES, np.uint8)
        table = buffer[: len(rows) * width].view(dtype).reshape(len(rows), size)
        stops = buffer[behind:].view(np.int64).reshape(len(rows), 2)

        def selected(agents: Sequence[int]) -> Any:
            starts = [
                start for a in agents for start in (rows[a] * width, behind + rows[a] * STOP_BYTES)
            ]
            kinds = [number, self._mpi.INT64_T] * len(agents)
            lengths = [size, 2] * len(agents)
            return self._mpi.Datatype.Create_struct(lengths, starts, kinds).Commit()

        out, into = (
            [selected(a) for a in there.values()] for there in (layout.outgoing, layout.incoming)
        )
        once = [1] * len(out)
        from_start = [0] * len(out)
        there = [buffer, once, from_start, out]
        back = [buffer, once, from_start, into]
        swap, held = self._prepared(self._near, "Neighbor_alltoallw", there, back)
        stack = np.zeros((self._agents, size), dtype) if whole else table
        copies = [(stack[agent], table[row]) for agent, row in rows.items()] if whole else []
        own = [table[rows[agent]] for agent in layout.local]
        return NeighbourBuffer(
            own, stops, stops.tobytes(), stack, copies, swap, [*held, *out, *into]
        )

    def _prepared(
        self, comm: Any, collective: str, *buffers: Any
    ) -> tuple[Callable[[], object], list[Any]]:
        """Return a collective on buffers that stay the same, and the objects to free after it.

        The collective is prepared once, if MPI supports persistent collectives. Where ranks may
        die, a collective that can be interrupted takes its place.
        """
        if self._persistent:
            try:
                request = getattr(comm, f"{collective}_init")(*buffers)
            except (AttributeError, NotImplementedError):
                pass
            else:
                start = request.Start
                wait = request.Wait

                def swap() -> None:
                    start()
                    wait()

                return swap, [request]
        return functools.partial(getattr(comm, collective), *buffers), []


def _keep(buffers: dict[K, Buffer], key: K, buffer: Buffer) -> Buffer:
    """Keep a buffer for the next collective of its size. If `MOST` buffers are kept already,
    discard the oldest one.
    """
    if len(buffers) == MOST:
        _discard(buffers.pop(next(iter(buffers))))
    buffers[key] = buffer
    return buffer


def _discard(buffer: Any) -> None:
    for held in buffer.held:
        held.Free()


def _widths(size: int, dtype: Any) -> tuple[int, int]:
    """Return the number of columns of such messages, without and with a header: a multiple of 8
    bytes, and at least two columns.
    """
    per_number = 8 // dtype.itemsize
    numbers = max(2, -(-size // per_number) * per_number)
    return numbers, numbers + SUM_HEADER * per_number
