"""A preparation with its numbers, as a model file holds it, turns raw columns into prepared ones.

    raw columns ─→ for each, its steps ─→ the columns that the model's coefficients are for

It is plain data, written as JSON. Values unlike those of the fit are refused, or give a warning
(see `apply`).
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt

from coterie.data.preparation.raw import spelt
from coterie.data.table import Indices, Table, columns_in_turn, columns_of, party_error
from coterie.data.values import are
from coterie.errors import InvalidData, count
from coterie.numerics.arrays import FloatArray, is_sparse, is_tensor

FAR = 10.0
"""The distance from the mean, in standard deviations, of values that are far from those of the fit.
By Chebyshev's inequality, at most one row of a hundred of the fit had such a value.
"""
ROUNDING = 1e-9
"""How far sums in another order may move a number, relative to itself and to the spread of its
column.
"""
MISSING = "(missing)"
OTHER = "(other)"


Units: TypeAlias = tuple[FloatArray, FloatArray]
"""A matrix A and a vector o with z = A b + o, for columns z and the same columns b in raw units."""


# -- cells -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Cells:
    """One raw column: numbers, or places in a list of texts; NaN where a cell is missing."""

    values: FloatArray
    texts: tuple[str, ...] | None = None

    @property
    def missing(self) -> npt.NDArray[np.bool_]:
        """Which cells are missing."""
        gone: npt.NDArray[np.bool_] = np.isnan(self.values)
        return gone

    def counted(self, text: bool) -> tuple[list[str | float | None], npt.NDArray[np.intp]]:
        """List the different categories of the cells, and the place of each row's category.

        Categories are texts with `text`, else numbers where possible; None is a missing cell.
        """
        gone = self.missing
        known = self.values[~gone]
        names: list[str | float | None] = []
        if self.texts is not None:
            codes = known.astype(np.intp)
            there = np.bincount(codes, minlength=len(self.texts)) > 0
            place = (np.cumsum(there) - 1)[codes]
            names += np.array(self.texts, object)[there].tolist()
            if not text:
                names = list(map(_number, names))
        else:
            found, place = np.unique(known, return_inverse=True)
            names += found.tolist()
            if text:
                names = [spelt(value) for value in found.tolist()]
        which = np.full(len(gone), len(names), np.intp)
        which[~gone] = place
        if gone.any():
            names.append(None)
        return names, which


def _number(text: Any) -> str | float | None:
    """Read a text as a number, if it is one."""
    try:
        return float(text)
    except ValueError:
        return str(text)


def column_names(table: Table) -> tuple[str, ...]:
    """The names of a table's columns; without names they are x0, x1, ..."""
    if table.columns is not None:
        return table.columns
    return tuple(f"x{j}" for j in range(table.d))


def cells_of(table: Table) -> list[Cells]:
    """Take the raw columns out of a table; refuse columns of other types than numbers and text."""
    X = table.X
    if is_sparse(X) or is_tensor(X):
        raise party_error(
            table.name,
            "X is sparse, or a tensor. Only dense columns can be prepared; leave prepare out.",
        )
    if X.ndim != 2 or X.dtype.kind not in "biuf":
        raise party_error(
            table.name,
            f"X has {X.ndim} dimensions and type {X.dtype}. Give a data frame, or a matrix of "
            "numbers.",
        )
    texts = table.texts or {}
    found = []
    for j, name in enumerate(column_names(table)):
        values = X[:, j].astype(np.float64, copy=False)
        infinite = int(np.isinf(values).sum())
        if infinite:
            raise party_error(
                table.name,
                f"column {name!r} has {count(infinite, 'infinite value')}. Correct them.",
            )
        found.append(Cells(values, texts.get(name)))
    return found


# -- steps with their numbers ----------------------------------------------------------------------


class Filled(msgspec.Struct, frozen=True, tag="impute"):
    """Replaces missing values by a number, and may add an indicator of where they were."""

    value: float
    indicator: bool

    def apply(self, values: FloatArray) -> FloatArray:
        gone = np.isnan(values[:, :1])
        whole = np.where(gone, self.value, values[:, :1])
        if not self.indicator:
            return whole
        return np.hstack([whole, gone.astype(float)])

    def names(self, names: list[str]) -> list[str]:
        if not self.indicator:
            return names
        return [names[0], f"{names[0]} {MISSING}"]

    def units(self, A: FloatArray, o: FloatArray, width: int) -> Units:
        first: Units = (A[:1, :1], o[:1])
        return _after(first, A, o, width)


