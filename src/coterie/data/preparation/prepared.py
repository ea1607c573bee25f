"""A preparation with its numbers: what a model file holds of it, and what it makes of raw columns.

    raw columns ─→ for each, its steps ─→ the columns that the model's coefficients are for

It is plain data, written as JSON. Values that it was not fitted for are refused, or give a warning:
see `apply`.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from coterie.data.preparation.raw import spelt
from coterie.data.table import Indices, Table, columns_in_turn, columns_of, party_error
from coterie.data.values import are
from coterie.errors import InvalidData
from coterie.numerics.arrays import FloatArray, is_sparse, is_tensor

FAR = 10.0
"""Standard deviations from the mean beyond which a value is far from what was fitted: there, by
Chebyshev's inequality, was at most one row of a hundred.
"""
ROUNDING = 1e-9
"""How far sums in another order may move a number, beside itself and beside the spread of its
column.
"""
MISSING, OTHER = "(missing)", "(other)"


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
        """The different categories here, as text or as numbers, None for missing ones; and which
        one each row has.
        """
        gone = self.missing
        known = self.values[~gone]
        names: list[str | float | None]
        if self.texts is not None:
            codes = known.astype(np.intp)
            there = np.bincount(codes, minlength=len(self.texts)) > 0
            place = (np.cumsum(there) - 1)[codes]
            names = [one if text else _number(one) for one in np.array(self.texts, object)[there]]
        else:
            found, place = np.unique(known, return_inverse=True)
            names = [spelt(value) if text else value for value in found.tolist()]
        which = np.full(len(gone), len(names), np.intp)
        which[~gone] = place
        return [*names, None] if gone.any() else names, which


def _number(text: str) -> str | float:
    try:
        return float(text)
    except ValueError:
        return text


def column_names(table: Table) -> tuple[str, ...]:
    """The names of its columns; those without are x0, x1, ..."""
    return tuple(f"x{j}" for j in range(table.d)) if table.columns is None else table.columns


def cells_of(table: Table) -> list[Cells]:
    """The raw columns of a table; what is no column of numbers or text is refused."""
    X = table.X
    if is_sparse(X) or is_tensor(X):
        raise party_error(
            table.name,
            "X is sparse, or a tensor. Only dense columns can be prepared; leave prepare out.",
        )
    if X.ndim != 2 or X.dtype.kind not in "biuf":
        raise party_error(
            table.name,
            (
                f"X has {X.ndim} dimensions and type {X.dtype}. Give a data frame, or a matrix of "
                "numbers."
            ),
        )
    found = []
    for j, name in enumerate(column_names(table)):
        values = X[:, j].astype(np.float64, copy=False)
        if wrong := int(np.isinf(values).sum()):
            raise party_error(
                table.name,
                f"column {name!r} has {wrong} infinite value{'s' * (wrong > 1)}. Correct them.",
            )
        found.append(Cells(values, (table.texts or {}).get(name)))
    return found


# -- steps with their numbers ----------------------------------------------------------------------


class Filled(msgspec.Struct, frozen=True, tag="impute"):
    """Missing values are replaced, and an indicator says where they were."""

    value: float
    indicator: bool

    def apply(self, values: FloatArray) -> FloatArray:
        gone = np.isnan(values[:, :1])
        whole = np.where(gone, self.value, values[:, :1])
        return np.hstack([whole, gone.astype(float)]) if self.indicator else whole

    def names(self, names: list[str]) -> list[str]:
        return [names[0], f"{names[0]} {MISSING}"] if self.indicator else names


class Scaled(msgspec.Struct, frozen=True, tag="scale"):
    """(x − shift) / scale, for every column."""

    shift: list[float]
    scale: list[float]

    def apply(self, values: FloatArray) -> FloatArray:
        scaled: FloatArray = (values - np.array(self.shift)) / np.array(self.scale)
        return scaled

    def names(self, names: list[str]) -> list[str]:
        return names


class Powers(msgspec.Struct, frozen=True, tag="polynomial"):
    """x, x², ..., and what stands beside x."""

    degree: int

    def apply(self, values: FloatArray) -> FloatArray:
        with np.errstate(over="ignore"):
            return np.hstack([values[:, :1] ** np.arange(1, self.degree + 1), values[:, 1:]])

    def names(self, names: list[str]) -> list[str]:
        return [names[0], *(f"{names[0]}^{k}" for k in range(2, self.degree + 1)), *names[1:]]


class Splines(msgspec.Struct, frozen=True, tag="spline"):
    """B-splines of x, but the last, which the others and an intercept give; constant beyond the
    first and last knot.
    """

    knots: list[float]
    degree: int

    def apply(self, values: FloatArray) -> FloatArray:
        inner = np.array(self.knots)
        if not len(values):
            return np.empty((0, len(inner) + self.degree - 2 + values.shape[1] - 1))
        # Equal distances beyond the ends, as scikit-learn's SplineTransformer has them.
        steps = np.arange(1, self.degree + 1)
        left = inner[0] - steps[::-1] * (inner[1] - inner[0])
        right = inner[-1] + steps * (inner[-1] - inner[-2])
        x = np.clip(values[:, 0], inner[0], inner[-1])
        from scipy.interpolate import BSpline  # which takes long to import

        basis = BSpline.design_matrix(
            x, np.concatenate([left, inner, right]), self.degree
        ).toarray()[:, :-1]
        return np.hstack([basis, values[:, 1:]])

    def names(self, names: list[str]) -> list[str]:
        return [
            *(f"{names[0]} spline {k + 1}" for k in range(len(self.knots) + self.degree - 2)),
            *names[1:],
        ]


Step = Filled | Scaled | Powers | Splines


class Categories(msgspec.Struct, frozen=True, tag="one-hot"):
    """A column of 0 and 1 for each category; rare ones share the last."""

    text: bool
    known: list[str | float | None]
    """In the order of their columns; None is a missing value."""
    pooled: bool
    """Whether rare categories share a column, which also takes those that are not known."""
    dropped: bool
    """Whether the first column is left out."""

    def names(self, name: str) -> list[str]:
        """The columns that it makes."""
        shown = [
            MISSING if one is None else one if isinstance(one, str) else spelt(one)
            for one in self.known
        ]
        return [f"{name}={one}" for one in [*shown, *[OTHER] * self.pooled]][int(self.dropped) :]

    def apply(self, cells: Cells, name: str, party: str) -> FloatArray:
        """The columns of these cells."""
        local, which = cells.counted(self.text)
        place = {one: k for k, one in enumerate(self.known)}
        unknown = [k for k, one in enumerate(local) if one not in place]
        if unknown and not self.pooled:
            rows = int(np.isin(which, unknown).sum())
            many = (
                f"{len(unknown)} categor{'y' if len(unknown) == 1 else 'ies'} in {rows} "
                f"row{'s' * (rows > 1)}"
            )
            shown = ", ".join(
                "a missing value" if local[k] is None else repr(local[k]) for k in unknown[:3]
            )
            raise party_error(
                party,
                f"column {name!r} has {many} that the fit did not have: {shown}. Leave these rows "
                "out, or fit with "
                "one-hot(10), say, which pools rare and unknown categories.",
            )
        target = np.array([place.get(one, len(self.known)) for one in local], np.intp)
        width = len(self.known) + self.pooled
        columns = np.zeros((len(which), width))
        columns[np.arange(len(which)), target[which] if len(which) else which] = 1.0
        return columns[:, int(self.dropped) :]


class Column(msgspec.Struct, frozen=True):
    """A raw column and what becomes of it."""

    name: str
    recipe: str
    steps: list[Filled | Scaled | Powers | Splines] = []
    categories: Categories | None = None
    low: float | None = None
    """Numbers below are far from those of the fit."""
    high: float | None = None

    def names(self) -> list[str]:
        """The columns that it makes."""
        if self.categories is not None:
            return self.categories.names(self.name)
        names = [self.name]
        for step in self.steps:
            names = step.names(names)
        return names

    def apply(self, cells: Cells, party: str) -> FloatArray:
        """What becomes of these cells."""
        if self.categories is not None:
            return self.categories.apply(cells, self.name, party)
        if cells.texts:
            raise party_error(
                party,
                (
                    f"column {self.name!r} has text, e.g. {cells.texts[0]!r}; it had numbers when "
                    "the "
                    "model was fitted."
                ),
            )
        gone = int(cells.missing.sum())
        if gone and not (self.steps and isinstance(self.steps[0], Filled)):
            raise party_error(
                party,
                f"column {self.name!r} has {gone} missing value{'s' * (gone > 1)}, and its "
                "preparation is "
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
        kept = len(self.name) + 1
        return msgspec.structs.replace(self.categories, dropped=False).names(self.name)[0][kept:]

    def units(self) -> tuple[FloatArray, FloatArray]:
        """A and o with z = A b + o, for its columns z and the same columns b without any scaling.

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
            if isinstance(step, Scaled):
                scale = np.array(step.scale)
                A, o = A / scale[:, None], (o - np.array(step.shift)) / scale
            elif isinstance(step, Filled | Splines):
                # The first column becomes one or several others; those after it stay.
                first = A[:1, :1] if isinstance(step, Filled) else np.eye(len(names) - len(A) + 1)
                A, o = _after(
                    first,
                    np.full(len(first), o[0] if isinstance(step, Filled) else 0.0),
                    A,
                    o,
                    len(names),
                )
            else:
                slope, constant, degrees = A[0, 0], o[0], range(1, step.degree + 1)
                powers = np.zeros((step.degree, step.degree))
                for k in degrees:
                    for j in range(1, k + 1):
                        powers[k - 1, j - 1] = math.comb(k, j) * slope**j * constant ** (k - j)
                A, o = _after(powers, np.array([constant**k for k in degrees]), A, o, len(names))
        return A, o

    def far(self, cells: Cells) -> int:
        """How many of these numbers are far from those of the fit."""
        if self.low is None or self.high is None or cells.texts:
            return 0
        with np.errstate(invalid="ignore"):
            return int(((cells.values < self.low) | (cells.values > self.high)).sum())


