"""Words among the ranks of an MPI run, by collectives: every place is a rank.

| word       | collectives                                                                                         |
|------------|-----------------------------------------------------------------------------------------------------|
| `Sum`      | small: `Allgatherv`, and every rank adds all; large: `Alltoallv` of slices, of which each rank adds  |
|            | one, and `Allgatherv` of the sums                                                                   |
| `Mix`      | `Neighbor_allgather` on a distributed graph topology                                                |
| `Exchange` | `neighbor_alltoall` likewise                                                                        |
| `Ask`      | `alltoall` of questions, `alltoall` of answers                                                      |
| gossip     | `send` and `recv`; see `scattered`                                                                  |

`Allreduce` adds in an order of its own; here letters are added in the order of the embedded engine, whoever adds them,
so the iterates have the same bits. A letter that is not finite is noticed where it is said, and all ranks stop at the
next `Sum` with the name of the sender: a rank that left alone would leave the others waiting.
"""

from __future__ import annotations

import functools
import itertools
import threading
import zlib
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NoReturn, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from coterie.agent import Agent
from coterie.arrays import FloatArray, sealed
from coterie.bill import Bill
from coterie.carriers.linked import Linked
from coterie.carriers.links import Tag
from coterie.carriers.roll_call import RollCall
from coterie.errors import CoterieError, MissingExtra, NumericalError, PartyLost, ProtocolError
from coterie.networks import Network
from coterie.steps import Steps
from coterie.words import Talk

__all__ = ["Ranks"]

T = TypeVar("T")
Answer: TypeAlias = Callable[[Sequence[Any], str], Sequence[Any]]
Judge: TypeAlias = Callable[[CoterieError, Sequence[int]], None]

SMALL_BYTES = 2**17
"""Up to so much for all letters together, everybody is sent everything: one collective instead of two."""


