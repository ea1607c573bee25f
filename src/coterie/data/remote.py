"""Data that is not here: rows of a frame in a cluster, and what is known of a table that stays where it is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from coterie.arrays import FloatArray
from coterie.data.prepared import Prepared
from coterie.data.read import read
from coterie.data.recipes import Preparation
from coterie.data.table import BESIDE, Table, party_error
from coterie.errors import InvalidData

Source = Callable[[], Any]
"""Called where an agent lives, it gives that agent's data, in any form that `read` takes."""


@dataclass(frozen=True)
class Rows:
    """Rows of a Spark DataFrame or a Ray Dataset; each agent takes a part of them, where they are.

    `columns` are those of X: names of numeric columns, or of one column of vectors; all others, if not given.
    `target` is the column of labels, or a list of them for several labels per row; they may be vectors, too.
    """

    frame: Any
    target: str | Sequence[str]
    columns: str | Sequence[str] | None = None
    weight: str | None = None
    offset: str | None = None
    prepare: Preparation | Prepared | None = None
    """If set, missing values and text are kept for it; `solve` sets it."""

    @property
    def beside(self) -> dict[str, str]:
        """The columns that stand beside the labels, by the field of a `Table`."""
        return {field: column for role, field in BESIDE.items() if (column := getattr(self, role, None)) is not None}


def table_of(batch: Any, rows: Rows, name: str = "data") -> Table:
    """An Arrow table of those rows as a `Table` of that name; a column of lists is a column of vectors."""
    if not batch.num_rows:
        return Table(X=np.empty((0, 0)), name=name)
    targets = [rows.target] if isinstance(rows.target, str) else list(rows.target)
    others = [name for name in batch.column_names if name not in (*targets, *rows.beside.values())]
    names = others if rows.columns is None else [rows.columns] if isinstance(rows.columns, str) else list(rows.columns)
    if absent := [column for column in (*names, *targets, *rows.beside.values()) if column not in batch.column_names]:
        raise party_error(name, f"there is no column called {absent[0]!r} among {', '.join(batch.column_names)}.")
    if rows.prepare is not None:
        if not isinstance(rows.target, str):
            raise party_error(name, "a preparation is for one label per row. Name one column as target.")
        roles: dict[str, Any] = {role: getattr(rows, role) for role in BESIDE}
        return read(batch, target=rows.target, columns=names, name=name, prepare=rows.prepare, **roles)
    try:
        blocks = [_numbers(batch.column(column), column) for column in names]
        labels = [_labels(batch.column(column), column) for column in targets]
    except InvalidData as error:
        raise party_error(name, str(error)) from None
    plain = all(block.ndim == 1 for block in blocks)
    beside: dict[str, Any] = {field: batch.column(column).to_numpy() for field, column in rows.beside.items()}
    X = np.column_stack(blocks) if blocks else np.empty((batch.num_rows, 0))
    return Table(
        X=X,
        y=labels[0] if isinstance(rows.target, str) else np.column_stack(labels),
        columns=tuple(names) if plain else None,
        name=name,
        **beside,
    )


def _labels(column: Any, name: str) -> Any:
    import pyarrow as pa

    if pa.types.is_nested(column.type):
        return _numbers(column, name)
    return np.asarray(column.to_numpy())


def _numbers(column: Any, name: str) -> FloatArray:
    """A column of numbers as a vector, one of lists of the same length as a matrix."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = column.type
    if column.null_count:
        raise InvalidData(f"column {name!r} has {column.null_count} missing values. Drop or impute them.")
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        flat = column.combine_chunks().flatten().to_numpy(zero_copy_only=False)
        lengths = pc.min_max(pc.list_value_length(column)).as_py()
        if lengths["min"] != lengths["max"]:
            raise InvalidData(
                f"the vectors of column {name!r} have {lengths['min']} to {lengths['max']} numbers. Give all the same."
            )
        return np.asarray(flat).reshape(len(column), -1)
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)):
        raise InvalidData(f"column {name!r} holds {kind}, not numbers. Encode it, or name the others with columns=.")
    return np.asarray(column.to_numpy())


@dataclass(frozen=True, eq=False)
class RemoteTable(Table):
    """A table that lives elsewhere. Shape, type, column names and classes are right; X and y are placeholders."""

    fetch: Callable[[], Table] | None = None
    """Called where the data is, it gives the real table, checked and prepared."""
    known_digest: str = ""

    def digest(self) -> str:
        """The digest of the real table."""
        return self.known_digest
