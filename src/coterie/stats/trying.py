"""Choose a model for users: fit candidates to folds of their rows, wherever the users are.

Each user deals its own rows into folds. A candidate is fitted to all folds but one, and the users
predict that one. Parties add up the scores of users in sums.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np

from coterie.api.result import Result
from coterie.data import Table
from coterie.data.table import Indices
from coterie.numerics.arrays import FloatArray
from coterie.problems.personal.problem import Personal
from coterie.problems.problem import AnyProblem
from coterie.run.bill import Cost
from coterie.run.parties import Parties
from coterie.run.settings import Settings
from coterie.run.site import Site
from coterie.stats.choosing import (
    FOLDS,
    LINEAR,
    QUICK,
    Candidate,
    Choice,
    Marks,
    Scale,
    choose,
    deal_by_class,
    marks_of_rows,
    sums_of,
    sums_of_choice,
)
from coterie.stats.fitting import Fitting, Ready, fit, whole
from coterie.stats.folds import counts_by_fold, leaves_enough, only, without

FindReady = Callable[[AnyProblem, Settings], Ready[Parties]]
"""Finds the parties, with tables as agents of such a problem take them."""


@dataclass(frozen=True)
class Choose(Fitting[tuple[Choice, Cost]]):
    """Choose among models for users; `problem` and `settings` are what candidates have in
    common.
    """

    name: ClassVar[str] = "choose"
    discloses: ClassVar[tuple[Callable[..., Any], ...]] = (*Fitting.discloses, sums_of_choice)

    loss: Any = "logistic"
    penalty: Mapping[str, Any] | None = None
    personal: Personal | None = None
    wanted: tuple[str, ...] = LINEAR
    folds: int = FOLDS
    asked: Settings | None = None
    """The settings from which boosted candidates take their parameters."""
    among: bool = False
    """Whether the parties are organisations: then a fit that fails ends the choice."""

    def together(self, ready: Ready[Parties]) -> tuple[Choice, Cost]:
        return self.of_parties(ready, lambda problem, settings: ready)

    def of_parties(self, ready: Ready[Parties], find_ready: FindReady) -> tuple[Choice, Cost]:
        """The same, where candidates of other kinds take other tables."""
        dealing = Dealing(self.folds, self.settings.seed, ready.classes is not None)
        users = Users(ready, find_ready, self.settings, dealing, self.among)
        chosen = choose(
            users,
            Scale.of(users.add(users.seen(sums_of))),
            users.usable(),
            loss=self.loss,
            penalty=self.penalty,
            personal=self.personal if dealing.classes else None,
            wanted=self.wanted,
            settings=self.asked,
        )
        return chosen, users.cost


@dataclass(frozen=True)
class Dealing:
    """How each user deals its rows into folds."""

    folds: int
    seed: int
    classes: bool
    """Whether labels are classes. Users then deal rows class by class."""

    def of(self, site: Site) -> Indices:
        """The fold of each row of this user."""
        return deal_by_class(site.data, site.index, self.folds, self.seed, self.classes)

    def without(self, fold: int, site: Site) -> Table:
        """The rows to learn from, where that fold is kept back."""
        return without(site.data, self.of(site), fold)

    def only(self, fold: int, site: Site) -> Table:
        """The rows that are kept back."""
        return only(site.data, self.of(site), fold)

    def enough(self, site: Site) -> FloatArray:
        """Return 1 for each fold and class with enough rows of this user outside the fold, else
        0.
        """
        codes = np.array([-1.0, 1.0]) if self.classes else np.zeros(1)
        y = site.data.y if self.classes else None
        counts = counts_by_fold(y, self.of(site), self.folds, codes)
        return leaves_enough(counts, site.rules.minimum).ravel()


def _marks(model: Any, classes: bool, held: Table) -> FloatArray:
    """The score, the loss and the number of these rows of one user, summed over the rows."""
    right, losses = marks_of_rows(model, held, held.name, classes)
    return np.array([right.sum(), losses.sum(), held.n], float)


def _marks_at(model: Any, dealing: Dealing, fold: int, site: Site) -> FloatArray:
    """The same, of the rows of a user that this fold keeps back."""
    return _marks(model, dealing.classes, dealing.only(fold, site))


@dataclass(frozen=True)
class _Part:
    """One fold of the users."""

    kept: Ready[Parties]
    """The rows to learn from."""
    held: Sequence[Table]
    """The rows of each user that are kept back; none if they are at workers."""


@dataclass
class Users:
    """Users and their folds: all of them, or one among others."""

    ready: Ready[Parties]
    find_ready: FindReady
    settings: Settings
    """What all candidates have in common."""
    dealing: Dealing
    among: bool
    sent: Cost = field(default_factory=Cost)
    """The cost of the fits."""
    _parts: dict[tuple[str, int], _Part] = field(default_factory=dict)
    _last: dict[tuple[str, int], Result] = field(default_factory=dict)

    @property
    def folds(self) -> int:
        """The number of folds."""
        return self.dealing.folds

    @property
    def cost(self) -> Cost:
        """The cost of fits and sums."""
        total: Cost = self.ready.parties.bill.total
        return self.sent + total

    def seen(
        self, query: Callable[[Site], FloatArray], parties: Parties | None = None
    ) -> FloatArray:
        """The answers to a query, with a row for each user that this process sees."""
        answers = (parties or self.ready.parties).look(query)
        return np.array([answer for answer in answers if answer is not None], float)

    def marks(self, candidate: Candidate, fold: int) -> Marks:
        """Fit the candidate to the rows of all folds but one, and predict those of this one."""
        problem = candidate.problem
        settings = self.settings.but(**{**QUICK, **candidate.how})
        ready = self.find_ready(problem, settings)
        part = self._part(problem, fold, ready)
        key = problem.kind.name, fold
        before = None
        if candidate.choice in LINEAR:
            before = self._last.get(key)
        result = fit(part.kept, problem, settings, before=before, called=f"choice, fold {fold}")
        if self.among:
            result = whole(result)
        self._last[key] = result
        self.sent += result.bill.total
        if part.held:
            classes = self.dealing.classes
            marks = np.array([_marks(result.model, classes, table) for table in part.held])
        else:
            query = partial(_marks_at, result.model, self.dealing, fold)
            marks = self.seen(query, ready.parties)
        right, losses, rows = marks.T
        return Marks(right, losses, rows, result.bill.total.bits)

    def _part(self, problem: AnyProblem, fold: int, ready: Ready[Parties]) -> _Part:
        key = problem.kind.name, fold
        if key not in self._parts:
            kept = ready.map(partial(self.dealing.without, fold), part=f"without fold {fold}")
            sites = [site for site in ready.parties.sites if isinstance(site, Site)]
            held = [self.dealing.only(fold, site) for site in sites]
            self._parts[key] = _Part(kept, held)
        part = self._parts[key]
        return replace(part, kept=replace(part.kept, graph=ready.graph))

    def usable(self) -> bool:
        """Whether every fold leaves rows, and of every class some, to learn from."""
        return bool((self.add(self.seen(self.dealing.enough)) > 0).all())

    def add(self, numbers: FloatArray) -> FloatArray:
        """These numbers, with a row for each user that this process sees, summed over all users."""
        parties = self.ready.parties
        indices = [site.index for site in parties.sites]
        by_index = dict(zip(indices, numbers, strict=True))
        found = parties.run_protocol(partial(sums_of_choice, by_index), "proof")
        assert found is not None, "every party learns the sums"
        return found.astype(float)
