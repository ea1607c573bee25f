"""The problems of the benchmarks, with their data: what is solved, by how many agents."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

import coterie as co
from coterie.data import datasets

__all__ = ["Case", "cases"]


@dataclass(frozen=True)
class Case:
    """One row of the tables."""

    name: str
    problem: co.Problem
    X: Any
    y: np.ndarray
    agents: int = 8

    def objective(self, w: np.ndarray) -> float:
        """P(w), computed here for everybody."""
        w = np.asarray(w, float).ravel()
        return self.problem.loss.value(self.X @ w, self.y) / len(self.y) + self.problem.penalty.value(w)


def cases(quick: bool) -> Iterator[Case]:
    """Dense and ill-conditioned ones that need no file; then those on the papers' files, if `COTERIE_DATA` has them."""
    ridge, lasso = datasets.experiment2().train, datasets.experiment2(sparse=True).train
    n, largest = ridge.n, float(np.abs(lasso.X.T @ lasso.y).max()) / lasso.n
    yield Case("ridge, 3000 × 500", co.Problem("squared", "l2", 1 / n), ridge.X, ridge.y)
    yield Case("lasso, 3000 × 500", co.Problem("squared", "l1", 0.01 * largest), lasso.X, lasso.y)
    rng = np.random.default_rng(0)
    wild = np.where(rng.random(n) < 0.1, 10 * rng.standard_normal(n), 0.0)
    spread = float(np.std(lasso.y))
    noisy = (lasso.y / spread + wild).astype(float)
    yield Case("Huber l2, 3000 × 500", co.Problem("huber", "l2", 1e-3, threshold=1.0), lasso.X, noisy)
    few = slice(0, 1500), slice(0, 60)
    yield Case("quantile l1, 1500 × 60", co.Problem("quantile", "l1", 1e-3, level=0.7), lasso.X[few], noisy[few[0]])
    if not os.environ.get("COTERIE_DATA"):
        print("(no COTERIE_DATA: the problems on a1a, w8a and the text set are left out)")
        return
    sets = [("a1a", datasets.a1a), ("w8a", datasets.w8a)] + ([] if quick else [("text", datasets.text_like)])
    for name, make in sets:
        table = make().train
        X, y, n = table.X, table.y.astype(float), table.n
        size = f"{name}, {n} × {table.d}"
        yield Case(f"logistic l2, {size}", co.Problem("logistic", "l2", 1 / n), X, y)
        yield Case(f"logistic l1, {size}", co.Problem("logistic", "l1", 10 / n), X, y)
        yield Case(f"hinge l2, {size}", co.Problem("hinge", "l2", 1 / n), X, y)
        if name == "a1a":
            yield Case(f"hinge l1, {size}", co.Problem("hinge", "l1", 1 / n), X, y)