class Prepared(msgspec.Struct, frozen=True):
    """The columns of a preparation, with their numbers."""

    columns: list[Column]
    named: bool = True
    """Whether the columns had names; without, they are x0, x1, ..."""

    @property
    def raw(self) -> tuple[str, ...] | None:
        """The names of the raw columns, if they have any."""
        return tuple(column.name for column in self.columns) if self.named else None

    @property
    def texts(self) -> frozenset[str]:
        """The columns that become categories of text: their cells are text in a CSV file."""
        return frozenset(
            one.name for one in self.columns if one.categories is not None and one.categories.text
        )

    def names(self) -> tuple[str, ...]:
        """The names of the columns that the model's coefficients are for."""
        return tuple(name for column in self.columns for name in column.names())

    def units(self) -> tuple[FloatArray, FloatArray]:
        """A and o with z = A b + o, for the columns z of the fit and the same columns b in raw
        units.
        """
        parts = [column.units() for column in self.columns]
        A = np.zeros((sum(len(o) for _, o in parts),) * 2)
        start = 0
        for own, _ in parts:
            end = start + len(own)
            A[start:end, start:end] = own
            start = end
        return A, np.concatenate([np.empty(0), *(o for _, o in parts)])

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
        return {
            column.name: column.reference for column in self.columns if column.reference is not None
        }

    def apply(self, table: Table, warn: bool = False) -> Table:
        """The table with prepared columns. `warn`: whether to say where they are far from those of
        the fit.
        """
        if not table.n and not table.d:
            table = replace(table, X=np.empty((0, len(self.columns))), columns=self.raw)
        table = self._found(table)
        if table.d != len(self.columns) or (self.named and table.columns not in (None, self.raw)):
            raise party_error(
                table.name,
                f"the preparation is for {len(self.columns)} columns "
                f"({_few([one.name for one in self.columns])}), but "
                f"here are {table.d} ({_few(column_names(table))}). Give the raw columns of the "
                "fit.",
            )
        cells = cells_of(table)
        if warn:
            _warn(
                [
                    (column.name, column.far(own))
                    for column, own in zip(self.columns, cells, strict=True)
                ]
            )
        blocks = [
            column.apply(own, table.name) for column, own in zip(self.columns, cells, strict=True)
        ]
        X = np.empty((table.n, sum(block.shape[1] for block in blocks)), order="F")
        start = 0
        for block in blocks:
            X[:, start : start + block.shape[1]] = block
            start += block.shape[1]
        return replace(table, X=X, columns=self.names(), texts=None, cols=None, open_ended=False)

    def _found(self, table: Table) -> Table:
        """The table's raw columns by their names, where it has more, or others in between."""
        raw = self.raw
        if (
            raw is None
            or table.columns is None
            or table.columns == raw
            or not set(raw) <= set(table.columns)
        ):
            return table
        return table.take_columns(np.array([table.columns.index(name) for name in raw], np.intp))

    def apply_to_all(self, tables: Sequence[Table], split: str) -> list[Table]:
        """All parties' tables, prepared; split by features, each has its own columns, and their
        places in the whole.
        """
        if split != "features":
            return [self.apply(table) for table in tables]
        parts = self.parts(columns_of(tables))
        _, places = pooled([table.cols for table in tables], parts)
        members = zip(tables, parts, places, strict=True)
        return [replace(part.apply(table), cols=cols) for table, part, cols in members]

    def parts(self, places: Sequence[npt.NDArray[np.intp]]) -> list[Prepared]:
        """What it does with the columns of each of several parties."""
        if (width := sum(map(len, places))) != len(self.columns):
            raise InvalidData(
                f"the preparation is for {len(self.columns)} columns, but the parties have {width}."
            )
        return [Prepared([self.columns[j] for j in own.tolist()], self.named) for own in places]

    def settings(self) -> dict[str, Any]:
        """What it does, as a certificate says it of numbers that come from elsewhere: a recipe for
        every column.
        """
        return {
            "columns": {column.name: column.recipe for column in self.columns},
            "numbers_given": True,
        }

    def like(self, other: Prepared) -> bool:
        """Whether the other one is the same up to rounding."""
        local, there = self.state(), other.state()
        return len(local["columns"]) == len(there["columns"]) and all(
            _alike(one, another, (one["high"] or 0.0) - (one["low"] or 0.0))
            for one, another in zip(local["columns"], there["columns"], strict=True)
        )

    def state(self) -> dict[str, Any]:
        """Plain values, for a header."""
        state: dict[str, Any] = msgspec.to_builtins(self)
        return state

    @staticmethod
    def restored(state: Any) -> Prepared:
        """What `state` gave."""
        try:
            found = msgspec.convert(state, Prepared)
        except msgspec.ValidationError as error:
            raise ValueError(f"its preparation is damaged ({error})") from error
        numbers = [
            number
            for column in found.columns
            for number in (column.low, column.high)
            if number is not None
        ]
        if not all(map(math.isfinite, numbers)):
            raise ValueError("its preparation has numbers that are not finite")
        return found


