"""g(w) = strength ‖w‖₁, with g*(u) = 0 on ‖u‖∞ ≤ strength and +∞ beyond."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from coterie.numerics.arrays import FloatArray
from coterie.numerics.penalties.penalty import (
    ROUNDING,
    Penalty,
    Step,
    ball_supremum,
    inside,
    norm,
    positive,
    shrink_factor,
)
from coterie.numerics.penalties.pieces import Pieces


@dataclass(frozen=True)
class L1(Penalty):
    """Lasso: g(w) = strength ‖w‖₁."""

    name: ClassVar[str] = "l1"
    separable: ClassVar[bool] = True
    strength: float

    def __post_init__(self) -> None:
        object.__setattr__(
            self, "strength", positive(self.strength, "l1 strength", "for 0 use 'none'")
        )

    @property
    def pieces(self) -> Pieces:
        return Pieces(threshold=self.strength)

    def value(self, w: FloatArray) -> float:
        return self.strength * l1_norm(w)

    def prox(self, w: FloatArray, step: Step) -> FloatArray:
        return soft_threshold(w, np.multiply(step, self.strength))

    def conjugate(self, u: FloatArray) -> float:
        if inside(self._excess(u, 0.0)):
            return 0.0
        return math.inf

    def fenchel_young(self, w: FloatArray, u: FloatArray, error: Step = 0.0) -> float:
        if inside(self._excess(u, error)):
            return slack(w, u, self.strength, error)
        return math.inf

    def scale_into_domain(self, u: FloatArray, error: Step = 0.0) -> float:
        return shrink_factor(self._excess(u, error), u.dtype)

    def bounded_conjugate(self, u: FloatArray, radius: float) -> float:
        # ⟨u, w⟩ − λ‖w‖₁ ≤ ⟨|u| − λ, |w|⟩ ≤ ‖(|u| − λ)₊‖ ‖w‖, both equalities at w ∝ sign(u) (|u| −
        # λ)₊.
        excess = norm(soft_threshold(u.astype(np.float64), self.strength))
        return min(self.conjugate(u), ball_supremum(excess, 0.0, radius))

    def _excess(self, u: FloatArray, error: Step) -> float:
        """The largest ratio of |u_j| (plus error) to the strength: at most 1 inside the domain."""
        return float(np.max(np.abs(u) + error, initial=0)) / self.strength


def slack(w: FloatArray, u: FloatArray, threshold: float, error: Step) -> float:
    """Σ_j threshold |w_j| − u_j w_j for |u_j| ≤ threshold, from above."""
    size = np.abs(w.astype(np.float64, copy=False))
    left = np.maximum(threshold - u * np.sign(w), 0.0) + error + ROUNDING * threshold
    return float(size @ left)


def l1_norm(w: FloatArray) -> float:
    """‖w‖₁, in double precision."""
    return float(np.abs(w).sum(dtype=np.float64))


def soft_threshold(w: FloatArray, threshold: Step) -> FloatArray:
    """Move every entry towards 0 by the threshold (one number, or one per entry), but not
    beyond 0.
    """
    threshold = np.asarray(threshold, w.dtype)
    return w - np.clip(w, -threshold, threshold)
