"""First guesses of a Hessian, as one party makes them of its own columns: a diagonal, or a block.

A diagonal wins where columns of different parties are nearly dependent, a block where those of one
party are. `lbfgs` takes them in turns, which measured within a factor of two of the better one, and
often below both.
"""

from __future__ import annotations

from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
import scipy.linalg

from coterie.numerics.arrays import Design, FloatArray
from coterie.numerics.kernels.coordinate_descent import coordinate_descent
from coterie.numerics.penalties.l1 import soft_threshold
from coterie.stats.moments import second_moment, symmetric

Mask: TypeAlias = npt.NDArray[np.bool_]
SWEEPS, EXACT = 500, 1e-12
"""Sweeps of coordinate descent in a block at most, and the share of the threshold at which they
end.
"""
FLOOR = 1e-9
"""A block's diagonal is enlarged by this share, so that dependent columns leave it positive
definite.
"""


class Metric(Protocol):
    """A positive definite matrix D on this agent's columns."""

    def times(self, rows: FloatArray) -> FloatArray:
        """D x for every row x."""
        ...

    def inverse(self, rows: FloatArray) -> FloatArray:
        """D⁻¹ x for every row x."""
        ...

    def minimum(
        self, gradient: FloatArray, w: FloatArray, threshold: FloatArray, scale: float
    ) -> tuple[FloatArray, Mask]:
        """The z that minimises ⟨gradient, z⟩ + (z − w)ᵀD(z − w) / (2 scale) + Σ threshold |z|, and
        where it is not 0.
        """
        ...

    def products(self, rows: FloatArray, free: Mask, scale: float) -> FloatArray:
        """scale · rows_F D_FF⁻¹ rows_Fᵀ for the free columns F."""
        ...


class Diagonal:
    """One number per column."""

    def __init__(self, entries: FloatArray):
        self.entries = entries

    def times(self, rows: FloatArray) -> FloatArray:
        return rows * self.entries

    def inverse(self, rows: FloatArray) -> FloatArray:
        return rows / self.entries

    def minimum(
        self, gradient: FloatArray, w: FloatArray, threshold: FloatArray, scale: float
    ) -> tuple[FloatArray, Mask]:
        steps = scale / self.entries
        before = w - steps * gradient
        return soft_threshold(before, steps * threshold), np.abs(before) > steps * threshold

    def products(self, rows: FloatArray, free: Mask, scale: float) -> FloatArray:
        some = rows[:, free]
        result: FloatArray = (some * (scale / self.entries[free])) @ some.T
        return result


class Block:
    """A matrix, as few columns allow it."""

    def __init__(self, matrix: FloatArray):
        self.matrix = matrix
        self._factor = scipy.linalg.cho_factor(matrix)

    def times(self, rows: FloatArray) -> FloatArray:
        return rows @ self.matrix

    def inverse(self, rows: FloatArray) -> FloatArray:
        result: FloatArray = scipy.linalg.cho_solve(self._factor, rows.T).T
        return result

    def minimum(
        self, gradient: FloatArray, w: FloatArray, threshold: FloatArray, scale: float
    ) -> tuple[FloatArray, Mask]:
        z = w.copy()
        zeros = np.zeros(len(w))
        infinite = np.full(len(w), np.inf)
        descend: Any = coordinate_descent
        thresholds = scale * threshold
        least = EXACT * (
            float(thresholds.max(initial=0.0)) or float(np.abs(scale * gradient).max(initial=0.0))
        )
        descend(
            self.matrix, zeros, thresholds, -infinite, infinite, z, -scale * gradient, least, SWEEPS
        )
        free: Mask = (z != 0) | (threshold == 0)
        return z, free

    def products(self, rows: FloatArray, free: Mask, scale: float) -> FloatArray:
        some = rows[:, free]
        if not some.size:
            return np.zeros((len(rows), len(rows)))
        factor = scipy.linalg.cho_factor(self.matrix[np.ix_(free, free)])
        result: FloatArray = scale * (some @ scipy.linalg.cho_solve(factor, some.T))
        return result


def block_of(design: Design, curvature: float, ridge: FloatArray) -> Block:
    """curvature · X̃ᵀX̃ + ridge, a little enlarged."""
    matrix = curvature * symmetric(second_moment(design, None)) + np.diag(ridge)
    lengths = matrix.diagonal().copy()
    extra = np.where(lengths > 0, FLOOR * lengths, lengths.max(initial=0.0) or 1.0)
    return Block(matrix + np.diag(extra))
