"""A trace norm that is weighed by a matrix known before, so that what that matrix has large is
hardly shrunk again.

    W = A Z B,   ‖Z‖_* ≤ r,   A = τ (U diag(s/s₁) Uᵀ + εI)^½,   B = τ (V diag(s/s₁) Vᵀ + εI)^½,   W₀
                 = U diag(s) Vᵀ

For given W₀, ε and τ this is a convex problem in Z, or in W; one after the other they are the steps
by which Mohan and Fazel (2012) minimise a smooth rank. τ² = c Σ_k s_k / (s_k/s₁ + ε) / r makes W₀ a
c-th part of the way to the edge.

A and B are a multiple of the identity and a matrix of low rank. An agent multiplies by them:
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
"""Singular values of W₀ below this part of the largest weigh nothing: beside ε they are hardly
seen.
"""


@dataclass(frozen=True)
class Weights:
    """A and B, from W₀."""

    U: FloatArray
    V: FloatArray
    size: FloatArray
    """What A and B do on the columns of U and V, ..."""
    rest: float
    """... and elsewhere."""

    @staticmethod
    def known(before: FloatArray | None, shape: tuple[int, int]) -> Weights | None:
        """Those that `weighing` wrote; None where there is nothing, or W₀ is 0."""
        if before is None or before.size <= 2:
            return None
        floor, unit = before[:2].astype(float)
        if (before.size - 2) % sum(shape) or not (
            np.isfinite(before).all() and floor > 0 and unit > 0
        ):
            raise InvalidInput(
                "that is no matrix of the stage before; use the certificate of a run on this "
                "problem."
            )
        U, s, V = decomposed(*apart(before[2:].astype(float).reshape(sum(shape), -1), shape[0]))
        if s[0] > 0:
            squares = unit * (s / s[0] + floor)
        else:
            squares = np.full(len(s), unit * floor)
        return Weights(U, V, np.sqrt(squares), float(np.sqrt(unit * floor)))

    def left(self, X: FloatArray, power: float = 1.0) -> FloatArray:
        """A X, or another power of A."""
        return self._product(self.U, X, power)

    def right(self, X: FloatArray, power: float = 1.0) -> FloatArray:
        """B X, or another power of B."""
        return self._product(self.V, X, power)

    def _product(self, U: FloatArray, X: FloatArray, power: float) -> FloatArray:
        rest = self.rest**power
        image: FloatArray = rest * X + U @ ((self.size**power - rest) * (U.T @ X).T).T
        return image.astype(X.dtype, copy=False)


def weighing(
    left: FloatArray, right: FloatArray, radius: float, floor: float, growth: float
) -> FloatArray:
    """ε, τ² and W₀ = left rightᵀ as one vector: what of W₀ weighs something, and nothing else."""
    U, s, V = decomposed(left.astype(float), right.astype(float), NEGLIGIBLE)
    if not s.sum() > 0:
        return np.zeros(0)
    unit = growth * float((s / (s / s[0] + floor)).sum()) / radius
    return np.append([floor, unit], stacked(U * np.sqrt(s), V * np.sqrt(s)))


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

    def image(self, u: FloatArray) -> Any:
        return self.of.image(self.weights.left(u))

    def reset(self, left: FloatArray, right: FloatArray, image: Any = None) -> None:
        self.of.reset(self.weights.left(left), self.weights.right(right), image)

    def times(self, v: FloatArray) -> FloatArray:
        return self.weights.left(self.of.times(self.weights.right(v)))

    def times_transposed(self, u: FloatArray) -> FloatArray:
        return self.weights.right(self.of.times_transposed(self.weights.left(u)))

    def matrix(self) -> Any:
        return self.weights.right(self.weights.left(self.of.matrix()).T).T

    def move(self, gamma: float, scale: float, u: FloatArray, v: FloatArray) -> None:
        self.of.move(gamma, scale, self.weights.left(u), self.weights.right(v))

    def gradients(self, gamma: float, scale: float, u: FloatArray, v: FloatArray) -> FloatArray:
        return self.of.gradients(gamma, scale, self.weights.left(u), self.weights.right(v))

    def loss(self) -> float:
        return self.of.loss()

    def inner(self) -> float:
        return self.of.inner()

    def squared_norm(self) -> float:
        # A² and B² are α²I + UEUᵀ and α²I + VEVᵀ, and ‖AGB‖² = tr(A² G B² Gᵀ).
        w = self.weights
        square = self.weights.rest**2
        E = w.size**2 - square
        GV = self.of.times(w.V)
        GU = self.of.times_transposed(w.U)
        sides = float((E * np.square(GV)).sum() + (E * np.square(GU)).sum())
        return (
            square**2 * self.of.squared_norm()
            + square * sides
            + float(E @ np.square(w.U.T @ GV) @ E)
        )

    def curvature(self, basis: FloatArray, image: Any, new: int) -> FloatArray:
        return float(self.weights.size[0]) ** 2 * self.of.curvature(
            self.weights.left(basis), image, new
        )

    def projected(self, basis: FloatArray, image: Any, right: FloatArray) -> FloatArray:
        return self.of.projected(self.weights.left(basis), image, self.weights.right(right))

    def put(self, b: FloatArray) -> None:
        self.of.put(b)

    def gradient_of_intercept(self) -> FloatArray:
        return self.of.gradient_of_intercept()

    def curvature_of_intercept(self, x: FloatArray) -> FloatArray:
        return self.of.curvature_of_intercept(x)
