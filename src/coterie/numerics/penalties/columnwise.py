"""g(w) = Σ_j λ₁_j |w_j| + (λ₂_j / 2) w_j² where lower ≤ w ≤ upper, with numbers for every column:
λ₁ = strength·l1, λ₂ = strength·l2.

It is what penalty factors and a penalty per party become. A column with λ₁ = λ₂ = 0 is unpenalised.

    g*(u) = Σ_j u_j z_j − g_j(z_j),   z_j = argmax u_j z − g_j(z) = soft(u_j, λ₁_j) / λ₂_j, clipped

z_j is infinite where nothing stops it: there g*(u) = +∞. On ‖w‖ ≤ r, every μ ≥ 0 gives an upper
bound: add μ to λ₂, and μ r²/2 to the conjugate. The μ at which ‖z‖ = r gives the least one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from coterie.errors import InvalidProblem
from coterie.numerics.arrays import FloatArray, as_number
from coterie.numerics.penalties.box import Box
from coterie.numerics.penalties.l1 import soft_threshold
from coterie.numerics.penalties.penalty import (
    DOMAIN_TOLERANCE,
    ROUNDING,
    Penalty,
    Step,
    norm,
    positive,
    shrink_factor,
)
from coterie.numerics.penalties.pieces import Pieces

Numbers = float | tuple[float, ...]
"""One number for all columns, or one per column."""

HALVINGS = 60
"""Halvings of the interval that has μ."""


@dataclass(frozen=True)
class Columnwise(Penalty):
    """An l1 part, an l2 part and bounds with numbers for every column: strength (Σ l1_j |w_j| + ½ Σ
    l2_j w_j²).
    """

    name: ClassVar[str] = "columnwise"
    separable: ClassVar[bool] = True
    strength: float = 1.0
    l1: Numbers = 0.0
    l2: Numbers = 0.0
    lower: Numbers = -math.inf
    upper: Numbers = math.inf

    def __post_init__(self) -> None:
        checked = positive(self.strength, "columnwise strength", "for 0 use 'none'")
        object.__setattr__(self, "strength", checked)
        object.__setattr__(self, "l1", factors_of(self.l1, "l1"))
        object.__setattr__(self, "l2", factors_of(self.l2, "l2"))
        box = Box(self.lower, self.upper)
        object.__setattr__(self, "lower", box.lower)
        object.__setattr__(self, "upper", box.upper)
        widths = {len(side) for side in self._fields if isinstance(side, tuple)}
        if len(widths) > 1:
            raise InvalidProblem(
                "l1, l2, lower and upper of the columnwise penalty are for different numbers of "
                f"columns: {', '.join(map(str, sorted(widths)))}. Give each one number per column."
            )

    @property
    def _fields(self) -> tuple[Numbers, ...]:
        return self.l1, self.l2, self.lower, self.upper

    @cached_property
    def _box(self) -> Box:
        return Box(self.lower, self.upper)

    @cached_property
    def _thresholds(self) -> npt.NDArray[np.float64]:
        """λ₁."""
        return self.strength * np.array(self.l1, float)

    @cached_property
    def _ridges(self) -> npt.NDArray[np.float64]:
        """λ₂."""
        return self.strength * np.array(self.l2, float)

    @cached_property
    def _sides(self) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        return np.array(self.lower, float), np.array(self.upper, float)

    @property
    def strong_convexity(self) -> float:
        if not self._ridges.size:
            return 0.0
        return float(self._ridges.min())

    @property
    def coercive(self) -> bool:
        lower, upper = self._sides
        bounded = np.isfinite(lower) & np.isfinite(upper)
        return bool(np.all((self._thresholds > 0) | (self._ridges > 0) | bounded))

    @property
    def pieces(self) -> Pieces:
        lower, upper = self._sides
        return Pieces(
            ridge=_plain(self._ridges),
            threshold=_plain(self._thresholds),
            lower=lower,
            upper=upper,
        )

    def value(self, w: FloatArray) -> float:
        self._check_width(w)
        exact = w.astype(float, copy=False)
        terms = self._thresholds * np.abs(exact) + 0.5 * self._ridges * exact**2
        return float(terms.sum()) + self._box.value(w)

    def prox(self, w: FloatArray, step: Step) -> FloatArray:
        self._check_width(w)
        step = np.asarray(step, w.dtype)
        shrunk = soft_threshold(w, step * self._thresholds)
        moved = shrunk / (1.0 + step * self._ridges).astype(w.dtype)
        return self._box.prox(moved, step)

    def conjugate(self, u: FloatArray) -> float:
        return self._conjugate(u, 0.0)

    def _conjugate(self, u: FloatArray, mu: float) -> float:
        """g*(u) with μ added to λ₂."""
        exact = u.astype(float, copy=False)
        z = self._maximiser(exact, mu)
        if np.isinf(z).any():
            return math.inf
        terms = exact * z - self._thresholds * np.abs(z) - 0.5 * (self._ridges + mu) * z**2
        return float(terms.sum())

    def conjugate_gradient(self, u: FloatArray) -> FloatArray:
        if not self.strong_convexity > 0:
            return super().conjugate_gradient(u)
        return self._maximiser(u.astype(float, copy=False), 0.0).astype(u.dtype, copy=False)

    def fenchel_young(self, w: FloatArray, u: FloatArray, error: Step = 0.0) -> float:
        return self._fenchel_young(w, u, error, 0.0)

    def _fenchel_young(self, w: FloatArray, u: FloatArray, error: Step, mu: float) -> float:
        """With μ added to λ₂. A term is convex in u_j, so that its largest value is at an end."""
        if math.isinf(self._box.value(w)):
            return math.inf
        w = w.astype(float, copy=False)
        most = np.maximum(self._terms(w, u + error, mu), self._terms(w, u - error, mu))
        return float(most.sum())

    def _terms(self, w: FloatArray, u: FloatArray, mu: float) -> FloatArray:
        """g_j(w_j) + g*_j(u_j) − u_j w_j of every column, from above.

        With z the maximiser and p the slope of λ₁|·| at z, it is ½λ₂ (w − z)² + (u − λ₂z − p)(z −
        w) + (λ₁|w| − p w). No term is negative. The second is 0 unless z is at a bound.
        """
        thresholds, ridges = self._thresholds, self._ridges + mu
        lower, upper = self._sides
        z = self._maximiser(u, mu)
        unbounded = np.isinf(z)
        z = np.where(unbounded, 0.0, z)
        size, reach = np.abs(w), np.abs(z)
        pressed = np.where(z == 0, np.clip(u, -thresholds, thresholds), thresholds * np.sign(z))
        lost = ROUNDING * (np.abs(u) + ridges * reach + thresholds)
        rest = np.abs(u - ridges * z - pressed) + lost
        held = np.where((z == lower) | (z == upper), rest, 0.0)
        distance = np.abs(w - z) + ROUNDING * (size + reach)
        slack = np.maximum(thresholds - pressed * np.sign(w), 0.0) + ROUNDING * thresholds
        terms = 0.5 * ridges * distance**2 + held * distance + size * slack
        found: FloatArray = np.where(unbounded, np.inf, terms)
        return found

    def scale_into_domain(self, u: FloatArray, error: Step = 0.0) -> float:
        self._check_width(u)
        lower, upper = self._sides
        # Only where nothing but λ₁ stops a column does u have to be small.
        loose = self._ridges == 0
        rise = np.where(loose & np.isinf(upper), u + error, 0.0)
        fall = np.where(loose & np.isinf(lower), error - u, 0.0)
        reach = np.maximum(np.maximum(rise, fall), 0.0)
        with np.errstate(divide="ignore", invalid="ignore"):
            shares = np.where(reach > 0, reach / self._thresholds, 0.0)
        return shrink_factor(float(shares.max(initial=0.0)), u.dtype)

    def bounded_conjugate(self, u: FloatArray, radius: float) -> float:
        mu = self._multiplier(u.astype(float, copy=False), radius)
        if not mu:
            return self.conjugate(u)
        return min(self.conjugate(u), self._conjugate(u, mu) + 0.5 * mu * radius**2)

    def bounded_fenchel_young(
        self, w: FloatArray, u: FloatArray, radius: float, error: Step = 0.0
    ) -> float:
        ends = [self._multiplier(end, radius) for end in (u + error, u - error)]
        mu = max(ends)
        rest = 0.5 * mu * (radius**2 - norm(w) ** 2) + ROUNDING * mu * radius**2
        return self._fenchel_young(w, u, error, mu) + rest

    def _multiplier(self, u: FloatArray, radius: float) -> float:
        """The least μ, up to rounding, at which ‖z‖ ≤ radius."""
        if norm(self._maximiser(u, 0.0)) <= radius:
            return 0.0
        low, high = 0.0, norm(u) / radius
        for _ in range(HALVINGS):
            middle = 0.5 * (low + high)
            if norm(self._maximiser(u, middle)) > radius:
                low = middle
            else:
                high = middle
        return high

    def _maximiser(self, u: FloatArray, mu: float) -> npt.NDArray[np.float64]:
        """z, where μ is added to λ₂; infinite where u is outside the domain."""
        self._check_width(u)
        thresholds = self._thresholds
        pull = soft_threshold(u, thresholds)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            z = np.where(pull == 0, 0.0, pull / (self._ridges + mu))
        z = np.clip(z, *self._sides)
        nearly = np.isinf(z) & (np.abs(u) <= thresholds * (1.0 + DOMAIN_TOLERANCE))
        found: npt.NDArray[np.float64] = np.where(nearly, np.clip(0.0, *self._sides), z)
        return found

    def repeated(self, columns: int, times: int) -> Columnwise:
        def repeat(numbers: Numbers) -> Numbers:
            if isinstance(numbers, tuple):
                return tuple(np.repeat(numbers, times).tolist())
            return numbers

        return Columnwise(self.strength, *map(repeat, self._fields))

    def restrict(self, columns: npt.NDArray[np.intp]) -> Columnwise:
        def part(numbers: Numbers) -> Numbers:
            if isinstance(numbers, tuple):
                return tuple(np.array(numbers)[columns].tolist())
            return numbers

        return Columnwise(self.strength, *map(part, self._fields))

    def _check_width(self, w: FloatArray) -> None:
        for numbers in self._fields:
            if isinstance(numbers, tuple) and w.shape != (len(numbers),):
                raise InvalidProblem(
                    f"the columnwise penalty has numbers for {len(numbers)} columns, the "
                    f"coefficients have shape {w.shape}. Give one number per column."
                )


def factors_of(given: object, what: str) -> Numbers:
    """Return the factors as plain numbers; refuse those that are negative or not finite."""
    numbers = [as_number(one) for one in (given if isinstance(given, Iterable) else [given])]
    for place, number in enumerate(numbers):
        if not 0 <= number < math.inf:
            raise InvalidProblem(
                f"{what} of column {place} must be a number from 0 up (0: unpenalised), not "
                f"{number!r}."
            )
    if isinstance(given, Iterable):
        return tuple(numbers)
    return numbers[0]


def weighted(given: Penalty, factors: Sequence[float]) -> Columnwise:
    """Return the penalty with its strength multiplied by a factor for every column."""
    unit = _unit(given)
    if unit is None or set(unit.kinds) - {"l1"}:
        raise InvalidProblem(
            f"the {given.name} penalty takes no factors of columns; use l1, l2 or elasticnet."
        )
    scales = np.array(factors_of(factors, "the factor"), float)
    parts: list[Numbers] = []
    for part in (unit.threshold, unit.ridge):
        # A part that no column has stays one number, so that methods need not expect it.
        numbers: Any = 0.0
        of_columns = part * scales
        if np.any(of_columns):
            numbers = tuple(of_columns.tolist())
        parts.append(numbers)
    return Columnwise(_strength(given), *parts)


def joined(parts: Sequence[Penalty], columns: Sequence[npt.NDArray[np.intp]]) -> Columnwise:
    """Return one penalty of all columns: each part is on its own columns."""
    width = sum(map(len, columns))
    l1, l2 = np.zeros(width), np.zeros(width)
    lower, upper = np.full(width, -np.inf), np.full(width, np.inf)
    for part, own in zip(parts, columns, strict=True):
        pieces = part.pieces
        if pieces is None or not pieces.separable:
            raise InvalidProblem(
                f"the {part.name} penalty cannot be that of one party among others; use none, l1, "
                "l2, elasticnet, box or nonnegative."
            )
        try:
            l1[own], l2[own] = pieces.threshold, pieces.ridge
            lower[own], upper[own] = pieces.lower, pieces.upper
        except ValueError as error:
            raise InvalidProblem(
                f"the {part.name} penalty of a party with {len(own)} columns has numbers for "
                "another number of columns. Give one number per column of this party."
            ) from error
    return Columnwise(1.0, *map(_shortest, (l1, l2, lower, upper)))


def _shortest(numbers: FloatArray) -> Numbers:
    """One number where all are equal."""
    if numbers.size and (numbers == numbers[0]).all():
        return float(numbers[0])
    return tuple(numbers.tolist())


def _unit(given: Penalty) -> Pieces | None:
    """The pieces of the penalty with strength 1."""
    if not hasattr(given, "strength"):
        return None
    same: Any = given
    return replace(same, strength=1.0).pieces  # type: ignore[no-any-return]


def _strength(given: Any) -> float:
    return float(given.strength)


def _plain(numbers: npt.NDArray[np.float64]) -> Any:
    """One number as a float."""
    if numbers.ndim:
        return numbers
    return float(numbers)
