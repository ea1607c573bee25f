"""Compute second moments of columns, X̃ᵀ diag(s) X̃, and pack them into messages.

A moment is of all columns, of some of them, or the diagonal only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import numpy as np
import numpy.typing as npt

from coterie.numerics.arrays import (
    PIECE,
    PIECES,
    CentredDesign,
    Design,
    FarDesign,
    FloatArray,
    is_sparse,
    is_tensor,
)
from coterie.numerics.kernels import tensors
from coterie.numerics.kernels.gram import add_gram, add_grams
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
FEW_OF_THIN = 1 << 16
"""That number where most rows have no weight: BLAS would need a copy of the others."""
LEAST_SINGLE = 1e-30
"""Squares that are smaller lose digits in single precision."""
NOISE = 1e-12
"""A column that differs from its mean by less than this share of the mean is constant: the
difference is rounding.
"""

Places = npt.NDArray[np.intp]


def second_moment(
    design: Design,
    weights: FloatArray | None,
    columns: Places | None = None,
    single: bool = False,
) -> FloatArray:
    """Compute the upper triangle of X̃ᵀ diag(weights) X̃ in float64.

    The entries below the diagonal have no meaning: see `symmetric`.

    Parameters
    ----------
    design : Design
        X̃, which may be centred.
    weights : array, optional
        May be negative, as differences of Hessians are. None: all are 1.
    columns : array, optional
        Only these columns of X̃, in ascending order.
    single : bool, default=False
        Whether single precision is enough: dense rows are then multiplied out in half the time.
    """
    n, width = design.shape
    if weights is None and columns is None and _is_plain(design):
        return _dense_moment(design.X, None, None, None, single)
    chosen = np.arange(width) if columns is None else columns
    scale = weights
    if weights is not None:
        scale = weights.astype(float, copy=False)
    local = _without_intercept(design, chosen)
    centre = None
    if isinstance(design, CentredDesign):
        centre = design.centre[local]
    if is_sparse(design.X):
        return _sparse_moment(design, chosen, local, scale, centre)
    wanted = None if columns is None else local
    dense = _dense_moment(design.X, wanted, scale, centre, single)
    if len(local) == len(chosen):
        return dense
    if scale is None:
        scale = np.ones(n)
    moment = np.zeros((len(chosen), len(chosen)))
    moment[:-1, :-1] = dense
    _add_intercept(design, moment, scale, design.adjoint(scale)[local])
    return moment


def _is_plain(design: Design) -> bool:
    """Whether X̃ is a dense array as it is: not centred, and without an intercept."""
    return type(design.X) is np.ndarray and type(design) is Design and not design.intercept


def _sparse_moment(
    design: Design,
    chosen: Places,
    local: Places,
    scale: FloatArray | None,
    centre: FloatArray | None,
) -> FloatArray:
    """The second moment of sparse rows; `local` are the chosen columns without the intercept's."""
    d = len(local)
    if scale is None:
        scale = np.ones(design.shape[0])
    moment = np.zeros((len(chosen), len(chosen)))
    _add_sparse_moment(design.X, local, scale, moment)
    with_intercept = d < len(chosen)
    if not with_intercept and centre is None:
        return moment
    sums = design.adjoint(scale)[local]
    if centre is not None:
        _centre(moment[:d, :d], sums, scale, centre)
    if with_intercept:
        _add_intercept(design, moment, scale, sums)
    return moment


def _add_intercept(design: Design, moment: FloatArray, scale: FloatArray, sums: FloatArray) -> None:
    """Write the last column, that of the intercept: sums of the others, and of the weights."""
    _, unit = _centre_and_unit(design)
    moment[:-1, -1] = unit * sums
    moment[-1, -1] = unit**2 * scale.sum()


def _without_intercept(design: Design, chosen: Places) -> Places:
    """The chosen columns without that of the intercept, which is the last one of the design."""
    last = design.shape[1] - 1
    if design.intercept and len(chosen) and chosen[-1] == last:
        return chosen[:-1]
    return chosen


def _centre_and_unit(design: Design) -> tuple[FloatArray, float]:
    """The centre of each column, and the entry of the intercept's column."""
    if isinstance(design, CentredDesign):
        return design.centre, design.unit
    return np.zeros(design.X.shape[1]), 1.0


