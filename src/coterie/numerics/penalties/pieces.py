"""The pieces of a penalty, for methods that do not use its prox."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True)
class Pieces:
    """g(w) = (ridge / 2) ‖w‖² + threshold ‖w‖₁ + Σ_G strengths_G ‖w_G‖ where lower ≤ w ≤ upper and
    ‖w‖₁ ≤ radius.
    """

    ridge: float = 0.0
    threshold: float = 0.0
    lower: float | npt.NDArray[np.float64] = -math.inf
    """One number, or one per coefficient, as below."""
    upper: float | npt.NDArray[np.float64] = math.inf
    groups: npt.NDArray[np.intp] | None = None
    """The group of each coefficient, counted from 0."""
    strengths: npt.NDArray[np.float64] | None = None
    """One per group."""
    radius: float = math.inf

    @property
    def kinds(self) -> list[str]:
        """The pieces of this penalty without the ridge: "l1", "bounds", "groups", "ball"."""
        kinds = []
        if self.threshold > 0:
            kinds.append("l1")
        if np.isfinite(self.lower).any() or np.isfinite(self.upper).any():
            kinds.append("bounds")
        if self.groups is not None:
            kinds.append("groups")
        if self.radius < math.inf:
            kinds.append("ball")
        return kinds

    @property
    def separable(self) -> bool:
        """Whether g is a sum of functions of one coefficient each."""
        return self.groups is None and self.radius == math.inf
