"""Choose a model for users as in `coterie.stats.choosing`, with the rows of all users in this
process.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy.typing as npt

from coterie.api.result import Result
from coterie.api.solve import fit, ready_locally
from coterie.data import Table
from coterie.numerics.arrays import whole_number
from coterie.problems.personal.problem import Personal
from coterie.problems.problem import AnyProblem
from coterie.problems.shared.problem import Shared
from coterie.run.network import make_network
from coterie.run.parties import Hosted
from coterie.run.settings import Limits, Settings
from coterie.stats.choosing import BOOSTED, FOLDS, LINEAR, Choice
from coterie.stats.fitting import Ready
from coterie.stats.trying import Choose

EXACT = {"tol": Limits.tol, "max_rounds": 2000}
"""Settings of the final fit of a linear model: the default tolerance, which needs more rounds."""


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
    """Choose the candidate with the best score on held-out rows of these users."""
    folds = whole_number("cv", folds, least=2)
    penalty = penalty or {"penalty": "l2"}
    if classes is None:
        personal = None
    operation = Choose(
        Shared(loss, **{**penalty, "strength": 1.0}, mu=1.0),
        _of_every_candidate(settings).but(progress=False),
        loss,
        penalty,
        personal,
        tuple(wanted),
        folds,
        settings,
    )
    tables_of = TablesOfKinds(tables)
    ready = tables_of.ready(operation.problem, operation.settings)
    engine = ready.parties.engine
    with engine.cores(), engine.held():
        return operation.of_parties(ready, tables_of.ready)[0]


@dataclass
class TablesOfKinds:
    """The tables of all users. They are checked once for each kind of problem."""

    tables: Sequence[Table]
    _ready: dict[str, Ready[Hosted]] = field(default_factory=dict)

    def ready(self, problem: AnyProblem, settings: Settings) -> Ready[Hosted]:
        """The users, ready for a fit of this problem, with the graph that the settings name."""
        kind = problem.kind.name
        if kind not in self._ready:
            self._ready[kind] = ready_locally(problem, self.tables, settings)
        graph = make_network(settings.network, "users", len(self.tables), settings.seed)
        return replace(self._ready[kind], graph=graph)


def _of_every_candidate(settings: Settings) -> Settings:
    """The settings that all candidates share. Each candidate adds its own method and parameters."""
    placement, seed = settings.placement, settings.seed
    return replace(Settings(), placement=placement, seed=seed, progress=settings.progress)


def chosen_fit(chosen: Choice, tables: Sequence[Table], settings: Settings) -> Result:
    """Fit the chosen candidate to all rows."""
    candidate = chosen.candidate
    how = dict(candidate.how)
    if candidate.choice in LINEAR:
        how = {**EXACT, **how}
    settings = replace(_of_every_candidate(settings), limits=settings.limits).but(**how)
    result: Result = fit(candidate.problem, list(tables), settings)
    # The caller did not name the method of the chosen candidate.
    explanation = result.explanation.replace(", as asked for", "")
    return replace(result, explanation=f"{explanation} {chosen}")
