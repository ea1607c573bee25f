"""Personal models: accuracy, updates, bits, seconds and memory, each as its own table.

    python benchmarks/personal.py moons           three readings of Moons, five methods, mean of
                                                  five seeds (minutes)
    python benchmarks/personal.py real            HAR, School, Computer Buyers, from the folder
                                                  COTERIE_DATA (minutes)
    python benchmarks/personal.py steps           updates to 1e-3: published, pairwise; graph steps
                                                  to 1e-6
    python benchmarks/personal.py time            CPU seconds of one model step
    python benchmarks/personal.py scale           seconds and memory with 100, 1,000 and 10,000
                                                  users
    python benchmarks/personal.py pictures DIR    the learned graph, its matrix, accuracy against
                                                  bits and local rows

β, μ and λ are chosen by cross-validation on training rows, at the users; test rows are looked at
once, at the end.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))  # for papers/

import coterie as co
from coterie.data import split as split_table
from coterie.estimators.personalized import cross_validated
from coterie.run.bill import Bill
from coterie.run.settings import Settings
from papers import datasets
from papers.datasets import Dataset
from papers.p001_fig6 import best_graph, h_value, introduced_agents, learned_graphs, prices
from papers.p001_fig10 import school_of_students

READINGS = {
    "paper, random": lambda seed: datasets.moons("paper", "random", seed=seed),
    "paper, zeros": lambda seed: datasets.moons("paper", "zeros", seed=seed),
    "public code": lambda seed: datasets.moons("code", seed=seed),
}
METHODS: dict[str, dict[str, Any]] = {
    "dada fixed": {"method": "dada", "local_steps": 5, "max_rounds": 60},
    "dada learned": {
        "method": "dada",
        "local_steps": 3,
        "max_rounds": 105,
        "alternations": 3,
        "revisit": False,
    },
    "as published": {
        "method": "dada",
        "likeness": "models",
        "schedule": "paper",
        "max_rounds": 130,
        "alternations": 3,
        "revisit": False,
    },
    "local": {"method": "local", "max_rounds": 60},
    "global": {"method": "global", "max_rounds": 40},
    "dada-linear": {"method": "dada-linear", "max_rounds": 40},
    "perso-linear": {"method": "perso-linear", "max_rounds": 80},
}
"""Everybody with the true graph but "dada learned", and "as published": learned by (3) and the
paper's schedule.
"""
BASELINES = ("local", "global")
GRIDS = {"beta": (10.0,), "mu": (1.0, 3.0), "lam": (10.0, 30.0)}
PUBLISHED_GRIDS = {"beta": (10.0,), "mu": (0.3, 1.0), "lam": (1.0, 10.0)}
LINEAR_GRIDS = {"beta": (1000.0,), "mu": (0.01, 0.1, 1.0, 10.0), "lam": (10.0,)}
BASELINE_GRIDS = {"beta": (1.0, 10.0, 100.0), "mu": (1.0,), "lam": (10.0,)}


def fit(
    data: Dataset, method: str, graph: Any, count: int | None, seed: int
) -> tuple[co.Result, dict[str, float]]:
    """Cross-validate on training rows, then fit on all of them."""
    tables = split_table(data.train, "users", data.extras["user_train"])
    network = (
        graph
        if graph is not None and method != "dada learned" and method != "as published"
        else "learned"
    )
    how = {"split": "users", "network": network, "tol": 1e-3, "seed": seed, **METHODS[method]}
    special = {
        "as published": PUBLISHED_GRIDS,
        "perso-linear": LINEAR_GRIDS,
        **dict.fromkeys(BASELINES, BASELINE_GRIDS),
    }
    grids = special.get(method, GRIDS)
    problem, _ = cross_validated(
        co.Personal(count=count, beta=grids["beta"][0]), tables, grids, 3, Settings.of(**how)
    )
    result = co.solve(problem, tables, **how)
    return result, {name: getattr(problem, name) for name in GRIDS}


def accuracy(result: co.Result, data: Dataset) -> float:
    """On the test rows, averaged over users."""
    assert data.test is not None
    scores = result.model.score_per_user(data.test.X, data.test.y, data.extras["user_test"])
    return float(np.mean(list(scores.values())))


def moons(seeds: int, only: str | None = None, methods: str | None = None) -> None:
    """Section 6.1 for three readings of the data."""
    print(
        f"{'reading':14s} {'method':13s} accuracy    seeds                               bits     "
        "inside clusters"
    )
    for reading, make in READINGS.items():
        if only is not None and only not in reading:
            continue
        for method in METHODS if methods is None else methods.split(","):
            found, bits, inside, chosen = [], [], [], []
            for seed in range(seeds):
                data = make(seed)
                result, settings = fit(data, method, data.extras["graph"], 200, seed)
                found.append(accuracy(result, data))
                bits.append(result.bill.bits)
                chosen.append(tuple(settings.values()))
                W, cluster = result.model.weights.toarray(), data.extras["clusters"]
                inside.append(W[cluster[:, None] == cluster].sum() / W.sum() if W.sum() else np.nan)
            each = " ".join(f"{score:.3f}" for score in found)
            share = "" if np.isnan(inside).all() else f"{np.nanmean(inside):.2f} (chance 0.30)"
            print(
                (
                    f"{reading:14s} {method:13s} {np.mean(found):.3f}       {each:35s} "
                    f"{np.mean(bits):.2e} {share}"
                ),
                flush=True,
            )
            print(f"{'':29s}beta, mu, lam: {chosen}", flush=True)


def real(fold: int, methods: str | None = None) -> None:
    """HAR, School and Computer Buyers; School also with the graph of the schools' features, as in
    the paper.
    """
    sets = {
        "har": (datasets.har_stairs(), 1122, None),
        "school": (school_of_students(fold), 112, "features"),
        "computers": (datasets.computer_buyers(5.0), 28, None),
    }
    print(f"{'data':10s} {'method':13s} accuracy  bits      neighbours  rounds    parameters")
    for name, (data, count, graph) in sets.items():
        graph = data.extras["graph"] if graph else None
        for method in METHODS if methods is None else methods.split(","):
            if method == "dada fixed" and graph is None:
                continue
            result, chosen = fit(data, method, graph, count, 0)
            near = result.model.weights.nnz / len(result.model.users)
            numbers = (
                f"{accuracy(result, data):.3f}     {result.bill.bits:.2e}  {near:5.1f}       "
                f"{result.rounds}"
            )
            print(f"{name:10s} {method:13s} {numbers:38s}  {chosen}", flush=True)


def steps() -> None:
    """How many model steps to a relative error of 1e-3, how many graph steps to 1e-6."""
    data = datasets.moons("paper", "zeros")
    tables = split_table(data.train, "users", data.extras["user_train"])
    problem = co.Personal(count=200, beta=10.0, mu=1.0)
    how = {"split": "users", "network": data.extras["graph"], "tol": 1e-9, "check_every": 10}
    best = co.solve(
        problem, tables, local_steps=10, max_rounds=800, **{**how, "check_every": 200}
    ).certificate
    print(f"f* is at least {best.dual:.4f} and at most {best.primal:.4f}")
    for step, most in (("pairwise", 700), ("frank-wolfe", 2000)):
        result = co.solve(problem, tables, step=step, max_rounds=most, **how)
        history = result.history
        error = (history.primal - best.primal) / best.primal_at_zero
        for name, values in (
            ("suboptimality", error),
            ("certified gap", history.gap / best.primal_at_zero),
        ):
            reached = np.flatnonzero(values <= 1e-3)
            when = (
                f"{100 * history[int(reached[0])].round:7d} updates"
                if reached.size
                else f"not in {100 * most} updates"
            )
            print(f"{step:12s} {name} of 1e-3 of f(0): {when}", flush=True)
    _graph_steps(tables, problem)


def graph_learning(
    tables: Any, problem: co.Personal, models: np.ndarray, rounds: int, **options: Any
) -> tuple[np.ndarray, np.ndarray, np.ndarray, Bill]:
    """Graph steps from the empty graph: h/μ before and after every round, the price matrix, the
    graph and the bill.
    """
    members = introduced_agents(tables, problem)
    price = prices(members, problem, models)
    graphs = list(islice(learned_graphs(members, models, **options), rounds + 1))
    assert all((W == W.T).all() for W, _ in graphs)
    values = [h_value(W, price, problem.lam, problem.delta) for W, _ in graphs]
    W, bill = graphs[-1]
    return np.array(values), price, W, bill


def _graph_steps(tables: Any, problem: co.Personal) -> None:
    """h with the local models, κ = 10, δ = 0.1, from the empty graph; the optimum by many more
    exact steps.
    """
    local = co.solve(
        problem, tables, split="users", method="local", tol=1e-4, max_rounds=500
    ).model.coef_.toarray()
    for graph_step, revisit, rounds in (
        ("exact", False, 100),
        ("exact", True, 100),
        ("gradient", False, 200),
    ):
        how = {
            "graph_step": graph_step,
            "graph_factor": 1.0,
            "revisit": revisit,
            "sample": 10,
            "likeness": "models",
        }
        values, price, *_ = graph_learning(tables, problem.but(lam=1.0), local, rounds, **how)
        optimum, _ = best_graph(price, 1.0, problem.delta)
        start = values[0]
        for target in (1e-3, 1e-6):
            reached = np.flatnonzero(values - optimum <= target * (start - optimum))
            when = (
                f"{100 * int(reached[0]):6d} steps"
                if reached.size
                else f"not in {100 * rounds} steps"
            )
            went = f"h from {start:.2f} to {values[-1]:.4f}, best {optimum:.4f}"
            which = f"{graph_step}{' + neighbours' if revisit else ''}"
            print(f"graph, {which:18s} to {target:.0e}: {when} ({went})", flush=True)


def seconds_per_step() -> None:
    """CPU time of a wake-up with its messages and its bill, on Moons with the true graph;
    certificates left out.
    """
    data = datasets.moons("paper", "zeros")
    tables = split_table(data.train, "users", data.extras["user_train"])
    for step in ("pairwise", "frank-wolfe"):
        how = {
            "split": "users",
            "network": data.extras["graph"],
            "step": step,
            "check_every": 10**6,
            "tol": 1e-9,
        }
        problem = co.Personal(count=200, beta=10.0, mu=1.0)
        co.solve(problem, tables, max_rounds=5, **how)
        spent = []
        for rounds in (100, 400):
            began = time.process_time()
            co.solve(problem, tables, max_rounds=rounds, **how)
            spent.append(time.process_time() - began)
        each = (spent[1] - spent[0]) / (300 * 100)
        print(
            f"{step:12s} {1e6 * each:6.1f} µs of CPU a model step; the public code's 630 µs are "
            f"{630e-6 / each:.0f}×"
        )


def many_moons(users: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Moons for any number of users in four clusters, zeros as other columns."""
    from sklearn.datasets import make_moons

    rng = np.random.default_rng(0)
    counts = rng.integers(3, 16, size=users)
    angles = np.deg2rad(rng.normal(45 + 90 * rng.integers(4, size=users), 5.0))
    X = np.zeros((counts.sum(), 20))
    points, side = make_moons(len(X), noise=0.1, random_state=0)
    turn = np.repeat(angles, counts)
    X[:, 0] = np.cos(turn) * points[:, 0] - np.sin(turn) * points[:, 1]
    X[:, 1] = np.sin(turn) * points[:, 0] + np.cos(turn) * points[:, 1]
    return X, np.where(side == 1, 1.0, -1.0), np.repeat(np.arange(users), counts)


