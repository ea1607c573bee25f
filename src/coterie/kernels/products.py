"""Products of a matrix and a vector: of a sparse one in compressed rows, and of a dense one in single precision.

Of compressed columns, the sparse ones are each other's transpose. They are the same sums in the same order as scipy's,
without its checks, which take longer than the product of a short matrix. Where all numbers are 1 they are not read:
`data` is then empty, and a product takes half the time.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

# Unsigned subscripts: signed ones are checked for counting from the end.


@numba.njit(nogil=True, cache=True, error_model="numpy")
def add_by_rows(data: Any, indices: Any, indptr: Any, vector: Any, result: Any) -> None:
    """result ← result + X vector, for the X with these rows."""
    ones = data.size == 0
    for i in range(result.size):
        total, first, last = result[i], np.uint64(indptr[i]), np.uint64(indptr[i + 1])
        if ones:
            for k in range(first, last):
                total += vector[np.uint64(indices[k])]
        else:
            for k in range(first, last):
                total += data[k] * vector[np.uint64(indices[k])]
        result[i] = total


@numba.njit(nogil=True, cache=True, error_model="numpy")
def add_by_columns(data: Any, indices: Any, indptr: Any, vector: Any, result: Any) -> None:
    """result ← result + Xᵀ vector, for the X with these rows."""
    ones = data.size == 0
    for i in range(vector.size):
        share, first, last = vector[i], np.uint64(indptr[i]), np.uint64(indptr[i + 1])
        if ones:
            for k in range(first, last):
                result[np.uint64(indices[k])] += share
        else:
            for k in range(first, last):
                result[np.uint64(indices[k])] += data[k] * share


# Dense rows in single precision and a vector in double: widened as they are read, so that a product takes as long as
# reading them does, and less than one in single precision. Sums along a row may be made in any order.


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
    """result ← result + Xᵀ vector, so many rows at a time: rounding grows with the blocks, not the rows."""
    n, d = X.shape
    part = np.empty(d)
    for start in range(0, n, rows):
        part[:] = 0.0
        for i in range(start, min(start + rows, n)):
            share = vector[i]
            for j in range(d):
                part[j] += X[i, j] * share
        for j in range(d):
            result[j] += part[j]


@numba.njit(nogil=True, cache=True, error_model="numpy", fastmath={"contract"})
def widened_squares(X: Any, rows: int, result: Any) -> None:
    """result ← result + Σ_i x_i∘x_i, so many rows at a time."""
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
