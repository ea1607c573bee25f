"""001 Fig. 4, 5 and the right of 7: HAR, accuracy by rounds, bits and local rows, and the learned graph."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from papers import datasets
from papers.p001 import (
    CLEAR,
    EXACT,
    LEARNED,
    LINEAR_LEARNED,
    METHODS,
    OURS,
    PAPER,
    accuracies,
    drawn,
    progress,
)
from papers.study import Claim, Curve, Numbers, Study

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TRAIN, TEST, BITS, NEAR, ROWS = "training", "test", "test, by bits", "the learned graph", "by local rows"
SHOWN = (LEARNED, EXACT, OURS, LINEAR_LEARNED, "local", "global")
CLEARLY = 0.05
"""By how much an accuracy must be lower for a "clear failure"."""
FEWER = 100
"""Two orders of magnitude."""
ONE_FOR_ALL = "One boosted model fits everybody best on these recomputed features, of one scale for all."


class Figure4(Study):
    """Personal models of people who walk up and down stairs."""

    name: ClassVar[str] = "001 fig4"
    paper: ClassVar[str] = PAPER
    title: ClassVar[str] = "HAR: accuracy, communication, the learned graph (Fig. 4, 5, 7)"
    quick: ClassVar[Mapping[str, Any]] = {
        "marks": (5, 15, 30, 40, 120, 200), "seeds": (0,), "graph": {"sample": 5}, "count": 1122, "beta": 10.0,
        "mu": 1.0, "lam": 10.0, "seed": 0,
    }  # fmt: skip
    full: ClassVar[Mapping[str, Any]] = {
        "marks": (5, 10, 20, 30, 40, 80, 120, 200, 400, 800), "seeds": (0, 1, 2, 3, 4), "graph": {"sample": 5},
        "count": 1122, "beta": 10.0, "mu": 1.0, "lam": 10.0, "seed": 0,
    }  # fmt: skip
    remark: ClassVar[str] = (
        "β, μ and λ are those of Moons, not cross-validated. Users learn alone for 30 rounds, then the graph for 10 "
        "and models for 20 in turns, which are longer than the paper's. Features are recomputed from the raw "
        "recordings; subjects, rows and the split are the paper's."
    )

    def run(self, settings: Mapping[str, Any]) -> Numbers:
        data = datasets.har_stairs()
        curves, ends = progress(lambda seed: data, SHOWN, settings, (TRAIN, TEST, BITS, NEAR))
        curves = [curve for curve in curves if curve.panel != NEAR or "learned" in curve.label]
        _, rows = np.unique(data.extras["user_train"], return_counts=True)
        groups = np.unique(rows)
        for label in (LEARNED, EXACT, OURS, "local"):
            scores = accuracies(ends[label], data)
            means = np.array([scores[rows == size].mean() for size in groups])
            curves.append(Curve(ROWS, label, METHODS[label][0], groups.astype(float), means))
        return Numbers(
            curves, ["HAR, 30 users", f"κ = {settings['graph']['sample']}", f"{len(settings['seeds'])} seed(s)"]
        )

    def claims(self, numbers: Numbers) -> list[Claim]:
        test, bits, rows = (numbers.panel(name) for name in (TEST, BITS, ROWS))
        ends = ", ".join(f"{label} {test[label].last:.3f}" for label in SHOWN)
        dada, linear = test[LEARNED].last, test[LINEAR_LEARNED].last
        others = max(test[label].last for label in ("local", "global"))
        budget = bits[LEARNED].x[-1]
        within = float(np.max(bits[LINEAR_LEARNED].y[bits[LINEAR_LEARNED].x <= budget], initial=0.0))
        models = [bits[label].x[-1] - bits[label].x[-2] for label in (LINEAR_LEARNED, LEARNED)]
        # The first turn of the graph is from round 30 to round 40.
        turn = [int(np.flatnonzero(test[LEARNED].x == mark)[0]) for mark in (30, 40)]
        graph = [bits[label].x[turn[1]] - bits[label].x[turn[0]] for label in (LINEAR_LEARNED, LEARNED)]
        better = rows[LEARNED].y > rows["local"].y
        return [
            Claim(
                "Global clearly fails to capture the specificities of the users.",
                test["global"].last <= dada - CLEARLY,
                f"test accuracy: {ends}",
                ONE_FOR_ALL,
            ),
            Claim(
                "Dada-Learned achieves a better performance than Local and Global.",
                dada >= others + CLEAR,
                "the same numbers",
                ONE_FOR_ALL,
            ),
            Claim(
                "Perso-linear-Learned achieves a better performance than Local and Global.",
                linear >= others + CLEAR,
                "the same numbers",
                ONE_FOR_ALL,
            ),
            Claim(
                "On this rather easy problem linear classifiers generalise better.",
                linear >= dada + CLEAR,
                "the same numbers",
            ),
            Claim(
                "Dada obtains a better accuracy under a limited communication budget.",
                dada >= within + CLEAR,
                f"{dada:.3f} with {budget:.2g} bits, Perso-linear-Learned {within:.3f} with at most as many",
                "Users learn alone at first, without a bit, and linear models are better already then.",
            ),
            Claim(
                "An iteration of learning models costs Dada 2 to 3 orders of magnitude less than Perso-linear.",
                models[0] >= FEWER * models[1] > 0,
                f"{models[1]:.2g} against {models[0]:.2g} bits in the last rounds, {models[0] / models[1]:.0f} times",
            ),
            Claim(
                "The gap is even larger for learning the graph (10⁶ against 10³ bits in the paper).",
                graph[0] / graph[1] >= models[0] / models[1],
                f"{graph[1]:.2g} against {graph[0]:.2g} bits in the first turn, {graph[0] / graph[1]:.0f} times",
                "A model of Dada is one stump by then, a linear one 561 numbers, and both are sent once to who asks.",
            ),
            Claim(
                "Dada-Learned generally improves upon Local, whatever the number of local rows (Fig. 7).",
                bool(2 * better.sum() > len(better)),
                f"better in {better.sum()} of {len(better)} groups of users with as many rows",
            ),
        ]

    def draw(self, numbers: Numbers) -> Figure:
        axes = {TRAIN: ("rounds", "training accuracy"), TEST: ("rounds", "test accuracy")}
        axes |= {BITS: ("bits sent", "test accuracy"), NEAR: ("rounds", "mean neighbours")}
        axes |= {ROWS: ("rows to learn from", "test accuracy")}
        return drawn(numbers, axes, log_x=(BITS,))
