"""What carriers have in common: agents that speak step by step, checks of what they say, and the mixing matrices."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NoReturn, TypeVar

import numpy as np
import scipy.sparse as sp

from coterie.arrays import FloatArray, Matrix, digest
from coterie.bill import Bill
from coterie.errors import InvalidNetwork, NumericalError, ProtocolError
from coterie.networks import Network
from coterie.words import Ask, Exchange, Mix, Sum, Talk, Word

__all__ = ["Driver"]

T = TypeVar("T")

DENSE_ABOVE = 0.2
"""A mixing matrix with a larger share of non-zeros is multiplied by BLAS, one below it as a sparse matrix."""
LONG, DENSE_ABOVE_IF_LONG = 4096, 0.4
"""The same for messages of that length or more. Rows of a sparse product are the same bits, whoever computes them, and
a process then computes only its own; for shorter messages that is not worth scipy's overhead."""
MIXED_AT_ONCE = 1 << 18
"""How many numbers a `Mix` puts side by side: not all of long messages, which would be one more of them per agent."""
EVEN_FROM = 16
"""From so many agents on, a `Mix` that weighs everybody else alike is made from the sum of all messages."""


class Even:
    """The matrix c 11ᵀ + diag(own): a complete graph with one weight, m² n additions less than its product."""

    def __init__(self, matrix: FloatArray):
        self.common, self.shape = matrix[0, 1], matrix.shape
        self.own = (matrix.diagonal() - self.common)[:, np.newaxis]

    def __matmul__(self, stack: FloatArray) -> FloatArray:
        mixed: FloatArray = stack * self.own
        mixed += self.common * stack.sum(axis=0)
        return mixed

    @staticmethod
    def fits(matrix: FloatArray) -> bool:
        """Whether all entries beside the diagonal are equal, of enough agents to be worth it."""
        m = len(matrix)
        return m >= EVEN_FROM and bool((matrix[~np.eye(m, dtype=bool)] == matrix[0, 1]).all())


