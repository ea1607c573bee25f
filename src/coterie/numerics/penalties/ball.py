"""What the balls have in common: g(w) = 0 where norm(w) ≤ radius and +∞ elsewhere, with g*(u) =
radius · dual_norm(u).

A ball also has a linear oracle, `lmo(gradient)`: the point of the ball where ⟨gradient, ·⟩ is
least, as an atom.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from coterie.errors import InvalidProblem
from coterie.numerics.arrays import FloatArray
from coterie.numerics.penalties.atoms import Atom
from coterie.numerics.penalties.penalty import FEASIBILITY_TOLERANCE, Penalty, Step, norm, positive


@dataclass(frozen=True)
class Ball(Penalty):
    """The constraint norm(w) ≤ radius."""

    radius: float

    def __post_init__(self) -> None:
        advice = "a ball of radius 0 holds only 0, one without bound is 'none'"
        object.__setattr__(self, "radius", positive(self.radius, f"{self.name} radius", advice))

    @abstractmethod
    def norm(self, w: FloatArray) -> float:
        """The norm whose ball this is."""

    @abstractmethod
    def dual_norm(self, u: FloatArray) -> float:
        """max over norm(w) ≤ 1 of ⟨u, w⟩."""

    @abstractmethod
    def lmo(self, gradient: Any) -> Atom:
        """An atom of the ball at which ⟨gradient, ·⟩ is least: −radius · dual_norm(gradient)."""

    def value(self, w: FloatArray) -> float:
        if self.norm(w) <= self.radius * (1.0 + FEASIBILITY_TOLERANCE):
            return 0.0
        return math.inf

    def conjugate(self, u: FloatArray) -> float:
        return self.radius * self.dual_norm(u)

    def scale_into_domain(self, u: FloatArray, error: Step = 0.0) -> float:
        return 1.0

    def bounded_conjugate(self, u: FloatArray, radius: float) -> float:
        return min(self.conjugate(u), radius * norm(u))

    def restrict(self, columns: npt.NDArray[np.intp]) -> Penalty:
        raise InvalidProblem(
            f"{self.name} ties all columns together and cannot be divided among agents that hold "
            "different ones. "
            "Split by samples, or use 'l1', 'l2' or 'elasticnet'."
        )


def radius_of(penalty: Penalty) -> float:
    """The radius of a penalty that is a ball."""
    assert isinstance(penalty, Ball), f"{penalty.name} is no ball"
    return penalty.radius
