"""Solve linear equations with many small positive definite matrices; calls of LAPACK would take
longer.
"""

from __future__ import annotations

import math
from typing import Any

from coterie.numerics.kernels.compiled import compiled


@compiled
def solve_positive(matrices: Any, vectors: Any) -> int:
    """Replace each vector b by A⁻¹b, with Cholesky factors. Reads the upper triangle of each A,
    overwrites the lower one.

    Returns the index of the first A that is not positive definite, −1 if all are.
    """
    for m in range(matrices.shape[0]):
        A, b = matrices[m], vectors[m]
        d = b.size
        for j in range(d):
            # L is stored below the diagonal and on it.
            for k in range(j):
                A[j, k] = A[k, j]
            for k in range(j):
                total = A[j, k]
                for i in range(k):
                    total -= A[j, i] * A[k, i]
                A[j, k] = total / A[k, k]
            total = A[j, j]
            for i in range(j):
                total -= A[j, i] * A[j, i]
            if not total > 0.0:
                return m
            A[j, j] = math.sqrt(total)
        for j in range(d):
            total = b[j]
            for i in range(j):
                total -= A[j, i] * b[i]
            b[j] = total / A[j, j]
        for j in range(d - 1, -1, -1):
            total = b[j]
            for i in range(j + 1, d):
                total -= A[i, j] * b[i]
            b[j] = total / A[j, j]
    return -1
