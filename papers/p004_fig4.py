"""004 Fig. 4: time per epoch and objective against time for several numbers of workers, DFW-1.

What is measured is the processor time of all workers, in one process, and the bill. The time of an epoch follows from

    t(N) = CPU(N) / N + turns · latency + bits / bandwidth

where everything passes the master's one link.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from threadpoolctl import threadpool_limits

from coterie.problem import Problem
from papers.p004 import PAPER, objective, run
from papers.p004_fig3 import picture_features
from papers.study import Claim, Curve, Numbers, Study, spent

if TYPE_CHECKING:
    from matplotlib.figure import Figure

EPOCH, OBJECTIVE = "time per epoch", "objective"
TOTAL, WORK, TRAVEL = "work and travel", "work of one worker", "travel"
METHOD = "DFW-1"
ROWS = 1_281_167
"""The paper's."""


class Figure4(Study):
    """Speed-up against workers."""

    name: ClassVar[str] = "004 fig4"
    paper: ClassVar[str] = PAPER
    title: ClassVar[str] = "speed-up against workers"
    quick: ClassVar[Mapping[str, Any]] = {
        "n": 16_000, "d": 128, "classes": 50, "workers": (1, 2, 4, 8, 16, 32), "epochs": 8,
        "drawn": 60, "repeats": 3, "latency": 1e-4, "bandwidth": 1e9, "seed": 0,
    }  # fmt: skip
    full: ClassVar[Mapping[str, Any]] = {
        "n": 96_000, "d": 512, "classes": 250, "workers": (1, 2, 4, 8, 16, 24, 48, 96),
        "epochs": 6, "drawn": 60, "repeats": 2, "latency": 1e-4, "bandwidth": 1e9, "seed": 0,
    }  # fmt: skip
    remark: ClassVar[str] = (
        "No cluster here: the processor time of an epoch is measured and shared by the workers, and the bill is sent "
        "through a master's link of 1 Gb/s, the paper's, with 0.1 ms a turn, ours. Data as in 004 fig3; the "
        "objective was drawn for 8 epochs at first, in which it is still above F(0). At ImageNet's own size X, scores "
        "and probabilities take 41 GB in float64, which the machine at hand does not have; the larger size is what it "
        "has the time for."
    )

    def run(self, settings: Mapping[str, Any]) -> Numbers:
        seed, epochs = settings["seed"], settings["epochs"]
        data = picture_features(settings["n"], settings["d"], settings["classes"], seed)
        problem = Problem("multinomial", "traceball", radius=30.0)
        workers, work, travel, curves = settings["workers"], [], [], []
        for N in workers:
            least, sent = {1: math.inf, epochs: math.inf}, {}
            with threadpool_limits(1):
                for rounds in (*least,) * settings["repeats"]:
                    began = time.process_time()
                    result = run(problem, data, METHOD, N, rounds, seed, rounds, step="classic")
                    least[rounds] = min(least[rounds], time.process_time() - began)
                    turns = result.bill.seconds(settings["latency"], math.inf)
                    sent[rounds] = turns + result.bill.total.bits / settings["bandwidth"]
            work.append((least[epochs] - least[1]) / (epochs - 1) / N)
            travel.append((sent[epochs] - sent[1]) / (epochs - 1) if N > 1 else 0.0)
            last = result
        result = run(problem, data, METHOD, workers[0], settings["drawn"], seed, 1, step="classic")
        heights = objective(result, OBJECTIVE, METHOD)
        times = np.array(work) + travel
        for N, each in zip(workers, times, strict=True):
            label = "1 worker" if N == 1 else f"{N} workers"
            curves.append(Curve(OBJECTIVE, label, "dfw-trace", 1e3 * each * heights.x, heights.y))
        at = np.array(workers, float)
        for label, seconds in ((TOTAL, times), (WORK, np.array(work)), (TRAVEL, np.array(travel))):
            keep = seconds > 0
            curves.append(Curve(EPOCH, label, "dfw-trace", at[keep], 1e3 * seconds[keep], spent(last)))
        return Numbers(curves, [f"{settings['n']} × {settings['d']}, {settings['classes']} classes"])

    def claims(self, numbers: Numbers) -> list[Claim]:
        epoch, objectives = numbers.panel(EPOCH), numbers.panel(OBJECTIVE)
        N, each = epoch[TOTAL].x, epoch[TOTAL].y
        share = each[0] / each / N
        # The work grows with the rows, what is sent does not.
        rows = int(numbers.remarks[0].split()[0])
        travel = each - np.interp(N, epoch[WORK].x, epoch[WORK].y)
        large = (each - travel) * ROWS / rows + travel
        link = (
            "With so few rows each, the master's link takes longer than the last workers save; with the paper's "
            f"{ROWS:,} rows the same work per row and the same bill give "
            + ", ".join(f"{n:g}: {t:.3g}" for n, t in zip(N, large, strict=True))
            + " ms."
        )
        listed = ", ".join(f"{n:g}: {t:.3g}" for n, t in zip(N, each, strict=True))
        # After the time that the most workers take for all epochs.
        end = min(curve.x[-1] for curve in objectives.values())
        there = [float(np.interp(end, curve.x, curve.y)) for curve in objectives.values()]
        return [
            Claim(
                "The time per epoch decreases with the number of workers.",
                bool(np.all(np.diff(each) < 0)),
                f"ms per epoch by workers: {listed}",
                link,
                cause="data",
                fails_if="one more step of workers does not shorten the epoch.",
            ),
            Claim(
                "With diminishing returns.",
                bool(share[-1] < share[1] and share[-1] < 1),
                "speed-up per worker: " + ", ".join(f"{n:g}: {s:.2f}" for n, s in zip(N, share, strict=True)),
                fails_if="the most workers have as large a speed-up per worker as two, or as one.",
            ),
            Claim(
                "More workers have a lower objective after the same time.",
                bool(np.all(np.diff(there) <= 0)),
                f"F/F(0) after {end:.3g} ms: " + ", ".join(f"{n:g}: {y:.3f}" for n, y in zip(N, there, strict=True)),
                link,
                cause="data",
                fails_if="one more step of workers has a larger objective then.",
            ),
        ]

    def draw(self, numbers: Numbers) -> Figure:
        from coterie.report.figures import GREY, INK, OCHRE
        from papers.drawing import ladder, panels

        counts = list(numbers.panel(OBJECTIVE))
        hues = {TOTAL: INK, WORK: OCHRE, TRAVEL: GREY}
        hues |= {label: ladder(place, len(counts)) for place, label in enumerate(counts)}
        axes = {EPOCH: ("workers", "ms per epoch"), OBJECTIVE: ("milliseconds", "F(W) / F(0)")}
        # On logarithmic axes there is no start.
        shown = Numbers([replace(c, x=c.x[1:], y=c.y[1:]) if c.x[0] == 0 else c for c in numbers])
        return panels(shown, list(axes), axes, columns=2, hue=lambda c: hues[c.label], log_x=True)