def _add_sparse_moment(X: Any, columns: Places, scale: FloatArray, moment: FloatArray) -> None:
    csr = X.tocsr()
    place = columns
    if len(columns) < X.shape[1]:
        place = np.full(X.shape[1], -1)
        place[columns] = np.arange(len(columns))
    add: Any = add_second_moment
    add(csr.data, csr.indices, csr.indptr, scale, place, moment)


def _centre(moment: FloatArray, sums: FloatArray, scale: FloatArray, centre: FloatArray) -> None:
    """Turn Σ s x xᵀ into Σ s (x − c)(x − c)ᵀ; `sums` are Σ s (x − c)."""
    # Σ s (x − c)(x − c)ᵀ = Σ s x xᵀ − Σ s (x − c) cᵀ − c (Σ s (x − c))ᵀ − (Σ s) c cᵀ
    half = np.outer(sums + 0.5 * scale.sum() * centre, centre)
    before = np.abs(moment.diagonal())
    moment -= np.triu(half + half.T)
    constant = np.flatnonzero(np.abs(moment.diagonal()) <= NOISE * before)
    moment[constant, :] = 0.0
    moment[:, constant] = 0.0


def _dense_moment(
    X: FloatArray,
    columns: Places | None,
    scale: FloatArray | None,
    centre: FloatArray | None,
    single: bool,
) -> FloatArray:
    if is_tensor(X):
        if scale is None:
            scale = np.ones(len(X))
        moment = tensors.moment(X, columns, scale, centre, NOISE, single)
    else:
        rows = _DenseRows(X, columns, scale, centre, np.float32 if single else float)
        with np.errstate(over="ignore", invalid="ignore"):
            moment = rows.moment()
    if not single:
        return moment
    lengths = moment.diagonal()
    finite = np.isfinite(lengths).all()
    if finite and (lengths[lengths > 0] > LEAST_SINGLE).all():
        return moment
    return _dense_moment(X, columns, scale, centre, single=False)


