"""g(w) = 0 where lower ≤ w ≤ upper and +∞ elsewhere, with g*(u) = Σ_i max(lower_i u_i, upper_i
u_i), where 0·∞ = 0.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from coterie.errors import InvalidProblem
from coterie.numerics.arrays import FloatArray, as_number
from coterie.numerics.penalties.penalty import FEASIBILITY_TOLERANCE, ROUNDING, Penalty, Step, norm
from coterie.numerics.penalties.pieces import Pieces

Sides = tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]


@dataclass(frozen=True)
class Bounds(Penalty):
    """Bounds on the coefficients, wherever they come from."""

    separable: ClassVar[bool] = True

    @property
    @abstractmethod
    def _sides(self) -> Sides:
        """The lower and the upper bounds: one number for all columns, or one per column."""

    def repeated(self, columns: int, times: int) -> Box:
        lower, upper = self._sides
        return Box(_repeated(lower, times), _repeated(upper, times))

    @property
    def coercive(self) -> bool:
        return all(bool(np.isfinite(side).all()) for side in self._sides)

    @property
    def pieces(self) -> Pieces:
        lower, upper = self._sides
        return Pieces(lower=lower, upper=upper)

    def value(self, w: FloatArray) -> float:
        lower, upper = self._rounded_sides(w)
        lowest = lower - FEASIBILITY_TOLERANCE * np.abs(lower)
        highest = upper + FEASIBILITY_TOLERANCE * np.abs(upper)
        if np.all((lowest <= w) & (w <= highest)):
            return 0.0
        return math.inf

    def prox(self, w: FloatArray, step: Step) -> FloatArray:
        return np.clip(w, *self._rounded_sides(w))

    def conjugate(self, u: FloatArray) -> float:
        support, unbounded = self._support(u)
        if unbounded.any():
            return math.inf
        return float(support.sum())

    def fenchel_young(self, w: FloatArray, u: FloatArray, error: Step = 0.0) -> float:
        terms, unbounded = self._terms(w, u, error)
        if unbounded.any() or math.isinf(self.value(w)):
            return math.inf
        return float(terms.sum())

    def scale_into_domain(self, u: FloatArray, error: Step = 0.0) -> float:
        if self._may_be_unbounded(u, error).any():
            return 0.0
        return 1.0

    def bounded_conjugate(self, u: FloatArray, radius: float) -> float:
        # The support of the bounded columns plus Cauchy–Schwarz for the others, or Cauchy–Schwarz
        # for all columns.
        support, unbounded = self._support(u)
        by_columns = float(support.sum()) + radius * norm(u[unbounded])
        return min(by_columns, radius * norm(u))

    def bounded_fenchel_young(
        self, w: FloatArray, u: FloatArray, radius: float, error: Step = 0.0
    ) -> float:
        terms, unbounded = self._terms(w, u, error)
        free = u[unbounded]
        off = np.broadcast_to(np.asarray(error, float), u.shape)[unbounded]
        length = norm(free)
        rounding = (radius + norm(w)) * (norm(off) + ROUNDING * length)
        rest = radius * length - float(free @ w[unbounded]) + rounding
        if math.isinf(self.value(w)):
            return math.inf
        return float(terms.sum()) + max(rest, 0.0)

    def _terms(
        self, w: FloatArray, u: FloatArray, error: Step
    ) -> tuple[FloatArray, npt.NDArray[np.bool_]]:
        """u_i times the distance of w_i to the bound on that side, from above, and whether there is
        no such bound.
        """
        lower, upper = (np.broadcast_to(side, w.shape) for side in self._sides)
        unbounded = self._may_be_unbounded(u, error)
        with np.errstate(invalid="ignore"):
            up = np.maximum(upper - w, 0.0)
            down = np.maximum(w - lower, 0.0)
            rise = np.maximum(u + error, 0.0)
            fall = np.maximum(error - u, 0.0)
            # 0·∞ = 0: an infinite bound does not matter if u does not point to it
            terms = np.where(rise > 0, up * rise, 0.0) + np.where(fall > 0, down * fall, 0.0)
        return np.where(unbounded, 0.0, terms * (1.0 + ROUNDING)), unbounded

    def restrict(self, columns: npt.NDArray[np.intp]) -> Penalty:
        lower, upper = (side[columns] if side.ndim else side for side in self._sides)
        return Box(lower.tolist(), upper.tolist())

    def _may_be_unbounded(self, u: FloatArray, error: Step) -> npt.NDArray[np.bool_]:
        """Whether the support is infinite for a number within the error of u_i."""
        _, above = self._support(u + error)
        _, below = self._support(u - error)
        return above | below

    def _support(self, u: FloatArray) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.bool_]]:
        """max(lower_i u_i, upper_i u_i), 0 where that is infinite, and whether it is infinite."""
        self._check_width(u)
        lower, upper = self._sides
        lower_or_none = np.where(u < 0, lower, 0.0)
        active = np.where(u > 0, upper, lower_or_none)
        unbounded = np.isinf(active)
        return np.where(unbounded, 0.0, active) * u, unbounded

    def _rounded_sides(self, w: FloatArray) -> tuple[FloatArray, FloatArray]:
        """The bounds in the precision of w, rounded inwards, so that a float32 answer is also
        feasible in float64.
        """
        self._check_width(w)
        lower, upper = self._sides
        with np.errstate(over="ignore"):
            low = lower.astype(w.dtype)
            high = upper.astype(w.dtype)
        inner_low = np.where(low < lower, np.nextafter(low, w.dtype.type(np.inf)), low)
        inner_high = np.where(high > upper, np.nextafter(high, w.dtype.type(-np.inf)), high)
        # A box without a number of that precision keeps its nearest ones.
        thin = inner_low > inner_high
        return np.where(thin, low, inner_low), np.where(thin, high, inner_high)

    def _check_width(self, w: FloatArray) -> None:
        widths: set[Any] = {side.shape for side in self._sides if side.ndim}
        if widths - {w.shape}:
            raise InvalidProblem(
                f"the {self.name} has bounds of shape {widths.pop()}, the coefficients have shape "
                f"{w.shape}. "
                "Give one bound per column, or one number for all."
            )


@dataclass(frozen=True)
class Box(Bounds):
    """Bounds on the coefficients: one number for all of them, or one per column; infinite where
    there is none.
    """

    name: ClassVar[str] = "box"
    lower: float | tuple[float, ...]
    upper: float | tuple[float, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "lower", self._side(self.lower))
        object.__setattr__(self, "upper", self._side(self.upper))
        lower, upper = self._sides
        if lower.ndim and upper.ndim and lower.shape != upper.shape:
            raise InvalidProblem(
                f"the {self.name} has {lower.size} lower and {upper.size} upper bounds; give one "
                "of each per column."
            )
        lower, upper = np.broadcast_arrays(lower, upper)
        valid = (lower <= upper) & (lower < np.inf) & (upper > -np.inf)
        invalid = np.flatnonzero(~valid)
        if invalid.size:
            first = invalid[0]
            if lower.ndim:
                where = f" at column {first}"
            else:
                where = ""
            raise InvalidProblem(
                f"the {self.name} is empty{where}: lower is {lower.flat[first]}, upper is "
                f"{upper.flat[first]}. "
                "Every lower bound must be at most its upper bound, with a finite number between "
                "them."
            )

    def _side(self, bound: object) -> float | tuple[float, ...]:
        if isinstance(bound, Iterable):
            numbers = [as_number(b) for b in bound]
        else:
            numbers = [as_number(bound)]
        if np.isnan(numbers).any():
            raise InvalidProblem(
                f"a bound of the {self.name} must be a number, or one number per column, not "
                f"{bound!r}."
            )
        if isinstance(bound, Iterable):
            return tuple(numbers)
        return numbers[0]

    @cached_property
    def _sides(self) -> Sides:
        return np.array(self.lower, np.float64), np.array(self.upper, np.float64)


def _repeated(side: npt.NDArray[np.float64], times: int) -> float | tuple[float, ...]:
    """The bounds with each column's `times` times over; one bound for all columns stays one."""
    if not side.ndim:
        return float(side)
    return tuple(np.repeat(side, times).tolist())
