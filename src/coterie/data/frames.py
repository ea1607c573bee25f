"""Data frames as tables: the roles of columns, and their values."""

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
from coterie.data.table import ROW_VALUES, Table, party_error
from coterie.data.values import logarithms, plain, plain_ids
from coterie.errors import InvalidData, UnknownName, WrongValue, count
from coterie.numerics.arrays import is_sparse
from coterie.problems import kinds

Frame: TypeAlias = "nw.DataFrame[Any]"
Series: TypeAlias = "nw.Series[Any]"
PLAIN = {"target", "id", "weight", "offset", "exposure"}
"""Roles of columns that mean the same for every kind of problem. Others are for labels of several
columns.
"""


@dataclass(frozen=True)
class Roles:
    """The roles of columns, and how a file is read."""

    named: dict[str, Any]
    """The columns of labels, weights and so on, by role."""
    columns: tuple[str, ...] | None
    zero_based: bool | None = None
    prepare: Preparation | Prepared | None = None
    """If set, missing values and text are kept."""
    by_columns: bool = False
    """Whether the numbers of a column, not of a row, are next to each other in memory."""
    on_disk: bool | None = None
    """Whether a file's numbers are kept in a temporary file; None: if memory does not hold them."""


def as_frame(source: Any, party: str) -> Frame | None:
    """Wrap a data frame of any library; None for other sources."""
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
            f"{len(repeated)} column names occur more than once, e.g. {repeated[0]!r}. Rename "
            "them.",
        ) from None
    return None


def read_frame(frame: Frame, roles: Roles, party: str) -> Table:
    """Read the table of a data frame in memory."""
    series = series_of(frame)
    chosen = chosen_columns(series, roles, party)
    X = np.empty((len(frame), len(chosen)), precision_of(series, chosen), order="F")
    texts: dict[str, tuple[str, ...]] = {}
    for j, column in enumerate(chosen):
        X[:, j], found = cells(series[column], roles, party)
        if found is not None:
            texts[column] = found
    return table_of(X, chosen, texts, series, roles, party)


def series_of(frame: Frame) -> dict[str, Series]:
    """The columns of a frame by their names."""
    return {str(column): frame.get_column(column) for column in frame.columns}


def chosen_columns(series: Mapping[str, Series], roles: Roles, party: str) -> tuple[str, ...]:
    """Choose the columns of X; refuse unknown names."""
    for role, column in roles.named.items():
        if column not in series:
            raise party_error(party, f"{role}={column!r}: {UnknownName('column', column, series)}")
    special = set(roles.named.values())
    if roles.columns is None:
        return tuple(column for column in series if column not in special)
    chosen = roles.columns
    for column in chosen:
        if column not in series:
            raise party_error(party, f"columns=: {UnknownName('column', column, series)}")
        if column in special:
            role = next(role for role, name in roles.named.items() if name == column)
            raise party_error(party, f"column {column!r} is in columns= and is also the {role}.")
    return chosen


def precision_of(series: Mapping[str, Series], chosen: tuple[str, ...]) -> np.dtype[Any]:
    """Single precision where all columns have it."""
    if chosen and all(series[column].dtype == nw.Float32 for column in chosen):
        return np.dtype(np.float32)
    return np.dtype(np.float64)


def cells(series: Series, roles: Roles, party: str) -> Raw:
    """Read a column of X; for a preparation, with the different texts of a column of text."""
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
    """Make a table of X and of the series that have other roles."""
    values = {}
    for role, column in roles.named.items():
        values[role] = column_values(series[column], party, f"column {column!r}", noun_of(role))
    if "exposure" in values:
        values["offset"] = logarithms(values["exposure"], party, roles.named["exposure"])
    others: dict[str, Any] = {}
    for role, field in ROW_VALUES.items():
        if role in values:
            others[field] = values[role]
    if "id" in values:
        others["ids"] = plain_ids(values["id"], party)
    return Table(
        X=X,
        y=_labels(values, party),
        columns=chosen,
        name=party,
        texts=texts or None,
        roles=tuple(column for role, column in roles.named.items() if role != "id"),
        **others,
    )


def noun_of(role: str) -> str:
    """The noun for the values of a role, in errors."""
    if role == "target":
        return "label"
    return role


def _labels(values: dict[str, npt.NDArray[Any]], party: str) -> npt.NDArray[Any] | None:
    """Take the target, or make the labels of the kind of problem that has these roles."""
    own = values.keys() - PLAIN
    if not own:
        return values.get("target")
    try:
        labels = next(kind.labels for kind in kinds() if own <= {*kind.labels.roles})
        return labels.made(values)
    except InvalidData as error:
        raise party_error(party, str(error)) from None


def _numbers(series: Series, party: str, column: str) -> npt.NDArray[Any]:
    """Read a column of X: numbers or booleans, none missing."""
    if len(series) == 0 and series.dtype == nw.Unknown:
        return np.empty(0)  # a CSV file without rows has no types
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
    """Find the first value of a column of text that is no number; with its row."""
    if series.dtype != nw.String:
        return None
    for row, value in enumerate(series.to_list()):
        try:
            float(value)
        except ValueError:
            return row, value
    return None


def column_values(series: Series, party: str, column: str, noun: str) -> npt.NDArray[Any]:
    """Read a column of labels, ids or weights: numbers, booleans or text, none missing."""
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
        raise WrongValue(
            party,
            first,
            before=f"{column} has {count(missing, 'missing value')} (first at ",
            after="). Drop or impute them (prepare).",
            column=series.name,
            shows_cell=True,
        ).error()