@dataclass(frozen=True)
class _DenseRows:
    """Dense rows to multiply out: Σ s (x − c)(x − c)ᵀ."""

    X: FloatArray
    columns: Places | None
    """The columns that are wanted; None: all."""
    scale: FloatArray | None
    """The weights of the rows; None: all are 1."""
    centre: FloatArray | None
    kind: Any
    """The type of numbers in which products are computed."""

    @property
    def width(self) -> int:
        """The number of columns that are wanted."""
        if self.columns is None:
            return int(self.X.shape[1])
        return len(self.columns)

    def moment(self) -> FloatArray:
        """The sum over all rows."""
        d = self.width
        moment = np.zeros((d, d))
        for sign in (1.0, -1.0):
            rows = self._of_sign(sign)
            count = self._pieces(len(rows))
            if count == 1:
                self._add(rows, sign, moment)
            elif count:
                pieces = np.array_split(rows, count)
                work = len(rows) * d / count
                for part in spread(partial(self._moment_of, sign=sign), pieces, work):
                    moment += part
        return moment

    def _of_sign(self, sign: float) -> Places:
        """The rows whose weights have that sign."""
        if self.scale is not None:
            return np.flatnonzero(sign * self.scale > 0)
        count = 0
        if sign > 0:
            count = len(self.X)
        return np.arange(count)

    def _pieces(self, rows: int) -> int:
        """The number of pieces for several threads, each longer than wide: their sums are matrices,
        too.
        """
        d = self.width
        if not rows or not d:
            return 0
        by_size = max(rows * d // PIECE, 1)
        by_shape = max(rows // (2 * d), 1)
        return min(by_size, by_shape, PIECES)

    def _moment_of(self, rows: Places, sign: float) -> FloatArray:
        total = np.zeros((self.width, self.width))
        self._add(rows, sign, total)
        return total

    def _add(self, rows: Places, sign: float, total: FloatArray) -> None:
        """Add the products of these rows, whose weights have that sign, to the total."""
        d = self.width
        height = max(BLOCK // d, 2 * d)
        blocks = [rows]
        if len(rows) > height:
            blocks = np.array_split(rows, -(-len(rows) // height))
        for block in blocks:
            A = self._weighted(block, sign)
            if self.kind is float:
                add_gram(A, sign, total)
            else:
                rounded = np.zeros((d, d), self.kind)
                add_gram(A, sign, rounded)
                total += rounded

    def _weighted(self, rows: Places, sign: float) -> FloatArray:
        """These rows, centred, times the square roots of their weights."""
        # Rows that do not count are left out; where all do, a slice spares a copy.
        some: Any = rows
        if rows[-1] - rows[0] + 1 == len(rows):
            some = slice(rows[0], rows[-1] + 1)
        A = self.X[some]
        if self.columns is not None:
            A = A[:, self.columns]
        if self.centre is not None:
            A = _centred(A, self.centre)
        weighted: FloatArray
        if self.scale is None:
            weighted = A.astype(self.kind, copy=False)
            return weighted
        shares = sign * self.scale[some]
        if (shares == 1).all():
            weighted = A.astype(self.kind, copy=False)
            return weighted
        roots = np.sqrt(shares).astype(self.kind)
        # A copy of the rows is overwritten: a second one would be given back to the system at once.
        product = None
        if A.dtype == self.kind and not np.may_share_memory(A, self.X):
            product = A
        weighted = np.multiply(A, roots[:, None], out=product, dtype=self.kind)
        return weighted


def _centred(rows: FloatArray, centre: FloatArray) -> FloatArray:
    """Rows about the centre; a difference that is rounding becomes 0."""
    found: FloatArray = rows - centre
    noise = np.abs(found) <= NOISE * np.abs(centre)
    if noise.any():  # seldom, and much faster than to set no entries
        found[noise] = 0.0
    return found


def symmetric(moment: FloatArray) -> FloatArray:
    """The matrix whose upper triangle that is."""
    return np.triu(moment) + np.triu(moment, 1).T


def diagonal(design: Design, weights: FloatArray) -> FloatArray:
    """The diagonal of X̃ᵀ diag(weights) X̃."""
    base = design.base if isinstance(design, BatchDesign) else design
    d = design.X.shape[1]
    squares = np.zeros((*weights.shape[:-1], design.shape[1]))
    own = squares[..., :d]
    weight = weights.sum(axis=-1, keepdims=True)
    if isinstance(base, FarDesign):
        # The sums of squares below would lose all digits of a small spread.
        own[:] = base.squares(weights)
        own[own <= weight * (NOISE * base.centre) ** 2] = 0.0
    else:
        own[:] = _squares(design, weights)
    if isinstance(base, CentredDesign) and not isinstance(base, FarDesign):
        # Σ s (x − c)² = Σ s x² − c (2 Σ s (x − c) + c Σ s)
        before = own.copy()
        sums = design.adjoint(weights)[..., :d]
        own -= base.centre * (2 * sums + base.centre * weight)
        own[own <= NOISE * before] = 0.0
    if design.intercept:
        _, unit = _centre_and_unit(base)
        squares[..., d:] = weight * unit**2
    return squares


def _squares(design: Design, weights: FloatArray) -> FloatArray:
    """Σ s x² of each column that is not centred."""
    if isinstance(design, BatchDesign):
        products: FloatArray = np.square(design.stack).transpose(0, 2, 1) @ weights[:, :, None]
        return products[:, :, 0]
    X = design.X
    squares: FloatArray = np.zeros(X.shape[1])
    if is_tensor(X):
        squares[:] = tensors.squares(X, weights)
        return squares
    if is_sparse(X):
        csr = X.tocsr()
        add: Any = add_squares
        add(csr.data, csr.indices, csr.indptr, weights, squares)
        return squares
    height = max(1, BLOCK // max(len(squares), 1))
    for start in range(0, len(weights), height):
        rows = slice(start, start + height)
        squares += np.square(X[rows], dtype=float).T @ weights[rows]
    return squares


def moment_message(
    design: Design, weights: FloatArray, single: bool, *more: FloatArray, thin: bool = False
) -> FloatArray:
    """A message: the upper triangle of `second_moment`, row by row, and then more numbers.

    `thin`: whether most weights are 0, so that only the other rows take time.
    """
    if isinstance(design, BatchDesign):
        return _moment_messages(design, weights, single, thin, *more)
    X = design.X
    width = design.shape[1]
    plain = type(X) is np.ndarray and type(design) in (Design, CentredDesign)
    if not plain or not _is_few(design, weights, thin):
        return packed(second_moment(design, weights, single=single), *more)
    centre, unit = _centre_and_unit(design)
    triangle = width * (width + 1) // 2
    message = np.zeros(triangle + sum(part.size for part in more))
    add: Any = add_dense_moment
    add(X, centre, NOISE, unit, design.intercept, weights, message)
    _append(message, triangle, more)
    return message


def blas_message(design: Design, weights: FloatArray | None, border: FloatArray) -> FloatArray:
    """A message: the upper triangle of `second_moment`, by BLAS for any number of rows, and then
    more numbers. For a batch, one row for each agent.
    """
    if isinstance(design, BatchDesign):
        return _blas_messages(design, weights, False, border)
    return packed(second_moment(design, weights), border)


def _is_few(design: Design, weights: FloatArray, thin: bool) -> bool:
    """Whether products are so few that BLAS would take longer; for a batch, at each agent."""
    n, width = design.shape
    if not thin:
        return bool(n * width * width <= FEW)
    rows = np.count_nonzero(weights, axis=-1)
    return bool(np.max(rows) * width * width <= FEW_OF_THIN)


def _append(message: FloatArray, start: int, more: Sequence[FloatArray]) -> None:
    """Write more numbers into the message, one part after the other."""
    for part in more:
        end = start + part.size
        message[start:end] = part
        start = end


def _moment_messages(
    design: BatchDesign, weights: FloatArray, single: bool, thin: bool, *more: FloatArray
) -> FloatArray:
    """The messages of all agents of a batch."""
    if not _is_few(design, weights, thin):
        if not thin:
            return _blas_messages(design, weights, single, *more)
        messages = []
        for k, (own_weights, *own_more) in enumerate(zip(weights, *more, strict=True)):
            own = design.member(k)
            messages.append(moment_message(own, own_weights, single, *own_more, thin=True))
        return np.array(messages)
    width = design.shape[1]
    centre, unit = _centre_and_unit(design.base)
    triangles = np.zeros((len(weights), width * (width + 1) // 2))
    add: Any = add_dense_moments
    add(design.stack, centre, NOISE, unit, design.intercept, weights, triangles)
    return np.concatenate([triangles, *more], axis=1)


def _blas_messages(
    design: BatchDesign, weights: FloatArray | None, single: bool, *more: FloatArray
) -> FloatArray:
    """The messages of all agents of a batch, with the bits of `second_moment`."""
    width = design.shape[1]
    if single or (weights is not None and not (weights > 0).all()):
        moments = _moments_one_by_one(design, weights, single)
    else:
        moments = _moments_of_batch(design, weights)
    rows, columns = _triangle(width)
    return np.concatenate([moments[:, rows, columns], *more], axis=1)


def _moments_one_by_one(
    design: BatchDesign, weights: FloatArray | None, single: bool
) -> FloatArray:
    """The upper triangle of each agent's second moment; rows may have any weight."""
    found = []
    for k in range(len(design.stack)):
        own = None
        if weights is not None:
            own = weights[k]
        found.append(second_moment(design.member(k), own, single=single))
    return np.array(found)


def _moments_of_batch(design: BatchDesign, weights: FloatArray | None) -> FloatArray:
    """The upper triangle of each agent's second moment; all rows have positive weights."""
    rows = design.stack
    count, n, d = rows.shape
    if isinstance(design.base, CentredDesign):
        centre = design.base.centre
        rows = _centred(rows, centre)
    if weights is not None:
        rows = rows * np.sqrt(weights)[:, :, None]
    width = design.shape[1]
    moments = np.zeros((count, width, width))
    with np.errstate(over="ignore", invalid="ignore"):
        add_grams(rows, moments)
    if design.intercept:
        if weights is None:
            weights = np.ones((count, n))
        _, unit = _centre_and_unit(design.base)
        moments[:, :d, d] = unit * design.adjoint(weights)[:, :d]
        moments[:, d, d] = unit**2 * weights.sum(axis=1)
    return moments


@lru_cache(maxsize=16)
def _triangle(width: int) -> tuple[Places, Places]:
    """The rows and the columns of an upper triangle, row by row."""
    return np.triu_indices(width)


def packed(moment: FloatArray, *more: FloatArray) -> FloatArray:
    """A message: the upper triangle, row by row, and then more numbers."""
    triangle = len(moment) * (len(moment) + 1) // 2
    message = np.empty(triangle + sum(part.size for part in more))
    write: Any = pack
    write(moment, message)
    _append(message, triangle, more)
    return message


def unpacked(message: FloatArray, width: int) -> FloatArray:
    """The symmetric matrix of the upper triangle with which that message begins."""
    matrix = np.empty((width, width))
    read: Any = unpack
    read(message, matrix)
    return matrix
