"""Words among agents that live in one process: lockstep, no threads, one matrix product for everybody's `Mix`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np
import scipy.sparse as sp

from coterie.arrays import FloatArray, Matrix, digest, sealed
from coterie.bill import Bill
from coterie.errors import InvalidNetwork, NumericalError, ProtocolError
from coterie.networks import Network
from coterie.words import Ask, Exchange, Mix, Sum, Talk, Word

__all__ = ["InProcess"]

T = TypeVar("T")

DENSE_ABOVE = 0.2
"""A mixing matrix with a larger share of non-zeros is multiplied by BLAS, one below it as a sparse matrix."""


class InProcess:
    """Answers the words of all agents of a network, and bills them."""

    def __init__(self, network: Network, bill: Bill, names: Sequence[str] | None = None):
        self.network, self.bill = network, bill
        self.names = list(names) if names else [f"agent {j}" for j in range(network.agents)]
        self._answers: dict[type, Callable[[Sequence[Any], str], Sequence[Any]]] = {
            Sum: self._sum,
            Mix: self._mix,
            Exchange: self._exchange,
            Ask: self._ask,
        }
        self._published: dict[int, FloatArray] = {}
        self._matrices: dict[tuple[str | int, Any], tuple[str | Matrix, Matrix]] = {}
        self._stack: FloatArray = np.empty((0, 0))
        if not network.server:
            tree = network.tree()
            self._upwards = [(int(j), int(tree.parents[j])) for j in reversed(tree.order) if tree.parents[j] >= 0]
            self._root = int(tree.order[0])

    def converse(self, talks: Sequence[Talk[T]], purpose: str) -> list[T]:
        """Run everybody's conversation to its end, step by step, and return what each came to."""
        replies: Sequence[Any] = [None] * len(talks)
        while True:
            words: list[Word] = []
            results: list[T] = []
            for talk, reply in zip(talks, replies, strict=True):
                try:
                    words.append(talk.send(reply))
                except StopIteration as end:
                    results.append(end.value)
            if not words:
                return results
            kind = type(words[0])
            if results or any(type(word) is not kind for word in words):
                raise self._disagreement(words, len(results))
            replies = self._answers[kind](words, purpose)

    def publish(self, agent: int, letter: FloatArray) -> None:
        """Put a letter where others can `Ask` for it."""
        self._published[agent] = sealed(np.array(letter))

    # -- one answer per word ------------------------------------------------------------------------------------------

    def _sum(self, words: Sequence[Sum], purpose: str) -> Sequence[FloatArray]:
        letters = [word.x for word in words]
        first = letters[0]
        self._same_shape("Sum", letters)
        if self.network.server:
            # The server adds in the order of the agents, as every engine's does.
            total = first.copy() if len(letters) == 1 else first + letters[1]
            for letter in letters[2:]:
                total += letter
        else:
            total = self._tree_sum(letters)
        self._finite("Sum", total, letters)
        self.bill.say(purpose, "Sum", first.size, first.itemsize)
        sealed(total)
        return [total] * len(words)

    def _tree_sum(self, letters: Sequence[FloatArray]) -> FloatArray:
        # Each agent adds its children's sums, the last child first; deeper agents have done so before.
        partial: dict[int, FloatArray] = {}
        for child, parent in self._upwards:
            below = partial.pop(child, letters[child])
            if parent in partial:
                partial[parent] += below
            else:
                partial[parent] = letters[parent] + below
        return partial.get(self._root, np.array(letters[self._root]))

    def _mix(self, words: Sequence[Mix], purpose: str) -> Sequence[FloatArray]:
        self._needs_edges("Mix")
        letters = [word.x for word in words]
        first, rule = letters[0], words[0].rule
        self._same_shape("Mix", letters)
        if not all(word.rule is rule or _same_rule(word.rule, rule) for word in words):
            raise ProtocolError("the agents asked for different mixing rules at the same step.")
        if self._stack.shape != (len(letters), first.size) or self._stack.dtype != first.dtype:
            self._stack = np.empty((len(letters), first.size), first.dtype)
        np.concatenate([letter.reshape(-1) for letter in letters], out=self._stack.reshape(-1))
        mixed = self._matrix(rule, first.dtype) @ self._stack
        self._finite("Mix", mixed, letters)
        self.bill.say(purpose, "Mix", first.size, first.itemsize)
        sealed(mixed)
        return list(mixed) if first.ndim == 1 else [row.reshape(first.shape) for row in mixed]

    def _exchange(self, words: Sequence[Exchange], purpose: str) -> Sequence[dict[int, FloatArray]]:
        self._needs_edges("Exchange")
        letters = [sealed(np.array(word.x)) for word in words]
        for letter in letters:
            self._finite("Exchange", letter, letters)
        sizes = {(letter.size, letter.itemsize) for letter in letters}
        if len(sizes) == 1:
            self.bill.say(purpose, "Exchange", *sizes.pop())
        else:
            for agent, letter in enumerate(letters):
                links = len(self.network.neighbours(agent))
                bits = 8 * letter.itemsize * letter.size
                self.bill.send(purpose, "Exchange", agent, links, links * letter.size, links * bits)
        return [{j: letters[j] for j in self.network.neighbours(agent)} for agent in range(len(words))]

    def _ask(self, words: Sequence[Ask], purpose: str) -> Sequence[dict[int, FloatArray]]:
        answers = []
        for word in words:
            answer = {peer: self._published[peer] for peer in word.peers if peer in self._published}
            for peer, letter in answer.items():
                self.bill.send(purpose, "Ask", peer, 1, letter.size, 8 * letter.itemsize * letter.size)
            answers.append(answer)
        return answers

    # -- checks -------------------------------------------------------------------------------------------------------

    def _same_shape(self, word: str, letters: Sequence[FloatArray]) -> None:
        shape, dtype = letters[0].shape, letters[0].dtype
        for agent, letter in enumerate(letters):
            if letter.shape != shape or letter.dtype != dtype:
                raise ProtocolError(
                    f"{word}: {self.names[0]} sent {dtype}{shape} and {self.names[agent]} sent "
                    f"{letter.dtype}{letter.shape} at the same step."
                )

    def _finite(self, word: str, result: FloatArray, letters: Sequence[FloatArray]) -> None:
        flat = result.reshape(-1)
        # ‖x‖² is finite unless an entry is not, or is huge: one pass, and a closer look only in doubt.
        if np.isfinite(np.vdot(flat, flat)) or np.isfinite(flat).all():
            return
        for name, letter in zip(self.names, letters, strict=True):
            if bad := int(np.size(letter) - np.isfinite(letter).sum()):
                raise NumericalError(f"{name} said {word} with {bad} of {letter.size} numbers not finite.")
        raise NumericalError(f"{word}: the numbers of all agents are finite, but their sum is not.")

    def _needs_edges(self, word: str) -> None:
        if self.network.server:
            raise InvalidNetwork(f"{word} needs agents that talk to each other, but all of them talk to a server only.")

    def _matrix(self, rule: str | Matrix, dtype: Any) -> Matrix:
        key = (rule if isinstance(rule, str) else id(rule), dtype)
        if key not in self._matrices:
            matrix = sp.csr_array(self.network.mixing(rule)).astype(dtype)
            dense = matrix.nnz > DENSE_ABOVE * matrix.shape[0] ** 2
            # The rule is kept beside its matrix, so that its id stays its own.
            self._matrices[key] = rule, matrix.toarray() if dense else matrix
        return self._matrices[key][1]

    def _disagreement(self, words: Sequence[Word], finished: int) -> ProtocolError:
        if finished:
            return ProtocolError(
                f"{finished} of {finished + len(words)} agents ended their round while another said {_name(words[0])}."
            )
        other = next(agent for agent, word in enumerate(words) if type(word) is not type(words[0]))
        one, two = f"{self.names[0]} said {_name(words[0])}", f"{self.names[other]} said {_name(words[other])}"
        return ProtocolError(f"at the same step {one} and {two}.")


def _same_rule(one: str | Matrix, other: str | Matrix) -> bool:
    if isinstance(one, str) or isinstance(other, str):
        return isinstance(one, str) and isinstance(other, str) and one == other
    return digest(one) == digest(other)


def _name(word: Word) -> str:
    return type(word).__name__
