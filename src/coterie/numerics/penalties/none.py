"""g(w) = 0, with g*(u) = 0 at u = 0 and +∞ elsewhere."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from coterie.numerics.arrays import FloatArray
from coterie.numerics.penalties.penalty import Penalty, Step, norm
from coterie.numerics.penalties.pieces import Pieces


@dataclass(frozen=True)
class NoPenalty(Penalty):
    """No penalty: g(w) = 0."""

    name: ClassVar[str] = "none"
    separable: ClassVar[bool] = True
    is_zero: ClassVar[bool] = True

    @property
    def coercive(self) -> bool:
        return False

    @property
    def pieces(self) -> Pieces:
        return Pieces()

    def value(self, w: FloatArray) -> float:
        return 0.0

    def prox(self, w: FloatArray, step: Step) -> FloatArray:
        return w.copy()

    def conjugate(self, u: FloatArray) -> float:
        if u.any():
            return math.inf
        return 0.0

    def fenchel_young(self, w: FloatArray, u: FloatArray, error: Step = 0.0) -> float:
        if u.any() or np.any(error):
            return math.inf
        return 0.0

    def scale_into_domain(self, u: FloatArray, error: Step = 0.0) -> float:
        if u.any() or np.any(error):
            return 0.0
        return 1.0

    def bounded_conjugate(self, u: FloatArray, radius: float) -> float:
        return radius * norm(u)
