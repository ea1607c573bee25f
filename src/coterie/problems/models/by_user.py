"""What models have in common of which every user has its own."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Generic

import numpy as np
import numpy.typing as npt

from coterie.errors import InvalidData, InvalidInput, UnknownName
from coterie.numerics.arrays import FloatArray, Matrix
from coterie.problems.models.model import Model
from coterie.problems.problem import P

UNKNOWN = ("error", "common", "neighbours")


class UserModel(Model[P], Generic[P]):
    """A score for every row, in the eyes of its user."""

    users: tuple[str, ...]

    def in_graph(self) -> Mapping[str, tuple[int, float]]:
        """For each user of a graph of similar users, the number of neighbours and the
        confidence.
        """
        return {}

    @abstractmethod
    def _scores(
        self,
        X: Matrix,
        rows: Sequence[tuple[str, npt.NDArray[np.intp]]],
        unknown: str,
        near: Mapping[str, Any],
    ) -> FloatArray:
        """The scores of these rows, of which users have those."""

    @property
    @abstractmethod
    def columns_expected(self) -> int | None:
        """How many columns rows have; None where nobody knows."""

    @cached_property
    def _places(self) -> dict[str, int]:
        return {user: place for place, user in enumerate(self.users)}

    def decision_function(
        self,
        X: Matrix,
        users: Any = None,
        *,
        unknown: str = "error",
        neighbours: Mapping[Any, Sequence[object]] | None = None,
    ) -> FloatArray:
        """The score of every row for its user; `users` is one label per row, or one label for all
        of them.

        A user that was not fitted is an error, or takes the "common" model, or the average of its
        "neighbours", whom `neighbours` names.
        """
        if unknown not in UNKNOWN:
            raise UnknownName("way with unknown users", unknown, UNKNOWN)
        rows = self._read(X).X
        if self.columns_expected not in (None, rows.shape[1]):
            raise InvalidData(
                f"the model has {self.columns_expected} columns, but the data has "
                f"{rows.shape[1]}. Give the columns of "
                "the fit."
            )
        labels = self._labels(users, rows.shape[0])
        friends = {str(user): near for user, near in (neighbours or {}).items()}
        return self._scores(rows, list(rows_of(labels)), unknown, friends)

    def predict(self, X: Matrix, users: Any = None, **how: Any) -> npt.NDArray[Any]:
        """The class of every row, or the number, in the eyes of its user."""
        scores = self.decision_function(X, users, **how)
        if self.classes_ is None:
            problem: Any = self.problem
            numbers: npt.NDArray[Any] = problem.loss.response(scores)
            return numbers
        classes: npt.NDArray[Any] = self.classes_[(scores > 0).astype(int)]
        return classes

    def score_per_user(self, X: Matrix, y: Any, users: Any, **how: Any) -> dict[str, float]:
        """For each user that has rows here the share of right answers, or for numbers minus the
        mean square error.
        """
        labels = self._labels(users, len(y))
        y = np.asarray(y)
        found = self.predict(X, users, **how)
        if self.classes_ is not None:
            good = found == y
        else:
            good = -np.square(found - y)
        return {user: float(good[local].mean()) for user, local in rows_of(labels)}

    def _place(self, user: object) -> int:
        if str(user) not in self._places:
            raise UnknownName("user", str(user), self.users)
        return self._places[str(user)]

    def _refuse(self, user: object) -> InvalidInput:
        return InvalidInput(
            f"user {str(user)!r} was not among the {len(self.users)} users that were fitted. Fit "
            "again with that user, "
            "or use unknown='common' for what all have in common, or unknown='neighbours' for the "
            "average of its "
            "neighbours."
        )

    def _labels(self, users: Any, rows: int) -> npt.NDArray[Any]:
        if users is None:
            if len(self.users) > 1:
                raise InvalidInput(
                    f"there are {len(self.users)} users; say with users= whose each row is."
                )
            users = self.users[0]
        labels = np.asarray(users).astype(str)
        if labels.ndim == 0:
            labels = np.full(rows, labels)
        if labels.shape != (rows,):
            raise InvalidData(
                f"there are {rows} rows but users= has shape {labels.shape}. Give one label per "
                "row."
            )
        return labels

    def _words(self) -> dict[str, Any]:
        if self.classes_ is None:
            classes = None
        else:
            classes = self.classes_.tolist()
        return {"classes": classes, "users": self.users, "columns": self.columns}


def rows_of(labels: npt.NDArray[Any]) -> Iterator[tuple[str, npt.NDArray[np.intp]]]:
    """Every label, in order, and the rows that have it."""
    users, place = np.unique(labels, return_inverse=True)
    order = np.argsort(place, kind="stable")
    ends = np.cumsum(np.bincount(place, minlength=len(users)))
    yield from zip(users.tolist(), np.split(order, ends)[:-1], strict=True)
