"""The choice of `coterie.stats.choosing`, if the rows of all users are in this process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from coterie.api.result import Result
from coterie.api.solve import fit, fit_ready, ready_here
from coterie.data import Table
from coterie.numerics.arrays import FloatArray, is_sparse, whole_number
from coterie.problems.personal.problem import Personal
from coterie.run.parties import Hosted
from coterie.run.settings import Limits, Settings
from coterie.run.site import Site
from coterie.stats.choosing import (
    BOOSTED,
    FOLDS,
    LINEAR,
    QUICK,
    Candidate,
    Choice,
    Marks,
    Scale,
    deal_by_class,
    marks_of_rows,
    sums_of,
)
from coterie.stats.choosing import choose as choose_with
from coterie.stats.fitting import Ready
from coterie.stats.folds import only, without

EXACT = {"tol": Limits.tol, "max_rounds": 2000}
"""Settings of the last fit of a linear model, which takes a few rounds more."""


@dataclass(frozen=True)
class _Part:
    """One fold of all users."""

    kept: Ready[Hosted]
    """The rows to learn from."""
    held: Table
    """The rows that are kept back, of all users together."""
    users: npt.NDArray[Any]
    """The user of each of these rows."""
    places: npt.NDArray[np.intp]
    """The user's place among all."""


class UsersHere:
    """Users whose rows are all in this process. Each fold keeps back some rows of each user."""

    def __init__(
        self,
        tables: Sequence[Table],
        classes: npt.NDArray[Any] | None,
        folds: int,
        settings: Settings,
    ):
        self.tables = tables
        self.classes = classes
        self.folds = folds
        self.settings = settings
        self._fold_of = [
            deal_by_class(table, index, folds, settings.seed, classes is not None)
            for index, table in enumerate(tables)
        ]
        self._parts: dict[tuple[str, int], _Part] = {}
        self._ready: dict[str, Ready[Hosted]] = {}
        self._last: dict[tuple[str, int], Result] = {}

    def usable(self) -> bool:
        """Whether every fold leaves rows of each class to learn from."""
        labels = np.concatenate([table.y for table in self.tables if table.y is not None])
        fold_of = np.concatenate(self._fold_of)
        for fold in range(self.folds):
            kept = labels[fold_of != fold]
            if not len(kept):
                return False
            if self.classes is not None and len(np.unique(kept)) < len(self.classes):
                return False
        return True

    def marks(self, candidate: Candidate, fold: int) -> Marks:
        """Fit the candidate to the rows of all folds but one, and predict those of this one."""
        problem = candidate.problem
        key = problem.kind.name, fold
        settings = self.settings.but(**{**QUICK, **candidate.how})
        if key not in self._parts:
            self._parts[key] = self._part(problem, fold, settings)
        part = self._parts[key]
        before = None
        if problem.kind.name == "shared":
            before = self._last.get(key)
        result = fit_ready(part.kept, problem, settings, before)
        self._last[key] = result
        found = marks_of_rows(result.model, part.held, part.users, self.classes is not None)
        count = len(self.tables)
        right, losses = (np.bincount(part.places, one, count).astype(float) for one in found)
        rows = np.bincount(part.places, minlength=count).astype(float)
        return Marks(right, losses, rows, result.bill.total.bits)

    def _part(self, problem: Any, fold: int, settings: Settings) -> _Part:
        kind = problem.kind.name
        if kind not in self._ready:
            self._ready[kind] = ready_here(problem, self.tables, settings)
        ready = self._ready[kind]
        held = [only(site.data, self._fold_of[site.index], fold) for site in ready.parties.sites]
        rows = [table.X for table in held]
        if is_sparse(rows[0]):
            X = sp.vstack(rows, format="csr")
        else:
            X = np.concatenate(rows)
        y = np.concatenate([table.y for table in held if table.y is not None])
        places = np.repeat(np.arange(len(held)), [table.n for table in held])
        users = np.array([table.name for table in held])[places]
        return _Part(ready.map(partial(self._kept, fold)), Table(X, y), users, places)

    def _kept(self, fold: int, site: Site) -> Table:
        return without(site.data, self._fold_of[site.index], fold)

    def add(self, numbers: FloatArray) -> FloatArray:
        """The numbers as they are: all users are in this process."""
        return numbers


def choose(
    tables: Sequence[Table],
    classes: npt.NDArray[Any] | None,
    *,
    folds: int = FOLDS,
    loss: Any = "logistic",
    penalty: Mapping[str, Any] | None = None,
    personal: Personal | None = None,
    wanted: Sequence[str] = (*LINEAR, *BOOSTED),
    settings: Settings,
) -> Choice:
    """The candidate that does best on rows kept back at these users."""
    folds = whole_number("cv", folds, least=2)
    holder = UsersHere(tables, classes, folds, _of_every_candidate(settings).but(progress=False))
    if classes is None:
        personal = None
    return choose_with(
        holder,
        Scale.of(sums_of(tables)),
        holder.usable(),
        loss=loss,
        penalty=penalty,
        personal=personal,
        wanted=wanted,
        settings=settings,
    )


def _of_every_candidate(settings: Settings) -> Settings:
    """The settings that candidates share: each has its own method, with its parameters."""
    placement, seed = settings.placement, settings.seed
    return replace(Settings(), placement=placement, seed=seed, progress=settings.progress)


def chosen_fit(chosen: Choice, tables: Sequence[Table], settings: Settings) -> Result:
    """The choice, fitted to all rows."""
    candidate = chosen.candidate
    how = dict(candidate.how)
    if candidate.problem.kind.name == "shared":
        how = {**EXACT, **how}
    settings = replace(_of_every_candidate(settings), limits=settings.limits).but(**how)
    result: Result = fit(candidate.problem, list(tables), settings)
    # The user did not ask for the method of the choice.
    explanation = result.explanation.replace(", as asked for", "")
    return replace(result, explanation=f"{explanation} {chosen}")
