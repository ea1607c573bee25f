"""Vectors in columns of Arrow tables, from Parquet files, Spark and Ray: one column with many
numbers per row.

A column of lists of one length, or of tensors of one shape, is a dense matrix. Structs of size,
indices and values are sparse vectors, which stay sparse unless dense is smaller. Vectors of Spark
also have a type: 0 is sparse, 1 is dense.

Single precision stays single.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from coterie.errors import InvalidData
from coterie.numerics.arrays import Matrix

SPARSE = {"size", "indices", "values"}
"""The parts of a sparse vector."""
ROWS_AT_A_TIME = 10_000


def is_vector(kind: Any) -> bool:
    """Whether a column of that Arrow type may hold vectors."""
    import pyarrow as pa

    return bool(pa.types.is_nested(kind) or isinstance(kind, pa.BaseExtensionType))


def matrix_of(batch: Any) -> tuple[Matrix, bool]:
    """The matrix of the columns, sparse if some hold sparse vectors, and whether all columns are of
    numbers.
    """
    if any(is_vector(kind) for kind in batch.schema.types):
        blocks = [_numbers(batch.column(name), name) for name in batch.column_names]
        return _joined(blocks), False
    for name in batch.column_names:
        _check_numbers(batch.column(name), name)
    kinds = [np.dtype(kind.to_pandas_dtype()) for kind in batch.schema.types]
    precision = np.dtype(float)
    if kinds:
        precision = np.result_type(*kinds)
    X = np.empty((batch.num_rows, len(kinds)), precision)
    # A few rows at a time, so that the memory of these rows is in the cache.
    for first in range(0, batch.num_rows, ROWS_AT_A_TIME):
        piece = batch.slice(first, ROWS_AT_A_TIME)
        for place, column in enumerate(piece.columns):
            X[first : first + len(column), place] = column.to_numpy()
    return X, True


def _joined(blocks: list[Matrix]) -> Matrix:
    """The columns and matrices as one matrix."""
    if any(map(sp.issparse, blocks)):
        columns = [sp.csr_array(_two_dimensional(block)) for block in blocks]
        if len(columns) == 1:
            return columns[0]
        return sp.csr_array(sp.hstack(columns, "csr"))
    if len(blocks) == 1:
        return blocks[0]
    return np.column_stack(blocks)


def _two_dimensional(block: Matrix) -> Matrix:
    if block.ndim == 2:
        return block
    return block[:, None]


def labels_of(column: Any, name: str) -> Any:
    """A column of labels: numbers, texts, or a vector of numbers for each row."""
    if is_vector(column.type):
        found = _numbers(column, name)
        if sp.issparse(found):
            return found.toarray()
        return found
    return np.asarray(column.to_numpy())


def _numbers(column: Any, name: str) -> Matrix:
    """A column of numbers as a vector, one of lists of the same length as a matrix, one of sparse
    vectors as CSR.
    """
    import pyarrow as pa

    kind = column.type
    if isinstance(kind, pa.BaseExtensionType):
        storage = [chunk.storage for chunk in column.chunks]
        return _numbers(pa.chunked_array(storage, kind.storage_type), name)
    if pa.types.is_struct(kind) and {field.name for field in kind} >= SPARSE:
        return _sparse_vectors(column.combine_chunks(), name)
    list_types = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
    if not any(is_list(kind) for is_list in list_types):
        _check_numbers(column, name)
        return np.asarray(column.to_numpy())
    _refuse_missing(column, name)
    flat = column.combine_chunks().flatten().to_numpy(zero_copy_only=False)
    _refuse_lengths(_lengths(column), name)
    return np.asarray(flat).reshape(len(column), -1)


def _sparse_vectors(column: Any, name: str) -> Matrix:
    """Read vectors of which some are sparse as a matrix: sparse if that is smaller, else dense.

    Spark says which vectors are dense.
    """
    import pyarrow.compute as pc

    _refuse_missing(column, name)
    kinds = {field.name for field in column.type}
    dense = np.zeros(len(column), bool)
    if "type" in kinds:
        dense = column.field("type").to_numpy() == 1
    values = column.field("values")
    lengths = _lengths(column.field("values"))
    flat = values.flatten().to_numpy()
    widths = np.where(dense, lengths, column.field("size").fill_null(0).to_numpy())
    _refuse_lengths(widths, name)
    n = len(column)
    d = int(widths[0])
    if dense.all():
        return flat.reshape(n, d)
    starts = np.concatenate([[0], np.cumsum(lengths)])
    indices = np.empty(len(flat), np.int32)
    places = pc.drop_null(column.field("indices")).flatten().to_numpy()
    indices[np.repeat(~dense, lengths)] = places
    every_place = np.arange(d, dtype=np.int32)
    indices[np.repeat(dense, lengths)] = np.tile(every_place, int(dense.sum()))
    X = sp.csr_array((flat, indices, starts), shape=(n, d))
    # An entry of a sparse row takes 12 bytes, one of a dense row 8.
    if 1.5 * len(flat) < n * d:
        return X
    return X.toarray()


def _lengths(column: Any) -> npt.NDArray[np.int64]:
    """The number of entries of each list."""
    import pyarrow.compute as pc

    return np.asarray(pc.list_value_length(column).to_numpy(), np.int64)


def _check_numbers(column: Any, name: str) -> None:
    import pyarrow as pa

    kind = column.type
    _refuse_missing(column, name)
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)):
        raise InvalidData(
            f"column {name!r} holds {kind}, not numbers. Encode it, or name the others with "
            "columns=."
        )


def _refuse_missing(column: Any, name: str) -> None:
    if column.null_count:
        raise InvalidData(
            f"column {name!r} has {column.null_count} missing values. Drop or impute them."
        )


def _refuse_lengths(lengths: npt.NDArray[np.int64], name: str) -> None:
    least = int(lengths.min())
    most = int(lengths.max())
    if least != most:
        raise InvalidData(
            f"the vectors of column {name!r} have {least} to {most} numbers. Give all the same."
        )
