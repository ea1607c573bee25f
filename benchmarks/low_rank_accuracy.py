"""How well low-rank models predict, at the radius that cross-validation at the agents chooses, beside others.

    python -m benchmarks.low_rank_accuracy            both, some minutes

26 classes: 20,000 rows of 16 columns with offsets and scales of their own, a quarter of them kept back; scikit-learn's
softmax. Completion: a 600 × 400 matrix of rank 5 with row and column means, 10 % observed with noise 0.3; alternating
least squares that know the rank, on what the same means leave. The error is that of the noiseless matrix.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegression

import coterie as co

AGENTS, RANK = 8, 5
Row = dict[str, float | str]


def letters() -> tuple[np.ndarray, np.ndarray]:
    """Clouds of 26 classes, in columns of whole numbers."""
    rng = np.random.default_rng(0)
    scale, offset = rng.uniform(1.0, 4.0, 16), rng.uniform(2.0, 9.0, 16)
    y = rng.integers(26, size=20_000)
    centres, own = 0.6 * rng.standard_normal((26, 16)), rng.uniform(0.5, 1.2, (26, 16))
    turn = np.linalg.qr(rng.standard_normal((16, 16)))[0]
    return np.round(offset + scale * ((centres[y] + own[y] * rng.standard_normal((20_000, 16))) @ turn)), y


def of_classes() -> Iterator[tuple[str, float, float]]:
    """Solver, share of wrong classes, CPU seconds."""
    X, y = letters()
    train = np.arange(len(y)) % 4 != 0
    began = time.process_time()
    problem = co.Problem("multinomial", "traceball", radius=1.0, intercept=True)
    path = co.path(problem, (X[train], y[train]), [3, 10, 30, 100], cv=3, agents=AGENTS, tol=1e-4, progress=False)
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
    yield "scikit-learn softmax", 1 - softmax.score(X[~train], y[~train]), time.process_time() - began


def of_entries() -> Iterator[tuple[str, float, float]]:
    """Solver, root of the mean squared error of all entries, CPU seconds."""
    rng = np.random.default_rng(0)
    truth = rng.standard_normal((600, RANK)) @ rng.standard_normal((RANK, 400)) / np.sqrt(RANK)
    truth += 3.0 + rng.standard_normal((600, 1)) + rng.standard_normal(400)
    rows, columns = np.nonzero(rng.random(truth.shape) < 0.1)
    y = truth[rows, columns] + 0.3 * rng.standard_normal(len(rows))
    pairs, everywhere = np.column_stack([rows, columns]).astype(float), np.argwhere(truth > -np.inf).astype(float)

    def error(found: Any) -> float:
        return float(np.sqrt(np.mean((found - truth.ravel()) ** 2)))

    began = time.process_time()
    problem = co.Problem("completion", "traceball", radius=1.0, intercept=True, shape=truth.shape)
    how = {"agents": AGENTS, "tol": 1e-2, "max_rounds": 30, "progress": False}
    path = co.path(problem, (pairs, y), [400, 600, 800], cv=2, **how)
    spent = time.process_time() - began
    model = path.best_result.model
    yield f"Coterie, radius {path.best_strength:g} of 3, 2 folds", error(model.predict(everywhere)), spent
    began = time.process_time()
    rest = y - model.a[rows] - model.b[columns]
    left = _alternating(rows, columns, rest, truth.shape)
    found = left + model.a[:, None] + model.b
    yield f"alternating least squares of rank {RANK}", error(found.ravel()), time.process_time() - began


def _alternating(rows: Any, columns: Any, y: Any, shape: tuple[int, int], ridge: float = 0.5, turns: int = 30) -> Any:
    sides = [0.1 * np.random.default_rng(1).standard_normal((size, RANK)) for size in shape]
    places = [[np.flatnonzero(of == k) for k in range(size)] for of, size in zip((rows, columns), shape, strict=True)]
    for _ in range(turns):
        for side, other in ((0, columns), (1, rows)):
            for k, own in enumerate(places[side]):
                Z = sides[1 - side][other[own]]
                sides[side][k] = np.linalg.solve(Z.T @ Z + ridge * np.eye(RANK), Z.T @ y[own])
    return sides[0] @ sides[1].T


PROBLEMS: dict[str, Callable[[], Iterator[tuple[str, float, float]]]] = {
    "26 classes, 20000 × 16: wrong": of_classes,
    "completion, 600 × 400, 10 %: error": of_entries,
}


def measured(name: str) -> Iterator[Row]:
    """A row for us and one for somebody else."""
    for solver, error, seconds in PROBLEMS[name]():
        yield {"table": "accuracy", "problem": name, "solver": solver, "error": error, "seconds": seconds}


if __name__ == "__main__":
    for name in PROBLEMS:
        for row in measured(name):
            print(f"{name}: {row['solver']}: {row['error']:.4f} in {row['seconds']:.1f} s", flush=True)
