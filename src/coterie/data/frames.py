"""Data frames as tables: which column is what, and values column by column."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import narwhals as nw
import numpy as np
import numpy.typing as npt

from coterie.data.preparation.prepared import Prepared
from coterie.data.preparation.raw import Raw, raw_series
from coterie.data.preparation.recipes import Preparation
from coterie.data.table import BESIDE, Table, party_error
from coterie.data.values import logarithms, plain, plain_ids
from coterie.errors import InvalidData, UnknownName, WrongValue
from coterie.numerics.arrays import is_sparse
from coterie.problems import kinds

Frame: TypeAlias = "nw.DataFrame[Any]"
Series: TypeAlias = "nw.Series[Any]"
PLAIN = {"target", "id", "weight", "offset", "exposure"}
"""Roles of columns that mean the same for every kind of problem; others make labels of several
columns.
"""


@dataclass(frozen=True)
class Roles:
    """Which column is what."""

    named: dict[str, Any]
    """The columns that are not X's, by role."""
    columns: tuple[str, ...] | None
    zero_based: bool | None = None
    prepare: Preparation | Prepared | None = None
    """If set, missing values and text are kept."""
    by_columns: bool = False
    """Whether a file's columns, not its rows, stand one after the other in memory."""
    on_disk: bool | None = None
    """Whether a file's numbers are kept in a temporary file; None: if memory does not hold them."""


def as_frame(source: Any, party: str) -> Frame | None:
    """The source as a data frame, if it is one."""
    if isinstance(source, np.ndarray) or is_sparse(source):
        return None
    try:
        frame = nw.from_native(source, pass_through=True)
        if isinstance(frame, nw.LazyFrame):
            frame = frame.collect()
        if isinstance(frame, nw.DataFrame):
            _ = frame.columns
            return frame
    except nw.exceptions.DuplicateError:
        repeated = [str(column) for column, times in Counter(source.columns).items() if times > 1]
        raise party_error(
            party,
            (
                f"{len(repeated)} column names occur more than once, e.g. {repeated[0]!r}. Rename "
                "them."
            ),
        ) from None
    return None


def read_frame(frame: Frame, roles: Roles, party: str) -> Table:
    """The table of a data frame in memory."""
    series = series_of(frame)
    chosen = chosen_columns(series, roles, party)
    X = np.empty((len(frame), len(chosen)), precision_of(series, chosen), order="F")
    texts: dict[str, tuple[str, ...]] = {}
    for j, column in enumerate(chosen):
        X[:, j], found = cells(series[column], roles, party)
        texts |= {} if found is None else {column: found}
    return table_of(X, chosen, texts, series, roles, party)


def series_of(frame: Frame) -> dict[str, Series]:
    """The columns of a frame by their names."""
    return {str(column): frame.get_column(column) for column in frame.columns}


def chosen_columns(series: Mapping[str, Series], roles: Roles, party: str) -> tuple[str, ...]:
    """The columns of X; names that are not there are refused."""
    for role, column in roles.named.items():
        if column not in series:
            raise party_error(party, f"{role}={column!r}: {UnknownName('column', column, series)}")
    special = set(roles.named.values())
    chosen = (
        roles.columns if roles.columns is not None else tuple(c for c in series if c not in special)
    )
    for column in chosen:
        if column not in series:
            raise party_error(party, f"columns=: {UnknownName('column', column, series)}")
        if column in special:
            role = next(role for role, name in roles.named.items() if name == column)
            raise party_error(party, f"column {column!r} is in columns= and is also the {role}.")
    return chosen


def precision_of(series: Mapping[str, Series], chosen: tuple[str, ...]) -> np.dtype[Any]:
    """Single precision where all columns have it."""
    single = bool(chosen) and all(series[column].dtype == nw.Float32 for column in chosen)
    return np.dtype(np.float32 if single else np.float64)


def cells(series: Series, roles: Roles, party: str) -> Raw:
    """A column of X, and, for a preparation, the different texts where it has text."""
    column = f"column {series.name!r}"
    if roles.prepare is None:
        return _numbers(series, party, column), None
    return raw_series(series, party, column)


def table_of(
    X: npt.NDArray[Any],
    chosen: tuple[str, ...],
    texts: Mapping[str, tuple[str, ...]],
    series: Mapping[str, Series],
    roles: Roles,
    party: str,
) -> Table:
    """The table of X and of those series that have another role."""
    values = {}
    for role, column in roles.named.items():
        noun = "label" if role == "target" else role
        values[role] = column_values(series[column], party, f"column {column!r}", noun)
    if "exposure" in values:
        values["offset"] = logarithms(values["exposure"], party, roles.named["exposure"])
    beside: dict[str, Any] = {
        field: values[role] for role, field in BESIDE.items() if role in values
    }
    return Table(
        X=X,
        y=_labels(values, party),
        **beside,
        ids=plain_ids(values["id"], party) if "id" in values else None,
        columns=chosen,
        name=party,
        texts=texts or None,
        roles=tuple(column for role, column in roles.named.items() if role != "id"),
    )


def _labels(values: dict[str, npt.NDArray[Any]], party: str) -> npt.NDArray[Any] | None:
    """The target, or what the kind of problem that has these roles makes of them."""
    own = values.keys() - PLAIN
    if not own:
        return values.get("target")
    try:
        return next(kind.labels for kind in kinds() if own <= {*kind.labels.roles}).made(values)
    except InvalidData as error:
        raise party_error(party, str(error)) from None


def _numbers(series: Series, party: str, column: str) -> npt.NDArray[Any]:
    """A column of X: numbers or booleans, none missing."""
    _refuse_missing(series, party, column)
    if not (series.dtype.is_numeric() or series.dtype == nw.Boolean):
        fix = "Encode it (prepare, with one-hot)"
        if series.dtype in (nw.Date, nw.Datetime, nw.Time, nw.Duration):
            fix = "Write it as a number, such as the days since a certain date"
        held = f"{column} holds {len(series)} values of type {series.dtype}, not numbers"
        fix += ", or leave it out: name the other ones with columns=."
        text = _first_text(series)
        if text is None:
            raise party_error(party, f"{held}. {fix}")
        row, value = text
        raise WrongValue(
            party, row, f"{held} (first at ", f": {value!r}). {fix}", column=series.name
        ).error()
    if isinstance(series.dtype, nw.Decimal):
        series = series.cast(nw.Float64)
    return series.to_numpy()


def _first_text(series: Series) -> tuple[int, str] | None:
    """The row of the first value of a column of text that is no number, and the value."""
    if series.dtype != nw.String:
        return None
    for row, value in enumerate(series.to_list()):
        try:
            float(value)
        except ValueError:
            return row, value
    return None


def column_values(series: Series, party: str, column: str, noun: str) -> npt.NDArray[Any]:
    """A column of labels, ids, weights or the like: numbers, booleans or text, none missing."""
    _refuse_missing(series, party, column)
    if isinstance(series.dtype, nw.Categorical | nw.Enum):
        series = series.cast(nw.String)
    if isinstance(series.dtype, nw.Decimal):
        series = series.cast(nw.Float64)
    return plain(series.to_numpy(), party, noun)


def _refuse_missing(series: Series, party: str, column: str) -> None:
    missing = int(series.null_count())
    if missing:
        first = int(np.argmax(series.is_null().to_numpy()))
        what = "missing value" if missing == 1 else "missing values"
        raise WrongValue(
            party,
            first,
            before=f"{column} has {missing} {what} (first at ",
            after="). Drop or impute them (prepare).",
            column=series.name,
            shows_cell=True,
        ).error()
