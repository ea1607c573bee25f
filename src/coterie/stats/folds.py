"""Cross-validation at the parties: which rows are kept back, and what a model loses on them.

A party draws the folds of its rows from the seed, its place and the number of rows at those before
it, so that no row and no number travels for them. Split by features, all parties draw the same
ones. Only sums of losses are told.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from coterie.data import Table
from coterie.data.table import Indices
from coterie.errors import InvalidData, InvalidProblem
from coterie.numerics.arrays import FloatArray, product
from coterie.run.agent import Agent
from coterie.run.collectives import Protocol, Sum
from coterie.run.disclosure import discloses

ATTEMPTS = 1000
"""How often folds are dealt until each has rows and leaves rows of every class."""


def deal(rows: Sequence[int], split: str, cv: int, seed: int, attempt: int = 0) -> list[Indices]:
    """The fold of every row of parties with so many rows each, in equal parts."""
    folds, before = [], 0
    for index, n in enumerate(rows):
        rng = np.random.default_rng(
            [seed, 0 if split == "features" else index, *[attempt] * (attempt > 0)]
        )
        # Parties with few rows begin with different folds, so that none stays empty.
        first = before + int(rng.integers(cv)) if attempt else before
        folds.append(rng.permutation((np.arange(n) + first) % cv))
        before += 0 if split == "features" else n
    return folds


def deal_folds(
    tables: Sequence[Table], split: str, cv: int, seed: int, classes: npt.NDArray[Any] | None = None
) -> list[Indices]:
    """The fold of every row, where all tables are here.

    Each fold has rows and, for a classifier, leaves rows of every class to learn from; folds that
    do not are dealt again. The labels, sorted, stand for the `classes`.
    """
    rows, labels = (
        [table.n for table in tables],
        [table.y for table in tables if table.y is not None],
    )
    found: npt.NDArray[Any] = np.empty(0)
    if classes is not None:
        found, counts = np.unique(np.concatenate(labels), return_counts=True)
        for value, name in zip(found[counts < 2], classes[counts < 2].tolist(), strict=True):
            party = next(
                table.name for table in tables if table.y is not None and (table.y == value).any()
            )
            raise InvalidData(f"class {name!r} has 1 row, at party {party!r}: {_LONELY}")

    def usable(attempt: int) -> list[Indices] | None:
        folds = deal(rows, split, cv, seed, attempt)
        whole = np.concatenate(folds[:1] if split == "features" else folds)
        counts = counts_by_fold(
            None if classes is None else np.concatenate(labels), whole, cv, found
        )
        return folds if is_usable(counts) else None

    return first_usable(usable, cv)


_LONELY = (
    "in the fold that keeps it back, no row of that class is left. Give more rows of the class, "
    "or leave cv out."
)


def first_usable(usable: Callable[[int], list[Indices] | None], cv: int) -> list[Indices]:
    """The folds of the first attempt at which there are some."""
    for attempt in range(ATTEMPTS):
        if (folds := usable(attempt)) is not None:
            return folds
    raise InvalidProblem(
        f"cv={cv}: some fold would have no rows, or leave only one class for training. Give fewer "
        "folds."
    )


def counts_by_fold(
    y: npt.NDArray[Any] | None, fold: Indices, cv: int, classes: npt.NDArray[Any]
) -> npt.NDArray[np.float64]:
    """How many rows of every class each fold has, folds × classes; without classes, how many
    rows.
    """
    if y is None:
        return np.bincount(fold, minlength=cv)[:, None].astype(float)
    place = np.searchsorted(classes, y)
    return (
        np.bincount(fold * len(classes) + place, minlength=cv * len(classes))
        .reshape(cv, -1)
        .astype(float)
    )


def is_usable(counts: FloatArray) -> bool:
    """Whether every fold has rows, and leaves rows of every class."""
    return bool((counts.sum(axis=1) > 0).all() and (counts.sum(axis=0) - counts > 0).all())


def leaves_enough(counts: FloatArray, minimum: int) -> FloatArray:
    """1 where this party has at least so many rows of a class outside a fold, else 0: folds ×
    classes.

    Added up over parties it says that rows are left to learn from, and not how many: a fold may
    have few of a class.
    """
    left = counts.sum(axis=0) - counts
    enough: FloatArray = (left >= max(minimum, 1)).astype(float)
    return enough


@discloses(
    (
        "for each fold and class: whether you have enough rows of the class outside the fold, as "
        "part "
        "of a sum"
    ),
    splits=("samples", "users"),
)
@discloses(
    "from the label party: whether the folds have all classes",
    splits=("features",),
    most=lambda case: (1, 1),
)
def rows_outside_folds(numbers: FloatArray) -> Protocol[FloatArray]:
    """These numbers, added up over all parties."""
    total: FloatArray = yield Sum(numbers)
    return total


def refuse_lonely(counts: FloatArray, classes: npt.NDArray[Any]) -> None:
    """Refuse a class with one row, from the counts of all parties."""
    for name in classes[counts.sum(axis=0) < 2].tolist():
        raise InvalidData(f"class {name!r} has 1 row: {_LONELY}")


def without(table: Table, own: Indices, fold: int) -> Table:
    """The rows to learn from, where that fold is kept back."""
    return table.take_rows(np.flatnonzero(own != fold))


def only(table: Table, own: Indices, fold: int) -> Table:
    """The rows that are kept back."""
    return table.take_rows(np.flatnonzero(own == fold))


@discloses(
    "the loss of your rows, and how many they are, as part of a sum",
    splits=("samples", "users"),
    most=lambda case: (1, 2),
)
@discloses(
    "your partial scores of these rows, as part of a sum; from the label party their loss",
    "the score of each of these rows",
    splits=("features",),
    most=lambda case: (2, case.rows + 2),
)
def mean_loss(agent: Agent, w: FloatArray, model: Any) -> Protocol[float]:
    """The mean loss of a model over all rows: a `Sum` of two numbers, and one of the scores if
    split by features.

    Split by features, `model` is this agent's part of it: w is about columns that are centred by
    other rows.
    """
    if agent.split == "features":
        scores = yield Sum(product(agent.data.X, model.coef_.astype(float)) + model.intercept_)
        here = agent.data.y is not None
        mine = agent.loss.value(scores, agent.exact_labels, agent.data.weights) if here else 0.0
        weight = agent.weight if here else 0.0
    else:
        mine, weight = agent.problem.kind.local.losses(agent, w.astype(float)), agent.weight
    losses, total = yield Sum(np.array([mine, weight]))
    return float(losses / total)
