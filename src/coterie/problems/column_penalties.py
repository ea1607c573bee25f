"""Penalties that are known once the columns of all parties are: factors by the names of columns,
and a list with the penalty of each party. A run replaces them by a `Columnwise` penalty.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple, NoReturn

import numpy as np
import numpy.typing as npt

from coterie.errors import InvalidProblem, UnknownName
from coterie.numerics.arrays import FloatArray, as_number
from coterie.numerics.penalties import Penalty, Step, penalty
from coterie.numerics.penalties.columnwise import factors_of, joined, weighted
from coterie.numerics.penalties.penalty import positive
from coterie.numerics.penalties.pieces import Pieces

Factors = Sequence[float] | Mapping[str, float]
"""One number per column, or numbers by the names of columns."""


class ColumnsOfAll(NamedTuple):
    """What is known of the columns of all parties together."""

    places: Sequence[npt.NDArray[np.intp]]
    """The pooled column numbers of each party; split by samples, those of one party."""
    names: Sequence[str] | None = None
    """The names of the pooled columns, if they are known."""
    raw: Mapping[str, str] = {}
    """The raw column that a preparation made a column from, by its name."""
    by_party: bool = False
    """Whether parties hold different columns."""


@dataclass(frozen=True)
class Pending(Penalty):
    """A penalty that a run replaces."""

    strength: float

    @abstractmethod
    def resolved(self, columns: ColumnsOfAll) -> Penalty:
        """Return the penalty of these columns."""

    def _refuse(self) -> NoReturn:
        raise InvalidProblem(
            "this penalty depends on the columns of all parties. Fit it, and use the problem of "
            "the model, result.model.problem."
        )

    def value(self, w: FloatArray) -> float:
        self._refuse()

    def prox(self, w: FloatArray, step: Step) -> FloatArray:
        self._refuse()

    def conjugate(self, u: FloatArray) -> float:
        self._refuse()

    def fenchel_young(self, w: FloatArray, u: FloatArray, error: Step = 0.0) -> float:
        self._refuse()

    def scale_into_domain(self, u: FloatArray, error: Step = 0.0) -> float:
        self._refuse()

    def bounded_conjugate(self, u: FloatArray, radius: float) -> float:
        self._refuse()


@dataclass(frozen=True)
class ByName(Pending):
    """A penalty with factors of the columns that are named, and 1 for the others.

    The name of a raw column stands for all columns that a preparation makes from it.
    """

    name: ClassVar[str] = "columnwise"
    separable: ClassVar[bool] = True
    base: Penalty
    factors: tuple[tuple[str, float], ...]

    @property
    def pieces(self) -> Pieces | None:
        return weighted(self._scaled, [1.0]).pieces

    @property
    def _scaled(self) -> Penalty:
        base: Any = self.base
        scaled: Penalty = replace(base, strength=self.strength)
        return scaled

    def resolved(self, columns: ColumnsOfAll) -> Penalty:
        if columns.names is None:
            raise InvalidProblem(
                "factors by name need the names of all columns, which are not known here. Give "
                "factors as a list, one number per column."
            )
        given = dict(self.factors)
        raw = [columns.raw.get(name, name) for name in columns.names]
        for name in given:
            if name not in columns.names and name not in raw:
                raise UnknownName("column with a factor", name, [*columns.names])
        pairs = zip(columns.names, raw, strict=True)
        numbers = [given.get(name, given.get(origin, 1.0)) for name, origin in pairs]
        return weighted(self._scaled, numbers)


@dataclass(frozen=True)
class ByParty(Pending):
    """A penalty for the columns of each party, in the order of the parties."""

    name: ClassVar[str] = "columnwise"
    separable: ClassVar[bool] = True
    parts: tuple[Penalty, ...]

    @property
    def pieces(self) -> Pieces:
        alone = [part.pieces for part in self.parts]
        found = [pieces for pieces in alone if pieces is not None]
        threshold: float | npt.NDArray[np.float64] = 0.0
        if any(pieces.has_threshold for pieces in found):
            threshold = np.array([max(float(np.max(pieces.threshold)) for pieces in found)])
        return Pieces(
            ridge=np.array([min(float(np.min(pieces.ridge)) for pieces in found)]),
            threshold=threshold,
            lower=max(float(np.max(pieces.lower)) for pieces in found),
            upper=min(float(np.min(pieces.upper)) for pieces in found),
        )

    @property
    def strong_convexity(self) -> float:
        return min(part.strong_convexity for part in self.parts)

    def resolved(self, columns: ColumnsOfAll) -> Penalty:
        if not columns.by_party:
            raise InvalidProblem(
                "a list of penalties has one for the columns of each party: it needs "
                "split='features'. Use one penalty, or factors= with one number per column."
            )
        if len(columns.places) != len(self.parts):
            raise InvalidProblem(
                f"there are {len(self.parts)} penalties for {len(columns.places)} parties. Give "
                "each party one; 'none' is no penalty."
            )
        whole = joined(self.parts, columns.places)
        return replace(whole, strength=self.strength * whole.strength)


def with_factors(given: Penalty, factors: Factors) -> Penalty:
    """Return the penalty with its strength multiplied by a factor for every column."""
    if not isinstance(factors, Mapping):
        return weighted(given, list(factors))
    weighted(given, [1.0])  # refuses penalties that take no factors
    for name, factor in factors.items():
        if not 0 <= as_number(factor) < math.inf:
            raise InvalidProblem(
                f"the factor of column {name!r} must be a number from 0 up (0: unpenalised), not "
                f"{factor!r}."
            )
    pairs = tuple((str(name), float(factor)) for name, factor in factors.items())
    base: Any = given
    return ByName(base.strength, replace(base, strength=1.0), pairs)


def of_parties(parts: Sequence[Any], strength: float = 1.0) -> ByParty:
    """Return the penalty that has one part for each party: a penalty, its name, or its settings.

    `strength` multiplies the strengths of all.
    """
    made = []
    for part in parts:
        if isinstance(part, Mapping):
            made.append(penalty(**part))
        else:
            made.append(penalty(part))
    for one in made:
        if one.pieces is None or not one.pieces.separable:
            raise InvalidProblem(
                f"the {one.name} penalty cannot be that of one party among others; use none, l1, "
                "l2, elasticnet, box or nonnegative."
            )
    if not made:
        raise InvalidProblem("the list of penalties is empty. Give one for each party.")
    factor = positive(strength, "strength of a list of penalties", "1 leaves them as they are")
    return ByParty(factor, tuple(made))


def strengths_of(given: Any) -> tuple[float, ...] | None:
    """Return the strengths of columns, if these are several numbers."""
    if not isinstance(given, list | tuple | np.ndarray) or np.ndim(given) == 0:
        return None
    numbers = factors_of(list(given), "the strength")
    assert isinstance(numbers, tuple)
    return numbers
