"""g(W) = 0 where ‖W‖_* ≤ radius and +∞ elsewhere, with g*(U) = radius·σ_max(U); the atoms are
±radius·u vᵀ.

‖W‖_* is the trace norm, the sum of the singular values of a matrix W.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy.sparse.linalg import ArpackError, LinearOperator, aslinearoperator, svds

from coterie.errors import InvalidProblem
from coterie.numerics.arrays import FloatArray, Matrix
from coterie.numerics.penalties.atoms import RankOne
from coterie.numerics.penalties.ball import Ball
from coterie.numerics.penalties.l1ball import onto_l1_ball
from coterie.numerics.penalties.penalty import ROUNDING, Step

SMALL = 32
"""For matrices with at most this many rows or columns, all singular vectors are computed at once.
"""


@dataclass(frozen=True)
class TraceBall(Ball):
    """Low rank as a constraint: ‖W‖_* ≤ radius, for a matrix of coefficients."""

    name: ClassVar[str] = "traceball"
    for_matrices: ClassVar[bool] = True

    def norm(self, w: FloatArray) -> float:
        return float(np.linalg.svd(_matrix(w), compute_uv=False).sum())

    def dual_norm(self, u: FloatArray) -> float:
        return float(np.linalg.svd(_matrix(u), compute_uv=False).max(initial=0))

    def prox(self, w: FloatArray, step: Step) -> FloatArray:
        left, values, right = np.linalg.svd(_matrix(w), full_matrices=False)
        if values.sum() <= self.radius:
            return w.copy()
        # Rounding W to its precision adds E with ‖E‖_* ≤ √rank ‖E‖_F ≤ √rank (eps/2) radius.
        rounding = math.sqrt(values.size) * float(np.finfo(w.dtype).eps)
        shrunk = onto_l1_ball(values, self.radius * (1.0 - rounding))
        projected: FloatArray = (left * shrunk) @ right
        return projected.astype(w.dtype, copy=False)

    def fenchel_young(self, w: FloatArray, u: FloatArray, error: Step = 0.0) -> float:
        # Low-rank problems have a proof of their own (`certificate/low_rank.py`); this is the plain
        # sum.
        size = float(np.max(error, initial=0)) * math.sqrt(u.size)
        sure = self.value(w) + self.conjugate(u) - float(np.vdot(u, w))
        return max(sure, 0.0) + 2.0 * self.radius * (size + ROUNDING * self.dual_norm(u))

    def lmo(self, gradient: Matrix | LinearOperator) -> RankOne:
        u, v = leading_pair(gradient)
        return RankOne(u, v, -self.radius)


def leading_pair(matrix: Matrix | LinearOperator) -> tuple[FloatArray, FloatArray]:
    """Unit vectors u, v with uᵀ M v = σ_max(M), for a dense or sparse matrix or a LinearOperator;
    never random.
    """
    operator = aslinearoperator(matrix)
    rows, columns = operator.shape
    if min(rows, columns) <= SMALL:
        return _leading_pair_of_all(operator)
    start = np.random.default_rng(0).standard_normal(min(rows, columns))
    if columns <= rows:
        product = operator @ start
    else:
        product = operator.T @ start
    size = np.abs(product).max()
    if size == 0.0:
        return np.eye(1, rows)[0], np.eye(1, columns)[0]
    try:
        left, _, right = svds(operator * (1.0 / size), k=1, v0=start)
    except ArpackError:
        return _leading_pair_of_all(operator)
    return left[:, 0], right[0]


def _leading_pair_of_all(operator: LinearOperator) -> tuple[FloatArray, FloatArray]:
    rows, columns = operator.shape
    if columns <= rows:
        dense = operator @ np.eye(columns)
    else:
        dense = (operator.T @ np.eye(rows)).T
    left, _, right = np.linalg.svd(dense, full_matrices=False)
    return left[:, 0], right[0]


def _matrix(w: FloatArray) -> FloatArray:
    if w.ndim != 2:
        raise InvalidProblem(
            f"traceball needs a matrix of coefficients, not shape {w.shape}. For one column of "
            "labels use 'l1ball'."
        )
    return w.astype(np.float64, copy=False)
