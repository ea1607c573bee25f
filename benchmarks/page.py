"""From the rows of a benchmark to `docs/benchmarks.md` and its figure: tables, targets, a sentence
for what is lost.
"""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["figure", "lost", "number", "page", "rounds_table", "seconds_table", "targets"]

Row = dict[str, Any]
OURS = "Coterie"
PEER = "scikit-learn liblinear"

WHY = {
    "ridge": "digests, checks and eight products where one would do",
    "lasso": "Coterie reads the data once more for its digest and twice for a certificate",
    "huber": "a whole Hessian in the first round, where rehline only makes coordinate steps",
    "quantile": "Hessians are added up anew in every round",
    "hinge l2, a1a": (
        "14 rounds of eight agents in Python take longer than the whole problem in compiled code"
    ),
    "hinge l1, a1a": "18 rounds of eight agents in Python, on a problem of milliseconds",
    "logistic l2, a1a": (
        "five rounds of eight agents in Python take longer than the whole problem in compiled code"
    ),
    "logistic l1, a1a": (
        "four rounds of eight agents in Python take longer than the whole problem in compiled code"
    ),
    "hinge l2": "rounds against one sequence of coordinate steps over all rows",
    "logistic l2": "each Newton step is eight products, sums and a certificate",
    "logistic l1": (
        "the Hessian is added up anew in every round, where working sets reuse residuals"
    ),
}
"""One sentence for every kind of row that Coterie may lose in seconds, by the beginning of the
problem's name.
"""

WHY_ROUNDS = {
    "ridge": (
        "its certificate would do with fewer rounds, but the self-tuned steps need some to be found"
    ),
    "quantile": "the first rounds of interior-point only approach the central path",
    "hinge": "the first rounds of interior-point only approach the central path, where CoCoA's "
    "coordinate steps are at "
    "once near a rough answer",
    "huber": "CoCoA's first dual steps are already good for three digits",
    "logistic": (
        "CoCoA's first dual steps are already good for three digits; a Newton step from 0 is not"
    ),
    "lasso": "for its link Coterie weighs bits and seconds, not rounds alone",
}
"""The same for rounds, rows apart."""
WHY_APART = {
    "vertical": "CoLA tells everybody the labels and solves its blocks exactly, and where all are "
    "near to each other "
    "its averages are nearly those of all; Coterie's `tree` takes steps of first order",
    "low rank": "a block of directions costs some rounds before it is the right one",
}
"""The same for rounds of the other tables."""


def number(value: float) -> str:
    """Two digits, or a dash for what was not reached."""
    return "–" if not np.isfinite(value) else f"{value:.2g}" if value < 100 else f"{value:.0f}"


def _cell(value: Any, limit: Any = None) -> str:
    """The number, or beyond what it is."""
    known = limit is not None and np.isfinite(limit)
    return number(value) if np.isfinite(value) else f"> {number(limit)}" if known else "–"


def _of(rows: list[Row], table: str) -> dict[str, list[Row]]:
    """The rows of that table by problem."""
    own = [row for row in rows if row["table"] == table]
    return {
        problem: [row for row in own if row["problem"] == problem]
        for problem in dict.fromkeys(row["problem"] for row in own)
    }


def _why(reasons: dict[str, str], problem: str) -> str:
    return next(
        (reason for start, reason in reasons.items() if problem.lower().startswith(start)),
        "not yet explained",
    )


def seconds_table(rows: list[Row]) -> list[str]:
    """Markdown: seconds, and their ratio to Coterie's."""
    lines = [
        (
            "| problem | solver | s to 1e-3 | s to 1e-6 | ratio to Coterie at 1e-3 | at 1e-6 | MB "
            "added |"
        )
    ]
    lines += ["|---|---|---|---|---|---|---|"]
    for problem, own in _of(rows, "seconds").items():
        mine = next(row for row in own if row["solver"] == OURS)
        for row in own:
            a, b, limit = row["to 1e-03"], row["to 1e-06"], row.get("limit")
            ratios = [
                number(x / y) if np.isfinite(x) else "–"
                for x, y in ((a, mine["to 1e-03"]), (b, mine["to 1e-06"]))
            ]
            cells = [
                problem,
                row["solver"],
                _cell(a, limit),
                _cell(b, limit),
                *ratios,
                number(row["megabytes"]),
            ]
            lines.append(f"| {' | '.join(cells)} |")
    return lines


