"""Parquet and Arrow files, a few rows at a time, into the one matrix that a run works on.

Only the matrix is as large as the file: blocks of rows are decoded, copied to their place, and
dropped.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import narwhals as nw
import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array, vstack

from coterie.data.frames import (
    Roles,
    Series,
    cells,
    chosen_columns,
    precision_of,
    series_of,
    table_of,
)
from coterie.data.on_disk import empty_matrix
from coterie.data.table import Table, party_error
from coterie.data.vectors import is_vector, matrix_of
from coterie.errors import InvalidData
from coterie.numerics.arrays import Matrix, is_sparse
from coterie.run.stages import tell

BLOCK = 1 << 19
"""The maximum number of numbers that are decoded at a time."""
VECTORS = 1 << 10
"""The number of rows of vectors that are decoded at a time."""
AT_ONCE = 16
"""The number of columns that are decoded at the same time. Each takes a page, or a megabyte, of
memory.
"""
BUFFER = 1 << 16
"""The bytes of a column that are read at a time, in place of a whole row group."""


def unreadable(path: Path, party: str, kind: str, error: Exception) -> InvalidData:
    """Make the error about a file whose content is not of the kind that its name says."""
    return party_error(
        party, f"the file {str(path)!r} cannot be read as {kind}: {error}. Write it again."
    )


class _Parquet:
    """A Parquet file."""

    kind = "Parquet"

    def __init__(self, path: Path):
        import pyarrow.parquet as pq

        self.file = pq.ParquetFile(path, buffer_size=BUFFER, pre_buffer=False)
        self.schema = self.file.schema_arrow
        self.rows = self.file.metadata.num_rows

    def blocks(self, names: Sequence[str], rows: int) -> Iterator[Any]:
        """Read Arrow tables of `rows` rows each, with those columns."""
        import pyarrow as pa

        # Each thread of Arrow keeps some ten megabytes of decoded data. One thread takes no longer
        # for columns that are copied to their places one after another, and frees its memory.
        batches = self.file.iter_batches(batch_size=rows, columns=list(names), use_threads=False)
        for batch in batches:
            yield pa.Table.from_batches([batch])


class _Arrow:
    """An Arrow file (IPC, Feather), which is mapped."""

    kind = "Arrow"

    def __init__(self, path: Path):
        import pyarrow as pa

        self.file = pa.ipc.open_file(pa.memory_map(str(path)))
        self.schema = self.file.schema
        self.rows = sum(
            self.file.get_batch(place).num_rows for place in range(self.file.num_record_batches)
        )

    def blocks(self, names: Sequence[str], rows: int) -> Iterator[Any]:
        """Read Arrow tables of `rows` rows each, with those columns."""
        import pyarrow as pa

        for place in range(self.file.num_record_batches):
            batch = self.file.get_batch(place).select(list(names))
            for start in range(0, batch.num_rows, rows):
                yield pa.Table.from_batches([batch.slice(start, rows)])


_SOURCES: dict[str, type[_Parquet] | type[_Arrow]] = {
    ".parquet": _Parquet,
    ".arrow": _Arrow,
    ".feather": _Arrow,
}
ENDINGS = tuple(_SOURCES)


def read_stream(path: Path, roles: Roles, party: str) -> Table:
    """Read the table of a Parquet or Arrow file."""
    import pyarrow as pa

    make = _source_of(path)
    try:
        return _table(make(path), path, roles, party)
    except (pa.ArrowException, OSError) as error:
        raise unreadable(path, party, make.kind, error) from error
    finally:
        pa.default_memory_pool().release_unused()  # the memory of decoding is free for the run


def read_columns(path: Path, names: Sequence[str] | None = None) -> Any:
    """Read columns of a Parquet or Arrow file, or all of them, as an Arrow table."""
    source = _source_of(path)(path)
    if names is None:
        names = source.schema.names
    return _whole(source, names)


def _source_of(path: Path) -> type[_Parquet] | type[_Arrow]:
    endings = [ending.lower() for ending in reversed(path.suffixes)]
    return next(_SOURCES[ending] for ending in endings if ending in _SOURCES)


def _empty(schema: Any) -> Any:
    """Make a table without rows; `schema.empty_table` knows no tensors."""
    import pyarrow as pa

    return pa.Table.from_batches([], schema)


def _whole(source: _Parquet | _Arrow, names: Sequence[str]) -> Any:
    import pyarrow as pa

    schema = pa.schema([source.schema.field(name) for name in names])
    blocks = [_empty(schema)]
    if names:
        for block in source.blocks(names, BLOCK):
            blocks.append(block.select(list(names)))
    return pa.concat_tables(blocks).combine_chunks()


def _table(source: _Parquet | _Arrow, path: Path, roles: Roles, party: str) -> Table:
    known = _known_columns(source, path, party)
    types = _series(_empty(source.schema).select(known))
    chosen = chosen_columns(types, roles, party)
    others = _series(_whole(source, [*dict.fromkeys(roles.named.values())]))
    if roles.prepare is None and any(is_vector(source.schema.field(name).type) for name in chosen):
        vectors = _vectors(source, chosen, path, roles, party)
        return replace(table_of(vectors, chosen, {}, others, roles, party), columns=None)
    X = empty_matrix(
        (source.rows, len(chosen)),
        precision_of(types, chosen),
        by_columns=roles.by_columns,
        on_disk=roles.on_disk,
    )
    texts: dict[str, tuple[str, ...]] = {}
    # Columns of text are refused, or, for a preparation, read in one piece: it numbers their texts.
    plain = [name for name in chosen if _is_number(types[name])]
    for j, name in enumerate(chosen):
        if name not in plain:
            X[:, j], found = cells(_series(_whole(source, [name]))[name], roles, party)
            if found is not None:
                texts[name] = found
    # The table is made before X is filled, so that missing labels are refused at once.
    table = table_of(X, chosen, texts, others, roles, party)
    places = [chosen.index(name) for name in plain]
    try:
        _fill(X, source, plain, places, f"reading {path.name}", roles, party)
    except InvalidData:
        # Raise the error about the first wrong column again, from all of its rows.
        for name in plain:
            cells(_series(_whole(source, [name]))[name], roles, party)
        raise
    return table


def _known_columns(source: _Parquet | _Arrow, path: Path, party: str) -> list[str]:
    """List the columns of a file, without the nameless index that pandas stores as a column."""
    known = [name for name in source.schema.names if not name.startswith("__index_level_")]
    refuse_repeated(known, path, party)
    return known


def refuse_repeated(names: Sequence[str], path: Path, party: str) -> None:
    """Refuse a file with several columns of one name."""
    repeated = sorted(name for name, times in Counter(names).items() if times > 1)
    if repeated:
        raise party_error(
            party, f"{path} has more than one column called {', '.join(repeated)}. Rename them."
        )


def _vectors(
    source: _Parquet | _Arrow, names: Sequence[str], path: Path, roles: Roles, party: str
) -> Matrix:
    """Read the matrix of columns of which some hold vectors; sparse vectors stay sparse."""
    X: Any = None
    parts: list[Matrix] = []
    end = 0
    for block in source.blocks(names, VECTORS):
        try:
            part, _ = matrix_of(block)
        except InvalidData as error:
            raise party_error(party, str(error)) from None
        if X is None and not parts:
            width = part.shape[1]
            if not is_sparse(part):
                X = empty_matrix(
                    (source.rows, width),
                    part.dtype,
                    by_columns=roles.by_columns,
                    on_disk=roles.on_disk,
                )
        if part.shape[1] != width:
            raise party_error(
                party,
                f"vectors of {path} have {width} and {part.shape[1]} numbers. Give all the same.",
            )
        start = end
        end = end + block.num_rows
        if X is None:
            parts.append(csr_array(part))
        elif is_sparse(part):
            X[start:end] = part.toarray()
        else:
            X[start:end] = part
        tell(f"reading {path.name}", end, source.rows)
    if X is not None:
        return X
    if parts:
        return vstack(parts, "csr")
    return np.empty((0, 0))


def _fill(
    X: npt.NDArray[Any],
    source: _Parquet | _Arrow,
    names: Sequence[str],
    places: Sequence[int],
    stage: str,
    roles: Roles,
    party: str,
) -> None:
    """Write those columns of all rows to their places in X."""
    for first in range(0, len(names), AT_ONCE):
        some = names[first : first + AT_ONCE]
        end = 0
        for block in source.blocks(some, BLOCK // AT_ONCE):
            series = _series(block)
            start = end
            end = end + block.num_rows
            for name, j in zip(some, places[first:], strict=False):
                X[start:end, j], _ = cells(series[name], roles, party)
            tell(stage, (first * source.rows + len(some) * end) // len(names), source.rows)


def _is_number(series: Series) -> bool:
    return bool(series.dtype.is_numeric() or series.dtype == nw.Boolean)


def _series(table: Any) -> dict[str, Series]:
    return series_of(nw.from_native(table, eager_only=True))