class Scaled(msgspec.Struct, frozen=True, tag="scale"):
    """(x − shift) / scale, for every column."""

    shift: list[float]
    scale: list[float]

    def apply(self, values: FloatArray) -> FloatArray:
        scaled: FloatArray = (values - np.array(self.shift)) / np.array(self.scale)
        return scaled

    def names(self, names: list[str]) -> list[str]:
        return names

    def units(self, A: FloatArray, o: FloatArray, width: int) -> Units:
        scale = np.array(self.scale)
        return A / scale[:, None], (o - np.array(self.shift)) / scale


class Powers(msgspec.Struct, frozen=True, tag="polynomial"):
    """x, x², ..., x^degree, and the other columns."""

    degree: int

    def apply(self, values: FloatArray) -> FloatArray:
        with np.errstate(over="ignore"):
            powers = values[:, :1] ** np.arange(1, self.degree + 1)
        return np.hstack([powers, values[:, 1:]])

    def names(self, names: list[str]) -> list[str]:
        first, *others = names
        powers = [f"{first}^{k}" for k in range(2, self.degree + 1)]
        return [first, *powers, *others]

    def units(self, A: FloatArray, o: FloatArray, width: int) -> Units:
        # (a b + c)^k = Σ_j binom(k, j) a^j c^(k − j) b^j
        a = A[0, 0]
        c = o[0]
        degrees = range(1, self.degree + 1)
        powers = np.zeros((self.degree, self.degree))
        for k in degrees:
            for j in range(1, k + 1):
                powers[k - 1, j - 1] = math.comb(k, j) * a**j * c ** (k - j)
        constants = np.array([c**k for k in degrees])
        return _after((powers, constants), A, o, width)


class Splines(msgspec.Struct, frozen=True, tag="spline"):
    """B-splines of x, constant beyond the first and last knot.

    The last one is left out: it is a combination of the others and an intercept.
    """

    knots: list[float]
    degree: int

    def apply(self, values: FloatArray) -> FloatArray:
        inner = np.array(self.knots)
        if not len(values):
            return np.empty((0, self.width + values.shape[1] - 1))
        # Equal distances beyond the ends, as scikit-learn's SplineTransformer has them.
        steps = np.arange(1, self.degree + 1)
        left = inner[0] - steps[::-1] * (inner[1] - inner[0])
        right = inner[-1] + steps * (inner[-1] - inner[-2])
        x = np.clip(values[:, 0], inner[0], inner[-1])
        from scipy.interpolate import BSpline  # slow to import

        knots = np.concatenate([left, inner, right])
        basis = BSpline.design_matrix(x, knots, self.degree).toarray()
        return np.hstack([basis[:, :-1], values[:, 1:]])

    @property
    def width(self) -> int:
        """The number of splines."""
        return len(self.knots) + self.degree - 2

    def names(self, names: list[str]) -> list[str]:
        first, *others = names
        splines = [f"{first} spline {k + 1}" for k in range(self.width)]
        return [*splines, *others]

    def units(self, A: FloatArray, o: FloatArray, width: int) -> Units:
        first: Units = (np.eye(self.width), np.zeros(self.width))
        return _after(first, A, o, width)


Step = Filled | Scaled | Powers | Splines


