"""Coterie beside its peers: the same problems, the same run, taking turns.

    python benchmarks/bench.py                  everything (half an hour); writes
                                                docs/benchmarks.md, .svg and .parquet
    python benchmarks/bench.py --quick          fewer and smaller cells, less patience (minutes)
    python benchmarks/bench.py --resume         goes on where a run was stopped: cells in
                                                benchmarks.parquet stay
    python benchmarks/bench.py --only lasso     cells with this in their name; prints, and writes
                                                nothing
    python benchmarks/bench.py --only lasso --resume     measures them again, and writes them beside
    the others
    python benchmarks/bench.py --list           the names of the cells
    python benchmarks/bench.py --page           writes the page again from the numbers that are
                                                there

Everything is written after every cell, so that a run that is stopped leaves what it has. Seconds
are those of one process (CPU time; clock time for solvers that bring a cluster), from data in
memory to a model of that relative suboptimality. Every solver, in a process of its own, is first
asked for more and more accuracy, in its own terms, until the objective, which is computed here, is
near enough; then all take turns with what they needed, and the fastest turn of each counts. The
optimum is the best objective that anybody found: Coterie's certificate proves how good it is, and
the best peer says how far the two agree.
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks import low_rank_accuracy, measures, softmax
from benchmarks.measures import QUICK, Row, Settings
from benchmarks.page import figure, page
from benchmarks.problems import COLUMNS, PROBLEMS, WIDE, available

ROOT = Path(__file__).parents[1]
CAP = {True: 60, False: 150}
"""Seconds of the clock after which a cell, quick or not, is stopped."""

DENSE = ("ridge, 3000 × 500", "lasso, 3000 × 500", "Huber l2, 3000 × 500", "quantile l1, 1500 × 60")
A1A, W8A = "a1a, 1605 × 119", "w8a, 49749 × 300"
TEXT, MNIST = "text, 72309 × 20958", "MNIST, 12000 × 784"
START = {
    f"logistic l2, {A1A}": ("Coterie", "Spark MLlib", "dask-glm admm", "dask-glm proximal-grad"),
    f"logistic l2, {W8A}": ("Coterie", "Spark MLlib", "dask-glm admm"),
}
"""Who is timed with and without its start."""
ROUNDS = {
    8: [*DENSE, f"logistic l2, {A1A}", f"logistic l1, {A1A}", f"hinge l2, {A1A}", f"hinge l1, {A1A}",
        f"logistic l2, {TEXT}", f"logistic l2, {MNIST}"],
    30: ["ridge, 3000 × 500", f"logistic l2, {A1A}", f"logistic l1, {W8A}"],
    100: ["lasso, 3000 × 500", f"logistic l2, {A1A}", f"hinge l2, {A1A}"],
}  # fmt: skip
"""Rows apart, by the number of agents."""
VERTICAL = [
    *(("lasso, 3000 × 500", 8, where) for where in ("ring", "grid", "expander", "complete")),
    *(("ridge, 3000 × 500", 64, where) for where in ("ring", "grid", "expander", "complete")),
    (f"logistic l2, {A1A}", 8, "ring"),
    (f"hinge l1, {A1A}", 8, "expander"),
    *((name, 16, "ring") for name in COLUMNS if "3000" in name),
    *(
        (name, 16, "ring")
        for name in (f"hinge l1, {A1A}", f"hinge l2, {A1A}", "quantile l1, 1500 × 60")
    ),
    *((name, 4, "star") for name in COLUMNS if "100000" in name),
]
"""Columns apart: problem, agents, graph."""
QUICK_ONES = (*DENSE, f"logistic l2, {A1A}", f"hinge l2, {A1A}")


class TooLong(Exception):
    """A cell has reached its cap."""


@dataclass(frozen=True)
class Cell:
    """A part of the tables that is measured at once."""

    name: str
    measure: Callable[[Settings, dict[str, str]], Iterator[Row]]
    quick: bool
    """Whether it also belongs to the quick run."""


def cells() -> list[Cell]:
    """The whole grid, in the order in which it is run."""
    found = []
    for name in PROBLEMS:
        if available(name):
            go = partial(measures.seconds, name)
            found.append(
                Cell(f"seconds: {name}", lambda s, out, go=go: go(s, out), name in QUICK_ONES)
            )
    for agents, names in ROUNDS.items():
        for name in filter(available, names):
            go = partial(measures.rounds, name, agents)
            quick = name in QUICK_ONES and (agents == 8 or "logistic l2" in name)
            found.append(
                Cell(f"rounds: {name}, {agents} agents", lambda s, out, go=go: go(s), quick)
            )
    for name in WIDE:
        go = partial(measures.wide, name)
        found.append(Cell(f"wide: {name}", lambda s, out, go=go: go(s), True))
    for name in softmax.PROBLEMS:
        go = partial(softmax.measured, name)
        found.append(
            Cell(
                f"softmax: {name}",
                lambda s, out, go=go: go(1 if "MNIST" in go.args[0] else s.turns),
                "MNIST" not in name,
            )
        )
    for name, agents, where in VERTICAL:
        if available(name):
            go = partial(measures.vertical, name, agents, where)
            quick = (where == "ring" and agents != 16) or (where == "expander" and agents == 64)
            found.append(
                Cell(
                    f"vertical: {name}, {agents} agents, {where}",
                    lambda s, out, go=go: go(s),
                    quick,
                )
            )
    for d in (300, 1000):
        go = partial(measures.low_rank, d)
        found.append(Cell(f"low rank: {d}", lambda s, out, go=go: go(s), d == 300))
    for name in low_rank_accuracy.PROBLEMS:
        go = partial(low_rank_accuracy.measured, name)
        found.append(Cell(f"accuracy: {name}", lambda s, out, go=go: go(), "classes" in name))
    for users in (100, 1000, 10_000):
        go = partial(measures.personal, users)
        found.append(Cell(f"personal: {users}", lambda s, out, go=go: go(), users == 100))
    for name, who in START.items():
        for solver in who if available(name) else ():
            go = partial(measures.start, name, solver)
            quick = A1A in name and "dask" not in solver
            found.append(Cell(f"start: {name}, {solver}", lambda s, out, go=go: go(s, out), quick))
    for what in ("rows", "columns", "agents"):
        go = partial(measures.growth, what)
        found.append(Cell(f"growth: {what}", lambda s, out, go=go: go(), what == "rows"))
    for what, measure in (
        ("rows", measures.memory_of_rows),
        ("columns", measures.memory_of_columns),
    ):
        found.append(
            Cell(f"memory: {what} apart", lambda s, out, go=measure: measures.afresh(go), False)
        )
    return found


class Store:
    """All rows by (table, problem, solver), on disk as docs/benchmarks.parquet."""

    def __init__(self, quick: bool):
        self.quick, self.rows = quick, dict[tuple[str, str, str], Row]()

    def add(self, row: Row) -> None:
        """A row, in place of an earlier one of that name."""
        self.rows[row["table"], row["problem"], row["solver"]] = row

    def forget(self, cell: Cell) -> None:
        """Every row that an earlier run of that cell added."""
        self.rows = {key: row for key, row in self.rows.items() if row["cell"] != cell.name}

    def done(self) -> set[str]:
        """The names of the cells that came to their end, or to their cap."""
        return {row["cell"] for row in self.rows.values() if row["table"] in ("done", "stopped")}

    def load(self) -> None:
        """What an earlier run left, if it was of the same kind."""
        import pyarrow.parquet as pq

        path = ROOT / "docs/benchmarks.parquet"
        for row in pq.read_table(path).to_pylist() if path.exists() else []:
            known = {key: value for key, value in row.items() if value is not None}
            if "cell" in known and known["quick"] == self.quick:
                self.add(known)

    def write(self) -> None:
        """The page, its figure, and the numbers."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        order = {cell.name: place for place, cell in enumerate(cells())}
        rows = sorted(self.rows.values(), key=lambda row: order.get(row["cell"], len(order)))
        columns = sorted({key for row in rows for key in row})
        pq.write_table(
            pa.table({key: [row.get(key) for row in rows] for key in columns}),
            ROOT / "docs/benchmarks.parquet",
        )
        figure(rows, ROOT / "docs/benchmarks.svg")
        missing = [
            cell.name
            for cell in cells()
            if (cell.quick or not self.quick) and cell.name not in self.done()
        ]
        (ROOT / "docs/benchmarks.md").write_text(page(rows, self.quick, missing))


