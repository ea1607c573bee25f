"""How well low-rank models predict, at the radius that cross-validation at the agents chooses,
beside others.

    python -m benchmarks.low_rank_accuracy            both, some minutes

26 classes: 20,000 rows of 16 columns with offsets and scales of their own, a quarter of them kept
back; scikit-learn's softmax. Completion: a 600 × 400 matrix of rank 5 with row and column means, 10
% observed with noise 0.3; alternating least squares with a free number for every row and column,
rank and ridge by cross-validation as well. The error is that of the noiseless matrix.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.linear_model import LogisticRegression

import coterie as co

AGENTS, RANK, STAGES, FOLDS = 8, 5, 5, 3
RIDGES = (0.03, 0.1, 0.3, 1.0, 3.0)
Row = dict[str, float | str]


def letters() -> tuple[np.ndarray, np.ndarray]:
    """Clouds of 26 classes, in columns of whole numbers."""
    rng = np.random.default_rng(0)
    scale, offset = rng.uniform(1.0, 4.0, 16), rng.uniform(2.0, 9.0, 16)
    y = rng.integers(26, size=20_000)
    centres, own = 0.6 * rng.standard_normal((26, 16)), rng.uniform(0.5, 1.2, (26, 16))
    turn = np.linalg.qr(rng.standard_normal((16, 16)))[0]
    return np.round(
        offset + scale * ((centres[y] + own[y] * rng.standard_normal((20_000, 16))) @ turn)
    ), y


def of_classes() -> Iterator[tuple[str, float, float]]:
    """Solver, share of wrong classes, CPU seconds."""
    X, y = letters()
    train = np.arange(len(y)) % 4 != 0
    began = time.process_time()
    problem = co.Problem("multinomial", "traceball", radius=1.0, intercept=True)
    path = co.path(
        problem,
        (X[train], y[train]),
        [3, 10, 30, 100],
        cv=3,
        agents=AGENTS,
        tol=1e-4,
        progress=False,
    )
    spent = time.process_time() - began
    model = path.best_result.model
    yield (
        f"Coterie, radius {path.best_strength:g} of 4, 3 folds",
        1 - np.mean(model.predict(X[~train]) == y[~train]),
        spent,
    )
    began = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        softmax = LogisticRegression(max_iter=1000).fit(X[train], y[train])
    yield (
        "scikit-learn softmax",
        1 - softmax.score(X[~train], y[~train]),
        time.process_time() - began,
    )


def of_entries() -> Iterator[tuple[str, float, float]]:
    """Solver, root of the mean squared error of all entries, CPU seconds."""
    rng = np.random.default_rng(0)
    truth = rng.standard_normal((600, RANK)) @ rng.standard_normal((RANK, 400)) / np.sqrt(RANK)
    truth += 3.0 + rng.standard_normal((600, 1)) + rng.standard_normal(400)
    rows, columns = np.nonzero(rng.random(truth.shape) < 0.1)
    y = truth[rows, columns] + 0.3 * rng.standard_normal(len(rows))
    pairs, everywhere = (
        np.column_stack([rows, columns]).astype(float),
        np.argwhere(truth > -np.inf).astype(float),
    )

    def error(found: Any) -> float:
        return float(np.sqrt(np.mean((found - truth.ravel()) ** 2)))

    began = time.process_time()
    problem = co.Problem(
        "completion", "traceball", radius=1.0, intercept=True, shape=truth.shape, stages=STAGES
    )
    how = {
        "agents": AGENTS,
        "tol": 1e-3,
        "max_rounds": 60,
        "inner": 5,
        "space": 30,
        "progress": False,
    }
    path = co.path(problem, (pairs, y), [400, 500, 630, 800], cv=FOLDS, **how)
    spent = time.process_time() - began
    model = path.best_result.model
    yield (
        f"Coterie, {STAGES} stages, radius {path.best_strength:g} of 4, {FOLDS} folds",
        error(model.predict(everywhere)),
        spent,
    )
    began = time.process_time()
    fold = np.random.default_rng(1).integers(FOLDS, size=len(y))

    def lost(rank: int, ridge: float) -> float:
        total = 0.0
        for kept in (fold != k for k in range(FOLDS)):
            found = _alternating(rows[kept], columns[kept], y[kept], truth.shape, rank, ridge)
            total += float(((found[rows, columns] - y)[~kept] ** 2).sum())
        return total

    rank, ridge = min(
        ((rank, ridge) for rank in (4, 5, 6, 7) for ridge in RIDGES), key=lambda x: lost(*x)
    )
    found = _alternating(rows, columns, y, truth.shape, rank, ridge)
    spent = time.process_time() - began
    yield (
        f"alternating least squares, rank {rank} and ridge {ridge} of 20, {FOLDS} folds",
        error(found.ravel()),
        spent,
    )


def _alternating(
    rows: Any,
    columns: Any,
    y: Any,
    shape: tuple[int, int],
    rank: int,
    ridge: float,
    turns: int = 100,
) -> Any:
    """Alternating least squares with a free number for every row and column."""
    rng, places, level = np.random.default_rng(1), (rows, columns), y.mean()
    sides, free = (
        [0.1 * rng.standard_normal((size, rank)) for size in shape],
        [np.zeros(size) for size in shape],
    )
    prices = np.diag([ridge] * rank + [1e-3])
    for _ in range(turns):
        for k in (0, 1):
            Z = np.column_stack([sides[1 - k], np.ones(shape[1 - k])])
            where, size = (places[k], places[1 - k]), (shape[k], shape[1 - k])
            seen = sp.csr_array((np.ones(len(y)), where), shape=size)
            rest = sp.csr_array((y - level - free[1 - k][places[1 - k]], where), shape=size)
            G = (seen @ (Z[:, :, None] * Z[:, None, :]).reshape(len(Z), -1)).reshape(
                -1, rank + 1, rank + 1
            ) + prices
            found = np.linalg.solve(G, (rest @ Z)[:, :, None])[:, :, 0]
            sides[k], free[k] = found[:, :rank], found[:, rank]
    return sides[0] @ sides[1].T + level + free[0][:, None] + free[1]


PROBLEMS: dict[str, Callable[[], Iterator[tuple[str, float, float]]]] = {
    "26 classes, 20000 × 16: wrong": of_classes,
    "completion, 600 × 400, 10 %: error": of_entries,
}


def measured(name: str) -> Iterator[Row]:
    """A row for us and one for somebody else."""
    for solver, error, seconds in PROBLEMS[name]():
        yield {
            "table": "accuracy",
            "problem": name,
            "solver": solver,
            "error": error,
            "seconds": seconds,
        }


if __name__ == "__main__":
    for name in PROBLEMS:
        for row in measured(name):
            print(
                f"{name}: {row['solver']}: {row['error']:.4f} in {row['seconds']:.1f} s", flush=True
            )
