"""A whole path of penalty strengths, each answer starting from the last; and cross-validation at the parties.

Each party draws folds from its own rows (if split by features, all parties draw the same ones), models are fitted to
the rest, and only sums of losses travel, so no row moves for a score either.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path as FilePath
from typing import Any

import numpy as np
import numpy.typing as npt

from coterie.agent import Agent
from coterie.arrays import FloatArray, whole_number
from coterie.bill import Bill, Cost
from coterie.data import Table
from coterie.errors import InvalidData, InvalidProblem
from coterie.families import family_of, points_of
from coterie.problem import Problem
from coterie.result import Result
from coterie.session.setup import make_agents
from coterie.session.tables import attach_offset, count_rows, gather, prepare_tables
from coterie.solve import solve
from coterie.transport.in_process import InProcess
from coterie.words import Sum, Talk

ATTEMPTS = 1000
"""How often folds are dealt until each has rows and leaves rows of every class."""


@dataclass(frozen=True)
class Path:
    """One certified result per strength and, with cross-validation, the mean loss of every fold."""

    strengths: tuple[float, ...]
    results: tuple[Result, ...]
    scores: npt.NDArray[np.float64] | None = None
    """Mean loss on the rows kept back, folds × strengths; smaller is better."""
    validation: Cost = field(default_factory=Cost)
    """What the folds' fits and scores sent."""

    @property
    def total(self) -> Cost:
        """Everything that was sent: the fits of the path and the cross-validation."""
        return sum((result.bill.total for result in self.results), self.validation)

    @cached_property
    def best(self) -> int:
        """The place of the strength with the least mean score."""
        if self.scores is None:
            raise InvalidProblem("this path has no scores; call path(..., cv=5).")
        return int(self.scores.mean(axis=0).argmin())

    @property
    def best_strength(self) -> float:
        """The strength with the least mean score."""
        return self.strengths[self.best]

    @property
    def best_result(self) -> Result:
        """The result on all rows at the best strength."""
        return self.results[self.best]

    @property
    def coefficients(self) -> FloatArray:
        """One row of coefficients per strength."""
        return np.array([result.model.coef_ for result in self.results])


def path(
    problem: Problem,
    data: Any,
    strengths: Sequence[float],
    *,
    cv: int | None = None,
    offset: Any = None,
    split: str = "samples",
    agents: int | Sequence[Any] | None = None,
    seed: int = 0,
    **settings: Any,
) -> Path:
    """Solve for every strength in the given order (strong to weak is fastest), each from the last answer.

    cv        how many folds to score every strength with, on rows that were kept back at the parties
    settings  what `solve` takes
    """
    if not len(strengths):
        raise InvalidProblem("a path needs at least one strength, e.g. strengths=np.logspace(0, -3, 10).")
    cv, seed = None if cv is None else whole_number("cv", cv, least=2), whole_number("seed", seed, least=0)
    problems = [_with_strength(problem, strength) for strength in strengths]
    tables = gather(attach_offset(data, offset, split), split, agents, seed)
    rows = count_rows(tables, split)
    if cv is not None and cv > rows:
        raise InvalidProblem(f"{cv} folds need at least {cv} rows, but there are {rows}.")
    settings = {"split": split, "seed": seed, **settings}
    if cv is not None:
        everything, classes = prepare_tables(tables, problem, split)
        folds = deal_folds(everything, split, cv, seed, classes)
    results = _along(problems, tables, settings)
    scores, sent = None, Cost()
    if cv is not None:
        scores = np.empty((cv, len(problems)))
        for fold in range(cv):
            kept = [table.take_rows(np.flatnonzero(own != fold)) for table, own in zip(everything, folds, strict=True)]
            back = [table.take_rows(np.flatnonzero(own == fold)) for table, own in zip(everything, folds, strict=True)]
            for place, result in enumerate(_along(problems, kept, {**settings, "checkpoint": None})):
                bill = Bill(result.network)
                scores[fold, place] = _score(result, back, split, bill)
                sent += result.bill.total + bill.total
    return Path(tuple(map(float, strengths)), tuple(results), scores, sent)