class Categories(msgspec.Struct, frozen=True, tag="one-hot"):
    """A column of 0 and 1 for each category; rare ones share the last."""

    text: bool
    known: list[str | float | None]
    """The categories in the order of their columns; None is a missing value."""
    pooled: bool
    """Whether rare categories share a column, which unknown categories use, too."""
    dropped: bool
    """Whether the first column is left out."""

    def names(self, name: str) -> list[str]:
        """The names of the columns of 0 and 1."""
        shown = list(map(_shown, self.known))
        if self.pooled:
            shown.append(OTHER)
        columns = [f"{name}={one}" for one in shown]
        if self.dropped:
            return columns[1:]
        return columns

    def apply(self, cells: Cells, name: str, party: str) -> FloatArray:
        """Turn cells into columns of 0 and 1."""
        local, which = cells.counted(self.text)
        place = {one: k for k, one in enumerate(self.known)}
        unknown = [k for k, one in enumerate(local) if one not in place]
        if unknown and not self.pooled:
            rows = int(np.isin(which, unknown).sum())
            self._refuse([local[k] for k in unknown], rows, name, party)
        target = np.array([place.get(one, len(self.known)) for one in local], np.intp)
        width = len(self.known) + self.pooled
        columns = np.zeros((len(which), width))
        if len(which):
            columns[np.arange(len(which)), target[which]] = 1.0
        if self.dropped:
            return columns[:, 1:]
        return columns

    def _refuse(self, unknown: list[str | float | None], rows: int, name: str, party: str) -> None:
        """Refuse categories that the fit did not have."""
        categories = "1 category"
        if len(unknown) > 1:
            categories = f"{len(unknown)} categories"
        examples = []
        for one in unknown[:3]:
            if one is None:
                examples.append("a missing value")
            else:
                examples.append(repr(one))
        raise party_error(
            party,
            f"column {name!r} has {categories} in {count(rows, 'row')} that the fit did not have: "
            f"{', '.join(examples)}. Leave these rows out, or fit with one-hot(10), which "
            "pools rare and unknown categories.",
        )


def _shown(category: str | float | None) -> str:
    if category is None:
        return MISSING
    if isinstance(category, str):
        return category
    return spelt(category)


class Column(msgspec.Struct, frozen=True):
    """A raw column and the steps that prepare it."""

    name: str
    recipe: str
    steps: list[Filled | Scaled | Powers | Splines] = []
    categories: Categories | None = None
    low: float | None = None
    """Numbers below this are far from those of the fit."""
    high: float | None = None
    """Numbers above this are far from those of the fit."""

    def names(self) -> list[str]:
        """The names of the prepared columns."""
        if self.categories is not None:
            return self.categories.names(self.name)
        names = [self.name]
        for step in self.steps:
            names = step.names(names)
        return names

    def apply(self, cells: Cells, party: str) -> FloatArray:
        """Turn the cells of the raw column into prepared columns."""
        if self.categories is not None:
            return self.categories.apply(cells, self.name, party)
        if cells.texts:
            raise party_error(
                party,
                f"column {self.name!r} has text, e.g. {cells.texts[0]!r}; it had numbers when "
                "the model was fitted.",
            )
        gone = int(cells.missing.sum())
        fills = bool(self.steps) and isinstance(self.steps[0], Filled)
        if gone and not fills:
            raise party_error(
                party,
                f"column {self.name!r} has {count(gone, 'missing value')}, and its preparation is "
                f"{self.recipe!r}, without impute. Leave these rows out, or fit with impute.",
            )
        values = cells.values[:, None]
        for step in self.steps:
            values = step.apply(values)
        return values

    @property
    def reference(self) -> str | None:
        """The category without a column, if there is one."""
        if self.categories is None or not self.categories.dropped:
            return None
        whole = msgspec.structs.replace(self.categories, dropped=False)
        first = whole.names(self.name)[0]
        return first.removeprefix(f"{self.name}=")

    def units(self) -> Units:
        """Compute A and o with z = A b + o, for prepared columns z and unscaled columns b.

        With a scaled x, (x − m)^k is a sum of powers of x. B-splines have no unit: those of a
        scaled x stay.
        """
        if self.categories is not None:
            width = len(self.names())
            return np.eye(width), np.zeros(width)
        A: FloatArray = np.eye(1)
        o: FloatArray = np.zeros(1)
        names = [self.name]
        for step in self.steps:
            names = step.names(names)
            A, o = step.units(A, o, len(names))
        return A, o

    def far(self, cells: Cells) -> int:
        """Count the numbers that are far from those of the fit."""
        if self.low is None or self.high is None or cells.texts:
            return 0
        with np.errstate(invalid="ignore"):
            outside = (cells.values < self.low) | (cells.values > self.high)
        return int(outside.sum())