def lost(rows: list[Row]) -> list[str]:
    """One sentence for each problem on which somebody is faster to 1e-6, with by how much."""
    lines = []
    for problem, own in _of(rows, "seconds").items():
        spent = {row["solver"]: row["to 1e-06"] for row in own}
        mine = min(value for name, value in spent.items() if name.startswith(OURS))
        name = min(spent, key=lambda solver: spent[solver])
        if spent[name] < mine:
            lines.append(
                f"- {problem}: {name} is {number(mine / spent[name])} times faster: "
                f"{_why(WHY, problem)}."
            )
    return lines


def rounds_table(rows: list[Row], table: str = "rounds") -> list[str]:
    """Markdown: rounds and megabytes."""
    lines = [
        "| problem | method | rounds to 1e-3 | MB | rounds to 1e-6 | MB |",
        "|---|---|---|---|---|---|",
    ]
    for row in (row for row in rows if row["table"] == table):
        cells = []
        for target in ("1e-03", "1e-06"):
            cells += [
                _cell(row[f"rounds to {target}"], row.get("limit")),
                number(row[f"MB to {target}"]),
            ]
        lines.append(f"| {row['problem']} | {row['solver']} | {' | '.join(cells)} |")
    return lines


def _best(own: list[Row], key: str) -> tuple[float, float, str]:
    """Coterie's number, the best of the others, and whose that is."""
    mine = next((row[key] for row in own if row["solver"] in (OURS, "Coterie (auto)")), np.inf)
    others = [row for row in own if not row["solver"].startswith(OURS)]
    first = min(others, key=lambda row: row[key], default=None)
    return mine, np.inf if first is None else first[key], "" if first is None else first["solver"]


def _at_least(own: list[Row], key: str) -> float:
    """What the best of the others needs at least: of those who did not get there, the limit at
    which they stopped.
    """
    others = [row for row in own if not row["solver"].startswith(OURS)]
    return min(
        (row[key] if np.isfinite(row[key]) else row.get("limit", np.inf) for row in others),
        default=np.inf,
    )


def lost_rounds(rows: list[Row]) -> list[str]:
    """One sentence for each problem that misses a target of rounds."""
    lines = []
    for table in ("rounds", "vertical", "low rank"):
        for problem, own in _of(rows, table).items():
            mine, best, name = _best(own, "rounds to 1e-03")
            why = WHY_APART.get(table) or _why(WHY_ROUNDS, problem)
            if mine > 1.1 * best:
                lines.append(
                    f"- {problem}: to 1e-3 {name} needs {best:.0f} rounds, Coterie {_cell(mine)}: "
                    f"{why}."
                )
            mine, best, name = _best(own, "rounds to 1e-06")
            if mine > 0.5 * best:
                lines.append(
                    f"- {problem}: to 1e-6 {name} needs {best:.0f} rounds, Coterie {_cell(mine)}: "
                    f"{why}."
                )
    return lines


