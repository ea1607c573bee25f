"""Rounds, megabytes and CPU seconds of second-order methods beside `proximal-1`: eight agents, one
process, tol = 1e-6.

python benchmarks/second_order.py           Experiment 2 of paper 002, many rare columns; with
                                            COTERIE_DATA also others
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

import coterie as co
from benchmarks.problems import wide
from papers import datasets

Case = tuple[str, co.Problem, tuple, list[str]]


def cases() -> Iterator[Case]:
    """The rows of the table."""
    lasso = datasets.experiment2(sparse=True).train
    ridge = datasets.experiment2().train
    largest = np.abs(lasso.X.T @ lasso.y).max() / lasso.n
    both, rare = ["gram", "proximal-1"], wide()
    yield (
        "ridge λ = 1/n, 3000 × 500",
        co.Problem("squared", "l2", 1 / ridge.n, intercept=False),
        (ridge.X, ridge.y),
        both,
    )
    yield (
        "lasso 0.01 λmax, 3000 × 500",
        co.Problem("squared", "l1", 0.01 * largest, intercept=False),
        (lasso.X, lasso.y),
        both,
    )
    for penalty in ("l2", "l1"):
        title = f"logistic {penalty} 3e-5, 30 ones a row, {rare.n} × {rare.d}"
        yield (
            title,
            co.Problem("logistic", penalty, 3e-5, intercept=False),
            (rare.X, rare.y),
            ["newton", "proximal-1"],
        )
    if not os.environ.get("COTERIE_DATA"):
        print("set COTERIE_DATA for the rest")
        return
    for name, make in (("w8a", datasets.w8a), ("text", datasets.text_like)):
        data = make().train
        for penalty, strength in (("l2", 1 / data.n), ("l1", 10 / data.n)):
            title = f"logistic {penalty}, {name}, {data.n} × {data.d}"
            yield (
                title,
                co.Problem("logistic", penalty, strength, intercept=False),
                (data.X, data.y),
                ["newton", "proximal-1"],
            )
    for name, make in (("a1a", datasets.a1a), ("w8a", datasets.w8a)):
        data = make().train
        for penalty in ("l2", "l1"):
            title, problem = (
                f"hinge {penalty}, {name}, {data.n} × {data.d}",
                co.Problem("hinge", penalty, 1 / data.n, intercept=False),
            )
            yield title, problem, (data.X, data.y), ["interior-point", "proximal-1"]
        title, problem = (
            f"hinge box ±0.3, {name}, {data.n} × {data.d}",
            co.Problem("hinge", "box", lower=-0.3, upper=0.3, intercept=False),
        )
        yield title, problem, (data.X, data.y), ["interior-point", "proximal-1"]


if __name__ == "__main__":
    for name, problem, data, methods in cases():
        for method in methods:
            co.solve(
                problem, (data[0][::100], data[1][::100]), agents=2, method=method, max_rounds=5
            )  # compile
            began = time.process_time()
            result = co.solve(problem, data, agents=8, method=method, max_rounds=1000)
            seconds, megabytes = time.process_time() - began, result.bill.total.bits / 8e6
            rounds = result.rounds if result.status == "optimal" else f"> {result.rounds}"
            print(f"| {name} | {method} | {rounds} | {megabytes:.3g} | {seconds:.2f} |", flush=True)
