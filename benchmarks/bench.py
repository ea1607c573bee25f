"""Coterie beside its peers: the same problems, the same run, taking turns.

    python benchmarks/bench.py                 everything (an hour); writes docs/benchmarks.md, .svg and .parquet
    python benchmarks/bench.py --quick         smaller sets, two turns (minutes)
    python benchmarks/bench.py --only lasso    problems with this in their name; prints, and writes nothing

Seconds are those of one process (CPU time; clock time for solvers that bring a cluster), from data in memory to a model
of that relative suboptimality. Every solver is first asked for more and more accuracy, in its own terms, until the
objective, which is computed here, is near enough; then all take turns with what they needed, and the fastest turn of
each counts. The optimum is the best objective that anybody found: Coterie's certificate proves how good it is, and the
best peer says how far the two agree.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import platform
import re
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

import coterie as co
from benchmarks.baselines import run as run_baseline
from benchmarks.baselines.cola import Cola
from benchmarks.baselines.decentralised import Extra, Subgradient, Tracking
from benchmarks.peers import PEERS, Peer, missing
from benchmarks.problems import Case, cases
from coterie.networks import network

TARGETS = (1e-3, 1e-6)
MEMORY = (1e-5, 1e10)
"""The link between agents of one process, for the tables of seconds; rounds are counted with the default one."""
ROUNDS = {True: 300, False: 1500}
TOLERANCES = [10.0**-k for k in range(1, 13)]
ROOT = Path(__file__).parents[1]
Row = dict[str, Any]

WHY = {
    "ridge": "digests, checks and eight products where one would do",
    "hinge l2": "rounds against one sequence of coordinate steps over all rows",
    "logistic l2": "each Newton step is eight products, sums and a certificate",
    "logistic l1": "the Hessian is added up anew in every round, where working sets reuse residuals",
    "lasso": "the whole Gram matrix travels; a working-set solver touches a few columns only",
    "huber": "Hessians are added up anew for every change of the set of outliers",
    "quantile": "Hessians are added up anew in every round",
}
"""One sentence for every kind of row that Coterie may lose, by the beginning of the problem's name."""


# -- seconds -----------------------------------------------------------------------------------------------------------


def ours(method: str) -> Callable[[Case, float], np.ndarray]:
    """Coterie with that method, as a solver like the others."""

    def fit(case: Case, tol: float) -> np.ndarray:
        run = {"agents": case.agents, "method": method, "tol": tol, "max_rounds": 3000, "link": MEMORY}
        result = co.solve(case.problem, (case.X, case.y), **run)
        return result.model.coef_

    return fit


def solvers(case: Case, out: dict[str, str]) -> dict[str, Peer]:
    """Who takes part in that problem; who cannot goes into `out` with the reason."""
    kind = f"{case.problem.loss.name} {case.problem.penalty.name}"
    known = frozenset({kind})
    found = {
        "Coterie": Peer("Coterie", "coterie", known, ours("auto")),
        "Coterie proximal-1": Peer("Coterie proximal-1", "coterie", known, ours("proximal-1")),
    }
    for entry in PEERS:
        if kind not in entry.knows or entry.name in out:
            continue
        reason = missing(entry)
        if reason is None:
            found[entry.name] = entry
        else:
            out[entry.name] = reason
    return found


def clock(peer: Peer) -> Callable[[], float]:
    """CPU time of this process, or the clock on the wall for who works elsewhere."""
    return time.perf_counter if peer.cluster else time.process_time


def timed(peer: Peer, case: Case, tol: float) -> tuple[float, float]:
    """Seconds, and the objective that was reached."""
    now = clock(peer)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        began = now()
        w = peer.fit(case, tol)
        return now() - began, case.objective(w)


