"""The table of one party, which `read` returns, `align` and `split` restrict, and an agent
holds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from coterie.data.digests import fingerprint
from coterie.data.on_disk import copied_rows, is_on_disk
from coterie.data.places import Origin
from coterie.errors import InvalidData
from coterie.numerics.arrays import FloatArray, Matrix, digest, host, is_sparse, precision_of

if TYPE_CHECKING:
    from coterie.data.remote_table import AnyTable

Indices = npt.NDArray[np.intp]

ROW_VALUES = {"weight": "weights", "offset": "offset"}
"""Values that accompany labels, one per row: the noun for a column, and the field of `Table`.
All code that reads, checks, splits, sends or digests tables uses this list.
"""

MANY_COLUMNS = 100
"""Least number of columns for which `Table.independence` is computed."""
DIFFERENCES = 8
"""Number of differences of rows from which `Table.independence` is computed."""


@dataclass(frozen=True, eq=False)
class Table:
    """A party's data. `validated` checks it once, before the first message."""

    X: Matrix
    """Samples in rows: dense (C or Fortran order) or scipy.sparse CSR; float64, or float32 kept."""
    y: FloatArray | None = None
    """Labels, if this party has them: any two values, also text, until `encode_labels`; then
    float64.
    """
    weights: FloatArray | None = None
    """Positive sample weights, one per row, only with labels; float64 after the check."""
    ids: npt.NDArray[Any] | None = None
    """Row ids, integers or text."""
    columns: tuple[str, ...] | None = None
    """Column names."""
    name: str = "data"
    """The name of this party in errors."""
    rows: Indices | None = None
    """Pooled row numbers, after a split by samples or users."""
    cols: Indices | None = None
    """Pooled column numbers, after a split by features."""

    open_ended: bool = False
    """Whether columns after the last may have been left out because they are zero here, as in an
    svmlight file.
    """
    offset: FloatArray | None = None
    """Numbers to add to the score of each row, in double precision, such as the logarithm of an
    exposure.
    """
    texts: Mapping[str, tuple[str, ...]] | None = None
    """Columns of text that were read for a `Preparation`: X has places in these lists, NaN for
    missing cells.
    """
    roles: tuple[str, ...] | None = None
    """For a table of a file or a data frame: the columns with labels, weights and so on, without
    the ids (see `pairing`). None for arrays, whose rows have only positions.
    """
    notes: tuple[str, ...] | None = None
    """Warnings for its owner: columns that look like keys (see `keys`). None: not yet checked."""
    origin: Origin | None = None
    """The CSV file it was read from, for errors."""

    @property
    def n(self) -> int:
        """The number of rows."""
        return int(self.X.shape[0])

    @property
    def d(self) -> int:
        """The number of columns."""
        return int(self.X.shape[1])

    @property
    def precision(self) -> np.dtype[Any]:
        """The precision of X."""
        return precision_of(self.X)

    @property
    def outputs(self) -> tuple[int, ...] | None:
        """The shape of one row's label; None without labels."""
        if self.y is None:
            return None
        return tuple(self.y.shape[1:])

    @property
    def has_ids(self) -> bool:
        """Whether its rows have ids."""
        return self.ids is not None

    @property
    def nonzeros(self) -> int:
        """The number of stored entries."""
        if is_sparse(self.X):
            return int(self.X.nnz)
        return math.prod(self.X.shape)

    @property
    def independence(self) -> float | None:
        """How independent many dense columns are, from 0 to 1; None for sparse, few or short
        columns.

            ‖Σ‖_F² / (tr Σ)² = E cos²(u, v)      for independent u and v of covariance Σ; 1/d if Σ
                                                 is a multiple of I

        u and v are differences between a few distant rows.
        """
        if is_sparse(self.X) or self.d < MANY_COLUMNS or self.n < 2 * DIFFERENCES:
            return None
        every = self.n // (2 * DIFFERENCES)
        rows = host(self.X[::every][: 2 * DIFFERENCES])
        differences = np.subtract(rows[:DIFFERENCES], rows[DIFFERENCES:], dtype=float)
        products = differences @ differences.T
        lengths = np.sqrt(products.diagonal())
        if not lengths.all():
            return None
        cosines = products / (lengths[:, None] * lengths)
        pairs = DIFFERENCES * (DIFFERENCES - 1)
        squares = float((cosines**2).sum()) - DIFFERENCES
        return pairs / max(self.d * squares, pairs)

    @property
    def row_values(self) -> dict[str, Any]:
        """The values of this table that belong to labels, by field."""
        values = ((field, getattr(self, field)) for field in ROW_VALUES.values())
        return {field: value for field, value in values if value is not None}

    def column_name(self, j: int) -> str:
        """The name of column j in errors: "column 'age'", or "column 3" without names."""
        if self.columns is None:
            return f"column {j}"
        return f"column {self.columns[j]!r}"

    def digest(self) -> str:
        """SHA-256 over values, labels, weights and offsets, independent of the memory layout.

        Names are not part of it: a proof is about numbers, and the digest of the model has the
        names of its columns.
        """
        rest: list[Any] = []
        for field, values in self.row_values.items():
            if field != "weights":
                rest += [field, values]
        return digest(fingerprint(self.X), self.y, self.weights, *rest)

    def take_rows(self, rows: Indices, **changes: Any) -> Table:
        """These rows in this order, with changed fields; a contiguous block shares memory with this
        table.
        """
        where = _as_slice(rows)
        taken: dict[str, Any] = {"X": _rows_of(self.X, where)}
        for field in ("y", "ids", "rows", *self.row_values):
            values = getattr(self, field)
            if values is not None:
                taken[field] = values[where]
        if self.origin is not None:
            taken["origin"] = self.origin.taken(rows)
        return replace(self, **taken, **changes)

    def take_columns(self, cols: Indices) -> Table:
        """These columns in this order, dense ones in Fortran order; labels, weights, offsets and
        ids stay.
        """
        X = self.X[:, _as_slice(cols)]
        X = canonical_csr(X) if is_sparse(X) else np.asfortranarray(X)
        names = self.columns
        if names is not None:
            names = tuple(names[j] for j in cols)
        places = self.cols
        if places is not None:
            places = places[cols]
        return replace(self, X=X, columns=names, cols=places, open_ended=False)


