"""Multi-task least squares: F(W) = ½ ‖X W − Y‖²_F, one column of Y per task (equation (4) of the
paper).

    ∇F_j(W) = X_jᵀ (X_j W − Y_j)

| information | keeps                                             | a product        | a move
|
|-------------|---------------------------------------------------|------------------|------------------|
| dense       | X_jᵀX_j, X_jᵀY_j and the gradient, d × m          | O(d m)           | O(d² + d m)
              |
| implicit    | X_j, Y_j and the residual R_j = X_j W − Y_j       | O(n_j (d + m))   | O(n_j (d +
              m))   |

Both follow q = ‖X_j W‖² and c = ⟨Y_j, X_j W⟩, so that a line search costs one product more and no
pass over the features. Sample weights s scale the rows of X_j and Y_j by √s. With an intercept X_j
and Y_j are without the means of all parties, and the best intercept beside them is 0 for every W.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from coterie.data import Table
from coterie.errors import InvalidData
from coterie.numerics.arrays import FloatArray, is_sparse
from coterie.problems.low_rank.tasks.task import (
    Information,
    Means,
    OnBackend,
    Task,
    column_sums,
    refuse_empty,
)

DENSE_SIZE = 1 << 24
"""Dense information is chosen only if its matrices have at most this many entries."""


@dataclass(frozen=True)
class MultiTask(Task):
    """Least squares with several numbers per row."""

    name: ClassVar[str] = "squared"
    kind: ClassVar[str] = "numbers"
    exact: ClassVar[bool] = True
    quadratic: ClassVar[bool] = True

    def prepared(self, tables: Sequence[Table]) -> tuple[list[Table], npt.NDArray[Any] | None]:
        refuse_empty(tables)
        columns: dict[str, int] = {}
        for table in tables:
            if table.y is None or table.y.ndim != 2:
                if table.y is None:
                    shape = None
                else:
                    shape = tuple(table.y.shape)
                raise InvalidData(
                    f"party {table.name!r}: squared with traceball fits several numbers per row, "
                    "but the labels have "
                    f"shape {shape}. Give Y of shape (n, m); for one number per row use "
                    "penalty='l1ball' or 'l2'."
                )
            if table.y.dtype.kind in "US":
                raise InvalidData(
                    f"party {table.name!r}: the labels are text. Use loss='multinomial' for "
                    "classes."
                )
            columns[table.name] = table.y.shape[1]
            first, count = next(iter(columns.items()))
            if columns[table.name] != count:
                raise InvalidData(
                    f"party {table.name!r} has {columns[table.name]} columns of labels, but party "
                    f"{first!r} has "
                    f"{count}. Give every party the same ones."
                )
        return list(tables), None

    def size_for(self, columns: int, labels: int) -> tuple[int, int]:
        return columns, labels

    def sums(self, table: Table, left: FloatArray | None = None) -> FloatArray:
        if left is None:
            return column_sums(table)
        return column_sums(replace(table, X=table.y))

    def stats(
        self, table: Table, information: str = "auto", means: Means | None = None
    ) -> Information:
        d, m = self.size(table)
        if information == "auto":
            small = d * max(d, m) <= DENSE_SIZE
            if table.n > d and small and not is_sparse(table.X):
                information = "dense"
            else:
                information = "implicit"
        return (_Dense if information == "dense" else _Implicit)(table, means)


class _LeastSquares(OnBackend):
    """What both forms share: the numbers q, c and ‖Y‖², and everything that follows from them."""

    def __init__(self, table: Table, means: Means | None = None):
        X = table.X
        Y = table.y
        assert Y is not None
        super().__init__(X, means)
        # In double precision: labels far from 0 have their digits beside their means.
        Y = self.backend.here(Y if means is None else Y - means.right)
        if table.weights is not None:
            roots = self.backend.here(np.sqrt(table.weights))
            X = self.backend.scaled_rows(X, roots)
            Y = self.backend.scaled_rows(Y, roots)
            if means is None:
                self.ones = None
            else:
                self.ones = roots
        self.X = X
        self.Y = Y
        self.squares = self.backend.total(Y, Y)
        self.q = self.c = 0.0

    def loss(self) -> float:
        return 0.5 * (self.q - 2.0 * self.c + self.squares)

    def inner(self) -> float:
        # ⟨X W − Y, X W⟩
        return self.q - self.c

    def gradients(self, gamma: float, scale: float, u: FloatArray, v: FloatArray) -> FloatArray:
        # S = scale·u vᵀ, D = S − W: φ'(γ) = ⟨X W − Y, X D⟩ + γ‖X D‖², φ''(γ) = ‖X D‖²
        square, with_scores, with_labels = self._atom(u, v)
        curvature = scale * scale * square - 2.0 * scale * with_scores + self.q
        slope = scale * (with_scores - with_labels) - self.inner()
        return np.array([slope + gamma * curvature, curvature])

    def move(self, gamma: float, scale: float, u: FloatArray, v: FloatArray) -> None:
        square, with_scores, with_labels = self._atom(u, v)
        self._advance(gamma, scale, u, v)
        keep = 1.0 - gamma
        self.q = (
            keep * keep * self.q
            + 2.0 * gamma * keep * scale * with_scores
            + (gamma * scale) ** 2 * square
        )
        self.c = keep * self.c + gamma * scale * with_labels
        self._known = None

    _known: tuple[FloatArray, FloatArray, tuple[float, float, float]] | None = None

    def _atom(self, u: FloatArray, v: FloatArray) -> tuple[float, float, float]:
        """‖X u vᵀ‖², ⟨X W, X u vᵀ⟩ and ⟨Y, X u vᵀ⟩; a move finds those of the line search before
        it.
        """
        if self._known is None or self._known[0] is not u or self._known[1] is not v:
            self._known = (u, v, self._measure(u, v))
        return self._known[2]

    def _advance(self, gamma: float, scale: float, u: FloatArray, v: FloatArray) -> None:
        raise NotImplementedError

    def _measure(self, u: FloatArray, v: FloatArray) -> tuple[float, float, float]:
        raise NotImplementedError


class _Implicit(_LeastSquares):
    def __init__(self, table: Table, means: Means | None = None):
        super().__init__(table, means)
        self.R = -self.Y

    def image(self, u: FloatArray) -> Any:
        return self._scores(u)

    def reset(self, left: FloatArray, right: FloatArray, image: Any = None) -> None:
        if image is None:
            image = self.image(left)
        self.R = self.backend.product(image, self.backend.here(right).T)
        self.q = self.backend.total(self.R, self.R)
        self.c = self.backend.total(self.R, self.Y)
        self.R -= self.Y
        self._known = None

    def loss(self) -> float:
        return 0.5 * self.backend.total(self.R, self.R)

    def times(self, v: FloatArray) -> FloatArray:
        z = self.backend.product(self.R, self.backend.here(v))
        return self.backend.to_numpy(self._adjoint(z))

    def times_transposed(self, u: FloatArray) -> FloatArray:
        return self.backend.to_numpy(self.backend.adjoint(self.R, self.image(u)))

    def matrix(self) -> Any:
        return self._gram(self.R)

    def squared_norm(self) -> float:
        return self._gram_square(self.R)

    def _measure(self, u: FloatArray, v: FloatArray) -> tuple[float, float, float]:
        x = self.image(u)
        local = self.backend.here(v)
        with_labels = self.backend.total(x, self.backend.product(self.Y, local))
        with_residual = self.backend.total(x, self.backend.product(self.R, local))
        square = self.backend.total(x, x) * float(v @ v)
        return square, with_residual + with_labels, with_labels

    def _advance(self, gamma: float, scale: float, u: FloatArray, v: FloatArray) -> None:
        # R ← (1 − γ) R + γ (scale·X u vᵀ − Y)
        self.backend.blend(self.R, self.Y, gamma, scale, self.image(u), self.backend.here(v))

    def curvature(self, basis: FloatArray, image: Any, new: int) -> FloatArray:
        return self.backend.to_numpy(self.backend.adjoint(image, image[:, image.shape[1] - new :]))

    def projected(self, basis: FloatArray, image: Any, right: FloatArray) -> FloatArray:
        z = self.backend.product(self.R, self.backend.here(right))
        return self.backend.to_numpy(self.backend.adjoint(image, z))


class _Dense(_LeastSquares):
    def __init__(self, table: Table, means: Means | None = None):
        super().__init__(table, means)
        self.C = self._gram(self.Y)
        if self.centre is None:
            self.H = self.backend.gram(self.X, self.X)
        elif is_sparse(self.X):
            # X̃ᵀX̃ = XᵀX − x̄sᵀ − sx̄ᵀ + n x̄x̄ᵀ with s = Xᵀ1
            s = self.backend.adjoint(self.X, self.ones)
            n = self.backend.total(self.ones, self.ones)
            rest = self._outer(self.centre, s - 0.5 * n * self.centre)
            self.H = self.backend.gram(self.X, self.X) - rest - rest.T
        else:
            centred = self.X - self._outer(self.ones, self.centre)
            self.H = self.backend.gram(centred, centred)
        self.X = self.H
        self.Y = None
        self.centre = None
        self.G = -self.C

    def image(self, u: FloatArray) -> Any:
        return self._scores(u)

    def reset(self, left: FloatArray, right: FloatArray, image: Any = None) -> None:
        if image is None:
            image = self.image(left)
        local = self.backend.here
        self.G = image @ local(right).T
        # q = ⟨W, X ᵀX W⟩ and c = ⟨W, XᵀY⟩ for W = left rightᵀ
        self.q = self.backend.total(local(left).T @ image, local(right).T @ local(right))
        self.c = self.backend.total(
            local(left).T @ (self.C @ local(right)), local(np.eye(left.shape[1]))
        )
        self.G -= self.C
        self._known = None

    def times(self, v: FloatArray) -> FloatArray:
        return self.backend.to_numpy(self.backend.product(self.G, self.backend.here(v)))

    def times_transposed(self, u: FloatArray) -> FloatArray:
        return self.backend.to_numpy(self.backend.adjoint(self.G, self.backend.here(u)))

    def matrix(self) -> Any:
        return self.G

    def squared_norm(self) -> float:
        return self.backend.total(self.G, self.G)

    def _measure(self, u: FloatArray, v: FloatArray) -> tuple[float, float, float]:
        local = self.backend.here
        with_labels = self.backend.total(local(u), self.backend.product(self.C, local(v)))
        with_gradient = self.backend.total(local(u), self.backend.product(self.G, local(v)))
        square = self.backend.total(local(u), self.image(u)) * float(v @ v)
        return square, with_gradient + with_labels, with_labels

    def _advance(self, gamma: float, scale: float, u: FloatArray, v: FloatArray) -> None:
        # ∇F_j ← (1 − γ) ∇F_j + γ (scale·XᵀX u vᵀ − XᵀY)
        # appendix B
        self.backend.blend(self.G, self.C, gamma, scale, self.image(u), self.backend.here(v))

    def curvature(self, basis: FloatArray, image: Any, new: int) -> FloatArray:
        return self.backend.to_numpy(self.backend.here(basis).T @ image[:, image.shape[1] - new :])

    def projected(self, basis: FloatArray, image: Any, right: FloatArray) -> FloatArray:
        return basis.T @ self.times(right)
