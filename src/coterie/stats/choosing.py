"""Which model suits these users: chosen by cross-validation at the users.

Every user deals its own rows into folds, class by class, and learns with the others from all folds
but one; what it gets right on that one, and loses there, is averaged over folds. Only sums of these
averages over users are looked at.
The candidates, from the simplest on:

| choice   | model
           |
|----------|----------------------------------------------------------------------------------------------------------|
| pooled   | one linear model for all
           |
| levels   | the same, with an intercept of its own for every user
           |
| shared   | a common linear model, and coefficients of every user that deviate from it
           |
| alone    | linear models of every user, which have next to nothing in common
           |
| global   | one boosted model for all
           |
| local    | boosted models of every user alone
           |
| dada     | boosted models of every user, near those of similar users, who are found out
           |
| dada-linear | linear models, likewise
|

Linear models are special cases of one another, so the loss on rows kept back decides between them:
it is less noisy than a count of errors. Between the best of them and boosted models right answers
decide. Of those that do as well up to noise, the simplest is taken.
"""

from __future__ import annotations

import math
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from coterie.data import Table
from coterie.errors import InvalidProblem
from coterie.numerics.arrays import FloatArray, is_sparse
from coterie.problems.personal.problem import Personal
from coterie.problems.shared.problem import Shared
from coterie.run.collectives import Protocol, Sum
from coterie.run.disclosure import TOTALS, discloses
from coterie.run.settings import Settings
from coterie.run.site import Site

Trial = dict[str, Any]
"""What was tried: `choice`, its parameters, `score` (accuracy, or minus the mean square error,
averaged over users), `loss` on rows kept back, the `bits` of all its fits, and on how many `folds`.
"""
FOLDS = 3
QUICK: dict[str, Any] = {"tol": 1e-3, "max_rounds": 100}
"""Of fits of which only predictions on rows kept back are wanted."""
FITS = 60
"""About so many of them are needed for a choice among linear models."""
Prices = tuple[float, float, float]
"""λ, μ and ν."""
START, STEP, STEPS = (1e-2, 0.2, 0.1), 3.0, 5
"""Where the search for prices begins, by what factor it goes on, and how often at most: λ of the
common model, and μ and ν times the number of users. λ and μ are in units of the columns' variance.
"""
WORTH, FAR = 2e-3, 0.2
"""Prices are changed further for this share of the loss, and not at all for a kind that loses so
much more.
"""
NOTHING_IN_COMMON = 1e3
"""λ of a common model that is next to nothing, in the same units."""
BOOSTED = ("global", "local", "dada", "dada-linear")
POOLED, LEVELS, BETWEEN, ALONE = LINEAR = ("pooled", "levels", "shared", "alone")
AWAY = 0.1
"""If boosted models for all and alone are both so far behind on the first fold, those between them
are not tried.
"""
NOISE = 0.5
"""Of candidates that differ by less than so many standard errors, the simpler one is taken."""


@dataclass(frozen=True)
class Candidate:
    """A problem and the way to solve it."""

    choice: str
    problem: Personal | Shared
    how: Mapping[str, Any] = field(default_factory=dict)
    parameters: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Marks:
    """How the users that are held here did on the rows of one fold: sums over rows."""

    right: FloatArray
    """Right answers, or minus the square errors."""
    losses: FloatArray
    rows: FloatArray
    bits: float


def marks_of_rows(
    model: Any, held: Table, users: Any, classes: bool
) -> tuple[FloatArray, FloatArray]:
    """For each row, whether the answer of the model is right, or minus its square error; and the
    loss. Of two classes, the labels are -1 and 1.
    """
    y = held.y
    assert y is not None
    if not classes:
        scores = model.decision_function(held.X, users)
        loss = model.problem.loss
        return -np.square(loss.response(scores) - y), loss.each(scores, y.astype(float))
    second = np.clip(model.predict_proba(held.X, users)[:, 1], 1e-12, 1 - 1e-12)
    is_second = y > 0
    losses = -np.log(np.where(is_second, second, 1 - second))
    return ((second > 0.5) == is_second).astype(float), losses


class Holder(typing.Protocol):
    """Whoever holds rows of users: of all, or of one among others."""

    folds: int

    def marks(self, candidate: Candidate, fold: int) -> Marks:
        """Learn with all others from the other folds, and predict this one."""
        ...

    def add(self, numbers: FloatArray) -> FloatArray:
        """These numbers, added to those of all other holders."""
        ...


