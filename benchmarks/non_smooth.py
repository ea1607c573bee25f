"""Non-smooth losses with l2: `semismooth` next to `interior-point` and liblinear, in one process.

    python benchmarks/non_smooth.py             all tables
    python benchmarks/non_smooth.py hinge       rows with this in their name

Eight agents, a certified relative gap of 1e-6, processor milliseconds: the solvers take turns, and
the fastest turn of each counts. liblinear gets the loosest tolerance that brings it within 1e-6 of
a lower bound: the dual value of a Coterie model with a gap of 1e-9. liblinear has no intercept
without a penalty and no absolute loss, so it is in the first table only.
"""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.svm import LinearSVC

sys.path.insert(0, str(Path(__file__).parents[1]))

import coterie as co
from benchmarks.problems import available
from coterie.data import Table
from papers import datasets

AGENTS = 8
ENOUGH = 1e-6
METHODS = ("semismooth", "interior-point")
TOLERANCES = (1e-1, 3e-2, 1e-2, 3e-3, 1e-3, 3e-4, 1e-4, 3e-5, 1e-5)
"""The tolerances of liblinear, in its own terms."""
TARGETS = (1.5, 1.0)
"""Ratios to liblinear, of which the summary counts the rows."""


class Case(NamedTuple):
    """A row of a table."""

    name: str
    problem: co.Problem
    data: Table


class Cost(NamedTuple):
    """What a solver needed."""

    milliseconds: float
    rounds: int = 0
    megabytes: float = 0.0


# -- data ------------------------------------------------------------------------------------------


def correlated(rows: int, columns: int, seed: int) -> Table:
    """Dense correlated columns; labels follow a logistic model."""
    rng = np.random.default_rng(seed)
    mixing = np.eye(columns) + 0.3 * rng.standard_normal((columns, columns))
    X = rng.standard_normal((rows, columns)) @ mixing
    X /= X.std(axis=0)
    return Table(X, signs(rng, X @ rng.standard_normal(columns) / np.sqrt(columns)))


def categories(rows: int = 20_000) -> Table:
    """Ten numbers, and two categories of 4 and 40 values as columns of ones, as in covtype."""
    rng = np.random.default_rng(3)
    X = np.zeros((rows, 54))
    X[:, :10] = rng.standard_normal((rows, 10))
    places = np.arange(rows)
    X[places, 10 + rng.integers(4, size=rows)] = 1.0
    X[places, 14 + rng.integers(40, size=rows)] = 1.0
    scores = X @ rng.standard_normal(54)
    return Table(X, signs(rng, 0.7 * (scores - np.median(scores))))


def unbalanced(rows: int = 20_000, share: float = 0.04) -> Table:
    """Twelve independent columns, and one class with 4 % of the rows."""
    rng = np.random.default_rng(7)
    X = rng.standard_normal((rows, 12))
    scores = X @ rng.standard_normal(12) + 1.5 * rng.logistic(size=rows)
    return Table(X, np.where(scores > np.quantile(scores, 1 - share), 1.0, -1.0))


def signs(rng: np.random.Generator, scores: np.ndarray) -> np.ndarray:
    """Labels of a logistic model."""
    labels: np.ndarray = np.where(scores + 0.7 * rng.logistic(size=len(scores)) > 0, 1.0, -1.0)
    return labels


def heavy_tailed(table: Table) -> np.ndarray:
    """Numbers that follow a linear model, with outliers."""
    rng = np.random.default_rng(5)
    scores = table.X @ rng.standard_normal(table.d)
    numbers: np.ndarray = np.asarray(scores) + rng.standard_t(2, size=table.n)
    return numbers


DATA: dict[str, Callable[[], Table]] = {
    "19020 × 10": partial(correlated, 19_020, 10, 1),
    "20000 × 16": partial(correlated, 20_000, 16, 2),
    "20000 × 54": categories,
}
"""Made data in the shapes of magic, letter and covtype."""
READ: dict[str, Callable[[], Table]] = {
    "a1a, 1605 × 119": lambda: datasets.a1a().train,
    "w8a, 49749 × 300": lambda: datasets.w8a().train,
}
"""Data that is read."""


def tables() -> Iterator[tuple[str, Table]]:
    """The data sets that are there."""
    for name, read in READ.items():
        if available(f"hinge l2, {name}"):
            table = read()
            yield name, Table(table.X, np.asarray(table.y, float))
    for name, make in DATA.items():
        yield name, make()


def strengths(rows: int) -> Iterator[tuple[str, float]]:
    """λ = 1e-3, and 1/(C n)."""
    yield "λ = 1e-3", 1e-3
    for C in (0.1, 1.0, 10.0):
        yield f"C = {C:g}", 1.0 / (C * rows)


def classification() -> Iterator[Case]:
    """Hinge loss, without an intercept."""
    for name, table in tables():
        for title, strength in strengths(table.n):
            problem = co.Problem("hinge", "l2", strength, intercept=False)
            yield Case(f"hinge, {name}, {title}", problem, table)


