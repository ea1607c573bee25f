"""All cores of one machine: the embedded engine on one thread and on several, beside scikit-learn.

    python benchmarks/all_cores.py [--rows 3000000] [--threads 1,2] [--turns 5] [--write
    docs/engines/costs.md]

Logistic regression with l2 in single precision. Everybody is asked for more and more accuracy, in
its own terms, until the objective, computed here in double precision, is within 1e-6 of the best
one, as a share of what a model of zeros loses. Then all take turns, and the fastest turn of each
counts: seconds of the clock, processor time, and how many cores were busy. On a machine that is
doing something else, only the processor time means anything.
"""

from __future__ import annotations

import argparse
import math
import re
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
from sklearn.linear_model import LogisticRegression
from threadpoolctl import threadpool_limits

import coterie as co
from coterie.numerics.threads import all_cores

STRENGTH, ENOUGH, ROWS_AT_A_TIME = 1e-4, 1e-6, 100_000
TOLERANCES = (1e-3, 1e-4, 1e-5, 1e-6, 1e-7, 1e-8)
MARK = "<!-- all cores -->"


def made(rows: int, columns: int) -> tuple[np.ndarray, np.ndarray]:
    """Columns that have a fifth of themselves in common, and labels of a logistic model."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((rows, columns), dtype=np.float32)
    X += 0.5 * X[:, :1]
    w = (rng.standard_normal(columns) / math.sqrt(columns)).astype(np.float32)
    return X, np.where(X @ w + rng.logistic(size=rows) > 0, 1.0, -1.0).astype(np.float32)


def objective(X: np.ndarray, y: np.ndarray, w: np.ndarray) -> float:
    """(1/n) Σ log(1 + e^{−y x·w}) + ½ λ ‖w‖², in double precision."""
    blocks = (slice(start, start + ROWS_AT_A_TIME) for start in range(0, len(y), ROWS_AT_A_TIME))
    losses = sum(
        float(np.logaddexp(0.0, -y[rows] * (X[rows].astype(float) @ w)).sum()) for rows in blocks
    )
    return losses / len(y) + 0.5 * STRENGTH * float(w @ w)


def scikit(X: np.ndarray, y: np.ndarray, tol: float) -> np.ndarray:
    """scikit-learn's lbfgs."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = LogisticRegression(
            C=1 / (len(y) * STRENGTH), fit_intercept=False, tol=tol, max_iter=10_000
        )
        return model.fit(X, y).coef_[0].astype(float)


def coterie(X: np.ndarray, y: np.ndarray, tol: float, threads: int) -> np.ndarray:
    """The embedded engine, with eight agents and a certificate."""
    result = co.solve(
        co.Problem("logistic", "l2", STRENGTH, intercept=False),
        (X, y),
        tol=tol,
        threads=threads,
        progress=False,
    )
    return result.model.coef_.astype(float)


def measure(rows: int, columns: int, counts: list[int], turns: int) -> str:
    """One line for each."""
    X, y = made(rows, columns)
    solvers: dict[str, Callable[[float], np.ndarray]] = {
        "scikit-learn lbfgs": lambda tol: scikit(X, y, tol)
    }
    for count in counts:
        solvers[f"Coterie, threads={count}"] = lambda tol, count=count: coterie(X, y, tol, count)
    best = objective(X, y, coterie(X, y, 1e-9, all_cores()))
    needed = {
        name: next(
            tol for tol in TOLERANCES if objective(X, y, solve(tol)) - best <= ENOUGH * math.log(2)
        )
        for name, solve in solvers.items()
    }
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in solvers}
    for _ in range(turns):
        for name, solve in solvers.items():
            cpu, clock = time.process_time(), time.perf_counter()
            with threadpool_limits(all_cores()):  # Coterie holds its agents to one
                solve(needed[name])
            found[name].append((time.perf_counter() - clock, time.process_time() - cpu))
    first = min(found["scikit-learn lbfgs"])[0]
    lines = [
        (
            f"{rows:,} × {columns}, float32, logistic l2, within {ENOUGH:g}    seconds   "
            "processor   "
            "cores busy   ratio"
        )
    ]
    for name, pairs in found.items():
        clock, cpu = min(pairs)
        lines.append(
            f"{name:<{len(lines[0]) - 40}}{clock:>9.2f}{cpu:>12.2f}{cpu / clock:>12.2f}{clock / first:>7.2f}"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=3_000_000)
    parser.add_argument("--columns", type=int, default=50)
    parser.add_argument("--threads", default=f"1,{all_cores()}")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--write", type=Path)
    given = parser.parse_args()
    counts = sorted({int(count) for count in given.threads.split(",")})
    found = measure(given.rows, given.columns, counts, given.turns)
    print(found)
    if given.write is not None:
        fenced = f"{MARK}\n```text\n{found}\n```"
        page = given.write.read_text()
        given.write.write_text(
            re.sub(MARK + r"\n```text\n.*?\n```", lambda _: fenced, page, flags=re.S)
        )


if __name__ == "__main__":
    main()
