"""Matrices of a `Mix`: dense or sparse, depending on the messages. A process computes only the rows
that its agents need.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from coterie.networks import Network
from coterie.numerics.arrays import FloatArray, Matrix

DENSE_ABOVE = 0.2
"""Fraction of nonzero entries above which a mixing matrix is multiplied as a dense matrix."""
LONG, DENSE_ABOVE_IF_LONG = 4096, 0.4
"""For messages of `LONG` numbers or more, `DENSE_ABOVE_IF_LONG` replaces `DENSE_ABOVE`. A row of a
sparse product has the same bits in every process, so a process computes only its own rows. Short
messages do not justify scipy's overhead.
"""
MIXED_AT_ONCE = 1 << 18
"""Largest number of entries that a `Mix` copies into one matrix at a time. This needs less memory
than a copy of all long messages.
"""
EVEN_FROM = 16
"""Smallest number of agents for which a `Mix` with equal weights is computed from the sum of all
messages.
"""
WHOLE_PRODUCT = 64
"""Largest number of agents for which a process computes a dense `Mix` as a whole, with 0 for absent
messages. Its rows then have the same bits as with all agents in one process.
"""


class Even:
    """The matrix c 11ᵀ + diag(own) of a complete graph with equal weights. It saves m² n additions
    in a product.
    """

    def __init__(self, matrix: FloatArray):
        self.common = matrix[0, 1]
        self.shape = matrix.shape
        self.own = (matrix.diagonal() - self.common)[:, np.newaxis]

    def __matmul__(self, stack: FloatArray) -> FloatArray:
        mixed: FloatArray = stack * self.own
        mixed += self.common * stack.sum(axis=0)
        return mixed

    @staticmethod
    def fits(matrix: FloatArray) -> bool:
        """Return whether all off-diagonal entries are equal and there are at least `EVEN_FROM`
        agents.
        """
        m = len(matrix)
        return m >= EVEN_FROM and bool((matrix[~np.eye(m, dtype=bool)] == matrix[0, 1]).all())


class Operator(NamedTuple):
    """A part of a mixing matrix: the messages that it multiplies, and the rows of the product to
    keep.
    """

    matrix: Matrix
    agents: Sequence[int]
    """The agents whose messages the matrix multiplies, in this order. Absent messages count as 0.
    """
    wanted: npt.NDArray[np.intp] | slice


class Mixing:
    """The operators of one process. Each operator is computed once."""

    def __init__(self, network: Network, local: Sequence[int], at_hand: Sequence[int]):
        self.network = network
        self.local = local
        self.at_hand = at_hand
        self._stack: FloatArray = np.empty((0, 0))
        self._operators: dict[tuple[str | int, Any, bool], tuple[str | Matrix, Operator]] = {}

    def operator(self, rule: str | Matrix, dtype: Any, size: int) -> Operator:
        """Return the operator for a mixing rule. It gives the rows of this process's agents, for
        messages of `size` numbers.
        """
        long = size >= LONG
        identity = rule if isinstance(rule, str) else id(rule)
        key = (identity, dtype, long)
        if key not in self._operators:
            # The cache keeps the rule with its operator. While the rule exists, no other object has
            # its id.
            matrix = self._matrix(rule, dtype, long)
            self._operators[key] = rule, self._part(matrix, long)
        return self._operators[key][1]

    def _matrix(self, rule: str | Matrix, dtype: Any, long: bool) -> Matrix:
        matrix = sp.csr_array(self.network.mixing(rule)).astype(dtype)
        share = DENSE_ABOVE_IF_LONG if long else DENSE_ABOVE
        if matrix.nnz > share * matrix.shape[0] ** 2:
            matrix = matrix.toarray()
            if Even.fits(matrix):
                return Even(matrix)
            return matrix
        return matrix

    def _part(self, matrix: Matrix, long: bool) -> Operator:
        local = np.array(self.local)
        m = self.network.agents
        if len(local) == m:
            return Operator(matrix, range(m), slice(None))
        if isinstance(matrix, Even) or (isinstance(matrix, np.ndarray) and m <= WHOLE_PRODUCT):
            # For short messages, take a view. It costs less, and the product that stays in memory
            # is small.
            wanted: npt.NDArray[np.intp] | slice = local
            if not long and local[-1] - local[0] == len(local) - 1:
                wanted = slice(local[0], local[-1] + 1)
            return Operator(matrix, range(m), wanted)
        if isinstance(matrix, np.ndarray):
            return Operator(matrix[local][:, self.at_hand], self.at_hand, slice(None))
        return Operator(_chosen(matrix, local, self.at_hand), self.at_hand, slice(None))

    def product(self, matrix: Matrix, messages: Sequence[FloatArray]) -> FloatArray:
        """Return the product of the matrix and the stacked messages, one message per row."""
        agents = len(messages)
        size = messages[0].size
        dtype = messages[0].dtype
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
            stack = np.stack(
                [message[some] for message in messages], out=self._stack[:, : size - start]
            )
            mixed[:, some] = matrix @ stack
        return mixed


def _chosen(matrix: Matrix, rows: npt.NDArray[np.intp], columns: Sequence[int]) -> Matrix:
    """Return the chosen rows of a sparse matrix, with columns in the order of the messages.

    The entries of each row are added in the same order as before.
    """
    part = matrix[rows]
    position = np.zeros(matrix.shape[1], part.indices.dtype)
    position[list(columns)] = np.arange(len(columns))
    return sp.csr_array(
        (part.data, position[part.indices], part.indptr), shape=(len(rows), len(columns))
    )