def _after(
    first: FloatArray, constants: FloatArray, A: FloatArray, o: FloatArray, width: int
) -> tuple[FloatArray, FloatArray]:
    """The map where the first column became others; the columns after it stay, and new ones have
    their own unit.
    """
    count, rest = len(first), len(A) - 1
    grown, offsets = np.eye(width), np.zeros(width)
    grown[:count, :count] = first
    grown[count : count + rest, count : count + rest] = A[1:, 1:]
    offsets[:count], offsets[count : count + rest] = constants, o[1:]
    return grown, offsets


def pooled(
    dealt: Sequence[Indices | None], parts: Sequence[Prepared]
) -> tuple[Prepared, list[Indices | None]]:
    """All parties' columns as one preparation, in their pooled order, and the places in it of each
    party's columns.

    dealt   the places of each party's raw columns in the whole; None, also in what is returned: its
            columns follow those of the party before
    """
    raw_places = columns_in_turn([len(part.columns) for part in parts], dealt)
    order = np.argsort(np.concatenate(raw_places), kind="stable")
    columns = [column for part in parts for column in part.columns]
    widths = np.array([len(column.names()) for column in columns], np.intp)
    starts = np.empty(len(columns), np.intp)
    starts[order] = np.concatenate([[0], np.cumsum(widths[order])[:-1]]) if len(columns) else 0
    blocks = [np.arange(start, start + width) for start, width in zip(starts, widths, strict=True)]
    places: list[Indices | None] = []
    start = 0
    for known, part in zip(dealt, parts, strict=True):
        own = blocks[start : start + len(part.columns)]
        places.append(None if known is None else np.concatenate([*own, np.empty(0, np.intp)]))
        start += len(part.columns)
    return Prepared([columns[k] for k in order], all(part.named for part in parts)), places


def _alike(one: Any, other: Any, scale: float) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=ROUNDING, abs_tol=ROUNDING * scale)
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(
            _alike(one[key], other[key], scale) for key in one
        )
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(
            _alike(a, b, scale) for a, b in zip(one, other, strict=True)
        )
    return bool(one == other)


def _few(names: Sequence[str]) -> str:
    return ", ".join(names[:4]) + (", ..." if len(names) > 4 else "")


def _warn(found: Sequence[tuple[str, int]]) -> None:
    if told := [f"{name!r} ({count} row{'s' * (count > 1)})" for name, count in found if count]:
        warnings.warn(
            f"{are(len(told), 'column')} far from what the model was fitted to: {_few(told)}. "
            "Predictions there are "
            "extrapolated; check units and coding.",
            UserWarning,
            stacklevel=5,
        )
