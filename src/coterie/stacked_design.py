"""A design for several scores a row, one for each class."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from coterie.arrays import WIDENED_ROWS, CentredDesign, Design, FloatArray, is_sparse


class StackedDesign(Design):
    """X̃ W for a W of several columns, one for each class, which methods see as one vector: W row by row, so that the
    coefficients of a column stand together and intercepts come last. Scores and duals are matrices, a row per row of X.
    """

    def __init__(self, base: Design, outputs: int):
        super().__init__(base.X, base.intercept)
        self.base, self.outputs = base, outputs
        self.shape = (base.shape[0], base.shape[1] * outputs)
        self._centre: FloatArray | None = base.centre if isinstance(base, CentredDesign) else None
        self._unit = base.unit if isinstance(base, CentredDesign) else 1.0

    def matrix(self, w: FloatArray) -> FloatArray:
        """The coefficients as a matrix, a row per column of the design."""
        return w.reshape(-1, self.outputs)

    def forward(self, w: FloatArray) -> FloatArray:
        W = self.matrix(w)
        d = self.X.shape[1]
        scores = np.empty((self.shape[0], self.outputs), np.result_type(self.dtype, w.dtype))
        for rows, X in self._blocks(w):
            np.matmul(X, W[:d], out=scores[rows]) if not is_sparse(X) else np.copyto(scores[rows], X @ W[:d])
        if self.intercept:
            scores += self._constants(W)
        return scores

    def adjoint(self, v: FloatArray) -> FloatArray:
        d, dtype = self.X.shape[1], np.result_type(self.dtype, v.dtype)
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
            W[-1] = (W[-1] + self._centre @ W[:-1]) / self._unit
        return W.ravel()

    def _constants(self, W: FloatArray) -> FloatArray:
        """What W adds to every row of scores beside X W."""
        constants: FloatArray = W[-1] if self._centre is None else self._unit * W[-1] - self._centre @ W[:-1]
        return constants

    def _blocks(self, vector: FloatArray) -> Iterator[tuple[slice, FloatArray]]:
        """A few rows at a time, in the precision of the vector."""
        if is_sparse(self.X):
            yield slice(None), self.X
            return
        for start in range(0, self.shape[0], WIDENED_ROWS):
            rows = slice(start, start + WIDENED_ROWS)
            yield rows, self.X[rows].astype(np.result_type(self.dtype, vector.dtype), copy=False)
