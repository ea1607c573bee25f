"""What every penalty can do.

A penalty is a convex g(w) that contains its own strength. It need not be finite everywhere (bounds,
balls).

    g*(u) = sup_w ⟨u, w⟩ − g(w)                            conjugate, +∞ outside its domain
    prox_{s g}(w) = argmin_x  s g(x) + ½ ‖x − w‖²

A duality gap needs a dual point inside the domain of g*. Two ways lead there: `scale_into_domain`
shrinks a point towards 0 (all that l1 and groups need), and `bounded_conjugate` restricts the claim
to models of norm at most `radius` (all that is possible where g has no growth, as for `none`); the
certificate says which of the two its number rests on.

`fenchel_young` is g(w) + g*(u) − ⟨u, w⟩ ≥ 0, a penalty's part of a gap, as a sum of terms that are
not negative, so that large numbers do not cancel. A computed u = −Xᵀ(s∘v)/n is known up to its
rounding only: both it and `scale_into_domain` take the most that every entry can be off, and stay
on the safe side.

`prox` also takes a step per column; `tied` makes those equal that must be.

Values and conjugates are summed in double precision; `prox` keeps the precision of its argument and
never changes it.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from coterie.errors import InvalidProblem
from coterie.numerics.arrays import FloatArray, as_number
from coterie.numerics.penalties.pieces import Pieces

Step = float | FloatArray
"""One number, or one per column."""

ROUNDING = 16 * 2.0**-53
"""What a handful of operations can lose, relatively."""

DOMAIN_TOLERANCE = 1e-12
"""A dual point this far (relatively) outside the domain of g* was put there by rounding and counts
as inside.
"""

FEASIBILITY_TOLERANCE = 1e-9
"""Coefficients this far (relatively) outside a ball or a bound were put there by rounding and count
as inside.
"""


@dataclass(frozen=True)
class Penalty(ABC):
    """A convex penalty of the coefficients. Subclasses are frozen dataclasses of their
    parameters.
    """

    name: ClassVar[str]
    for_matrices: ClassVar[bool] = False
    """Whether it is a penalty of a matrix of coefficients, not of a vector."""
    separable: ClassVar[bool] = False
    """Whether g is a sum of functions of one coefficient each."""
    quadratic: ClassVar[bool] = False
    """Whether g(w) = (m/2) ‖w‖² with m = `strong_convexity` > 0."""
    is_zero: ClassVar[bool] = False
    """Whether g(w) = 0."""

    @property
    def strong_convexity(self) -> float:
        """The largest m for which g − (m/2)‖·‖² is convex."""
        return 0.0

    @property
    def coercive(self) -> bool:
        """Whether g grows in every direction, so that `scale_into_domain` never has to go down to
        0.
        """
        return True

    @property
    def pieces(self) -> Pieces | None:
        """What g is made of, for second-order methods; None if it is made of anything else."""
        return None

    @abstractmethod
    def value(self, w: FloatArray) -> float:
        """g(w), +∞ where it is not allowed."""

    @abstractmethod
    def prox(self, w: FloatArray, step: Step) -> FloatArray:
        """prox_{step g}(w). With a step per column: argmin_x g(x) + ½ Σ_i (x_i − w_i)² / step_i."""

    def tied(self, steps: FloatArray) -> FloatArray:
        """Those steps, lowered to the least of all columns that the penalty ties together, as
        `prox` needs them.
        """
        if self.separable:
            return steps
        return np.full_like(steps, steps.min(initial=math.inf))

    @abstractmethod
    def conjugate(self, u: FloatArray) -> float:
        """g*(u), +∞ outside its domain."""

    def conjugate_gradient(self, u: FloatArray) -> FloatArray:
        """∇g*(u) = argmax ⟨u, w⟩ − g(w): the model that belongs to a dual point; for strongly
        convex penalties only.
        """
        raise InvalidProblem(
            f"the {self.name} penalty is not strongly convex; use l2 or elasticnet."
        )

    @abstractmethod
    def fenchel_young(self, w: FloatArray, u: FloatArray, error: Step = 0.0) -> float:
        """g(w) + g*(u) − ⟨u, w⟩ ≥ 0, or the most it can be if every entry of u may be off by that
        error.
        """

    @abstractmethod
    def scale_into_domain(self, u: FloatArray, error: Step = 0.0) -> float:
        """The largest c ≤ 1 for which c·u, up to c·error, lies in the domain of g* (0 where only
        the origin does).
        """

    @abstractmethod
    def bounded_conjugate(self, u: FloatArray, radius: float) -> float:
        """sup over ‖w‖₂ ≤ radius of ⟨u, w⟩ − g(w), or an upper bound on it: finite for every u."""

    def bounded_fenchel_young(
        self, w: FloatArray, u: FloatArray, radius: float, error: Step = 0.0
    ) -> float:
        """The same as `fenchel_young` with the bounded conjugate, for ‖w‖ ≤ radius/10: nothing
        cancels then.
        """
        sure = self.value(w) + self.bounded_conjugate(u, radius) - float(np.dot(u, w))
        return (
            max(sure, 0.0)
            + (radius + norm(w)) * float(spread(error, w))
            + ROUNDING * radius * norm(u)
        )

    def repeated(self, columns: int, times: int) -> Penalty:
        """This penalty for `columns` columns with `times` coefficients each, one column after the
        other.
        """
        return self

    def restrict(self, columns: npt.NDArray[np.intp]) -> Penalty:
        """The part of this penalty that acts on those columns (for data split by features)."""
        return self

    def settings(self) -> dict[str, Any]:
        """Name and parameters as plain values: what `penalty(**settings)` needs to make this
        penalty again.
        """
        return {"name": self.name, **asdict(self)}


def positive(value: object, what: str, advice: str) -> float:
    """The value as a float; refused, with the advice, unless it is a positive and finite number."""
    number = as_number(value)
    if not 0 < number < math.inf:
        raise InvalidProblem(f"the {what} must be a positive number, not {value!r}; {advice}.")
    return number


def spread(error: Step, w: FloatArray) -> Any:
    """‖error‖₂, one number standing for all entries; of vectors that stand in rows, of each."""
    if isinstance(error, np.ndarray):
        return lengths(error)
    return float(error) * math.sqrt(w.shape[-1])


def lengths(w: FloatArray) -> Any:
    """‖w‖₂ in double precision; of vectors that stand in rows, of each."""
    exact = w.astype(np.float64, copy=False)
    return np.sqrt(np.vecdot(exact, exact))


def norm(w: FloatArray) -> float:
    """‖w‖₂ of all entries, in double precision."""
    return float(np.linalg.norm(w.astype(np.float64, copy=False).ravel()))


def ball_supremum(gradient: float, curvature: float, radius: float) -> float:
    """max over 0 ≤ ρ ≤ radius of ρ gradient − ½ curvature ρ²: a conjugate on its best ray, within
    the ball.
    """
    best = radius
    if gradient < radius * curvature:
        best = gradient / curvature
    return best * (gradient - 0.5 * curvature * best)


def shrink_factor(excess: float, dtype: np.dtype[Any]) -> float:
    """The largest c ≤ 1 for which c·excess ≤ 1 still holds after c·u was rounded to that
    precision.
    """
    if excess <= 1.0:
        return 1.0
    return (1.0 - 2.0 * float(np.finfo(dtype).eps)) / excess


def inside(excess: float) -> bool:
    """Whether a dual point whose largest share of what is allowed is that counts as inside the
    domain.
    """
    return excess <= 1.0 + DOMAIN_TOLERANCE
