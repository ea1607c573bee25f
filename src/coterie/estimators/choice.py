"""The choice of `coterie.stats.choosing`, where the rows of all users are here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from coterie.api.result import Result
from coterie.api.solve import fit
from coterie.data import Table
from coterie.estimators.direct import Direct, suits
from coterie.numerics.arrays import FloatArray, whole_number
from coterie.problems.personal.problem import Personal
from coterie.problems.shared.problem import Shared
from coterie.run.settings import Limits, Settings
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
    marks_of,
    sums_of,
)
from coterie.stats.choosing import choose as choose_with
from coterie.stats.folds import only, without

EXACT = {"tol": Limits.tol, "max_rounds": 2000}
"""Of the last fit of linear models, which takes a few rounds more."""


class Everybody:
    """All users: their rows, and which are kept back in which fold."""

    def __init__(
        self,
        tables: Sequence[Table],
        classes: npt.NDArray[Any] | None,
        folds: int,
        settings: Settings,
    ):
        self.tables, self.classes, self.settings, self.folds = tables, classes, settings, folds
        stratified = classes is not None
        fold_of = [
            deal_by_class(table, index, folds, settings.seed, stratified)
            for index, table in enumerate(tables)
        ]
        self._parts = [
            [
                (without(table, own, fold), only(table, own, fold))
                for table, own in zip(tables, fold_of, strict=True)
            ]
            for fold in range(folds)
        ]
        self._last: dict[tuple[str, int], Result] = {}
        self._direct: dict[int, Direct] = {}

    def usable(self) -> bool:
        """Whether every fold leaves rows, and of every class some, to learn from."""
        for parts in self._parts:
            labels = np.concatenate([kept.y for kept, _ in parts if kept.y is not None])
            if not len(labels) or (
                self.classes is not None and len(np.unique(labels)) < len(self.classes)
            ):
                return False
        return True

    def marks(self, candidate: Candidate, fold: int) -> Marks:
        parts, key = self._parts[fold], (candidate.problem.kind.name, fold)
        positive = None if self.classes is None else self.classes[1]
        if self.settings.placement.engine == "local" and suits(candidate.problem, self.tables):
            if fold not in self._direct:
                self._direct[fold] = Direct(parts, positive)
            assert isinstance(candidate.problem, Shared)
            return self._direct[fold].marks(candidate.problem)
        before = self._last.get(key) if candidate.problem.kind.name == "shared" else None
        settings = self.settings.but(**{**QUICK, **candidate.how})
        result: Result = fit(
            candidate.problem, [kept for kept, _ in parts], settings, warm_start=before
        )
        self._last[key] = result
        found = np.array([marks_of(result.model, held, positive) for _, held in parts])
        return Marks(found[:, 0], found[:, 1], found[:, 2], result.bill.total.bits)

    def add(self, numbers: FloatArray) -> FloatArray:
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
    holder = Everybody(tables, classes, folds, _of_every_candidate(settings).but(progress=False))
    scale, boosted = Scale.of(sums_of(tables)), personal if classes is not None else None
    return choose_with(
        holder,
        scale,
        holder.usable(),
        loss=loss,
        penalty=penalty,
        personal=boosted,
        wanted=wanted,
        settings=settings,
    )


def _of_every_candidate(settings: Settings) -> Settings:
    """What candidates have in common: their methods, and parameters of these, are their own."""
    return replace(
        Settings(), placement=settings.placement, seed=settings.seed, progress=settings.progress
    )


def chosen_fit(chosen: Choice, tables: Sequence[Table], settings: Settings) -> Result:
    """The choice, fitted to all rows."""
    candidate = chosen.candidate
    exact = EXACT if candidate.problem.kind.name == "shared" else {}
    settings = replace(_of_every_candidate(settings), limits=settings.limits).but(
        **{**exact, **candidate.how}
    )
    result: Result = fit(candidate.problem, list(tables), settings)
    # The method of the choice was not asked for.
    return replace(
        result, explanation=f"{result.explanation.replace(', as asked for', '')} {chosen}"
    )
