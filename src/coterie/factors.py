"""Matrices of low rank as factors: W = left rightᵀ, never multiplied out.

A model travels as one array: `stacked` puts left (d × k) above right (m × k), `apart` takes them apart again. An
intercept is one more column at the end, with 0 (or, of a completed matrix, what is added to rows) above what is added
to columns. As it is stored, a model is W = U diag(s) Vᵀ: `written` puts U above V above s, so that what is proven of
the array is proven of the model, to the last bit; `factors_of` reads both forms.
"""

from __future__ import annotations

import numpy as np

from coterie.arrays import FloatArray

NEGLIGIBLE = 1e-12
"""Singular values of a model below this part of the largest are rounding, and are dropped."""


def stacked(left: FloatArray, right: FloatArray, free: FloatArray | None = None) -> FloatArray:
    """Both factors as one array, and beside them the intercept."""
    both = np.vstack([left, right])
    return both if free is None else np.column_stack([both, free])


def apart(w: FloatArray, rows: int) -> tuple[FloatArray, FloatArray]:
    """The factors of a matrix with that many rows."""
    return w[:rows], w[rows:]


def written(U: FloatArray, s: FloatArray, V: FloatArray, free: FloatArray | None = None) -> FloatArray:
    """A model as it is stored, as one array; beside s, an intercept has a 0."""
    whole = np.vstack([U, V, s])
    return whole if free is None else np.column_stack([whole, np.append(free, 0.0)])


def factors_of(w: FloatArray, shape: tuple[int, int]) -> tuple[FloatArray, FloatArray]:
    """left and right of an array that `stacked` made, or `written`, without its intercept."""
    left, right = apart(w, shape[0])
    if len(right) == shape[1]:
        return left, right
    return left * right[-1], right[:-1]


def decomposed(
    left: FloatArray, right: FloatArray, tolerance: float = 0.0
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """U, s, V with left rightᵀ = U diag(s) Vᵀ, by two thin QR and one small SVD; values ≤ tolerance·max are dropped."""
    if left.shape[1] == 0:
        return left, np.zeros(0, left.dtype), right
    (q, r), (p, c) = np.linalg.qr(left), np.linalg.qr(right)
    u, s, vt = np.linalg.svd(r @ c.T, full_matrices=False)
    kept = s > tolerance * s[0]
    return q @ u[:, kept], s[kept], p @ vt[kept].T


def trace_norm(left: FloatArray, right: FloatArray) -> float:
    """‖left rightᵀ‖_*."""
    return float(decomposed(left, right)[1].sum())


def within(left: FloatArray, right: FloatArray, radius: float) -> tuple[FloatArray, FloatArray]:
    """Both factors in float64, made a little smaller where rounding put their product outside the trace-norm ball."""
    left, right = left.astype(np.float64), right.astype(np.float64)
    size = trace_norm(left, right)
    return (left * (radius / size), right) if size > radius else (left, right)


def orthonormal(block: FloatArray, beside: FloatArray | None = None) -> FloatArray:
    """An orthonormal basis of the block's columns, orthogonal to the orthonormal `beside`.

    The most important directions come first; those that may be rounding are dropped.
    """
    dtype, tolerance = block.dtype, max(1e-10, 100.0 * float(np.finfo(block.dtype).eps))
    block = block.astype(np.float64)
    size = np.linalg.norm(block)
    if not size > 0:
        return block[:, :0].astype(dtype)
    block = block / size
    others = np.zeros((len(block), 0)) if beside is None else beside.astype(np.float64)
    block = block - others @ (others.T @ block)
    q, s, _ = np.linalg.svd(block, full_matrices=False)
    q = q[:, (s > tolerance) & (np.arange(len(s)) < len(block) - others.shape[1])]
    if others.shape[1] and q.shape[1]:
        q = np.linalg.qr(q - others @ (others.T @ q))[0]  # once more, for what rounding left
    return q.astype(dtype)
