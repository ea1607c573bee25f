"""Multi-task least squares: F(W) = ½ ‖X W − Y‖²_F, one column of Y per task (equation (4) of the
paper).

    ∇F_j(W) = X_jᵀ (X_j W − Y_j)

| information | keeps                                        | a product      | a move         |
|-------------|----------------------------------------------|----------------|----------------|
| dense       | X_jᵀX_j, X_jᵀY_j and the gradient, d × m     | O(d m)         | O(d² + d m)    |
| implicit    | X_j, Y_j and the residual R_j = X_j W − Y_j  | O(n_j (d + m)) | O(n_j (d + m)) |

Both update q = ‖X_j W‖² and c = ⟨Y_j, X_j W⟩, so a line search costs one more product and no pass
over the features. Sample weights s scale the rows of X_j and Y_j by √s. With an intercept, X_j and
Y_j are without the means of all parties, and the best intercept for them is 0 for every W.
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
        for table in tables:
            self._check_labels(table)
        first = tables[0]
        for table in tables:
            if _label_columns(table) != _label_columns(first):
                raise InvalidData(
                    f"party {table.name!r} has {_label_columns(table)} columns of labels, but "
                    f"party {first.name!r} has {_label_columns(first)}. Give every party the same "
                    "ones."
                )
        return list(tables), None

    def _check_labels(self, table: Table) -> None:
        y = table.y
        if y is None or y.ndim != 2:
            shape = None
            if y is not None:
                shape = tuple(y.shape)
            raise InvalidData(
                f"party {table.name!r}: squared with traceball fits several numbers per row, "
                f"but the labels have shape {shape}. Give Y of shape (n, m); for one number per "
                "row use penalty='l1ball' or 'l2'."
            )
        if y.dtype.kind in "US":
            raise InvalidData(
                f"party {table.name!r}: the labels are text. Use loss='multinomial' for classes."
            )

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
        if information == "dense":
            return _Dense(table, means)
        return _Implicit(table, means)


def _label_columns(table: Table) -> int:
    assert table.y is not None
    columns: int = table.y.shape[1]
    return columns


class _LeastSquares(OnBackend):
    """The numbers q, c and ‖Y‖², and everything that follows from them, for both forms."""

    def __init__(self, table: Table, means: Means | None = None):
        X = table.X
        Y = table.y
        assert Y is not None
        super().__init__(X, means)
        # In double precision: labels far from 0 keep their digits until the means are subtracted.
        if means is not None:
            Y = Y - means.right
        Y = self.backend.converted(Y)
        if table.weights is not None:
            roots = self.backend.converted(np.sqrt(table.weights))
            X = self.backend.scaled_rows(X, roots)
            Y = self.backend.scaled_rows(Y, roots)
            if means is None:
                self.ones = None
            else:
                self.ones = roots
        self.X = X
        self.Y = Y
        self.squares = self.backend.total(Y, Y)
        self.q = 0.0
        self.c = 0.0

    def loss(self) -> float:
        return 0.5 * (self.q - 2.0 * self.c + self.squares)

    def inner(self) -> float:
        # ⟨X W − Y, X W⟩
        return self.q - self.c

    def gradients(self, gamma: float, scale: float, u: FloatArray, v: FloatArray) -> FloatArray:
        # S = scale·u vᵀ, D = S − W: φ'(γ) = ⟨X W − Y, X D⟩ + γ‖X D‖², φ''(γ) = ‖X D‖²
        square, with_scores, with_labels = self._atom(u, v)
        second = scale * scale * square - 2.0 * scale * with_scores + self.q
        first = scale * (with_scores - with_labels) - self.inner()
        return np.array([first + gamma * second, second])

    def move(self, gamma: float, scale: float, u: FloatArray, v: FloatArray) -> None:
        square, with_scores, with_labels = self._atom(u, v)
        self._advance(gamma, scale, u, v)
        keep = 1.0 - gamma
        cross = 2.0 * gamma * keep * scale * with_scores
        new = (gamma * scale) ** 2 * square
        self.q = keep * keep * self.q + cross + new
        self.c = keep * self.c + gamma * scale * with_labels
        self._known = None

    _known: tuple[FloatArray, FloatArray, tuple[float, float, float]] | None = None

    def _atom(self, u: FloatArray, v: FloatArray) -> tuple[float, float, float]:
        """‖X u vᵀ‖², ⟨X W, X u vᵀ⟩ and ⟨Y, X u vᵀ⟩; a line search leaves them for the move after
        it.
        """
        if self._known is not None:
            known_u, known_v, measured = self._known
            if known_u is u and known_v is v:
                return measured
        measured = self._measure(u, v)
        self._known = (u, v, measured)
        return measured

    def _advance(self, gamma: float, scale: float, u: FloatArray, v: FloatArray) -> None:
        raise NotImplementedError

    def _measure(self, u: FloatArray, v: FloatArray) -> tuple[float, float, float]:
        raise NotImplementedError


class _Implicit(_LeastSquares):
    def __init__(self, table: Table, means: Means | None = None):
        super().__init__(table, means)
        self.R = -self.Y

    def forward(self, u: FloatArray) -> Any:
        return self._scores(u)

    def reset(self, left: FloatArray, right: FloatArray, scores: Any = None) -> None:
        if scores is None:
            scores = self.forward(left)
        self.R = self.backend.product(scores, self.backend.converted(right).T)
        self.q = self.backend.total(self.R, self.R)
        self.c = self.backend.total(self.R, self.Y)
        self.R -= self.Y
        self._known = None

    def loss(self) -> float:
        return 0.5 * self.backend.total(self.R, self.R)

    def times(self, v: FloatArray) -> FloatArray:
        z = self.backend.product(self.R, self.backend.converted(v))
        return self.backend.to_numpy(self._adjoint(z))

    def times_transposed(self, u: FloatArray) -> FloatArray:
        product = self.backend.adjoint(self.R, self.forward(u))
        return self.backend.to_numpy(product)

    def matrix(self) -> Any:
        return self._gram(self.R)

    def squared_norm(self) -> float:
        return self._gram_square(self.R)

    def _measure(self, u: FloatArray, v: FloatArray) -> tuple[float, float, float]:
        x = self.forward(u)
        local = self.backend.converted(v)
        labels_v = self.backend.product(self.Y, local)
        residual_v = self.backend.product(self.R, local)
        with_labels = self.backend.total(x, labels_v)
        with_residual = self.backend.total(x, residual_v)
        square = self.backend.total(x, x) * float(v @ v)
        return square, with_residual + with_labels, with_labels

    def _advance(self, gamma: float, scale: float, u: FloatArray, v: FloatArray) -> None:
        # R ← (1 − γ) R + γ (scale·X u vᵀ − Y)
        x = self.forward(u)
        local = self.backend.converted(v)
        self.backend.blend(self.R, self.Y, gamma, scale, x, local)

    def curvature(self, basis: FloatArray, scores: Any, new: int) -> FloatArray:
        last = scores[:, scores.shape[1] - new :]
        product = self.backend.adjoint(scores, last)
        return self.backend.to_numpy(product)

    def projected(self, basis: FloatArray, scores: Any, right: FloatArray) -> FloatArray:
        z = self.backend.product(self.R, self.backend.converted(right))
        product = self.backend.adjoint(scores, z)
        return self.backend.to_numpy(product)


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
            gram = self.backend.gram(self.X, self.X)
            self.H = gram - rest - rest.T
        else:
            centred = self.X - self._outer(self.ones, self.centre)
            self.H = self.backend.gram(centred, centred)
        self.X = self.H
        self.Y = None
        self.centre = None
        self.G = -self.C

    def forward(self, u: FloatArray) -> Any:
        return self._scores(u)

    def reset(self, left: FloatArray, right: FloatArray, scores: Any = None) -> None:
        if scores is None:
            scores = self.forward(left)
        left_converted = self.backend.converted(left)
        right_converted = self.backend.converted(right)
        self.G = scores @ right_converted.T
        # q = ⟨W, X ᵀX W⟩ and c = ⟨W, XᵀY⟩ for W = left rightᵀ
        left_gram = left_converted.T @ scores
        right_gram = right_converted.T @ right_converted
        self.q = self.backend.total(left_gram, right_gram)
        corner = left_converted.T @ (self.C @ right_converted)
        one = self.backend.converted(np.eye(left.shape[1]))
        self.c = self.backend.total(corner, one)
        self.G -= self.C
        self._known = None

    def times(self, v: FloatArray) -> FloatArray:
        product = self.backend.product(self.G, self.backend.converted(v))
        return self.backend.to_numpy(product)

    def times_transposed(self, u: FloatArray) -> FloatArray:
        product = self.backend.adjoint(self.G, self.backend.converted(u))
        return self.backend.to_numpy(product)

    def matrix(self) -> Any:
        return self.G

    def squared_norm(self) -> float:
        return self.backend.total(self.G, self.G)

    def _measure(self, u: FloatArray, v: FloatArray) -> tuple[float, float, float]:
        left = self.backend.converted(u)
        right = self.backend.converted(v)
        labels_v = self.backend.product(self.C, right)
        gradient_v = self.backend.product(self.G, right)
        with_labels = self.backend.total(left, labels_v)
        with_gradient = self.backend.total(left, gradient_v)
        square = self.backend.total(left, self.forward(u)) * float(v @ v)
        return square, with_gradient + with_labels, with_labels

    def _advance(self, gamma: float, scale: float, u: FloatArray, v: FloatArray) -> None:
        # ∇F_j ← (1 − γ) ∇F_j + γ (scale·XᵀX u vᵀ − XᵀY)
        # appendix B
        x = self.forward(u)
        local = self.backend.converted(v)
        self.backend.blend(self.G, self.C, gamma, scale, x, local)

    def curvature(self, basis: FloatArray, scores: Any, new: int) -> FloatArray:
        last = scores[:, scores.shape[1] - new :]
        product = self.backend.converted(basis).T @ last
        return self.backend.to_numpy(product)

    def projected(self, basis: FloatArray, scores: Any, right: FloatArray) -> FloatArray:
        return basis.T @ self.times(right)
