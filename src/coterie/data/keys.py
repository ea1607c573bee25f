"""Columns that look like keys: they number or name rows, and a model that learns from them learns
nothing.

A column looks like a key if every row has another whole number or another text in it, or if its
name is one that pandas gives to an index. Measurements with decimals differ in every row, too, and
are not meant.
"""

from __future__ import annotations

import re
import sys
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from coterie.data.preparation.prepared import column_names
from coterie.data.table import Indices, Table
from coterie.errors import DataWarning
from coterie.numerics.arrays import FloatArray, host, is_sparse

LEAST_ROWS = 20
"""Fewer rows often have different whole numbers by chance, ages for example."""
LEAST_IN_A_ROW = 5
"""From so many rows on, consecutive numbers (1, 2, 3, ... in any order) are no accident."""
LARGEST = 2.0**53
"""Whole numbers up to which double precision has fractions, too."""
FIRST = 64
"""Rows that rule out most columns."""
INDEX = re.compile(r"Unnamed: \d+|__index_level_\d+__")
"""What pandas calls an index without a name, when it reads a CSV file, and in Parquet files."""
MOST_NOTES = 5
"""Of many parties, only some are named."""
FIX = "Leave it out of the columns, or, if it names the rows, name it as their id"


def noted(table: Table) -> Table:
    """The table with notes about columns that look like keys, unless they were looked for
    already.
    """
    if table.notes is not None:
        return table
    return replace(table, notes=tuple(_notes(table)))


def all_noted(tables: Sequence[Table], split: str) -> list[Table]:
    """The same for several tables. Of users with a few rows each, only all rows together show what
    a key is.
    """
    if split != "users" or len(tables) == 1:
        return [noted(table) for table in tables]
    fresh = [table for table in tables if table.notes is None and table.n]
    found = _notes_of_users(fresh) if fresh else []
    told = [table.notes if table.notes is not None else () for table in tables]
    if fresh:
        told[next(place for place, table in enumerate(tables) if table is fresh[0])] = tuple(found)
    return [replace(table, notes=own) for table, own in zip(tables, told, strict=True)]


def shortened(notes: Iterable[str]) -> list[str]:
    """Every note once; of many, the first ones and how many more there are."""
    every = [*dict.fromkeys(notes)]
    more = len(every) - MOST_NOTES
    if more <= 0:
        return every
    return [*every[:MOST_NOTES], f"{more} more columns of parties look like keys."]


def warn_caller(notes: Iterable[str]) -> None:
    """Warn whoever called the library: a warning names the line of the caller's own program."""
    level = 2
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("coterie."):
        level = level + 1
        frame = frame.f_back
    for note in shortened(notes):
        warnings.warn(note, DataWarning, stacklevel=level)


def _notes(table: Table) -> list[str]:
    if not _is_matrix(table):
        return []
    names = column_names(table)
    notes = _indices(table)
    for place in _whole_and_different(table):
        values = _values(table, place)
        if place not in notes and _is_key(values):
            is_text = table.texts is not None and names[place] in table.texts
            notes[place] = _as_key("texts" if is_text else "whole numbers", table.n)
    return [
        f"party {table.name!r}: {table.column_name(place)} {note}"
        for place, note in sorted(notes.items())
    ]


def _notes_of_users(tables: Sequence[Table]) -> list[str]:
    """The notes of users' tables that have the same columns."""
    first = tables[0]
    if not all(_is_matrix(table) and table.d == first.d for table in tables):
        return []
    notes = _indices(first)
    common = set(range(first.d)).intersection(*(_whole_and_different(table) for table in tables))
    for place in sorted(common - notes.keys()):
        values = np.concatenate([_values(table, place) for table in tables])
        if _is_key(values):
            notes[place] = _as_key("whole numbers", len(values))
    return [f"{first.column_name(place)} {note}" for place, note in sorted(notes.items())]


def _is_matrix(table: Table) -> bool:
    """Whether it has rows and columns, with a name for each column or none: `validated` refuses
    others.
    """
    return len(table.X.shape) == 2 and len(column_names(table)) == table.d


def _indices(table: Table) -> dict[int, str]:
    """The columns that have the name of an index, each with a note. Columns without names have
    none.
    """
    if table.columns is None:
        return {}
    note = f"looks like the index of a pandas data frame, by its name. {FIX}."
    return {place: note for place, name in enumerate(table.columns) if INDEX.fullmatch(name)}


def _as_key(what: str, rows: int) -> str:
    return f"looks like a key: it has {rows} different {what} in {rows} rows. {FIX}."


def _is_key(values: FloatArray) -> bool:
    """Whether these are whole numbers, all different, and too many of them for an accident."""
    if len(values) < LEAST_IN_A_ROW or not _are_whole(values).all():
        return False
    different = np.unique(values)
    consecutive = different[-1] - different[0] == len(values) - 1
    return len(different) == len(values) and bool(len(values) >= LEAST_ROWS or consecutive)


def _whole_and_different(table: Table) -> set[int]:
    """The columns whose first rows have different whole numbers: no others can be keys."""
    if not table.n or not table.d:
        return set()
    rows = table.X[:FIRST]
    if is_sparse(rows):
        # All but one of these rows have an entry, or 0 is in it twice.
        filled = np.bincount(rows.indices, minlength=table.d) >= rows.shape[0] - 1
        places: Indices = np.flatnonzero(filled)
        if not len(places):
            return set()
        rows = rows[:, places].toarray()
    else:
        places = np.arange(table.d)
        rows = np.asarray(host(rows))
    if rows.dtype.kind not in "biuf":
        return set()
    whole = _are_whole(rows).all(axis=0)
    places = places[whole]
    rows = np.sort(rows[:, whole], axis=0)
    return {*places[(rows[1:] != rows[:-1]).all(axis=0)].tolist()}


def _are_whole(values: FloatArray) -> FloatArray:
    """Which values are whole numbers; beyond `LARGEST`, every number of double precision is one."""
    with np.errstate(invalid="ignore"):
        found: FloatArray = (np.abs(values) < LARGEST) & (np.floor(values) == values)
    return found


def _values(table: Table, place: int) -> FloatArray:
    column = table.X[:, [place]]
    dense: FloatArray = np.asarray(column.toarray() if is_sparse(column) else host(column)).ravel()
    return dense
