"""Choose a model for users as in `coterie.stats.choosing`, wherever their tables are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from coterie.api.result import Result
from coterie.api.solve import Given, fit, given_to, ready_for
from coterie.engines import engine as find_engine
from coterie.errors import UnknownName
from coterie.numerics.arrays import whole_number
from coterie.problems.personal.problem import Personal
from coterie.problems.problem import AnyProblem
from coterie.problems.shared.problem import Shared
from coterie.run.bill import Cost
from coterie.run.network import make_network
from coterie.run.parties import Hosted
from coterie.run.settings import GROUPS, Limits, Settings
from coterie.stats.choosing import BOOSTED, FOLDS, LINEAR, Choice, Trial
from coterie.stats.fitting import Ready
from coterie.stats.trying import Choose

EXACT = {"tol": Limits.tol, "max_rounds": 2000}
"""Settings of the final fit of a linear model: the default tolerance, which needs more rounds."""
KEYWORDS = GROUPS["limits"] | {
    *("agents", "engine", "threads", "link", "network", "seed", "secure_sums", "progress"),
    *("local_steps", "begin", "sample", "alternations"),
}
"""The keywords of `solve` that `choose` takes. The others belong to one method or to one fit."""


@dataclass(frozen=True)
class ChosenModel:
    """The model that was chosen for users, fitted to all rows, and the trials that led to it."""

    choice: str
    """The name of the chosen candidate."""
    result: Result
    trials: list[Trial]
    """One record for each candidate: its parameters, score, loss, bits and folds."""
    cost: Cost
    """The communication cost of all trials. That of the last fit is in `result.bill`."""

    def __str__(self) -> str:
        return str(self.result)


def choose(
    data: Any,
    *,
    loss: Any = "logistic",
    penalty: str = "l2",
    l1_ratio: float | None = None,
    boosted: Personal | None = None,
    folds: int = FOLDS,
    **settings: Any,
) -> ChosenModel:
    """Choose a model for users by cross-validation at the users, and fit it to all rows.

    Candidates are one linear model for all users ("pooled"), the same with an intercept for each
    user ("levels"), a common linear model with deviations ("shared"), and separate linear models
    ("alone"). With `boosted`, boosted models are candidates, too. The estimators
    `PersonalizedClassifier` and `PersonalizedRegressor` make the same choice.

    Parameters
    ----------
    data : list
        The data of each user, in the forms that `solve` takes with `split="users"`. A function is
        called where the agent of its user runs, and its table stays there.
    loss : str or Loss, default="logistic"
        The loss of linear models.
    penalty : str, default="l2"
        The penalty on the common model.
    l1_ratio : float, optional
        The share of the l1 norm in penalty "elasticnet".
    boosted : Personal, optional
        The problem of boosted models. Needs labels with two classes.
    folds : int, default=3
        Number of folds into which each user deals its rows.
    **settings
        Keywords of `solve`: the limits of the last fit (such as `tol`), `engine`, `threads`,
        `agents`, `link`, `seed`, `secure_sums` and `progress`. With `boosted` also `network` and
        the options `local_steps`, `begin`, `sample` and `alternations` of `dada`.

    Returns
    -------
    ChosenModel
        The choice, its result on all rows, the trials, and the communication cost of the trials.

    Raises
    ------
    InvalidProblem
        If the loss, the penalty and the data do not go together.
    UnknownName
        If a keyword is not among those above: candidates have methods of their own.

    Examples
    --------
    >>> import coterie as co, numpy as np
    >>> random = np.random.default_rng(0)
    >>> def rows(shift):
    ...     X = random.standard_normal((30, 2))
    ...     return X, X[:, 0] + shift
    >>> found = co.choose([rows(-3.0), rows(0.0), rows(3.0)], loss="squared")
    >>> found.choice, found.cost.messages > 0
    ('levels', True)
    """
    for name in sorted(settings.keys() - KEYWORDS):
        raise UnknownName("keyword of co.choose", name, KEYWORDS)
    given: dict[str, Any] = {"penalty": penalty}
    if l1_ratio is not None:
        given["l1_ratio"] = l1_ratio
    wanted: tuple[str, ...] = LINEAR
    if boosted is not None:
        wanted = (*LINEAR, *BOOSTED)
    asked = Settings.of(**{**EXACT, **settings, "split": "users"})
    chosen, cost = choose_for(
        data,
        folds=whole_number("folds", folds, least=2),
        loss=loss,
        penalty=given,
        personal=boosted,
        wanted=wanted,
        settings=asked,
    )
    result = chosen_fit(chosen, data, asked, linear={})
    return ChosenModel(chosen.candidate.choice, result, chosen.trials, cost)


def choose_for(
    data: Any,
    *,
    folds: int = FOLDS,
    loss: Any = "logistic",
    penalty: Mapping[str, Any],
    personal: Personal | None = None,
    wanted: tuple[str, ...] = LINEAR,
    settings: Settings,
) -> tuple[Choice, Cost]:
    """Choose the candidate with the best score on held-out rows of these users.

    Returns the choice and its communication cost.
    """
    operation = Choose(
        Shared(loss, **{**penalty, "strength": 1.0}, mu=1.0),
        _of_every_candidate(settings).but(progress=False),
        loss,
        penalty,
        personal,
        wanted,
        whole_number("cv", folds, least=2),
        settings,
    )
    with tables_of_kinds(operation, data) as tables:
        ready = tables.ready(operation.problem, operation.settings)
        return operation.of_parties(ready, tables.ready)


@dataclass
class TablesOfKinds:
    """The tables of all users. They are checked once for each kind of problem."""

    operation: Choose
    given: Given
    _ready: dict[str, Ready[Hosted]] = field(default_factory=dict)

    def ready(self, problem: AnyProblem, settings: Settings) -> Ready[Hosted]:
        """The users, ready for a fit of this problem, with the graph that the settings name."""
        kind = problem.kind.name
        if kind not in self._ready:
            operation = replace(self.operation, problem=problem, settings=settings)
            self._ready[kind] = ready_for(operation, self.given)
        ready = self._ready[kind]
        users = len(ready.parties.cards)
        return replace(ready, graph=make_network(settings.network, "users", users, settings.seed))


@contextmanager
def tables_of_kinds(operation: Choose, data: Any) -> Iterator[TablesOfKinds]:
    """Yield the tables. Until the context ends, workers keep what they have read."""
    placement = operation.settings.placement
    runner = find_engine(placement.engine, threads=placement.threads)
    with given_to(runner, data, placement.agents) as given:
        yield TablesOfKinds(operation, given)


def _of_every_candidate(settings: Settings) -> Settings:
    """The settings that all candidates share. Each candidate adds its own method and parameters."""
    return replace(
        Settings(),
        placement=settings.placement,
        seed=settings.seed,
        progress=settings.progress,
        secure_sums=settings.secure_sums,
    )


def chosen_fit(
    chosen: Choice, data: Any, settings: Settings, linear: Mapping[str, Any] = EXACT
) -> Result:
    """Fit the chosen candidate to all rows; `linear`: limits of the fit of a linear model."""
    candidate = chosen.candidate
    how = dict(candidate.how)
    if candidate.choice in LINEAR:
        how = {**linear, **how}
    settings = replace(_of_every_candidate(settings), limits=settings.limits).but(**how)
    result: Result = fit(candidate.problem, data, settings)
    # The caller did not name the method of the chosen candidate.
    explanation = result.explanation.replace(", as asked for", "")
    return replace(result, explanation=f"{explanation} {chosen}")
