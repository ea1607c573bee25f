"""Arrays of the whole package: dense or sparse, never copied to become the other.

A `Design` is a party's data as a linear map w ↦ X w (+ b). Methods and certificates use data only
through it.
"""

from __future__ import annotations

import hashlib
import math
import sys
import weakref
from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import partial
from numbers import Integral, Real
from threading import RLock
from types import CodeType
from typing import Any, TypeAlias, TypeVar, TypeVarTuple, cast

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from coterie.errors import InvalidData, InvalidProblem
from coterie.numerics.kernels import tensors
from coterie.numerics.kernels.products import (
    add_by_columns,
    add_by_rows,
    widened_columns,
    widened_rows,
    widened_squares,
)
from coterie.numerics.threads import spread

T = TypeVar("T")
Ts = TypeVarTuple("Ts")
FloatArray: TypeAlias = npt.NDArray[np.floating[Any]]
Matrix: TypeAlias = Any
"""A dense two-dimensional float array, or a scipy.sparse CSR/CSC matrix or array (scipy has no
common type to name).
"""


def is_sparse(X: object) -> bool:
    """Return whether X is a scipy.sparse matrix or array."""
    return type(X) is not np.ndarray and bool(sp.issparse(X))


def is_tensor(x: object) -> bool:
    """Return whether x is a torch tensor; never imports torch."""
    if type(x) is np.ndarray:
        torch = None
    else:
        torch = sys.modules.get("torch")
    return torch is not None and isinstance(x, torch.Tensor)


def precision_of(X: Matrix) -> np.dtype[Any]:
    """Return the precision of a model of these rows."""
    if is_tensor(X):
        return tensors.dtype_of(X)
    precision: np.dtype[Any] = X.dtype
    return precision


def stored(coefficients: FloatArray, precision: np.dtype[Any]) -> FloatArray:
    """Return coefficients in the precision of the data, unless they have digits beyond it.

    A certificate is about the stored model, so a run that needed double precision is not rounded
    afterwards.
    """
    kept: FloatArray = coefficients.astype(precision)
    if np.array_equal(kept, coefficients, equal_nan=True):
        return kept
    return coefficients.astype(float)


def namespace(x: object) -> Any:
    """Return numpy, or torch for a tensor, so that a formula works on the device of the numbers."""
    if is_tensor(x):
        return sys.modules["torch"]
    return np


def host(x: Any) -> Any:
    """Return a tensor as a numpy array, half precision as float32; anything else unchanged."""
    if not is_tensor(x):
        return x
    if x.is_meta:
        raise InvalidData(
            "a tensor on torch's meta device has a shape and no numbers. Load the numbers first."
        )
    x = x.detach().cpu()
    if x.is_floating_point() and x.element_size() < 4:
        x = x.float()
    return x.numpy()


def sealed(x: FloatArray) -> FloatArray:
    """Make an array read-only and return it: messages do not change."""
    x.flags.writeable = False
    return x


class _Shared:
    """The result of one function for one message; the thread that holds the lock computes it."""

    def __init__(self, code: CodeType, message: weakref.ref[FloatArray], key: object):
        self.code = code
        self.message = message
        self.key = key
        self.lock = RLock()
        self.results: list[Any] = []


_shared: dict[int, _Shared] = {}
"""Results by the identity of the function's code, which the entry keeps alive. Hashing code would
take as long as some results.
"""
_shared_lock = RLock()
"""A thread holds it to look up and to store, never to compute. Reentrant, because garbage
collection may call `_forget`.
"""


def shared_result(
    message: FloatArray, function: Callable[[*Ts], T], *arguments: *Ts, key: object = None
) -> T:
    """Return function(*arguments), computed once for all agents of this process that received this
    array.

    In one process, the reply to a `Sum` is one read-only array for all agents, and so is a result
    that they compute from it. The code of the function identifies the result. The arguments must
    follow from the message, and from the `key` if the same message serves different results.
    Threads that need the same result wait for the first of them, and no other thread waits. So a
    function may ask for other results.
    """
    if message.flags.writeable:
        return function(*arguments)
    code: CodeType = function.__code__
    place = id(code)
    known = _shared.get(place)
    if known is None or known.message() is not message or known.key != key or not known.results:
        with _shared_lock:
            known = _shared.get(place)
            if known is None or known.message() is not message or known.key != key:
                reference = weakref.ref(message, partial(_forget, place))
                known = _shared[place] = _Shared(code, reference, key)
        with known.lock:
            if not known.results:
                known.results.append(function(*arguments))
    result: T = known.results[0]
    return result