def run(cell: Cell, quick: bool) -> Iterator[Row]:
    """The rows of a cell, and then one that says how long it took, or that it was stopped."""
    out: dict[str, str] = {}

    def too_long(number: int, frame: FrameType | None) -> None:
        raise TooLong

    began, ended = time.monotonic(), "done"
    signal.signal(signal.SIGALRM, too_long)
    signal.alarm(CAP[quick])
    try:
        yield from cell.measure(QUICK if quick else Settings(), out)
    except TooLong:
        ended = "stopped"
    except Exception as error:  # the other cells are worth having
        ended, out[cell.name] = "stopped", f"{type(error).__name__}: {error}".splitlines()[0][:200]
    finally:
        signal.alarm(0)
    for who, why in out.items():
        yield {"table": "out", "problem": who, "solver": why}
    yield {"table": ended, "problem": cell.name, "solver": "", "seconds": time.monotonic() - began}


def main() -> None:
    """Run, print, and write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", default="")
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--page", action="store_true")
    parser.add_argument(
        "--fit", nargs=3, metavar=("SOLVER", "PROBLEM", "TOL"), help=argparse.SUPPRESS
    )
    chosen = parser.parse_args()
    if chosen.fit:
        measures.fit_once(chosen.fit[0], chosen.fit[1], float(chosen.fit[2]))
        return
    store, writes = Store(chosen.quick), chosen.resume or not chosen.only
    if chosen.resume or chosen.page:
        store.load()
    if chosen.page:
        store.write()
        return
    grid = [
        cell
        for cell in cells()
        if (cell.quick or not chosen.quick or chosen.only) and chosen.only in cell.name
    ]
    skipped = store.done() if chosen.resume and not chosen.only else set()
    for place, cell in enumerate(grid, 1):
        if chosen.list or cell.name in skipped:
            print(f"{cell.name}{' (done)' if cell.name in skipped else ''}")
            continue
        print(f"[{place}/{len(grid)}] {cell.name}", flush=True)
        store.forget(cell)
        for row in run(cell, chosen.quick):
            store.add(row | {"cell": cell.name, "quick": chosen.quick})
            _print(row)
        if writes:
            store.write()


def _print(row: Row) -> None:
    shown: dict[str, Any] = {
        key: value for key, value in row.items() if key not in ("table", "problem")
    }
    numbers = ", ".join(
        f"{key} {value:.3g}" for key, value in shown.items() if isinstance(value, int | float)
    )
    print(f"    {row['table']}: {row['problem']} | {row['solver']} | {numbers}", flush=True)


if __name__ == "__main__":
    main()
