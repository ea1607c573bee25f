"""Shared models: a common linear model, and the deviation of every user from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from coterie.numerics.arrays import FloatArray, Matrix, product
from coterie.problems.models.by_user import UserModel
from coterie.problems.shared.problem import Shared


@dataclass(frozen=True, eq=False)
class SharedModel(UserModel[Shared]):
    """The score of a row x of user k is

    u = ⟨x, coef_ + deviations[k]⟩ + intercept_ + offsets[k].
    """

    kind: ClassVar[str] = "shared"

    coef_: FloatArray
    intercept_: float
    deviations: FloatArray
    """δ: one row per user."""
    offsets: FloatArray
    """β: one number per user."""
    users: tuple[str, ...]
    problem: Shared
    classes_: npt.NDArray[Any] | None = None
    columns: tuple[str, ...] | None = None

    @property
    def columns_expected(self) -> int:
        """Number of columns of the data."""
        return len(self.coef_)

    def coefficients_of(
        self, user: object, *, unknown: str = "error", neighbours: Sequence[object] | None = None
    ) -> tuple[FloatArray, float]:
        """The coefficients and the intercept of one user.

        `unknown` is for a user without a model. "error" raises an error. "common" gives the common
        coefficients and intercept. "neighbours" adds the average deviation of the given neighbours,
        if there are any.
        """
        place = self._places.get(str(user))
        if place is not None:
            return self.coef_ + self.deviations[place], self.intercept_ + float(self.offsets[place])
        if unknown == "error":
            raise self._refuse(user)
        if unknown == "neighbours":
            near = [self._place(friend) for friend in neighbours or ()]
        else:
            near = []
        if not near:
            return self.coef_, self.intercept_
        return self.coef_ + self.deviations[near].mean(axis=0), self.intercept_ + float(
            self.offsets[near].mean()
        )

    def _scores(
        self,
        X: Matrix,
        rows: Sequence[tuple[str, npt.NDArray[np.intp]]],
        unknown: str,
        near: Mapping[str, Any],
    ) -> FloatArray:
        scores = np.empty(X.shape[0])
        for user, local in rows:
            coef, intercept = self.coefficients_of(user, unknown=unknown, neighbours=near.get(user))
            scores[local] = product(X[local], coef) + intercept
        return scores

    def predict_proba(self, X: Matrix, users: Any = None, **how: Any) -> FloatArray:
        """The probabilities of the two classes, for a loss with probabilities (logistic)."""
        loss, scores = self.problem.loss, self.decision_function(X, users, **how)
        return np.column_stack([loss.probability(scores, -1.0), loss.probability(scores, 1.0)])

    @classmethod
    def _restored(cls, header: Mapping[str, Any], arrays: Mapping[str, Any]) -> dict[str, Any]:
        return {
            "problem": Shared.from_settings(header["problem"]),
            "users": tuple(header["users"]),
            "coef_": arrays["coef"],
            "intercept_": float(arrays["intercept"]),
            "deviations": arrays["deviations"],
            "offsets": arrays["offsets"],
        }
