"""Matrix completion: F(W) = ½ Σ over observed entries (i, l) of (W_il − y)², given as pairs (i, l)
in X, with y beside.

    ∇F_j(W) has W_il − y at the observed entries and 0 elsewhere: it is kept as a sparse matrix

With an intercept, numbers a of every row and b of every column are added to W, which follow it:

    ∂F_j/∂a_i = Σ over the entries of row i of s (W_il + a_i + b_l − y),   ∂²F_j (x, z)_i = Σ s (x_i
    + z_l),   ≼ 2 Σ s

and columns alike. They begin with the mean of a row's entries (of all entries, if it has none), and
then that of what is left of a column's. All parties agree on them by sums.

An entry that was observed twice counts twice. Sample weights multiply the squares. Nobody's entry
is observed by many others, so the curvature is at most Σ_j (the most that one entry weighs at agent
j).
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
    """How many convex problems are solved one after the other; in each after the first, the trace
    norm is weighed by the matrix before, so that large singular values are hardly shrunk
    (`tasks.weighted`). 4 are enough.
    """

    def __post_init__(self) -> None:
        whole_number("completion: stages", self.stages)
        sizes: tuple[int, ...] = ()
        if self.shape is not None:
            sizes = tuple(self.shape)
        if len(sizes) != 2 or not all(
            isinstance(size, int | np.integer) and size > 0 for size in sizes
        ):
            raise InvalidProblem(
                "completion needs the shape of the matrix, e.g. Problem('completion', "
                "'traceball', radius=5.0, "
                f"shape=(1000, 200)), not {self.shape!r}."
            )
        object.__setattr__(self, "shape", (int(sizes[0]), int(sizes[1])))

    def settings(self) -> dict[str, Any]:
        """As ever, without stages, if there is one."""
        return {
            name: value
            for name, value in super().settings().items()
            if (name, value) != ("stages", 1)
        }

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
        """The pairs of a table as rows and columns of the matrix; refuses what is no place in
        it.
        """
        if is_sparse(table.X) or table.d != 2:
            raise InvalidData(
                f"party {table.name!r}: completion takes X as pairs (row, column) of entries, but "
                "X is "
                f"{'sparse' if is_sparse(table.X) else 'dense'} with {table.d} columns. Give a "
                "dense array of shape "
                "(n, 2); the values of observed entries are y."
            )
        outside = (np.floor(table.X) != table.X) | (table.X < 0) | (np.array(self._size) <= table.X)
        bad = np.flatnonzero(outside.any(axis=1))
        if bad.size:
            size = f"{self._size[0]} × {self._size[1]}"
            raise WrongValue(
                table.name,
                int(bad[0]),
                before=f"{bad.size} of the pairs are not inside the {size} matrix (first at ",
                after=f": {table.X[bad[0]].tolist()}). Count whole numbers from 0.",
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
        """Σ s y and Σ s of every row; then, of what the rows' means leave, of every column."""
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
        else:
            place = columns
            size = self._size[1]
        if left is None:
            values = table.y
        else:
            values = table.y - left[rows]
        return np.concatenate([np.bincount(place, part, size) for part in (s * values, s)])

    def mean(self, sums: FloatArray, total: float, left: FloatArray | None = None) -> FloatArray:
        values, weights = np.split(sums, 2)
        if left is None:
            otherwise = values.sum() / total
        else:
            otherwise = 0.0
        means: FloatArray = np.divide(
            values, weights, out=np.full(len(values), otherwise), where=weights > 0
        )
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
        # Single precision where the pairs have it, as of any X. Given labels keep their digits
        # beside their means.
        self.given = table.y[order]
        self.dtype = np.result_type(table.X.dtype, np.float32)
        self.y = self.given.astype(self.dtype)
        if table.weights is None:
            self.s = np.ones_like(self.y)
        else:
            self.s = table.weights[order].astype(self.dtype)
        self.pattern = sp.csr_array(
            (
                np.zeros_like(self.y),
                self.columns,
                np.searchsorted(self.rows, np.arange(size[0] + 1)),
            ),
            shape=size,
        )
        self.dense = dense
        self.values = np.zeros_like(self.y)
        if means is None:
            self._refresh()
        else:
            self.put(np.concatenate(means))

    def put(self, b: FloatArray) -> None:
        self.b = b
        a, b = apart(b, self.pattern.shape[0])
        self.y = (self.given - a[self.rows] - b[self.columns]).astype(self.dtype)
        self._refresh()

    def _by_row_and_column(self, x: FloatArray) -> FloatArray:
        d, m = self.pattern.shape
        return np.concatenate([np.bincount(self.rows, x, d), np.bincount(self.columns, x, m)])

    def gradient_of_intercept(self) -> FloatArray:
        slope = self.s * (self.values - self.y)
        return np.concatenate(
            [self._by_row_and_column(slope), 2.0 * self._by_row_and_column(self.s)]
        )

    def curvature_of_intercept(self, x: FloatArray) -> FloatArray:
        a, b = apart(x, self.pattern.shape[0])
        return self._by_row_and_column(self.s * (a[self.rows] + b[self.columns]))

    def _refresh(self) -> None:
        self.pattern.data = self.s * (self.values - self.y)
        self.G: Any
        if self.dense:
            self.G = self.pattern.toarray()
        else:
            self.G = self.pattern

    def image(self, u: FloatArray) -> Any:
        return u[self.rows]

    def reset(self, left: FloatArray, right: FloatArray, image: Any = None) -> None:
        if image is None:
            image = self.image(left)
        self.values = np.einsum("ik,ik->i", image, right[self.columns]).astype(
            self.dtype, copy=False
        )
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
        self.values = self.values + self.dtype.type(gamma) * self._way(scale, u, v)
        self._refresh()

    def gradients(self, gamma: float, scale: float, u: FloatArray, v: FloatArray) -> FloatArray:
        way = self._way(scale, u, v)
        curvature = float(np.dot(self.s * way, way))
        return np.array([float(np.dot(self.pattern.data, way)) + gamma * curvature, curvature])

    def loss(self) -> float:
        residual = self.values - self.y
        return 0.5 * float(np.dot(self.s * residual, residual))

    def inner(self) -> float:
        return float(np.dot(self.pattern.data, self.values))

    def curvature(self, basis: FloatArray, image: Any, new: int) -> FloatArray:
        weighed = self.pattern.copy()
        weighed.data = self.s.copy()
        weighed.sum_duplicates()
        columns: FloatArray = weighed.data.max() * (basis.T @ basis[:, basis.shape[1] - new :])
        return columns

    def projected(self, basis: FloatArray, image: Any, right: FloatArray) -> FloatArray:
        return basis.T @ self.times(right)
