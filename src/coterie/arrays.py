"""Arrays as the rest of the house sees them: dense or sparse, never copied to become the other.

A `Design` is a party's data as a linear map w ↦ X w (+ b): the only thing methods and certificates do with data.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from numbers import Real
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

__all__ = ["Design", "FloatArray", "Matrix", "as_number", "digest", "is_sparse", "sealed", "squared_frobenius"]

FloatArray: TypeAlias = npt.NDArray[np.floating[Any]]
Matrix: TypeAlias = Any
"""A dense two-dimensional float array, or a scipy.sparse CSR/CSC matrix or array (scipy has no common type to name)."""


def is_sparse(X: object) -> bool:
    """Whether X is a scipy.sparse matrix or array."""
    return bool(sp.issparse(X))


def sealed(x: FloatArray) -> FloatArray:
    """The same array, made read-only: a letter, not a blackboard."""
    x.flags.writeable = False
    return x


def as_number(value: object) -> float:
    """The value as a float, and NaN, which passes no comparison, for what is not a number."""
    return float(value) if isinstance(value, Real) else math.nan


def digest(*things: object) -> str:
    """SHA-256 over arrays, sparse matrices, strings and None, with types and shapes, independent of memory layout."""
    h = hashlib.sha256()
    for thing in things:
        if thing is None or isinstance(thing, str):
            text = b"none" if thing is None else b"text:" + thing.encode()
            h.update(len(text).to_bytes(8, "little") + text)
        elif is_sparse(thing):
            csr = sp.csr_matrix(thing)
            if not csr.has_canonical_format:
                csr = csr.copy()
                csr.sum_duplicates()
            indptr, indices = csr.indptr.astype("<i8"), csr.indices.astype("<i8")
            h.update(bytes.fromhex(digest("sparse", str(csr.shape), indptr, indices, csr.data)))
        else:
            array = np.ascontiguousarray(thing)
            array = array.astype(array.dtype.newbyteorder("<"), copy=False)
            h.update(f"array:{array.dtype.str}:{array.shape}:".encode())
            h.update(array.data if array.size else b"")
    return h.hexdigest()


def squared_frobenius(X: Matrix) -> float:
    """‖X‖²_F, the sum of all squares."""
    return float(np.linalg.norm(X.data if is_sparse(X) else X)) ** 2


WIDENED_ROWS = 4096


class Design:
    """A data matrix as a linear map, with an optional column of ones that is never stored.

    `forward(w)` is X w, or X w[:-1] + w[-1] with an intercept; `adjoint(v)` its transpose.
    """

    def __init__(self, X: Matrix, intercept: bool = False):
        self.X, self.intercept = X, intercept
        self.shape: tuple[int, int] = (X.shape[0], X.shape[1] + intercept)
        self.dtype: np.dtype[Any] = X.dtype

    def forward(self, w: FloatArray) -> FloatArray:
        """X̃ w: one score per row, in the finer of the two precisions."""
        if self._differs(w):
            blocks = [Design(block, self.intercept).forward(w) for block in self._widened_blocks(w)]
            return np.concatenate(blocks)
        scores: FloatArray
        if self.intercept:
            scores = self.X @ w[:-1]
            scores += w[-1]
        else:
            scores = self.X @ w
        return scores

    def adjoint(self, v: FloatArray) -> FloatArray:
        """X̃ᵀ v: one number per column, in the finer of the two precisions."""
        result: FloatArray
        if self._differs(v):
            result = np.zeros(self.shape[1], v.dtype)
            start = 0
            for block in self._widened_blocks(v):
                result += Design(block, self.intercept).adjoint(v[start : start + len(block)])
                start += len(block)
        elif self.intercept:
            result = np.empty(self.shape[1], np.result_type(self.dtype, v.dtype))
            result[:-1] = self.X.T @ v
            result[-1] = v.sum()
        else:
            result = self.X.T @ v
        return result

    def _differs(self, vector: FloatArray) -> bool:
        return not is_sparse(self.X) and self.dtype.itemsize < vector.dtype.itemsize and self.shape[0] > 0

    def _widened_blocks(self, vector: FloatArray) -> Iterator[FloatArray]:
        """Float32 data in float64, a few rows at a time: certificates are exact without a second copy of the data."""
        for start in range(0, self.shape[0], WIDENED_ROWS):
            yield self.X[start : start + WIDENED_ROWS].astype(vector.dtype)

    def squared_norm(self, scale: FloatArray | None = None, tolerance: float = 1e-4) -> float:
        """λmax(X̃ᵀ diag(scale) X̃) by Lanczos, rounded up by the tolerance so that it can serve as a bound."""
        n, d = self.shape
        if n == 0 or d == 0:
            return 0.0
        weight = np.ones(n) if scale is None else scale
        vector = np.random.default_rng(0).standard_normal(d)
        vector /= np.linalg.norm(vector)
        previous, beta = np.zeros(d), 0.0
        diagonal: list[float] = []
        off: list[float] = []
        estimate = 0.0
        # Lanczos on X̃ᵀ S X̃: the largest Ritz value grows to λmax, in far fewer products than power iteration.
        for step in range(min(d, 100)):
            image = self.adjoint(weight * self.forward(vector)).astype(float) - beta * previous
            alpha = float(image @ vector)
            image -= alpha * vector
            diagonal.append(alpha)
            top = float(np.linalg.eigvalsh(np.diag(diagonal) + np.diag(off, 1) + np.diag(off, -1))[-1])
            beta = float(np.linalg.norm(image))
            if beta <= 1e-12 * max(top, 1e-300) or (step >= 3 and top - estimate <= 0.1 * tolerance * top):
                estimate = top
                break
            estimate = top
            off.append(beta)
            previous, vector = vector, image / beta
        return estimate * (1 + tolerance)

    def digest(self) -> str:
        """The digest of the stored matrix."""
        return digest(self.X)
