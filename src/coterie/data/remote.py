"""Data that is not here: rows of a frame in a cluster, and what is known of a table that stays where it is."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from coterie.arrays import Matrix
from coterie.data.prepared import Prepared
from coterie.data.read import read
from coterie.data.recipes import Preparation
from coterie.data.table import BESIDE, Table, party_error
from coterie.errors import InvalidData

T = TypeVar("T")

SPARK_VECTOR = {"type", "size", "indices", "values"}
"""The parts of a vector of Spark's machine learning library."""
ROWS_AT_A_TIME = 10_000

Source = Callable[[], Any]
"""Called where an agent lives, it gives that agent's data, in any form that `read` takes."""

_kept: dict[Hashable, Any] | None = None


@contextmanager
def keeping() -> Iterator[None]:
    """Let this process, a worker of a cluster, keep for the next question what it has read."""
    global _kept
    _kept = {}
    try:
        yield
    finally:
        _kept = None


def keep(place: Hashable, key: Hashable, make: Callable[[], T]) -> T:
    """What was made of that key the last time; of another key it takes the place. Elsewhere nothing is kept."""
    if _kept is None:
        return make()
    held = _kept.get(place)
    if held is None or held[0] != key:
        held = _kept[place] = key, make()
    found: T = held[1]
    return found


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
    targets = listed(rows.target)
    others = [name for name in batch.column_names if name not in (*targets, *rows.beside.values())]
    names = others if rows.columns is None else listed(rows.columns)
    if absent := [column for column in (*names, *targets, *rows.beside.values()) if column not in batch.column_names]:
        raise party_error(name, f"there is no column called {absent[0]!r} among {', '.join(batch.column_names)}.")
    if rows.prepare is not None:
        if not isinstance(rows.target, str):
            raise party_error(name, "a preparation is for one label per row. Name one column as target.")
        roles: dict[str, Any] = {role: getattr(rows, role) for role in BESIDE}
        return read(batch, target=rows.target, columns=names, name=name, prepare=rows.prepare, **roles)
    try:
        X, plain = _matrix(batch.select(names))
        labels = [_labels(batch.column(column), column) for column in targets]
    except InvalidData as error:
        raise party_error(name, str(error)) from None
    beside: dict[str, Any] = {field: batch.column(column).to_numpy() for field, column in rows.beside.items()}
    return Table(
        X=X,
        y=labels[0] if isinstance(rows.target, str) else np.column_stack(labels),
        columns=tuple(names) if plain else None,
        name=name,
        **beside,
    )


def listed(names: str | Sequence[str]) -> list[str]:
    """One name or several, as a list."""
    return [names] if isinstance(names, str) else list(names)


def _matrix(batch: Any) -> tuple[Matrix, bool]:
    """The columns side by side, sparse if there are sparse vectors among them; and whether all are of numbers."""
    import pyarrow as pa

    plain = not any(pa.types.is_nested(kind) for kind in batch.schema.types)
    if not plain:
        blocks = [_numbers(batch.column(name), name) for name in batch.column_names]
        if any(map(sp.issparse, blocks)):
            columns = [sp.csr_array(block if block.ndim == 2 else block[:, None]) for block in blocks]
            return sp.csr_array(sp.hstack(columns, "csr")) if len(columns) > 1 else columns[0], False
        return blocks[0] if len(blocks) == 1 else np.column_stack(blocks), False
    for name in batch.column_names:
        _check_numbers(batch.column(name), name)
    kinds = [np.dtype(kind.to_pandas_dtype()) for kind in batch.schema.types]
    X = np.empty((batch.num_rows, len(kinds)), np.result_type(*kinds) if kinds else float)
    # A few rows at a time: what is written side by side was read a moment ago.
    for first in range(0, batch.num_rows, ROWS_AT_A_TIME):
        piece = batch.slice(first, ROWS_AT_A_TIME)
        for place, column in enumerate(piece.columns):
            X[first : first + len(column), place] = column.to_numpy()
    return X, True


def _labels(column: Any, name: str) -> Any:
    import pyarrow as pa

    if pa.types.is_nested(column.type):
        found = _numbers(column, name)
        return found.toarray() if sp.issparse(found) else found
    return np.asarray(column.to_numpy())


def _numbers(column: Any, name: str) -> Matrix:
    """A column of numbers as a vector, one of lists of the same length as a matrix, one of sparse vectors as CSR."""
    import pyarrow as pa

    kind = column.type
    if pa.types.is_struct(kind) and {field.name for field in kind} == SPARK_VECTOR:
        return _spark_vectors(column.combine_chunks(), name)
    if not (pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)):
        _check_numbers(column, name)
        return np.asarray(column.to_numpy())
    _refuse_missing(column, name)
    flat = column.combine_chunks().flatten().to_numpy(zero_copy_only=False)
    _refuse_lengths(_lengths(column), name)
    return np.asarray(flat).reshape(len(column), -1)


def _spark_vectors(column: Any, name: str) -> Matrix:
    """The vectors of Spark's machine learning library: dense, unless some are sparse and sparse is smaller."""
    import pyarrow.compute as pc

    _refuse_missing(column, name)
    dense = column.field("type").to_numpy() == 1
    values, lengths = column.field("values"), _lengths(column.field("values"))
    flat = values.flatten().to_numpy()
    widths = np.where(dense, lengths, column.field("size").fill_null(0).to_numpy())
    _refuse_lengths(widths, name)
    n, d = len(column), int(widths[0])
    if dense.all():
        return flat.reshape(n, d)
    starts = np.concatenate([[0], np.cumsum(lengths)])
    indices = np.empty(len(flat), np.int32)
    indices[np.repeat(~dense, lengths)] = pc.drop_null(column.field("indices")).flatten().to_numpy()
    indices[np.repeat(dense, lengths)] = np.tile(np.arange(d, dtype=np.int32), int(dense.sum()))
    X = sp.csr_array((flat, indices, starts), shape=(n, d))
    # An entry of a sparse row takes 12 bytes, one of a dense row 8.
    return X if 1.5 * len(flat) < n * d else X.toarray()


def _lengths(column: Any) -> npt.NDArray[np.int64]:
    """How many numbers each list has."""
    import pyarrow.compute as pc

    return np.asarray(pc.list_value_length(column).to_numpy(), np.int64)


def _check_numbers(column: Any, name: str) -> None:
    import pyarrow as pa

    kind = column.type
    _refuse_missing(column, name)
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)):
        raise InvalidData(f"column {name!r} holds {kind}, not numbers. Encode it, or name the others with columns=.")


def _refuse_missing(column: Any, name: str) -> None:
    if column.null_count:
        raise InvalidData(f"column {name!r} has {column.null_count} missing values. Drop or impute them.")


def _refuse_lengths(lengths: npt.NDArray[np.int64], name: str) -> None:
    least, most = int(lengths.min()), int(lengths.max())
    if least != most:
        raise InvalidData(f"the vectors of column {name!r} have {least} to {most} numbers. Give all the same.")


@dataclass(frozen=True, eq=False)
class RemoteTable(Table):
    """A table that lives elsewhere. Shape, type, column names and classes are right; X and y are placeholders."""

    fetch: Callable[[], Table] | None = None
    """Called where the data is, it gives the real table, checked and prepared."""
    known_digest: str = ""

    def digest(self, leaves: bool = True) -> str:
        """The digest of the real table."""
        return self.known_digest
