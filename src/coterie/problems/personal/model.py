"""Personal models: one classifier per user, a weighted sum of shared base predictors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from scipy.special import expit

from coterie.errors import InvalidInput, UnknownName
from coterie.networks import Network
from coterie.numerics.arrays import FloatArray, Matrix
from coterie.problems.models.by_user import UNKNOWN, UserModel
from coterie.problems.personal.problem import Personal


@dataclass(frozen=True, eq=False)
class PersonalModel(UserModel[Personal]):
    """The score of a row x of user k is u = Σ_j coef_[k, j] h_j(x). The model predicts the second
    class if u > 0.
    """

    kind: ClassVar[str] = "personal"

    coef_: Matrix
    """One sparse row per user, one column per base predictor."""
    users: tuple[str, ...]
    weights: Matrix
    """The collaboration graph: symmetric, one row and one column per user."""
    confidence: FloatArray
    """c_k: the number of rows of each user, divided by the largest number of rows of a user."""
    losses: FloatArray
    """L_k: the loss of each user on its own rows, log-sum or mean hinge."""
    problem: Personal
    classes_: npt.NDArray[Any]
    columns: tuple[str, ...] | None = None
    width: int | None = None
    """Number of columns of the data."""

    @cached_property
    def network(self) -> Network:
        """The collaboration graph as a network, which may be disconnected."""
        return Network(self.weights, name="learned" if self.problem.learned else "collaboration")

    def in_graph(self) -> dict[str, tuple[int, float]]:
        degrees = np.diff(self.weights.indptr).tolist()
        return dict(
            zip(self.users, zip(degrees, self.confidence.tolist(), strict=True), strict=True)
        )

    @property
    def columns_expected(self) -> int | None:
        """Number of columns of the data."""
        return self.width

    def coefficients_of(
        self, user: object, *, unknown: str = "error", neighbours: Sequence[object] | None = None
    ) -> FloatArray:
        """The coefficients of one user.

        `unknown` is for a user without a model. "error" raises an error. "neighbours" averages the
        coefficients of the given neighbours, or of all users if `neighbours` is None. "common"
        averages those of all users. Averages are weighted by confidence.
        """
        if unknown not in UNKNOWN:
            raise UnknownName("way with unknown users", unknown, UNKNOWN)
        place = self._places.get(str(user))
        if place is not None:
            return np.asarray(self.coef_[[place]].toarray()[0], float)
        if unknown == "error":
            raise self._refuse(user)
        if unknown == "common":
            neighbours = None
        if neighbours is None:
            near = list(range(len(self.users)))
        else:
            near = [self._place(friend) for friend in neighbours]
        shares = self.confidence[near]
        if not shares.sum() > 0:
            raise InvalidInput(f"no neighbour of user {str(user)!r} has any rows. Name others.")
        average: FloatArray = (shares / shares.sum()) @ self.coef_[near]
        return average

    def _scores(
        self,
        X: Matrix,
        rows: Sequence[tuple[str, npt.NDArray[np.intp]]],
        unknown: str,
        near: Mapping[str, Any],
    ) -> FloatArray:
        h = self.problem.base.values(X)
        scores = np.empty(X.shape[0])
        for user, local in rows:
            scores[local] = h[local] @ self.coefficients_of(
                user, unknown=unknown, neighbours=near.get(user)
            )
        return scores

    def predict_proba(self, X: Matrix, users: Any = None, **how: Any) -> FloatArray:
        """The probabilities of the two classes. That of the second class is the formula for
        boosting 1 / (1 + exp(−2u)) (Friedman, Hastie and Tibshirani, 2000).
        """
        scores = self.decision_function(X, users, **how)
        second = expit(2.0 * scores)
        return np.column_stack([1.0 - second, second])

    def _notes(self) -> dict[str, Any]:
        return {"width": self.width}

    def _stored(self) -> dict[str, Any]:
        if self.problem.base.settings()["name"] == "given":
            raise InvalidInput(
                "functions and fitted classifiers cannot be written to a file without pickle. "
                "Keep them, and save "
                "`coef_` and `users`; or fit with predictors='stumps'."
            )
        arrays = self._numbers()
        for name in ("coef", "weights"):
            matrix = sp.csr_array(arrays.pop(name))
            arrays |= {
                f"{name}_{part}": getattr(matrix, part) for part in ("data", "indices", "indptr")
            }
        return arrays

    @classmethod
    def _restored(cls, header: Mapping[str, Any], arrays: Mapping[str, Any]) -> dict[str, Any]:
        problem = Personal.from_settings(header["problem"])
        users = tuple(header["users"])
        coef, weights = (
            sp.csr_array(
                tuple(arrays[f"{name}_{part}"] for part in ("data", "indices", "indptr")),
                shape=shape,
            )
            for name, shape in (
                ("coef", (len(users), problem.base.count)),
                ("weights", (len(users), len(users))),
            )
        )
        statistics = {name: arrays[name] for name in ("confidence", "losses")}
        return {
            "coef_": coef,
            "weights": weights,
            "users": users,
            "problem": problem,
            **statistics,
            "width": header.get("width"),
        }
