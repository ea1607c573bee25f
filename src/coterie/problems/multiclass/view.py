"""The design and the local loss of several classes: several scores per row, and softmax at a
model.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any

import numpy as np

from coterie.numerics.arrays import WIDENED_ROWS, CentredDesign, Design, FloatArray, is_sparse
from coterie.numerics.kernels.softmax import log_softmax_rows
from coterie.stats.moments import diagonal, second_moment

BLOCK = 1 << 20
"""Entries of long rows that are multiplied out at a time."""


class StackedDesign(Design):
    """X̃ W for a W of several columns, one for each class. Methods see W as one vector, row by row:
    the coefficients of a column are adjacent, and intercepts come last. Scores and duals are
    matrices, one row per row of X.
    """

    def __init__(self, base: Design, outputs: int):
        super().__init__(base.X, base.intercept)
        self.base = base
        self.outputs = outputs
        self.shape = (base.shape[0], base.shape[1] * outputs)
        self._centre: FloatArray | None = None
        self._unit = 1.0
        if isinstance(base, CentredDesign):
            self._centre = base.centre
            self._unit = base.unit

    def matrix(self, w: FloatArray) -> FloatArray:
        """The coefficients as a matrix, one row per column of the design."""
        return w.reshape(-1, self.outputs)

    def forward(self, w: FloatArray) -> FloatArray:
        W = self.matrix(w)
        d = self.X.shape[1]
        dtype = np.result_type(self.dtype, w.dtype)
        scores = np.empty((self.shape[0], self.outputs), dtype)
        for rows, X in self._blocks(w):
            if is_sparse(X):
                scores[rows] = X @ W[:d]
            else:
                np.matmul(X, W[:d], out=scores[rows])
        if self.intercept:
            scores += self._constants(W)
        return scores

    def adjoint(self, v: FloatArray) -> FloatArray:
        d = self.X.shape[1]
        dtype = np.result_type(self.dtype, v.dtype)
        result = np.zeros((self.base.shape[1], self.outputs), dtype)
        for rows, X in self._blocks(v):
            result[:d] += X.T @ v[rows]
        if self.intercept:
            sums = v.sum(axis=0, dtype=float)
            if self._centre is not None:
                result[:d] -= np.outer(self._centre, sums)
            result[d] = self._unit * sums
        return result.ravel()

    def plain(self, w: FloatArray) -> FloatArray:
        W = self.matrix(w).copy()
        if self.intercept:
            W[-1] = self._constants(W)
        return W.ravel()

    def inner(self, w: FloatArray) -> FloatArray:
        W = self.matrix(w).copy()
        if self.intercept and self._centre is not None:
            raised = W[-1] + self._centre @ W[:-1]
            W[-1] = raised / self._unit
        return W.ravel()

    def _constants(self, W: FloatArray) -> FloatArray:
        """The constants that W adds to every row of scores in addition to X W."""
        constants: FloatArray
        if self._centre is None:
            constants = W[-1]
        else:
            constants = self._unit * W[-1] - self._centre @ W[:-1]
        return constants

    def _blocks(self, vector: FloatArray) -> Iterator[tuple[slice, FloatArray]]:
        """A few rows at a time, in the precision of the vector."""
        if is_sparse(self.X):
            yield slice(None), self.X
            return
        dtype = np.result_type(self.dtype, vector.dtype)
        for start in range(0, self.shape[0], WIDENED_ROWS):
            rows = slice(start, start + WIDENED_ROWS)
            yield rows, self.X[rows].astype(dtype, copy=False)


class SoftmaxLocalLoss:
    """Several classes: ℓ(u; y) = log Σ e^{u_c} − u_y, p = softmax(u), ∇ℓ = p − e_y, ∇²ℓ = diag(p) −
    ppᵀ.
    """

    def __init__(
        self, w: FloatArray, design: StackedDesign, y: FloatArray, weights: FloatArray | None
    ):
        self.w = w
        self.design = design
        self.weights = weights
        self.y = y.astype(np.intp)
        self.scores = design.forward(w)

    @cached_property
    def logs(self) -> FloatArray:
        """log p."""
        return _log_softmax(self.scores)

    @cached_property
    def p(self) -> FloatArray:
        """The probabilities of all classes."""
        return np.exp(self.logs)

    @cached_property
    def losses(self) -> float:
        """Σ s ℓ."""
        return self._summed(self.logs)

    @cached_property
    def gradients(self) -> FloatArray:
        """p − e_y of every row."""
        gradients = self.p.copy()
        rows = np.arange(len(self.y))
        gradients[rows, self.y] -= 1.0
        return gradients

    @cached_property
    def adjoint(self) -> FloatArray:
        """X̃ᵀ(s∘∇ℓ)."""
        return self.design.adjoint(self.weighted(self.gradients))

    def losses_at(self, scores: FloatArray) -> float:
        """Σ s ℓ at other scores."""
        return self._summed(_log_softmax(scores))

    def losses_along(self, change: FloatArray, steps: FloatArray) -> FloatArray:
        """Σ s ℓ at the scores plus each of these multiples of a change."""
        return np.array([self.losses_at(self.scores + float(t) * change) for t in steps])

    def gradient_change(self, change: FloatArray) -> FloatArray:
        """∇²ℓ times a change of the scores."""
        means = np.einsum("ij,ij->i", self.p, change)
        about = change - means[:, None]
        changed: FloatArray = self.p * about
        return changed

    def hessian_product(self, change: FloatArray) -> FloatArray:
        """s∘∇²ℓ times a change of the scores."""
        return self.weighted(self.gradient_change(change))

    def hessian(self, design: StackedDesign | None = None) -> FloatArray:
        """The upper triangle of X̃ᵀ ∇²ℓ X̃ = Σ s x xᵀ ⊗ (diag(p) − p pᵀ), for the design of the
        scores or another one of the same rows: the second part is one product of long rows.
        """
        design = design or self.design
        base = design.base
        classes = design.outputs
        width = design.shape[1]
        H = np.zeros((width, width))
        block = BLOCK // width + 1
        for start in range(0, len(self.y), block):
            rows = slice(start, start + block)
            roots = self.p[rows]
            if self.weights is not None:
                roots = roots * np.sqrt(self.weights[rows])[:, None]
            columns = base.dense(rows)
            products = columns[:, :, None] * roots[:, None, :]
            long = products.reshape(-1, width)
            H -= long.T @ long
        for c, shares in enumerate(self.weighted(self.p).T):
            of_class = second_moment(base, np.ascontiguousarray(shares))
            H[c::classes, c::classes] += of_class
        return H

    def diagonal(self) -> FloatArray:
        """The diagonal of the Hessian."""
        base = self.design.base
        shares = self.weighted(self.p * (1.0 - self.p))
        if is_sparse(base.X):
            parts = [diagonal(base, np.ascontiguousarray(part)) for part in shares.T]
            return np.column_stack(parts).ravel()
        width = base.shape[1]
        block = BLOCK // width + 1
        squares = np.zeros((width, self.design.outputs))
        for start in range(0, len(self.y), block):
            rows = slice(start, start + block)
            squares += np.square(base.dense(rows)).T @ shares[rows]
        return squares.ravel()

    def weighted(self, v: FloatArray) -> FloatArray:
        """s∘v, one row of numbers per sample."""
        if self.weights is None:
            return v
        return v * self.weights[:, None]

    def _summed(self, logs: FloatArray) -> float:
        rows = np.arange(len(self.y))
        taken = logs[rows, self.y].astype(float, copy=False)
        if self.weights is None:
            return -float(taken.sum())
        return -float(taken @ self.weights)


def _log_softmax(scores: FloatArray) -> FloatArray:
    logs = np.empty(scores.shape)
    compute: Any = log_softmax_rows
    compute(scores, logs)
    return logs
