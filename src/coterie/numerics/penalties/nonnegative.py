"""g(w) = 0 where w ≥ 0 and +∞ elsewhere, with g*(u) = 0 where u ≤ 0 and +∞ elsewhere."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from coterie.numerics.penalties.box import Bounds, Sides


@dataclass(frozen=True)
class NonNegative(Bounds):
    """No negative coefficients: the box from 0 to +∞."""

    name: ClassVar[str] = "nonnegative"
    _sides: ClassVar[Sides] = np.array(0.0), np.array(math.inf)

    def restrict(self, columns: npt.NDArray[np.intp]) -> NonNegative:
        return self
