"""Which model suits these users: chosen by cross-validation at the users.

Every user deals its own rows into folds, class by class, and learns with the others from all folds but one; what it
gets right on that one is averaged over folds. Only these averages leave a user, to be averaged over users. The
candidates, from the simplest on:

| choice   | model                                                                                                    |
|----------|----------------------------------------------------------------------------------------------------------|
| pooled   | one linear model for all                                                                                 |
| levels   | the same, with an intercept of its own for every user                                                    |
| shared   | a common linear model, and coefficients of every user that deviate from it                               |
| alone    | linear models of every user, which have next to nothing in common                                        |
| global   | one boosted model for all                                                                                |
| local    | boosted models of every user alone                                                                       |
| dada     | boosted models of every user, near those of similar users, who are found out                             |
| dada-linear | linear models, likewise (`perso-linear`)                                                              |

The prices of linear models are chosen by the loss on rows kept back, which is less noisy than a count of errors;
between the candidates, right answers decide, and of those that do as well up to noise, the simplest.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from coterie.arrays import FloatArray, is_sparse, whole_number
from coterie.data import Table
from coterie.errors import InvalidProblem
from coterie.personal import Personal, Shared
from coterie.problem import Problem
from coterie.result import Result
from coterie.solve import solve

Trial = dict[str, Any]
"""What was tried: `choice`, its parameters, `score` (accuracy, or minus the mean square error, averaged over users),
`loss` on rows kept back, and the `bits` of all its fits."""
STRENGTHS = (3e-2, 3e-3, 3e-4)
"""λ of the common model, in units of the columns' variance."""
PRICES = (3.0, 1.0, 0.3, 0.1, 0.03, 0.01, 0.003)
"""μ times the number of users, in the same units; ν likewise, in units of 1."""
NOTHING_IN_COMMON = 1e3
"""λ of a common model that is next to nothing, in the same units."""
BOOSTED = ("global", "local", "dada", "dada-linear")
LINEAR = ("pooled", "levels", "shared", "alone")
BEHIND = 0.04
"""A candidate that is so far behind after the first fold is not tried on the others."""
NOISE = 0.5
"""Of candidates that differ by less than so many standard errors, the simpler one is taken."""
TOLERANCE, ROUNDS = 1e-3, 120
"""Of fits of which only predictions on rows kept back are wanted."""


@dataclass(frozen=True)
class Candidate:
    """A problem and the way to solve it."""

    choice: str
    problem: Problem
    how: Mapping[str, Any] = field(default_factory=dict)
    parameters: Mapping[str, float] = field(default_factory=dict)


@dataclass
class Tried:
    """How a candidate did on rows kept back: a mean per user that has some, and over folds."""

    candidate: Candidate
    right: FloatArray
    """Σ over folds of what a user gets right, or of minus its square errors."""
    losses: FloatArray
    rows: FloatArray
    bits: float
    folds: int

    @property
    def per_user(self) -> FloatArray:
        """The score of every user that has rows."""
        seen = self.rows > 0
        scores: FloatArray = self.right[seen] / self.rows[seen]
        return scores

    @property
    def score(self) -> float:
        """Averaged over users."""
        return float(self.per_user.mean())

    @property
    def score_or_all(self) -> float:
        """The same; before the first fold, no bound is too high."""
        return self.score if self.folds else math.inf

    @property
    def loss(self) -> float:
        """Averaged over users."""
        seen = self.rows > 0
        return float((self.losses[seen] / self.rows[seen]).mean())

    def trial(self) -> Trial:
        """As people read it."""
        told = {"choice": self.candidate.choice, **self.candidate.parameters}
        return {**told, "score": self.score, "loss": self.loss, "bits": self.bits, "folds": self.folds}


@dataclass(frozen=True)
class Choice:
    """What was chosen, and everything that was tried."""

    candidate: Candidate
    trials: list[Trial]

    def __str__(self) -> str:
        best: dict[str, float] = {}
        for trial in self.trials:
            best[trial["choice"]] = max(trial["score"], best.get(trial["choice"], -math.inf))
        told = ", ".join(f"{name} {score:.3f}" for name, score in best.items())
        return f"{self.candidate.choice} was chosen by cross-validation at the users ({told})."


def deal_by_class(tables: Sequence[Table], folds: int, seed: int, classes: bool) -> list[npt.NDArray[np.intp]]:
    """The fold of every row: each user deals its own, class by class, beginning at a fold of its own."""
    dealt = []
    for index, table in enumerate(tables):
        rng = np.random.default_rng([seed, 7, index])
        fold, start = np.empty(table.n, np.intp), int(rng.integers(folds))
        labels = table.y if classes and table.y is not None else np.zeros(table.n)
        for label in np.unique(labels):
            here = rng.permutation(np.flatnonzero(labels == label))
            fold[here] = (start + np.arange(len(here))) % folds
            start = (start + len(here)) % folds
        dealt.append(fold)
    return dealt


