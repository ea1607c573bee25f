"""Data that is read where agents live: sources, and rows of a frame in a cluster."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from coterie.data.preparation.prepared import Prepared
from coterie.data.preparation.recipes import Preparation
from coterie.data.read import read
from coterie.data.table import ROW_VALUES, Table, party_error
from coterie.data.vectors import labels_of, matrix_of
from coterie.errors import InvalidData

Source = Callable[[], Any]
"""Called where an agent lives, it gives that agent's data, in any form that `read` takes."""


@dataclass(frozen=True)
class Rows:
    """Rows of a Spark DataFrame or a Ray Dataset; each agent takes a part of them, where they are.

    `columns` are those of X: names of numeric columns, or of one column of vectors; all others, if
    not given. `target` is the column of labels, or a list of them for several labels per row; they
    may be vectors, too.
    """

    frame: Any
    target: str | Sequence[str]
    columns: str | Sequence[str] | None = None
    weight: str | None = None
    offset: str | None = None
    prepare: Preparation | Prepared | None = None
    """If set, missing values and text are kept for it; `solve` sets it."""

    @property
    def row_values(self) -> dict[str, str]:
        """The columns of weights and offsets, by the field of a `Table`."""
        return {
            field: column
            for role, field in ROW_VALUES.items()
            if (column := getattr(self, role, None)) is not None
        }


def table_of(batch: Any, rows: Rows, name: str = "data") -> Table:
    """An Arrow table of those rows as a `Table` of that name; columns of vectors are as `vectors`
    says.
    """
    if not batch.num_rows:
        return Table(X=np.empty((0, 0)), name=name)
    targets = listed(rows.target)
    with_labels = [*targets, *rows.row_values.values()]
    if rows.columns is None:
        names = [column for column in batch.column_names if column not in with_labels]
    else:
        names = listed(rows.columns)
    for column in (*names, *with_labels):
        if column not in batch.column_names:
            known = ", ".join(batch.column_names)
            raise party_error(name, f"there is no column called {column!r} among {known}.")
    if rows.prepare is not None:
        return _raw(batch, rows, names, name)
    try:
        X, plain = matrix_of(batch.select(names))
        labels = [labels_of(batch.column(column), column) for column in targets]
    except InvalidData as error:
        raise party_error(name, str(error)) from None
    row_values: dict[str, Any] = {
        field: batch.column(column).to_numpy() for field, column in rows.row_values.items()
    }
    y = labels[0]
    if not isinstance(rows.target, str):
        y = np.column_stack(labels)
    return Table(X=X, y=y, columns=tuple(names) if plain else None, name=name, **row_values)


def _raw(batch: Any, rows: Rows, columns: Sequence[str], name: str) -> Table:
    """The same for a preparation: with missing values and text."""
    if not isinstance(rows.target, str):
        raise party_error(
            name, "a preparation is for one label per row. Name one column as target."
        )
    roles: dict[str, Any] = {role: getattr(rows, role) for role in ROW_VALUES}
    return read(
        batch, target=rows.target, columns=columns, name=name, prepare=rows.prepare, **roles
    )


def listed(names: str | Sequence[str]) -> list[str]:
    """One name or several, as a list."""
    return [names] if isinstance(names, str) else list(names)
