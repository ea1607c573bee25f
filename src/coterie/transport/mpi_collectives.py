"""Words among the ranks of an MPI run, by collectives: every process is a rank.

| word       | collectives                                                                                         |
|------------|-----------------------------------------------------------------------------------------------------|
| `Sum`      | small: `Allgather`, and every rank adds all; large: `Alltoall` of slices, of which each rank adds    |
|            | one, and `Allgather` of the sums                                                                    |
| `Mix`      | `Neighbor_alltoallv` on a distributed graph topology                                                |
| `Exchange` | `neighbor_alltoall` likewise                                                                        |
| `Ask`      | `alltoall` of questions, `alltoall` of answers                                                      |
| gossip     | `send` and `recv`; see `distributed_gossip`                                                         |

`Allreduce` adds in an order of its own; here messages are added in the order of the embedded engine, whoever adds them,
so the iterates have the same bits. `Sum` and `Mix` are persistent collectives on buffers that are kept: a round says
start and wait, and where ranks outnumber cores each rank has to be woken only once for it. Neighbours' messages arrive
in the rows that are multiplied. A message of a `Mix` or an `Exchange` that is not finite is noticed where it is said,
and all ranks stop at the next `Sum` with the name of the sender: a rank that left alone would leave the others waiting.
"""

from __future__ import annotations

import functools
import math
import struct
import threading
import zlib
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, NoReturn, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from coterie.agent import Agent
from coterie.arrays import FloatArray, sealed
from coterie.bill import Bill
from coterie.errors import CoterieError, MissingExtra, NumericalError, PartyLost, ProtocolError
from coterie.networks import Network
from coterie.steps import Steps
from coterie.transport.driver import MIXED_AT_ONCE
from coterie.transport.links import Stop, Tag
from coterie.transport.point_to_point import Operator, PointToPoint
from coterie.transport.watchdog import Doing, Watchdog
from coterie.words import Sum, Talk

__all__ = ["MpiCollectives"]

T = TypeVar("T")
K = TypeVar("K")
IntArray: TypeAlias = npt.NDArray[np.int64]
add = np.add.reduce
Judge: TypeAlias = Callable[[CoterieError, Sequence[int]], None]

SMALL_BYTES = 2**17
"""Up to so much for all messages together, everybody is sent everything: one collective instead of two."""
HEADER = 4
"""Whole numbers of 8 bytes behind every message of a `Sum`: the stop, whether there is a complaint, a code."""
QUIET = struct.Struct(f"={HEADER}q").pack
STOP = np.dtype((np.int64, 2))
MOST_BOARDS = 32
"""Messages of more sizes than these do not find their buffers again."""


class _Sums(NamedTuple):
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
    """Everybody's headers."""
    swap: Callable[[], object]
    held: Sequence[Any]
    """To be freed in the end."""
    slices: tuple[FloatArray, FloatArray, Callable[[], object]] | None = None
    """Of sums of slices: where mine goes, where everybody's arrive, and the second collective."""


class _Near(NamedTuple):
    """What is kept for every `Mix` of one size."""

    table: FloatArray
    """The messages at hand, one per row."""
    own: Sequence[FloatArray]
    """Where my agents' messages go."""
    stops: IntArray
    """The headers of the messages at hand."""
    none: bytes
    """What these are as long as nobody wants to stop."""
    stack: FloatArray
    """What is multiplied: the table; or, for the whole product, everybody's messages, 0 if not at hand."""
    copies: Sequence[tuple[FloatArray, FloatArray]]
    """Of the latter, the rows that are at hand, and where these are in the table."""
    swap: Callable[[], object]
    held: Sequence[Any]


Board = TypeVar("Board", _Sums, _Near)


