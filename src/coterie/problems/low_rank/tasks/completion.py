"""Matrix completion: F(W) = ½ Σ over observed entries (i, l) of (W_il − y)². X holds the pairs (i,
l), y the values.

    ∇F_j(W) has W_il − y at the observed entries and 0 elsewhere: agents keep it as a sparse matrix

With an intercept, the model adds numbers a of every row and b of every column to W. Both follow W:

    ∂F_j/∂a_i = Σ over the entries of row i of s (W_il + a_i + b_l − y),   ∂²F_j (x, z)_i = Σ s (x_i
    + z_l),   ≼ 2 Σ s

and columns alike. a starts with the mean of a row's entries (of all entries, if the row has none).
b starts with the mean of a column's remainders. All parties agree on them by sums.

An entry that was observed twice counts twice. Sample weights multiply the squares. Few parties
observe the same entry, so the curvature is at most Σ_j (the largest weight of an entry at agent j).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from coterie.data import Table
from coterie.errors import InvalidData, InvalidProblem, WrongValue
from coterie.numerics.arrays import FloatArray, is_sparse, product, whole_number
from coterie.numerics.factors import apart
from coterie.problems.low_rank.tasks.task import Information, Means, Task, refuse_empty


@dataclass(frozen=True)
class Completion(Task):
    """The missing entries of a matrix of that shape."""

    name: ClassVar[str] = "completion"
    kind: ClassVar[str] = "entries"
    exact: ClassVar[bool] = False
    quadratic: ClassVar[bool] = True

    shape: tuple[int, int] | None = None
    """(rows, columns) of the matrix."""
    stages: int = 1
    """Number of convex problems in sequence. In each after the first, the trace norm has weights
    from the matrix before, so that large singular values are hardly shrunk (`tasks.weighted`). 4
    are enough.
    """

    def __post_init__(self) -> None:
        whole_number("completion: stages", self.stages)
        sizes: tuple[int, ...] = ()
        if self.shape is not None:
            sizes = tuple(self.shape)
        positive = all(isinstance(size, int | np.integer) and size > 0 for size in sizes)
        if len(sizes) != 2 or not positive:
            raise InvalidProblem(
                "completion needs the shape of the matrix, e.g. Problem('completion', "
                f"'traceball', radius=5.0, shape=(1000, 200)), not {self.shape!r}."
            )
        rows, columns = sizes
        object.__setattr__(self, "shape", (int(rows), int(columns)))

    def settings(self) -> dict[str, Any]:
        """Without stages if there is one, as before stages existed."""
        settings = super().settings()
        if self.stages == 1:
            del settings["stages"]
        return settings

    def prepared(self, tables: Sequence[Table]) -> tuple[list[Table], npt.NDArray[Any] | None]:
        refuse_empty(tables)
        for table in tables:
            self.places(table)
            if table.y is None or table.y.ndim != 1 or table.y.dtype.kind in "US":
                raise InvalidData(
                    f"party {table.name!r}: completion takes one number per observed entry as y."
                )
        return list(tables), None

    def places(self, table: Table) -> npt.NDArray[np.intp]:
        """The pairs of a table as rows and columns of the matrix; refuses pairs outside it."""
        sparse = is_sparse(table.X)
        if sparse or table.d != 2:
            if sparse:
                found = "sparse"
            else:
                found = "dense"
            raise InvalidData(
                f"party {table.name!r}: completion takes X as pairs (row, column) of entries, but "
                f"X is {found} with {table.d} columns. Give a dense array of shape (n, 2); the "
                "values of observed entries are y."
            )
        fractional = np.floor(table.X) != table.X
        outside = (table.X < 0) | (np.array(self._size) <= table.X)
        bad = np.flatnonzero((fractional | outside).any(axis=1))
        if bad.size:
            rows, columns = self._size
            first = int(bad[0])
            pair = table.X[first].tolist()
            raise WrongValue(
                table.name,
                first,
                before=(
                    f"{bad.size} of the pairs are not inside the {rows} × {columns} matrix "
                    "(first at "
                ),
                after=f": {pair}). Count whole numbers from 0.",
            ).error()
        places: npt.NDArray[np.intp] = table.X.astype(np.intp)
        return places

    @property
    def _size(self) -> tuple[int, int]:
        assert self.shape is not None
        return self.shape

    def size_for(self, columns: int, labels: int) -> tuple[int, int]:
        return self._size

    def sums(self, table: Table, left: FloatArray | None = None) -> FloatArray:
        """Σ s y and Σ s of every row; then, without the rows' means, of every column."""
        assert table.y is not None
        rows, columns = table.X.astype(np.intp).T
        s: FloatArray
        if table.weights is None:
            s = np.ones(table.n)
        else:
            s = table.weights
        if left is None:
            place = rows
            size = self._size[0]
            values = table.y
        else:
            place = columns
            size = self._size[1]
            values = table.y - left[rows]
        weighted = np.bincount(place, s * values, size)
        weights = np.bincount(place, s, size)
        return np.concatenate([weighted, weights])

    def mean(self, sums: FloatArray, total: float, left: FloatArray | None = None) -> FloatArray:
        values, weights = np.split(sums, 2)
        if left is None:
            otherwise = values.sum() / total
        else:
            otherwise = 0.0
        unseen = np.full(len(values), otherwise)
        means: FloatArray = np.divide(values, weights, out=unseen, where=weights > 0)
        return means

    def stats(
        self, table: Table, information: str = "auto", means: Means | None = None
    ) -> Information:
        return _Entries(table, self._size, information == "dense", means)

    def blocks(self, table: Table) -> Iterator[Table]:
        yield table


