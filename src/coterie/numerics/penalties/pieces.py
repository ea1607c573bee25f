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

    A ridge or threshold of an array is Σ_j ridge_j w_j² / 2, or Σ_j threshold_j |w_j|.
    """

    ridge: float | npt.NDArray[np.float64] = 0.0
    """One number, or one per coefficient, as the next three."""
    threshold: float | npt.NDArray[np.float64] = 0.0
    lower: float | npt.NDArray[np.float64] = -math.inf
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
        if self.has_threshold:
            kinds.append("l1")
        if np.isfinite(self.lower).any() or np.isfinite(self.upper).any():
            kinds.append("bounds")
        if self.groups is not None:
            kinds.append("groups")
        if self.radius < math.inf:
            kinds.append("ball")
        return kinds

    @property
    def has_threshold(self) -> bool:
        """Whether there is an l1 piece. With a threshold per coefficient, there is one at agents
        whose own thresholds are 0, too, so that all agents send the same messages.
        """
        return np.ndim(self.threshold) > 0 or bool(self.threshold > 0)

    @property
    def has_ridge(self) -> bool:
        """Whether every coefficient has a ridge."""
        return bool(np.all(np.asarray(self.ridge) > 0))

    @property
    def per_column(self) -> bool:
        """Whether coefficients differ in their ridge or threshold."""
        return np.ndim(self.ridge) > 0 or np.ndim(self.threshold) > 0

    @property
    def separable(self) -> bool:
        """Whether g is a sum of functions of one coefficient each."""
        return self.groups is None and self.radius == math.inf
