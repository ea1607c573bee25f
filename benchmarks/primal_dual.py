"""Rounds of the five primal-dual rules: the best of a grid of fixed ρ as published, beside "auto"
with acceleration.

    python benchmarks/primal_dual.py                  Experiment 2 of paper 002 (ridge and lasso,
    IID and not, K = 30)
    python benchmarks/primal_dual.py --svm            support vector machines, K = 10, 60, 100
    (COTERIE_DATA; an hour)
    python benchmarks/primal_dual.py --fresh          random problems on which no setting was chosen
    python benchmarks/primal_dual.py --seconds        local work beside liblinear, Spark's MLlib and
    dask-glm, K = 8 python benchmarks/primal_dual.py --rules proximal-1 --quick

Rounds are counted to a relative suboptimality and to a relative duality gap of 1e-6 ("sub / gap");
"–" means not within the limit of rounds. Nothing is tuned for "auto".
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

sys.path.insert(0, str(Path(__file__).parents[1]))

import coterie as co
from benchmarks import peers, problems
from papers import datasets

NEAR = 1e-3
RULES = ["consensus", "proximal-1", "lin-consensus", "proximal-2", "cocoa"]
Case = tuple[str, co.Problem, tuple, int]
OPTIMA = {"SVM text, l1": 0.09694973223112}
"""Where no method here comes near enough: the primal and dual value, equal to 6e-13, of an
interior-point method on all 20,958 columns.
"""


def experiment2() -> Iterator[Case]:
    """The rows of the table: λ for ridge, a share of λ_max for lasso."""
    for iid in (True, False):
        kind = "IID" if iid else "non-IID"
        ridge = datasets.experiment2(iid=iid).train
        n = ridge.n
        for name, strength in (("1e-2", 1e-2), ("1e-3", 1e-3), ("1/n", 1 / n))[0 if iid else 2 :]:
            yield (
                f"{kind} ridge λ = {name}",
                co.Problem("squared", "l2", strength, intercept=False),
                (ridge.X, ridge.y),
                30,
            )
        lasso = datasets.experiment2(iid=iid, sparse=True).train
        largest = np.abs(lasso.X.T @ lasso.y).max() / n
        for share in (0.1, 0.01)[0 if iid else 1 :]:
            yield (
                f"{kind} lasso {share} λmax",
                co.Problem("squared", "l1", share * largest, intercept=False),
                (lasso.X, lasso.y),
                30,
            )


def machines() -> Iterator[Case]:
    """Support vector machines with λ = 1/n, as many agents as in the paper."""
    for name, make, agents in (
        ("a1a", datasets.a1a, 10),
        ("w8a", datasets.w8a, 60),
        ("text", datasets.text_like, 100),
    ):
        for penalty in ("l2", "l1"):
            table = make().train
            yield (
                f"SVM {name}, {penalty}",
                co.Problem("hinge", penalty, 1 / table.n, intercept=False),
                (table.X, table.y),
                agents,
            )


def fresh() -> Iterator[Case]:
    """Problems on which nothing was chosen: columns of falling size, a sparse model, noise."""
    rng = np.random.default_rng(2026)
    for loss, penalty, n, d, agents in (
        ("hinge", "l2", 1500, 60, 12),
        ("absolute", "l2", 1500, 60, 12),
        ("hinge", "l1", 1500, 60, 12),
        ("logistic", "l2", 3000, 100, 20),
        ("squared", "l2", 3000, 400, 20),
    ):
        X = rng.standard_normal((n, d)) * np.logspace(0, -1, d)
        scores = X @ (rng.standard_normal(d) * (rng.random(d) < 0.3)) + 0.3 * rng.standard_normal(n)
        y = scores if loss in ("absolute", "squared") else np.where(scores > 0, 1.0, -1.0)
        yield (
            f"fresh {loss}, {penalty}",
            co.Problem(loss, penalty, 1 / n, intercept=False),
            (X, y),
            agents,
        )


def rounds_to(result: co.Result, best: float, tol: float = 1e-6) -> tuple[float, float]:
    """Rounds to a relative suboptimality and to a relative gap of `tol`; infinite if never."""
    history, unit = result.history, result.certificate.primal_at_zero
    reached = (history.primal - best <= tol * best, history.gap <= tol * unit)
    return tuple(float(history["round"][mask][0]) if mask.any() else np.inf for mask in reached)


def solved(
    case: Case, rule: str, limit: int, best: float, check: int, **options: Any
) -> tuple[float, float]:
    """Rounds of one run, which ends when both aims are reached."""
    _, problem, data, agents = case
    seen = {"gap": np.inf, "primal": np.inf}
    unit = problem.loss.value(np.zeros(len(data[1])), data[1]) / len(data[1])

    def both(name: str, value: float, step: int) -> bool:
        seen[name] = value
        return (
            name == "seconds"
            and seen["gap"] <= 1e-6 * unit
            and seen["primal"] - best <= 1e-6 * best
        )

    run = {
        "agents": agents,
        "method": rule,
        "check_every": check,
        "tol": 1e-10,
        "max_rounds": limit,
        "callback": both,
    }
    return rounds_to(co.solve(problem, data, **run, **options), best)


def best_fixed(
    case: Case, rule: str, grid: np.ndarray, limit: int, best: float, check: int
) -> np.ndarray:
    """The fewest rounds of the grid as published, for each aim; cocoa has nothing to choose.

    From the middle outwards. Nothing runs longer than the best so far, and after two points in a
    row that are no better in either aim, those farther out on that side are left alone.
    """
    if rule == "cocoa":
        return np.array(solved(case, rule, limit, best, check, acceleration="none"))
    middle = len(grid) // 2
    fewest = np.array(solved(case, rule, limit, best, check, acceleration="none", rho=grid[middle]))
    for side in (grid[middle + 1 :], grid[:middle][::-1]):
        since = 0
        for rho in side:
            cap = limit if np.isinf(fewest).any() else int(fewest.max())
            there = np.array(solved(case, rule, cap, best, check, acceleration="none", rho=rho))
            since = 0 if (there < fewest).any() or np.isinf(fewest).all() else since + 1
            fewest = np.minimum(fewest, there)
            if since == 2:
                break
    return fewest


def measure(
    case: Case, rule: str, grid: np.ndarray, limit: int, best: float, check: int, store: dict
) -> str:
    """One cell: the best fixed ρ for each aim, then auto."""
    name, problem, *_ = case
    if rule == "cocoa" and problem.penalty.strong_convexity == 0:
        return "needs l2"
    fast = solved(case, rule, limit, best, check)
    key = f"{name} {rule} {len(grid)}"
    if key not in store:
        store[key] = list(best_fixed(case, rule, grid, limit, best, check))
    plain = store[key]
    ratios = " / ".join(
        f"{a / b:.2f}" if np.isfinite(a + b) else "–" for a, b in zip(fast, plain, strict=True)
    )
    return f"{_pair(plain)} → {_pair(fast)}  (×{ratios})"


def _pair(values: tuple[float, float] | np.ndarray) -> str:
    return " / ".join("–" if not np.isfinite(value) else f"{value:.0f}" for value in values)


def table(
    cases: Iterator[Case], chosen: argparse.Namespace, grid: np.ndarray, limit: int, check: int
) -> None:
    """Print one line per problem and rule: sub / gap of the best fixed ρ → of auto, and their
    ratio.
    """
    store = json.loads(chosen.store.read_text()) if chosen.store and chosen.store.exists() else {}
    for case in cases:
        name, problem, data, _ = case
        if chosen.only not in name:
            continue
        if name in OPTIMA:
            store[name] = OPTIMA[name]
        elif name not in store:
            exact = co.solve(
                problem, data, agents=8, tol=1e-9 if chosen.svm else 1e-11, max_rounds=20_000
            )
            store[name] = 0.5 * (exact.certificate.primal + exact.certificate.dual)
        for rule in chosen.rules:
            print(
                (
                    f"{name:24s} {rule:14s} "
                    f"{measure(case, rule, grid, limit, store[name], check, store)}"
                ),
                flush=True,
            )
            if chosen.store:
                chosen.store.write_text(json.dumps(store))


def seconds(only: str, alone: bool) -> None:
    """CPU seconds to a relative suboptimality of 1e-3, eight agents in one process, beside others
    in the same run.

    Ours is that of the whole call, from checking the data to the certificate, with as many rounds
    as are needed. Spark has started, and holds the data, before the clock; with its start is
    printed beside it. For a peer it is the fewest iterations or the loosest tolerance of a list
    with which it comes near enough.
    """
    for name, make in (("w8a", datasets.w8a), ("real-sim-sized", datasets.text_like)):
        if only not in name:
            continue
        data = make().train
        for loss in ("hinge", "logistic"):
            case = problems.Case(
                name,
                co.Problem(loss, "l2", 1 / data.n, intercept=False),
                data.X,
                data.y.astype(float),
            )
            best = optimum(case)
            print(f"{name}, {loss}: P* = {best:.9f}", flush=True)
            baseline = show(
                "scikit-learn liblinear", near_enough(liblinear(case), case, best), None
            )
            own, _ = (show_ours(case, method, best, baseline) for method in ("auto", "proximal-1"))
            for label, fits in () if alone else others(case):
                show(label, near_enough(fits, case, best), own)


def show_ours(case: problems.Case, method: str, best: float, baseline: float) -> float:
    """Print our line and return our seconds."""
    rounds, chosen = rounds_near(case, method, best)
    spent = min(clocked(lambda: ours(case, method, rounds, rounds))[1] for _ in range(3))
    print(
        (
            f"  {method} ({chosen}, {rounds} rounds): {spent:.3f} s, liblinear x "
            f"{spent / baseline:.1f}"
        ),
        flush=True,
    )
    return spent


Attempts = Iterator[tuple[str, Callable[[], np.ndarray], float]]
"""How hard it tries, in words; the fit; and CPU seconds that were spent before it could begin."""


def clocked(
    work: Callable[[], Any], clock: Callable[[], float] = time.process_time
) -> tuple[Any, float]:
    """What it returns, and how long it took."""
    began = clock()
    return work(), clock() - began


def ours(case: problems.Case, method: str, rounds: int, check: int) -> co.Result:
    """A run of at most so many rounds."""
    run = {
        "agents": case.agents,
        "tol": 1e-9,
        "max_rounds": rounds,
        "check_every": check,
        "method": method,
    }
    return co.solve(case.problem, (case.X, case.y), **run)


def rounds_near(case: problems.Case, method: str, best: float) -> tuple[int, str]:
    """After how many rounds that method comes near enough, and which one it is."""
    result = ours(case, method, 400, 1)
    near = result.history["round"][result.history.primal <= (1 + NEAR) * best]
    return int(near[0]) if len(near) else 400, result.certificate.settings["method"]["name"]


def optimum(case: problems.Case) -> float:
    """P*, by a method of second order where columns are few, else by liblinear's many epochs or our
    own many rounds.
    """
    if case.X.shape[1] <= 1000 or case.problem.loss.name != "hinge":
        return co.solve(
            case.problem, (case.X, case.y), agents=8, tol=1e-8, max_rounds=2000
        ).certificate.primal
    return case.objective(next(liblinear(case, (2000,)))[1]())


def near_enough(
    fits: Attempts, case: problems.Case, best: float
) -> tuple[str, float, float, float]:
    """The first attempt that comes near enough: how hard, CPU seconds of the fit, those before it,
    and how near.
    """
    measured = "nothing", np.inf, np.inf, np.inf
    for how, fit, before in fits:
        clock = jvm_clock() if how.startswith("maxIter") else time.process_time
        w, spent = clocked(fit, clock)
        measured = how, spent, before, case.objective(w) / best - 1
        if measured[-1] <= NEAR:
            quickest = (
                min(spent, *(clocked(fit, clock)[1] for _ in range(2))) if spent < 5 else spent
            )
            return how, quickest, before, measured[-1]
    return measured


def show(name: str, measured: tuple[str, float, float, float], own: float | None) -> float:
    """Print a peer's line and return its seconds."""
    how, spent, before, distance = measured
    beside = (
        "" if own is None else f", ours x {spent / own:.0f}; with its start {before + spent:.1f} s"
    )
    missed = "" if distance <= NEAR else f" (comes only within {distance:.1e})"
    print(f"  {name} ({how}): {spent:.3f} s{beside}{missed}", flush=True)
    return spent