def columns_of(tables: Sequence[AnyTable]) -> list[Indices]:
    """The pooled column numbers of each table, split by features: its `cols`, or one table after
    the other.
    """
    return columns_in_turn([table.d for table in tables], [table.cols for table in tables])


def columns_in_turn(widths: Sequence[int], dealt: Sequence[Indices | None]) -> list[Indices]:
    """The pooled column numbers of parties with these numbers of columns; `dealt` has them where
    they are known.
    """
    found = []
    end = 0
    for own, width in zip(dealt, widths, strict=True):
        start = end
        end += width
        if own is None:
            own = np.arange(start, end)
        found.append(own)
    return found


def in_order(table: Table, names: Sequence[str] | None, split: str) -> Table:
    """The table with its columns in the order of these names, which are of all parties if split by
    features.

    Other columns are left out, because a proof is about the columns of the model. If a column is
    missing, the table stays unchanged, and the comparison of names reports it. A party whose
    columns have pooled numbers (`cols`) keeps its order.
    """
    if names is None or table.columns is None:
        return table
    own = list(names)
    if split == "features":
        own = [name for name in names if name in table.columns]
        if table.cols is not None or len(own) < len(table.columns):
            return table
    complete = set(own) <= set(table.columns)
    repeated = len(set(own)) < len(own)
    if own == list(table.columns) or not complete or repeated:
        return table
    places = [table.columns.index(name) for name in own]
    return table.take_columns(np.array(places, np.intp))


def party_error(name: str, text: str) -> InvalidData:
    """An error about the data of a party."""
    return InvalidData(f"party {name!r}: {text}")


def canonical_csr(X: Matrix) -> Matrix:
    """X as a CSR array with sorted, unique column numbers, int32 wherever they fit; the given
    matrix is not changed.
    """
    csr = X
    if not isinstance(X, sp.csr_array):
        csr = sp.csr_array(X)
    try:
        csr.check_format(full_check=True)  # compiled loops trust the column numbers
    except ValueError as error:
        raise InvalidData(
            f"a sparse matrix contradicts itself ({error}). Make it again."
        ) from error
    if not csr.has_canonical_format:
        csr = csr.copy()
        csr.sum_duplicates()
    if csr.indices.dtype != np.int32 and max(csr.nnz, *csr.shape) <= np.iinfo(np.int32).max:
        if csr is X:
            csr = csr.copy()
        csr.indices = csr.indices.astype(np.int32)
        csr.indptr = csr.indptr.astype(np.int32)
    return csr


def _as_slice(where: Indices) -> slice | Indices:
    """A slice if the numbers are consecutive, because slices are views."""
    if where.size == 0:
        return slice(0, 0)
    spans = where[-1] - where[0] == where.size - 1
    if spans and (where[1:] > where[:-1]).all():
        return slice(int(where[0]), int(where[-1]) + 1)
    return where


def _rows_of(X: Matrix, where: slice | Indices) -> Matrix:
    if isinstance(where, slice):
        if is_sparse(X):
            return _row_block(X, where)
        return X[where]
    if is_on_disk(X):
        return copied_rows(X, where)
    return X[where]


def _row_block(X: Matrix, rows: slice) -> Matrix:
    """X[rows] for consecutive rows of a CSR array, sharing memory (the constructor would copy)."""
    entries = slice(X.indptr[rows.start], X.indptr[rows.stop])
    if isinstance(X, sp.csr_array):
        block = copy(X)
    else:
        block = sp.csr_array(X)
    block.data = X.data[entries]
    block.indices = X.indices[entries]
    block.indptr = X.indptr[rows.start : rows.stop + 1] - X.indptr[rows.start]
    block.resize(rows.stop - rows.start, X.shape[1])
    return block
