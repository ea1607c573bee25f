"""g(w) = (strength / 2) ‖w‖², with g*(u) = ‖u‖² / (2 strength)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from coterie.numerics.arrays import FloatArray
from coterie.numerics.penalties.penalty import (
    ROUNDING,
    Penalty,
    Step,
    ball_supremum,
    lengths,
    norm,
    positive,
    spread,
)
from coterie.numerics.penalties.pieces import Pieces


@dataclass(frozen=True)
class L2(Penalty):
    """Ridge: g(w) = (strength / 2) ‖w‖²."""

    name: ClassVar[str] = "l2"
    separable: ClassVar[bool] = True
    quadratic: ClassVar[bool] = True
    strength: float

    def __post_init__(self) -> None:
        object.__setattr__(
            self, "strength", positive(self.strength, "l2 strength", "for 0 use 'none'")
        )

    @property
    def strong_convexity(self) -> float:
        return self.strength

    @property
    def pieces(self) -> Pieces:
        return Pieces(ridge=self.strength)

    def value(self, w: FloatArray) -> float:
        size = norm(w)
        return 0.5 * self.strength * size * size

    def prox(self, w: FloatArray, step: Step) -> FloatArray:
        return w / (1.0 + np.asarray(step, w.dtype) * self.strength)

    def conjugate(self, u: FloatArray) -> float:
        size = norm(u)
        return 0.5 * size * (size / self.strength)

    def conjugate_gradient(self, u: FloatArray) -> FloatArray:
        return u / self.strength

    def fenchel_young(self, w: FloatArray, u: FloatArray, error: Step = 0.0) -> float:
        return float(half_square(w, u, self.strength, error))

    def scale_into_domain(self, u: FloatArray, error: Step = 0.0) -> float:
        return 1.0

    def bounded_conjugate(self, u: FloatArray, radius: float) -> float:
        return ball_supremum(norm(u), self.strength, radius)


def half_square(w: FloatArray, u: FloatArray, strength: float, error: Step) -> Any:
    """(strength / 2) ‖w − u / strength‖², from above; of vectors that stand in rows, of each."""
    ideal = u / strength
    distance = (
        lengths(w - ideal) + spread(error, w) / strength + ROUNDING * (lengths(w) + lengths(ideal))
    )
    return 0.5 * strength * distance * distance
