"""Choose a model for users: fit candidates to folds of their rows, wherever the users are.

Each user deals its own rows into folds. A candidate is fitted to all folds but one, and the users
predict that one. Where all users are in one process, it adds up how they did; organisations send
sums.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from coterie.api.result import Result
from coterie.data import Table
from coterie.data.table import Indices
from coterie.numerics.arrays import FloatArray, is_sparse
from coterie.problems.personal.problem import Personal
from coterie.problems.problem import AnyProblem
from coterie.run.bill import Cost
from coterie.run.parties import Parties
from coterie.run.settings import Settings
from coterie.run.site import Site, local_sites
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
        users = Users(ready, find_ready, self.settings, self.folds, self.among)
        chosen = choose(
            users,
            Scale.of(users.add(sums_of(users.tables))),
            users.usable(),
            loss=self.loss,
            penalty=self.penalty,
            personal=self.personal,
            wanted=self.wanted,
            settings=self.asked,
        )
        return chosen, users.cost


@dataclass(frozen=True)
class _Part:
    """One fold of the users that are here."""

    kept: Ready[Parties]
    """The rows to learn from."""
    held: Table
    """The rows that are kept back."""
    users: npt.NDArray[Any]
    """The user of each of these rows."""
    places: Indices
    """The user's place among those here."""


@dataclass
class Users:
    """Users and their folds: all of them, or one among others."""

    ready: Ready[Parties]
    find_ready: FindReady
    settings: Settings
    """What all candidates have in common."""
    folds: int
    among: bool
    sent: Cost = field(default_factory=Cost)
    """The cost of the fits."""
    _parts: dict[tuple[str, int], _Part] = field(default_factory=dict)
    _last: dict[tuple[str, int], Result] = field(default_factory=dict)

    @property
    def tables(self) -> list[Table]:
        """The tables of the users that are here."""
        return [site.data for site in local_sites(self.ready.parties.sites)]

    @property
    def cost(self) -> Cost:
        """The cost of fits and sums."""
        total: Cost = self.ready.parties.bill.total
        return self.sent + total

    def marks(self, candidate: Candidate, fold: int) -> Marks:
        """Fit the candidate to the rows of all folds but one, and predict those of this one."""
        problem = candidate.problem
        settings = self.settings.but(**{**QUICK, **candidate.how})
        part = self._part(problem, fold, settings)
        key = problem.kind.name, fold
        before = None
        if candidate.choice in LINEAR:
            before = self._last.get(key)
        result = fit(part.kept, problem, settings, before=before, called=f"choice, fold {fold}")
        if self.among:
            result = whole(result)
        self._last[key] = result
        self.sent += result.bill.total
        found = marks_of_rows(result.model, part.held, part.users, self.ready.classes is not None)
        count = len(self.tables)
        right, losses = (np.bincount(part.places, one, count).astype(float) for one in found)
        rows = np.bincount(part.places, minlength=count).astype(float)
        return Marks(right, losses, rows, result.bill.total.bits)

    def _part(self, problem: AnyProblem, fold: int, settings: Settings) -> _Part:
        key = problem.kind.name, fold
        ready = self.find_ready(problem, settings)
        if key not in self._parts:
            sites = local_sites(ready.parties.sites)
            held = [only(site.data, self._folds_of(site), fold) for site in sites]
            places = np.repeat(np.arange(len(held)), [table.n for table in held])
            users = np.array([site.data.name for site in sites])[places]
            kept = ready.map(partial(self._kept, fold))
            self._parts[key] = _Part(kept, _stacked(held), users, places)
        part = self._parts[key]
        return replace(part, kept=replace(part.kept, graph=ready.graph))

    def _folds_of(self, site: Site) -> Indices:
        classes = self.ready.classes is not None
        return deal_by_class(site.data, site.index, self.folds, self.settings.seed, classes)

    def _kept(self, fold: int, site: Site) -> Table:
        return without(site.data, self._folds_of(site), fold)

    def usable(self) -> bool:
        """Whether every fold leaves rows, and of every class some, to learn from."""
        classes = self.ready.classes
        codes = np.zeros(1)
        if classes is not None:
            codes = np.array([-1.0, 1.0])
        enough = np.zeros((self.folds, len(codes)))
        for site in local_sites(self.ready.parties.sites):
            y = None if classes is None else site.data.y
            counts = counts_by_fold(y, self._folds_of(site), self.folds, codes)
            enough += leaves_enough(counts, site.rules.minimum)
        return bool((self.add(enough.ravel()) > 0).all())

    def add(self, numbers: FloatArray) -> FloatArray:
        """These numbers, which are of the users here, added to those of all others."""
        parties = self.ready.parties
        if len(parties.sites) == len(parties.cards):
            return numbers
        found = parties.run_protocol(partial(sums_of_choice, numbers), "proof")
        assert found is not None, "every party learns the sums"
        return found.astype(float)


def _stacked(tables: list[Table]) -> Table:
    """The rows of several users as one table."""
    rows = [table.X for table in tables]
    if is_sparse(rows[0]):
        X = sp.vstack(rows, format="csr")
    else:
        X = np.concatenate(rows)
    return Table(X, np.concatenate([table.y for table in tables if table.y is not None]))
