"""Choose a model for users by cross-validation at the users.

Every user deals its own rows into folds, class by class. For each fold, all users fit a model
together to the rows of the other folds. Each user measures right answers and losses of that model
on its rows of the fold, and averages them over its rows. Users send these means only as parts of
sums over users.

Candidates, from the simplest on:

    pooled         one linear model for all users
    levels         the same as pooled, with an intercept for every user
    shared         a common linear model, and coefficients of every user that deviate from it
    alone          a linear model for every user; the models have almost nothing in common
    global         one boosted model for all users
    local          a boosted model for every user, fitted alone
    dada           a boosted model for every user, near those of similar users; the method finds
                   the similar users
    dada-linear    the same as dada, with linear models

Linear models are special cases of one another. The loss on held-out rows decides between them,
because it is less noisy than a count of errors. Right answers decide between the best linear model
and boosted models. Of the candidates that do equally well up to noise, the simplest is chosen.
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
"""One candidate's record: `choice`, its parameters, `score` (accuracy, or minus the mean square
error, averaged over users), `loss` on held-out rows, the `bits` of all its fits, and the number of
`folds`.
"""
FOLDS = 3
QUICK: dict[str, Any] = {"tol": 1e-3, "max_rounds": 100}
"""Settings of fits that serve only for predictions on held-out rows."""
FITS = 60
"""Approximate number of fits for a choice among linear models."""
Prices = tuple[float, float, float]
"""λ, μ and ν."""
START, STEP, STEPS = (1e-2, 0.2, 0.1), 3.0, 5
"""Search for prices: first values of λ, μ and ν, factor of a step, and largest number of steps in
one direction. λ is that of the common model; μ and ν are times the number of users. λ and μ are in
units of the columns' variance.
"""
WORTH, FAR = 2e-3, 0.2
"""Shares of the loss. A step of the search for prices counts if it lowers the loss by more than
WORTH. A choice with a loss that exceeds the least loss by more than FAR is not searched.
"""
NOTHING_IN_COMMON = 1e3
"""λ that makes the common model almost zero, in units of the columns' variance."""
BOOSTED = ("global", "local", "dada", "dada-linear")
POOLED, LEVELS, BETWEEN, ALONE = LINEAR = ("pooled", "levels", "shared", "alone")
AWAY = 0.1
"""Difference in the share of right answers (or in the mean square error) on the first fold. If the
choices "global" and "local" are both behind the linear model by more, "dada" is not tried.
"""
NOISE = 0.5
"""Number of standard errors. Of candidates that differ by less, the simpler one is chosen."""


@dataclass(frozen=True)
class Candidate:
    """A problem and the settings to solve it."""

    choice: str
    problem: Personal | Shared
    how: Mapping[str, Any] = field(default_factory=dict)
    parameters: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Marks:
    """Results of the users that this process sees on the rows of one fold: for each user, sums
    over rows.
    """

    right: FloatArray
    """Number of right answers, or minus the sum of square errors."""
    losses: FloatArray
    rows: FloatArray
    bits: float


