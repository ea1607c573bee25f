"""What every penalty can do.

A penalty is a convex g(w) that contains its own strength. It need not be finite everywhere (bounds, balls).

    g*(u) = sup_w ⟨u, w⟩ − g(w)                            conjugate, +∞ outside its domain
    prox_{s g}(w) = argmin_x  s g(x) + ½ ‖x − w‖²

A duality gap needs a dual point inside the domain of g*. Two ways lead there: `scale_into_domain` shrinks a point
towards 0 (all that l1 and groups need), and `bounded_conjugate` restricts the claim to models of norm at most `radius`
(all that is possible where g has no growth, as for `none`); the certificate says which of the two its number rests on.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from coterie.arrays import FloatArray

__all__ = ["Penalty"]


@dataclass(frozen=True)
class Penalty(ABC):
    """A convex penalty of the coefficients. Subclasses are frozen dataclasses of their parameters."""

    name: ClassVar[str]

    @property
    def strong_convexity(self) -> float:
        """The largest m for which g − (m/2)‖·‖² is convex."""
        return 0.0

    @abstractmethod
    def value(self, w: FloatArray) -> float:
        """g(w), +∞ where it is not allowed."""

    @abstractmethod
    def prox(self, w: FloatArray, step: float) -> FloatArray:
        """prox_{step g}(w)."""

    @abstractmethod
    def conjugate(self, u: FloatArray) -> float:
        """g*(u), +∞ outside its domain."""

    @abstractmethod
    def scale_into_domain(self, u: FloatArray) -> float:
        """The largest c ≤ 1 for which c·u lies in the domain of g* (0 where only the origin does)."""

    @abstractmethod
    def bounded_conjugate(self, u: FloatArray, radius: float) -> float:
        """sup over ‖w‖₂ ≤ radius of ⟨u, w⟩ − g(w), or an upper bound on it: finite for every u."""

    def restrict(self, columns: npt.NDArray[np.intp]) -> Penalty:
        """The part of this penalty that acts on those columns (for data split by features)."""
        return self

    def settings(self) -> dict[str, Any]:
        """Name and parameters as plain values: what `penalty(**settings)` needs to make this penalty again."""
        return {"name": self.name, **asdict(self)}