def regression() -> Iterator[Case]:
    """Absolute and quantile losses, without an intercept."""
    for name, table in tables():
        if name.startswith("w8a"):
            continue  # whole minutes
        numbers = Table(table.X, heavy_tailed(table))
        for title, strength in strengths(table.n):
            for loss, more in (("absolute", {}), ("quantile", {"level": 0.8})):
                problem = co.Problem(loss, "l2", strength, intercept=False, **more)
                yield Case(f"{loss}, {name}, {title}", problem, numbers)


def of_rare_classes() -> Iterator[Case]:
    """Hinge loss with an intercept, where a class is rare."""
    table = unbalanced()
    for title, strength in strengths(table.n):
        problem = co.Problem("hinge", "l2", strength, intercept=True)
        yield Case(f"4 % of one class, 20000 × 12, {title}", problem, table)


# -- measurement -----------------------------------------------------------------------------------


def solve(case: Case, method: str, tol: float = ENOUGH) -> co.Result:
    """Fit with that method."""
    return co.solve(
        case.problem,
        case.data,
        agents=AGENTS,
        method=method,
        tol=tol,
        max_rounds=500,
        progress=False,
    )


def cost_of(case: Case, method: str) -> Cost:
    """Measure one fit."""
    began = time.process_time()
    result = solve(case, method)
    milliseconds = 1e3 * (time.process_time() - began)
    assert result.status.success, f"{method} on {case.name}: {result.status}"
    return Cost(milliseconds, result.rounds, result.bill.total.bits / 8e6)


def liblinear(case: Case, tol: float) -> tuple[float, float]:
    """Return P of liblinear's model, and its processor milliseconds."""
    strength = case.problem.penalty.strong_convexity
    X, y = case.data.X, case.data.y
    model: Any = LinearSVC(
        C=1 / (strength * len(y)), loss="hinge", fit_intercept=False, tol=tol, max_iter=100_000
    )
    began = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        w = model.fit(X, y).coef_[0]
    milliseconds = 1e3 * (time.process_time() - began)
    losses = case.problem.loss.value(X @ w, y, None)
    return float(losses) / len(y) + case.problem.penalty.value(w), milliseconds


def enough_for_liblinear(case: Case) -> float:
    """Return the loosest tolerance that brings liblinear near enough to our lower bound."""
    bound = solve(case, "interior-point", tol=1e-9).certificate
    for tol in TOLERANCES:
        if liblinear(case, tol)[0] - bound.dual <= ENOUGH:
            return tol
    return TOLERANCES[-1]


def fastest(costs: list[Cost]) -> Cost:
    """Return the turn with the least time."""
    return min(costs, key=lambda cost: cost.milliseconds)


def measured(case: Case, turns: int, with_liblinear: bool) -> tuple[dict[str, Cost], float]:
    """Return the costs of each method, and liblinear's milliseconds; infinite without it."""
    costs: dict[str, list[Cost]] = {method: [] for method in METHODS}
    times = [np.inf]
    tol = enough_for_liblinear(case) if with_liblinear else 0.0
    for turn in range(turns + 1):
        for method in METHODS:
            cost = cost_of(case, method)
            if turn:  # the first one compiles
                costs[method].append(cost)
        if with_liblinear:
            times.append(liblinear(case, tol)[1])
    return {method: fastest(found) for method, found in costs.items()}, min(times)


def row(case: Case, costs: dict[str, Cost], theirs: float) -> tuple[str, float]:
    """Return a line of a table, and the ratio to liblinear."""
    cells = [case.name]
    for method in METHODS:
        cost = costs[method]
        cells.append(f"{cost.milliseconds:.1f} ({cost.rounds}, {cost.megabytes:.3g} MB)")
    ours, usual = (costs[method].milliseconds for method in METHODS)
    cells.append(f"{ours / usual:.2f}")
    ratio = ours / theirs
    if np.isfinite(theirs):
        cells += [f"{theirs:.1f}", f"{ratio:.2f}"]
    return f"| {' | '.join(cells)} |", ratio


def print_table(cases: Iterator[Case], wanted: str, turns: int, with_liblinear: bool) -> None:
    """Measure these cases and print a table, line by line."""
    heads = ["problem", *(f"{method}, ms (rounds)" for method in METHODS), "ratio"]
    if with_liblinear:
        heads += ["liblinear, ms", "ratio to liblinear"]
    print(f"| {' | '.join(heads)} |\n|{'---|' * len(heads)}", flush=True)
    ratios = []
    for case in cases:
        if wanted in case.name:
            line, ratio = row(case, *measured(case, turns, with_liblinear))
            ratios.append(ratio)
            print(line, flush=True)
    if with_liblinear and ratios:
        for target in TARGETS:
            share = np.mean(np.array(ratios) <= target)
            print(f"\nAt most {target:g} × liblinear: {share:.0%} of {len(ratios)} rows.")
    print()


if __name__ == "__main__":
    wanted = sys.argv[1] if len(sys.argv) > 1 else ""
    print_table(classification(), wanted, turns=5, with_liblinear=True)
    print_table(regression(), wanted, turns=3, with_liblinear=False)
    print_table(of_rare_classes(), wanted, turns=3, with_liblinear=False)