class Contest:
    """Candidates on the same folds of the same users."""

    def __init__(self, tables: Sequence[Table], classes: npt.NDArray[Any] | None, folds: int, how: Mapping[str, Any]):
        self.tables, self.classes, self.how = tables, classes, how
        self.folds = whole_number("cv", folds, least=2)
        fold_of = deal_by_class(tables, self.folds, how.get("seed", 0), classes is not None)
        self._parts = [
            [
                tuple(
                    replace(table.take_rows(np.flatnonzero(rows)), name=table.name)
                    for rows in (own != fold, own == fold)
                )
                for table, own in zip(tables, fold_of, strict=True)
            ]
            for fold in range(self.folds)
        ]
        self._last: dict[tuple[str, int], Result] = {}
        self.tried: list[Tried] = []

    def usable(self) -> bool:
        """Whether every fold leaves rows, and of every class some, to learn from."""
        for parts in self._parts:
            labels = np.concatenate([kept.y for kept, _ in parts if kept.y is not None])
            if not len(labels) or (self.classes is not None and len(np.unique(labels)) < len(self.classes)):
                return False
        return True

    def enter(self, candidate: Candidate, to_beat: float = -math.inf, once: bool = False) -> Tried:
        """Let a candidate learn and predict on the first fold, and on the others unless it is far behind there."""
        right, losses, rows = np.zeros((3, len(self.tables)))
        tried = Tried(candidate, right, losses, rows, bits=0.0, folds=0)
        self.tried.append(tried)
        if once:
            self._try(tried, 1)
            return tried
        return self.finish(tried, to_beat)

    def finish(self, tried: Tried, to_beat: float = -math.inf) -> Tried:
        """The same on the folds that are left."""
        while tried.folds < self.folds and tried.score_or_all >= to_beat - BEHIND:
            self._try(tried, tried.folds + 1)
        return tried

    def _try(self, tried: Tried, folds: int) -> None:
        candidate = tried.candidate
        for fold, parts in list(enumerate(self._parts))[tried.folds : folds]:
            result = self._fitted(candidate, fold, [kept for kept, _ in parts])
            tried.bits += result.bill.total.bits
            tried.folds += 1
            for place, (_, held) in enumerate(parts):
                if held.n:
                    right, losses = self._marks(result, held)
                    tried.right[place] += right
                    tried.losses[place] += losses
                    tried.rows[place] += held.n

    def _fitted(self, candidate: Candidate, fold: int, tables: list[Table]) -> Result:
        key = candidate.problem.family, fold
        warm = {"warm_start": self._last[key]} if key in self._last and candidate.problem.family == "shared" else {}
        limits = {"tol": TOLERANCE, "max_rounds": ROUNDS}
        result: Result = solve(candidate.problem, tables, **{**self.how, **limits, **candidate.how, **warm})
        self._last[key] = result
        return result

    def _marks(self, result: Result, held: Table) -> tuple[float, float]:
        """What is right on these rows, and the loss."""
        y, model = held.y, result.model
        assert y is not None
        if self.classes is None:
            scores = model.decision_function(held.X, held.name)
            errors = np.square(model.problem.loss.response(scores) - y)
            return -float(errors.sum()), float(model.problem.loss.value(scores, y.astype(float)))
        second = np.clip(model.predict_proba(held.X, held.name)[:, 1], 1e-12, 1 - 1e-12)
        positive = y == self.classes[1]
        losses = -np.log(np.where(positive, second, 1 - second))
        return float(((second > 0.5) == positive).sum()), float(losses.sum())

    def chosen(self) -> Choice:
        """The best of those that were tried on all folds; of those as good up to noise, the first in `LINEAR`."""
        whole = [one for one in self.tried if one.folds == self.folds]
        best = max(whole, key=lambda one: (one.score, -one.loss))
        order = (*LINEAR, *BOOSTED)
        simplest = best
        for one in sorted(whole, key=lambda one: (order.index(one.candidate.choice), one.loss)):
            apart = best.per_user - one.per_user
            error = float(apart.std() / math.sqrt(len(apart))) if len(apart) > 1 else 0.0
            if best.score - one.score <= NOISE * error:
                simplest = one
                break
        return Choice(simplest.candidate, [one.trial() for one in self.tried])


def variance(tables: Sequence[Table]) -> float:
    """The mean variance of the columns, from sums that every user can tell."""
    rows = sum(table.n for table in tables)
    sums = sum(np.asarray(table.X.sum(axis=0), float).ravel() for table in tables)
    squares = sum(
        float(np.square(table.X.data if is_sparse(table.X) else table.X, dtype=float).sum()) for table in tables
    )
    columns = max(tables[0].d, 1)
    found = (squares - float(np.square(sums).sum()) / max(rows, 1)) / max(rows, 1) / columns
    return found if found > 0 else 1.0


