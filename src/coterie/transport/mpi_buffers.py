"""Buffers of MPI collectives, kept from word to word: a round then only says start and wait.

A row has an agent's numbers, and behind them, as whole numbers of 8 bytes, a header:

    Sum    the round to stop at, the reason to stop, whether there is a complaint, a code of the word
    Mix    the round to stop at, the reason to stop

For a `Sum` the header stands at the end of the row. For a `Mix` all headers stand behind the table, because the table
is what is multiplied.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from coterie.arrays import FloatArray
from coterie.transport.layout import Layout

K = TypeVar("K")
IntArray: TypeAlias = npt.NDArray[np.int64]

SMALL_BYTES = 2**17
"""Up to so much for all messages together, everybody is sent everything: one collective instead of two."""
SUM_HEADER = 4
STOP_BYTES = 16
MOST = 32
"""Messages of more sizes than these do not find their buffers again."""


class SumBuffer(NamedTuple):
    """What is kept for every `Sum` of one size: buffers, the views of them that a round needs, and the collective."""

    size: int
    table: FloatArray
    """Everybody's messages, or one slice of them, one per row; behind them maybe zeros."""
    messages: Sequence[FloatArray]
    """The rows of the table without zeros, by agent."""
    own: Sequence[FloatArray]
    """Where my agents' messages go, and with them"""
    said: IntArray
    """my headers."""
    heard: IntArray
    """Everybody's headers, rank by rank."""
    swap: Callable[[], object]
    held: Sequence[Any]
    """To be freed in the end."""
    slices: tuple[FloatArray, FloatArray, Callable[[], object]] | None = None
    """Of sums of slices: where mine goes, where everybody's arrive, and the second collective."""


class NeighbourBuffer(NamedTuple):
    """What is kept for every `Mix` of one size."""

    own: Sequence[FloatArray]
    """Where my agents' messages go."""
    stops: IntArray
    """The headers of the messages at hand."""
    quiet: bytes
    """What these are as long as nobody wants to stop."""
    stack: FloatArray
    """What is multiplied: the messages at hand; or, for the whole product, everybody's, 0 if not at hand."""
    copies: Sequence[tuple[FloatArray, FloatArray]]
    """Of the latter, the rows that are at hand, and where these arrive."""
    swap: Callable[[], object]
    held: Sequence[Any]


Buffer = TypeVar("Buffer", SumBuffer, NeighbourBuffer)


