"""Matrices of low rank as factors: W = left rightᵀ, never multiplied out.

A message contains a model as one array: `stacked` puts left (d × k) above right (m × k), and
`apart` separates them. An intercept is a further column at the end: 0 (for a completed matrix, the
numbers to add to rows) above the numbers to add to columns. A stored model is W = U diag(s) Vᵀ:
`written` puts U above V above s, so that a proof about the array is a proof about the model, to the
last bit. `factors_of` reads both forms.
"""

from __future__ import annotations

import numpy as np

from coterie.numerics.arrays import FloatArray

NEGLIGIBLE = 1e-12
"""Singular values below this share of the largest one are rounding errors, and are dropped."""


def stacked(left: FloatArray, right: FloatArray, free: FloatArray | None = None) -> FloatArray:
    """Return both factors as one array, with the intercept as its last column."""
    both = np.vstack([left, right])
    if free is None:
        return both
    return np.column_stack([both, free])


def apart(w: FloatArray, rows: int) -> tuple[FloatArray, FloatArray]:
    """Return the factors of a matrix with that number of rows."""
    return w[:rows], w[rows:]


def written(
    U: FloatArray, s: FloatArray, V: FloatArray, free: FloatArray | None = None
) -> FloatArray:
    """Return a model as one array to store; the intercept has a 0 in the row of s."""
    whole = np.vstack([U, V, s])
    if free is None:
        return whole
    return np.column_stack([whole, np.append(free, 0.0)])


def factors_of(w: FloatArray, shape: tuple[int, int]) -> tuple[FloatArray, FloatArray]:
    """Return left and right of an array of `stacked` or `written`, without its intercept."""
    left, right = apart(w, shape[0])
    if len(right) == shape[1]:
        return left, right
    return left * right[-1], right[:-1]


def decomposed(
    left: FloatArray, right: FloatArray, tolerance: float = 0.0
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return U, s, V with left rightᵀ = U diag(s) Vᵀ, by two thin QR and one small SVD; values ≤
    tolerance·max are dropped.
    """
    if left.shape[1] == 0:
        return left, np.zeros(0, left.dtype), right
    q, r = np.linalg.qr(left)
    p, c = np.linalg.qr(right)
    u, s, vt = np.linalg.svd(r @ c.T, full_matrices=False)
    kept = s > tolerance * s[0]
    return q @ u[:, kept], s[kept], p @ vt[kept].T


def trace_norm(left: FloatArray, right: FloatArray) -> float:
    """Return ‖left rightᵀ‖_*."""
    return float(decomposed(left, right)[1].sum())


def within(left: FloatArray, right: FloatArray, radius: float) -> tuple[FloatArray, FloatArray]:
    """Return both factors in float64, scaled down if rounding puts their product outside the
    trace-norm ball.
    """
    left = left.astype(np.float64)
    right = right.astype(np.float64)
    size = trace_norm(left, right)
    if size > radius:
        return (left * (radius / size), right)
    return (left, right)


def orthonormal(block: FloatArray, others: FloatArray | None = None) -> FloatArray:
    """Return an orthonormal basis of the columns of the block, orthogonal to the orthonormal
    `others`.

    The most important directions come first; those that may be rounding are dropped.
    """
    dtype = block.dtype
    tolerance = max(1e-10, 100.0 * float(np.finfo(block.dtype).eps))
    block = block.astype(np.float64)
    size = np.linalg.norm(block)
    if not size > 0:
        return block[:, :0].astype(dtype)
    block = block / size
    if others is None:
        others = np.zeros((len(block), 0))
    others = others.astype(np.float64)
    block = block - others @ (others.T @ block)
    q, s, _ = np.linalg.svd(block, full_matrices=False)
    most = len(block) - others.shape[1]
    is_kept = (s > tolerance) & (np.arange(len(s)) < most)
    q = q[:, is_kept]
    if others.shape[1] and q.shape[1]:
        # Once more, to remove the rest that rounding left.
        rest = others @ (others.T @ q)
        q, _ = np.linalg.qr(q - rest)
    return q.astype(dtype)
