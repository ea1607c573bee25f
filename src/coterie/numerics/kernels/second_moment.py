"""Weighted second moments Σ_i s_i x_i x_iᵀ of sparse or dense rows, on some of the columns."""

from __future__ import annotations

from typing import Any

import numpy as np

from coterie.numerics.kernels.compiled import compiled


@compiled
def add_second_moment(
    data: Any, indices: Any, indptr: Any, weights: Any, place: Any, moment: Any
) -> None:
    """Add Σ_i s_i x_i x_iᵀ to the upper triangle of `moment`. Column j has index `place[j]` there;
    −1 leaves it out.
    """
    longest = 0
    for i in range(weights.size):
        longest = max(longest, indptr[i + 1] - indptr[i])
    # Unsigned subscripts: signed ones are checked for counting from the end, which costs half the
    # speed.
    values = np.empty(longest)
    at = np.empty(longest, np.uint64)
    for i in range(weights.size):
        if weights[i] == 0.0:
            continue
        count = np.uint64(0)
        for p in range(np.uint64(indptr[i]), np.uint64(indptr[i + 1])):
            column = place[np.uint64(indices[p])]
            if column >= 0:
                values[count] = data[p]
                at[count] = np.uint64(column)
                count += np.uint64(1)
        for p in range(np.uint64(0), count):
            scaled = weights[i] * values[p]
            row = at[p]
            for q in range(p, count):
                column_q = at[q]
                if row <= column_q:
                    moment[row, column_q] += scaled * values[q]
                else:
                    moment[column_q, row] += scaled * values[q]


@compiled
def add_dense_moment(
    X: Any, centre: Any, noise: float, unit: float, intercept: bool, weights: Any, triangle: Any
) -> None:
    """Add the upper triangle of Σ_i s_i z_i z_iᵀ, row by row, to the beginning of `triangle`, for a
    few dense rows.

    z is x − c, followed by `unit` with an intercept. An entry of x − c that is at most `noise`
    times c counts as 0.
    """
    n, d = X.shape
    z = np.empty(d + intercept)
    if intercept:
        z[d] = unit
    for i in range(n):
        if weights[i] == 0.0:
            continue
        for j in range(d):
            difference = X[i, j] - centre[j]
            if abs(difference) <= noise * abs(centre[j]):
                difference = 0.0
            z[j] = difference
        place = 0
        for j in range(z.size):
            scaled = weights[i] * z[j]
            for k in range(j, z.size):
                triangle[place] += scaled * z[k]
                place += 1


@compiled
def add_dense_moments(
    X: Any, centre: Any, noise: float, unit: float, intercept: bool, weights: Any, triangles: Any
) -> None:
    """Call `add_dense_moment` for each matrix of a stack."""
    for k in range(X.shape[0]):
        add_dense_moment(X[k], centre, noise, unit, intercept, weights[k], triangles[k])


@compiled
def add_squares(data: Any, indices: Any, indptr: Any, weights: Any, squares: Any) -> None:
    """Add Σ_i s_i x_i∘x_i to `squares`."""
    for i in range(weights.size):
        for p in range(indptr[i], indptr[i + 1]):
            squares[indices[p]] += weights[i] * data[p] * data[p]


@compiled
def pack(moment: Any, message: Any) -> None:
    """Write the upper triangle, row by row, to the beginning of `message`."""
    d = moment.shape[0]
    start = 0
    for i in range(d):
        row = moment[i, i:]
        part = message[start : start + d - i]
        for j in range(np.uint64(d - i)):
            part[j] = row[j]
        start += d - i


@compiled
def unpack(message: Any, matrix: Any) -> None:
    """Write to `matrix` the symmetric matrix whose upper triangle, row by row, begins `message`."""
    d = matrix.shape[0]
    start = 0
    for i in range(d):
        row = matrix[i, i:]
        column = matrix[i:, i]
        part = message[start : start + d - i]
        for j in range(np.uint64(d - i)):
            row[j] = column[j] = part[j]
        start += d - i