class MpiCollectives(PointToPoint):
    """Answers the words of this rank's agents, together with the other ranks of a communicator."""

    def __init__(
        self,
        network: Network,
        bill: Bill,
        world: Any,
        process_of: Sequence[int],
        names: Sequence[str] | None = None,
        deadline: float | None = None,
        judge: Judge | None = None,
    ):
        """`world` is an mpi4py communicator; it is duplicated, and the duplicate is `comm`.

        deadline    seconds of silence after which a rank is lost, if threads may talk, too; None: never
        judge       what to do then, with the error and the ranks that are left, where MPI cannot interrupt a word
        """
        try:
            from mpi4py import MPI
        except ImportError as missing:
            raise MissingExtra("the mpi engine", "mpi") from missing
        self._mpi = MPI
        # There are no links: every way in which `PointToPoint` uses them is another one here.
        super().__init__(network, bill, None, process_of, world.rank, names)  # type: ignore[arg-type]
        self.comm = world.Dup()
        self.comm.Set_errhandler(MPI.ERRORS_RETURN)
        self._near: Any = None
        if not network.server:
            others = sorted(self._outgoing)
            self._near = self.comm.Create_dist_graph_adjacent(others, others)
            self._near.Set_errhandler(MPI.ERRORS_RETURN)
        by_rank = [agent for process in range(self.comm.size) for agent in self._agents_of[process]]
        self._row_after_row = network.server and by_rank == list(range(network.agents))
        """Whether messages are added in the order in which they arrive, rank by rank."""
        self._row_of = np.argsort(by_rank)
        self._agent_counts = [len(self._agents_of[process]) for process in range(self.comm.size)]
        self._complaint: NumericalError | None = None
        self._sums: dict[tuple[int, str], _Sums] = {}
        self._nears: dict[tuple[int, str, bool], _Near] = {}
        self._stop = Stop()
        self._doing = Doing()
        self._judge = judge
        self._verdict: CoterieError | None = None
        self.left: Sequence[int] = ()
        """If a rank was frozen, those that were not."""
        self._watchdog: Watchdog | None = None
        if deadline is not None and self.comm.size > 1 and MPI.Query_thread() == MPI.THREAD_MULTIPLE:
            called = [" and ".join(self.names[agent] for agent in self._agents_of[p]) for p in range(self.comm.size)]
            self._watchdog = Watchdog(world.Dup(), deadline, called, self._doing, self._give_up)

    @property
    def stop(self) -> Stop:
        """When to stop, as far as this rank knows."""
        return self._stop

    @stop.setter
    def stop(self, stop: Stop) -> None:
        self._stop = stop

    def _adopt(self, stop: Stop) -> None:
        self._stop = self._stop if self._stop.reason else stop

    def close(self) -> None:
        """Nobody is waited for any more."""
        if self._watchdog is not None:
            self._watchdog.close()

    def leave(self) -> None:
        """Give everything back to MPI: at the end of a run in which all went well, at all ranks."""
        self.close()
        for held in (*self._sums.values(), *self._nears.values()):
            _discard(held)
        watched = None if self._watchdog is None else self._watchdog.comm
        for comm in (self._near, self.comm, watched):
            if comm is not None:
                comm.Free()

    def _waiting(self, word: str, purpose: str = "engine") -> AbstractContextManager[None]:
        """While this rank waits for others."""
        return self._doing.waiting(Tag(purpose, self._step, word))

    def _tag(self, purpose: str, word: str) -> Tag:
        self._doing.said = tag = super()._tag(purpose, word)
        return tag

    def _give_up(self, error: CoterieError, left: Sequence[int]) -> None:
        """In the thread of the watchdog: free this rank from the word in which it waits, or end everything."""
        self._verdict, self.left = error, left
        if self._judge is not None:
            self._judge(error, left)
        else:
            self._revoke()

    def _revoke(self) -> None:
        for comm in (self.comm, self._near):
            if comm is not None:
                comm.Revoke()

    def converse(self, talks: Sequence[Talk[T]], purpose: str) -> list[T]:
        """As everywhere; a rank that died is a lost party, if MPI goes on without it (`mpiexec --with-ft ulfm`)."""
        try:
            return super().converse(talks, purpose)
        except self._mpi.Exception as error:
            self._lost(error)

    def gossip(self, agents: Sequence[Agent], states: list[Any], steps: Steps, t: int) -> list[Any]:
        """As everywhere; a rank that died is a lost party."""
        try:
            return super().gossip(agents, states, steps, t)
        except self._mpi.Exception as error:
            self._lost(error)

    def least(self, number: int) -> int:
        """The smallest of the ranks' numbers."""
        with self._waiting("least"):
            return super().least(number)

    def gathered(self, thing: T) -> list[T]:
        """Everybody's thing, by rank; not a word, and not billed."""
        try:
            with self._waiting("gathered"):
                things: list[T] = self.comm.allgather(thing)
                # A rank must not leave while another one, which noticed a death, waits for it.
                self.comm.Agree(1)
                return things
        except self._mpi.Exception as error:
            self._lost(error)

    def _lost(self, error: Any) -> NoReturn:
        """Raise `PartyLost` for an MPI error, naming the ranks that died: the same ones at all survivors."""
        MPI = self._mpi
        if error.Get_error_class() not in (MPI.ERR_PROC_FAILED, MPI.ERR_PROC_FAILED_PENDING, MPI.ERR_REVOKED):
            raise error
        self._revoke()
        shrunk: list[Any] = []
        # In a thread, because a rank that is frozen, and not dead, would never take part; the watchdog will tell.
        shrinking = threading.Thread(target=lambda: shrunk.append(self.comm.Shrink()), daemon=True)
        if self._watchdog is None:
            shrunk.append(self.comm.Shrink())
        elif self._verdict is None:
            shrinking.start()
            with self._waiting("lost"):
                while self._verdict is None and shrinking.is_alive():
                    shrinking.join(0.01)
        if self._verdict is not None:
            raise self._verdict
        if not shrunk:
            raise PartyLost("a rank died, and the others could not agree which one.") from error
        (self.comm,) = shrunk
        left = set(self.comm.allgather(self.process))
        dead = [self.names[agent] for agent, owner in enumerate(self.process_of) if owner not in left]
        raise PartyLost(f"{' and '.join(dead)} stopped answering: the rank died.") from error

    # -- travelling ---------------------------------------------------------------------------------------------------

    def _put_up(self, agent: int, message: FloatArray) -> None:
        self._published[agent] = sealed(np.array(message))

    def _send(self, process: int, message: FloatArray, tag: Tag) -> None:
        self.comm.send((tag, message, self._stop), process)

    def _receive(self, process: int, tag: Tag, size: int | None = None, dtype: Any = None) -> FloatArray:
        with self._waiting(tag.word, tag.purpose):
            found, message, stop = self.comm.recv(source=process)
        if found != tag:
            raise ProtocolError(f"{self.names[self._agents_of[process][0]]} sent {found} where {tag} was expected.")
        self._adopt(stop)
        return sealed(message)

    def _sum(self, words: Sequence[Sum], purpose: str) -> Sequence[FloatArray]:
        # As everywhere, with fewer calls: a rank that wakes up finds none of them in its processor's caches.
        messages = [word.x for word in words]
        if len(messages) > 1:
            self._same_shape("Sum", messages)
        total = self._sum_of_all(messages, self._tag(purpose, "Sum"))
        if not math.isfinite(add(total, None)):
            self._finite("Sum", total, messages)
        self.bill.say(purpose, "Sum", total.size, total.itemsize)
        total.setflags(write=False)
        return [total] * len(words)

    def _sum_of_all(self, messages: Sequence[FloatArray], tag: Tag) -> FloatArray:
        if self.comm.size == 1:
            return self._total(messages)
        first = messages[0]
        self._doing.size = first.size
        key = first.size, first.dtype.char
        board = self._sums.get(key) or _keep(self._sums, key, self._summing(first))
        if board.slices is not None:
            return self._sliced_sum(board, messages, tag).reshape(first.shape)
        for row, message in zip(board.own, messages, strict=True):
            row[:] = message.reshape(-1)
        total = self._total_of(board, tag)
        return total if first.ndim == 1 else total.reshape(first.shape)

    def _sliced_sum(self, board: _Sums, messages: Sequence[FloatArray], tag: Tag) -> FloatArray:
        """Rank r adds the r-th slice of all messages: each number travels twice, whatever the number of ranks."""
        assert board.slices is not None
        mine, everybodys, swap = board.slices
        size, length = messages[0].size, mine.size
        whole = size // length
        for row, message in zip(board.own, messages, strict=True):
            flat = message.reshape(-1)
            row[:whole] = flat[: whole * length].reshape(whole, length)
            if whole * length < size:
                row[whole, : size - whole * length] = flat[whole * length :]
        mine[:] = self._total_of(board, tag)
        self._doing.answered = None
        swap()
        self._doing.answered = tag
        return everybodys[:size].copy()

    def _summing(self, first: FloatArray) -> _Sums:
        small = self.network.agents * first.nbytes <= SMALL_BYTES
        return self._gathering(first.size, first.dtype) if small else self._slicing(first.size, first.dtype)

    def _gathering(self, size: int, dtype: Any) -> _Sums:
        numbers, width = _widths(size, dtype)
        table, wire = np.zeros((self.network.agents, width), dtype), np.zeros((len(self.here), width), dtype)
        swap, request = self._kept(self.comm, "Allgatherv", wire, [table, [n * width for n in self._agent_counts]])
        messages, own = [table[row, :size] for row in self._row_of], list(wire[:, :size])
        said, heard = (rows[:, numbers:].view(np.int64) for rows in (wire, table))
        return _Sums(size, table[:, :numbers], messages, own, said, heard, swap, request)

    def _slicing(self, size: int, dtype: Any) -> _Sums:
        ranks, here, length = self.comm.size, len(self.here), -(-size // self.comm.size)
        numbers, width = _widths(length, dtype)
        table, wire = np.zeros((self.network.agents, width), dtype), np.zeros((ranks, here, width), dtype)
        counts = [here * width] * ranks, [n * width for n in self._agent_counts]
        swap, request = self._kept(self.comm, "Alltoallv", [wire, counts[0]], [table, counts[1]])
        mine, everybodys = np.zeros(length, dtype), np.zeros(ranks * length, dtype)
        swap_again, another = self._kept(self.comm, "Allgather", mine, everybodys)
        own, messages = [wire[:, row, :length] for row in range(here)], [table[row, :length] for row in self._row_of]
        said, heard = (rows.reshape(-1, width)[:, numbers:].view(np.int64) for rows in (wire, table))
        slices, held = (mine, everybodys, swap_again), request + another
        return _Sums(length, table[:, :numbers], messages, own, said, heard, swap, held, slices)

    def _kept(self, comm: Any, collective: str, *buffers: Any) -> tuple[Callable[[], object], list[Any]]:
        """A collective on buffers that stay the same, and what is to be freed after it.

        Prepared once, if MPI knows persistent collectives; but where ranks may die, one that can be interrupted.
        """
        if self._judge is not None:
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

    def _total_of(self, board: _Sums, tag: Tag) -> FloatArray:
        """The sum of everybody's messages, or of one slice; an error, if somebody complains or says another word."""
        board.said[:] = header = (*self._stop, self._complaint is not None, _code(tag))
        board.swap()
        self._doing.answered = tag
        # Most often nobody has anything to say beside the numbers, and all say the same word.
        if board.heard.tobytes() != QUIET(0, 0, 0, header[-1]) * self.network.agents:
            self._heed(board.heard, tag)
        if not self._row_after_row:
            return self._total(board.messages)
        # Of several columns numpy adds row after row, as `_total` does, in one call.
        total: FloatArray = add(board.table)
        return total[: board.size]

    def _heed(self, headers: IntArray, tag: Tag) -> None:
        rounds, reasons, complaints, codes = headers[self._row_of].T
        self._adopt(Stop(int(rounds[0]), int(reasons[0])))
        if complaints.any():
            culprits = [self.names[agent] for agent in np.flatnonzero(complaints)]
            raise self._complaint or NumericalError(f"{' or '.join(culprits)} said something that is not finite.")
        own = self.here[0]
        if (others := np.flatnonzero(codes != codes[own])).size:
            raise ProtocolError(f"at the same step {self.names[own]} said {tag} and {self.names[others[0]]} not.")

    def _mixed(self, operator: Operator, messages: Sequence[FloatArray], tag: Tag) -> FloatArray:
        size, dtype, whole = messages[0].size, messages[0].dtype, operator.agents is not self._at_hand
        self._doing.size = size
        key = size, dtype.char, whole
        board = self._nears.get(key) or _keep(self._nears, key, self._nearing(size, dtype, whole))
        for row, message in zip(board.own, messages, strict=True):
            row[:] = message.reshape(-1)
        if self._stop.reason:
            board.stops[:] = self._stop  # those of others are about to arrive
        board.swap()
        self._doing.answered = tag
        if board.stops.tobytes() != board.none:
            self._adopt(Stop(*board.stops.max(axis=0).tolist()))
        for row, message in board.copies:
            row[:] = message
        mixed: FloatArray
        if whole and board.stack.size > MIXED_AT_ONCE:
            mixed = self._product(operator.matrix, list(board.stack))
        else:
            mixed = operator.matrix @ board.stack
        return mixed[operator.wanted] if whole else mixed

    def _nearing(self, size: int, dtype: Any, whole: bool) -> _Near:
        """Messages leave from rows of a table, and those of neighbours arrive in others; headers stand behind it."""
        from mpi4py.util.dtlib import from_numpy_dtype

        rows = {agent: row for row, agent in enumerate(self._at_hand)}
        bytes_, number = size * dtype.itemsize, from_numpy_dtype(dtype)
        behind = -(-len(rows) * bytes_ // STOP.itemsize) * STOP.itemsize
        buffer = np.zeros(behind + len(rows) * STOP.itemsize, np.uint8)
        table = buffer[: len(rows) * bytes_].view(dtype).reshape(len(rows), size)
        stops = buffer[behind:].view(np.int64).reshape(len(rows), 2)

        def selected(agents: Sequence[int]) -> Any:
            starts = [start for a in agents for start in (rows[a] * bytes_, behind + rows[a] * STOP.itemsize)]
            kinds, lengths = [number, self._mpi.INT64_T] * len(agents), [size, 2] * len(agents)
            return self._mpi.Datatype.Create_struct(lengths, starts, kinds).Commit()

        processes = len(self._outgoing)
        out, into = ([selected(a) for a in there.values()] for there in (self._outgoing, self._incoming))
        once, from_start = [1] * processes, [0] * processes
        swap, request = self._kept(
            self._near, "Neighbor_alltoallw", [buffer, once, from_start, out], [buffer, once, from_start, into]
        )
        stack = np.zeros((self.network.agents, size), dtype) if whole else table
        return _Near(
            table,
            [table[rows[agent]] for agent in self.here],
            stops,
            stops.tobytes(),
            stack,
            [(stack[agent], table[row]) for agent, row in rows.items()] if whole else [],
            swap,
            [*request, *out, *into],
        )

    def _exchanged(self, messages: dict[int, FloatArray], tag: Tag) -> dict[int, FloatArray]:
        packed = [({agent: messages[agent] for agent in agents}, self._stop) for agents in self._outgoing.values()]
        heard = dict(messages)
        for theirs, stop in self._near.neighbor_alltoall(packed):
            self._adopt(stop)
            heard |= {agent: sealed(message) for agent, message in theirs.items()}
        self._doing.answered = tag
        return heard

    def _asked_for(self, peers: Sequence[int]) -> dict[int, FloatArray]:
        questions = [[peer for peer in peers if self.process_of[peer] == process] for process in range(self.comm.size)]
        with self._waiting("Ask"):
            answers = [
                {peer: self._published[peer] for peer in asked if peer in self._published}
                for asked in self.comm.alltoall(questions)
            ]
            return {peer: sealed(message) for heard in self.comm.alltoall(answers) for peer, message in heard.items()}

    # -- checks -------------------------------------------------------------------------------------------------------

    def _all_finite(self, word: str, messages: Sequence[FloatArray]) -> None:
        # The total of a Sum tells, and then everybody looks.
        if word != "Sum":
            try:
                for message in messages:
                    super()._finite(word, message, messages)
            except NumericalError as complaint:
                self._complaint = self._complaint or complaint

    def _finite(self, word: str, result: FloatArray, messages: Sequence[FloatArray]) -> None:
        # What neighbours said in a Mix is for everybody to hear about, at the next Sum.
        if word == "Sum":
            super()._finite(word, result, messages)

    def _not_finite(self, word: str, messages: Sequence[FloatArray]) -> NoReturn:
        try:
            super()._not_finite(word, messages)
        except NumericalError as own:
            if word != "Sum":
                raise
            ill = any(not np.isfinite(message).all() for message in messages)
            with self._waiting("not finite"):
                found = self.comm.allgather(str(own) if ill else None)
            raise NumericalError(next((said for said in found if said), str(own))) from None


def _keep(boards: dict[K, Board], key: K, board: Board) -> Board:
    """That board, found again by the next word of its size; the oldest makes room for it."""
    if len(boards) == MOST_BOARDS:
        _discard(boards.pop(next(iter(boards))))
    boards[key] = board
    return board


def _discard(board: Any) -> None:
    for held in board.held:
        held.Free()


def _widths(size: int, dtype: Any) -> tuple[int, int]:
    """How many columns messages of that size have, a whole number of 8 bytes and at least two, and with a header."""
    per_number = 8 // np.dtype(dtype).itemsize
    numbers = max(2, -(-size // per_number) * per_number)
    return numbers, numbers + HEADER * per_number


def _code(tag: Tag) -> int:
    """A number that two words at one step hardly share."""
    return tag.step + _seed_of(tag.purpose, tag.word)


@functools.cache
def _seed_of(purpose: str, word: str) -> int:
    return zlib.crc32(f"{purpose} {word}".encode())
