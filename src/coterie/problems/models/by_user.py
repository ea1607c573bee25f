"""The base class of models in which every user has its own part."""

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
    """A model with one part per user. The score of a row is from the part of its user."""

    users: tuple[str, ...]

    def in_graph(self) -> Mapping[str, tuple[int, float]]:
        """The number of neighbours and the confidence of each user in the graph of similar users.
        Empty for a model without a graph.
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
        """The scores of the rows, given each user's rows."""

    @property
    @abstractmethod
    def columns_expected(self) -> int | None:
        """The number of columns of the fitted data; None if it is not known."""

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
        """The score of every row, from the model of its user. `users` is one label per row, or one
        label for all rows.

        `unknown` is for a user without a model. "error" raises an error. "common" uses the common
        model. "neighbours" uses the average of the users in `neighbours[user]`.
        """
        if unknown not in UNKNOWN:
            raise UnknownName("way with unknown users", unknown, UNKNOWN)
        rows = self._read(X).X
        columns = rows.shape[1]
        if self.columns_expected not in (None, columns):
            raise InvalidData(
                f"the model has {self.columns_expected} columns, but the data has {columns}. Give "
                "the columns of the fit."
            )
        labels = self._labels(users, rows.shape[0])
        near = {str(user): names for user, names in (neighbours or {}).items()}
        users_and_rows = list(rows_of(labels))
        return self._scores(rows, users_and_rows, unknown, near)

    def predict(self, X: Matrix, users: Any = None, **how: Any) -> npt.NDArray[Any]:
        """The class or the number that the model of each row's user predicts."""
        scores = self.decision_function(X, users, **how)
        if self.classes_ is None:
            problem: Any = self.problem
            numbers: npt.NDArray[Any] = problem.loss.response(scores)
            return numbers
        positive = (scores > 0).astype(int)
        classes: npt.NDArray[Any] = self.classes_[positive]
        return classes

    def score_per_user(self, X: Matrix, y: Any, users: Any, **how: Any) -> dict[str, float]:
        """The accuracy for each user with rows. For a regression, minus the mean squared error."""
        labels = self._labels(users, len(y))
        y = np.asarray(y)
        found = self.predict(X, users, **how)
        if self.classes_ is not None:
            good = found == y
        else:
            good = -np.square(found - y)
        return {user: float(good[local].mean()) for user, local in rows_of(labels)}

    def _place(self, user: object) -> int:
        name = str(user)
        if name not in self._places:
            raise UnknownName("user", name, self.users)
        return self._places[name]

    def _refuse(self, user: object) -> InvalidInput:
        return InvalidInput(
            f"user {str(user)!r} was not among the {len(self.users)} users of the fit. Fit again "
            "with that user, or use unknown='common' for the common model, or "
            "unknown='neighbours' for the average of its neighbours."
        )

    def _labels(self, users: Any, rows: int) -> npt.NDArray[Any]:
        if users is None:
            if len(self.users) > 1:
                raise InvalidInput(
                    f"there are {len(self.users)} users; give users=, one label per row."
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
    """Yield every label, in sorted order, with the rows that have it."""
    users, place = np.unique(labels, return_inverse=True)
    order = np.argsort(place, kind="stable")
    counts = np.bincount(place, minlength=len(users))
    rows = np.split(order, np.cumsum(counts))[:-1]
    yield from zip(users.tolist(), rows, strict=True)
