"""The problems of the benchmarks by name; their data is made, or read, when it is asked for."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

import numpy as np
import scipy.sparse as sp

import coterie as co
from coterie.data import Table
from coterie.data.table import canonical_csr
from papers import datasets

__all__ = ["COLUMNS", "PROBLEMS", "WIDE", "Case", "available", "case", "wide"]


@dataclass(frozen=True)
class Case:
    """A problem and its data."""

    name: str
    problem: co.Problem
    X: Any
    y: np.ndarray
    agents: int = 8

    def objective(self, w: np.ndarray) -> float:
        """P(w), computed here for everybody."""
        w = np.asarray(w, float).ravel()
        return self.problem.loss.value(self.X @ w, self.y) / len(
            self.y
        ) + self.problem.penalty.value(w)


@cache
def _dense(kind: str) -> tuple[co.Problem, Any, np.ndarray]:
    """Experiment 2 of paper 002, ill-conditioned; for Huber and quantile with outliers in a tenth
    of the labels.
    """
    table = datasets.experiment2(sparse=kind != "ridge").train
    X, y, n = table.X, table.y, table.n
    if kind == "ridge":
        return co.Problem("squared", "l2", 1 / n, intercept=False), X, y
    if kind == "lasso":
        return (
            co.Problem("squared", "l1", 0.01 * float(np.abs(X.T @ y).max()) / n, intercept=False),
            X,
            y,
        )
    rng = np.random.default_rng(0)
    wild = np.where(rng.random(n) < 0.1, 10 * rng.standard_normal(n), 0.0)
    noisy = (y / float(np.std(y)) + wild).astype(float)
    if kind == "huber":
        return co.Problem("huber", "l2", 1e-3, threshold=1.0, intercept=False), X, noisy
    return (
        co.Problem("quantile", "l1", 1e-3, level=0.7, intercept=False),
        X[:1500, :60],
        noisy[:1500],
    )


@cache
def _table(name: str) -> Table:
    if name == "mnist":
        # Even digits against odd ones, every fifth row; pixels that are 0 everywhere stay.
        train = datasets.mnist().train
        rows = slice(None, None, 5)
        return Table(
            np.ascontiguousarray(train.X[rows]), np.where(train.y[rows] % 2 == 0, 1.0, -1.0)
        )
    table = {"a1a": datasets.a1a, "w8a": datasets.w8a, "text": datasets.text_like}[name]().train
    return replace(table, y=table.y.astype(float))


def _classes(
    name: str, loss: str, penalty: str, strength: float
) -> tuple[co.Problem, Any, np.ndarray]:
    table = _table(name)
    return co.Problem(loss, penalty, strength / table.n, intercept=False), table.X, table.y


SIZES = {"a1a": "1605 × 119", "w8a": "49749 × 300", "text": "72309 × 20958", "mnist": "12000 × 784"}
_CLASSIFICATION = {
    "a1a": [
        ("logistic", "l2", 1.0),
        ("logistic", "l1", 10.0),
        ("hinge", "l2", 1.0),
        ("hinge", "l1", 1.0),
    ],
    "w8a": [("logistic", "l2", 1.0), ("logistic", "l1", 10.0), ("hinge", "l2", 1.0)],
    "text": [("logistic", "l2", 1.0), ("logistic", "l1", 10.0), ("hinge", "l2", 1.0)],
    "mnist": [("logistic", "l2", 10.0), ("logistic", "l1", 10.0)],
}
PROBLEMS: dict[str, Callable[[], tuple[co.Problem, Any, np.ndarray]]] = {
    "ridge, 3000 × 500": partial(_dense, "ridge"),
    "lasso, 3000 × 500": partial(_dense, "lasso"),
    "Huber l2, 3000 × 500": partial(_dense, "huber"),
    "quantile l1, 1500 × 60": partial(_dense, "quantile"),
} | {
    f"{loss} {penalty}, {'MNIST' if name == 'mnist' else name}, {SIZES[name]}": partial(
        _classes, name, loss, penalty, strength
    )
    for name, problems in _CLASSIFICATION.items()
    for loss, penalty, strength in problems
}
"""Strengths are 1/n, and 10/n for l1 with the logistic loss and on MNIST."""


@cache
def wide(rows: int = 100_000, columns: int = 100_000, ones: int = 30, seed: int = 0) -> Table:
    """Sparse rows of which a few columns have most ones: column j is drawn with a probability ∝ 1 /
    (j + 10).

    A row has `ones` draws, and as many ones as are different. Labels follow a logistic model in
    which one column of fifty counts, and whose scores have a standard deviation of 1.
    """
    rng = np.random.default_rng(seed)
    share = np.cumsum(1.0 / (np.arange(columns) + 10.0))
    drawn = rng.permutation(columns)[np.searchsorted(share, rng.random(rows * ones) * share[-1])]
    cells = (np.repeat(np.arange(rows), ones), drawn)
    X = canonical_csr(sp.coo_array((np.ones(rows * ones), cells), shape=(rows, columns)))
    X.data[:] = 1.0
    scores = X @ np.where(rng.random(columns) < 0.02, rng.standard_normal(columns), 0.0)
    scores = (scores - scores.mean()) / scores.std()
    return Table(X, np.where(scores + rng.logistic(size=rows) > 0, 1.0, -1.0))


def _wide(penalty: str) -> tuple[co.Problem, Any, np.ndarray]:
    table = wide()
    return co.Problem("logistic", penalty, 3e-5, intercept=False), table.X, table.y


WIDE = {
    f"logistic {penalty}, 100000 × 100000, 30 ones a row": partial(_wide, penalty)
    for penalty in ("l1", "l2")
}
"""As many columns as rows, most of them rare."""


@cache
def correlated(kind: str, rows: int = 3000, parties: int = 16) -> tuple[Any, np.ndarray]:
    """Four columns a party that are nearly dependent, across parties or inside each, and scores."""
    rng, d = np.random.default_rng(0), 4 * parties
    if kind == "one factor":
        X = np.sqrt(0.999) * rng.standard_normal((rows, 1)) + np.sqrt(0.001) * rng.standard_normal(
            (rows, d)
        )
    elif kind == "spectrum":
        left, right = (np.linalg.qr(rng.standard_normal((size, d)))[0] for size in (rows, d))
        X = np.sqrt(rows * d) * (left * np.arange(1.0, d + 1) ** -2) @ right.T
    else:
        X = (rng.uniform(0, 2, (rows, parties, 1)) ** np.arange(1, 5)).reshape(rows, d)
    X = X - X.mean(axis=0)
    scores = X @ rng.standard_normal(d)
    return X, (scores - scores.mean()) / scores.std() + 0.3 * rng.standard_normal(rows)


def _correlated(kind: str, loss: str) -> tuple[co.Problem, Any, np.ndarray]:
    X, scores = correlated(kind)
    return (
        co.Problem(loss, "l2", 1e-3, intercept=False),
        X,
        scores if loss == "squared" else np.where(scores > 0, 1.0, -1.0),
    )


def _many_rows(loss: str, penalty: str) -> tuple[co.Problem, Any, np.ndarray]:
    rng = np.random.default_rng(1)
    X = rng.standard_normal((100_000, 20))
    scores = X @ rng.standard_normal(20) + rng.logistic(size=len(X))
    return (
        co.Problem(loss, penalty, 1e-3, intercept=False),
        X,
        scores if loss == "absolute" else np.where(scores > 0, 1.0, -1.0),
    )


COLUMNS = {
    f"{kind}, {loss} l2, 3000 × 64": partial(_correlated, kind, loss)
    for kind in ("one factor", "spectrum", "powers")
    for loss in ("squared", "logistic")
} | {
    f"{loss} {penalty}, 100000 × 20": partial(_many_rows, loss, penalty)
    for loss, penalty in (
        ("logistic", "l2"),
        ("logistic", "l1"),
        ("hinge", "l2"),
        ("absolute", "l1"),
    )
}
"""For columns apart: correlated ones (ρ = .999, a spectrum k⁻², x … x⁴ at one party), and few
columns of many rows.
"""


def available(name: str) -> bool:
    """Whether its data is here: all but the dense ones and the text need the folder that
    `COTERIE_DATA` names.
    """
    return bool(os.environ.get("COTERIE_DATA")) or any(
        part in name for part in ("3000", "1500 ×", "text", "100000 × 20")
    )


def case(name: str, agents: int = 8) -> Case:
    """That problem, for so many agents."""
    return Case(name, *(PROBLEMS | WIDE | COLUMNS)[name](), agents)