def liblinear(
    case: problems.Case, epochs: Sequence[int] = (3, 5, 7, 10, 15, 20, 30, 45, 70, 100, 200)
) -> Attempts:
    """scikit-learn's LinearSVC, or LogisticRegression with liblinear's dual solver."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.svm import LinearSVC

    def fit(count: int) -> np.ndarray:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            common = {"fit_intercept": False, "tol": 1e-12, "max_iter": count, "dual": True}
            svm = case.problem.loss.name == "hinge"
            model = (
                LinearSVC(loss="hinge", **common)
                if svm
                else LogisticRegression(solver="liblinear", **common)
            )
            return model.fit(case.X, case.y).coef_[0]

    for count in epochs:
        yield f"{count} epochs", lambda count=count: fit(count), 0.0


def others(case: problems.Case) -> Iterator[tuple[str, Attempts]]:
    """Spark's MLlib and dask-glm, where they are installed and know the loss."""
    installed = {peer.name for peer in peers.PEERS if peers.missing(peer) is None}
    if "Spark MLlib" in installed:
        yield "Spark MLlib", mllib(case)
    else:
        print("  Spark MLlib is not installed here")
    gigabytes = 8e-9 * np.prod(case.X.shape)
    for peer in peers.PEERS:
        if peer.package != "dask_glm" or case.problem.loss.name != "logistic":
            continue
        if peer.name not in installed:
            print(f"  {peer.name} is not installed here")
        elif gigabytes > 2:
            print(f"  {peer.name} wants dense arrays, {gigabytes:.0f} GB here: left out")
        else:
            yield peer.name, dask(case, peer)


