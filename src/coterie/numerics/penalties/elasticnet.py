"""g(w) = λ₁‖w‖₁ + (λ₂/2)‖w‖², λ₁ = strength·l1_ratio, λ₂ = strength·(1 − l1_ratio); g*(u) = ‖(|u| −
λ₁)₊‖² / (2λ₂).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from coterie.errors import InvalidProblem
from coterie.numerics.arrays import FloatArray, as_number
from coterie.numerics.penalties.l1 import L1, l1_norm, slack, soft_threshold
from coterie.numerics.penalties.l2 import half_square
from coterie.numerics.penalties.penalty import Penalty, Step, ball_supremum, norm, positive
from coterie.numerics.penalties.pieces import Pieces


@dataclass(frozen=True)
class ElasticNet(Penalty):
    """Lasso and ridge together: g(w) = strength (l1_ratio ‖w‖₁ + ½ (1 − l1_ratio) ‖w‖²)."""

    name: ClassVar[str] = "elasticnet"
    separable: ClassVar[bool] = True
    strength: float
    l1_ratio: float = 0.5

    def __post_init__(self) -> None:
        object.__setattr__(
            self, "strength", positive(self.strength, "elasticnet strength", "for 0 use 'none'")
        )
        if not 0 <= as_number(self.l1_ratio) <= 1:
            raise InvalidProblem(
                "the elasticnet l1_ratio must lie between 0 (all l2) and 1 (all l1), not be "
                f"{self.l1_ratio!r}."
            )
        object.__setattr__(self, "l1_ratio", float(self.l1_ratio))

    @property
    def strong_convexity(self) -> float:
        return self.strength * (1.0 - self.l1_ratio)

    @property
    def _threshold(self) -> float:
        return self.strength * self.l1_ratio

    @property
    def pieces(self) -> Pieces:
        return Pieces(ridge=self.strong_convexity, threshold=self._threshold)

    def value(self, w: FloatArray) -> float:
        return self._threshold * l1_norm(w) + 0.5 * self.strong_convexity * norm(w) ** 2

    def prox(self, w: FloatArray, step: Step) -> FloatArray:
        step = np.asarray(step, w.dtype)
        return soft_threshold(w, step * self._threshold) / (1.0 + step * self.strong_convexity)

    def conjugate(self, u: FloatArray) -> float:
        if self.strong_convexity == 0.0:
            return L1(self.strength).conjugate(u)
        excess = self._excess(u)
        return 0.5 * excess * (excess / self.strong_convexity)

    def conjugate_gradient(self, u: FloatArray) -> FloatArray:
        if self.strong_convexity == 0.0:
            return super().conjugate_gradient(u)
        return soft_threshold(u, self._threshold) / self.strong_convexity

    def fenchel_young(self, w: FloatArray, u: FloatArray, error: Step = 0.0) -> float:
        # With s the part of u beyond the threshold: (λ₂/2) (w − s/λ₂)² + λ₁ |w| − (u − s) w for
        # every entry.
        if self.strong_convexity == 0.0:
            return L1(self.strength).fenchel_young(w, u, error)
        beyond = soft_threshold(u, self._threshold)
        within = np.clip(u, -self._threshold, self._threshold)
        square = float(half_square(w, beyond, self.strong_convexity, error))
        return square + slack(w, within, self._threshold, error)

    def scale_into_domain(self, u: FloatArray, error: Step = 0.0) -> float:
        if self.strong_convexity:
            return 1.0
        return L1(self.strength).scale_into_domain(u, error)

    def bounded_conjugate(self, u: FloatArray, radius: float) -> float:
        return min(self.conjugate(u), ball_supremum(self._excess(u), self.strong_convexity, radius))

    def _excess(self, u: FloatArray) -> float:
        return norm(soft_threshold(u.astype(np.float64), self._threshold))
