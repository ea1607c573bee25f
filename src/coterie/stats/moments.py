"""Second moments of the columns, X̃ᵀ diag(s) X̃, as agents compute and say them: whole, some
columns, or the diagonal.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from coterie.numerics.arrays import (
    PIECE,
    PIECES,
    CentredDesign,
    Design,
    FloatArray,
    is_sparse,
    is_tensor,
)
from coterie.numerics.kernels import tensors
from coterie.numerics.kernels.gram import add_gram
from coterie.numerics.kernels.second_moment import (
    add_dense_moment,
    add_dense_moments,
    add_second_moment,
    add_squares,
    pack,
    unpack,
)
from coterie.numerics.local_loss import BatchDesign
from coterie.numerics.threads import spread

BLOCK = 1 << 17
"""Numbers of a dense X that are weighted at a time."""
FEW = 1 << 14
"""Products up to which dense rows are multiplied out without BLAS: it would take longer to call."""
LEAST_SINGLE = 1e-30
"""Squares that are smaller lose digits in single precision."""
NOISE = 1e-12
"""What is left of a column beside its mean, below this share of it, is rounding: the column is
constant.
"""


def second_moment(
    design: Design,
    weights: FloatArray | None,
    columns: npt.NDArray[np.intp] | None = None,
    single: bool = False,
) -> FloatArray:
    """The upper triangle of X̃ᵀ diag(weights) X̃ in float64, or only that of those columns of X̃,
    in ascending order.

    What is below it does not count: see `symmetric`. X̃ may be centred. Weights may be negative:
    differences of curvatures are. Where single precision is enough, dense rows are multiplied out
    in half the time.
    """
    n, width = design.shape
    chosen = np.arange(width) if columns is None else columns
    scale = np.ones(n) if weights is None else weights.astype(float, copy=False)
    local = chosen[:-1] if design.intercept and len(chosen) and chosen[-1] == width - 1 else chosen
    d, centre = len(local), design.centre[local] if isinstance(design, CentredDesign) else None
    sums = design.adjoint(scale)[local] if d < len(chosen) or centre is not None else np.empty(0)
    sparse = is_sparse(design.X)
    if not sparse:
        dense = _dense_moment(design.X, None if columns is None else local, scale, centre, single)
        if d == len(chosen):
            return dense
    moment = np.zeros((len(chosen), len(chosen)))
    if sparse:
        X, place = design.X.tocsr(), local
        if columns is not None:
            place = np.full(design.X.shape[1], -1)
            place[local] = np.arange(d)
        add: Any = add_second_moment
        add(X.data, X.indices, X.indptr, scale, place, moment)
        if centre is not None:
            # Σ s (x − c)(x − c)ᵀ = Σ s x xᵀ − Σ s (x − c) cᵀ − c (Σ s (x − c))ᵀ − (Σ s) c cᵀ
            half, before = (
                np.outer(sums + 0.5 * scale.sum() * centre, centre),
                np.abs(moment.diagonal()[:d]),
            )
            moment[:d, :d] -= np.triu(half + half.T)
            constant = np.flatnonzero(np.abs(moment.diagonal()[:d]) <= NOISE * before)
            moment[constant, :] = moment[:, constant] = 0.0
    else:
        moment[:d, :d] = dense
    if d < len(chosen):
        # The column of the intercept: sums of the others, and of the weights.
        unit = design.unit if isinstance(design, CentredDesign) else 1.0
        moment[:d, d] = unit * sums
        moment[d, d] = unit**2 * scale.sum()
    return moment


def _dense_moment(
    X: FloatArray,
    columns: npt.NDArray[np.intp] | None,
    scale: FloatArray,
    centre: FloatArray | None,
    single: bool,
) -> FloatArray:
    if is_tensor(X):
        moment = tensors.moment(X, columns, scale, centre, NOISE, single)
    else:
        with np.errstate(over="ignore", invalid="ignore"):
            moment = _moment_of_rows(X, columns, scale, centre, np.float32 if single else float)
    lengths = moment.diagonal()
    if single and not (np.isfinite(lengths).all() and (lengths[lengths > 0] > LEAST_SINGLE).all()):
        return _dense_moment(X, columns, scale, centre, single=False)
    return moment


def _moment_of_rows(
    X: FloatArray,
    columns: npt.NDArray[np.intp] | None,
    scale: FloatArray,
    centre: FloatArray | None,
    kind: Any,
) -> FloatArray:
    d = X.shape[1] if columns is None else len(columns)

    def added(
        rows: npt.NDArray[np.intp], sign: float, total: FloatArray | None = None
    ) -> FloatArray:
        total = np.zeros((d, d)) if total is None else total
        height = max(BLOCK // d, 2 * d)
        for part in np.array_split(rows, -(-len(rows) // height)) if len(rows) > height else [rows]:
            # Rows that do not count are left out; where all do, a slice spares a copy.
            some: Any = (
                slice(part[0], part[-1] + 1) if part[-1] - part[0] + 1 == len(part) else part
            )
            A = X[some] if columns is None else X[some][:, columns]
            if centre is not None:
                A = A - centre
                A[np.abs(A) <= NOISE * np.abs(centre)] = 0.0
            shares = sign * scale[some]
            if (shares == 1).all():
                A = A.astype(kind, copy=False)
            else:
                A = np.multiply(A, np.sqrt(shares).astype(kind)[:, None], dtype=kind)
            if kind is float:
                add_gram(A, sign, total)
            else:
                rounded = np.zeros((d, d), kind)
                add_gram(A, sign, rounded)
                total += rounded
        return total

    moment = np.zeros((d, d))
    for sign in (1.0, -1.0):
        rows = np.flatnonzero(scale > 0 if sign > 0 else scale < 0)
        # Pieces for several threads, each longer than wide: their sums are matrices, too.
        count = (
            min(max(len(rows) * d // PIECE, 1), max(len(rows) // (2 * d), 1), PIECES)
            if rows.size and d
            else 0
        )
        if count == 1:
            added(rows, sign, moment)
        elif count:
            pieces = np.array_split(rows, count)
            for part in spread(partial(added, sign=sign), pieces, len(rows) * d / count):
                moment += part
    return moment


def symmetric(moment: FloatArray) -> FloatArray:
    """The matrix whose upper triangle that is."""
    return np.triu(moment) + np.triu(moment, 1).T


def diagonal(design: Design, weights: FloatArray) -> FloatArray:
    """The diagonal of X̃ᵀ diag(weights) X̃."""
    X, squares = design.X, np.zeros((*weights.shape[:-1], design.shape[1]))
    d, base = X.shape[1], design
    if isinstance(design, BatchDesign):
        base = design.base
        squares[:, :d] = (np.square(design.stack).transpose(0, 2, 1) @ weights[:, :, None])[:, :, 0]
    elif is_sparse(X):
        csr = X.tocsr()
        add: Any = add_squares
        add(csr.data, csr.indices, csr.indptr, weights, squares)
    elif is_tensor(X):
        squares[:d] = tensors.squares(X, weights)
    else:
        rows = max(1, BLOCK // max(d, 1))
        for start in range(0, len(weights), rows):
            squares[:d] += (
                np.square(X[start : start + rows], dtype=float).T @ weights[start : start + rows]
            )
    own, weight = squares[..., :d], weights.sum(axis=-1, keepdims=True)
    if isinstance(base, CentredDesign):
        # Σ s (x − c)² = Σ s x² − c (2 Σ s (x − c) + c Σ s)
        before = own.copy()
        own -= base.centre * (2 * design.adjoint(weights)[..., :d] + base.centre * weight)
        own[own <= NOISE * before] = 0.0
    if design.intercept:
        squares[..., d:] = weight * (base.unit**2 if isinstance(base, CentredDesign) else 1.0)
    return squares


def moment_message(
    design: Design, weights: FloatArray, single: bool, *more: FloatArray
) -> FloatArray:
    """A message: the upper triangle of `second_moment`, row by row, and then more numbers."""
    if isinstance(design, BatchDesign):
        return _moment_messages(design, weights, single, *more)
    (n, width), X = design.shape, design.X
    if (
        n * width * width > FEW
        or type(X) is not np.ndarray
        or type(design) not in (Design, CentredDesign)
    ):
        return packed(second_moment(design, weights, single=single), *more)
    centre, unit = np.zeros(X.shape[1]), 1.0
    if isinstance(design, CentredDesign):
        centre, unit = design.centre, design.unit
    triangle = width * (width + 1) // 2
    message = np.zeros(triangle + sum(part.size for part in more))
    add: Any = add_dense_moment
    add(X, centre, NOISE, unit, design.intercept, weights, message)
    for part in more:
        message[triangle : triangle + part.size] = part
        triangle += part.size
    return message


def _moment_messages(
    design: BatchDesign, weights: FloatArray, single: bool, *more: FloatArray
) -> FloatArray:
    """The same for each agent of a cohort."""
    (n, width), base, unit = design.shape, design.base, 1.0
    centre: FloatArray = np.zeros(design.stack.shape[2])
    if n * width * width > FEW:
        parts = zip(weights, *more, strict=True)
        return np.array(
            [moment_message(design.member(k), s, single, *own) for k, (s, *own) in enumerate(parts)]
        )
    centre, unit = (
        (base.centre, base.unit)
        if isinstance(base, CentredDesign)
        else (np.zeros(design.stack.shape[2]), 1.0)
    )
    messages = np.zeros((len(weights), width * (width + 1) // 2))
    add: Any = add_dense_moments
    add(design.stack, centre, NOISE, unit, design.intercept, weights, messages)
    return np.concatenate([messages, *more], axis=1)


def packed(moment: FloatArray, *more: FloatArray) -> FloatArray:
    """A message: the upper triangle, row by row, and then more numbers."""
    triangle = len(moment) * (len(moment) + 1) // 2
    message = np.empty(triangle + sum(part.size for part in more))
    write: Any = pack
    write(moment, message)
    for part in more:
        message[triangle : triangle + part.size] = part
        triangle += part.size
    return message


def unpacked(message: FloatArray, width: int) -> FloatArray:
    """The symmetric matrix of the upper triangle with which that message begins."""
    matrix = np.empty((width, width))
    read: Any = unpack
    read(message, matrix)
    return matrix