def linear_candidates(contest: Contest, loss: Any, penalty: Mapping[str, Any], wanted: Sequence[str]) -> None:
    """Enter linear models: the strength of the pooled one first, then prices of deviations, then both."""
    users, unit = len([table for table in contest.tables if table.n]), variance(contest.tables)

    def candidate(choice: str, lam: float, mu: float, nu: float) -> Candidate:
        prices = {"strength": lam * unit, "mu": mu * unit / users, "nu": nu / users}
        problem = Shared(loss, **{**penalty, "strength": prices["strength"]}, mu=prices["mu"], nu=prices["nu"])
        return Candidate(choice, problem, {"method": "shared"}, prices)

    def best(candidates: Sequence[Candidate]) -> Tried:
        """Down a list while the loss on the first fold falls; the last before it rises is tried on all."""
        found = contest.enter(candidates[0], once=True)
        for one in candidates[1:]:
            if (next_one := contest.enter(one, once=True)).loss > found.loss:
                break
            found = next_one
        return found

    def lam_of(tried: Tried) -> float:
        return float(tried.candidate.parameters["strength"]) / unit

    inf = math.inf
    pooled = contest.finish(best([candidate("pooled", lam, inf, inf) for lam in STRENGTHS]))
    lam, to_beat = lam_of(pooled), pooled.score
    if users < 2:
        return
    if "levels" in wanted:
        to_beat = max(to_beat, contest.finish(best([candidate("levels", lam, inf, nu) for nu in PRICES[::2]])).score)
    if "shared" in wanted:
        found = best([candidate("shared", lam, mu, mu) for mu in PRICES])
        price = float(found.candidate.parameters["nu"]) * users
        others = [contest.enter(candidate("shared", other, price, price), once=True) for other in (lam * 10, lam / 10)]
        to_beat = max(to_beat, contest.finish(min([found, *others], key=lambda one: one.loss)).score)
    if "alone" in wanted:
        contest.finish(best([candidate("alone", NOTHING_IN_COMMON, mu, mu) for mu in PRICES[2:]]), to_beat)


def boosted_candidates(contest: Contest, problem: Personal, how: Mapping[str, Any], wanted: Sequence[str]) -> None:
    """Enter boosted models, and linear ones near those of similar users."""
    users = len([table for table in contest.tables if table.n])
    learning = {name: how[name] for name in ("network", "sample", "alternations") if name in how}
    steps = {name: how[name] for name in ("local_steps",) if name in how}
    entries: dict[str, Callable[[], Candidate]] = {
        "global": lambda: Candidate("global", problem, {"method": "global"}),
        "local": lambda: Candidate("local", problem, {"method": "local", **steps}),
        "dada": lambda: Candidate("dada", problem, {"method": "dada", **steps, **learning}),
        "dada-linear": lambda: Candidate("dada-linear", problem, {"method": "perso-linear", **learning}),
    }
    for name, make in entries.items():
        if name in wanted and (users > 1 or name == "local"):
            to_beat = max((one.score for one in contest.tried if one.folds == contest.folds), default=-math.inf)
            contest.enter(make(), to_beat)


def choose(
    tables: Sequence[Table],
    classes: npt.NDArray[Any] | None,
    *,
    folds: int = 3,
    loss: Any = "logistic",
    penalty: Mapping[str, Any] | None = None,
    personal: Personal | None = None,
    wanted: Sequence[str] = (*LINEAR, *BOOSTED),
    how: Mapping[str, Any],
) -> Choice:
    """The candidate that does best on rows kept back; without enough rows for that, a common model with deviations."""
    contest = Contest(tables, classes, folds, {name: how[name] for name in ("split", "engine", "seed") if name in how})
    if not contest.usable():
        unit, users = variance(tables), max(len([table for table in tables if table.n]), 1)
        prices = {"strength": 1e-2 * unit, "mu": 0.1 * unit / users, "nu": 0.1 / users}
        problem = Shared(loss, **{**(penalty or {"penalty": "l2"}), **prices})
        return Choice(Candidate("shared", problem, {"method": "shared"}, prices), [])
    if unknown := [name for name in wanted if name not in (*LINEAR, *BOOSTED)]:
        raise InvalidProblem(f"{unknown[0]!r} is not among {', '.join((*LINEAR, *BOOSTED))}.")
    linear_candidates(contest, loss, penalty or {"penalty": "l2"}, wanted)
    if classes is not None and personal is not None:
        boosted_candidates(contest, personal, how, wanted)
    return contest.chosen()
