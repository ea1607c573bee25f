"""001 Fig. 8 and 9: Moons100, accuracy against rounds, and what λ does to the graph and to the accuracy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from papers import datasets
from papers.datasets import Dataset
from papers.p001 import (
    FIXED,
    HEAD_START,
    KEPT,
    LEARNED,
    LINEAR,
    OURS,
    PAPER,
    SETTLED,
    accuracies,
    common_claims,
    drawn,
    fit,
    progress,
)
from papers.study import Claim, Curve, Numbers, Study

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TRAIN, TEST, BITS, SPARSE, GOOD = "training", "test", "test, by bits", "neighbours by λ", "test accuracy by λ"
NEAR = "the learned graph"
SHOWN = (FIXED, LEARNED, KEPT, OURS, LINEAR, "local", "global")
UNFINISHED = (
    "After so few rounds together models are not finished: after 100, seed 0, the smallest λ has 0.824, the largest "
    "0.849, and Local 0.806."
)
TENDS = 0.03
"""How far from the accuracy of Local still counts as tending to it."""


class Figure9(Study):
    """Personal models on Moons100, which has no clusters."""

    name: ClassVar[str] = "001 fig9"
    paper: ClassVar[str] = PAPER
    title: ClassVar[str] = "Moons100: accuracy, and the effect of λ on sparsity (Fig. 8, 9)"
    quick: ClassVar[Mapping[str, Any]] = {
        "marks": (20, 40), "lams": (0.01, 1.0, 1000.0), "seeds": (0, 1, 2), "count": 200, "beta": 10.0, "mu": 1.0,
        "lam": 1000.0, "seed": 0,
    }  # fmt: skip
    full: ClassVar[Mapping[str, Any]] = {
        "marks": (5, 10, 20, 40, 80, 160), "lams": (0.001, 0.01, 0.1, 1.0, 10.0, 100.0, 1000.0),
        "seeds": (0, 1, 2, 3, 4), "count": 200, "beta": 10.0, "mu": 1.0, "lam": 1000.0, "seed": 0,
    }  # fmt: skip
    remark: ClassVar[str] = (
        "As 001 fig1, with columns of zeros beyond the moons. λ is the paper's only knob between a sparse graph and a "
        "dense one; what it does is asked of the first graph, for which (3) is solved with the models of Local."
    )

    def run(self, settings: Mapping[str, Any]) -> Numbers:
        def make(seed: int) -> Dataset:
            return datasets.moons100("zeros", seed=seed)

        curves, _ = progress(make, SHOWN, settings, (TRAIN, TEST, BITS, NEAR))
        curves = [curve for curve in curves if curve.panel != NEAR or "learned" in curve.label]
        lams, data = np.array(settings["lams"]), make(settings["seed"])
        truth = float((data.extras["graph"] > 0).sum() / len(data.extras["angles"]))
        for label in (KEPT, OURS):
            near, good = np.zeros(len(lams)), np.zeros(len(lams))
            for place, lam in enumerate(settings["lams"]):
                rounds = HEAD_START.get(label, 0) + min(settings["marks"][-1], SETTLED.get(label, 10_000))
                result = fit(data, label, rounds, settings, settings["seed"], lam=lam)
                near[place] = result.model.weights.nnz / len(result.model.users)
                good[place] = np.mean(accuracies(result, data))
            curves.append(Curve(SPARSE, label, "dada", lams, near, {}, {"truth": truth}))
            curves.append(Curve(GOOD, label, "dada", lams, good))
        return Numbers(curves, ["Moons100, 100 users", f"{len(settings['seeds'])} seed(s)"])

    def claims(self, numbers: Numbers) -> list[Claim]:
        train, test, near, good, learned = (numbers.panel(name) for name in (TRAIN, TEST, SPARSE, GOOD, NEAR))
        ends = ", ".join(f"{label} {test[label].last:.3f}" for label in SHOWN)
        alone = test["local"].last
        # A trend, and one that matters: half the neighbours from the largest λ to the smallest.
        sparser = bool(np.all(np.diff(near[KEPT].y) >= 0) and 0 < near[KEPT].y[0] <= 0.5 * near[KEPT].y[-1])
        listed = {}
        for label in (KEPT, OURS):
            points = zip(near[label].x, near[label].y, good[label].y, strict=True)
            listed[label] = ", ".join(f"{x:g}: {n:.1f}, {a:.3f}" for x, n, a in points)
        return [
            *common_claims(train, test, learned, f"test accuracy: {ends}", near[KEPT].chosen["truth"]),
            Claim(
                "The smaller λ, the sparser the graph.",
                sparser,
                f"λ: neighbours, accuracy; first graph kept {listed[KEPT]}; ours {listed[OURS]}",
                fails_if="a smaller λ has more neighbours, or the smallest not half those of the largest (our "
                "threshold), "
                "or none.",
            ),
            Claim(
                "As λ → 0 the accuracy tends to that of Local.",
                sparser and abs(good[KEPT].y[0] - alone) <= TENDS < abs(good[KEPT].y[-1] - alone),
                f"{good[KEPT].y[0]:.3f} with the smallest λ, {good[KEPT].y[-1]:.3f} with the largest, {alone:.3f} "
                "alone",
                UNFINISHED if test[KEPT].x[-1] < 100 else "",
                cause="size" if test[KEPT].x[-1] < 100 else "",
                fails_if=f"it is more than {TENDS} away with the smallest λ, or not with the largest (our "
                "threshold), or "
                "λ does nothing to the graph.",
            ),
        ]

    def draw(self, numbers: Numbers) -> Figure:
        axes = {TRAIN: ("rounds", "training accuracy"), TEST: ("rounds", "test accuracy")}
        axes |= {BITS: ("bits sent", "test accuracy"), NEAR: ("rounds", "mean neighbours")}
        axes |= {SPARSE: ("λ", "mean neighbours"), GOOD: ("λ", "test accuracy")}
        return drawn(numbers, axes, log_x=(BITS, SPARSE, GOOD))