@dataclass
class Tried:
    """How a candidate did on rows kept back, on the folds so far."""

    candidate: Candidate
    marks: list[Marks] = field(default_factory=list)
    score: float = -math.inf
    loss: float = math.inf

    def per_user(self, what: str, folds: int | None = None) -> FloatArray:
        """Of each user that is held here its mean over rows of these folds; NaN where it has
        none.
        """
        kept = self.marks[:folds]
        rows = np.sum([one.rows for one in kept], axis=0)
        total = np.sum([getattr(one, what) for one in kept], axis=0)
        means: FloatArray = np.divide(total, rows, out=np.full(len(rows), np.nan), where=rows > 0)
        return means

    def trial(self) -> Trial:
        """As people read it."""
        told = {"choice": self.candidate.choice, **self.candidate.parameters}
        bits = sum(one.bits for one in self.marks)
        return {
            **told,
            "score": self.score,
            "loss": self.loss,
            "bits": bits,
            "folds": len(self.marks),
        }


@dataclass(frozen=True)
class Choice:
    """What was chosen, and everything that was tried."""

    candidate: Candidate
    trials: list[Trial]

    def told(self) -> dict[str, Any]:
        """As plain values, for a file."""
        return {
            "choice": self.candidate.choice,
            "trials": [
                {name: str(x) if x == math.inf else x for name, x in trial.items()}
                for trial in self.trials
            ],
        }

    def __str__(self) -> str:
        return words_of(self.candidate.choice, self.trials)


def words_of(choice: str, trials: Sequence[Trial]) -> str:
    """What was chosen, with the best score of everything that was tried."""
    best: dict[str, float] = {}
    for trial in trials:
        best[trial["choice"]] = max(trial["score"], best.get(trial["choice"], -math.inf))
    told = ", ".join(f"{name} {score:.3f}" for name, score in best.items())
    scores = f" ({told})" if told else ", as there are too few rows to try others"
    return f"{choice} was chosen by cross-validation at the users{scores}."


def deal_by_class(
    table: Table, index: int, folds: int, seed: int, classes: bool
) -> npt.NDArray[np.intp]:
    """The fold of every row of that user: dealt class by class, beginning at a fold of its own."""
    rng = np.random.default_rng([seed, 7, index])
    fold, start = np.empty(table.n, np.intp), int(rng.integers(folds))
    labels = table.y if classes and table.y is not None else np.zeros(table.n)
    for label in np.unique(labels):
        local = rng.permutation(np.flatnonzero(labels == label))
        fold[local] = (start + np.arange(len(local))) % folds
        start = (start + len(local)) % folds
    return fold


def sums_of(tables: Sequence[Table]) -> FloatArray:
    """Of these users: how many have rows, the number of rows, the sum of all squares, and of every
    column.
    """
    sums = sum(np.asarray(table.X.sum(axis=0), float).ravel() for table in tables)
    squares = sum(
        float(np.square(table.X.data if is_sparse(table.X) else table.X, dtype=float).sum())
        for table in tables
    )
    counts = sum(table.n > 0 for table in tables), sum(table.n for table in tables), squares
    return np.concatenate([counts, np.atleast_1d(sums)]).astype(float)


@discloses(
    "the sum of each of your columns, and of all squares, as part of a sum",
    "the means of your columns",
    TOTALS,
)
@discloses(
    "for each fold and class: whether you have enough rows of the class outside the fold, as part "
    "of a sum"
)
@discloses(
    (
        "for each fit, of the rows that were kept back: the share of right answers and the mean "
        "loss, "
        "as part of a sum"
    ),
)
@discloses("squares of how much two models differ in these, as part of a sum")
def sums_of_choice(numbers: FloatArray, site: Site) -> Protocol[FloatArray]:
    """These numbers, added up over all parties."""
    total: FloatArray = yield Sum(numbers)
    return total


@dataclass(frozen=True)
class Scale:
    """What prices are told in."""

    users: int
    """With rows."""
    unit: float
    """The mean variance of the columns."""

    @staticmethod
    def of(sums: FloatArray) -> Scale:
        """From `sums_of` all users."""
        rows, columns = max(float(sums[1]), 1.0), max(len(sums) - 3, 1)
        found = (float(sums[2]) - float(np.square(sums[3:]).sum()) / rows) / rows / columns
        return Scale(max(int(sums[0]), 1), found if found > 0 else 1.0)


