"""Collectives among the ranks of an MPI run: every process is a rank.

    `Sum`       small: `Allgather`, and every rank adds all messages; large: `Alltoall` of slices,
                of which each rank adds one, and `Allgather` of the sums
    `Mix`       `Neighbor_alltoallw` on a distributed graph topology
    `Exchange`  `neighbor_alltoall` likewise
    `Ask`       `alltoall` of questions, `alltoall` of answers
    gossip      `send` and `recv`; see `distributed_gossip`

MPI's `Allreduce` adds in an order of its own. In this module every rank adds messages in the order
of the local engine, so iterates have the same bits. `Sum` and `Mix` are persistent collectives on
buffers that are kept (`mpi_buffers`). A rank therefore wakes up only once for each of them, even if
there are more ranks than cores. The sender of a `Mix` or an `Exchange` detects numbers that are not
finite. All ranks then stop at the next `Sum`, with the sender's name. A rank that stopped alone
would leave the others waiting.
"""

from __future__ import annotations

import functools
import struct
import threading
import zlib
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, ClassVar, NoReturn, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from coterie.errors import CoterieError, MissingExtra, NumericalError, PartyLost, ProtocolError
from coterie.networks import Network
from coterie.numerics.arrays import FloatArray, Matrix, sealed
from coterie.transport.collectives import Collectives, of_bytes
from coterie.transport.links import Stop, Tag
from coterie.transport.mixing import MIXED_AT_ONCE
from coterie.transport.mpi_buffers import SUM_HEADER, IntArray, MpiBuffers, SumBuffer
from coterie.transport.watchdog import Doing, Watchdog

T = TypeVar("T")
Judge: TypeAlias = Callable[[CoterieError, Sequence[int]], None]

add = np.add.reduce
header_of = struct.Struct(f"={SUM_HEADER}q").pack


