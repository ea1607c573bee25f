"""Find columns that look like keys: they number or name rows, and no model can learn from them.

A column looks like a key if every row has another whole number or another text in it, or if its
name is one that pandas gives to an index. Measurements with decimals also differ in every row; they
do not look like keys.
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
"""The least number of rows: fewer often have different whole numbers by chance, such as ages."""
LEAST_IN_A_ROW = 5
"""The least number of consecutive numbers (1, 2, 3, ... in any order) that look like keys."""
LARGEST = 2.0**53
"""The largest number of double precision that can have a neighbour with a fraction."""
FIRST = 64
"""The number of rows that rule out most columns."""
INDEX = re.compile(r"Unnamed: \d+|__index_level_\d+__")
"""The names that pandas gives to a nameless index, in CSV and in Parquet files."""
MOST_NOTES = 5
"""The maximum number of notes that are shown."""
FIX = "Leave it out of the columns, or, if it names the rows, name it as their id"


def noted(table: Table) -> Table:
    """Add notes about columns that look like keys to a table that was not checked yet."""
    if table.notes is not None:
        return table
    return replace(table, notes=tuple(_notes(table)))


def all_noted(tables: Sequence[Table], split: str) -> list[Table]:
    """Add such notes to several tables; to those of users, who have a few rows each, together."""
    if split != "users" or len(tables) == 1:
        return [noted(table) for table in tables]
    fresh = [table for table in tables if table.notes is None and table.n]
    found = []
    for table in tables:
        if table.notes is not None:
            found.append(table)
        elif fresh and table is fresh[0]:
            found.append(replace(table, notes=tuple(_notes_of_users(fresh))))
        else:
            found.append(replace(table, notes=()))
    return found


def shortened(notes: Iterable[str]) -> list[str]:
    """List every note once; of many notes, the first ones and the number of the others."""
    every = [*dict.fromkeys(notes)]
    more = len(every) - MOST_NOTES
    if more <= 0:
        return every
    return [*every[:MOST_NOTES], f"{more} more columns of parties look like keys."]


def warn_caller(notes: Iterable[str]) -> None:
    """Warn the program that called the library: a warning names the line of that program."""
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
    notes = _indices(table)
    for place in _whole_and_different(table):
        values = _values(table, place)
        if place in notes or not _is_key(values):
            continue
        kind = "whole numbers"
        if table.texts is not None and column_names(table)[place] in table.texts:
            kind = "texts"
        notes[place] = _as_key(kind, table.n)
    return [
        f"party {table.name!r}: {table.column_name(place)} {note}"
        for place, note in sorted(notes.items())
    ]


def _notes_of_users(tables: Sequence[Table]) -> list[str]:
    """Find notes about the tables of users, which have the same columns."""
    first = tables[0]
    if not all(_is_matrix(table) and table.d == first.d for table in tables):
        return []
    notes = _indices(first)
    common = set(range(first.d)).intersection(*map(_whole_and_different, tables))
    for place in sorted(common - notes.keys()):
        values = np.concatenate([_values(table, place) for table in tables])
        if _is_key(values):
            notes[place] = _as_key("whole numbers", len(values))
    return [f"{first.column_name(place)} {note}" for place, note in sorted(notes.items())]


def _is_matrix(table: Table) -> bool:
    """Whether a table is a matrix with a name for each column, or without names."""
    has_names = table.columns is None or len(table.columns) == table.d
    return len(table.X.shape) == 2 and has_names


def _indices(table: Table) -> dict[int, str]:
    """Find the columns that have the name of an index, each with a note."""
    if table.columns is None:
        return {}
    note = f"looks like the index of a pandas data frame, by its name. {FIX}."
    return {place: note for place, name in enumerate(table.columns) if INDEX.fullmatch(name)}


def _as_key(kind: str, rows: int) -> str:
    return f"looks like a key: it has {rows} different {kind} in {rows} rows. {FIX}."


def _is_key(values: FloatArray) -> bool:
    """Whether these are whole numbers, all different, and too many of them for an accident."""
    if len(values) < LEAST_IN_A_ROW or not _are_whole(values).all():
        return False
    different = np.unique(values)
    consecutive = different[-1] - different[0] == len(values) - 1
    return len(different) == len(values) and bool(len(values) >= LEAST_ROWS or consecutive)


def _whole_and_different(table: Table) -> set[int]:
    """Find the columns whose first rows have different whole numbers: no others can be keys."""
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
    if is_sparse(column):
        column = column.toarray()
    dense: FloatArray = np.asarray(host(column)).ravel()
    return dense
