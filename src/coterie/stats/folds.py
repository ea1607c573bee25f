"""Cross-validate at the parties: draw folds of held-out rows, and sum the losses on these rows.

A party draws the folds of its rows from the seed, its position, and the number of rows at the
parties before it. So parties send no row and no number for the folds. Split by features, all
parties draw the same folds. Parties send only sums of losses.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from coterie.data import Table
from coterie.data.table import Indices
from coterie.errors import InvalidData, InvalidProblem
from coterie.numerics.arrays import FloatArray, product
from coterie.problems.problem import AnyProblem
from coterie.run.agent import Agent
from coterie.run.collectives import Protocol, Sum
from coterie.run.disclosure import discloses
from coterie.run.finish import agent_at
from coterie.run.site import Site

ATTEMPTS = 1000
"""How often folds are dealt until each has rows and leaves rows of every class."""


@dataclass(frozen=True)
class Folds:
    """How the rows of all parties are dealt. Each party computes the folds of its own rows."""

    rows: tuple[int, ...]
    """The number of rows of each party."""
    split: str
    cv: int
    """The number of folds."""
    seed: int
    attempt: int = 0

    def of(self, index: int) -> Indices:
        """The fold of every row of that party, in equal parts."""
        by_columns = self.split == "features"
        later = [self.attempt] if self.attempt else []
        rng = np.random.default_rng([self.seed, 0 if by_columns else index, *later])
        first = 0 if by_columns else sum(self.rows[:index])
        if self.attempt:
            # Parties with few rows begin with different folds, so that none stays empty.
            first += int(rng.integers(self.cv))
        return rng.permutation((np.arange(self.rows[index]) + first) % self.cv)

    def all(self) -> list[Indices]:
        """The fold of every row of each party."""
        return [self.of(index) for index in range(len(self.rows))]

    @property
    def are_filled(self) -> bool:
        """Whether every fold has rows."""
        return _are_filled(self)

    def without(self, fold: int, site: Site) -> Table:
        """The rows of a party to learn from, where that fold is kept back."""
        return without(site.data, self.of(site.index), fold)

    def only(self, fold: int, site: Site) -> Table:
        """The rows of a party that are kept back."""
        return only(site.data, self.of(site.index), fold)


@lru_cache(maxsize=1)
def _are_filled(folds: Folds) -> bool:
    # All agents of this process ask for the same folds.
    counts = np.bincount(np.concatenate(folds.all()), minlength=folds.cv)
    return bool((counts > 0).all())


def deal_folds(
    tables: Sequence[Table], split: str, cv: int, seed: int, classes: npt.NDArray[Any] | None = None
) -> list[Indices]:
    """Deal the folds of all rows, where this process has all tables.

    Each fold has rows and, for a classifier, leaves rows of every class for the fit. If folds
    do not, the function deals again. The sorted labels correspond to the `classes`.
    """
    dealt = Folds(tuple(table.n for table in tables), split, cv, seed)
    if classes is None:
        return dealt.all()
    labels = [table.y for table in tables if table.y is not None]
    codes = np.unique(np.concatenate(labels))
    refuse_lonely([rows_of_classes(table.y, codes) for table in tables], classes, tables)
    for attempt in range(ATTEMPTS):
        folds = replace(dealt, attempt=attempt).all()
        whole = np.concatenate(folds[:1] if split == "features" else folds)
        if is_usable(counts_by_fold(np.concatenate(labels), whole, cv, codes)):
            return folds
    raise too_many(cv)


def too_many(cv: int) -> InvalidProblem:
    """Why there are no folds."""
    return InvalidProblem(
        f"cv={cv}: some fold would have no rows, or leave only one class for training. Give fewer "
        "folds."
    )


# -- classes ---------------------------------------------------------------------------------------


_LONELY = (
    "in the fold that keeps it back, no row of that class is left. Give more rows of the class, "
    "or leave cv out."
)


def rows_of_classes(y: npt.NDArray[Any] | None, codes: npt.NDArray[Any]) -> FloatArray:
    """How many rows of each class there are; the labels of some parties are elsewhere."""
    if y is None:
        return np.zeros(len(codes))
    counts: FloatArray = counts_by_fold(y, np.zeros(len(y), np.intp), 1, codes)[0]
    return counts


def refuse_lonely(
    counts: Sequence[FloatArray], classes: npt.NDArray[Any], parties: Sequence[Any]
) -> None:
    """Refuse a class with one row, from the counts of each party, which have names."""
    held = np.array(counts)
    for place in np.flatnonzero(held.sum(axis=0) < 2):
        name = classes[place : place + 1].tolist()[0]
        party = parties[int(held[:, place].argmax())].name
        raise InvalidData(f"class {name!r} has 1 row, at party {party!r}: {_LONELY}")


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
    """Return 1 where this party has at least `minimum` rows of a class outside a fold, else 0.

    The array has the shape folds × classes. Its sum over parties shows whether rows are left to fit
    a model, but not how many: a fold may have few rows of a class.
    """
    left = counts.sum(axis=0) - counts
    enough: FloatArray = (left >= max(minimum, 1)).astype(float)
    return enough


# -- queries and protocols -------------------------------------------------------------------------


def class_counts(codes: npt.NDArray[Any], site: Site) -> FloatArray:
    """Return the number of this party's rows of each class."""
    return rows_of_classes(site.data.y, codes)


