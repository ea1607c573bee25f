"""Products of a sparse matrix, in compressed rows, and a vector; of compressed columns they are each other's transpose.

The same sums in the same order as scipy's, without its checks, which take longer than the product of a short matrix.
Where all numbers are 1 they are not read: `data` is then empty, and a product takes half the time.
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