def targets(rows: list[Row]) -> list[str]:
    """Markdown: what was aimed at, in how many problems it is reached, and where it is not."""
    lines = ["| target | reached | not reached |", "|---|---|---|"]

    def judge(name: str, verdicts: dict[str, tuple[bool, str]]) -> None:
        if verdicts:
            failed = [
                f"{problem} ({shown})" for problem, (good, shown) in verdicts.items() if not good
            ]
            good = len(verdicts) - len(failed)
            lines.append(f"| {name} | {good} of {len(verdicts)} | {'; '.join(failed) or '–'} |")

    def compared(table: str, key: str, most: float) -> dict[str, tuple[bool, str]]:
        verdicts = {}
        for problem, own in _of(rows, table).items():
            mine, best, _ = _best(own, key)
            least = _at_least(own, key)
            shown = (
                f"{number(mine / best)}×"
                if mine > most * best
                else f"open: another was stopped at {number(least)}"
            )
            if np.isfinite(mine) or np.isfinite(best):
                verdicts[problem] = bool(mine <= most * min(least, best)), shown
        return verdicts

    judge(
        "seconds to 1e-6: within 3 × the best solver of undivided data",
        compared("seconds", "to 1e-06", 3.0),
    )
    for table, words in (
        ("rounds", "rows apart"),
        ("vertical", "columns apart"),
        ("low rank", "low rank"),
    ):
        judge(
            f"rounds to 1e-6, {words}: at most half of the best other",
            compared(table, "rounds to 1e-06", 0.5),
        )
        judge(
            f"rounds to 1e-3, {words}: at most 1.1 × the best other",
            compared(table, "rounds to 1e-03", 1.1),
        )
    wide = {
        problem: {row["solver"]: row for row in own} for problem, own in _of(rows, "wide").items()
    }
    judge(
        (
            "many rare columns, a proven 1e-4: at most 60 rounds, 1 GB and 8 × the seconds of "
            "liblinear"
        ),
        {
            problem: (
                bool(
                    own[OURS]["rounds"] <= 60
                    and own[OURS]["megabytes"] <= 1000
                    and own[OURS]["proven"] <= 1e-4
                )
                and own[OURS]["seconds"] <= 8 * own[PEER]["seconds"],
                f"{own[OURS]['rounds']:.0f} rounds, {number(own[OURS]['megabytes'])} MB, "
                f"{number(own[OURS]['seconds'] / own[PEER]['seconds'])}×",
            )
            for problem, own in wide.items()
            if {OURS, PEER} <= set(own)
        },
    )
    for words, key, most in (
        ("start not counted: 10 × faster", "fit", 0.1),
        ("start counted: faster", "all", 1.0),
    ):
        for target in ("1e-03", "1e-06"):
            judge(
                f"dask-glm and MLlib to {target}, {words}",
                compared("start", f"{key} to {target}", most),
            )
    grown = {
        what: own[-1]["milliseconds"]
        / own[0]["milliseconds"]
        / (own[-1]["non-zeros"] / own[0]["non-zeros"])
        for what, own in _of(rows, "growth").items()
        if len(own) == 3
    }
    judge(
        "milliseconds of a round per non-zero, at × 4: at most 1.3 × those at × 1",
        {
            what: (ratio <= 1.3, f"{number(ratio)}×")
            for what, ratio in grown.items()
            if what != "agents"
        },
    )
    held = {problem: own[0] for problem, own in _of(rows, "memory").items()}
    judge(
        "memory, rows apart: at most 1.5 × the data",
        {
            problem: (
                row["added MB"] <= 0.5 * row["data MB"],
                f"{number(1 + row['added MB'] / row['data MB'])}×",
            )
            for problem, row in held.items()
            if problem.startswith("rows")
        },
    )
    judge(
        "memory, columns apart: at most 6 n floats an agent beside the data",
        {
            problem: (row["floats"] <= 6.0, f"{number(row['floats'])} n")
            for problem, row in held.items()
            if problem.startswith("columns")
        },
    )
    return lines


