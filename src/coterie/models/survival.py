"""Proportional hazards: a coefficient a column, the logarithm of a ratio of hazards."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from coterie.arrays import FloatArray, Matrix
from coterie.errors import InvalidProblem
from coterie.models.linear import LinearModel


@dataclass(frozen=True)
class SurvivalModel(LinearModel):
    """Hazards are in proportion to e^{X·coef_}; what they are in proportion to stays at the parties, see `Baseline`."""

    kind: ClassVar[str] = "survival"

    def hazard_ratios(self) -> FloatArray:
        """e^coef: what the hazard is multiplied by where a column is larger by 1."""
        return np.exp(self.coef_)

    def predict_proba(self, X: Matrix, offset: Any = None) -> FloatArray:
        """Refused: there are no classes."""
        raise InvalidProblem("a survival model has no classes. Use predict for risk scores, or a Baseline for curves.")