def scale(users: int | None) -> None:
    """Each size in a process of its own, so that its memory is its own."""
    if users is None:
        print(
            "users     wake-ups   CPU s    µs a wake-up   edges     peak MB   (MB above the "
            "imports) a user"
        )
        for K in (100, 1000, 10_000):
            subprocess.run([sys.executable, __file__, "scale", "--users", str(K)], check=True)
        return
    data = many_moons(users)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    began = time.process_time()
    how = {"split": "users", "sample": 10, "alternations": 1, "local_steps": 10, "max_rounds": 45}
    result = co.solve(
        co.Personal(count=200, beta=10.0, mu=1.0, lam=10.0),
        data,
        check_every=45,
        revisit=False,
        **how,
    )
    spent = time.process_time() - began
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    wakes = 45 * users
    print(
        f"{users:6d} {wakes:10d} {spent:9.1f} {1e6 * spent / wakes:12.1f} "
        f"{result.model.weights.nnz // 2:10d}"
        f" {peak:9.0f}   {peak - before:8.0f} {(peak - before) / users:8.3f}",
        flush=True,
    )


def pictures(folder: Path) -> None:
    """The four drawings, of Moons with zeros."""
    from papers.personal_figures import (
        accuracy_by_rows,
        accuracy_by_traffic,
        draw_users,
        weight_matrix,
    )

    folder.mkdir(parents=True, exist_ok=True)
    data = datasets.moons("paper", "zeros")
    fits = {
        method: fit(data, method, data.extras["graph"], 200, 0)[0]
        for method in ("dada fixed", "dada learned", "local")
    }
    learned = fits["dada learned"].model
    draw_users(
        learned, labels=[f"{np.rad2deg(a):.0f}" for a in data.extras["angles"]]
    ).figure.savefig(folder / "users.png", dpi=150)
    weight_matrix(learned, data.extras["clusters"]).figure.savefig(folder / "weights.png", dpi=150)
    assert data.test is not None
    test = data.test.X, data.test.y, data.extras["user_test"]
    accuracy_by_rows({name: result.model for name, result in fits.items()}, *test).figure.savefig(
        folder / "rows.png", dpi=150
    )
    curves = {method: list(_curve(data, method, test)) for method in ("dada fixed", "dada learned")}
    accuracy_by_traffic(curves).savefig(folder / "traffic.png", dpi=150)