def _forget(place: int, message: weakref.ref[FloatArray]) -> None:
    """Drop the result for a message that no longer exists."""
    with _shared_lock:
        if place in _shared and _shared[place].message is message:
            del _shared[place]


def as_number(value: object) -> float:
    """Return the value as a float; NaN, which passes no comparison, if it is not a number."""
    if isinstance(value, Real):
        return float(value)
    return math.nan


def whole_number(name: str, value: object, least: int = 1) -> int:
    """Return a count as an int, or raise an `InvalidProblem` that names it. 2.5, inf and True are
    no counts.
    """
    if isinstance(value, bool) or not isinstance(value, Integral) or value < least:
        raise InvalidProblem(f"{name} must be a whole number from {least}, not {value!r}.")
    return int(value)


def digest(*things: object) -> str:
    """Return the SHA-256 of arrays, sparse matrices, strings and None, with types and shapes,
    independent of memory layout.
    """
    h = hashlib.sha256()
    for thing in things:
        if thing is None:
            _add_text(h, b"none")
        elif isinstance(thing, str):
            _add_text(h, b"text:" + thing.encode())
        elif is_sparse(thing):
            h.update(bytes.fromhex(_sparse_digest(thing)))
        else:
            array = np.ascontiguousarray(host(thing))
            array = array.astype(array.dtype.newbyteorder("<"), copy=False)
            h.update(f"array:{array.dtype.str}:{array.shape}:".encode())
            if array.size:
                h.update(array.data)
    return h.hexdigest()


def _add_text(h: Any, text: bytes) -> None:
    h.update(len(text).to_bytes(8, "little") + text)


def _sparse_digest(matrix: Matrix) -> str:
    if isinstance(matrix, sp.csr_array):
        csr = matrix
    else:
        csr = sp.csr_array(matrix)
    if not csr.has_canonical_format:
        csr = csr.copy()
        csr.sum_duplicates()
    indptr = csr.indptr.astype("<i8")
    indices = csr.indices.astype("<i8")
    return digest("sparse", str(csr.shape), indptr, indices, csr.data)


def product(matrix: Matrix, vector: FloatArray) -> FloatArray:
    """Return matrix @ vector, without a warning about numbers outside both.

    For single precision and few columns, OpenBLAS also multiplies the memory behind its copy of the
    vector, and drops the result. Sometimes that memory holds no number, and numpy reports an
    invalid value.
    """
    result: FloatArray
    if matrix.dtype != np.float32:
        result = matrix @ vector
    else:
        with np.errstate(invalid="ignore"):
            result = matrix @ vector
    return result


WIDENED_ROWS = 4096
"""Rows of single precision that are converted to double precision at a time."""
SUMMED_ROWS = 2048
"""Dense rows are added up in blocks of this size, so that the rounding of a sum grows with the
number of blocks, not of rows.
"""
PIECE = 1 << 20
"""The least size of a piece of dense rows for one thread."""
PIECES = 16
"""The largest number of pieces."""
ROUNDING = 1e-10
"""A column counts as constant if its squares about the mean are below this share of those of the
mean.
"""
FAR = 1e3
"""Columns are far from 0 if a mean is more than this multiple of the spread of its column and of an
average column.
"""


