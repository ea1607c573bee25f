"""Low-rank models: a matrix of coefficients as U diag(s) Vᵀ."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from scipy.special import softmax

from coterie.data.entries import pairs_of, places_of
from coterie.errors import InvalidData, InvalidProblem
from coterie.numerics.arrays import FloatArray, Matrix, product
from coterie.numerics.factors import NEGLIGIBLE, decomposed
from coterie.problems.low_rank.tasks import Task
from coterie.problems.low_rank.tasks.completion import Completion
from coterie.problems.models.model import Model
from coterie.problems.problem import Problem


@dataclass(frozen=True)
class LowRankModel(Model[Problem[Task]]):
    """Scores X·U·diag(s)·Vᵀ + b: one column per task or class; for completion, the matrix itself is
    the model.
    """

    kind: ClassVar[str] = "low-rank"
    one_score: ClassVar[bool] = False

    U: FloatArray
    """Left singular vectors, d × rank."""
    s: FloatArray
    """Singular values, falling."""
    V: FloatArray
    """Right singular vectors, m × rank."""
    problem: Problem[Task]
    classes_: npt.NDArray[Any] | None = None
    columns: tuple[str, ...] | None = None
    b: FloatArray | None = None
    """The intercept of every column of W, or of the completed matrix."""
    a: FloatArray | None = None
    """For completion with an intercept: the intercept of every row of the matrix."""
    row_ids: npt.NDArray[Any] | None = None
    column_ids: npt.NDArray[Any] | None = None
    """For completion: the names of rows and columns; without names, they are numbers from 0."""

    @staticmethod
    def from_factors(
        left: FloatArray,
        right: FloatArray,
        problem: Problem[Task],
        classes: npt.NDArray[Any] | None = None,
        columns: tuple[str, ...] | None = None,
    ) -> LowRankModel:
        """The model left rightᵀ."""
        U, s, V = decomposed(left, right, NEGLIGIBLE)
        return LowRankModel(U, s, V, problem, classes, columns)

    @property
    def coef_(self) -> FloatArray:
        """W as a dense d × m matrix."""
        return (self.U * self.s) @ self.V.T

    @property
    def intercept_(self) -> FloatArray | float:
        """One number for each column of W; 0 without an intercept."""
        if self.b is None:
            return 0.0
        return self.b

    @property
    def mean_(self) -> float:
        """Completion: the mean of the rows' intercepts. The prediction adds `row_means_` and
        `column_means_` to it.
        """
        if self.a is None:
            return 0.0
        return float(self.a.mean())

    @property
    def row_means_(self) -> FloatArray:
        """Completion: the intercept of every row, less the mean."""
        if self.a is None:
            return np.zeros(len(self.U))
        return self.a - self.mean_

    @property
    def column_means_(self) -> FloatArray:
        """Completion: the intercept of every column."""
        if self.b is None:
            return np.zeros(len(self.V))
        return self.b

    @property
    def singular_values_(self) -> FloatArray:
        """The singular values of W; their sum is at most the radius."""
        return self.s

    @property
    def rank_(self) -> int:
        """The rank of W."""
        return len(self.s)

    def decision_function(self, X: Matrix) -> FloatArray:
        """One row of scores X·W per row. The columns of a frame are found by their names."""
        if isinstance(self.problem.loss, Completion):
            raise InvalidProblem(
                "a completed matrix has no scores; use predict with pairs (row, column)."
            )
        X = self._read(X).X
        if X.shape[1] != len(self.U):
            raise InvalidData(
                f"the model has {len(self.U)} columns, but the data has {X.shape[1]}."
            )
        in_patterns = product(X, self.U) * self.s
        scores: FloatArray = in_patterns @ self.V.T + self.intercept_
        return scores

    def predict(self, X: Matrix) -> npt.NDArray[Any]:
        """A row of numbers per row, or the most probable class; for completion, the entries at
        pairs (row, column).

        Where rows and columns have names, an unknown name gets the mean of all rows or columns.
        """
        if isinstance(self.problem.loss, Completion):
            if self.row_ids is None or self.column_ids is None:
                row_places, column_places = self.problem.loss.places(self._read(X)).T
            else:
                rows, columns = pairs_of(X)
                row_places = places_of(rows, self.row_ids)
                column_places = places_of(columns, self.column_ids)
            return self._entries(row_places, column_places)
        scores = self.decision_function(X)
        if self.classes_ is None:
            return scores
        likely: npt.NDArray[Any] = self.classes_[scores.argmax(axis=1)]
        return likely

    def _entries(self, rows: npt.NDArray[np.intp], columns: npt.NDArray[np.intp]) -> FloatArray:
        """The entries at these places; a place of −1 is an unknown row or column."""
        left = self.U[rows] * self.s
        entries: FloatArray = np.einsum("ik,ik->i", left, self.V[columns])
        entries = np.where((rows < 0) | (columns < 0), 0.0, entries)
        for free, places in ((self.a, rows), (self.b, columns)):
            if free is not None:
                entries = entries + np.where(places < 0, free.mean(), free[places])
        return entries

    def predict_proba(self, X: Matrix) -> FloatArray:
        """The probability of every class (multinomial only)."""
        self._needs_classes("predict_proba")
        probabilities: FloatArray = softmax(self.decision_function(X), axis=1)
        return probabilities

    def top_k(self, X: Matrix, k: int = 5) -> npt.NDArray[Any]:
        """The k most probable classes per row, the best first (multinomial only)."""
        classes = self._needs_classes("top_k")
        if not 1 <= k <= len(classes):
            raise InvalidProblem(
                f"top_k: k must be between 1 and the {len(classes)} classes, not {k!r}."
            )
        order = np.argsort(-self.decision_function(X), axis=1, kind="stable")
        return classes[order[:, :k]]

    def _needs_classes(self, called: str) -> npt.NDArray[Any]:
        if self.classes_ is None:
            raise InvalidProblem(
                f"{called} needs classes, and this model fits numbers; use loss='multinomial'."
            )
        return self.classes_