class Ranks(Linked):
    """Answers the words of this rank's agents, together with the other ranks of a communicator."""

    def __init__(
        self,
        network: Network,
        bill: Bill,
        world: Any,
        homes: Sequence[int],
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
        # There are no links: every way in which `Linked` uses them is another one here.
        super().__init__(network, bill, None, homes, world.rank, names)  # type: ignore[arg-type]
        self.comm = world.Dup()
        self.comm.Set_errhandler(MPI.ERRORS_RETURN)
        self._near: Any = None
        if not network.server:
            others = sorted(self._outgoing)
            self._near = self.comm.Create_dist_graph_adjacent(others, others)
            self._near.Set_errhandler(MPI.ERRORS_RETURN)
        by_rank = [agent for place in range(self.comm.size) for agent in self._agents_of[place]]
        self._rows_of_agents = np.argsort(by_rank)
        """In a stack of letters rank by rank, the row of each agent."""
        self._agent_counts = np.array([len(self._agents_of[place]) for place in range(self.comm.size)])
        self._complaint: NumericalError | None = None
        self._buffers: dict[tuple[int, Any], tuple[FloatArray, FloatArray]] = {}
        self._near_buffers: dict[tuple[int, Any], tuple[FloatArray, FloatArray]] = {}
        self._judge = judge
        self._verdict: CoterieError | None = None
        self.left: Sequence[int] = ()
        """If a rank was frozen, those that were not."""
        self._roll_call: RollCall | None = None
        if deadline is not None and self.comm.size > 1 and MPI.Query_thread() == MPI.THREAD_MULTIPLE:
            called = [" and ".join(self.names[agent] for agent in self._agents_of[p]) for p in range(self.comm.size)]
            self._roll_call = roll_call = RollCall(world.Dup(), deadline, called, self._give_up)
            self._answers = {kind: self._watched(kind.__name__, f, roll_call) for kind, f in self._answers.items()}

    def close(self) -> None:
        """Nobody is waited for any more."""
        if self._roll_call is not None:
            self._roll_call.close()

    def _waiting(self, word: str, purpose: str = "engine") -> AbstractContextManager[None]:
        """While this rank waits for others."""
        return nullcontext() if self._roll_call is None else self._roll_call.waiting(purpose, self._step, word)

    def _watched(self, word: str, answer: Answer, roll_call: RollCall) -> Answer:
        def watched(words: Sequence[Any], purpose: str) -> Sequence[Any]:
            roll_call.wait(purpose, self._step, word)
            try:
                return answer(words, purpose)
            finally:
                roll_call.go_on()

        return watched

    def _give_up(self, error: CoterieError, left: Sequence[int]) -> None:
        """In the thread of the roll call: free this rank from the word in which it waits, or end everything."""
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
        # In a thread, because a rank that is frozen, and not dead, would never take part; the roll call will tell.
        shrinking = threading.Thread(target=lambda: shrunk.append(self.comm.Shrink()), daemon=True)
        if self._roll_call is None:
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
        left = set(self.comm.allgather(self.place))
        dead = [self.names[agent] for agent, home in enumerate(self.homes) if home not in left]
        raise PartyLost(f"{' and '.join(dead)} stopped answering: the rank died.") from error

    # -- travelling ---------------------------------------------------------------------------------------------------

    def _put_up(self, agent: int, letter: FloatArray) -> None:
        self._published[agent] = sealed(np.array(letter))

    def _send(self, place: int, letter: FloatArray, tag: Tag) -> None:
        self.comm.send((tag, letter, self._adjournment), place)

    def _receive(self, place: int, tag: Tag, size: int | None = None, dtype: Any = None) -> FloatArray:
        with self._waiting(tag.word, tag.purpose):
            found, letter, adjournment = self.comm.recv(source=place)
        if found != tag:
            raise ProtocolError(f"{self.names[self._agents_of[place][0]]} sent {found} where {tag} was expected.")
        self._adjournment = self._adjournment or adjournment
        return sealed(letter)

    def _sum_of_all(self, letters: Sequence[FloatArray], tag: Tag) -> FloatArray:
        if self.comm.size == 1:
            return self._total(letters)
        first = letters[0]
        own = np.concatenate([letter.reshape(-1) for letter in letters]) if len(letters) > 1 else first.reshape(-1)
        small = self.network.agents * first.nbytes <= SMALL_BYTES
        total = self._gathered_sum(own, first, tag) if small else self._sliced_sum(own, first, tag)
        return total.reshape(first.shape)

    def _gathered_sum(self, own: FloatArray, first: FloatArray, tag: Tag) -> FloatArray:
        if self.network.agents == self.comm.size:
            table = self._rows(own, tag)
            if not self.network.server:
                return self._total(list(table[:, : own.size]))
            # Of several columns numpy adds row after row: as `_total` does, in one call.
            total: FloatArray = np.add.reduce(table, axis=0)
            return total[: own.size]
        heard = self._everything(own, self._agent_counts * first.size, tag)
        return self._total(list(heard.reshape(self.network.agents, first.size)[self._rows_of_agents]))

    def _sliced_sum(self, own: FloatArray, first: FloatArray, tag: Tag) -> FloatArray:
        """Rank r adds the r-th slice of all letters: each number travels twice, whatever the number of ranks."""
        size, rows = first.size, own.reshape(len(self.here), first.size)
        cuts = np.arange(self.comm.size + 1) * size // self.comm.size
        widths = np.diff(cuts)
        mine = int(widths[self.place])
        outgoing = (
            own if len(rows) == 1 else np.concatenate([rows[:, a:b].reshape(-1) for a, b in itertools.pairwise(cuts)])
        )
        slices = np.empty(self.network.agents * mine, first.dtype)
        self.comm.Alltoallv([outgoing, len(rows) * widths], [slices, self._agent_counts * mine])
        part = self._total(list(slices.reshape(self.network.agents, mine)[self._rows_of_agents]))
        return self._everything(part, widths, tag)

    def _rows(self, own: FloatArray, tag: Tag) -> FloatArray:
        """Everybody's letter and remarks, where every rank has one agent; on buffers that are kept."""
        size = own.size
        key = (size, own.dtype)
        if key not in self._buffers:
            self._buffers[key] = np.empty(size + 3, own.dtype), np.empty((self.comm.size, size + 3), own.dtype)
        wire, table = self._buffers[key]
        code = _code(tag)
        wire[:size] = own
        wire[size] = self._adjournment
        wire[size + 1] = self._complaint is not None
        wire[size + 2] = code
        self.comm.Allgather(wire, table)
        remarks = table[:, size:]
        # Most often nobody has anything to remark, and all say the same.
        if self._adjournment or self._complaint or remarks.tobytes() != wire[size:].tobytes() * len(table):
            self._heed(remarks, tag)
        return table

    def _everything(self, own: FloatArray, counts: npt.NDArray[np.intp], tag: Tag) -> FloatArray:
        """Everybody's numbers, rank by rank. Three more from each say whether all is well."""
        wire = np.empty(own.size + 3, own.dtype)
        wire[:-3] = own
        wire[-3:] = self._adjournment, self._complaint is not None, _code(tag)
        heard = np.empty(int(counts.sum()) + 3 * len(counts), own.dtype)
        self.comm.Allgatherv(wire, [heard, counts + 3])
        if len(set(counts.tolist())) == 1:
            table = heard.reshape(len(counts), int(counts[0]) + 3)
            numbers, remarks = table[:, :-3].reshape(-1), table[:, -3:]
        else:
            ends = np.cumsum(counts + 3)
            numbers = np.concatenate([heard[end - 3 - n : end - 3] for n, end in zip(counts, ends, strict=True)])
            remarks = heard[ends[:, None] + np.arange(-3, 0)]
        self._heed(remarks, tag)
        return numbers

    def _heed(self, remarks: FloatArray, tag: Tag) -> None:
        adjournments, complaints, codes = remarks.T
        self._adjournment = self._adjournment or float(adjournments[self.homes[0]])
        if complaints.any():
            culprits = [self.names[a] for a, home in enumerate(self.homes) if complaints[home]]
            raise self._complaint or NumericalError(f"{' or '.join(culprits)} said something that is not finite.")
        if (codes != codes[0]).any():
            other = self._agents_of[int(np.argmax(codes != codes[self.place]))][0]
            raise ProtocolError(f"at the same step {self.names[self.here[0]]} said {tag} and {self.names[other]} not.")

    def _swapped(self, letters: Sequence[FloatArray], tag: Tag) -> dict[int, FloatArray]:
        heard = {agent: letter.reshape(-1) for agent, letter in zip(self.here, letters, strict=True)}
        if self.network.agents > self.comm.size:
            packed = {
                place: np.concatenate([heard[agent] for agent in agents]) for place, agents in self._outgoing.items()
            }
            for place, stack in self._exchanged(packed, tag).items():
                agents = self._incoming[place]
                heard |= zip(agents, stack.reshape(len(agents), letters[0].size), strict=True)
            return heard
        size, dtype = letters[0].size, letters[0].dtype
        key = (size, dtype)
        if key not in self._near_buffers:
            self._near_buffers[key] = np.empty(size + 1, dtype), np.empty((len(self._incoming), size + 1), dtype)
        wire, table = self._near_buffers[key]
        wire[:size] = letters[0].reshape(-1)
        wire[size] = self._adjournment
        self._near.Neighbor_allgather(wire, table)
        for row, agents in zip(table, self._incoming.values(), strict=True):
            self._adjournment = self._adjournment or float(row[size])
            heard[agents[0]] = row[:size]
        return heard

    def _exchanged(self, packed: dict[int, FloatArray], tag: Tag) -> dict[int, FloatArray]:
        letters = [(letter, self._adjournment) for letter in packed.values()]
        heard = dict(zip(packed, self._near.neighbor_alltoall(letters), strict=True))
        for _, adjournment in heard.values():
            self._adjournment = self._adjournment or adjournment
        return {place: letter for place, (letter, _) in heard.items()}

    def _asked_for(self, peers: Sequence[int]) -> dict[int, FloatArray]:
        questions = [[peer for peer in peers if self.homes[peer] == place] for place in range(self.comm.size)]
        answers = [
            {peer: self._published[peer] for peer in asked if peer in self._published}
            for asked in self.comm.alltoall(questions)
        ]
        return {peer: sealed(letter) for heard in self.comm.alltoall(answers) for peer, letter in heard.items()}

    # -- checks -------------------------------------------------------------------------------------------------------

    def _all_finite(self, word: str, letters: Sequence[FloatArray]) -> None:
        try:
            super()._all_finite(word, letters)
        except NumericalError as complaint:
            self._complaint = self._complaint or complaint

    def _finite(self, word: str, result: FloatArray, letters: Sequence[FloatArray]) -> None:
        # What neighbours said in a Mix is for everybody to hear about, at the next Sum.
        if word == "Sum" or any(result is letter for letter in letters):
            super()._finite(word, result, letters)


def _code(tag: Tag) -> int:
    """A number that two words at one step hardly share, small enough that sums of it are exact, also in float32."""
    return (tag.step + _seed_of(tag.purpose, tag.word)) % 2**12


@functools.cache
def _seed_of(purpose: str, word: str) -> int:
    return zlib.crc32(f"{purpose} {word}".encode())