class MpiCollectives(Collectives):
    """The collectives of the ranks of a communicator."""

    checked: ClassVar[frozenset[str]] = frozenset({"Mix", "Exchange"})
    defers: ClassVar[bool] = True

    def __init__(
        self,
        network: Network,
        world: Any,
        process_of: Sequence[int],
        names: Sequence[str] | None = None,
        deadline: float | None = None,
        judge: Judge | None = None,
    ):
        """Create the collectives. `world` is an mpi4py communicator; `comm` is a duplicate of it.

        deadline    seconds of silence after which a rank is lost, if several threads may use MPI;
                    None: never
        judge       called then with the error and the remaining ranks, where MPI cannot interrupt a
                    collective
        """
        try:
            from mpi4py import MPI
        except ImportError as missing:
            raise MissingExtra("the mpi engine", "mpi") from missing
        super().__init__(network, process_of, world.rank, names)
        self._mpi = MPI
        self.failures = (MPI.Exception,)
        self.comm = world.Dup()
        self.comm.Set_errhandler(MPI.ERRORS_RETURN)
        self._near: Any = None
        if not network.server:
            others = sorted(self.layout.outgoing)
            self._near = self.comm.Create_dist_graph_adjacent(others, others)
            self._near.Set_errhandler(MPI.ERRORS_RETURN)
        self._buffers = MpiBuffers(
            MPI, self.comm, self._near, self.layout, persistent=judge is not None
        )
        self._row_after_row = network.server and self._buffers.by_rank == list(
            range(network.agents)
        )
        """Whether messages are added in the order in which they arrive, rank by rank."""
        self._complaint: NumericalError | None = None
        self._doing = Doing()
        self._judge = judge
        self._verdict: CoterieError | None = None
        self.left: Sequence[int] = ()
        """If a rank was frozen, the ranks that were not."""
        self._watchdog: Watchdog | None = None
        if (
            deadline is not None
            and self.comm.size > 1
            and MPI.Query_thread() == MPI.THREAD_MULTIPLE
        ):
            called = [self.called(rank) for rank in range(self.comm.size)]
            self._watchdog = Watchdog(world.Dup(), deadline, called, self._doing, self._give_up)

    def close(self) -> None:
        """Stop the watchdog."""
        if self._watchdog is not None:
            self._watchdog.close()

    def leave(self) -> None:
        """Stop the watchdog and free all MPI objects. Every rank calls it at the end of a run
        without errors.
        """
        self.close()
        self._buffers.free()
        watched = None if self._watchdog is None else self._watchdog.comm
        for comm in (self._near, self.comm, watched):
            if comm is not None:
                comm.Free()

    def gathered(self, thing: T) -> list[T]:
        """Return the object of every rank, by rank. It is no collective of the agents, and the bill
        does not count it.
        """
        try:
            with self._waiting("gathered"):
                things: list[T] = self.comm.allgather(thing)
                # A rank must not leave while another rank, which noticed a death, waits for it.
                self.comm.Agree(1)
                return things
        except self._mpi.Exception as error:
            self.explain(error)

    def tag(self, purpose: str, collective: str) -> Tag:
        self._doing.last = tag = super().tag(purpose, collective)
        return tag

    def _waiting(self, collective: str, purpose: str = "engine") -> AbstractContextManager[None]:
        """Return a context in which this rank waits for other ranks."""
        return self._doing.waiting(Tag(purpose, self._step, collective))

    # -- ranks that died or are frozen -------------------------------------------------------------

    def _give_up(self, error: CoterieError, left: Sequence[int]) -> None:
        """In the thread of the watchdog: free this rank from the collective in which it waits, or
        end all processes.
        """
        self._verdict = error
        self.left = left
        if self._judge is not None:
            self._judge(error, left)
        else:
            self._revoke()

    def _revoke(self) -> None:
        for comm in (self.comm, self._near):
            if comm is not None:
                comm.Revoke()

    def explain(self, error: Any) -> NoReturn:
        """Raise `PartyLost` for an MPI error, with the names of the ranks that died: the same names
        at all survivors.

        This needs an MPI that continues without the dead ranks (`mpiexec --with-ft ulfm`).
        """
        MPI = self._mpi
        if error.Get_error_class() not in (
            MPI.ERR_PROC_FAILED,
            MPI.ERR_PROC_FAILED_PENDING,
            MPI.ERR_REVOKED,
        ):
            raise error
        self._revoke()
        shrunk: list[Any] = []
        # In a thread, because a rank that is frozen but not dead would never take part. The
        # watchdog then sets `_verdict`.
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
        dead = [self.called(rank) for rank in sorted(self.layout.agents_of) if rank not in left]
        names = " and ".join(dead)
        raise PartyLost(f"{names} stopped answering: the rank died.", names) from error

    # -- collectives -------------------------------------------------------------------------------

    def total(self, messages: Sequence[FloatArray], tag: Tag) -> FloatArray:
        if self.comm.size == 1:
            return self._in_order(messages)
        first = messages[0]
        self._doing.size = first.size
        buffer = self._buffers.for_sum(first.size, first.dtype)
        if buffer.slices is not None:
            return self._sliced(buffer, messages, tag).reshape(first.shape)
        for row, message in zip(buffer.own, messages, strict=True):
            row[:] = message.reshape(-1)
        total = self._added(buffer, tag)
        if first.ndim == 1:
            return total
        return total.reshape(first.shape)

    def _sliced(self, buffer: SumBuffer, messages: Sequence[FloatArray], tag: Tag) -> FloatArray:
        """Return the sum of all messages. Rank r adds the r-th slice of all messages. Each number
        travels twice, for any number of ranks.
        """
        assert buffer.slices is not None
        mine, of_all, swap = buffer.slices
        size = messages[0].size
        length = mine.size
        whole = size // length
        for rows, message in zip(buffer.own, messages, strict=True):
            flat = message.reshape(-1)
            rows[:whole] = flat[: whole * length].reshape(whole, length)
            if whole * length < size:
                rows[whole, : size - whole * length] = flat[whole * length :]
        mine[:] = self._added(buffer, tag)
        self._doing.answered = None
        swap()
        self._doing.answered = tag
        return of_all[:size].copy()

    def _added(self, buffer: SumBuffer, tag: Tag) -> FloatArray:
        """Return the sum of all messages, or of one slice. Raises if a rank complains or started
        another collective.
        """
        code = tag.step + _seed_of(tag.purpose, tag.collective)
        buffer.headers[:] = (*self.stop, self._complaint is not None, code)
        buffer.swap()
        self._doing.answered = tag
        # In most cases all headers are equal: no stop, no complaint, the same collective.
        if buffer.received.tobytes() != header_of(0, 0, 0, code) * self.network.agents:
            self._heed(buffer.received[self._buffers.row_of], tag)
        if self.sums.exact or not self._row_after_row:
            return self._in_order(buffer.messages)
        # For several columns numpy adds row after row, as `_in_order` does, in one call.
        total: FloatArray = add(buffer.table)
        return total[: buffer.size]

    def _heed(self, headers: IntArray, tag: Tag) -> None:
        rounds, reasons, complaints, codes = headers.T
        self._adopt(Stop(int(rounds[0]), int(reasons[0])))
        if complaints.any():
            culprits = [self.names[agent] for agent in np.flatnonzero(complaints)]
            raise self._complaint or NumericalError(
                f"{' or '.join(culprits)} sent numbers that are not finite."
            )
        own = self.local[0]
        if (others := np.flatnonzero(codes != codes[own])).size:
            own_call = f"{self.names[own]} yielded {tag}"
            other = self.names[others[0]]
            raise ProtocolError(f"at the same step {own_call}, but {other} did not.")

    def mixed(self, rule: str | Matrix, messages: Sequence[FloatArray], tag: Tag) -> FloatArray:
        size = messages[0].size
        dtype = messages[0].dtype
        operator = self._mixing.operator(rule, dtype, size)
        whole = operator.agents is not self.layout.at_hand
        self._doing.size = size
        buffer = self._buffers.for_mix(size, dtype, whole)
        for row, message in zip(buffer.own, messages, strict=True):
            row[:] = message.reshape(-1)
        if self.stop.reason:
            buffer.stops[:] = self.stop  # the neighbours' stops are about to arrive
        buffer.swap()
        self._doing.answered = tag
        if buffer.stops.tobytes() != buffer.quiet:
            self._adopt(Stop(*buffer.stops.max(axis=0).tolist()))
        for row, message in buffer.copies:
            row[:] = message
        mixed: FloatArray
        if whole and buffer.stack.size > MIXED_AT_ONCE:
            mixed = self._mixing.product(operator.matrix, list(buffer.stack))
        else:
            mixed = operator.matrix @ buffer.stack
        if whole:
            return mixed[operator.wanted]
        return mixed

    def exchanged(self, messages: dict[int, FloatArray], tag: Tag) -> dict[int, FloatArray]:
        packed = [
            ({agent: messages[agent] for agent in agents}, self.stop)
            for agents in self.layout.outgoing.values()
        ]
        received = dict(messages)
        for theirs, stop in self._near.neighbor_alltoall(packed):
            self._adopt(stop)
            received |= {agent: sealed(message) for agent, message in theirs.items()}
        self._doing.answered = tag
        return received

    def fetched(self, peers: Sequence[int]) -> dict[int, FloatArray]:
        questions = [
            [peer for peer in peers if self.process_of[peer] == rank]
            for rank in range(self.comm.size)
        ]
        with self._waiting("Ask"):
            answers = [
                {peer: self.published[peer] for peer in asked if peer in self.published}
                for asked in self.comm.alltoall(questions)
            ]
            return {
                peer: sealed(message)
                for received in self.comm.alltoall(answers)
                for peer, message in received.items()
            }

    def send(self, process: int, message: npt.NDArray[Any], tag: Tag) -> None:
        self.comm.send((tag, message, self.stop), process)

    def receive(self, process: int, tag: Tag) -> FloatArray:
        with self._waiting(tag.collective, tag.purpose):
            found, message, stop = self.comm.recv(source=process)
        if found != tag:
            raise ProtocolError(f"{self.called(process)} sent {found} where {tag} was expected.")
        self._adopt(stop)
        return sealed(message.reshape(-1))

    def receive_bytes(self, process: int, tag: Tag) -> npt.NDArray[np.uint8]:
        return of_bytes(self.receive(process, tag), tag)

    # -- messages that are not finite --------------------------------------------------------------

    def complain(self, error: NumericalError) -> None:
        """Report the error at the next `Sum`, at all ranks at once."""
        self._complaint = self._complaint or error

    def blame(self, own: NumericalError, mine: bool) -> NumericalError:
        """Return the error of the first rank whose agent sent numbers that are not finite."""
        with self._waiting("not finite"):
            found = self.comm.allgather(str(own) if mine else None)
        return NumericalError(next((text for text in found if text), str(own)))


@functools.cache
def _seed_of(purpose: str, collective: str) -> int:
    """Return a number that, added to the step, is almost certainly different for two collectives at
    one step.
    """
    return zlib.crc32(f"{purpose} {collective}".encode())
