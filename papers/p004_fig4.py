"""004 Fig. 4: time per epoch and objective against time for several numbers of workers, DFW-1.

What is measured is the processor time of one worker with its share of the rows, and the bill. The
time of an epoch follows from

    t(N) = CPU(n/N rows) + turns · latency + bits / bandwidth

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

from coterie.api.result import Result
from coterie.data import Table
from coterie.errors import MissingData
from coterie.numerics.arrays import FloatArray, host
from coterie.problems.low_rank.tasks import Task
from coterie.problems.problem import Problem
from papers.p004 import PAPER, gpu, objective, run
from papers.p004_fig3 import ON_A_GPU, picture_features, picture_tensors
from papers.study import Claim, Curve, Numbers, Study, spent

if TYPE_CHECKING:
    from matplotlib.figure import Figure

EPOCH, OBJECTIVE = "time per epoch", "objective"
TOTAL, WORK, TRAVEL = "work and travel", "work of one worker", "travel"
METHOD, RADIUS = "DFW-1", 30.0
FEW_ROWS = "With so few rows each, the master's link takes longer than the last workers save."


class Figure4(Study):
    """Speed-up against workers."""

    name: ClassVar[str] = "004 fig4"
    paper: ClassVar[str] = PAPER
    title: ClassVar[str] = "speed-up against workers"
    quick: ClassVar[Mapping[str, Any]] = {
        "n": 16_000, "d": 128, "classes": 50, "workers": (1, 2, 4, 8, 16, 32), "epochs": 8, "seconds": 0.1,
        "drawn": 60, "latency": 1e-4, "bandwidth": 1e9, "seed": 0,
    }  # fmt: skip
    full: ClassVar[Mapping[str, Any]] = {
        "n": 1_281_167, "d": 2048, "classes": 1000, "workers": (1, 2, 4, 8, 16, 24, 48, 96),
        "epochs": 4, "seconds": 20.0, "drawn": 60, "latency": 1e-4, "bandwidth": 1e9, "seed": 0,
    }  # fmt: skip
    remark: ClassVar[str] = (
        "No cluster here: one worker's epoch is measured in processor time, on its share of the "
        "rows, and the bill is "
        "sent through a master's link of 1 Gb/s, the paper's, with 0.1 ms a turn, ours. Data as "
        "in 004 fig3; the "
        "objective was drawn for 8 epochs at first, in which it is still above F(0). The paper "
        "has up to 96 cores; "
        "which numbers of them it drew its text does not say."
    )

    def run(self, settings: Mapping[str, Any]) -> Numbers:
        n, d, classes, seed = (settings[key] for key in ("n", "d", "classes", "seed"))
        large = n * d >= ON_A_GPU
        if large and not gpu():
            raise MissingData(
                "ImageNet's outline takes a GPU with 20 GB and 60 GB beside it; use --quick "
                "otherwise."
            )
        X, y = (picture_tensors if large else picture_features)(n, d, classes, seed)
        problem: Problem[Task] = Problem(
            "multinomial", "traceball", radius=RADIUS, classes=range(classes)
        )
        result = run(problem, (X, y), METHOD, 1, settings["drawn"], seed, 1, step="classic")
        heights = objective(result, OBJECTIVE, METHOD)
        X, y = _on_the_host(X), np.asarray(host(y))
        workers, work, travel, curves = settings["workers"], [], [], []
        for N in workers:
            rows = -(-n // N)
            with threadpool_limits(1):
                work.append(
                    epoch_of_one(
                        problem, X[:rows], y[:rows], settings["epochs"], settings["seconds"]
                    )
                )
            # What is sent has nothing to do with the rows.
            few = picture_features(2 * N, d, classes, seed)
            once, twice = (
                run(problem, few, METHOD, N, rounds, seed, rounds, step="classic")
                for rounds in (1, 2)
            )
            travel.append(_seconds(twice, settings) - _seconds(once, settings) if N > 1 else 0.0)
        times = np.array(work) + travel
        for N, each in zip(workers, times, strict=True):
            label = "1 worker" if N == 1 else f"{N} workers"
            curves.append(Curve(OBJECTIVE, label, "dfw-trace", 1e3 * each * heights.x, heights.y))
        at = np.array(workers, float)
        for label, seconds in ((TOTAL, times), (WORK, np.array(work)), (TRAVEL, np.array(travel))):
            keep = seconds > 0
            curves.append(
                Curve(EPOCH, label, "dfw-trace", at[keep], 1e3 * seconds[keep], spent(twice))
            )
        where = [f"the objective on a GPU ({gpu()})"] if large else []
        return Numbers(curves, [f"{n} × {d}, {classes} classes", *where])

    def claims(self, numbers: Numbers) -> list[Claim]:
        epoch, objectives = numbers.panel(EPOCH), numbers.panel(OBJECTIVE)
        N, each = epoch[TOTAL].x, epoch[TOTAL].y
        share = each[0] / each / N
        listed = ", ".join(f"{n:g}: {t:.3g}" for n, t in zip(N, each, strict=True))
        # After the time that the most workers take for all epochs.
        end = min(curve.x[-1] for curve in objectives.values())
        there = [float(np.interp(end, curve.x, curve.y)) for curve in objectives.values()]
        return [
            Claim(
                "The time per epoch decreases with the number of workers.",
                bool(np.all(np.diff(each) < 0)),
                f"ms per epoch by workers: {listed}",
                FEW_ROWS,
                cause="size",
                fails_if="one more step of workers does not shorten the epoch.",
            ),
            Claim(
                "With diminishing returns.",
                bool(share[-1] < share[1] and share[-1] < 1),
                "speed-up per worker: "
                + ", ".join(f"{n:g}: {s:.2f}" for n, s in zip(N, share, strict=True)),
                fails_if="the most workers have as large a speed-up per worker as two, or as one.",
            ),
            Claim(
                "More workers have a lower objective after the same time.",
                bool(np.all(np.diff(there) <= 0)),
                f"F/F(0) after {end:.3g} ms: "
                + ", ".join(f"{n:g}: {y:.3f}" for n, y in zip(N, there, strict=True)),
                FEW_ROWS,
                cause="size",
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


def epoch_of_one(
    problem: Problem[Task], X: FloatArray, y: Any, epochs: int, seconds: float
) -> float:
    """Processor seconds of one worker for an epoch (one power iteration and the step): the least of
    several.

    At least so many epochs, and for so many seconds.
    """
    random, table = np.random.default_rng(0), Table(X, y)
    found: list[float] = []
    known, (_, m) = problem.loss.stats(table, "implicit"), problem.loss.size(table)
    while len(found) < epochs or sum(found) < seconds:
        v: FloatArray = random.standard_normal(m)
        began = time.process_time()
        u = known.times(v)
        u /= np.linalg.norm(u)
        v = known.times_transposed(u)
        v /= np.linalg.norm(v)
        known.move(2.0 / (len(found) + 2.0), -RADIUS, u, v)
        found.append(time.process_time() - began)
    return min(found)


def _seconds(result: Result, settings: Mapping[str, Any]) -> float:
    """How long its bill takes, all of it through one link."""
    sent: float = result.bill.total.bits / settings["bandwidth"]
    return result.bill.seconds(settings["latency"], math.inf) + sent


def _on_the_host(X: Any) -> FloatArray:
    """X in float64; what is on a GPU in half precision, a few rows after the other."""
    if isinstance(X, np.ndarray):
        return X
    wide = np.empty(tuple(X.shape))
    for start in range(0, len(X), 1 << 16):
        wide[start : start + (1 << 16)] = host(X[start : start + (1 << 16)])
    return wide
