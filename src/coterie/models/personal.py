"""Personal models: a classifier for every user, of shared base predictors."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from coterie.arrays import FloatArray, Matrix, digest, is_sparse
from coterie.data import read, validated
from coterie.errors import CorruptFile, InvalidData, InvalidInput, UnknownName
from coterie.files import read_archive, readable, write_archive
from coterie.networks import Network
from coterie.personal import Personal

__all__ = ["PersonalModel"]

UNKNOWN = ("error", "neighbours")


@dataclass(frozen=True, eq=False)
class PersonalModel:
    """u = Σ_j coef_[k, j] h_j(x) for a row of user k; the second class where u > 0."""

    coef_: Matrix
    """One sparse row per user, one column per base predictor."""
    users: tuple[str, ...]
    weights: Matrix
    """The collaboration graph: symmetric, one row and one column per user."""
    confidence: FloatArray
    """c_k: the own number of rows, relative to the largest."""
    losses: FloatArray
    """L_k: the log-sum loss on the own rows."""
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
        plain = isinstance(X, np.ndarray | list) or is_sparse(X)
        table = read(np.asarray(X) if isinstance(X, list) else X, columns=None if plain else self.columns)
        rows = validated(table, classification=None).X
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

    def digest(self) -> str:
        """The digest of everything that the model's predictions and its proof depend on."""
        names = json.dumps([self.classes_.tolist(), self.users, self.columns])
        problem = json.dumps(self.problem.settings(), sort_keys=True)
        return digest(
            sp.csr_array(self.coef_), sp.csr_array(self.weights), self.confidence, self.losses, problem, names
        )

    def save(self, path: str | Path) -> Path:
        """Write one `.npz` file: plain arrays and a JSON header with the digest."""
        if self.problem.base.settings()["name"] == "given":
            raise InvalidInput(
                "functions and fitted classifiers cannot be written to a file without pickle. Keep them, and save "
                "`coef_` and `users`; or fit with predictors='stumps'."
            )
        header = {
            "coterie_model": 1,
            "kind": "personal",
            "problem": self.problem.settings(),
            "classes": self.classes_.tolist(),
            "users": self.users,
            "columns": self.columns,
            "width": self.width,
            "digest": self.digest(),
        }
        arrays = {"confidence": self.confidence, "losses": self.losses}
        for name, matrix in (("coef", sp.csr_array(self.coef_)), ("weights", sp.csr_array(self.weights))):
            arrays |= {f"{name}_{part}": getattr(matrix, part) for part in ("data", "indices", "indptr")}
        return write_archive(path, header, arrays)

    @staticmethod
    def load(path: str | Path) -> PersonalModel:
        """Read a model; a file that was changed or truncated is refused."""
        header, arrays = read_archive(path, "model")
        with readable(path, "model"):
            problem = Personal.from_settings(header["problem"])
            K = len(header["users"])
            coef, weights = (
                sp.csr_array(tuple(arrays[f"{name}_{part}"] for part in ("data", "indices", "indptr")), shape=shape)
                for name, shape in (("coef", (K, problem.base.count)), ("weights", (K, K)))
            )
            model = PersonalModel(
                coef,
                tuple(header["users"]),
                weights,
                arrays["confidence"],
                arrays["losses"],
                problem,
                np.array(header["classes"]),
                None if header["columns"] is None else tuple(header["columns"]),
                header.get("width"),
            )
            untouched = model.digest() == header["digest"]
        if not untouched:
            raise CorruptFile(f"{path} was changed after it was written: its digest does not match its content.")
        return model


def _rows_of(labels: npt.NDArray[Any]) -> Iterator[tuple[str, npt.NDArray[np.intp]]]:
    """Every label, in order, and the rows that have it."""
    users, place = np.unique(labels, return_inverse=True)
    order = np.argsort(place, kind="stable")
    ends = np.cumsum(np.bincount(place, minlength=len(users)))
    yield from zip(users.tolist(), np.split(order, ends)[:-1], strict=True)