def seconds(case: Case, turns: int, patience: float, out: dict[str, str]) -> Iterator[Row]:
    """One row per solver: seconds to each target, and what the run to the last one added to the memory."""
    field = solvers(case, out)
    certified = co.solve(case.problem, (case.X, case.y), agents=case.agents, tol=1e-11, max_rounds=3000).certificate
    tried: dict[str, list[tuple[float, float]]] = {}
    for name, peer in field.items():
        tried[name] = []
        for tol in TOLERANCES:
            try:
                spent, value = timed(peer, case, tol)
            except Exception as error:  # a peer that fails is a row that says so
                out[f"{name} on {case.name}"] = f"{type(error).__name__}: {error}".splitlines()[0][:200]
                break
            tried[name].append((tol, value))
            if value <= certified.primal * (1 + 1e-9) or spent > patience:
                break
    values = {name: min((value for _, value in levels), default=np.inf) for name, levels in tried.items()}
    best = min(certified.primal, *values.values())
    others = [abs(value - best) / best for name, value in values.items() if not name.startswith("Coterie")]
    print(f"{case.name}: optimum {best:.10g}, proven to {certified.gap / best:.0e}, "
          f"agrees with the best peer to {min(others, default=np.nan):.0e}", flush=True)  # fmt: skip
    needed = {
        (name, target): next((tol for tol, value in levels if value <= best * (1 + target)), None)
        for name, levels in tried.items()
        for target in TARGETS
    }
    fastest = dict.fromkeys(needed, np.inf)
    for _ in range(turns):
        for (name, target), tol in needed.items():
            if tol is not None:
                fastest[name, target] = min(fastest[name, target], timed(field[name], case, tol)[0])
    for name, peer in field.items():
        tol = needed[name, TARGETS[-1]]
        memory = np.nan if tol is None or peer.cluster else added_memory(peer, case, tol)
        yield {
            "table": "seconds",
            "problem": case.name,
            "solver": name,
            **{f"to {target:.0e}": fastest[name, target] for target in TARGETS},
            "megabytes": memory,
            "agreement": min(others, default=np.nan),
            "proven": certified.gap / best,
        }


def added_memory(peer: Peer, case: Case, tol: float) -> float:
    """By how many megabytes the memory of a fork of this process grew at most while it solved."""
    fork = multiprocessing.get_context("fork")
    receiver, sender = fork.Pipe(duplex=False)
    child = fork.Process(target=_grow, args=(peer, case, tol, sender))
    child.start()
    child.join(120)
    if child.is_alive():
        child.kill()
    return float(receiver.recv()) if receiver.poll() else np.nan


def _grow(peer: Peer, case: Case, tol: float, sender: Any) -> None:
    Path("/proc/self/clear_refs").write_text("5")
    before = _memory("VmRSS")
    timed(peer, case, tol)
    sender.send((_memory("VmHWM") - before) / 1e3)


