"""Rounds of the five primal-dual rules: the best of a grid of fixed ρ as published, beside "auto" with acceleration.

    python benchmarks/primal_dual.py                  Experiment 2 of paper 002 (ridge and lasso, IID and not, K = 30)
    python benchmarks/primal_dual.py --svm            support vector machines, K = 10, 60, 100 (COTERIE_DATA; an hour)
    python benchmarks/primal_dual.py --seconds        wall time of local work beside scikit-learn's LinearSVC, K = 8
    python benchmarks/primal_dual.py --rules proximal-1 --quick

Rounds are counted to a relative suboptimality and to a relative duality gap of 1e-6 ("sub / gap"); "–" means not within
the limit of rounds. Nothing is tuned for "auto".
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Iterator

import numpy as np

import coterie as co
from coterie.data import datasets

RULES = ["consensus", "proximal-1", "lin-consensus", "proximal-2", "cocoa"]
Case = tuple[str, co.Problem, tuple, int]


def experiment2() -> Iterator[Case]:
    """The rows of the table: λ for ridge, a share of λ_max for lasso."""
    for iid in (True, False):
        kind = "IID" if iid else "non-IID"
        ridge = datasets.experiment2(iid=iid).train
        n = ridge.n
        for name, strength in (("1e-2", 1e-2), ("1e-3", 1e-3), ("1/n", 1 / n))[0 if iid else 2 :]:
            yield f"{kind} ridge λ = {name}", co.Problem("squared", "l2", strength), (ridge.X, ridge.y), 30
        lasso = datasets.experiment2(iid=iid, sparse=True).train
        largest = np.abs(lasso.X.T @ lasso.y).max() / n
        for share in (0.1, 0.01)[0 if iid else 1 :]:
            yield f"{kind} lasso {share} λmax", co.Problem("squared", "l1", share * largest), (lasso.X, lasso.y), 30


def machines() -> Iterator[Case]:
    """Support vector machines with λ = 1/n, as many agents as in the paper."""
    for name, make, agents in (("a1a", datasets.a1a, 10), ("w8a", datasets.w8a, 60), ("text", datasets.text_like, 100)):
        for penalty in ("l2", "l1"):
            table = make().train
            yield f"SVM {name}, {penalty}", co.Problem("hinge", penalty, 1 / table.n), (table.X, table.y), agents


def rounds_to(result: co.Result, best: float, tol: float = 1e-6) -> tuple[float, float]:
    """Rounds to a relative suboptimality and to a relative gap of `tol`; infinite if never."""
    history, unit = result.history, result.certificate.primal_at_zero
    reached = (history.primal - best <= tol * best, history.gap <= tol * unit)
    return tuple(float(history["round"][mask][0]) if mask.any() else np.inf for mask in reached)


def measure(case: Case, rule: str, grid: np.ndarray, limit: int, best: float) -> str:
    """One cell: the best fixed ρ for each measure, then auto."""
    _, problem, data, agents = case
    run = {"agents": agents, "method": rule, "check_every": 1, "tol": 1e-7, "max_rounds": limit}
    if rule == "cocoa":
        if problem.penalty.strong_convexity == 0:
            return "needs l2"
        fixed = [rounds_to(co.solve(problem, data, acceleration="none", **run), best)]
    else:
        fixed = [rounds_to(co.solve(problem, data, acceleration="none", rho=rho, **run), best) for rho in grid]
    plain = np.min(fixed, axis=0)
    fast = rounds_to(co.solve(problem, data, **run), best)
    ratios = " / ".join(f"{a / b:.2f}" if np.isfinite(a + b) else "–" for a, b in zip(fast, plain, strict=True))
    return f"{_pair(plain)} → {_pair(fast)}  (×{ratios})"


def _pair(values: tuple[float, float] | np.ndarray) -> str:
    return " / ".join("–" if not np.isfinite(value) else f"{value:.0f}" for value in values)


def table(cases: Iterator[Case], rules: list[str], grid: np.ndarray, limit: int, only: str) -> None:
    """Print one line per problem and rule: sub / gap of the best fixed ρ → of auto, and their ratio."""
    for case in cases:
        name, problem, data, agents = case
        if only not in name:
            continue
        exact = co.solve(problem, data, agents=agents, tol=1e-11, max_rounds=20_000)
        best = 0.5 * (exact.certificate.primal + exact.certificate.dual)
        for rule in rules:
            print(f"{name:24s} {rule:14s} {measure(case, rule, grid, limit, best)}", flush=True)


def seconds() -> None:
    """CPU time to a relative suboptimality of 1e-3, eight agents in one process, beside liblinear in the same run.

    Ours is that of the whole call, from checking the data to the certificate, with as many rounds as are needed.
    """
    from sklearn.svm import LinearSVC

    for name, make in (("w8a", datasets.w8a), ("real-sim-sized", datasets.text_like)):
        data = make().train
        X, y, n = data.X, data.y, data.n
        problem = co.Problem("hinge", "l2", 1 / n)

        def objective(w: np.ndarray, X=X, y=y, problem=problem, n=n) -> float:
            return problem.loss.value(X @ w, y) / n + problem.penalty.value(w)

        def liblinear(epochs: int, X=X, y=y) -> tuple[np.ndarray, float]:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                began = time.process_time()
                w = LinearSVC(loss="hinge", fit_intercept=False, tol=1e-12, max_iter=epochs).fit(X, y).coef_[0]
                return w, time.process_time() - began

        def ours(method: str, rounds: int, check: int, X=X, y=y, problem=problem) -> tuple[co.Result, float]:
            began = time.process_time()
            run = {"agents": 8, "tol": 1e-9, "max_rounds": rounds, "check_every": check, "method": method}
            result = co.solve(problem, (X, y), **run)
            return result, time.process_time() - began

        best = objective(liblinear(2000)[0])
        epochs = next(k for k in (5, 10, 20, 30, 45, 70, 100, 200) if objective(liblinear(k)[0]) <= 1.001 * best)
        for method in ("auto", "proximal-1"):
            history = ours(method, 400, 1)[0].history
            near = history["round"][history.primal <= 1.001 * best]
            if not len(near):
                print(f"{name}: {method} does not come near in 400 rounds")
                continue
            turns = [(ours(method, int(near[0]), int(near[0])), liblinear(epochs)[1]) for _ in range(3)]
            spent, theirs = min(own[1] for own, _ in turns), min(other for _, other in turns)
            chosen = turns[0][0][0].certificate.settings["method"]["name"]
            print(f"{name}: {chosen} {spent:.2f} s ({near[0]} rounds), liblinear {theirs:.3f} s, "
                  f"ratio {spent / theirs:.1f}", flush=True)  # fmt: skip


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--svm", action="store_true")
    parser.add_argument("--seconds", action="store_true")
    parser.add_argument("--quick", action="store_true", help="5 instead of 13 points in the grid")
    parser.add_argument("--only", default="", help="only problems with this in their name, e.g. a1a")
    parser.add_argument("--rules", nargs="*", default=RULES)
    chosen = parser.parse_args()
    points = 10.0 ** np.linspace(-3, 3, 5 if chosen.quick else 13)
    if chosen.seconds:
        seconds()
    elif chosen.svm:
        table(machines(), chosen.rules, points, 1500, chosen.only)
    else:
        table(experiment2(), chosen.rules, points, 600, chosen.only)