def _curve(data: Dataset, method: str, test: Any) -> Iterator[tuple[int, int, float]]:
    tables = split_table(data.train, "users", data.extras["user_train"])
    network = data.extras["graph"] if method == "dada fixed" else "learned"
    options = {name: value for name, value in METHODS[method].items() if name != "max_rounds"}
    for rounds in (1, 2, 5, 10, 20, 40, 70, 100, 130):
        how = {
            "split": "users",
            "network": network,
            "tol": 1e-9,
            "max_rounds": rounds,
            "check_every": 1000,
            **options,
        }
        result = co.solve(co.Personal(count=200, beta=10.0, mu=3.0, lam=10.0), tables, **how)
        scores = result.model.score_per_user(*test)
        yield rounds * 100, result.bill.bits, float(np.mean(list(scores.values())))


def main() -> None:
    """One table a call."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("table", choices=("moons", "real", "steps", "time", "scale", "pictures"))
    parser.add_argument("folder", nargs="?", type=Path, default=Path("pictures"))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--users", type=int)
    parser.add_argument("--methods", help="some of the methods, with commas between")
    parser.add_argument("--reading", help="part of the name of one reading of Moons")
    given = parser.parse_args()
    match given.table:
        case "moons":
            moons(given.seeds, given.reading, given.methods)
        case "real":
            real(0, given.methods)
        case "steps":
            steps()
        case "time":
            seconds_per_step()
        case "scale":
            scale(given.users)
        case "pictures":
            pictures(given.folder)


if __name__ == "__main__":
    main()
