"""Atoms: the corners of a ball, as the few numbers they are made of.

    OneHot   value · e_index                corners of the l1 ball
    RankOne  scale · u vᵀ, ‖u‖ = ‖v‖ = 1    corners of the trace-norm ball

A linear oracle returns one; nothing dense is built on the way.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from coterie.numerics.arrays import FloatArray, Matrix


@dataclass(frozen=True)
class OneHot:
    """The vector of that size with one entry, `value` at `index`, that is not 0."""

    index: int
    value: float
    size: int

    def inner(self, vector: FloatArray) -> float:
        """⟨atom, vector⟩."""
        return self.value * float(vector[self.index])

    def dense(self) -> FloatArray:
        """The atom as a vector."""
        vector = np.zeros(self.size)
        vector[self.index] = self.value
        return vector


@dataclass(frozen=True, eq=False)
class RankOne:
    """The matrix scale · u vᵀ."""

    u: FloatArray
    v: FloatArray
    scale: float

    def inner(self, matrix: Matrix) -> float:
        """⟨atom, matrix⟩ = scale · uᵀ matrix v, also for a sparse matrix or a LinearOperator."""
        return self.scale * float(self.u @ (matrix @ self.v))

    def dense(self) -> FloatArray:
        """The atom as a matrix."""
        return self.scale * np.outer(self.u, self.v)


Atom: TypeAlias = OneHot | RankOne