@discloses(
    "for each fold and class: whether you have enough rows of the class outside the fold, as part "
    "of a sum",
    splits=("samples", "users"),
)
@discloses(
    "from the label party: whether the folds have all classes",
    splits=("features",),
    most=lambda case: (1, 1),
)
def rows_outside_folds(
    folds: Folds, codes: npt.NDArray[Any], classes: npt.NDArray[Any], site: Site
) -> Protocol[int | None]:
    """Return the first attempt at which every fold has rows, and leaves rows of every class.

    The result is None if no attempt has such folds.
    """
    by_columns = folds.split == "features"
    if by_columns and site.data.y is not None:
        refuse_lonely([class_counts(codes, site)], classes, [site.data])
    for attempt in range(ATTEMPTS):
        dealt = replace(folds, attempt=attempt)
        if by_columns:
            refusals = yield Sum(_refuses(dealt, codes, site))
            usable = not refusals[0]
        else:
            counts = counts_by_fold(site.data.y, dealt.of(site.index), dealt.cv, codes)
            parties = yield Sum(leaves_enough(counts, site.rules.minimum).ravel())
            usable = bool((parties > 0).all()) and dealt.are_filled
        if usable:
            return attempt
    return None


def _refuses(folds: Folds, codes: npt.NDArray[Any], site: Site) -> FloatArray:
    """Return 1 if this party has the labels and a fold is not usable, else 0; see `is_usable`."""
    if site.data.y is None:
        return np.zeros(1)
    counts = counts_by_fold(site.data.y, folds.of(site.index), folds.cv, codes)
    return np.array([float(not is_usable(counts))])


@discloses(
    "the loss of your rows, and how many they are, as part of a sum",
    splits=("samples", "users"),
    most=lambda case: (1, 2),
)
@discloses(
    "your partial scores of these rows, as part of a sum to the label party; from that their loss",
    "the score of each of these rows",
    splits=("features",),
    most=lambda case: (2, case.rows + 2),
)
def mean_loss(
    problem: AnyProblem,
    split: str,
    models: Mapping[int, FloatArray],
    labels_at: int | None,
    site: Site,
) -> Protocol[float]:
    """The mean loss over all rows: a `Sum` of two numbers, and one of the scores, to the agent
    with the labels, if split by features.

    `models` has the coefficients of each party; split by features, those of its own columns, which
    need not be centred, and its part of the intercept.
    """
    agent = agent_at(site, problem, split)
    w = models[site.index].astype(float)
    weight = agent.weight
    if split == "features":
        scores = yield Sum(product(agent.data.X, w[:-1]) + w[-1], to=labels_at)
        labelled = agent.data.y is not None
        losses = _losses_of_scores(agent, scores) if labelled else 0.0
        weight = weight if labelled else 0.0
    else:
        losses = problem.kind.local.losses(agent, w)
    lost, total = yield Sum(np.array([losses, weight]))
    return float(lost / total)


def _losses_of_scores(agent: Agent[AnyProblem], scores: FloatArray) -> float:
    losses: float = agent.loss.value(scores, agent.exact_labels, agent.data.weights)
    return losses


# -- one table -------------------------------------------------------------------------------------


def without(table: Table, own: Indices, fold: int) -> Table:
    """The rows to learn from, where that fold is kept back."""
    return table.take_rows(np.flatnonzero(own != fold))


def only(table: Table, own: Indices, fold: int) -> Table:
    """The rows that are kept back."""
    return table.take_rows(np.flatnonzero(own == fold))
