"""A trace norm with weights from an earlier matrix W₀: directions in which W₀ is large are hardly
shrunk again.

    W = A Z B,   ‖Z‖_* ≤ r,   A = τ (U diag(s/s₁) Uᵀ + εI)^½,   B = τ (V diag(s/s₁) Vᵀ + εI)^½,   W₀
                 = U diag(s) Vᵀ

For given W₀, ε and τ this is a convex problem in Z, or in W. A sequence of such problems is the
method of Mohan and Fazel (2012) for a smooth rank. With τ² = c Σ_k s_k / (s_k/s₁ + ε) / r, the
weighted norm of W₀ is r/c.

A and B are a multiple of the identity plus a matrix of low rank. Each agent multiplies by them, so
messages are as large as without weights.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from coterie.errors import InvalidInput
from coterie.numerics.arrays import FloatArray
from coterie.numerics.factors import apart, decomposed, stacked
from coterie.problems.low_rank.tasks.task import Information

NEGLIGIBLE = 1e-2
"""Singular values of W₀ below this share of the largest get no weight: they are small against ε."""


@dataclass(frozen=True)
class Weights:
    """A and B, from W₀."""

    U: FloatArray
    V: FloatArray
    size: FloatArray
    """The factors by which A and B scale the columns of U and V."""
    rest: float
    """The factor by which A and B scale everything orthogonal to them."""

    @staticmethod
    def known(before: FloatArray | None, shape: tuple[int, int]) -> Weights | None:
        """The weights that `weighing` wrote; None where there are none, or W₀ is 0."""
        if before is None or before.size <= 2:
            return None
        floor, unit = before[:2].astype(float)
        whole = (before.size - 2) % sum(shape) == 0
        positive = floor > 0 and unit > 0
        if not whole or not positive or not np.isfinite(before).all():
            raise InvalidInput(
                "this is not a matrix of the stage before; use the certificate of a run on this "
                "problem."
            )
        factors = before[2:].astype(float).reshape(sum(shape), -1)
        left, right = apart(factors, shape[0])
        U, s, V = decomposed(left, right)
        if s[0] > 0:
            squares = unit * (s / s[0] + floor)
        else:
            squares = np.full(len(s), unit * floor)
        rest = float(np.sqrt(unit * floor))
        return Weights(U, V, np.sqrt(squares), rest)

    def left(self, X: FloatArray, power: float = 1.0) -> FloatArray:
        """A X, or another power of A."""
        return self._product(self.U, X, power)

    def right(self, X: FloatArray, power: float = 1.0) -> FloatArray:
        """B X, or another power of B."""
        return self._product(self.V, X, power)

    def _product(self, U: FloatArray, X: FloatArray, power: float) -> FloatArray:
        rest = self.rest**power
        extra = self.size**power - rest
        inside = (extra * (U.T @ X).T).T
        product: FloatArray = rest * X + U @ inside
        return product.astype(X.dtype, copy=False)


def weighing(
    left: FloatArray, right: FloatArray, radius: float, floor: float, growth: float
) -> FloatArray:
    """ε, τ² and the part of W₀ = left rightᵀ that has weight, as one vector."""
    U, s, V = decomposed(left.astype(float), right.astype(float), NEGLIGIBLE)
    if not s.sum() > 0:
        return np.zeros(0)
    shares = s / (s / s[0] + floor)
    unit = growth * float(shares.sum()) / radius
    roots = np.sqrt(s)
    return np.append([floor, unit], stacked(U * roots, V * roots))


class Weighted(Information):
    """An `Information` about Z."""

    def __init__(self, of: Information, weights: Weights):
        self.of = of
        self.weights = weights
        self.dtype = of.dtype

    @property
    def b(self) -> FloatArray | None:
        """The intercept, which has no weight."""
        return self.of.b

    def forward(self, u: FloatArray) -> Any:
        weighted_u = self.weights.left(u)
        return self.of.forward(weighted_u)

    def reset(self, left: FloatArray, right: FloatArray, scores: Any = None) -> None:
        weighted_left = self.weights.left(left)
        weighted_right = self.weights.right(right)
        self.of.reset(weighted_left, weighted_right, scores)

    def times(self, v: FloatArray) -> FloatArray:
        product = self.of.times(self.weights.right(v))
        return self.weights.left(product)

    def times_transposed(self, u: FloatArray) -> FloatArray:
        product = self.of.times_transposed(self.weights.left(u))
        return self.weights.right(product)

    def matrix(self) -> Any:
        left_product = self.weights.left(self.of.matrix())
        return self.weights.right(left_product.T).T

    def move(self, gamma: float, scale: float, u: FloatArray, v: FloatArray) -> None:
        weighted_u = self.weights.left(u)
        weighted_v = self.weights.right(v)
        self.of.move(gamma, scale, weighted_u, weighted_v)

    def gradients(self, gamma: float, scale: float, u: FloatArray, v: FloatArray) -> FloatArray:
        weighted_u = self.weights.left(u)
        weighted_v = self.weights.right(v)
        return self.of.gradients(gamma, scale, weighted_u, weighted_v)

    def loss(self) -> float:
        return self.of.loss()

    def inner(self) -> float:
        return self.of.inner()

    def squared_norm(self) -> float:
        # A² and B² are α²I + UEUᵀ and α²I + VEVᵀ, and ‖AGB‖² = tr(A² G B² Gᵀ).
        w = self.weights
        square = w.rest**2
        E = w.size**2 - square
        GV = self.of.times(w.V)
        GU = self.of.times_transposed(w.U)
        in_right = (E * np.square(GV)).sum()
        in_left = (E * np.square(GU)).sum()
        sides = float(in_right + in_left)
        corner = np.square(w.U.T @ GV)
        in_both = float(E @ corner @ E)
        return square**2 * self.of.squared_norm() + square * sides + in_both

    def curvature(self, basis: FloatArray, scores: Any, new: int) -> FloatArray:
        weighted_basis = self.weights.left(basis)
        largest = float(self.weights.size[0]) ** 2
        return largest * self.of.curvature(weighted_basis, scores, new)

    def projected(self, basis: FloatArray, scores: Any, right: FloatArray) -> FloatArray:
        weighted_basis = self.weights.left(basis)
        weighted_right = self.weights.right(right)
        return self.of.projected(weighted_basis, scores, weighted_right)

    def put(self, b: FloatArray) -> None:
        self.of.put(b)

    def gradient_of_intercept(self) -> FloatArray:
        return self.of.gradient_of_intercept()

    def curvature_of_intercept(self, x: FloatArray) -> FloatArray:
        return self.of.curvature_of_intercept(x)