def marks_of_rows(
    model: Any, held: Table, users: Any, classes: bool
) -> tuple[FloatArray, FloatArray]:
    """Return the score and the loss of each row.

    With classes, the score is 1 for a right answer and 0 for a wrong one; the labels are -1 and 1.
    Without classes, the score is minus the square error.
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
    """Interface of a process that holds rows of users: of all users, or of one user."""

    @property
    def folds(self) -> int:
        """The number of folds."""
        ...

    def marks(self, candidate: Candidate, fold: int) -> Marks:
        """Fit the candidate with all other holders to the other folds, and predict this fold."""
        ...

    def add(self, numbers: FloatArray) -> FloatArray:
        """Return the sum over all users; `numbers` has a row for each user of this holder."""
        ...


@dataclass
class Tried:
    """Results of a candidate on held-out rows, over the folds tried so far."""

    candidate: Candidate
    marks: list[Marks] = field(default_factory=list)
    score: float = -math.inf
    loss: float = math.inf

    def per_user(self, what: str, folds: int | None = None) -> FloatArray:
        """Return the mean of `what` over the rows of each user of this process.

        The rows are those of the first `folds` folds, by default of all. The mean of a user without
        such rows is NaN.
        """
        kept = self.marks[:folds]
        rows = np.sum([one.rows for one in kept], axis=0)
        total = np.sum([getattr(one, what) for one in kept], axis=0)
        means: FloatArray = np.divide(total, rows, out=np.full(len(rows), np.nan), where=rows > 0)
        return means

    def trial(self) -> Trial:
        """Return the record of this candidate for a report."""
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
    """The chosen candidate, and the records of all candidates."""

    candidate: Candidate
    trials: list[Trial]

    def told(self) -> dict[str, Any]:
        """Return the choice as plain values, for a file."""
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
    """Describe the choice, with the best score of each choice that was tried."""
    best: dict[str, float] = {}
    for trial in trials:
        best[trial["choice"]] = max(trial["score"], best.get(trial["choice"], -math.inf))
    told = ", ".join(f"{name} {score:.3f}" for name, score in best.items())
    scores = f" ({told})" if told else ", as there are too few rows to try others"
    return f"{choice} was chosen by cross-validation at the users{scores}."


def deal_by_class(
    table: Table, index: int, folds: int, seed: int, classes: bool
) -> npt.NDArray[np.intp]:
    """Return the fold of each row of a user.

    The user deals rows in random order, class by class, and begins at a random fold.
    """
    rng = np.random.default_rng([seed, 7, index])
    fold, start = np.empty(table.n, np.intp), int(rng.integers(folds))
    labels = table.y if classes and table.y is not None else np.zeros(table.n)
    for label in np.unique(labels):
        local = rng.permutation(np.flatnonzero(labels == label))
        fold[local] = (start + np.arange(len(local))) % folds
        start = (start + len(local)) % folds
    return fold


def sums_of(site: Site) -> FloatArray:
    """Return sums over the table of a user.

    They are 1 if the user has rows, the number of rows, the sum of all squares, and the sum of each
    column.
    """
    table = site.data
    values = table.X.data if is_sparse(table.X) else table.X
    squares = float(np.square(values, dtype=float).sum())
    sums = np.asarray(table.X.sum(axis=0), float).ravel()
    return np.array([table.n > 0, table.n, squares, *sums], float)


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
        "for each fit, of held-out rows: the share of right answers and the mean "
        "loss, "
        "as part of a sum"
    ),
)
@discloses("squares of how much two models differ in these, as part of a sum")
def sums_of_choice(numbers: Mapping[int, FloatArray], site: Site) -> Protocol[FloatArray]:
    """Sum these numbers over all parties; `numbers` has those of each party by its index."""
    total: FloatArray = yield Sum(numbers[site.index])
    return total


@dataclass(frozen=True)
class Scale:
    """Units of prices."""

    users: int
    """Number of users with rows."""
    unit: float
    """Mean variance of the columns."""

    @staticmethod
    def of(sums: FloatArray) -> Scale:
        """Compute the units from the aggregate of `sums_of` over all users."""
        rows, columns = max(float(sums[1]), 1.0), max(len(sums) - 3, 1)
        found = (float(sums[2]) - float(np.square(sums[3:]).sum()) / rows) / rows / columns
        return Scale(max(int(sums[0]), 1), found if found > 0 else 1.0)


class Contest:
    """A comparison of candidates on the same folds of the same users."""

    def __init__(self, holder: Holder, scale: Scale):
        self.holder, self.scale = holder, scale
        self.tried: list[Tried] = []

    def enter(self, candidate: Candidate) -> Tried:
        """Try a candidate on the first fold."""
        tried = Tried(candidate)
        self.tried.append(tried)
        self.go_on(tried)
        return tried

    def go_on(self, tried: Tried) -> None:
        """Try a candidate on the next fold."""
        tried.marks.append(self.holder.marks(tried.candidate, len(tried.marks)))
        right, losses = (tried.per_user(what) for what in ("right", "losses"))
        total = self.holder.add(_without_nan(right, losses))
        if total[2] > 0:  # with one or two rows per user, the first folds may be empty
            tried.score, tried.loss = float(total[0] / total[2]), float(total[1] / total[2])

    def race(self, tried: Tried, best: Tried, what: str) -> None:
        """Try a candidate on the remaining folds, until it is worse than `best` by more than noise.

        Noise is one standard error. For losses less is better, for right answers more.
        """
        sign = 1.0 if what == "right" else -1.0
        while len(tried.marks) < self.holder.folds:
            mean, error = self.behind(tried, best, what)
            if sign * mean > error:
                return
            self.go_on(tried)

    def behind(self, one: Tried, other: Tried, what: str) -> tuple[float, float]:
        """Return the mean over users of `other` minus `one`, and its standard error.

        The comparison uses the folds on which both candidates were tried.
        """
        folds = min(len(one.marks), len(other.marks))
        apart = other.per_user(what, folds) - one.per_user(what, folds)
        total, squares, users = self.holder.add(_without_nan(apart, np.square(apart)))
        if users == 0:
            return 0.0, 0.0
        mean = float(total / users)
        return mean, math.sqrt(max(float(squares / users) - mean**2, 0.0) / float(users))

    def simplest(self, tried: Sequence[Tried], best: Tried, what: str, sign: float) -> Tried:
        """Return the simplest candidate that is not worse than `best` by more than noise.

        Noise is NOISE standard errors. `sign` is 1 if more of `what` is better, else -1.
        """
        order = (*LINEAR, *BOOSTED)
        for one in sorted(tried, key=lambda one: (order.index(one.candidate.choice), one.loss)):
            mean, error = self.behind(one, best, what)
            if one is best or sign * mean <= NOISE * error:
                return one
        return best


def _without_nan(*means: FloatArray) -> FloatArray:
    """Return a row for each user: its means, and 1. Without such means the row is 0."""
    known = np.isfinite(means[0])
    kept = [np.where(known, values, 0.0) for values in means]
    return np.column_stack([*kept, known])


def shared_candidate(
    choice: str,
    loss: Any,
    penalty: Mapping[str, Any],
    scale: Scale,
    lam: float,
    mu: float,
    nu: float,
) -> Candidate:
    """Return the candidate of linear models at these prices, which are in units of `scale`."""
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
    """Return the prices, with those at these places multiplied by the factor."""
    changed = list(prices)
    for place in places:
        changed[place] *= factor
    lam, mu, nu = changed
    return lam, mu, nu


@dataclass
class _Climb:
    """Search for prices of linear models: change one price after the other while the loss falls."""

    contest: Contest
    loss: Any
    penalty: Mapping[str, Any]
    best: dict[str, Tried] = field(default_factory=dict)
    """Best candidate of each choice so far."""

    def climb(self, choice: str, prices: Prices, moves: Sequence[tuple[int, ...]]) -> Prices:
        """Find the best prices of a choice, starting from these prices.

        A move names the places of prices that increase or decrease together.
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
        """Return the prices after steps in one direction, and the number of steps that lowered the
        loss.
        """
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
    """Return the simplest linear candidate with the least loss on held-out rows, up to noise.

    Each choice competes at the best prices that the search finds.
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
    """Return the simplest candidate with the most right answers, up to noise.

    The candidates are the best linear one, boosted models, and linear models near those of similar
    users.
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
    """Choose the candidate that does best on held-out rows.

    If `usable` is false, there are too few rows to try candidates. The choice is then a common
    model with deviations.

    Prices depend on the number of rows, as a prior does. The last fit has more rows than fits
    without a fold, so its prices are lower by the share of one fold.
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
