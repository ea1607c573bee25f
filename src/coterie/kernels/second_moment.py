"""X̃ᵀ diag(s) X̃ on some of the columns, by rows of a sparse X: no product is formed that is not needed."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np


@numba.njit(nogil=True, cache=True, error_model="numpy")
def add_second_moment(data: Any, indices: Any, indptr: Any, weights: Any, place: Any, moment: Any) -> None:
    """Add Σ_i s_i x_i x_iᵀ to the upper triangle of `moment`; column j stands at `place[j]`, or, at −1, nowhere."""
    longest = 0
    for i in range(weights.size):
        longest = max(longest, indptr[i + 1] - indptr[i])
    # Unsigned subscripts: signed ones are checked for counting from the end, which costs half the speed.
    values, at = np.empty(longest), np.empty(longest, np.uint64)
    for i in range(weights.size):
        if weights[i] == 0.0:
            continue
        count = np.uint64(0)
        for p in range(np.uint64(indptr[i]), np.uint64(indptr[i + 1])):
            column = place[np.uint64(indices[p])]
            if column >= 0:
                values[count], at[count] = data[p], np.uint64(column)
                count += np.uint64(1)
        for p in range(np.uint64(0), count):
            scaled, row = weights[i] * values[p], at[p]
            for q in range(p, count):
                column_q = at[q]
                if row <= column_q:
                    moment[row, column_q] += scaled * values[q]
                else:
                    moment[column_q, row] += scaled * values[q]


@numba.njit(nogil=True, cache=True, error_model="numpy")
def add_dense_moment(
    X: Any, centre: Any, noise: float, unit: float, intercept: bool, weights: Any, triangle: Any
) -> None:
    """Add the upper triangle of Σ_i s_i z_i z_iᵀ, row by row, to the beginning of `triangle`: for a few dense rows.

    z is x − c, which is rounding up to that share of c, and with an intercept the unit behind it.
    """
    n, d = X.shape
    z = np.empty(d + intercept)
    if intercept:
        z[d] = unit
    for i in range(n):
        if weights[i] == 0.0:
            continue
        for j in range(d):
            beside = X[i, j] - centre[j]
            z[j] = 0.0 if abs(beside) <= noise * abs(centre[j]) else beside
        place = 0
        for j in range(z.size):
            scaled = weights[i] * z[j]
            for k in range(j, z.size):
                triangle[place] += scaled * z[k]
                place += 1


@numba.njit(nogil=True, cache=True, error_model="numpy")
def add_dense_moments(
    X: Any, centre: Any, noise: float, unit: float, intercept: bool, weights: Any, triangles: Any
) -> None:
    """The same for each of a stack of such rows."""
    for k in range(X.shape[0]):
        add_dense_moment(X[k], centre, noise, unit, intercept, weights[k], triangles[k])


@numba.njit(nogil=True, cache=True, error_model="numpy")
def add_squares(data: Any, indices: Any, indptr: Any, weights: Any, squares: Any) -> None:
    """Add Σ_i s_i x_i∘x_i to `squares`."""
    for i in range(weights.size):
        for p in range(indptr[i], indptr[i + 1]):
            squares[indices[p]] += weights[i] * data[p] * data[p]


@numba.njit(nogil=True, cache=True, error_model="numpy")
def pack(moment: Any, message: Any) -> None:
    """Write the upper triangle, row by row, to the beginning of `message`."""
    d, start = moment.shape[0], 0
    for i in range(d):
        row, part = moment[i, i:], message[start : start + d - i]
        for j in range(np.uint64(d - i)):
            part[j] = row[j]
        start += d - i


@numba.njit(nogil=True, cache=True, error_model="numpy")
def unpack(message: Any, matrix: Any) -> None:
    """Make the symmetric `matrix` whose upper triangle stands, row by row, at the beginning of `message`."""
    d, start = matrix.shape[0], 0
    for i in range(d):
        row, column, part = matrix[i, i:], matrix[i:, i], message[start : start + d - i]
        for j in range(np.uint64(d - i)):
            row[j] = column[j] = part[j]
        start += d - i