class Driver(ABC):
    """Lets the agents of this process speak step by step; a subclass answers the four words."""

    def __init__(self, network: Network, bill: Bill, names: Sequence[str] | None = None):
        self.network, self.bill = network, bill
        self.names = list(names) if names else [f"agent {j}" for j in range(network.agents)]
        self.here: Sequence[int] = range(network.agents)
        """The agents of this process, in the order of their talks."""
        self._answers: dict[type, Callable[[Sequence[Any], str], Sequence[Any]]] = {
            Sum: self._sum,
            Mix: self._mix,
            Exchange: self._exchange,
            Ask: self._ask,
        }
        self._stack: FloatArray = np.empty((0, 0))
        self._matrices: dict[tuple[str | int, Any, bool], tuple[str | Matrix, Matrix]] = {}
        if not network.server:
            tree = network.tree()
            self._upwards = [(int(j), int(tree.parents[j])) for j in reversed(tree.order) if tree.parents[j] >= 0]
            self._root = int(tree.order[0])

    def take(self, step: Callable[..., Talk[T]], rows: Iterable[Sequence[Any]], purpose: str) -> list[T]:
        """Let each agent of this process take that step, with a row of arguments that begins with the agent."""
        return self.converse([step(*row) for row in rows], purpose)

    def converse(self, talks: Sequence[Talk[T]], purpose: str) -> list[T]:
        """Run the conversations of the agents of this process to their end, step by step; what each came to."""
        replies: Sequence[Any] = [None] * len(talks)
        while True:
            words: list[Word] = []
            try:
                for talk, reply in zip(talks, replies, strict=True):
                    words.append(talk.send(reply))
            except StopIteration as end:
                return self._ended(talks, replies, words, end.value)
            if not words:
                return []
            kind = type(words[0])
            for word in words:
                if type(word) is not kind:
                    raise self._disagreement(words, [])
            replies = self._answers[kind](words, purpose)

    def _ended(self, talks: Sequence[Talk[T]], replies: Sequence[Any], words: list[Word], first: T) -> list[T]:
        """What each came to, when the talk after those that said these words is the first to end: all must end now."""
        results, silent = [first], [len(words)]
        for k in range(len(words) + 1, len(talks)):
            try:
                words.append(talks[k].send(replies[k]))
            except StopIteration as end:
                results.append(end.value)
                silent.append(k)
        if words:
            raise self._disagreement(words, silent)
        return results

    @property
    def free(self) -> bool:
        """Whether agents that gossip do so in real time."""
        return False

    def memory(self) -> dict[str, Any]:
        """What a snapshot needs beside the States: nothing, where agents do not gossip."""
        return {}

    def recall(self, memory: dict[str, Any]) -> None:
        """Go on from the `memory` of a snapshot."""
        assert not memory, "only agents that gossip remember something"

    def roam(self, *how: Any) -> Any:
        """Only where processes are apart do clocks run in real time."""
        raise NotImplementedError

    def agreed(self, t: int, stop_reason: int) -> int:
        """The reason to stop that takes effect after round t, or 0; all processes of a run must agree on it."""
        return stop_reason

    def least(self, number: int) -> int:
        """The smallest of the numbers that the processes of a run know."""
        return number

    # -- one answer per word ------------------------------------------------------------------------------------------

    @abstractmethod
    def _sum(self, words: Sequence[Sum], purpose: str) -> Sequence[FloatArray]: ...

    @abstractmethod
    def _mix(self, words: Sequence[Mix], purpose: str) -> Sequence[FloatArray]: ...

    @abstractmethod
    def _exchange(self, words: Sequence[Exchange], purpose: str) -> Sequence[dict[int, FloatArray]]: ...

    @abstractmethod
    def _ask(self, words: Sequence[Ask], purpose: str) -> Sequence[dict[int, FloatArray]]: ...

    # -- sums in the order that every carrier keeps -------------------------------------------------------------------

    def _total(self, messages: Sequence[FloatArray]) -> FloatArray:
        """The sum of everybody's messages, in a new array."""
        if not self.network.server:
            return self._tree_sum(messages)
        # The server adds in the order of the agents.
        total = messages[0].copy() if len(messages) == 1 else messages[0] + messages[1]
        for message in messages[2:]:
            total += message
        return total

    def _tree_sum(self, messages: Sequence[FloatArray]) -> FloatArray:
        # Each agent adds its children's sums, the last child first; deeper agents have done so before.
        partial: dict[int, FloatArray] = {}
        for child, parent in self._upwards:
            below = partial.pop(child, messages[child])
            if parent in partial:
                partial[parent] += below
            else:
                partial[parent] = np.add(messages[parent], below, out=None if below is messages[child] else below)
        return partial.get(self._root, np.array(messages[self._root]))

    def _product(self, matrix: Matrix, messages: Sequence[FloatArray]) -> FloatArray:
        """The matrix times the messages, one per row."""
        agents, size, dtype = len(messages), messages[0].size, messages[0].dtype
        width = min(size, max(1, MIXED_AT_ONCE // agents))
        if self._stack.shape != (agents, width) or self._stack.dtype != dtype:
            self._stack = np.empty((agents, width), dtype)
        if width == size:
            np.concatenate(messages, out=self._stack.reshape(-1))
            whole: FloatArray = matrix @ self._stack
            return whole
        mixed = np.empty((matrix.shape[0], size), dtype)
        for start in range(0, size, width):
            some = slice(start, start + width)
            mixed[:, some] = matrix @ np.stack(
                [message[some] for message in messages], out=self._stack[:, : size - start]
            )
        return mixed

    # -- checks -------------------------------------------------------------------------------------------------------

    def _same_shape(self, word: str, messages: Sequence[FloatArray]) -> None:
        first = messages[0]
        shape, dtype = first.shape, first.dtype
        for message in messages:
            if message is not first and (message.shape != shape or message.dtype != dtype):
                agent = next(agent for agent, x in zip(self.here, messages, strict=True) if x is message)
                raise ProtocolError(
                    f"{word}: {self.names[self.here[0]]} sent {dtype}{shape} and {self.names[agent]} sent "
                    f"{message.dtype}{message.shape} at the same step."
                )

    def _same_rule(self, words: Sequence[Mix]) -> str | Matrix:
        rule = words[0].rule
        if not all(word.rule is rule or _same_rule(word.rule, rule) for word in words):
            raise ProtocolError("the agents asked for different mixing rules at the same step.")
        return rule

    def _finite(self, word: str, result: FloatArray, messages: Sequence[FloatArray]) -> None:
        flat = result.reshape(-1)
        # ‖x‖² is finite unless an entry is not, or is huge: one pass, a closer look in doubt only; vdot never warns.
        if not math.isfinite(np.vdot(flat, flat)) and not np.isfinite(flat).all():
            self._not_finite(word, messages)

    def _not_finite(self, word: str, messages: Sequence[FloatArray]) -> NoReturn:
        """Raise the error that names who said it."""
        for agent, message in zip(self.here, messages, strict=True):
            if bad := int(np.size(message) - np.isfinite(message).sum()):
                raise NumericalError(
                    f"{self.names[agent]} said {word} with {bad} of {message.size} numbers not finite."
                )
        raise NumericalError(f"{word}: the numbers of all agents are finite, but their sum is not.")

    def _needs_edges(self, word: str) -> None:
        if self.network.server:
            raise InvalidNetwork(f"{word} needs agents that talk to each other, but all of them talk to a server only.")

    def _matrix(self, rule: str | Matrix, dtype: Any, size: int) -> Matrix:
        """The matrix of a rule, in the form that suits messages of that size."""
        long = size >= LONG
        key = (rule if isinstance(rule, str) else id(rule), dtype, long)
        if key not in self._matrices:
            matrix = sp.csr_array(self.network.mixing(rule)).astype(dtype)
            if matrix.nnz > (DENSE_ABOVE_IF_LONG if long else DENSE_ABOVE) * matrix.shape[0] ** 2:
                matrix = matrix.toarray()
                matrix = Even(matrix) if Even.fits(matrix) else matrix
            # The rule is kept beside its matrix, so that its id stays its own.
            self._matrices[key] = rule, matrix
        return self._matrices[key][1]

    def _disagreement(self, words: Sequence[Word], silent: Sequence[int]) -> ProtocolError:
        if silent:
            ended = ", ".join(self.names[self.here[k]] for k in silent)
            speaker = next(k for k in range(len(self.here)) if k not in silent)
            said = f"{self.names[self.here[speaker]]} said {_name(words[0])}"
            return ProtocolError(f"{ended} ended the round while {said}.")
        other = next(k for k, word in enumerate(words) if type(word) is not type(words[0]))
        one = f"{self.names[self.here[0]]} said {_name(words[0])}"
        return ProtocolError(f"at the same step {one} and {self.names[self.here[other]]} said {_name(words[other])}.")


def _same_rule(one: str | Matrix, other: str | Matrix) -> bool:
    if isinstance(one, str) or isinstance(other, str):
        return isinstance(one, str) and isinstance(other, str) and one == other
    return digest(one) == digest(other)


def _name(word: Word) -> str:
    return type(word).__name__