def _memory(kind: str) -> float:
    found = re.search(rf"{kind}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    return float(found[1]) if found else np.nan


# -- rounds and bits ---------------------------------------------------------------------------------------------------


def contestants(case: Case, many: int) -> Iterator[tuple[str, Callable[[float], list[tuple[float, float]]]]]:
    """Methods in our own engine: a name, and a function of the optimum that returns (rounds, megabytes) per target."""
    base = {"agents": case.agents, "tol": 1e-8, "check_every": 1, "max_rounds": many}

    def coterie(**options: Any) -> Callable[[float], list[tuple[float, float]]]:
        def go(best: float) -> list[tuple[float, float]]:
            history = co.solve(case.problem, (case.X, case.y), **base | options).history
            reached = []
            for target in TARGETS:
                near = history.primal <= best * (1 + target)
                reached.append(
                    (history["round"][near][0], history.bits[near][0] / 8e6) if near.any() else (np.inf,) * 2
                )
            return reached

        return go

    yield "Coterie (auto)", coterie()
    yield "Coterie (proximal-1)", coterie(method="proximal-1")
    if case.problem.penalty.name == "l2":
        yield "CoCoA", coterie(method="cocoa", acceleration="none")
    yield "ADMM, ρ = 1, plain", coterie(method="consensus", rho=1.0, acceleration="none")
    ring = network("ring", case.agents)
    subgradient, smooth = [Subgradient()], np.isfinite(case.problem.loss.smoothness)
    others: list[Any] = [Extra()] if smooth else subgradient
    others += [Tracking(0.3)] if smooth and case.problem.penalty.name == "l2" else []
    others += [Cola()] if case.problem.loss.name == "squared" else []
    for baseline in others:
        yield f"{baseline.name}, ring", lambda best, b=baseline: run_baseline(b, case, ring, best, TARGETS, many)


def rounds(case: Case, best: float, many: int) -> Iterator[Row]:
    """One row per method: rounds and megabytes to each target."""
    for name, go in contestants(case, many):
        reached = go(best)
        cells = {f"rounds to {target:.0e}": pair[0] for target, pair in zip(TARGETS, reached, strict=True)}
        cells |= {f"MB to {target:.0e}": pair[1] for target, pair in zip(TARGETS, reached, strict=True)}
        yield {"table": "rounds", "problem": case.name, "solver": name, **cells}
        print("  ", name, reached, flush=True)


# -- growth ------------------------------------------------------------------------------------------------------------


def growth() -> Iterator[Row]:
    """Seconds of a round as rows, columns and agents double: proximal-2, whose round is one pass over the data."""
    import scipy.sparse as sp

    for what in ("rows", "columns", "agents"):
        for factor in (1, 2, 4):
            n, d, k = (factor * size if kind == what else size for kind, size in
                       (("rows", 20_000), ("columns", 5_000), ("agents", 8)))  # fmt: skip
            X = sp.random_array((n, d), density=50 / 5_000, format="csr", rng=np.random.default_rng(0))
            y = np.random.default_rng(1).standard_normal(n)
            run = {
                "agents": k,
                "method": "proximal-2",
                "acceleration": "none",
                "tol": 1e-14,
                "rho": 1.0,
                "check_every": 100,
            }
            spent = np.inf
            for _ in range(2):
                began = time.process_time()
                co.solve(co.Problem("squared", "l2", 0.1), (X, y), max_rounds=1, **run)
                middle = time.process_time()
                co.solve(co.Problem("squared", "l2", 0.1), (X, y), max_rounds=101, **run)
                spent = min(spent, (time.process_time() - middle) - (middle - began))
            yield {"table": "growth", "problem": what, "solver": f"× {factor}", "milliseconds": 10 * spent,
                   "non-zeros": X.nnz}  # fmt: skip


# -- writing -----------------------------------------------------------------------------------------------------------


def number(value: float) -> str:
    """Two digits, or a dash for what was not reached."""
    return "–" if not np.isfinite(value) else f"{value:.2g}" if value < 100 else f"{value:.0f}"


def seconds_table(rows: list[Row]) -> list[str]:
    """Markdown: seconds, and their ratio to Coterie's."""
    lines = ["| problem | solver | s to 1e-3 | s to 1e-6 | ratio to Coterie at 1e-3 | at 1e-6 | MB added |"]
    lines += ["|---|---|---|---|---|---|---|"]
    for problem in dict.fromkeys(row["problem"] for row in rows):
        own = [row for row in rows if row["problem"] == problem]
        mine = next(row for row in own if row["solver"] == "Coterie")
        for row in own:
            a, b = row["to 1e-03"], row["to 1e-06"]
            ratios = [
                number(x / y) if np.isfinite(x) else "–" for x, y in ((a, mine["to 1e-03"]), (b, mine["to 1e-06"]))
            ]
            cells = [problem, row["solver"], number(a), number(b), *ratios, number(row["megabytes"])]
            lines.append(f"| {' | '.join(cells)} |")
    return lines


def lost(rows: list[Row]) -> list[str]:
    """One sentence for each problem on which somebody is faster to 1e-6, with by how much."""
    lines = []
    for problem in dict.fromkeys(row["problem"] for row in rows):
        own = {row["solver"]: row["to 1e-06"] for row in rows if row["problem"] == problem}
        mine = min(value for name, value in own.items() if name.startswith("Coterie"))
        name = min(own, key=lambda solver: own[solver])
        if own[name] < mine:
            why = next((reason for start, reason in WHY.items() if problem.lower().startswith(start)), "")
            lines.append(f"- {problem}: {name} is {number(mine / own[name])} times faster: {why}.")
    return lines


def rounds_table(rows: list[Row]) -> list[str]:
    """Markdown: rounds and megabytes."""
    lines = ["| problem | method | rounds to 1e-3 | MB | rounds to 1e-6 | MB |", "|---|---|---|---|---|---|"]
    for row in rows:
        cells = [number(row[f"{kind} to {target}"]) for target in ("1e-03", "1e-06") for kind in ("rounds", "MB")]
        lines.append(f"| {row['problem']} | {row['solver']} | {' | '.join(cells)} |")
    return lines


def figure(rows: list[Row], path: Path) -> None:
    """Every peer's time to 1e-6 in units of Coterie's, one line per problem."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "coterie"
    from matplotlib import pyplot as plt

    problems = list(dict.fromkeys(row["problem"] for row in rows))[::-1]
    fig, axes = plt.subplots(figsize=(8, 0.5 * len(problems) + 1.2), layout="constrained")
    axes.axvline(1, color="0.6", lw=1)
    axes.axvspan(1 / 3, 1, color="0.93")
    for height, problem in enumerate(problems):
        own = {row["solver"]: row["to 1e-06"] for row in rows if row["problem"] == problem}
        mine = own.pop("Coterie")
        for name, value in own.items():
            if np.isfinite(value / mine):
                axes.plot(value / mine, height, "o", color="#c44" if value < mine else "#37a", ms=5)
                axes.annotate(name, (value / mine, height), (0, 5), textcoords="offset points", fontsize=6, ha="center")
    axes.set(xscale="log", xlabel="seconds to 1e-6, in units of Coterie's (right of 1: Coterie is faster)")
    axes.set_yticks(range(len(problems)), problems, fontsize=8)
    fig.savefig(path, metadata={"Date": None})
    plt.close(fig)


PAGE = """# Benchmarks

Written by `{command}` (`benchmarks/bench.py`): Coterie and its peers on the same problems, in the same run, taking
turns, on {machine}, one thread each. The numbers behind it are in [benchmarks.parquet](benchmarks.parquet).{stopped}

## Seconds

From data in memory to a model of that relative suboptimality: CPU seconds of one process (clock seconds for dask-glm
and MLlib, their start not counted). Peers see all rows in one piece; for Coterie they are split in eight, and the time
includes checking the data, splitting it, digests, certificates and the bill. A ratio above 1 means that Coterie is
faster. “–”: not reached within the patience of the run. Here Coterie is told that its agents share a memory (`link=`),
so "auto" may choose another method than in the table of rounds, which is made with the default link.

![seconds to 1e-6 in units of Coterie's](benchmarks.svg)

{seconds}

### Where somebody is faster to 1e-6

{lost}

### The optima

The best objective that anybody found counts as the optimum.

{optima}

## Rounds and megabytes

In our own engine, eight agents. The baselines are written from their papers (`benchmarks/baselines`): CoCoA and ADMM as
published; EXTRA, gradient tracking and distributed subgradients on a ring; CoLA on a ring with the columns apart.
Nothing is tuned for anybody; Coterie's megabytes include its certificates. “–”: not within {many} rounds.

{rounds}

## Growth

Milliseconds of a round of `proximal-2` as rows (20,000), columns (5,000; 1 % not 0) and agents (8) double twice.

{growth}

## Who did not take part

{out}
"""


STOPPED = " **The run was stopped before its end: problems, growth and reasons are missing below.**"


def page(rows: list[Row], out: dict[str, str], quick: bool, finished: bool = True) -> str:
    """The Markdown page."""
    tables = {name: [row for row in rows if row["table"] == name] for name in ("seconds", "rounds", "growth")}
    grown = ["| what grows | × 1 | × 2 | × 4 |", "|---|---|---|---|"]
    for what in dict.fromkeys(row["problem"] for row in tables["growth"]):
        spent = [number(row["milliseconds"]) for row in tables["growth"] if row["problem"] == what]
        grown.append(f"| {what} | {' | '.join(spent)} |")
    optima = ["| problem | Coterie's certificate | agrees with the best peer to |", "|---|---|---|"]
    for row in tables["seconds"]:
        if row["solver"] == "Coterie":
            optima.append(f"| {row['problem']} | {row['proven']:.0e} | {row['agreement']:.0e} |")
    return PAGE.format(
        stopped="" if finished else STOPPED,
        command="make bench-quick" if quick else "make bench",
        machine=f"{os.cpu_count()} cores ({platform.machine()}, Python {platform.python_version()})",
        seconds="\n".join(seconds_table(tables["seconds"])),
        lost="\n".join(lost(tables["seconds"])) or "Nobody.",
        optima="\n".join(optima),
        many=ROUNDS[quick],
        rounds="\n".join(rounds_table(tables["rounds"])),
        growth="\n".join(grown) if tables["growth"] else "Not measured in this run.",
        out="\n".join(f"- {name}: {reason}" for name, reason in sorted(out.items())) or "Nobody.",
    )


def main() -> None:
    """Run, print, and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", default="")
    chosen = parser.parse_args()
    out = {"decent-bench": "needs Python 3.13, and has no adapter here yet"}
    rows: list[Row] = []
    turns, patience = (2, 5.0) if chosen.quick else (5, 60.0)
    for case in cases(chosen.quick):
        if chosen.only not in case.name:
            continue
        rows += seconds(case, turns, patience, out)
        print("\n".join(seconds_table([row for row in rows if row["problem"] == case.name][-20:])), flush=True)
        if not (case.name.startswith(("logistic", "hinge")) and "text" in case.name):
            best = co.solve(case.problem, (case.X, case.y), tol=1e-11, max_rounds=3000).certificate.primal
            rows += rounds(case, best, ROUNDS[chosen.quick])
        if not chosen.only:
            write(
                rows, out, chosen.quick, finished=False
            )  # after every problem, so that a run that is stopped leaves what it has
    if not chosen.only:
        rows += growth()
        write(rows, out, chosen.quick, finished=True)
    for name, reason in sorted(out.items()):
        print(f"left out: {name}: {reason}")


def write(rows: list[Row], out: dict[str, str], quick: bool, finished: bool) -> None:
    """The page, its figure, and the numbers."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns = sorted({key for row in rows for key in row})
    numbers = pa.table({key: [row.get(key) for row in rows] for key in columns})
    pq.write_table(numbers, ROOT / "docs/benchmarks.parquet")
    figure([row for row in rows if row["table"] == "seconds"], ROOT / "docs/benchmarks.svg")
    (ROOT / "docs/benchmarks.md").write_text(page(rows, out, quick, finished))


if __name__ == "__main__":
    main()
