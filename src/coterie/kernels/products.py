"""Products of a sparse matrix, in compressed rows, and a vector; of compressed columns they are each other's transpose.

The same sums in the same order as scipy's, without its checks, which take longer than the product of a short matrix.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

__all__ = ["add_by_columns", "add_by_rows"]


@numba.njit(nogil=True, cache=True, error_model="numpy")
def add_by_rows(data: Any, indices: Any, indptr: Any, vector: Any, result: Any) -> None:
    """result ← result + X vector, for the X with these rows."""
    # Unsigned subscripts: signed ones are checked for counting from the end.
    for i in range(result.size):
        total = result[i]
        for k in range(np.uint64(indptr[i]), np.uint64(indptr[i + 1])):
            total += data[k] * vector[np.uint64(indices[k])]
        result[i] = total


@numba.njit(nogil=True, cache=True, error_model="numpy")
def add_by_columns(data: Any, indices: Any, indptr: Any, vector: Any, result: Any) -> None:
    """result ← result + Xᵀ vector, for the X with these rows."""
    for i in range(vector.size):
        share = vector[i]
        for k in range(np.uint64(indptr[i]), np.uint64(indptr[i + 1])):
            result[np.uint64(indices[k])] += data[k] * share
