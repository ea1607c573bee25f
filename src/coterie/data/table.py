"""One party's rows and columns: what `read` returns, `align` and `split` restrict, and an agent holds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from coterie.arrays import FloatArray, Matrix, digest, host, is_sparse
from coterie.data.leaves import fingerprint
from coterie.data.on_disk import copied_rows, is_on_disk
from coterie.data.places import Origin
from coterie.errors import InvalidData

Indices = npt.NDArray[np.intp]

BESIDE = {"weight": "weights", "offset": "offset"}
"""What may stand beside the labels, one value a row, only where labels are: what a column of it is called, and the
field of a `Table` that holds it. Who reads, checks, splits, sends or digests tables goes through this list."""


MANY_COLUMNS, DIFFERENCES = 100, 8
"""From how many columns on it is known how independent they are, and from how many differences of rows."""


@dataclass(frozen=True, eq=False)
class Table:
    """A party's data. Nothing is checked here: `validated` does that, once, before the first message."""

    X: Matrix
    """Samples in rows: dense (C or Fortran order) or scipy.sparse CSR; float64, or float32 kept."""
    y: FloatArray | None = None
    """Labels, where this party has them (any two values, also text, until `encode_labels`); then float64."""
    weights: FloatArray | None = None
    """Positive sample weights, one per row, only where labels are; float64 once they are checked."""
    ids: npt.NDArray[Any] | None = None
    """Row ids, integers or text."""
    columns: tuple[str, ...] | None = None
    """Column names."""
    name: str = "data"
    """How errors call this party."""
    rows: Indices | None = None
    """Pooled row numbers, after a split by samples or users."""
    cols: Indices | None = None
    """Pooled column numbers, after a split by features."""

    open_ended: bool = False
    """Whether columns after the last may have been left out because they are zero here, as in an svmlight file."""
    offset: FloatArray | None = None
    """What is added to the score of each row, in double precision: the logarithm of an exposure, say."""
    texts: Mapping[str, tuple[str, ...]] | None = None
    """Columns of text that were read for a `Preparation`: X has places in these lists, NaN for missing cells."""
    roles: tuple[str, ...] | None = None
    """For a table of a file or a data frame: the columns with labels, weights and so on, but for the ids; see
    `pairing`. None for arrays, whose rows have nothing but positions."""
    notes: tuple[str, ...] | None = None
    """What its owner is warned of: columns that look like keys, see `keys`. None: nobody has looked yet."""
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
    def nonzeros(self) -> int:
        """How many numbers are stored."""
        return int(self.X.nnz) if is_sparse(self.X) else math.prod(self.X.shape)

    @property
    def independence(self) -> float | None:
        """How independent many dense columns are, from 0 to 1; None where that is not looked at.

            ‖Σ‖_F² / (tr Σ)² = E cos²(u, v)      for independent u and v of covariance Σ; 1/d if Σ is a multiple of I

        u and v are differences of a few rows that lie far apart.
        """
        if is_sparse(self.X) or self.d < MANY_COLUMNS or self.n < 2 * DIFFERENCES:
            return None
        rows = host(self.X[:: self.n // (2 * DIFFERENCES)][: 2 * DIFFERENCES])
        ways = np.subtract(rows[:DIFFERENCES], rows[DIFFERENCES:], dtype=float)
        products = ways @ ways.T
        lengths = np.sqrt(products.diagonal())
        if not lengths.all():
            return None
        cosines, pairs = products / (lengths[:, None] * lengths), DIFFERENCES * (DIFFERENCES - 1)
        return pairs / max(self.d * (float((cosines**2).sum()) - DIFFERENCES), pairs)

    @property
    def beside(self) -> dict[str, Any]:
        """What stands beside the labels here, by the names of fields."""
        return {field: values for field in BESIDE.values() if (values := getattr(self, field)) is not None}

    def column_name(self, j: int) -> str:
        """Column j as errors call it: "column 'age'", or "column 3" where there are no names."""
        return f"column {j}" if self.columns is None else f"column {self.columns[j]!r}"

    def digest(self) -> str:
        """SHA-256 over values, labels and what stands beside them in their order, whatever the memory layout.

        Names are not part of it: a proof is about numbers, and the model's own digest has the names of its columns.
        """
        rest = [part for field, values in self.beside.items() if field != "weights" for part in (field, values)]
        return digest(fingerprint(self.X), self.y, self.weights, *rest)

    def take_rows(self, rows: Indices, **changes: Any) -> Table:
        """Those rows in that order, with other fields changed; a contiguous block shares memory with this table."""
        where = _as_slice(rows)
        return replace(
            self,
            X=_rows_of(self.X, where),
            y=None if self.y is None else self.y[where],
            ids=None if self.ids is None else self.ids[where],
            rows=None if self.rows is None else self.rows[where],
            origin=None if self.origin is None else self.origin.taken(rows),
            **{field: values[where] for field, values in self.beside.items()},
            **changes,
        )

    def take_columns(self, cols: Indices) -> Table:
        """Those columns in that order, dense ones in Fortran order; labels, what stands beside them, and ids stay."""
        X = self.X[:, _as_slice(cols)]
        return replace(
            self,
            X=canonical_csr(X) if is_sparse(X) else np.asfortranarray(X),
            columns=None if self.columns is None else tuple(self.columns[j] for j in cols),
            cols=None if self.cols is None else self.cols[cols],
            open_ended=False,
        )


def columns_of(tables: Sequence[Table]) -> list[Indices]:
    """Which columns of the whole each table has, split by features: as they were dealt, or one after the other."""
    return columns_in_turn([table.d for table in tables], [table.cols for table in tables])


def columns_in_turn(widths: Sequence[int], dealt: Sequence[Indices | None]) -> list[Indices]:
    """The same for parties with so many columns each, and with these places, where they are known."""
    ends = np.cumsum(widths).tolist()
    return [
        np.arange(end - width, end) if own is None else own for own, width, end in zip(dealt, widths, ends, strict=True)
    ]


def in_order(table: Table, names: Sequence[str] | None, split: str) -> Table:
    """The table with its columns in the order of these names, which are of all parties if split by features.

    Columns beside them are left out: a proof is about the columns of the model. One that is missing is left to the
    comparison. A party whose columns have places of their own lists them in the order of its places.
    """
    if names is None or table.columns is None or (split == "features" and table.cols is not None):
        return table
    own = [name for name in names if name in table.columns] if split == "features" else list(names)
    if own == list(table.columns) or not set(own) <= set(table.columns) or len(set(own)) < len(own):
        return table
    if split == "features" and len(own) < len(table.columns):
        return table
    return table.take_columns(np.array([table.columns.index(name) for name in own], np.intp))


def party_error(name: str, text: str) -> InvalidData:
    """The error that says which party is meant."""
    return InvalidData(f"party {name!r}: {text}")


def canonical_csr(X: Matrix) -> Matrix:
    """X as a CSR array with sorted, unique column numbers, int32 wherever they fit; the given matrix is not changed."""
    csr = X if isinstance(X, sp.csr_array) else sp.csr_array(X)
    try:
        csr.check_format(full_check=True)  # compiled loops trust the column numbers
    except ValueError as error:
        raise InvalidData(f"a sparse matrix contradicts itself ({error}). Make it again.") from error
    if not csr.has_canonical_format:
        csr = csr.copy()
        csr.sum_duplicates()
    if csr.indices.dtype != np.int32 and max(csr.nnz, *csr.shape) <= np.iinfo(np.int32).max:
        csr = csr.copy() if csr is X else csr
        csr.indices, csr.indptr = csr.indices.astype(np.int32), csr.indptr.astype(np.int32)
    return csr


def _as_slice(where: Indices) -> slice | Indices:
    """A slice if the numbers are consecutive, because slices are views."""
    if where.size == 0:
        return slice(0, 0)
    consecutive = where[-1] - where[0] == where.size - 1 and bool((np.diff(where) == 1).all())
    return slice(int(where[0]), int(where[-1]) + 1) if consecutive else where


def _rows_of(X: Matrix, where: slice | Indices) -> Matrix:
    if isinstance(where, slice):
        return _row_block(X, where) if is_sparse(X) else X[where]
    return copied_rows(X, where) if is_on_disk(X) else X[where]


def _row_block(X: Matrix, rows: slice) -> Matrix:
    """X[rows] for consecutive rows of a CSR array, sharing memory (the constructor would copy)."""
    entries = slice(X.indptr[rows.start], X.indptr[rows.stop])
    block = copy(X) if isinstance(X, sp.csr_array) else sp.csr_array(X)
    block.data, block.indices = X.data[entries], X.indices[entries]
    block.indptr = X.indptr[rows.start : rows.stop + 1] - X.indptr[rows.start]
    block.resize(rows.stop - rows.start, X.shape[1])
    return block
