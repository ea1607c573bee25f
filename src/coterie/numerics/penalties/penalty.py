"""The base class of penalties.

A penalty is a convex g(w) that contains its own strength. It may be infinite (bounds, balls).

    g*(u) = sup_w ⟨u, w⟩ − g(w)                            conjugate, +∞ outside its domain
    prox_{s g}(w) = argmin_x  s g(x) + ½ ‖x − w‖²

A duality gap needs a dual point inside the domain of g*. There are two ways. `scale_into_domain`
shrinks a point towards 0, which is enough for l1 and groups. `bounded_conjugate` restricts the
proof to models up to a norm bound, `radius`, which is the only way where g does not grow, as for
`none`. The certificate names the way that it uses.

`fenchel_young` is g(w) + g*(u) − ⟨u, w⟩ ≥ 0, the part of a penalty in a gap. It is a sum of terms
that are not negative, so large numbers do not cancel. A computed u = −Xᵀ(s∘v)/n has rounding
errors. So `fenchel_young` and `scale_into_domain` take a bound on the error of every entry, and
return bounds.

`prox` also takes a step per column; `tied` makes the steps of a group equal.

Values and conjugates are summed in double precision. `prox` keeps the precision of its argument and
never changes the argument.
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
"""The relative error of a few operations."""

DOMAIN_TOLERANCE = 1e-12
"""A dual point that is outside the domain of g* by at most this share, by rounding, counts as
inside.
"""

FEASIBILITY_TOLERANCE = 1e-9
"""Coefficients that are outside a ball or a bound by at most this share, by rounding, count as
inside.
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
        """Whether g grows in every direction, so that `scale_into_domain` is never 0."""
        return True

    @property
    def pieces(self) -> Pieces | None:
        """The pieces of g, for second-order methods; None if g has other pieces."""
        return None

    @abstractmethod
    def value(self, w: FloatArray) -> float:
        """Return g(w), +∞ outside its domain."""

    @abstractmethod
    def prox(self, w: FloatArray, step: Step) -> FloatArray:
        """Return prox_{step g}(w); with a step per column argmin_x g(x) + ½ Σ_i (x_i − w_i)² /
        step_i.
        """

    def tied(self, steps: FloatArray) -> FloatArray:
        """Return the steps, lowered to the least step of each group of columns, as `prox` needs
        them.
        """
        if self.separable:
            return steps
        return np.full_like(steps, steps.min(initial=math.inf))

    @abstractmethod
    def conjugate(self, u: FloatArray) -> float:
        """Return g*(u), +∞ outside its domain."""

    def conjugate_gradient(self, u: FloatArray) -> FloatArray:
        """Return ∇g*(u) = argmax ⟨u, w⟩ − g(w), the model of a dual point; for strongly convex
        penalties only.
        """
        raise InvalidProblem(
            f"the {self.name} penalty is not strongly convex; use l2 or elasticnet."
        )

    @abstractmethod
    def fenchel_young(self, w: FloatArray, u: FloatArray, error: Step = 0.0) -> float:
        """Return g(w) + g*(u) − ⟨u, w⟩ ≥ 0, or its maximum over all u with errors of at most
        `error`.
        """

    @abstractmethod
    def scale_into_domain(self, u: FloatArray, error: Step = 0.0) -> float:
        """Return the largest c ≤ 1 for which c·u, up to c·error, is in the domain of g* (0 if only
        the origin is).
        """

    @abstractmethod
    def bounded_conjugate(self, u: FloatArray, radius: float) -> float:
        """Return sup over ‖w‖₂ ≤ radius of ⟨u, w⟩ − g(w), or an upper bound on it: always
        finite.
        """

    def bounded_fenchel_young(
        self, w: FloatArray, u: FloatArray, radius: float, error: Step = 0.0
    ) -> float:
        """Return `fenchel_young` with the bounded conjugate, for ‖w‖ ≤ radius/10: then no terms
        cancel.
        """
        exact = self.value(w) + self.bounded_conjugate(u, radius) - float(np.dot(u, w))
        of_error = (radius + norm(w)) * float(spread(error, w))
        return max(exact, 0.0) + of_error + ROUNDING * radius * norm(u)

    def repeated(self, columns: int, times: int) -> Penalty:
        """Return this penalty for `columns` columns with `times` coefficients each, one column
        after the other.
        """
        return self

    def restrict(self, columns: npt.NDArray[np.intp]) -> Penalty:
        """Return the part of this penalty on these columns, for data split by features."""
        return self

    def settings(self) -> dict[str, Any]:
        """Return name and parameters as plain values; `penalty(**settings)` makes the penalty
        again.
        """
        return {"name": self.name, **asdict(self)}


def positive(value: object, what: str, advice: str) -> float:
    """Return the value as a float; refuse it, with the advice, unless it is positive and finite."""
    number = as_number(value)
    if not 0 < number < math.inf:
        raise InvalidProblem(f"the {what} must be a positive number, not {value!r}; {advice}.")
    return number


def spread(error: Step, w: FloatArray) -> Any:
    """Return ‖error‖₂, where one number is the error of all entries; for rows of vectors,
    of each.
    """
    if isinstance(error, np.ndarray):
        return lengths(error)
    return float(error) * math.sqrt(w.shape[-1])


def lengths(w: FloatArray) -> Any:
    """Return ‖w‖₂ in double precision; for rows of vectors, of each."""
    exact = w.astype(np.float64, copy=False)
    return np.sqrt(np.vecdot(exact, exact))


def norm(w: FloatArray) -> float:
    """Return ‖w‖₂ of all entries, in double precision."""
    return float(np.linalg.norm(w.astype(np.float64, copy=False).ravel()))


def ball_supremum(gradient: float, curvature: float, radius: float) -> float:
    """Return max over 0 ≤ ρ ≤ radius of ρ gradient − ½ curvature ρ²: a conjugate on its best ray,
    within the ball.
    """
    best = radius
    if gradient < radius * curvature:
        best = gradient / curvature
    return best * (gradient - 0.5 * curvature * best)


def shrink_factor(excess: float, dtype: np.dtype[Any]) -> float:
    """Return the largest c ≤ 1 for which c·excess ≤ 1 holds after c·u is rounded to that
    precision.
    """
    if excess <= 1.0:
        return 1.0
    return (1.0 - 2.0 * float(np.finfo(dtype).eps)) / excess


def inside(excess: float) -> bool:
    """Return whether a dual point counts as inside the domain, from its largest entry as a share
    of the bound.
    """
    return excess <= 1.0 + DOMAIN_TOLERANCE
