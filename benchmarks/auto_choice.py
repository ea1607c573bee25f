"""How good the choice of `method="auto"` is: every method that applies, on the problems of `auto_problems.py`.

    python benchmarks/auto_choice.py measure rows.jsonl [--sets testing] [--only text]
    python benchmarks/auto_choice.py page rows.jsonl [-o docs/auto.md]

Time on a link is measured work plus what the bill says of bits and latency. All agents run in this process, and work is
its processor time until a relative gap of 1e-6 is proven, data checks and certificates included. In memory one machine
does the work of all agents. On a link, every agent has a machine of its own: what all compute alike from a total
(`shared_result`, which is computed once here) counts in full, and the rest is divided by the number of agents.
"""

from __future__ import annotations

import argparse
import functools
import json
import math
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))  # for benchmarks/

import coterie as co
from benchmarks.auto_problems import SETS, Case
from coterie import arrays, rounds
from coterie.methods import METHODS

LINKS = {"memory": None, "1 ms, 10 Gbit/s": (1e-3, 1e10), "20 ms, 100 Mbit/s": (0.02, 1e8)}
TOLERANCE = 1e-6
PATIENCE, TIMES = 1.0, 5.0
"""Seconds that a run gets, or so many times as many as the fastest method so far: what is slower is never the best."""
SHORT = 0.3
"""Runs that take less are run twice, and the faster one counts."""
Row = dict[str, Any]


class _Clock:
    """Processor time in place of the clock on the wall, for the limit of a run: other programs run here, too."""

    monotonic = staticmethod(time.process_time)


class _Shared:
    """How much processor time went into what all agents compute alike."""

    def __init__(self) -> None:
        self.seconds, self._inside = 0.0, False

    def wrapped(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def timed(*arguments: Any, **options: Any) -> Any:
            if self._inside:
                return original(*arguments, **options)
            began, self._inside = time.process_time(), True
            try:
                return original(*arguments, **options)
            finally:
                self.seconds += time.process_time() - began
                self._inside = False

        return timed

    def watch(self) -> None:
        """Put a watch on `shared_result` wherever it is used."""
        original, watched = arrays.shared_result, self.wrapped(arrays.shared_result)
        for name, module in list(sys.modules.items()):
            if name.startswith("coterie") and getattr(module, "shared_result", None) is original:
                module.shared_result = watched  # type: ignore[attr-defined]


def one_run(case: Case, data: Any, method: str, patience: float, shared: _Shared) -> Row:
    """What one run takes."""
    shared.seconds, began = 0.0, time.process_time()
    common = {"agents": case.agents, "split": case.split, "network": case.network, "tol": TOLERANCE}
    try:
        result = co.solve(case.problem, data, method=method, max_seconds=patience, progress=False, threads=1, **common)
    except co.errors.CoterieError as refusal:
        return {"refused": str(refusal)}
    return {
        "reached": bool(result.status.success),
        "rounds": result.rounds,
        "gap": result.certificate.gap / result.certificate.unit,
        "seconds": time.process_time() - began,
        "shared": shared.seconds,
        "turns": result.bill.seconds(1.0, math.inf),
        "busiest": result.bill.seconds(0.0, 1.0),
    }


def applicable(case: Case) -> list[str]:
    """Methods for that split, those that "auto" chooses from first."""
    fitting = [name for name, entry in METHODS.items() if (entry.split, entry.family) == (case.split, "linear")]
    first = ("gram", "newton", "interior-point", "lbfgs-rows", "lbfgs", "blocks", "proximal-1")
    return sorted(fitting, key=lambda name: first.index(name) if name in first else len(first))


def measured(name: str, case: Case, shared: _Shared, warm: set[Any]) -> Iterator[Row]:
    """One row for every method that takes that problem."""
    data, best = case.data(), math.inf
    kind = type(data[0]).__name__, str(data[0].dtype), case.problem.loss.name
    for method in applicable(case):
        patience = PATIENCE if best == math.inf else max(PATIENCE, TIMES * best)
        row = one_run(case, data, method, patience, shared)
        # The first run compiles what has not been compiled.
        if "refused" not in row and (row["seconds"] < SHORT or (method, *kind) not in warm):
            row = min(row, one_run(case, data, method, patience, shared), key=lambda row: seconds(row, case, "memory"))
            warm.add((method, *kind))
        if row.get("reached"):
            best = min(best, row["seconds"])
        yield {"problem": name, "method": method, **row}


def seconds(row: Row, case: Case, link: str) -> float:
    """Time on that link, infinite if the run did not get there."""
    if not row.get("reached"):
        return math.inf
    known = LINKS[link]
    if known is None:
        return float(row["seconds"])
    work = row["shared"] + max(0.0, row["seconds"] - row["shared"]) / case.agents
    return float(work + row["turns"] * known[0] + row["busiest"] / known[1])


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("do", choices=("measure",))
    options.add_argument("rows", type=Path)
    options.add_argument("--sets", default=",".join(SETS))
    options.add_argument("--only")
    given = options.parse_args()
    warnings.simplefilter("ignore")
    watch, warm = _Shared(), set()
    watch.watch()
    rounds.time = _Clock  # type: ignore[assignment]
    known = [json.loads(line) for line in given.rows.read_text().splitlines()] if given.rows.exists() else []
    for which in given.sets.split(","):
        for name, case in SETS[which].items():
            if given.only in (None, name) and not any(row["problem"] == name for row in known):
                for row in measured(name, case, watch, warm):
                    with given.rows.open("a") as file:
                        file.write(json.dumps({"set": which, **row}) + "\n")