class Design:
    """A data matrix as a linear map, with an optional column of ones that is never stored.

    `forward(w)` is X w, or X w[:-1] + w[-1] with an intercept; `adjoint(v)` its transpose.
    """

    def __init__(self, X: Matrix, intercept: bool = False):
        self.X = X
        self.intercept = intercept
        self.shape: tuple[int, int] = (X.shape[0], X.shape[1] + intercept)
        self._tensor = is_tensor(X)
        self.dtype = precision_of(X)
        self._dense = not is_sparse(X)
        self._by_rows = not self._dense and X.format == "csr"
        self._parts: tuple[npt.NDArray[Any], ...] | None = None
        self._roundings: tuple[int, int] | None = None
        self._cuts: list[slice] | None = None

    def forward(self, w: FloatArray) -> FloatArray:
        """Return X̃ w: one score per row, in the finer of the two precisions."""
        if not self.intercept:
            return self._product(w)
        scores = self._product(w[:-1])
        scores += w[-1]
        return scores

    def scores_on_device(self, w: FloatArray) -> Any:
        """Return `forward` for a tensor X; the scores stay on the device of X."""
        plain = self.plain(w)
        scores = tensors.product(self.X, plain[: self.X.shape[1]])
        if self.intercept:
            return scores + float(plain[-1])
        return scores

    def _product(self, w: FloatArray) -> FloatArray:
        """Return X w."""
        if self._tensor:
            return cast(FloatArray, host(tensors.product(self.X, w)))
        if not w.any():  # every method starts at 0
            return np.zeros(self.shape[0], np.result_type(self.dtype, w.dtype))
        if not self._dense:
            return self._sparse_product(w, self.X.shape[0], self._by_rows)
        widened = self._differs(w)
        if widened and not self.X.flags.c_contiguous:
            return np.concatenate([product(block, w) for block in self._widened_blocks(w)])
        pieces = self._pieces()
        if not widened and len(pieces) == 1:
            return product(self.X, w)
        scores: FloatArray = np.empty(self.shape[0], np.result_type(self.dtype, w.dtype))
        multiply = cast(Any, widened_rows)
        w = np.ascontiguousarray(w)

        def fill(rows: slice) -> None:
            if widened:
                multiply(self.X[rows], w, scores[rows])
            else:
                scores[rows] = product(self.X[rows], w)

        spread(fill, pieces, self.X.size / len(pieces))
        return scores

    def _pieces(self) -> list[slice]:
        """Return slices of dense rows for several threads; they depend on the data alone."""
        if self._cuts is None:
            n = self.shape[0]
            count = min(self.X.size // PIECE, PIECES)
            rows = max(n, 1)
            if count > 1 and self.X.flags.c_contiguous:
                blocks = -(-n // (count * SUMMED_ROWS))
                rows = blocks * SUMMED_ROWS
            starts = range(0, max(n, 1), rows)
            self._cuts = [slice(start, min(start + rows, n)) for start in starts]
        return self._cuts

    def _sparse_product(self, vector: FloatArray, length: int, by_rows: bool) -> FloatArray:
        """Return X or Xᵀ times that vector. scipy's own checks would take longer than a short
        product.
        """
        if self._parts is None:
            data = self.X.data
            if (data == 1).all():
                data = data[:0]
            self._parts = data, self.X.indices, self.X.indptr
        dtype = self.dtype
        if vector.dtype is not dtype:
            dtype = np.result_type(dtype, vector.dtype)
        result: FloatArray = np.zeros(length, dtype)
        add: Any
        if by_rows:
            add = add_by_rows
        else:
            add = add_by_columns
        add(*self._parts, vector, result)
        return result

    def adjoint(self, v: FloatArray) -> FloatArray:
        """Return X̃ᵀ v: one number per column, in the finer of the two precisions."""
        if not self.intercept:
            return self._summed(v)
        result: FloatArray = np.empty(self.shape[1], np.result_type(self.dtype, precision_of(v)))
        result[:-1] = self._summed(v)
        result[-1] = float(v.sum())
        return result

    def _summed(self, v: FloatArray) -> FloatArray:
        """Return Xᵀ v, of dense rows block by block."""
        if self._tensor:
            return tensors.adjoint(self.X, v)
        if not self._dense:
            return self._sparse_product(v, self.X.shape[1], not self._by_rows)
        pieces = self._pieces()
        if len(pieces) == 1:
            return self._sum_of(self.X, v)

        def sum_of_piece(rows: slice) -> FloatArray:
            return self._sum_of(self.X[rows], v[rows])

        first, *others = spread(sum_of_piece, pieces, self.X.size / len(pieces))
        for other in others:
            first += other
        return first

    def _sum_of(self, X: FloatArray, v: FloatArray) -> FloatArray:
        """Return Xᵀ v for some of the rows, converted to double precision if v has it."""
        if self._differs(v):
            result: FloatArray = np.zeros(X.shape[1])
            if X.flags.c_contiguous:
                add: Any = widened_columns
                add(X, np.ascontiguousarray(v), WIDENED_ROWS, result)
                return result
            starts = range(0, len(X), WIDENED_ROWS)
            for start, block in zip(starts, self._widened_blocks(v), strict=True):
                result += product(block.T, v[start : start + len(block)])
            return result
        blocks = len(X) // SUMMED_ROWS
        if blocks < 2 or not X.flags.c_contiguous or self.dtype != np.float64:
            return product(X.T, v)
        whole = blocks * SUMMED_ROWS
        stacked = X[:whole].reshape(blocks, SUMMED_ROWS, -1)
        sums = v[:whole].reshape(blocks, 1, SUMMED_ROWS) @ stacked
        total: FloatArray = sums.sum(axis=(0, 1))
        return total + product(X[whole:].T, v[whole:])

    def _differs(self, vector: FloatArray) -> bool:
        return self._dense and self.dtype.itemsize < vector.dtype.itemsize and self.shape[0] > 0

    def _widened_blocks(self, vector: FloatArray) -> Iterator[FloatArray]:
        """Yield float32 data in float64, a few rows at a time: certificates are exact without a
        second copy of the data.
        """
        for start in range(0, self.shape[0], WIDENED_ROWS):
            yield self.X[start : start + WIDENED_ROWS].astype(vector.dtype)

    @property
    def roundings(self) -> tuple[int, int]:
        """The largest number of roundings of a score and of an entry of the adjoint, in double
        precision.
        """
        if self._roundings is None:
            if self._dense:
                self._roundings = self._dense_roundings()
            else:
                self._roundings = self._sparse_roundings()
        return self._roundings

    def _dense_roundings(self) -> tuple[int, int]:
        n, d = self.shape
        by_blocks = self._tensor or self.dtype != np.float64 or self.X.flags.c_contiguous
        additions = n
        if by_blocks:
            blocks = SUMMED_ROWS + n // SUMMED_ROWS + PIECES
            additions = min(n, WIDENED_ROWS + blocks)
        return d + 2, additions + 2

    def _sparse_roundings(self) -> tuple[int, int]:
        across = int(np.bincount(self.X.indices, minlength=1).max())
        along = int(np.diff(self.X.indptr).max(initial=0))
        if self.X.format == "csr":
            return along + 2, across + 2
        return across + 2, along + 2

    def offset(self, w: FloatArray) -> float:
        """Return the number that w adds to every entry of X w: the intercept of the model."""
        if self.intercept:
            return float(w[-1])
        return 0.0

    def plain(self, w: FloatArray) -> FloatArray:
        """Return the model in the coordinates of the data."""
        return w

    def inner(self, w: FloatArray) -> FloatArray:
        """Return the inverse of `plain`."""
        return w

    def dense(self, rows: slice) -> FloatArray:
        """Return some rows of X̃, in double precision."""
        if is_sparse(self.X):
            X = self.X[rows].toarray()
        else:
            X = host(self.X[rows])
        stored = np.ones((X.shape[0], self.shape[1]))
        stored[:, : X.shape[1]] = X
        return stored

    def squares(self, weights: FloatArray | None = None) -> FloatArray:
        """Return Σ_i s_i x_ij² of every stored column, without the intercept's."""
        result: FloatArray
        if self._tensor:
            result = tensors.squares(self.X, weights)
        elif is_sparse(self.X):
            squares = np.square(self.X.data, dtype=float)
            rows, columns = self._places()
            if weights is None:
                terms = squares
            else:
                terms = squares * weights[rows]
            result = np.bincount(columns, terms, self.X.shape[1]).astype(float, copy=False)
        elif weights is None and self.dtype == np.float32 and self.X.flags.c_contiguous:
            result = np.zeros(self.X.shape[1])
            add = cast(Any, widened_squares)
            add(self.X, WIDENED_ROWS, result)
        elif weights is None:
            result = np.einsum("ij,ij->j", self.X, self.X, dtype=float)
        else:
            result = np.einsum("i,ij,ij->j", weights, self.X, self.X, dtype=float)
        return result

    def _places(self) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        """Return row and column of every stored number of a sparse matrix."""
        along = np.repeat(np.arange(len(self.X.indptr) - 1), np.diff(self.X.indptr))
        across = self.X.indices
        if self.X.format == "csr":
            return along, across
        return across, along

    def squared_lengths(self) -> FloatArray:
        """Return ‖x_j‖² of every column."""
        lengths = np.full(self.shape[1], float(self.shape[0]))
        lengths[: self.X.shape[1]] = self.squares()
        return lengths.astype(self.dtype, copy=False)

    def squared_norm(
        self,
        scale: FloatArray | None = None,
        tolerance: float = 1e-4,
        columns: FloatArray | float = 1.0,
    ) -> float:
        """Return ‖diag(scale)^½ X̃ diag(columns)‖² by Lanczos's method, rounded up by the tolerance
        to a bound.
        """
        n, d = self.shape
        if n == 0 or d == 0:
            return 0.0
        weight: FloatArray
        if scale is None:
            weight = np.ones(n)
        else:
            weight = scale
        vector = np.random.default_rng(0).standard_normal(d)
        vector /= np.linalg.norm(vector)
        previous = np.zeros(d)
        beta = 0.0
        diagonal: list[float] = []
        off: list[float] = []
        estimate = 0.0
        # Lanczos on C X̃ᵀ S X̃ C: the largest Ritz value grows to λmax, in far fewer products than
        # power iteration.
        for step in range(min(d, 100)):
            scores = weight * self.forward(columns * vector)
            residual = columns * self.adjoint(scores).astype(float) - beta * previous
            alpha = float(residual @ vector)
            residual -= alpha * vector
            diagonal.append(alpha)
            tridiagonal = np.diag(diagonal) + np.diag(off, 1) + np.diag(off, -1)
            top = float(np.linalg.eigvalsh(tridiagonal)[-1])
            beta = float(np.linalg.norm(residual))
            has_settled = step >= 3 and top - estimate <= 0.1 * tolerance * top
            estimate = top
            if beta <= 1e-12 * max(top, 1e-300) or has_settled:
                break
            off.append(beta)
            previous = vector
            vector = residual / beta
        return estimate * (1 + tolerance)


class CentredDesign(Design):
    """[X − 1cᵀ, u·1] in place of [X, 1], never stored. With an intercept, both have the same
    scores.

    Columns with a mean far from 0 are nearly parallel to the column of ones, and a column of ones
    in another unit than X is as bad: first-order methods are then slow. With c the mean of the
    columns and u their spread, neither matters. `offset` and `plain` convert back: a model (w, β)
    of this design is (w, uβ − c·w) of the data. Parties that hold only some of the columns have no
    intercept of their own; then c·w belongs to the intercept of another party.
    """

    def __init__(self, X: Matrix, intercept: bool, centre: FloatArray, unit: float = 1.0):
        super().__init__(X, intercept)
        self.centre = centre
        self.unit = unit
        self._stored = Design(X, True)

    def offset(self, w: FloatArray) -> float:
        return self.unit * super().offset(w) - float(self.centre @ w[: self.centre.size])

    def plain(self, w: FloatArray) -> FloatArray:
        result = w.copy()
        result[-1] = self.offset(w)
        return result

    def inner(self, w: FloatArray) -> FloatArray:
        result = w.copy()
        result[-1] = (float(w[-1]) + float(self.centre @ w[:-1])) / self.unit
        return result

    def forward(self, w: FloatArray) -> FloatArray:
        offset = np.asarray(self.offset(w), w.dtype)
        return self._stored.forward(np.append(w[: self.centre.size], offset))

    def adjoint(self, v: FloatArray) -> FloatArray:
        stored = self._stored.adjoint(v)
        result: FloatArray = stored[: self.shape[1]].copy()
        result[: self.centre.size] -= (self.centre * float(stored[-1])).astype(stored.dtype)
        if self.intercept:
            result[-1] *= self.unit
        return result

    def dense(self, rows: slice) -> FloatArray:
        stored = super().dense(rows)
        stored[:, : self.centre.size] -= self.centre
        stored[:, self.centre.size :] *= self.unit
        return stored

    def squared_lengths(self) -> FloatArray:
        squares = super().squared_lengths().astype(float)
        n = self.shape[0]
        own = squares[: self.centre.size]
        constant = n * self.centre**2
        own -= constant
        own[own < ROUNDING * constant] = 0.0
        squares[self.centre.size :] *= self.unit**2
        return squares.astype(self.dtype)


class FarDesign(CentredDesign):
    """A centred design for columns whose means are far larger than their spread: X − 1cᵀ is stored,
    in double precision.

    There X w − c·w has no digits left: with a mean of 1e6, rounding takes 1e-10 of the spread for
    each column.
    """

    def __init__(self, X: Matrix, intercept: bool, centre: FloatArray, unit: float = 1.0):
        super().__init__(X, intercept, centre, unit)
        self._about = Design(Design(X).dense(slice(None)) - centre, intercept)

    def offset(self, w: FloatArray) -> float:
        return _exact_sum(Design.offset(self, w), self.unit, w[: self.centre.size], -self.centre)

    def inner(self, w: FloatArray) -> FloatArray:
        result = w.copy()
        result[-1] = _exact_sum(float(w[-1]), 1.0, w[:-1], self.centre) / self.unit
        return result

    def forward(self, w: FloatArray) -> FloatArray:
        inner = w
        if self.intercept:
            inner = np.append(w[:-1], self.unit * w[-1])
        return self._as_promised(self._about.forward(inner), w)

    def adjoint(self, v: FloatArray) -> FloatArray:
        result = self._about.adjoint(v)
        if self.intercept:
            result[-1] *= self.unit
        return self._as_promised(result, v)

    def _as_promised(self, result: FloatArray, argument: FloatArray) -> FloatArray:
        """In the finer of the precisions of X and of the argument, as of any design: split by
        features, other parties' columns may be near 0, and all send numbers of one precision.
        """
        return result.astype(np.result_type(self.dtype, argument.dtype), copy=False)

    def squares(self, weights: FloatArray | None = None) -> FloatArray:
        return self._about.squares(weights)

    def squared_lengths(self) -> FloatArray:
        squares = self._about.squared_lengths().astype(float)
        squares[self.centre.size :] *= self.unit**2
        return squares.astype(self.dtype)

    @property
    def roundings(self) -> tuple[int, int]:
        scores, adjoint = self._about.roundings
        return scores + 1, adjoint + 1


def _exact_sum(a: float, b: float, v: FloatArray, w: FloatArray) -> float:
    """Return a b + v·w, rounded once: these nearly cancel where columns are far from 0."""
    if not (math.isfinite(a) and np.isfinite(v).all()):
        return a * b + float(v @ w)
    total = Fraction(a) * Fraction(b)
    for one, other in zip(v.tolist(), w.tolist(), strict=True):
        total += Fraction(one) * Fraction(other)
    return float(total)


def about_means(
    X: Matrix,
    intercept: bool,
    centre: FloatArray,
    squares: FloatArray,
    total: float,
    unit: float = 1.0,
) -> CentredDesign:
    """Return the design about these means, of columns whose weighted squares have these sums."""
    if far_from_zero(centre, squares, total) and not is_tensor(X):
        return FarDesign(X, intercept, centre, unit)
    return CentredDesign(X, intercept, centre, unit)


def far_from_zero(centre: FloatArray, squares: FloatArray, total: float) -> bool:
    """Return whether a mean is so large that a product with its column keeps too few digits of the
    spread.
    """
    if not centre.size:
        return False
    means = total * centre**2
    spread = np.maximum(squares - means, 0.0)
    largest_near = FAR**2 * np.maximum(spread, spread.mean())
    return bool((means > largest_near).any())