class Prepared(msgspec.Struct, frozen=True):
    """The columns of a preparation, with their numbers."""

    columns: list[Column]
    named: bool = True
    """Whether the columns had names; without, they are x0, x1, ..."""

    @property
    def raw(self) -> tuple[str, ...] | None:
        """The names of the raw columns, if they have any."""
        if not self.named:
            return None
        return tuple(column.name for column in self.columns)

    @property
    def texts(self) -> frozenset[str]:
        """The columns that become categories of text: their cells are text in a CSV file."""
        found = set()
        for column in self.columns:
            if column.categories is not None and column.categories.text:
                found.add(column.name)
        return frozenset(found)

    def names(self) -> tuple[str, ...]:
        """The names of the columns that the model's coefficients are for."""
        names: list[str] = []
        for column in self.columns:
            names += column.names()
        return tuple(names)

    def units(self) -> Units:
        """Compute A and o with z = A b + o, for the columns z of the fit and the same columns b in
        raw units.
        """
        parts = [column.units() for column in self.columns]
        o = np.concatenate([np.empty(0), *(own for _, own in parts)])
        A = np.zeros((len(o), len(o)))
        start = 0
        for own, _ in parts:
            end = start + len(own)
            A[start:end, start:end] = own
            start = end
        return A, o

    @property
    def standardised(self) -> bool:
        """Whether some column is divided by its standard deviation."""
        return any("standardise" in column.recipe for column in self.columns)

    @property
    def scales(self) -> bool:
        """Whether some column is in other units than the raw column."""
        return any(isinstance(step, Scaled) for column in self.columns for step in column.steps)

    @property
    def references(self) -> dict[str, str]:
        """The categories without a column, by the raw column."""
        found = {}
        for column in self.columns:
            if column.reference is not None:
                found[column.name] = column.reference
        return found

    def apply(self, table: Table, warn: bool = False) -> Table:
        """Prepare the columns of a table; `warn` of numbers far from those of the fit."""
        if not table.n and not table.d:
            table = replace(table, X=np.empty((0, len(self.columns))), columns=self.raw)
        table = self._found(table)
        if table.d != len(self.columns) or (self.named and table.columns not in (None, self.raw)):
            raise party_error(
                table.name,
                f"the preparation is for {len(self.columns)} columns "
                f"({_few([one.name for one in self.columns])}), but here are {table.d} "
                f"({_few(column_names(table))}). Give the raw columns of the fit.",
            )
        pairs = list(zip(self.columns, cells_of(table), strict=True))
        if warn:
            _warn([(column.name, column.far(own)) for column, own in pairs])
        blocks = [column.apply(own, table.name) for column, own in pairs]
        X = np.empty((table.n, sum(block.shape[1] for block in blocks)), order="F")
        start = 0
        for block in blocks:
            end = start + block.shape[1]
            X[:, start:end] = block
            start = end
        return replace(table, X=X, columns=self.names(), texts=None, cols=None, open_ended=False)

    def _found(self, table: Table) -> Table:
        """Take the raw columns by their names out of a table that has more, or in another order."""
        raw = self.raw
        if raw is None or table.columns is None or table.columns == raw:
            return table
        if not set(raw) <= set(table.columns):
            return table
        places = [table.columns.index(name) for name in raw]
        return table.take_columns(np.array(places, np.intp))

    def apply_to_all(self, tables: Sequence[Table], split: str) -> list[Table]:
        """Prepare all parties' tables; split by features, each gets the places of its own columns
        in the whole.
        """
        if split != "features":
            return [self.apply(table) for table in tables]
        parts = self.parts(columns_of(tables))
        _, places = pooled([table.cols for table in tables], parts)
        members = zip(tables, parts, places, strict=True)
        return [replace(part.apply(table), cols=cols) for table, part, cols in members]

    def parts(self, places: Sequence[npt.NDArray[np.intp]]) -> list[Prepared]:
        """Divide the preparation into those of the columns of each of several parties."""
        width = sum(map(len, places))
        if width != len(self.columns):
            raise InvalidData(
                f"the preparation is for {len(self.columns)} columns, but the parties have {width}."
            )
        return [Prepared([self.columns[j] for j in own.tolist()], self.named) for own in places]

    def settings(self) -> dict[str, Any]:
        """The recipe of every column, as a certificate names them where the numbers were given."""
        recipes = {column.name: column.recipe for column in self.columns}
        return {"columns": recipes, "numbers_given": True}

    def like(self, other: Prepared) -> bool:
        """Whether the other preparation is the same up to rounding."""
        local = self.state()["columns"]
        there = other.state()["columns"]
        if len(local) != len(there):
            return False
        return all(map(_alike_columns, local, there))

    def state(self) -> dict[str, Any]:
        """Plain values, for a header."""
        state: dict[str, Any] = msgspec.to_builtins(self)
        return state

    @staticmethod
    def restored(state: Any) -> Prepared:
        """Make a preparation of its `state`."""
        try:
            found = msgspec.convert(state, Prepared)
        except msgspec.ValidationError as error:
            raise ValueError(f"its preparation is damaged ({error})") from error
        for column in found.columns:
            for number in (column.low, column.high):
                if number is not None and not math.isfinite(number):
                    raise ValueError("its preparation has numbers that are not finite")
        return found


