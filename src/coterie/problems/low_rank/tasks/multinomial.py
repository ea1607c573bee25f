"""Multinomial logistic regression: F(W) = Σ_i (log Σ_l exp(x_iᵀw_l) − x_iᵀw_{y_i}), one column of W
per class (equation (5) of the paper).

    ∇F_j(W) = X_jᵀ (P_j − H_j),   P = softmax of the rows of X W,   H the indicator of the labels

| information | keeps                                 | a product      | a move               |
|-------------|---------------------------------------|----------------|----------------------|
| dense       | as below, and the gradient, d × m     | O(d m)         | O(n_j d m)           |
| implicit    | X_j, the scores A_j = X_j W, and P_j  | O(n_j (d + m)) | O(n_j m) and X_j u   |

The last power iteration has computed X_j u, so a move and a line search make no pass over the
features. The second derivative of log Σ exp is at most ½, so ½ XᵀX bounds the curvature. Sample
weights s multiply the rows of P − H.

With an intercept, X_j is without the means of all parties, P = softmax of the rows of A + 1bᵀ, and

    ∂F_j/∂b = Σ_i s_i (p_i − h_i),   ∂²F_j/∂b² x = Σ_i s_i p_i∘(x − ⟨p_i, x⟩),   at most Σ_i s_i p_i
                                     on the diagonal
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from coterie.data import Table, encode_classes
from coterie.numerics.arrays import FloatArray, host
from coterie.problems.low_rank.tasks.task import (
    Information,
    Means,
    OnBackend,
    Task,
    column_sums,
    refuse_empty,
)

NEVER = -1000.0
"""The intercept of a class that no party has: its probability is 0."""

Label = str | int | float | bool


@dataclass(frozen=True)
class Multinomial(Task):
    """One of many classes per row, with probabilities."""

    name: ClassVar[str] = "multinomial"
    kind: ClassVar[str] = "classes"
    exact: ClassVar[bool] = False
    quadratic: ClassVar[bool] = False

    classes: tuple[Label, ...] | None = None
    """All classes, if the data may lack some; by default the classes that any party has."""

    def __post_init__(self) -> None:
        if self.classes is not None:
            object.__setattr__(self, "classes", tuple(np.asarray(self.classes).tolist()))

    def prepared(self, tables: Sequence[Table]) -> tuple[list[Table], npt.NDArray[Any] | None]:
        refuse_empty(tables)
        if self.classes is None:
            return encode_classes(tables, None)
        return encode_classes(tables, np.array(self.classes))

    def with_classes(self, classes: npt.NDArray[Any] | None) -> Task:
        if classes is None:
            return self
        return replace(self, classes=tuple(classes.tolist()))

    @property
    def outputs(self) -> int:
        assert self.classes is not None, "the classes are known once the tables are prepared"
        return len(self.classes)

    def size_for(self, columns: int, labels: int) -> tuple[int, int]:
        return columns, self.outputs

    def sums(self, table: Table, left: FloatArray | None = None) -> FloatArray:
        if left is None:
            return column_sums(table)
        labels = np.asarray(host(table.y)).astype(np.intp)
        counts = np.bincount(labels, table.weights, self.outputs)
        return counts.astype(float)

    def mean(self, sums: FloatArray, total: float, left: FloatArray | None = None) -> FloatArray:
        if left is None:
            return sums / total
        never = np.full(len(sums), NEVER)
        logarithms: FloatArray = np.log(sums / total, out=never, where=sums > 0)
        return logarithms

    def stats(
        self, table: Table, information: str = "auto", means: Means | None = None
    ) -> Information:
        # A dense move costs n_j d m and saves no memory: it is used only on request.
        return _Softmax(table, self.size(table)[1], information == "dense", means)


class _Softmax(OnBackend):
    _b: Any = None
    """b, where the large arrays are."""

    b: FloatArray | None = None

    def __init__(self, table: Table, classes: int, dense: bool, means: Means | None = None):
        super().__init__(table.X, means)
        self.X = table.X
        self.classes = classes
        self.dense = dense
        self.labels = self.backend.labels(table.y)
        if table.weights is None:
            self.weights = self.backend.ones(table.n)
        else:
            self.weights = self.backend.converted(table.weights)
        self.weighted = table.weights is not None
        self.A = self.backend.zeros(table.n, classes)
        self.P = self.backend.zeros(table.n, classes, stored=True)
        self.P += 1.0 / classes
        if means is None:
            self._refresh()
        else:
            self.put(means.right)

    def _refresh(self) -> None:
        if self.dense:
            self.G = self._gradient()
        else:
            self.G = None

    def put(self, b: FloatArray) -> None:
        self.b = b
        self._b = self.backend.converted(b)
        self.backend.probabilities(self.A, self.P, self._b)
        self._refresh()

    def gradient_of_intercept(self) -> FloatArray:
        shares = self.backend.adjoint(self.P, self.weights)
        counts = self.backend.count(self.labels, self.weights, self.classes)
        gradient = shares - counts
        return np.concatenate([self.backend.to_numpy(part) for part in (gradient, shares)])

    def curvature_of_intercept(self, x: FloatArray) -> FloatArray:
        local = self.backend.converted(x)
        shares = self.backend.adjoint(self.P, self.weights)
        along = self.weights * self.backend.product(self.P, local)
        product = shares * local - self.backend.adjoint(self.P, along)
        return self.backend.to_numpy(product)

    def forward(self, u: FloatArray) -> Any:
        return self._scores(u)

    def reset(self, left: FloatArray, right: FloatArray, scores: Any = None) -> None:
        if scores is None:
            scores = self.forward(left)
        local = self.backend.converted(right)
        self.backend.scores(self.A, self.P, scores, local, self._b)
        self._refresh()

    def _residual_times(self, v: FloatArray) -> Any:
        """s∘(P − H) v."""
        local = self.backend.converted(v)
        z = self.backend.product(self.P, local) - local[self.labels]
        if self.weighted:
            return self.backend.scaled_rows(z, self.weights)
        return z

    def times(self, v: FloatArray) -> FloatArray:
        if self.G is not None:
            product = self.backend.product(self.G, self.backend.converted(v))
        else:
            product = self._adjoint(self._residual_times(v))
        return self.backend.to_numpy(product)

    def times_transposed(self, u: FloatArray) -> FloatArray:
        if self.G is not None:
            product = self.backend.adjoint(self.G, self.backend.converted(u))
            return self.backend.to_numpy(product)
        x = self.forward(u)
        if self.weighted:
            x = self.backend.scaled_rows(x, self.weights)
        expected = self.backend.adjoint(self.P, x)
        observed = self.backend.count(self.labels, x, self.classes)
        return self.backend.to_numpy(expected - observed)

    def _residual(self) -> Any:
        """s∘(P − H)."""
        residual = self.backend.less_one(self.P, self.labels)
        if self.weighted:
            return self.backend.scaled_rows(residual, self.weights)
        return residual

    def _gradient(self) -> Any:
        return self._gram(self._residual())

    def matrix(self) -> Any:
        if self.G is None:
            return self._gradient()
        return self.G

    def squared_norm(self) -> float:
        return self._gram_square(self._residual())

    def move(self, gamma: float, scale: float, u: FloatArray, v: FloatArray) -> None:
        x = self.forward(u)
        local = self.backend.converted(v)
        self.backend.softmax(self.A, self.P, gamma, scale, x, local, self._b)
        self._refresh()

    def gradients(self, gamma: float, scale: float, u: FloatArray, v: FloatArray) -> FloatArray:
        x = self.forward(u)
        local = self.backend.converted(v)
        return self.backend.softmax_gradients(
            self.A, self.labels, self.weights, gamma, scale, x, local, self._b
        )

    def loss(self) -> float:
        return self.backend.cross_entropy(self.A, self.labels, self.weights, self._b)

    def inner(self) -> float:
        # Σ_i s_i ⟨P_i − H_i, A_i⟩
        return self.backend.total(self._residual(), self.A)

    def curvature(self, basis: FloatArray, scores: Any, new: int) -> FloatArray:
        last = scores[:, scores.shape[1] - new :]
        if self.weighted:
            last = self.backend.scaled_rows(last, self.weights)
        product = self.backend.adjoint(scores, last)
        return 0.5 * self.backend.to_numpy(product)

    def projected(self, basis: FloatArray, scores: Any, right: FloatArray) -> FloatArray:
        product = self.backend.adjoint(scores, self._residual_times(right))
        return self.backend.to_numpy(product)
