"""What is measured, each a function that yields rows as soon as it has them; a later row replaces
one of its name.

A row is a dictionary with `table`, `problem` and `solver`, and numbers. Infinite: not reached
within the `limit`.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import multiprocessing
import os
import re
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

import coterie as co
from benchmarks.baselines import run as run_baseline
from benchmarks.baselines.cola import Cola
from benchmarks.baselines.decentralised import Extra, Subgradient, Tracking
from benchmarks.baselines.dual_extra import DualExtra
from benchmarks.peers import PEERS, Peer, missing
from benchmarks.problems import Case
from benchmarks.problems import case as make_case
from coterie.networks import network

__all__ = [
    "TARGETS",
    "Row",
    "Settings",
    "growth",
    "low_rank",
    "memory_of_columns",
    "memory_of_rows",
    "personal",
]
__all__ += ["rounds", "seconds", "start", "vertical", "wide"]

TARGETS = (1e-3, 1e-6)
FIRST_FIT = 120.0
"""Seconds for the first fit of a solver."""
TOLERANCES = [10.0**-k for k in range(1, 13)]
Row = dict[str, Any]


@dataclass(frozen=True)
class Settings:
    """How patient a run is."""

    turns: int = 4
    """How often everybody takes its turn."""
    patience: float = 6.0
    """Seconds for one fit of a solver, and twice as many for all its attempts until it is accurate
    enough.
    """
    rounds: int = 3000
    """Rounds of a method in our own engine."""
    contestant: float = 5.0
    """CPU seconds of one of these methods, and up to four times as many until it has twice the
    rounds of Coterie's.
    """


QUICK = Settings(turns=2, patience=2.0, rounds=1000, contestant=1.0)


# -- solvers in processes of their own -------------------------------------------------------------


class Worker:
    """A solver in a fork of this process: it can be asked to fit, and be ended if it takes too long
    or dies.
    """

    def __init__(self, peer: Peer, case: Case):
        self.peer = peer
        fork = multiprocessing.get_context("fork")
        self._pipe, theirs = fork.Pipe()
        self._process = fork.Process(target=_serve, args=(peer, case, theirs), daemon=True)
        self._process.start()
        theirs.close()

    def fit(self, tol: float, patience: float, memory: bool = False) -> dict[str, float] | str:
        """Seconds, objective and megabytes added, or why there are none."""
        try:
            self._pipe.send((tol, memory))
            if self._pipe.poll(patience):
                answer: dict[str, float] | str = self._pipe.recv()
                return answer
            reason = f"more than {patience:.0f} s for one fit"
        except (EOFError, OSError):
            reason = "its process died"
        self.close()
        return reason

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """End it, and whatever it started."""
        if self._process.pid is not None and self._process.is_alive():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
        self._process.join()
        self._pipe.close()


def _serve(peer: Peer, case: Case, pipe: Any) -> None:
    os.setsid()
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 1)
    os.dup2(quiet, 2)
    while True:
        try:
            tol, memory = pipe.recv()
        except EOFError:
            os._exit(0)
        try:
            if memory:
                gc.collect()
                ctypes.CDLL(None).malloc_trim(
                    0
                )  # what is free goes back, so that it counts when it is used again
                Path("/proc/self/clear_refs").write_text("5")
            before = _memory("VmRSS")
            spent, value = timed(peer, case, tol)
            pipe.send(
                {"seconds": spent, "value": value, "megabytes": (_memory("VmHWM") - before) / 1e3}
            )
        except Exception as error:  # a peer that fails is a row that says so
            pipe.send(f"{type(error).__name__}: {error}".splitlines()[0][:200])


def _memory(kind: str) -> float:
    found = re.search(rf"{kind}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    return float(found[1]) if found else np.nan


def timed(peer: Peer, case: Case, tol: float) -> tuple[float, float]:
    """Seconds and objective: CPU time of this process, or the clock on the wall for who works
    elsewhere.
    """
    now = time.perf_counter if peer.cluster else time.process_time
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        began = now()
        w = peer.fit(case, tol)
        return now() - began, case.objective(w)


def ours(method: str, **options: Any) -> Callable[[Case, float], np.ndarray]:
    """Coterie with that method, as a solver like the others: on one core, as they are."""

    def fit(case: Case, tol: float) -> np.ndarray:
        run = {
            "agents": case.agents,
            "method": method,
            "tol": tol,
            "max_rounds": 3000,
            "threads": 1,
        }
        run |= options
        return co.solve(case.problem, (case.X, case.y), **run).model.coef_

    return fit


def solvers(case: Case, cluster: bool, out: dict[str, str]) -> dict[str, Peer]:
    """Who takes part in that problem; who cannot goes into `out` with the reason."""
    kind = f"{case.problem.loss.name} {case.problem.penalty.name}"
    known = frozenset({kind})
    found = {
        "Coterie": Peer("Coterie", "coterie", known, ours("auto")),
        "Coterie proximal-1": Peer("Coterie proximal-1", "coterie", known, ours("proximal-1")),
    }
    cells = np.prod(case.X.shape)
    for entry in PEERS:
        if kind not in entry.knows or entry.name in out or (entry.cluster and not cluster):
            continue
        if entry.dense and sp.issparse(case.X) and cells > 2e8:
            out[f"{entry.name} on {case.name}"] = "needs a dense copy of the data"
            continue
        reason = missing(entry)
        if reason is None:
            found[entry.name] = entry
        else:
            out[entry.name] = reason
    return found


# -- seconds ---------------------------------------------------------------------------------------


def optimum(case: Case) -> Any:
    """A certificate for the best that Coterie finds."""
    run = {"agents": 8, "tol": 1e-11, "max_rounds": 3000, "max_seconds": 60.0}
    return co.solve(case.problem, (case.X, case.y), **run).certificate


def seconds(name: str, settings: Settings, out: dict[str, str]) -> Iterator[Row]:
    """Seconds of every solver to each target, and what the run to the last one added to the
    memory.
    """
    case = make_case(name)
    certified = optimum(case)
    workers = {label: Worker(peer, case) for label, peer in solvers(case, False, out).items()}
    try:
        yield from _taking_turns(case, certified, workers, settings, out)
    finally:
        for worker in workers.values():
            worker.close()


def _taking_turns(
    case: Case, certified: Any, workers: dict[str, Worker], settings: Settings, out: dict[str, str]
) -> Iterator[Row]:
    tried: dict[str, list[tuple[float, float, float]]] = {label: [] for label in workers}
    for label, worker in workers.items():
        first = worker.fit(TOLERANCES[0], FIRST_FIT)  # may compile, or start a cluster
        for tol in TOLERANCES:
            answer = first if isinstance(first, str) else worker.fit(tol, 2 * settings.patience)
            if isinstance(answer, str):
                out[f"{label} on {case.name}"] = answer
                break
            tried[label].append((tol, answer["value"], answer["seconds"]))
            excess, spent = answer["value"] / certified.primal - 1, answer["seconds"]
            if excess <= 1e-9 or (excess <= 2e-7 and spent > 0.5) or spent > settings.patience:
                break
            if sum(spent for _, _, spent in tried[label]) > 2 * settings.patience:
                break
        yield from _seconds_rows(case, certified, tried, {}, {}, only=label)
    _, needed = _needed(certified, tried)
    attempts = {(label, level[0]): level[2] for (label, _), level in needed.items()}
    for turn in range(settings.turns):
        for (label, tol), spent in attempts.items():
            if turn * spent < 0.5 * settings.patience:
                answer = workers[label].fit(tol, 2 * settings.patience)
                if not isinstance(answer, str):
                    attempts[label, tol] = min(spent, answer["seconds"])
    fastest = {
        (label, target): attempts[label, level[0]] for (label, target), level in needed.items()
    }
    megabytes = {}
    for (label, target), (tol, _, spent) in needed.items():
        if target == TARGETS[-1] and spent < settings.patience and not workers[label].peer.cluster:
            answer = workers[label].fit(tol, 2 * settings.patience, memory=True)
            megabytes[label] = np.nan if isinstance(answer, str) else answer["megabytes"]
    yield from _seconds_rows(case, certified, tried, fastest, megabytes)


def _needed(
    certified: Any, tried: dict[str, list[tuple[float, float, float]]]
) -> tuple[float, dict[Any, Any]]:
    """The best objective that anybody found, and the first attempt of each solver that is near
    enough to it.
    """
    best = min([certified.primal, *(value for levels in tried.values() for _, value, _ in levels)])
    needed = {
        (label, target): next((level for level in levels if level[1] <= best * (1 + target)), None)
        for label, levels in tried.items()
        for target in TARGETS
    }
    return best, {key: level for key, level in needed.items() if level is not None}


def _seconds_rows(
    case: Case, certified: Any, tried: Any, fastest: Any, megabytes: Any, only: str | None = None
) -> Iterator[Row]:
    best, needed = _needed(certified, tried)
    values = [
        value
        for label, levels in tried.items()
        if not label.startswith("Coterie")
        for _, value, _ in levels
    ]
    agreement = min((abs(value - best) / best for value in values), default=np.nan)
    for label in tried if only is None else [only]:
        first = {target: needed.get((label, target), (0, 0, np.inf))[2] for target in TARGETS}
        yield {
            "table": "seconds",
            "problem": case.name,
            "solver": label,
            **{
                f"to {target:.0e}": fastest.get((label, target), first[target])
                for target in TARGETS
            },
            "limit": max((spent for _, _, spent in tried[label]), default=np.nan),
            "megabytes": megabytes.get(label, np.nan),
            "agreement": agreement,
            "proven": certified.gap / best,
        }


# -- with and without the start --------------------------------------------------------------------


def start(name: str, solver: str, settings: Settings, out: dict[str, str]) -> Iterator[Row]:
    """Clock seconds of Coterie, or of who brings a cluster: of a fit, and of a fresh process that
    fits once.
    """
    case = make_case(name)
    best, peer = optimum(case).primal, solvers(case, True, out).get(solver)
    if peer is None:
        return
    reached: dict[float, tuple[float, float]] = {}
    with Worker(Peer(solver, peer.package, peer.knows, peer.fit, cluster=True), case) as worker:
        first = worker.fit(TOLERANCES[0], FIRST_FIT)
        for tol in TOLERANCES[1::2]:
            answer = first if isinstance(first, str) else worker.fit(tol, 2 * settings.patience)
            if isinstance(answer, str):
                out[f"{solver} on {name}"] = answer
                break
            for target in TARGETS:
                if answer["value"] <= best * (1 + target) and target not in reached:
                    again = worker.fit(tol, 2 * settings.patience)
                    spent = np.inf if isinstance(again, str) else again["seconds"]
                    reached[target] = tol, min(answer["seconds"], spent)
            if TARGETS[-1] in reached or answer["seconds"] > settings.patience:
                break
    row: Row = {"table": "start", "problem": name, "solver": solver}
    for target in TARGETS:
        tol, spent = reached.get(target, (np.nan, np.inf))
        whole = _fresh(solver, name, tol) if target in reached else np.inf
        row |= {f"fit to {target:.0e}": spent, f"all to {target:.0e}": whole}
    yield row


def _fresh(solver: str, name: str, tol: float) -> float:
    """Clock seconds of a process that starts, reads the data and fits once."""
    command = [
        sys.executable,
        str(Path(__file__).with_name("bench.py")),
        "--fit",
        solver,
        name,
        repr(tol),
    ]
    began = time.perf_counter()
    done = subprocess.run(command, capture_output=True, timeout=300, check=False)
    return time.perf_counter() - began if done.returncode == 0 else np.inf


def fit_once(solver: str, name: str, tol: float) -> None:
    """What `_fresh` times."""
    case = make_case(name)
    peer = next((entry for entry in PEERS if entry.name == solver), None)
    (ours("auto") if peer is None else peer.fit)(case, tol)


# -- rounds and bits -------------------------------------------------------------------------------

Reached = list[tuple[float, float]]
BETWEEN_ORGANISATIONS = (0.02, 1e8)
"""Where rounds and bits count: 20 ms per hop and 100 Mbit/s."""


def counted(
    case: Case, settings: Settings, best: float, limit: dict[str, float], **options: Any
) -> Reached:
    """(rounds, megabytes) of a method of ours to each target."""
    patience = settings.contestant * (
        1 if "method" in options else 10
    )  # what others are compared with may take long
    began, least = time.process_time(), limit.get("least", 0.0)

    def stop(name: str, value: float, t: int) -> bool:
        return time.process_time() - began > (patience if t > least else 4 * patience)

    run = {
        "tol": 1e-8,
        "check_every": 1,
        "max_rounds": settings.rounds,
        "link": BETWEEN_ORGANISATIONS,
    }
    result = co.solve(
        case.problem, (case.X, case.y), agents=case.agents, callback=stop, **run | options
    )
    history, limit["limit"] = result.history, result.rounds
    reached = []
    for target in TARGETS:
        near = history.primal <= best * (1 + target)
        reached.append(
            (history["round"][near][0], history.bits[near][0] / 8e6)
            if near.any()
            else (np.inf,) * 2
        )
    return reached


def _rows(table: str, problem: str, contestants: Any) -> Iterator[Row]:
    least = 0.0
    for solver, go in contestants:
        limit = {"least": least}
        began, reached = time.process_time(), go(limit)
        if solver == "Coterie (auto)" and np.isfinite(reached[-1][0]):
            least = 2 * float(reached[-1][0])
        row: Row = {
            "table": table,
            "problem": problem,
            "solver": solver,
            "limit": limit.get("limit", np.nan),
        }
        for target, (count, megabytes) in zip(TARGETS, reached, strict=True):
            row |= {f"rounds to {target:.0e}": float(count), f"MB to {target:.0e}": megabytes}
        yield row | {"seconds": time.process_time() - began}


def rounds(name: str, agents: int, settings: Settings) -> Iterator[Row]:
    """Rows apart: Coterie, and what others published, in our own engine."""
    case = make_case(name, agents)
    best = optimum(case).primal
    problem, ring = case.problem, network("ring", agents)

    def coterie(**options: Any) -> Callable[[dict[str, float]], Reached]:
        return lambda limit: counted(case, settings, best, limit, **options)

    def baseline(one: Any) -> Callable[[dict[str, float]], Reached]:
        return lambda limit: run_baseline(
            one, case, ring, best, TARGETS, settings.rounds, settings.contestant, limit=limit
        )

    contestants = [
        ("Coterie (auto)", coterie()),
        ("Coterie (proximal-1)", coterie(method="proximal-1")),
    ]
    if problem.penalty.name == "l2":
        contestants.append(("CoCoA", coterie(method="cocoa", acceleration="none")))
    contestants.append(
        ("ADMM, ρ = 1, plain", coterie(method="consensus", rho=1.0, acceleration="none"))
    )
    smooth = np.isfinite(problem.loss.smoothness)
    others: list[Any] = [Extra()] if smooth else [Subgradient()]
    others += [Tracking(0.3)] if smooth and problem.penalty.name == "l2" else []
    contestants += [(f"{one.name}, ring", baseline(one)) for one in others]
    yield from _rows("rounds", f"{name}, {agents} agents", contestants)


def wide(name: str, settings: Settings) -> Iterator[Row]:
    """Many rare columns: a proven relative gap of 1e-4, and CPU seconds beside those of liblinear's
    model as good.
    """
    case, tol = make_case(name), 1e-4
    best, liblinear = optimum(case), solvers(case, False, {})["scikit-learn liblinear"]
    spent = []
    for _ in range(settings.turns):
        began = time.process_time()
        result = co.solve(case.problem, (case.X, case.y), agents=case.agents, tol=tol, threads=1)
        spent.append(time.process_time() - began)
    proof = result.certificate
    unit = proof.gap / proof.relative_gap if proof.gap else 1.0
    row = {"table": "wide", "problem": name}
    yield row | {"solver": "Coterie", "rounds": float(result.rounds), "megabytes": result.bill.total.bits / 8e6,
                 "proven": proof.relative_gap, "excess": (proof.primal - best.primal) / unit,
                 "seconds": min(spent)}  # fmt: skip
    for peer_tol in (0.3, 0.1, *(share * 10.0**-k for k in range(1, 6) for share in (0.3, 0.1))):
        seconds, value = timed(liblinear, case, peer_tol)
        if (value - best.primal) / unit <= tol:
            break
    seconds = min(
        seconds, *(timed(liblinear, case, peer_tol)[0] for _ in range(settings.turns - 1))
    )
    yield row | {"solver": liblinear.name, "rounds": np.nan, "megabytes": np.nan, "proven": np.nan,
                 "excess": (value - best.primal) / unit, "seconds": seconds}  # fmt: skip


def vertical(name: str, agents: int, where: str, settings: Settings) -> Iterator[Row]:
    """Columns apart, on a graph."""
    case = make_case(name, agents)
    best = optimum(case).primal
    graph = network("lattice" if where == "grid" else where, agents)
    apart = {"split": "features", "network": graph}
    contestants = [
        ("Coterie (auto)", lambda limit: counted(case, settings, best, limit, **apart)),
        *(
            (f"Coterie ({name})", lambda limit, name=name: counted(case, settings, best, limit, method=name, **apart))
            for name in ("lbfgs", "blocks", "tree", "graph-cp")
        ),
        (
            "graph-cp, Theorem 1",
            lambda limit: counted(case, settings, best, limit, method="graph-cp", variant="paper",
                                  acceleration="none", **apart),
        ),
    ]  # fmt: skip
    others: list[Any] = [Cola()] if case.problem.loss.smooth else []
    others += [DualExtra()] if case.problem.penalty.name == "l2" else []
    contestants += [
        (
            one.name,
            lambda limit, one=one: run_baseline(
                one, case, graph, best, TARGETS, settings.rounds, settings.contestant, limit=limit
            ),
        )
        for one in others
    ]
    yield from _rows("vertical", f"{name}, {agents} agents, {where}", contestants)


def low_rank(d: int, settings: Settings) -> Iterator[Row]:
    """Least squares with a d × d matrix of rank 10 (section 5.1 of paper 004), eight agents: F/F(0)
    is the measure.
    """
    from benchmarks.low_rank import shards

    n = 20 * d if d < 1000 else 6 * d
    data, problem = shards("squared", n, d, 8), co.Problem("squared", "traceball", radius=1.0)

    def go(limit: dict[str, float], **options: Any) -> Reached:
        began, run = (
            time.process_time(),
            {"tol": 1e-9, "max_rounds": 300, "check_every": 2, **options},
        )
        stop = lambda *told: time.process_time() - began > 3 * settings.contestant  # noqa: E731
        result = co.solve(problem, data, progress=False, callback=stop, **run)
        history, limit["limit"] = result.history, result.rounds
        share, reached = history.primal / result.certificate.primal_at_zero, []
        for target in TARGETS:
            near = share <= target
            reached.append(
                (history["round"][near][0], history.bits[near][0] / 8e6)
                if near.any()
                else (np.inf,) * 2
            )
        return reached

    contestants: list[Any] = [("Coterie (auto)", go)]
    for label, options in (
        ("dfw-trace, 1 power iteration", {"method": "dfw-trace", "power": 1}),
        ("dfw-trace, 2 power iterations", {"method": "dfw-trace", "power": 2}),
        ("naive-dfw", {"method": "naive-dfw"}),
        ("sva", {"method": "sva"}),
    ):
        contestants.append((label, lambda limit, options=options: go(limit, **options)))
    yield from _rows("low rank", f"{d} × {d}, n = {n}", contestants)


def personal(users: int) -> Iterator[Row]:
    """Moons: seconds and memory of 45 wake-ups of every user, the graph learned along the way."""
    from benchmarks.personal import many_moons

    data = many_moons(users)
    how = {
        "split": "users",
        "sample": 10,
        "alternations": 1,
        "local_steps": 10,
        "max_rounds": 45,
        "check_every": 45,
    }
    Path("/proc/self/clear_refs").write_text("5")
    before, began = _memory("VmRSS"), time.process_time()
    co.solve(co.Personal(count=200, beta=10.0, mu=1.0, lam=10.0), data, revisit=False, **how)
    spent = time.process_time() - began
    yield {"table": "personal", "problem": f"Moons, {users} users", "solver": ("Coterie (dada, learned "
        "graph)"),
           "seconds": spent, "µs a wake-up": 1e6 * spent / (45 * users),
           "megabytes": (_memory("VmHWM") - before) / 1e3}  # fmt: skip


# -- growth ----------------------------------------------------------------------------------------


def growth(what: str) -> Iterator[Row]:
    """Seconds of a round as rows, columns or agents double: proximal-2, whose round is two passes
    over the data.

    At × 1 the data is 48 MB already: what fits into a cache is read faster, and that is not growth.
    """
    for factor in (1, 2, 4):
        n, d, k = (factor * size if kind == what else size for kind, size in
                   (("rows", 80_000), ("columns", 5_000), ("agents", 8)))  # fmt: skip
        X = sp.random_array((n, d), density=50 / 5_000, format="csr", rng=np.random.default_rng(0))
        y = np.random.default_rng(1).standard_normal(n)
        run = {"agents": k, "method": "proximal-2", "acceleration": "none", "tol": 1e-14, "rho": 1.0,
               "check_every": 100}  # fmt: skip
        spent: dict[int, list[float]] = {1: [], 41: []}
        for _ in range(4):
            for many, taken in spent.items():
                began = time.process_time()
                co.solve(
                    co.Problem("squared", "l2", 0.1, intercept=False),
                    (X, y),
                    max_rounds=many,
                    **run,
                )
                taken.append(time.process_time() - began)
        milliseconds = 25 * (min(spent[41]) - min(spent[1]))
        yield {"table": "growth", "problem": what, "solver": f"× {factor}", "milliseconds": milliseconds,
               "non-zeros": X.nnz}  # fmt: skip


def _tall() -> tuple[np.random.Generator, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    dense = rng.standard_normal((200_000, 100))
    return rng, dense, dense[:, :5].sum(axis=1) + rng.standard_normal(len(dense))


def afresh(measure: Callable[[], Iterator[Row]]) -> Iterator[Row]:
    """The rows of that table from a new process: what this one has freed would not be added a
    second time.
    """
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as processes:
        yield from processes.submit(_all_rows, measure).result()


def _all_rows(measure: Callable[[], Iterator[Row]]) -> list[Row]:
    return list(measure())


def memory_of_rows() -> Iterator[Row]:
    """What a run adds to the data of all agents, which are apart already; one process."""
    rng, dense, y = _tall()
    n = len(y)
    thin = sp.random_array((n, 5_000), density=0.01, format="csr", rng=rng)
    for label, X, loss, method in (
        ("dense, logistic l2, auto", dense, "logistic", "auto"),
        ("dense, logistic l2, proximal-1", dense, "logistic", "proximal-1"),
        ("sparse, squared l2, proximal-1", thin, "squared", "proximal-1"),
        ("sparse, hinge l2, proximal-1", thin, "hinge", "proximal-1"),
    ):
        labels = y if loss == "squared" else np.sign(y)
        cuts = np.array_split(np.arange(n), 8)
        parts = [(X[cut[0] : cut[-1] + 1], labels[cut]) for cut in cuts]
        size = sum((A.data.nbytes + A.indices.nbytes + A.indptr.nbytes if sp.issparse(A) else A.nbytes) + v.nbytes
                   for A, v in parts)  # fmt: skip
        peer = Peer(
            label,
            "",
            frozenset(),
            _apart(co.Problem(loss, "l2", 1e-3, intercept=False), parts, method),
        )
        yield {"table": "memory", "problem": f"rows apart: {label}", "solver": "Coterie",
               "data MB": size / 1e6, "added MB": _added(peer), "floats": np.nan}  # fmt: skip
        del parts


def memory_of_columns() -> Iterator[Row]:
    """The same, where columns are apart."""
    _, dense, y = _tall()
    n = len(y)
    for agents in (8, 64):
        blocks = np.array_split(np.arange(64), agents)
        shards = [(np.asfortranarray(dense[:, block]), y) if k == 0 else np.asfortranarray(dense[:, block])
                  for k, block in enumerate(blocks)]  # fmt: skip
        peer = Peer(
            "",
            "",
            frozenset(),
            _apart(
                co.Problem("squared", "l2", 1e-2, intercept=False), shards, "graph-cp", "features"
            ),
        )
        added = _added(peer)
        yield {
            "table": "memory",
            "problem": f"columns apart: {agents} agents, n = {n}",
            "solver": "Coterie",
            "data MB": n * 64 * 8 / 1e6,
            "added MB": added,
            "floats": added * 1e6 / 8 / n / agents,
        }


def _apart(problem: co.Problem, parts: list[Any], method: str, split: str = "samples") -> Any:
    def fit(case: Case | None, tol: float) -> np.ndarray:
        # Enough rounds to fill the memory of Anderson's acceleration, which waits for forty where
        # the loss has kinks.
        rounds = 20 if np.isfinite(problem.loss.smoothness) else 60
        options = {"network": "ring"} if split == "features" else {}
        co.solve(
            problem,
            parts,
            split=split,
            method=method,
            max_rounds=rounds,
            tol=tol,
            threads=1,
            **options,
        )
        return np.zeros(1)

    return fit


def _added(peer: Peer) -> float:
    """By how many megabytes the memory of a fork of this process grew at most, in the second of two
    runs.
    """

    class Nothing:
        def objective(self, w: np.ndarray) -> float:
            return 0.0

    with Worker(peer, Nothing()) as worker:  # type: ignore[arg-type]
        answers = [worker.fit(1e-9, 60.0, memory=True) for _ in range(2)]
    return np.nan if isinstance(answers[-1], str) else answers[-1]["megabytes"]