class Contest:
    """Candidates on the same folds of the same users."""

    def __init__(self, holder: Holder, scale: Scale):
        self.holder, self.scale = holder, scale
        self.tried: list[Tried] = []

    def enter(self, candidate: Candidate) -> Tried:
        """Let a candidate learn, and predict the first fold."""
        tried = Tried(candidate)
        self.tried.append(tried)
        self.go_on(tried)
        return tried

    def go_on(self, tried: Tried) -> None:
        """The same on the next fold."""
        tried.marks.append(self.holder.marks(tried.candidate, len(tried.marks)))
        right, losses = (tried.per_user(what) for what in ("right", "losses"))
        total = self.holder.add(
            np.array([np.nansum(right), np.nansum(losses), np.isfinite(right).sum()])
        )
        if total[2] > 0:  # where users have one or two rows, the first folds may be empty
            tried.score, tried.loss = float(total[0] / total[2]), float(total[1] / total[2])

    def race(self, tried: Tried, best: Tried, what: str) -> None:
        """Try it on the folds that are left, unless it falls behind the best one by more than
        noise.

        Of a loss less is better, of right answers more.
        """
        sign = 1.0 if what == "right" else -1.0
        while len(tried.marks) < self.holder.folds:
            mean, error = self.behind(tried, best, what)
            if sign * mean > error:
                return
            self.go_on(tried)

    def behind(self, one: Tried, other: Tried, what: str) -> tuple[float, float]:
        """By how much `one` is less than `other` on the folds that both have seen, and the standard
        error of that.
        """
        folds = min(len(one.marks), len(other.marks))
        apart = other.per_user(what, folds) - one.per_user(what, folds)
        apart = apart[np.isfinite(apart)]
        total, squares, users = self.holder.add(
            np.array([apart.sum(), np.square(apart).sum(), float(len(apart))])
        )
        if users == 0:
            return 0.0, 0.0
        mean = float(total / users)
        return mean, math.sqrt(max(float(squares / users) - mean**2, 0.0) / float(users))

    def simplest(self, tried: Sequence[Tried], best: Tried, what: str, sign: float) -> Tried:
        """The simplest of those that are not worse than the best one by more than noise."""
        order = (*LINEAR, *BOOSTED)
        for one in sorted(tried, key=lambda one: (order.index(one.candidate.choice), one.loss)):
            mean, error = self.behind(one, best, what)
            if one is best or sign * mean <= NOISE * error:
                return one
        return best


def shared_candidate(
    choice: str,
    loss: Any,
    penalty: Mapping[str, Any],
    scale: Scale,
    lam: float,
    mu: float,
    nu: float,
) -> Candidate:
    """Linear models at these prices, which are told in units of the data."""
    prices = {
        "strength": lam * scale.unit,
        "mu": mu * scale.unit / scale.users,
        "nu": nu / scale.users,
    }
    problem = Shared(
        loss, **{**penalty, "strength": prices["strength"]}, mu=prices["mu"], nu=prices["nu"]
    )
    return Candidate(choice, problem, {"method": "shared"}, prices)


def _multiplied(prices: Prices, places: Sequence[int], factor: float) -> Prices:
    """The prices, with those at these places multiplied by the factor."""
    changed = list(prices)
    for place in places:
        changed[place] *= factor
    lam, mu, nu = changed
    return lam, mu, nu


@dataclass
class _Climb:
    """The search for prices of linear models: one price after the other, as long as less is
    lost.
    """

    contest: Contest
    loss: Any
    penalty: Mapping[str, Any]
    best: dict[str, Tried] = field(default_factory=dict)
    """The best model of each choice so far."""

    def climb(self, choice: str, prices: Prices, moves: Sequence[tuple[int, ...]]) -> Prices:
        """Find the best prices of a choice, from these prices. A move names the places of prices
        that become higher or lower together.
        """
        first = self._entered(choice, prices)
        self.best[choice] = first
        self.contest.race(first, first, "losses")
        if self.best[choice].loss > (1.0 + FAR) * min(one.loss for one in self.best.values()):
            return prices
        for places in moves:
            for factor in (1 / STEP, STEP):
                prices, moved = self._moved(choice, prices, places, factor)
                if moved:
                    break
        return prices

    def _moved(
        self, choice: str, prices: Prices, places: tuple[int, ...], factor: float
    ) -> tuple[Prices, int]:
        """The prices after steps in one direction, and how many steps lost less."""
        moved = 0
        while moved < STEPS:
            changed = _multiplied(prices, places, factor)
            one = self._entered(choice, changed)
            if not self._is_better(choice, one):
                break
            prices = changed
            self.best[choice] = one
            moved += 1
        return prices, moved

    def _entered(self, choice: str, prices: Prices) -> Tried:
        candidate = shared_candidate(choice, self.loss, self.penalty, self.contest.scale, *prices)
        return self.contest.enter(candidate)

    def _is_better(self, choice: str, one: Tried) -> bool:
        best = self.best[choice]
        self.contest.race(one, best, "losses")
        finished = len(one.marks) == self.contest.holder.folds
        return finished and one.loss < (1.0 - WORTH) * best.loss


