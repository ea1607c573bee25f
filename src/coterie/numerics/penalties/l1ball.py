"""g(w) = 0 where ‖w‖₁ ≤ radius and +∞ elsewhere, with g*(u) = radius ‖u‖∞; the atoms are
±radius·e_i.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from coterie.numerics.arrays import FloatArray
from coterie.numerics.penalties.atoms import OneHot
from coterie.numerics.penalties.ball import Ball
from coterie.numerics.penalties.l1 import l1_norm, slack
from coterie.numerics.penalties.penalty import ROUNDING, Step
from coterie.numerics.penalties.pieces import Pieces


@dataclass(frozen=True)
class L1Ball(Ball):
    """Lasso as a constraint: ‖w‖₁ ≤ radius."""

    name: ClassVar[str] = "l1ball"

    @property
    def pieces(self) -> Pieces:
        return Pieces(radius=self.radius)

    def norm(self, w: FloatArray) -> float:
        return l1_norm(w)

    def dual_norm(self, u: FloatArray) -> float:
        return float(np.max(np.abs(u), initial=0))

    def prox(self, w: FloatArray, step: Step) -> FloatArray:
        if self.norm(w) <= self.radius:
            return w.copy()
        # Rounding to the precision of w can add half an eps.
        rounding = float(np.finfo(w.dtype).eps)
        projected = onto_l1_ball(w.astype(np.float64), self.radius * (1.0 - rounding))
        return projected.astype(w.dtype, copy=False)

    def fenchel_young(self, w: FloatArray, u: FloatArray, error: Step = 0.0) -> float:
        # (radius − ‖w‖₁) ‖u‖∞ + Σ_j |w_j| (‖u‖∞ − u_j sign w_j)
        if math.isinf(self.value(w)):
            return math.inf
        largest = self.dual_norm(u)
        distance = max(self.radius - self.norm(w), 0.0) + ROUNDING * self.radius
        largest_error = float(np.max(error, initial=0))
        return distance * largest + slack(w, u, largest, error) + self.radius * largest_error

    def lmo(self, gradient: FloatArray) -> OneHot:
        index = int(np.argmax(np.abs(gradient)))
        value = self.radius
        if gradient[index] >= 0:
            value = -self.radius
        return OneHot(index, value, gradient.size)


def onto_l1_ball(w: npt.NDArray[np.float64], radius: float) -> npt.NDArray[np.float64]:
    """The nearest point to a w outside the ball ‖·‖₁ ≤ radius.

    It is sign(w)·(θ − d)₊ with d = max|w| − |w| and Σ(θ − d)₊ = radius: in d ≥ 0, sorted, θ comes
    without cancellation, also where w is many orders of magnitude larger than the ball.
    """
    magnitudes = np.abs(w)
    drops = magnitudes.max() - magnitudes
    nearest = np.sort(drops[drops < radius], axis=None)
    levels = (radius + np.cumsum(nearest)) / np.arange(1, nearest.size + 1)
    theta = levels[np.flatnonzero(levels > nearest)[-1]]
    projected: npt.NDArray[np.float64] = np.copysign(np.maximum(theta - drops, 0.0), w)
    return projected
