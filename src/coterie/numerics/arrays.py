"""Arrays as the rest of the house sees them: dense or sparse, never copied to become the other.

A `Design` is a party's data as a linear map w ↦ X w (+ b): the only thing methods and certificates
do with data.
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
    """Whether X is a scipy.sparse matrix or array."""
    return type(X) is not np.ndarray and bool(sp.issparse(X))


def is_tensor(x: object) -> bool:
    """Whether x is a torch tensor; never imports torch."""
    if type(x) is np.ndarray:
        torch = None
    else:
        torch = sys.modules.get("torch")
    return torch is not None and isinstance(x, torch.Tensor)


def precision_of(X: Matrix) -> np.dtype[Any]:
    """The precision of a model of these rows."""
    if is_tensor(X):
        return tensors.dtype_of(X)
    precision: np.dtype[Any] = X.dtype
    return precision


def stored(coefficients: FloatArray, precision: np.dtype[Any]) -> FloatArray:
    """Coefficients as a model keeps them: in the precision of the data, unless they have digits
    beyond it.

    A model is what was certified: a run that needed double precision is not rounded afterwards.
    """
    kept: FloatArray = coefficients.astype(precision)
    if np.array_equal(kept, coefficients, equal_nan=True):
        return kept
    return coefficients.astype(float)


def namespace(x: object) -> Any:
    """numpy, or torch for a tensor: formulas of what both have work where the numbers lie."""
    if is_tensor(x):
        return sys.modules["torch"]
    return np


def host(x: Any) -> Any:
    """A tensor as a numpy array, half precision as float32; anything else as it is."""
    if not is_tensor(x):
        return x
    if x.is_meta:
        raise InvalidData(
            "a tensor on torch's meta device has a shape and no numbers: load these, and give them."
        )
    x = x.detach().cpu()
    return (x.float() if x.is_floating_point() and x.element_size() < 4 else x).numpy()


def sealed(x: FloatArray) -> FloatArray:
    """The same array, made read-only: a message, not a blackboard."""
    x.flags.writeable = False
    return x


class _Shared:
    """What one function made of one message; whoever holds the lock computes it."""

    def __init__(self, code: CodeType, message: weakref.ref[FloatArray], key: object):
        self.code = code
        self.message = message
        self.key = key
        self.lock = RLock()
        self.results: list[Any] = []


_shared: dict[int, _Shared] = {}
"""By the identity of the function's code, which its entry keeps alive: to hash code takes as long
as many a result.
"""
_door = RLock()
"""Held for looking up and storing, never for computing; reentrant, because garbage collection
forgets messages.
"""


def shared_result(
    message: FloatArray, function: Callable[[*Ts], T], *arguments: *Ts, key: object = None
) -> T:
    """function(*arguments), computed once for all agents of this process that were sent this very
    message.

    In process, everybody's reply to a `Sum` is one read-only array; what all agents compute from it
    is the same too. The function as it is written, lambda or not, says which result is meant: what
    goes in must follow from the message, and from the `key` where a message may be read again for
    another question. Threads that ask for the same result wait for the first of them; nothing else
    waits, so a function may ask for other results.
    """
    if message.flags.writeable:
        return function(*arguments)
    code: CodeType = function.__code__
    place = id(code)
    known = _shared.get(place)
    if known is None or known.message() is not message or known.key != key or not known.results:
        with _door:
            known = _shared.get(place)
            if known is None or known.message() is not message or known.key != key:
                known = _shared[place] = _Shared(
                    code, weakref.ref(message, partial(_forget, place)), key
                )
        with known.lock:
            if not known.results:
                known.results.append(function(*arguments))
    result: T = known.results[0]
    return result


def _forget(place: int, message: weakref.ref[FloatArray]) -> None:
    """Drop what was computed from a message that nobody holds any more."""
    with _door:
        if place in _shared and _shared[place].message is message:
            del _shared[place]


def as_number(value: object) -> float:
    """The value as a float, and NaN, which passes no comparison, for what is not a number."""
    if isinstance(value, Real):
        return float(value)
    return math.nan


def whole_number(name: str, value: object, least: int = 1) -> int:
    """A count as an int, or an `InvalidProblem` that names it; neither 2.5 nor inf is one, nor is
    True.
    """
    if isinstance(value, bool) or not isinstance(value, Integral) or value < least:
        raise InvalidProblem(f"{name} must be a whole number from {least}, not {value!r}.")
    return int(value)


def digest(*things: object) -> str:
    """SHA-256 over arrays, sparse matrices, strings and None, with types and shapes, independent of
    memory layout.
    """
    h = hashlib.sha256()
    for thing in things:
        if thing is None or isinstance(thing, str):
            if thing is None:
                text = b"none"
            else:
                text = b"text:" + thing.encode()
            h.update(len(text).to_bytes(8, "little") + text)
        elif is_sparse(thing):
            if isinstance(thing, sp.csr_array):
                csr = thing
            else:
                csr = sp.csr_array(thing)
            if not csr.has_canonical_format:
                csr = csr.copy()
                csr.sum_duplicates()
            indptr = csr.indptr.astype("<i8")
            indices = csr.indices.astype("<i8")
            h.update(bytes.fromhex(digest("sparse", str(csr.shape), indptr, indices, csr.data)))
        else:
            array = np.ascontiguousarray(host(thing))
            array = array.astype(array.dtype.newbyteorder("<"), copy=False)
            h.update(f"array:{array.dtype.str}:{array.shape}:".encode())
            h.update(array.data if array.size else b"")
    return h.hexdigest()


def product(matrix: Matrix, vector: FloatArray) -> FloatArray:
    """matrix @ vector, without a warning that is about neither.

    For single precision and few columns OpenBLAS also multiplies what happens to lie behind its
    copy of the vector, and drops the result: now and then that is no number, and numpy reports it
    as an invalid value.
    """
    result: FloatArray
    if matrix.dtype != np.float32:
        result = matrix @ vector
    else:
        with np.errstate(invalid="ignore"):
            result = matrix @ vector
    return result


WIDENED_ROWS = 4096
SUMMED_ROWS = 2048
"""Dense rows are added up in blocks of so many, so that the rounding of a sum grows with the
blocks, not the rows.
"""
PIECE, PIECES = 1 << 20, 16
"""Numbers from which on dense rows are worked on in pieces, by several threads, and how many pieces
at most.
"""
ROUNDING = 1e-10
"""A column whose squares about its mean are below this share of those of the mean is taken to be
constant.
"""
FAR = 1e3
"""Columns are far from 0 if a mean is so many times the spread of its column and that of an average
one.
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
        """X̃ w: one score per row, in the finer of the two precisions."""
        scores = self._product(w[:-1] if self.intercept else w)
        if self.intercept:
            scores += w[-1]
        return scores

    def scores_beside(self, w: FloatArray) -> Any:
        """`forward` where X is a tensor: the scores stay beside it."""
        plain = self.plain(w)
        scores = tensors.product(self.X, plain[: self.X.shape[1]])
        if self.intercept:
            return scores + float(plain[-1])
        return scores

    def _product(self, w: FloatArray) -> FloatArray:
        """X w."""
        if self._tensor:
            return cast(FloatArray, host(tensors.product(self.X, w)))
        if not w.any():  # where every method starts
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
        """Dense rows that several threads may work on at the same time; which ones depends on
        nothing but the data.
        """
        if self._cuts is None:
            n = self.shape[0]
            count = min(self.X.size // PIECE, PIECES)
            rows = max(n, 1)
            if count > 1 and self.X.flags.c_contiguous:
                rows = -(-n // (count * SUMMED_ROWS)) * SUMMED_ROWS
            self._cuts = [slice(start, min(start + rows, n)) for start in range(0, max(n, 1), rows)]
        return self._cuts

    def _sparse_product(self, vector: FloatArray, length: int, by_rows: bool) -> FloatArray:
        """X or Xᵀ times that vector, without what scipy does before it begins: a short product
        takes less than that.
        """
        if self._parts is None:
            data = self.X.data
            self._parts = data[:0] if (data == 1).all() else data, self.X.indices, self.X.indptr
        same = vector.dtype is self.dtype
        result: FloatArray = np.zeros(
            length, self.dtype if same else np.result_type(self.dtype, vector.dtype)
        )
        add: Any
        if by_rows:
            add = add_by_rows
        else:
            add = add_by_columns
        add(*self._parts, vector, result)
        return result

    def adjoint(self, v: FloatArray) -> FloatArray:
        """X̃ᵀ v: one number per column, in the finer of the two precisions."""
        if not self.intercept:
            return self._summed(v)
        result: FloatArray = np.empty(self.shape[1], np.result_type(self.dtype, precision_of(v)))
        result[:-1] = self._summed(v)
        result[-1] = float(v.sum())
        return result

    def _summed(self, v: FloatArray) -> FloatArray:
        """Xᵀ v, of dense rows block by block."""
        if self._tensor:
            return tensors.adjoint(self.X, v)
        if not self._dense:
            return self._sparse_product(v, self.X.shape[1], not self._by_rows)
        pieces = self._pieces()
        if len(pieces) == 1:
            return self._sum_of(self.X, v)
        first, *others = spread(
            lambda rows: self._sum_of(self.X[rows], v[rows]), pieces, self.X.size / len(pieces)
        )
        for other in others:
            first += other
        return first

    def _sum_of(self, X: FloatArray, v: FloatArray) -> FloatArray:
        """Xᵀ v for some of the rows, which rows in single precision may be widened for."""
        if self._differs(v):
            result: FloatArray = np.zeros(X.shape[1])
            if X.flags.c_contiguous:
                add: Any = widened_columns
                add(X, np.ascontiguousarray(v), WIDENED_ROWS, result)
                return result
            for start, block in zip(
                range(0, len(X), WIDENED_ROWS), self._widened_blocks(v), strict=True
            ):
                result += product(block.T, v[start : start + len(block)])
            return result
        blocks = len(X) // SUMMED_ROWS
        if blocks < 2 or not X.flags.c_contiguous or self.dtype != np.float64:
            return product(X.T, v)
        whole = blocks * SUMMED_ROWS
        stacked = X[:whole].reshape(blocks, SUMMED_ROWS, -1)
        total: FloatArray = (v[:whole].reshape(blocks, 1, SUMMED_ROWS) @ stacked).sum(axis=(0, 1))
        return total + product(X[whole:].T, v[whole:])

    def _differs(self, vector: FloatArray) -> bool:
        return self._dense and self.dtype.itemsize < vector.dtype.itemsize and self.shape[0] > 0

    def _widened_blocks(self, vector: FloatArray) -> Iterator[FloatArray]:
        """Float32 data in float64, a few rows at a time: certificates are exact without a second
        copy of the data.
        """
        for start in range(0, self.shape[0], WIDENED_ROWS):
            yield self.X[start : start + WIDENED_ROWS].astype(vector.dtype)

    @property
    def roundings(self) -> tuple[int, int]:
        """How many roundings a score and an entry of the adjoint go through at most, in double
        precision.
        """
        if self._roundings is None:
            n, d = self.shape
            if self._dense:
                blocks = SUMMED_ROWS + n // SUMMED_ROWS + PIECES
                by_blocks = self._tensor or self.dtype != np.float64 or self.X.flags.c_contiguous
                self._roundings = d + 2, (min(n, WIDENED_ROWS + blocks) if by_blocks else n) + 2
            else:
                counts = [
                    np.bincount(self.X.indices, minlength=1).max(),
                    np.diff(self.X.indptr).max(initial=0),
                ]
                if self.X.format == "csr":
                    rows, columns = counts[::-1]
                else:
                    rows, columns = counts
                self._roundings = int(rows) + 2, int(columns) + 2
        return self._roundings

    def offset(self, w: FloatArray) -> float:
        """What w adds to every score beside X w: the intercept, as people know it."""
        if self.intercept:
            return float(w[-1])
        return 0.0

    def plain(self, w: FloatArray) -> FloatArray:
        """The same model in the coordinates that people know."""
        return w

    def inner(self, w: FloatArray) -> FloatArray:
        """The inverse of `plain`."""
        return w

    def dense(self, rows: slice) -> FloatArray:
        """Some rows of X̃ as they are, in double precision."""
        if is_sparse(self.X):
            X = self.X[rows].toarray()
        else:
            X = host(self.X[rows])
        stored = np.ones((X.shape[0], self.shape[1]))
        stored[:, : X.shape[1]] = X
        return stored

    def squares(self, weights: FloatArray | None = None) -> FloatArray:
        """Σ_i s_i x_ij² of every column as it is stored, without the intercept's."""
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
        """Row and column of every stored number of a sparse matrix."""
        along = np.repeat(np.arange(len(self.X.indptr) - 1), np.diff(self.X.indptr))
        across = self.X.indices
        if self.X.format == "csr":
            return along, across
        return across, along

    def squared_lengths(self) -> FloatArray:
        """‖x_j‖² of every column."""
        lengths = np.full(self.shape[1], float(self.shape[0]))
        lengths[: self.X.shape[1]] = self.squares()
        return lengths.astype(self.dtype, copy=False)

    def squared_norm(
        self,
        scale: FloatArray | None = None,
        tolerance: float = 1e-4,
        columns: FloatArray | float = 1.0,
    ) -> float:
        """‖diag(scale)^½ X̃ diag(columns)‖² by Lanczos, rounded up by the tolerance so that it can
        serve as a bound.
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
            image = (
                columns * self.adjoint(weight * self.forward(columns * vector)).astype(float)
                - beta * previous
            )
            alpha = float(image @ vector)
            image -= alpha * vector
            diagonal.append(alpha)
            top = float(
                np.linalg.eigvalsh(np.diag(diagonal) + np.diag(off, 1) + np.diag(off, -1))[-1]
            )
            beta = float(np.linalg.norm(image))
            if beta <= 1e-12 * max(top, 1e-300) or (
                step >= 3 and top - estimate <= 0.1 * tolerance * top
            ):
                estimate = top
                break
            estimate = top
            off.append(beta)
            previous = vector
            vector = image / beta
        return estimate * (1 + tolerance)


class CentredDesign(Design):
    """[X − 1cᵀ, u·1] in place of [X, 1], never stored: beside an intercept it reaches the same
    scores.

    Columns far from mean 0 are nearly parallel to the column of ones, and ones on another scale
    than X are as bad: first-order methods then crawl. With c the mean of the columns and u their
    spread, neither matters. `offset` and `plain` lead back: a model (w, β) here is (w, uβ − c·w)
    there. Without an intercept of its own, as at parties that hold only some of the columns, c·w is
    a debt to somebody else's.
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
        return self._stored.forward(
            np.append(w[: self.centre.size], np.asarray(self.offset(w), w.dtype))
        )

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
    """The same for columns whose means are far larger than their spread: X − 1cᵀ is stored, in
    double precision.

    X w less c·w has no digits left there: beside a mean of 1e6, rounding takes 1e-10 of the spread
    for each column.
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
        if not self.intercept:
            return self._about.forward(w)
        return self._about.forward(np.append(w[:-1], self.unit * w[-1]))

    def adjoint(self, v: FloatArray) -> FloatArray:
        result = self._about.adjoint(v)
        if self.intercept:
            result[-1] *= self.unit
        return result

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
    """a b + v·w, rounded once: these nearly cancel where columns are far from 0."""
    if not (math.isfinite(a) and np.isfinite(v).all()):
        return a * b + float(v @ w)
    pairs = zip(v.tolist(), w.tolist(), strict=True)
    return float(
        sum((Fraction(one) * Fraction(other) for one, other in pairs), Fraction(a) * Fraction(b))
    )


def about_means(
    X: Matrix,
    intercept: bool,
    centre: FloatArray,
    squares: FloatArray,
    total: float,
    unit: float = 1.0,
) -> CentredDesign:
    """The design about these means, of columns whose weighted squares have these sums."""
    far = far_from_zero(centre, squares, total) and not is_tensor(X)
    return (FarDesign if far else CentredDesign)(X, intercept, centre, unit)


def far_from_zero(centre: FloatArray, squares: FloatArray, total: float) -> bool:
    """Whether a mean is so large that a product with its column keeps too few digits of the
    spread.
    """
    means = total * centre**2
    spread = np.maximum(squares - means, 0.0)
    return bool(centre.size) and bool((means > FAR**2 * np.maximum(spread, spread.mean())).any())