def _with_strength(problem: Problem, strength: float) -> Problem:
    if not hasattr(getattr(problem, "penalty", None), "strength"):
        what = family_of(problem).words(problem)
        raise InvalidProblem(f"{what}: this penalty has no strength; use l1 or l2.")
    changed: Any = replace(problem.penalty, strength=float(strength))  # type: ignore[call-arg]
    return problem.changed(penalty=changed)


def _along(problems: Sequence[Problem], tables: list[Table], settings: dict[str, Any]) -> list[Result]:
    results: list[Result] = []
    folder = settings.get("checkpoint")
    for place, problem in enumerate(problems):
        own = {} if folder is None else {"checkpoint": FilePath(folder) / f"strength-{place:03d}"}
        results.append(solve(problem, tables, warm_start=results[-1] if results else None, **settings | own))
    return results


def deal_folds(
    tables: Sequence[Table], split: str, cv: int, seed: int, classes: npt.NDArray[Any] | None = None
) -> list[npt.NDArray[np.intp]]:
    """The fold of every row, in equal parts: drawn by each party, or by all alike where they hold the same rows.

    Each fold has rows and, for a classifier, leaves rows of every class to learn from; folds that do not are dealt
    again. The labels, sorted, stand for the `classes`.
    """
    labels = [table.y for table in tables if table.y is not None]
    if classes is not None:
        found, counts = np.unique(np.concatenate(labels), return_counts=True)
        for value, name in zip(found[counts < 2], classes[counts < 2].tolist(), strict=True):
            party = next(table.name for table in tables if table.y is not None and (table.y == value).any())
            raise InvalidData(
                f"class {name!r} has 1 row, at party {party!r}: in the fold that keeps it back, no row of that "
                "class is left. Give more rows of the class, or leave cv out."
            )
    for attempt in range(ATTEMPTS):
        folds = _dealt(tables, split, cv, seed, attempt)
        whole = np.concatenate(folds[:1] if split == "features" else folds)
        kept = [np.concatenate(labels)[whole != fold] for fold in range(cv)] if classes is not None else []
        if np.bincount(whole, minlength=cv).all() and all(len(np.unique(y)) == len(found) for y in kept):
            return folds
    raise InvalidProblem(
        f"cv={cv}: some fold would have no rows, or leave only one class for training. Give fewer folds."
    )


def _dealt(tables: Sequence[Table], split: str, cv: int, seed: int, attempt: int) -> list[npt.NDArray[np.intp]]:
    folds, before = [], 0
    for index, table in enumerate(tables):
        rng = np.random.default_rng([seed, 0 if split == "features" else index, *[attempt] * (attempt > 0)])
        # Parties with few rows begin with different folds, so that none stays empty.
        first = before + int(rng.integers(cv)) if attempt else before
        folds.append(rng.permutation((np.arange(table.n) + first) % cv))
        before += 0 if split == "features" else table.n
    return folds


def _score(result: Result, back: list[Table], split: str, bill: Bill) -> float:
    agents = make_agents(back, result.model.problem, split, result.network, 0)
    transport = InProcess(result.network, bill, secure_sums=bool(result.certificate.settings.get("secure_sums")))
    talks = [_mean_loss(agent, point.w) for agent, point in zip(agents, points_of(result.model, agents), strict=True)]
    return transport.converse(talks, "proof")[0]


def _mean_loss(agent: Agent, w: FloatArray) -> Talk[float]:
    """The mean loss of a model over all rows: a `Sum` of two numbers, and one of the scores if split by features."""
    if agent.split == "features":
        scores = yield Sum(agent.design.forward(w.astype(float)))
        here = agent.data.y is not None
        mine = agent.loss.value(scores, agent.exact_labels, agent.data.weights) if here else 0.0
        weight = agent.weight if here else 0.0
    else:
        mine, weight = agent.at(w.astype(float)).losses, agent.weight
    losses, total = yield Sum(np.array([mine, weight]))
    return float(losses / total)