class _Entries(Information):
    b: FloatArray | None = None

    def __init__(
        self, table: Table, size: tuple[int, int], dense: bool, means: Means | None = None
    ):
        assert table.y is not None
        pairs = table.X.astype(np.intp)
        order = np.lexsort((pairs[:, 1], pairs[:, 0]))
        self.rows, self.columns = pairs[order].T
        # Single precision where the pairs have it, as for any X. The given labels keep their
        # digits until the means are subtracted.
        self.given = table.y[order]
        self.dtype = np.result_type(table.X.dtype, np.float32)
        self.y = self.given.astype(self.dtype)
        if table.weights is None:
            self.s = np.ones_like(self.y)
        else:
            self.s = table.weights[order].astype(self.dtype)
        zeros = np.zeros_like(self.y)
        starts = np.searchsorted(self.rows, np.arange(size[0] + 1))
        self.pattern = sp.csr_array((zeros, self.columns, starts), shape=size)
        self.dense = dense
        self.values = np.zeros_like(self.y)
        if means is None:
            self._refresh()
        else:
            self.put(np.concatenate(means))

    def put(self, b: FloatArray) -> None:
        self.b = b
        a, b = apart(b, self.pattern.shape[0])
        about = self.given - a[self.rows] - b[self.columns]
        self.y = about.astype(self.dtype)
        self._refresh()

    def _by_row_and_column(self, x: FloatArray) -> FloatArray:
        d, m = self.pattern.shape
        by_row = np.bincount(self.rows, x, d)
        by_column = np.bincount(self.columns, x, m)
        return np.concatenate([by_row, by_column])

    def gradient_of_intercept(self) -> FloatArray:
        gradients = self.s * (self.values - self.y)
        gradient = self._by_row_and_column(gradients)
        diagonal = 2.0 * self._by_row_and_column(self.s)
        return np.concatenate([gradient, diagonal])

    def curvature_of_intercept(self, x: FloatArray) -> FloatArray:
        a, b = apart(x, self.pattern.shape[0])
        sums = a[self.rows] + b[self.columns]
        return self._by_row_and_column(self.s * sums)

    def _refresh(self) -> None:
        self.pattern.data = self.s * (self.values - self.y)
        self.G: Any
        if self.dense:
            self.G = self.pattern.toarray()
        else:
            self.G = self.pattern

    def forward(self, u: FloatArray) -> Any:
        return u[self.rows]

    def reset(self, left: FloatArray, right: FloatArray, scores: Any = None) -> None:
        if scores is None:
            scores = self.forward(left)
        values = np.einsum("ik,ik->i", scores, right[self.columns])
        self.values = values.astype(self.dtype, copy=False)
        self._refresh()

    def times(self, v: FloatArray) -> FloatArray:
        return np.asarray(product(self.G, v))

    def times_transposed(self, u: FloatArray) -> FloatArray:
        return np.asarray(product(self.G.T, u))

    def matrix(self) -> Any:
        dense: FloatArray = self.pattern.toarray()
        return dense

    def squared_norm(self) -> float:
        merged = self.pattern.copy()
        merged.sum_duplicates()
        return float(np.dot(merged.data, merged.data))

    def _way(self, scale: float, u: FloatArray, v: FloatArray) -> FloatArray:
        way: FloatArray = scale * u[self.rows] * v[self.columns] - self.values
        return way

    def move(self, gamma: float, scale: float, u: FloatArray, v: FloatArray) -> None:
        way = self._way(scale, u, v)
        self.values = self.values + self.dtype.type(gamma) * way
        self._refresh()

    def gradients(self, gamma: float, scale: float, u: FloatArray, v: FloatArray) -> FloatArray:
        way = self._way(scale, u, v)
        curvature = float(np.dot(self.s * way, way))
        first = float(np.dot(self.pattern.data, way))
        return np.array([first + gamma * curvature, curvature])

    def loss(self) -> float:
        residual = self.values - self.y
        return 0.5 * float(np.dot(self.s * residual, residual))

    def inner(self) -> float:
        return float(np.dot(self.pattern.data, self.values))

    def curvature(self, basis: FloatArray, scores: Any, new: int) -> FloatArray:
        weighed = self.pattern.copy()
        weighed.data = self.s.copy()
        weighed.sum_duplicates()
        new_columns = basis[:, basis.shape[1] - new :]
        columns: FloatArray = weighed.data.max() * (basis.T @ new_columns)
        return columns

    def projected(self, basis: FloatArray, scores: Any, right: FloatArray) -> FloatArray:
        return basis.T @ self.times(right)