def dask(case: problems.Case, peer: peers.Peer) -> Attempts:
    """dask-glm in one thread."""
    import dask as library

    def fit(tol: float) -> np.ndarray:
        with library.config.set(scheduler="single-threaded"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return peer.fit(case, tol)

    for tol in (1e-2, 1e-3, 1e-4, 1e-5):
        yield f"tol {tol:g}", lambda tol=tol: fit(tol), 0.0


def spark() -> Any:
    """A session with as many threads as there are agents at work at a time here: one."""
    from pyspark.sql import SparkSession

    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": "4g",
    }
    return SparkSession.builder.master("local[1]").config(map=settings).getOrCreate()


def jvm_clock() -> Callable[[], float]:
    """CPU seconds of Spark's own process and of this one (Linux counts them in /proc)."""
    status = (
        Path("/proc")
        / str(spark().sparkContext._jvm.java.lang.ProcessHandle.current().pid())
        / "stat"
    )
    tick = os.sysconf("SC_CLK_TCK")
    return lambda: (
        sum(map(int, status.read_text().rpartition(")")[2].split()[11:13])) / tick
        + time.process_time()
    )


def mllib(case: problems.Case) -> Attempts:
    """MLlib's LinearSVC or LogisticRegression on a frame that is cached in eight partitions; a
    first fit warms up.
    """
    from pyspark.ml.classification import LinearSVC, LogisticRegression
    from pyspark.ml.linalg import Vectors

    began = time.process_time()
    clock, csr = jvm_clock(), sp.csr_array(case.X)
    spans = zip(case.y, csr.indptr[:-1], csr.indptr[1:], strict=True)
    rows = [
        (float(y > 0), Vectors.sparse(csr.shape[1], csr.indices[a:b], csr.data[a:b]))
        for y, a, b in spans
    ]
    frame = spark().createDataFrame(rows, ["label", "features"]).repartition(case.agents).cache()
    frame.count()
    kind = LinearSVC if case.problem.loss.name == "hinge" else LogisticRegression
    settings = {
        "regParam": case.problem.penalty.strong_convexity,
        "fitIntercept": False,
        "standardization": False,
    }

    def fit(count: int) -> np.ndarray:
        return kind(maxIter=count, tol=1e-12, **settings).fit(frame).coefficients.toArray()

    fit(2)
    before = clock() - began
    for count in (10, 30, 100):
        yield f"maxIter {count}", lambda count=count: fit(count), before
    frame.unpersist()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--svm", action="store_true")
    parser.add_argument("--fresh", action="store_true")
    parser.add_argument("--seconds", action="store_true")
    parser.add_argument("--alone", action="store_true", help="--seconds without Spark and dask-glm")
    parser.add_argument("--quick", action="store_true", help="5 instead of 13 points in the grid")
    parser.add_argument(
        "--only", default="", help="only problems with this in their name, e.g. a1a"
    )
    parser.add_argument("--rules", nargs="*", default=RULES)
    parser.add_argument(
        "--limit", type=int, help="rounds at most: 600, or 1500 for the support vector machines"
    )
    parser.add_argument(
        "--store", type=Path, help="a file that remembers optima and grids, to go on from later"
    )
    chosen = parser.parse_args()
    points, lowest = 5 if chosen.quick else 13, -1 if chosen.svm else -3
    grid = 10.0 ** np.linspace(lowest, lowest + 6, points)
    if chosen.seconds:
        seconds(chosen.only, chosen.alone)
    elif chosen.svm:
        table(machines(), chosen, grid, chosen.limit or 1500, 5)
    elif chosen.fresh:
        table(fresh(), chosen, grid, chosen.limit or 1500, 5)
    else:
        table(experiment2(), chosen, grid, chosen.limit or 600, 1)
