"""Products of a matrix and a vector: a sparse matrix in compressed rows, or a dense one in single
precision.

For a matrix in compressed columns, use the other sparse function: its arrays are those of the
transpose in compressed rows. Both compute the same sums in the same order as scipy, without scipy's
checks, which take longer than the product of a short matrix. If all entries are 1, `data` is empty
and not read, and a product takes half the time.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from coterie.numerics.kernels.compiled import compiled

# Unsigned subscripts: signed ones are checked for counting from the end.


@compiled
def add_by_rows(data: Any, indices: Any, indptr: Any, vector: Any, result: Any) -> None:
    """result ← result + X vector, for X in compressed rows."""
    ones = data.size == 0
    for i in range(result.size):
        total = result[i]
        first = np.uint64(indptr[i])
        last = np.uint64(indptr[i + 1])
        if ones:
            for k in range(first, last):
                total += vector[np.uint64(indices[k])]
        else:
            for k in range(first, last):
                total += data[k] * vector[np.uint64(indices[k])]
        result[i] = total


@compiled
def add_by_columns(data: Any, indices: Any, indptr: Any, vector: Any, result: Any) -> None:
    """result ← result + Xᵀ vector, for X in compressed rows."""
    ones = data.size == 0
    for i in range(vector.size):
        factor = vector[i]
        first = np.uint64(indptr[i])
        last = np.uint64(indptr[i + 1])
        if ones:
            for k in range(first, last):
                result[np.uint64(indices[k])] += factor
        else:
            for k in range(first, last):
                result[np.uint64(indices[k])] += data[k] * factor


# Dense rows in single precision and a vector in double precision: entries are widened as they are
# read. A product takes as long as reading X, and less than one in single precision. Sums along a
# row may be taken in any order.


@numba.njit(nogil=True, cache=True, error_model="numpy", fastmath={"reassoc", "contract", "nsz"})
def widened_rows(X: Any, vector: Any, result: Any) -> None:
    """result ← X vector."""
    for i in range(X.shape[0]):
        total = 0.0
        for j in range(X.shape[1]):
            total += X[i, j] * vector[j]
        result[i] = total


@numba.njit(nogil=True, cache=True, error_model="numpy", fastmath={"contract"})
def widened_columns(X: Any, vector: Any, rows: int, result: Any) -> None:
    """result ← result + Xᵀ vector, in blocks of `rows` rows: rounding errors grow with the number
    of blocks, not of rows.
    """
    n, d = X.shape
    part = np.empty(d)
    for start in range(0, n, rows):
        part[:] = 0.0
        for i in range(start, min(start + rows, n)):
            factor = vector[i]
            for j in range(d):
                part[j] += X[i, j] * factor
        for j in range(d):
            result[j] += part[j]


@numba.njit(nogil=True, cache=True, error_model="numpy", fastmath={"contract"})
def widened_squares(X: Any, rows: int, result: Any) -> None:
    """result ← result + Σ_i x_i∘x_i, in blocks of `rows` rows."""
    n, d = X.shape
    part = np.empty(d)
    for start in range(0, n, rows):
        part[:] = 0.0
        for i in range(start, min(start + rows, n)):
            for j in range(d):
                x = np.float64(X[i, j])
                part[j] += x * x
        for j in range(d):
            result[j] += part[j]
