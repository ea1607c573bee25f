"""A path of strengths: each model is fitted from the last one, and strengths are scored on folds.

strengths, or a grid ─→ a fit for each ─→ for each fold: fits to the other rows ─→ mean losses
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path as FilePath
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from coterie.api.result import Result
from coterie.data import Table
from coterie.data.table import columns_of
from coterie.errors import InvalidProblem
from coterie.numerics.arrays import FloatArray
from coterie.numerics.losses import Fit
from coterie.problems import points_of
from coterie.problems.parts.data import by_rows, on_the_host
from coterie.problems.problem import AnyProblem, Problem
from coterie.run.bill import Cost
from coterie.run.finish import agent_form_at
from coterie.run.method_choice import AUTO
from coterie.run.parties import Parties
from coterie.run.settings import Settings
from coterie.run.site import Site
from coterie.stats.fitting import Fitting, Ready, fit, is_on_tensors, whole
from coterie.stats.folds import (
    Folds,
    class_counts,
    mean_loss,
    refuse_lonely,
    rows_outside_folds,
    too_many,
)
from coterie.stats.strengths import COUNT, grid_of_strengths, knob, with_strength


@dataclass(frozen=True)
class Followed:
    """A result for each strength, and how they did."""

    strengths: tuple[float, ...]
    results: tuple[Result, ...]
    scores: npt.NDArray[np.float64] | None
    """The mean loss on the rows that were kept back, folds × strengths."""
    validation: Cost
    """The cost of folds, of a grid and of a preparation."""


def folder_of(place: int) -> str:
    """The name of the folder with the result at one strength."""
    return f"strength-{place:03d}"


@dataclass(frozen=True)
class FollowPath(Fitting[Followed]):
    """Fit a model at every strength, each from the one before; with folds, score the strengths on
    rows that were kept back.
    """

    name: ClassVar[str] = "path"
    discloses: ClassVar[tuple[Callable[..., Any], ...]] = (
        *Fitting.discloses,
        rows_outside_folds,
        grid_of_strengths,
        mean_loss,
    )

    problem: Problem[Fit]
    strengths: tuple[float, ...] | None = None
    """None: as many as `count`, from the data."""
    count: int = COUNT
    cv: int | None = None
    """The number of folds; None: the strengths are not scored."""
    among: bool = False
    """Whether the parties are organisations: then a fit that fails ends the path."""

    def together(self, ready: Ready[Parties]) -> Followed:
        parties = ready.parties
        if ready.sent is not None:
            parties.bill.restore(ready.sent)
        ready = replace(ready, sent=None)
        reachable = self._within_reach(ready)
        folds = None if self.cv is None else self._folds(reachable, self.cv)
        strengths = self.strengths or self._grid(reachable)
        problems = [with_strength(self.problem, strength) for strength in strengths]
        results = self._results(ready, problems)
        scores, sent = None, Cost()
        if folds is not None:
            scores, sent = self._scores(reachable, problems, results, folds)
        validation = sent + parties.bill.total
        return Followed(strengths, tuple(results), scores, validation)

    def _within_reach(self, ready: Ready[Parties]) -> Ready[Parties]:
        """The parties with tables of which any method can take a part: tensors on the host."""
        tables = [site.data for site in ready.parties.sites]
        stay = self.problem.kind.data.on_device(ready.parties.split, False)
        if stay or not any(is_on_tensors(table) for table in tables):
            return ready
        return ready.map(_on_the_host)

    # -- strengths ---------------------------------------------------------------------------------

    def _grid(self, ready: Ready[Parties]) -> tuple[float, ...]:
        """The strengths that suit the data."""
        problem, seed = ready.known(self.problem), self.settings.seed
        asked = partial(grid_of_strengths, problem, self.count, seed)
        found = ready.parties.run_protocol(asked, "setup")
        assert found is not None, "every party learns the strengths"
        return found

    def _results(self, ready: Ready[Parties], problems: Sequence[Problem[Fit]]) -> list[Result]:
        """A result for each problem, each from the one before."""
        results: list[Result] = []
        for place, problem in enumerate(problems):
            name, strength = _strength_of(problem)
            title = f"{name} {place + 1} of {len(problems)}: {strength:.4g}"
            settings = self._at(place, ready)
            results.append(self._fit(ready, problem, settings, results, title=title))
        return results

    def _at(self, place: int, ready: Ready[Parties]) -> Settings:
        """The settings of one strength, with a folder of its own for checkpoints."""
        settings = self.settings
        if not self.among:
            # Certificates name the numbers of the preparation, which are of the rows of all folds.
            settings = settings.but(prepare=ready.prepared)
        if settings.checkpoint is None:
            return settings
        return settings.but(checkpoint=FilePath(settings.checkpoint) / folder_of(place))

    def _fit(
        self,
        ready: Ready[Parties],
        problem: Problem[Fit],
        settings: Settings,
        results: Sequence[Result],
        **names: str,
    ) -> Result:
        """The next result, from the last one; `names` are those that `fit` takes."""
        before = results[-1] if results else None
        result = fit(ready, problem, settings, before=before, **names)
        return whole(result) if self.among else result

    # -- folds -------------------------------------------------------------------------------------

    def _folds(self, ready: Ready[Parties], cv: int) -> Folds:
        """Folds that have rows and, where labels are classes, leave rows of every class."""
        parties, classes = ready.parties, ready.classes
        rows = tuple(card.rows for card in parties.cards)
        total = rows[0] if parties.split == "features" else sum(rows)
        if cv > total:
            raise InvalidProblem(f"{cv} folds need at least {cv} rows, but there are {total}.")
        folds = Folds(rows, parties.split, cv, self.settings.seed)
        if classes is None:
            return folds
        codes = self.problem.kind.data.codes(classes)
        counts = parties.look(partial(class_counts, codes))
        known = [own for own in counts if own is not None]
        if len(known) == len(counts):
            refuse_lonely(known, classes, parties.cards)
        asked = partial(rows_outside_folds, folds, codes, classes)
        attempt = parties.run_protocol(asked, "setup")
        if attempt is None:
            raise too_many(cv)
        return replace(folds, attempt=attempt)

    def _scores(
        self,
        ready: Ready[Parties],
        problems: Sequence[Problem[Fit]],
        results: Sequence[Result],
        folds: Folds,
    ) -> tuple[npt.NDArray[np.float64], Cost]:
        """The mean loss of every fold and strength, and the cost of the fits."""
        sent = Cost()
        scores = np.empty((folds.cv, len(problems)))
        for fold in range(folds.cv):
            learning = ready.map(partial(folds.without, fold), "learning")
            held_out = ready.map(partial(folds.only, fold), "held out")
            fitted: list[Result] = []
            for place, problem in enumerate(problems):
                settings = self._of_fold(results[place])
                names = _names_of_fold(fold, folds.cv, place)
                fitted.append(self._fit(learning, problem, settings, fitted, **names))
                scores[fold, place] = _score(held_out, problem, fitted[-1])
                sent += fitted[-1].bill.total
        return scores, sent

    def _of_fold(self, result: Result) -> Settings:
        """The settings without a fold: the method that was chosen for all rows."""
        settings = self.settings.but(checkpoint=None)
        if settings.algorithm.method != AUTO:
            return settings
        return settings.but(method=result.certificate.settings["method"]["name"])


def _names_of_fold(fold: int, count: int, place: int) -> dict[str, str]:
    """What the fit at one strength is called; the first one is announced."""
    names = {"called": f"fold {fold} of {count}"}
    if place == 0:
        names["title"] = f"fold {fold + 1} of {count}"
    return names


def _on_the_host(site: Site) -> Table:
    return by_rows(on_the_host([site.data])[0])


def _strength_of(problem: Problem[Fit]) -> tuple[str, float]:
    """The name and the value of what a path varies."""
    settings = problem.penalty.settings()
    name = knob(settings)
    return name, float(settings[name])


def _score(held_out: Ready[Parties], problem: Problem[Fit], result: Result) -> float:
    """The mean loss on the rows that are kept back, at all parties."""
    parties = held_out.parties
    known = held_out.known(problem)
    models = _models(parties, known, result.model)
    labels_at = None
    if parties.split == "features":
        labels_at = next(k for k, card in enumerate(parties.cards) if card.outputs is not None)
    protocol = partial(mean_loss, known, parties.split, models, labels_at)
    found = parties.run_protocol(protocol, "proof")
    assert found is not None, "every party learns the mean loss"
    return found


def _models(parties: Parties, problem: AnyProblem, model: Any) -> dict[int, FloatArray]:
    """The coefficients of each party that is known here; split by features, of its own columns, and
    the intercept where the labels are.
    """
    sites = parties.sites
    if parties.split != "features":
        agents = [agent_form_at(site, problem, parties.split) for site in sites]
        points = points_of(model, agents, answers=parties.answers)
        return {site.index: point.w for site, point in zip(sites, points, strict=True)}
    if model.part is not None:
        return {site.index: np.append(model.coef_, model.intercept_) for site in sites}
    found = {}
    for site, block in zip(sites, columns_of([site.data for site in sites]), strict=True):
        intercept = 0.0 if site.data.outputs is None else model.intercept_
        found[site.index] = np.append(model.coef_[block], intercept)
    return found
