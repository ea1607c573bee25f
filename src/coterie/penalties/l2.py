"""g(w) = (strength / 2) ‖w‖², with g*(u) = ‖u‖² / (2 strength)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from coterie.arrays import FloatArray
from coterie.errors import InvalidProblem
from coterie.penalties.penalty import Penalty

__all__ = ["L2"]


@dataclass(frozen=True)
class L2(Penalty):
    """Ridge: g(w) = (strength / 2) ‖w‖²."""

    name: ClassVar[str] = "l2"
    strength: float

    def __post_init__(self) -> None:
        if not (self.strength > 0 and math.isfinite(self.strength)):
            raise InvalidProblem(f"the l2 strength must be a positive number, not {self.strength!r}; for 0 use 'none'.")

    @property
    def strong_convexity(self) -> float:
        return self.strength

    def value(self, w: FloatArray) -> float:
        return 0.5 * self.strength * float(np.vdot(w, w))

    def prox(self, w: FloatArray, step: float) -> FloatArray:
        return w / (1.0 + step * self.strength)

    def conjugate(self, u: FloatArray) -> float:
        return float(np.vdot(u, u)) / (2.0 * self.strength)

    def scale_into_domain(self, u: FloatArray) -> float:
        return 1.0

    def bounded_conjugate(self, u: FloatArray, radius: float) -> float:
        return self.conjugate(u)
