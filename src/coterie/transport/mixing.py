"""The matrices of a `Mix`, in the form that suits the messages, and the rows of them that one process needs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from coterie.arrays import FloatArray, Matrix
from coterie.networks import Network

DENSE_ABOVE = 0.2
"""A mixing matrix with a larger share of non-zeros is multiplied by BLAS, one below it as a sparse matrix."""
LONG, DENSE_ABOVE_IF_LONG = 4096, 0.4
"""The same for messages of that length or more. Rows of a sparse product are the same bits, whoever computes them, and
a process then computes only its own; for shorter messages that is not worth scipy's overhead."""
MIXED_AT_ONCE = 1 << 18
"""How many numbers a `Mix` puts side by side: not all of long messages, which would be one more of them per agent."""
EVEN_FROM = 16
"""From so many agents on, a `Mix` that weighs everybody else alike is made from the sum of all messages."""
WHOLE_PRODUCT = 64
"""Up to so many agents a dense `Mix` is the whole product, absent messages being 0: the same bits as in process."""


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


class Operator(NamedTuple):
    """A part of a mixing matrix: which messages it takes, and which rows of the product are wanted."""

    matrix: Matrix
    agents: Sequence[int]
    """Whose messages it takes, in that order; those that are not at hand count as 0."""
    wanted: npt.NDArray[np.intp] | slice


class Mixing:
    """The operators of one process, each made once."""

    def __init__(self, network: Network, here: Sequence[int], at_hand: Sequence[int]):
        self.network, self.here, self.at_hand = network, here, at_hand
        self._stack: FloatArray = np.empty((0, 0))
        self._operators: dict[tuple[str | int, Any, bool], tuple[str | Matrix, Operator]] = {}

    def operator(self, rule: str | Matrix, dtype: Any, size: int) -> Operator:
        """The rows of a rule's matrix that the agents here want, for messages of that size."""
        key = (rule if isinstance(rule, str) else id(rule), dtype, size >= LONG)
        if key not in self._operators:
            # The rule is kept beside its operator, so that its id stays its own.
            self._operators[key] = rule, self._part(self._matrix(rule, dtype, size >= LONG), size >= LONG)
        return self._operators[key][1]

    def _matrix(self, rule: str | Matrix, dtype: Any, long: bool) -> Matrix:
        matrix = sp.csr_array(self.network.mixing(rule)).astype(dtype)
        if matrix.nnz > (DENSE_ABOVE_IF_LONG if long else DENSE_ABOVE) * matrix.shape[0] ** 2:
            matrix = matrix.toarray()
            return Even(matrix) if Even.fits(matrix) else matrix
        return matrix

    def _part(self, matrix: Matrix, long: bool) -> Operator:
        here, m = np.array(self.here), self.network.agents
        if len(here) == m:
            return Operator(matrix, range(m), slice(None))
        if isinstance(matrix, Even) or (isinstance(matrix, np.ndarray) and m <= WHOLE_PRODUCT):
            # A row of a short product is a view: cheaper, and nothing much is kept alive with it.
            view = not long and here[-1] - here[0] == len(here) - 1
            return Operator(matrix, range(m), slice(here[0], here[-1] + 1) if view else here)
        if isinstance(matrix, np.ndarray):
            return Operator(matrix[here][:, self.at_hand], self.at_hand, slice(None))
        return Operator(_chosen(matrix, here, self.at_hand), self.at_hand, slice(None))

    def product(self, matrix: Matrix, messages: Sequence[FloatArray]) -> FloatArray:
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
            stack = np.stack([message[some] for message in messages], out=self._stack[:, : size - start])
            mixed[:, some] = matrix @ stack
        return mixed


def _chosen(matrix: Matrix, rows: npt.NDArray[np.intp], columns: Sequence[int]) -> Matrix:
    """Some rows of a sparse matrix for messages in that order; each row adds in the order in which it did."""
    part = matrix[rows]
    position = np.zeros(matrix.shape[1], part.indices.dtype)
    position[list(columns)] = np.arange(len(columns))
    return sp.csr_array((part.data, position[part.indices], part.indptr), shape=(len(rows), len(columns)))
