"""g(w) = 0 where lower ≤ w ≤ upper and +∞ elsewhere, with g*(u) = Σ_i max(lower_i u_i, upper_i u_i), where 0·∞ = 0."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from coterie.arrays import FloatArray, as_number
from coterie.errors import InvalidProblem
from coterie.penalties.penalty import FEASIBILITY_TOLERANCE, ROUNDING, Penalty, Step, norm
from coterie.penalties.pieces import Pieces


@dataclass(frozen=True)
class Box(Penalty):
    """Bounds on the coefficients: one number for all of them, or one per column; infinite where there is none."""

    name: ClassVar[str] = "box"
    separable: ClassVar[bool] = True
    lower: float | tuple[float, ...]
    upper: float | tuple[float, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "lower", self._side(self.lower))
        object.__setattr__(self, "upper", self._side(self.upper))
        lower, upper = self._sides
        if lower.ndim and upper.ndim and lower.shape != upper.shape:
            raise InvalidProblem(
                f"the {self.name} has {lower.size} lower and {upper.size} upper bounds; give one of each per column."
            )
        lower, upper = np.broadcast_arrays(lower, upper)
        bad = np.flatnonzero(~((lower <= upper) & (lower < np.inf) & (upper > -np.inf)))
        if bad.size:
            where = f" at column {bad[0]}" if lower.ndim else ""
            raise InvalidProblem(
                f"the {self.name} is empty{where}: lower is {lower.flat[bad[0]]}, upper is {upper.flat[bad[0]]}. "
                "Every lower bound must be at most its upper bound, with a finite number between them."
            )

    def _side(self, bound: object) -> float | tuple[float, ...]:
        numbers = [as_number(b) for b in bound] if isinstance(bound, Iterable) else [as_number(bound)]
        if np.isnan(numbers).any():
            raise InvalidProblem(
                f"a bound of the {self.name} must be a number, or one number per column, not {bound!r}."
            )
        return tuple(numbers) if isinstance(bound, Iterable) else numbers[0]

    @cached_property
    def _sides(self) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        return np.array(self.lower, np.float64), np.array(self.upper, np.float64)

    def repeated(self, columns: int, times: int) -> Box:
        sides = [np.repeat(side, times) if side.ndim else float(side) for side in self._sides]
        return Box(*sides)  # type: ignore[arg-type]

    @property
    def coercive(self) -> bool:
        return all(bool(np.isfinite(side).all()) for side in self._sides)

    @property
    def pieces(self) -> Pieces:
        lower, upper = self._sides
        return Pieces(lower=lower, upper=upper)

    def value(self, w: FloatArray) -> float:
        lower, upper = self._rounded_sides(w)
        slack = FEASIBILITY_TOLERANCE * np.abs(lower), FEASIBILITY_TOLERANCE * np.abs(upper)
        return 0.0 if np.all((lower - slack[0] <= w) & (w <= upper + slack[1])) else math.inf

    def prox(self, w: FloatArray, step: Step) -> FloatArray:
        return np.clip(w, *self._rounded_sides(w))

    def conjugate(self, u: FloatArray) -> float:
        support, unbounded = self._support(u)
        return math.inf if unbounded.any() else float(support.sum())

    def fenchel_young(self, w: FloatArray, u: FloatArray, error: Step = 0.0) -> float:
        terms, unbounded = self._terms(w, u, error)
        return math.inf if unbounded.any() or math.isinf(self.value(w)) else float(terms.sum())

    def scale_into_domain(self, u: FloatArray, error: Step = 0.0) -> float:
        return 0.0 if (self._support(u + error)[1] | self._support(u - error)[1]).any() else 1.0

    def bounded_conjugate(self, u: FloatArray, radius: float) -> float:
        # Where the box is bounded, its support; where it is not, Cauchy–Schwarz; and Cauchy–Schwarz for all of it.
        support, unbounded = self._support(u)
        return min(float(support.sum()) + radius * norm(u[unbounded]), radius * norm(u))

    def bounded_fenchel_young(self, w: FloatArray, u: FloatArray, radius: float, error: Step = 0.0) -> float:
        terms, unbounded = self._terms(w, u, error)
        free, off = u[unbounded], np.broadcast_to(np.asarray(error, float), u.shape)[unbounded]
        rest = (
            radius * norm(free) - float(free @ w[unbounded]) + (radius + norm(w)) * (norm(off) + ROUNDING * norm(free))
        )
        return math.inf if math.isinf(self.value(w)) else float(terms.sum()) + max(rest, 0.0)

    def _terms(self, w: FloatArray, u: FloatArray, error: Step) -> tuple[FloatArray, npt.NDArray[np.bool_]]:
        """u_i times the way of w_i to the bound on that side, with the error on both, and where there is no bound."""
        lower, upper = (np.broadcast_to(side, w.shape) for side in self._sides)
        unbounded = self._support(u + error)[1] | self._support(u - error)[1]
        with np.errstate(invalid="ignore"):
            up, down = np.maximum(upper - w, 0.0), np.maximum(w - lower, 0.0)
            rise, fall = np.maximum(u + error, 0.0), np.maximum(error - u, 0.0)
            # 0·∞ = 0: a bound that is not there does not matter where u does not point to it
            terms = np.where(rise > 0, up * rise, 0.0) + np.where(fall > 0, down * fall, 0.0)
        return np.where(unbounded, 0.0, terms * (1.0 + ROUNDING)), unbounded

    def restrict(self, columns: npt.NDArray[np.intp]) -> Penalty:
        lower, upper = (side[columns] if side.ndim else side for side in self._sides)
        return Box(lower.tolist(), upper.tolist())

    def _support(self, u: FloatArray) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.bool_]]:
        """max(lower_i u_i, upper_i u_i) where that is finite and 0 elsewhere, and where that is."""
        self._check_width(u)
        lower, upper = self._sides
        active = np.where(u > 0, upper, np.where(u < 0, lower, 0.0))
        unbounded = np.isinf(active)
        return np.where(unbounded, 0.0, active) * u, unbounded

    def _rounded_sides(self, w: FloatArray) -> tuple[FloatArray, FloatArray]:
        """The bounds in the precision of w, rounded inwards, so that a float32 answer is also feasible in float64."""
        self._check_width(w)
        lower, upper = self._sides
        with np.errstate(over="ignore"):
            low, high = lower.astype(w.dtype), upper.astype(w.dtype)
        inner_low = np.where(low < lower, np.nextafter(low, w.dtype.type(np.inf)), low)
        inner_high = np.where(high > upper, np.nextafter(high, w.dtype.type(-np.inf)), high)
        # A box too thin to hold a number of that precision keeps its nearest ones.
        thin = inner_low > inner_high
        return np.where(thin, low, inner_low), np.where(thin, high, inner_high)

    def _check_width(self, w: FloatArray) -> None:
        widths: set[Any] = {side.shape for side in self._sides if side.ndim}
        if widths - {w.shape}:
            raise InvalidProblem(
                f"the {self.name} has bounds of shape {widths.pop()}, the coefficients have shape {w.shape}. "
                "Give one bound per column, or one number for all."
            )