def linear_candidates(
    contest: Contest, loss: Any, penalty: Mapping[str, Any], wanted: Sequence[str]
) -> Tried:
    """The linear model that loses least on held-out rows: of each choice at the best prices that
    are found.
    """
    search = _Climb(contest, loss, penalty)
    lam, mu, nu = START
    lam = search.climb("pooled", (lam, math.inf, math.inf), [(0,)])[0]
    if contest.scale.users > 1:
        if LEVELS in wanted:
            nu = search.climb("levels", (lam, math.inf, nu), [(2,), (0,)])[2]
        if BETWEEN in wanted:
            search.climb("shared", (lam, mu, nu), [(1,), (0,), (2,)])
        if ALONE in wanted:
            search.climb("alone", (NOTHING_IN_COMMON, mu, START[2]), [(1, 2)])
    whole = list(search.best.values())
    return contest.simplest(whole, min(whole, key=lambda one: one.loss), "losses", -1.0)


def boosted_candidates(
    contest: Contest, problem: Personal, settings: Settings, wanted: Sequence[str], linear: Tried
) -> Tried:
    """The one with most right answers: the linear model, or a boosted one, or linear ones near
    similar users'.
    """
    options = settings.algorithm.options
    steps, start, learning = (
        {name: options[name] for name in names if name in options}
        for names in (("local_steps",), ("begin",), ("sample", "alternations"))
    )
    learning["network"] = settings.network
    entries: dict[str, Callable[[], Candidate]] = {
        "global": lambda: Candidate("global", problem, {"method": "global"}),
        "local": lambda: Candidate("local", problem, {"method": "local", **steps}),
        "dada": lambda: Candidate(
            "dada", problem, {"method": "dada", **steps, **learning, **start}
        ),
        "dada-linear": lambda: Candidate(
            "dada-linear", problem, {"method": "dada-linear", **learning}
        ),
    }
    best, whole, far = linear, [linear], list[float]()
    for name, make in entries.items():
        if name not in wanted or (contest.scale.users < 2 and name != "local"):
            continue
        if name == "dada" and far and min(far) > AWAY:
            continue
        one = contest.enter(make())
        if name in ("global", "local"):
            far.append(contest.behind(one, linear, "right")[0])
        contest.race(one, best, "right")
        if len(one.marks) == contest.holder.folds:
            whole.append(one)
            best = max(best, one, key=lambda one: one.score)
    return contest.simplest(whole, best, "right", 1.0)


def choose(
    holder: Holder,
    scale: Scale,
    usable: bool,
    *,
    loss: Any = "logistic",
    penalty: Mapping[str, Any] | None = None,
    personal: Personal | None = None,
    wanted: Sequence[str] = (*LINEAR, *BOOSTED),
    settings: Settings | None = None,
) -> Choice:
    """The candidate that does best on rows kept back; without enough rows for that, a common model
    with deviations.

    Prices belong to a number of rows, as a prior does: the last fit has more of them than those
    without a fold, and its prices are lower by that share.
    """
    if unknown := [name for name in wanted if name not in (*LINEAR, *BOOSTED)]:
        raise InvalidProblem(f"{unknown[0]!r} is not among {', '.join((*LINEAR, *BOOSTED))}.")
    penalty = penalty or {"penalty": "l2"}
    if not usable:
        return Choice(shared_candidate("shared", loss, penalty, scale, 1e-2, 0.1, 0.1), [])
    contest = Contest(holder, scale)
    best = linear_candidates(contest, loss, penalty, wanted)
    if personal is not None:
        best = boosted_candidates(contest, personal, settings or Settings(), wanted, best)
    candidate, share = best.candidate, 1.0 - 1.0 / holder.folds
    if candidate.choice in LINEAR:
        prices = {name: value * share for name, value in candidate.parameters.items()}
        problem = Shared(
            loss, **{**penalty, "strength": prices["strength"]}, mu=prices["mu"], nu=prices["nu"]
        )
        candidate = Candidate(candidate.choice, problem, candidate.how, prices)
    return Choice(candidate, [one.trial() for one in contest.tried])
