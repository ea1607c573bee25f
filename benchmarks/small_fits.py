"""Small fits: `co.solve` and the estimators next to scikit-learn, in one process.

    python benchmarks/small_fits.py             all rows
    python benchmarks/small_fits.py ridge       rows with this in their name

Eight agents, ten columns, λ = 1e-3, processor milliseconds: the solvers take turns, and the fastest
turn of each counts. Coterie splits, checks and certifies (a relative gap of 1e-6); scikit-learn
uses its own default tolerances.
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
from sklearn.linear_model import LogisticRegression, Ridge

sys.path.insert(0, str(Path(__file__).parents[1]))

import coterie as co
from coterie.estimators import LinearClassifier, LinearRegressor

AGENTS = 8
COLUMNS = 10
STRENGTH = 1e-3
SIZES = (2_000, 19_000)
TURNS = 60
TARGETS = {"solve": 2.5, "estimator": 4.0}
"""Ratios to scikit-learn that ridge should not exceed."""
Fit = Callable[[], Any]


class Case(NamedTuple):
    """A row of the table: a name, and a fit by each solver."""

    name: str
    solve: Fit
    estimator: Fit
    scikit_learn: Fit


def rows_of(n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Independent columns, numbers that follow a linear model, and classes of a logistic one."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, COLUMNS))
    scores = X @ rng.standard_normal(COLUMNS)
    numbers = scores + rng.standard_normal(n)
    classes = np.where(scores + rng.logistic(size=n) > 0, 1.0, -1.0)
    return X, numbers, classes


def cases() -> Iterator[Case]:
    """Ridge and logistic regression of each size, without and with an intercept."""
    for n in SIZES:
        X, numbers, classes = rows_of(n)
        for intercept in (False, True):
            own = {"alpha": STRENGTH, "fit_intercept": intercept, "agents": AGENTS}
            ridge = Ridge(alpha=n * STRENGTH, fit_intercept=intercept)
            logistic = LogisticRegression(C=1 / (n * STRENGTH), fit_intercept=intercept)
            fits = {
                "squared": ("ridge", numbers, LinearRegressor(**own), ridge),
                "logistic": ("logistic", classes, LinearClassifier(**own), logistic),
            }
            title = "with" if intercept else "without"
            for loss, (name, y, estimator, other) in fits.items():
                problem = co.Problem(loss, "l2", STRENGTH, intercept=intercept)
                yield Case(
                    f"{name}, {n} × {COLUMNS}, {title} an intercept",
                    partial(co.solve, problem, (X, y), agents=AGENTS, progress=False),
                    partial(estimator.fit, X, y),
                    partial(other.fit, X, y),
                )


def milliseconds(fits: list[Fit], turns: int) -> list[float]:
    """The fastest turn of each fit, in processor milliseconds."""
    least = [float("inf")] * len(fits)
    for _ in range(turns):
        for place, fit in enumerate(fits):
            began = time.process_time()
            fit()
            least[place] = min(least[place], 1e3 * (time.process_time() - began))
    return least


def main() -> None:
    """Print the table."""
    warnings.simplefilter("ignore", ConvergenceWarning)
    wanted = sys.argv[1] if len(sys.argv) > 1 else ""
    print("| row | `co.solve` | estimator | scikit-learn | × solve | × estimator |")
    print("|---|---|---|---|---|---|")
    for case in cases():
        if wanted not in case.name:
            continue
        solve, estimator, other = milliseconds(list(case[1:]), TURNS)
        print(
            f"| {case.name} | {solve:.2f} | {estimator:.2f} | {other:.2f} "
            f"| {solve / other:.1f} | {estimator / other:.1f} |",
            flush=True,
        )
    print(f"\nTargets for ridge: {TARGETS['solve']} × for solve, {TARGETS['estimator']} × else.")


if __name__ == "__main__":
    main()