class MpiBuffers:
    """Of one rank; `near` is the communicator of the graph, `persistent` whether collectives are prepared once."""

    def __init__(self, mpi: Any, comm: Any, near: Any, layout: Layout, persistent: bool):
        self._mpi, self._comm, self._near, self._layout, self._persistent = mpi, comm, near, layout, persistent
        self._agents, self._counts = layout.network.agents, [len(layout.agents_of[k]) for k in range(comm.size)]
        self.by_rank = [agent for rank in range(comm.size) for agent in layout.agents_of[rank]]
        """The agents in the order in which their rows arrive."""
        self.row_of = np.argsort(self.by_rank)
        self._sums: dict[tuple[int, str], SumBuffer] = {}
        self._neighbours: dict[tuple[int, str, bool], NeighbourBuffer] = {}

    def for_sum(self, size: int, dtype: Any) -> SumBuffer:
        """The buffer for a `Sum` of messages of that size."""
        key = size, dtype.char
        small = self._agents * size * dtype.itemsize <= SMALL_BYTES
        make = self._gathering if small else self._slicing
        return self._sums.get(key) or _keep(self._sums, key, make(size, dtype))

    def for_mix(self, size: int, dtype: Any, whole: bool) -> NeighbourBuffer:
        """The buffer for a `Mix` of messages of that size; `whole`, if the whole product is computed here."""
        key = size, dtype.char, whole
        return self._neighbours.get(key) or _keep(self._neighbours, key, self._near_by(size, dtype, whole))

    def free(self) -> None:
        """Give everything back to MPI."""
        for buffer in (*self._sums.values(), *self._neighbours.values()):
            _discard(buffer)

    def _gathering(self, size: int, dtype: Any) -> SumBuffer:
        numbers, width = _widths(size, dtype)
        table, wire = np.zeros((self._agents, width), dtype), np.zeros((len(self._layout.here), width), dtype)
        swap, held = self._prepared(self._comm, "Allgatherv", wire, [table, [n * width for n in self._counts]])
        said, heard = (rows[:, numbers:].view(np.int64) for rows in (wire, table))
        messages, own = [table[row, :size] for row in self.row_of], list(wire[:, :size])
        return SumBuffer(size, table[:, :numbers], messages, own, said, heard, swap, held)

    def _slicing(self, size: int, dtype: Any) -> SumBuffer:
        ranks, here, length = self._comm.size, len(self._layout.here), -(-size // self._comm.size)
        numbers, width = _widths(length, dtype)
        table, wire = np.zeros((self._agents, width), dtype), np.zeros((ranks, here, width), dtype)
        counts = [here * width] * ranks, [n * width for n in self._counts]
        swap, held = self._prepared(self._comm, "Alltoallv", [wire, counts[0]], [table, counts[1]])
        mine, everybodys = np.zeros(length, dtype), np.zeros(ranks * length, dtype)
        swap_again, more = self._prepared(self._comm, "Allgather", mine, everybodys)
        said, heard = (rows.reshape(-1, width)[:, numbers:].view(np.int64) for rows in (wire, table))
        messages, own = [table[row, :length] for row in self.row_of], [wire[:, row, :length] for row in range(here)]
        slices = mine, everybodys, swap_again
        return SumBuffer(length, table[:, :numbers], messages, own, said, heard, swap, held + more, slices)

    def _near_by(self, size: int, dtype: Any, whole: bool) -> NeighbourBuffer:
        """Messages leave from rows of a table, and those of neighbours arrive in others; headers stand behind it."""
        from mpi4py.util.dtlib import from_numpy_dtype

        layout = self._layout
        rows = {agent: row for row, agent in enumerate(layout.at_hand)}
        width, number = size * dtype.itemsize, from_numpy_dtype(dtype)
        behind = -(-len(rows) * width // STOP_BYTES) * STOP_BYTES
        buffer = np.zeros(behind + len(rows) * STOP_BYTES, np.uint8)
        table = buffer[: len(rows) * width].view(dtype).reshape(len(rows), size)
        stops = buffer[behind:].view(np.int64).reshape(len(rows), 2)

        def selected(agents: Sequence[int]) -> Any:
            starts = [start for a in agents for start in (rows[a] * width, behind + rows[a] * STOP_BYTES)]
            kinds, lengths = [number, self._mpi.INT64_T] * len(agents), [size, 2] * len(agents)
            return self._mpi.Datatype.Create_struct(lengths, starts, kinds).Commit()

        out, into = ([selected(a) for a in there.values()] for there in (layout.outgoing, layout.incoming))
        once, from_start = [1] * len(out), [0] * len(out)
        there, back = [buffer, once, from_start, out], [buffer, once, from_start, into]
        swap, held = self._prepared(self._near, "Neighbor_alltoallw", there, back)
        stack = np.zeros((self._agents, size), dtype) if whole else table
        copies = [(stack[agent], table[row]) for agent, row in rows.items()] if whole else []
        own = [table[rows[agent]] for agent in layout.here]
        return NeighbourBuffer(own, stops, stops.tobytes(), stack, copies, swap, [*held, *out, *into])

    def _prepared(self, comm: Any, collective: str, *buffers: Any) -> tuple[Callable[[], object], list[Any]]:
        """A collective on buffers that stay the same, and what is to be freed after it.

        Prepared once, if MPI knows persistent collectives; but where ranks may die, one that can be interrupted.
        """
        if self._persistent:
            try:
                request = getattr(comm, f"{collective}_init")(*buffers)
            except (AttributeError, NotImplementedError):
                pass
            else:
                start, wait = request.Start, request.Wait

                def swap() -> None:
                    start()
                    wait()

                return swap, [request]
        return functools.partial(getattr(comm, collective), *buffers), []


def _keep(buffers: dict[K, Buffer], key: K, buffer: Buffer) -> Buffer:
    """That buffer, found again by the next word of its size; the oldest makes room for it."""
    if len(buffers) == MOST:
        _discard(buffers.pop(next(iter(buffers))))
    buffers[key] = buffer
    return buffer


def _discard(buffer: Any) -> None:
    for held in buffer.held:
        held.Free()


def _widths(size: int, dtype: Any) -> tuple[int, int]:
    """How many columns messages of that size have, a whole number of 8 bytes and at least two, and with a header."""
    per_number = 8 // dtype.itemsize
    numbers = max(2, -(-size // per_number) * per_number)
    return numbers, numbers + SUM_HEADER * per_number