def _plain_table(rows: list[Row], table: str, columns: dict[str, str]) -> list[str]:
    """Markdown: those columns by the keys of the rows."""
    own = [row for row in rows if row["table"] == table]
    if not own:
        return ["Not measured in this run."]
    lines = [f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
    for row in own:
        cells = [
            row[key] if isinstance(row[key], str) else number(row[key]) for key in columns.values()
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def _growth(rows: list[Row]) -> list[str]:
    lines = ["| what grows | × 1 | × 2 | × 4 |", "|---|---|---|---|"]
    for what, own in _of(rows, "growth").items():
        lines.append(f"| {what} | {' | '.join(number(row['milliseconds']) for row in own)} |")
    return lines if len(lines) > 2 else ["Not measured in this run."]


def _optima(rows: list[Row]) -> list[str]:
    lines = ["| problem | Coterie's certificate | agrees with the best peer to |", "|---|---|---|"]
    for problem, own in _of(rows, "seconds").items():
        last = own[-1]
        peers = "–" if np.isnan(last["agreement"]) else f"{last['agreement']:.0e}"
        lines.append(f"| {problem} | {last['proven']:.0e} | {peers} |")
    return lines


def figure(rows: list[Row], path: Path) -> None:
    """Every peer's time to 1e-6 in units of Coterie's, one line per problem."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "coterie"
    from matplotlib import pyplot as plt

    problems = {
        name: own
        for name, own in _of(rows, "seconds").items()
        if np.isfinite(_best(own, "to 1e-06")[0])
    }
    fig, axes = plt.subplots(figsize=(8, 0.32 * len(problems) + 2.0), layout="constrained")
    axes.axvspan(1 / 3, 1, color="0.93")
    axes.axvline(1, color="0.5", lw=1)
    solvers = sorted(
        {row["solver"] for own in problems.values() for row in own} - {OURS}, key=str.lower
    )
    colours = plt.get_cmap("tab20").colors
    for number, name in enumerate(solvers):
        points = [
            (
                row["to 1e-06"] / next(mine["to 1e-06"] for mine in own if mine["solver"] == OURS),
                height,
            )
            for height, own in enumerate(reversed(problems.values()))
            for row in own
            if row["solver"] == name
        ]
        shown = [point for point in points if np.isfinite(point[0])]
        if shown:
            style = {
                "marker": "osD^vPX*<>"[number % 10],
                "color": colours[2 * number % 20 + 2 * number // 20],
            }
            axes.plot(
                *zip(*shown, strict=True), ls="", ms=7, mec="white", mew=0.5, label=name, **style
            )
    axes.set(
        xscale="log",
        xlabel="seconds to 1e-6, in units of Coterie's (right of 1: Coterie is faster)",
    )
    axes.set_yticks(range(len(problems)), list(problems)[::-1], fontsize=8)
    axes.grid(axis="y", lw=0.4, alpha=0.5)
    if axes.lines[1:]:
        fig.legend(loc="outside lower center", ncols=4, fontsize=7, frameon=False)
    fig.savefig(path, metadata={"Date": None})
    plt.close(fig)


PAGE = """# Benchmarks

Written by `{command}` (`benchmarks/bench.py`): Coterie and its peers on the same problems, in the same run, taking
turns, on {machine}, one thread each. The numbers behind it are in [benchmarks.parquet](benchmarks.parquet).{stopped}

## Targets

{targets}

## Seconds

From data in memory to a model of that relative suboptimality: CPU seconds of one process, the fastest of several turns.
Peers see all rows in one piece; for Coterie they are split in eight, and the time includes checking the data, splitting
it, digests, certificates and the bill. A ratio above 1 means that Coterie is faster; “> 8”: not reached in an attempt
of 8 s, the longest one. All agents share a memory, and "auto" reckons with that. snapml computes in float32.

![seconds to 1e-6 in units of Coterie's](benchmarks.svg)

{seconds}

### Where somebody is faster to 1e-6

{lost}

### The optima

The best objective that anybody found counts as the optimum.

{optima}

### With and without the start

Clock seconds against solvers that bring a cluster: of a fit in a process that is warm, and of a fresh process that
starts, reads the data and fits once.

{start}

## Rounds and megabytes

In our own engine. The baselines are written from their papers (`benchmarks/baselines`): CoCoA and ADMM as published;
EXTRA, gradient tracking and distributed subgradients on a ring. Nothing is tuned for anybody; Coterie's megabytes
include its certificates, and "auto" reckons with 20 ms per hop and 100 Mbit/s. “> 300”: not within 300 rounds, where
the patience of the run ended.

{rounds}

### Many rare columns

As many columns as rows, 30 ones in a row, a few columns with most of them (`wide` in `benchmarks/problems.py`), and
λ = 3e-5: Coterie, with eight agents, until it has proven a relative gap of 1e-4, and liblinear with the first tolerance
at which its objective is as near to the optimum.

{wide}

### Many classes

Softmax regression with l2 and an intercept, split over eight agents, beside scikit-learn's on all rows: CPU seconds to
within 1e-6 of the proven lower bound, as a share of what the best constant loses (`benchmarks/softmax.py`).

{softmax}

### Columns apart

CoLA lets everybody know the labels and solves its local problems exactly; EXTRA is run on the dual, beside l2;
`graph-cp` with Theorem 1's steps is the paper's form, two exchanges a round. In one process "auto" may move the columns
(`blocks`); `lbfgs` leaves them where they are. Correlated columns: one shared factor with ρ = .999, a spectrum k⁻², and
x … x⁴ at every party.

{vertical}

### Low rank

Least squares with a matrix of rank 10 in the ball of the trace norm, eight agents. Here 1e-3 and 1e-6 are those of
F/F(0), as the optimum is 0; looked at every second epoch.

{low_rank}

How well such models predict at the radius that cross-validation chooses (`benchmarks/low_rank_accuracy.py`):

{accuracy}

### Where others need fewer rounds than the targets allow

{lost_rounds}

## Personal models

Every user wakes up 45 times; the graph is learned. [Paper 001](papers/001.md) has the accuracies.

{personal}

## Growth

Milliseconds of a round of `proximal-2` as rows (80,000), columns (5,000; 1 % not 0) and agents (8) double twice. At × 1
the data is 48 MB already: what fits into a cache is read faster, and that is not growth.

{growth}

What a run of 20 rounds (hinge: 60) adds to a process that holds the data of all agents, apart already: by then the
memory of every acceleration is full.

{memory}

## Who did not take part

{out}
"""

ABSENT = ("decent-bench", "needs Python 3.13, and has no adapter here yet")
STOPPED = " **Missing below, because the run is not finished: {}.**"


def page(rows: list[Row], quick: bool, unfinished: list[str] | None = None) -> str:
    """The Markdown page."""
    out = sorted(
        [ABSENT, *((row["problem"], row["solver"]) for row in rows if row["table"] == "out")]
    )
    stopped = [row for row in rows if row["table"] == "stopped"]
    aside = [
        f"- {row['problem']}: stopped after {number(row['seconds'])} s, before its end"
        for row in stopped
    ]
    aside += [f"- {name}: {reason}" for name, reason in out]
    fit = {f"fit to {a}": f"fit to {b}" for a, b in (("1e-3", "1e-03"), ("1e-6", "1e-06"))}
    whole = {f"all to {a}": f"all to {b}" for a, b in (("1e-3", "1e-03"), ("1e-6", "1e-06"))}
    shown = {
        "start": {"problem": "problem", "solver": "solver", **fit, **whole},
        "personal": {"problem": "problem", "CPU seconds": "seconds", "µs a wake-up": "µs a wake-up",
                     "MB added": "megabytes"},
        "wide": {"problem": "problem", "solver": "solver", "rounds": "rounds", "MB": "megabytes",
                 "proven gap": "proven", "suboptimality": "excess", "CPU seconds": "seconds"},
        "softmax": {"problem": "problem", "solver": "solver", "CPU seconds": "seconds", "× scikit-learn": "ratio"},
        "accuracy": {"problem": "problem", "solver": "solver", "error": "error", "CPU seconds": "seconds"},
        "memory": {"run": "problem", "MB of data": "data MB", "MB added": "added MB", "n floats an agent": "floats"},
    }  # fmt: skip
    return PAGE.format(
        stopped=STOPPED.format(", ".join(unfinished)) if unfinished else "",
        command="make bench-quick" if quick else "make bench",
        machine=(
            f"{os.cpu_count()} cores ({platform.machine()}, Python {platform.python_version()})"
        ),
        targets="\n".join(targets(rows)),
        seconds="\n".join(seconds_table(rows)),
        lost="\n".join(lost(rows)) or "Nowhere.",
        optima="\n".join(_optima(rows)),
        rounds="\n".join(rounds_table(rows)),
        vertical="\n".join(rounds_table(rows, "vertical")),
        low_rank="\n".join(rounds_table(rows, "low rank")),
        lost_rounds="\n".join(lost_rounds(rows)) or "Nowhere.",
        growth="\n".join(_growth(rows)),
        out="\n".join(aside) or "Nobody.",
        **{name: "\n".join(_plain_table(rows, name, columns)) for name, columns in shown.items()},
    )
