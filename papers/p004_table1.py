"""004 Tables 1 and 2: what an epoch sends, as the bill measured it, and what it takes with each
representation.
"""

from __future__ import annotations

import math
import time
import tracemalloc
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from threadpoolctl import threadpool_limits

from coterie.problems.problem import Problem
from papers.p004 import METHODS, PAPER, low_rank_data, run
from papers.study import Claim, Curve, Numbers, Study, spent

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SENT, SECONDS, MEMORY = "numbers sent per epoch", "CPU ms per epoch", "memory in kB"
FORMS = {"dense": "dense", "implicit": "low-rank"}


class Tables(Study):
    """Bills, times and memory per epoch."""

    name: ClassVar[str] = "004 table1"
    paper: ClassVar[str] = PAPER
    title: ClassVar[str] = "Tables 1 and 2 as measured bills, times and memory"
    quick: ClassVar[Mapping[str, Any]] = {
        "sides": (20, 40, 160, 320), "agents": 4, "rows": 40, "epochs": 12, "timed": 40, "repeats": 5, "seed": 0,
    }  # fmt: skip
    full: ClassVar[Mapping[str, Any]] = {
        "sides": (100, 300, 1000), "agents": 96, "rows": 300, "epochs": 1, "timed": 40, "repeats": 1, "seed": 0,
    }  # fmt: skip
    remark: ClassVar[str] = (
        "Table 1 counts one way for the baselines and both ways for DFW-TRACE; the bill counts "
        "both ways for all, and "
        "two numbers per worker more for the line search. Times and memory are of all workers in "
        "one process; at the "
        "larger size, with one thread on a machine that had other work as well, which a factor of "
        "two survives."
    )

    def run(self, settings: Mapping[str, Any]) -> Numbers:
        N, epochs, timed_over, seed = (
            settings[key] for key in ("agents", "epochs", "timed", "seed")
        )
        sides = np.array(settings["sides"], float)
        problem = Problem("squared", "traceball", radius=1.0)
        sent: dict[str, list[float]] = {label: [] for label in ("naive", "SVA", "DFW-1", "DFW-2")}
        timed: dict[str, list[float]] = {form: [] for form in FORMS}
        held: dict[str, list[float]] = {form: [] for form in FORMS}
        bills = {}
        for d in settings["sides"]:
            X, W = low_rank_data(N * settings["rows"], d, d, seed)
            data = (X, X @ W)
            for label in sent:
                result = run(problem, data, label, N, epochs, seed, epochs)
                sent[label].append(float(np.mean(result.bill.per_round)))
                bills[label] = spent(result)
            for form in FORMS:
                least = {1: math.inf, timed_over: math.inf}
                with threadpool_limits(1):
                    for rounds in (*least,) * settings["repeats"]:
                        began = time.process_time()
                        run(problem, data, "DFW-2", N, rounds, seed, rounds, information=form)
                        least[rounds] = min(least[rounds], time.process_time() - began)
                timed[form].append(1e3 * (least[timed_over] - least[1]) / (timed_over - 1))
                tracemalloc.start()
                run(problem, data, "DFW-2", N, 2, seed, 2, information=form)
                held[form].append(tracemalloc.get_traced_memory()[1] / 1e3)
                tracemalloc.stop()
        curves = [
            Curve(SENT, label, METHODS[label][0], sides, np.array(y), bills[label])
            for label, y in sent.items()
        ]
        for panel, found in ((SECONDS, timed), (MEMORY, held)):
            curves += [
                Curve(panel, FORMS[form], form, sides, np.array(y)) for form, y in found.items()
            ]
        return Numbers(curves, [f"{N} workers", f"{settings['rows']} rows each"])

    def claims(self, numbers: Numbers) -> list[Claim]:
        sent = numbers.panel(SENT)
        N, rows = (int(remark.split()[0]) for remark in numbers.remarks)
        d = sent["naive"].x
        line_search = 4 * N
        wanted = {
            "naive": 2 * N * d * d,
            "SVA": 2 * N * 2 * d,
            "DFW-1": 2 * N * 2 * d,
            "DFW-2": 4 * N * 2 * d,
        }
        claims = [
            Claim(
                f"{label} sends what Table 1 says.",
                bool(np.all(sent[label].y == formula + line_search)),
                "per epoch, less the line search: "
                + ", ".join(f"{v:,.0f}" for v in sent[label].y - line_search),
                fails_if="the bill differs from the formula by one number at one d.",
            )
            for label, formula in wanted.items()
        ]
        for panel, what in ((SECONDS, "time"), (MEMORY, "memory")):
            found = numbers.panel(panel)
            dense, low = (found[form].y for form in FORMS.values())
            fewer = d > rows
            listed = ", ".join(
                f"d = {side:g}: {a:.3g}, {b:.3g}" for side, a, b in zip(d, dense, low, strict=True)
            )
            claims.append(
                Claim(
                    (
                        f"The low-rank representation takes less {what} where a worker has fewer "
                        "rows "
                        "than min(d, m)."
                    ),
                    bool(np.all(low[fewer] <= dense[fewer])),
                    f"{rows} rows each; dense and low-rank, {listed}",
                    fails_if="the dense one takes less at one d above the number of rows.",
                )
            )
        return claims

    def draw(self, numbers: Numbers) -> Figure:
        from coterie.report.figures import BLUE, OCHRE, colour
        from papers.drawing import DASHED, DOTTED, SOLID, panels

        hues, strokes = {"dense": OCHRE, "low-rank": BLUE}, {"DFW-1": DOTTED, "low-rank": DASHED}
        axes = {panel: ("d = m", panel) for panel in (SENT, SECONDS, MEMORY)}
        return panels(
            numbers, list(axes), axes, log_x=True, hue=lambda c: hues.get(c.label) or colour(c.method),
            stroke=lambda c: strokes.get(c.label, SOLID),
        )  # fmt: skip