def _after(first: Units, A: FloatArray, o: FloatArray, width: int) -> Units:
    """The units of columns of which a step turned the first into others.

    The columns after it keep their units, and further new columns have their own.
    """
    own, constants = first
    start = len(own)
    end = start + len(A) - 1
    grown = np.eye(width)
    grown[:start, :start] = own
    grown[start:end, start:end] = A[1:, 1:]
    offsets = np.zeros(width)
    offsets[:start] = constants
    offsets[start:end] = o[1:]
    return grown, offsets


def pooled(
    dealt: Sequence[Indices | None], parts: Sequence[Prepared]
) -> tuple[Prepared, list[Indices | None]]:
    """Join all parties' columns into one preparation, in their pooled order.

    `dealt` has the places of each party's raw columns in the whole; None: they follow those of the
    party before. The second result has the places of each party's prepared columns, or None.
    """
    raw_places = columns_in_turn([len(part.columns) for part in parts], dealt)
    order = np.argsort(np.concatenate(raw_places), kind="stable")
    columns: list[Column] = []
    for part in parts:
        columns += part.columns
    widths = np.array([len(column.names()) for column in columns], np.intp)
    ends = np.empty(len(columns), np.intp)
    ends[order] = np.cumsum(widths[order])
    starts = ends - widths
    blocks = [np.arange(start, end) for start, end in zip(starts, ends, strict=True)]
    places: list[Indices | None] = []
    first = 0
    for known, part in zip(dealt, parts, strict=True):
        last = first + len(part.columns)
        if known is None:
            places.append(None)
        else:
            places.append(np.concatenate([*blocks[first:last], np.empty(0, np.intp)]))
        first = last
    named = all(part.named for part in parts)
    return Prepared([columns[k] for k in order], named), places


def _alike_columns(one: dict[str, Any], other: dict[str, Any]) -> bool:
    scale = (one["high"] or 0.0) - (one["low"] or 0.0)
    return _alike(one, other, scale)


def _alike(one: Any, other: Any, scale: float) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=ROUNDING, abs_tol=ROUNDING * scale)
    if isinstance(one, dict) and isinstance(other, dict):
        if one.keys() != other.keys():
            return False
        return all(_alike(one[key], other[key], scale) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        if len(one) != len(other):
            return False
        return all(_alike(a, b, scale) for a, b in zip(one, other, strict=True))
    return bool(one == other)


def _few(names: Sequence[str]) -> str:
    shown = list(names[:4])
    if len(names) > 4:
        shown.append("...")
    return ", ".join(shown)


def _warn(far: Sequence[tuple[str, int]]) -> None:
    """Warn of columns with rows far from those of the fit, given with the number of these rows."""
    columns = [f"{name!r} ({count(rows, 'row')})" for name, rows in far if rows]
    if columns:
        warnings.warn(
            f"{are(len(columns), 'column')} far from what the model was fitted to: "
            f"{_few(columns)}. Predictions there are extrapolated; check units and coding.",
            UserWarning,
            stacklevel=5,
        )
