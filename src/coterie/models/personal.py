"""Personal models: a classifier for every user, of shared base predictors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from coterie.arrays import FloatArray, Matrix
from coterie.errors import InvalidData, InvalidInput, UnknownName
from coterie.models.model import Model
from coterie.networks import Network
from coterie.personal import Personal

UNKNOWN = ("error", "neighbours")


@dataclass(frozen=True, eq=False)
class PersonalModel(Model):
    """u = Σ_j coef_[k, j] h_j(x) for a row of user k; the second class where u > 0."""

    kind: ClassVar[str] = "personal"

    coef_: Matrix
    """One sparse row per user, one column per base predictor."""
    users: tuple[str, ...]
    weights: Matrix
    """The collaboration graph: symmetric, one row and one column per user."""
    confidence: FloatArray
    """c_k: its own number of rows, relative to the largest."""
    losses: FloatArray
    """L_k: the log-sum loss on its own rows."""
    problem: Personal
    classes_: npt.NDArray[Any]
    columns: tuple[str, ...] | None = None
    width: int | None = None
    """How many columns the rows have."""

    @cached_property
    def network(self) -> Network:
        """The collaboration graph as a network, which may fall apart."""
        return Network(self.weights, name="learned" if self.problem.learned else "collaboration")

    @cached_property
    def _places(self) -> dict[str, int]:
        return {user: place for place, user in enumerate(self.users)}

    def coefficients_of(
        self, user: object, *, unknown: str = "error", neighbours: Sequence[object] | None = None
    ) -> FloatArray:
        """One user's coefficients. An unknown user is an error, or takes the average of its neighbours' (of those
        given, or of everybody's), weighted by confidence."""
        if unknown not in UNKNOWN:
            raise UnknownName("way with unknown users", unknown, UNKNOWN)
        place = self._places.get(str(user))
        if place is not None:
            return np.asarray(self.coef_[[place]].toarray()[0], float)
        if unknown == "error":
            raise InvalidInput(
                f"user {str(user)!r} was not among the {len(self.users)} users that were fitted. Use "
                "unknown='neighbours' for the average of its neighbours, or fit again with that user."
            )
        near = range(len(self.users)) if neighbours is None else [self._place(friend) for friend in neighbours]
        shares = self.confidence[list(near)]
        if not shares.sum() > 0:
            raise InvalidInput(f"no neighbour of user {str(user)!r} has any rows. Name others.")
        average: FloatArray = (shares / shares.sum()) @ self.coef_[list(near)]
        return average

    def _place(self, user: object) -> int:
        if str(user) not in self._places:
            raise UnknownName("user", str(user), self.users)
        return self._places[str(user)]

    def decision_function(
        self,
        X: Matrix,
        users: Any = None,
        *,
        unknown: str = "error",
        neighbours: Mapping[Any, Sequence[object]] | None = None,
    ) -> FloatArray:
        """The score of every row for its user; `users` is one label per row, or one label for all of them.

        `neighbours` says, for users that were not fitted, who their neighbours are.
        """
        rows = self._read(X).X
        if self.width not in (None, rows.shape[1]):
            raise InvalidData(
                f"the model has {self.width} columns, but the data has {rows.shape[1]}. Give the columns of the fit."
            )
        labels = self._labels(users, rows.shape[0])
        h = self.problem.base.values(rows)
        friends = {str(user): near for user, near in (neighbours or {}).items()}
        scores = np.empty(len(labels))
        for user, here in _rows_of(labels):
            own = self.coefficients_of(user, unknown=unknown, neighbours=friends.get(user))
            scores[here] = h[here] @ own
        return scores

    def predict(self, X: Matrix, users: Any = None, **how: Any) -> npt.NDArray[Any]:
        """The class of every row, in the eyes of its user."""
        classes: npt.NDArray[Any] = self.classes_[(self.decision_function(X, users, **how) > 0).astype(int)]
        return classes

    def score_per_user(self, X: Matrix, y: Any, users: Any, **how: Any) -> dict[str, float]:
        """The share of right answers for each user that has rows here."""
        labels = self._labels(users, len(y))
        right = self.predict(X, users, **how) == np.asarray(y)
        return {user: float(right[here].mean()) for user, here in _rows_of(labels)}

    def _labels(self, users: Any, rows: int) -> npt.NDArray[Any]:
        if users is None:
            if len(self.users) > 1:
                raise InvalidInput(f"there are {len(self.users)} users; say with users= whose each row is.")
            users = self.users[0]
        labels = np.asarray(users).astype(str)
        labels = np.full(rows, labels) if labels.ndim == 0 else labels
        if labels.shape != (rows,):
            raise InvalidData(f"there are {rows} rows but users= has shape {labels.shape}. Give one label per row.")
        return labels

    def _words(self) -> dict[str, Any]:
        return {"classes": self.classes_.tolist(), "users": self.users, "columns": self.columns}

    def _notes(self) -> dict[str, Any]:
        return {"width": self.width}

    def _stored(self) -> dict[str, Any]:
        if self.problem.base.settings()["name"] == "given":
            raise InvalidInput(
                "functions and fitted classifiers cannot be written to a file without pickle. Keep them, and save "
                "`coef_` and `users`; or fit with predictors='stumps'."
            )
        arrays = self._numbers()
        for name in ("coef", "weights"):
            matrix = sp.csr_array(arrays.pop(name))
            arrays |= {f"{name}_{part}": getattr(matrix, part) for part in ("data", "indices", "indptr")}
        return arrays

    @classmethod
    def _restored(cls, header: Mapping[str, Any], arrays: Mapping[str, Any]) -> dict[str, Any]:
        problem, users = Personal.from_settings(header["problem"]), tuple(header["users"])
        coef, weights = (
            sp.csr_array(tuple(arrays[f"{name}_{part}"] for part in ("data", "indices", "indptr")), shape=shape)
            for name, shape in (("coef", (len(users), problem.base.count)), ("weights", (len(users), len(users))))
        )
        facts = {name: arrays[name] for name in ("confidence", "losses")}
        return {
            "coef_": coef,
            "weights": weights,
            "users": users,
            "problem": problem,
            **facts,
            "width": header.get("width"),
        }


def _rows_of(labels: npt.NDArray[Any]) -> Iterator[tuple[str, npt.NDArray[np.intp]]]:
    """Every label, in order, and the rows that have it."""
    users, place = np.unique(labels, return_inverse=True)
    order = np.argsort(place, kind="stable")
    ends = np.cumsum(np.bincount(place, minlength=len(users)))
    yield from zip(users.tolist(), np.split(order, ends)[:-1], strict=True)
