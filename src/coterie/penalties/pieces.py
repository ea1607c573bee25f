"""What a penalty is made of, for methods that work on its pieces and not on its prox."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True)
class Pieces:
    """g(w) = (ridge / 2) ‖w‖² + threshold ‖w‖₁ + Σ_G strengths_G ‖w_G‖ where lower ≤ w ≤ upper and ‖w‖₁ ≤ radius."""

    ridge: float = 0.0
    threshold: float = 0.0
    lower: float | npt.NDArray[np.float64] = -math.inf
    """One number, or one per coefficient, as below."""
    upper: float | npt.NDArray[np.float64] = math.inf
    groups: npt.NDArray[np.intp] | None = None
    """To which group each coefficient belongs, counted from 0."""
    strengths: npt.NDArray[np.float64] | None = None
    """One per group."""
    radius: float = math.inf

    @property
    def kinds(self) -> list[str]:
        """Which pieces there are, beside the ridge: "l1", "bounds", "groups", "ball"."""
        there = {
            "l1": self.threshold > 0,
            "bounds": bool(np.isfinite(self.lower).any() or np.isfinite(self.upper).any()),
            "groups": self.groups is not None,
            "ball": self.radius < math.inf,
        }
        return [kind for kind, is_there in there.items() if is_there]

    @property
    def separable(self) -> bool:
        """Whether g falls apart into functions of one coefficient each."""
        return self.groups is None and self.radius == math.inf
