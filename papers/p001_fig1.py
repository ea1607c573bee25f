"""001 Fig. 1, 2, 3 and 7: Moons, accuracy against rounds and bits, the learned graph, and accuracy
by local rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from scipy.stats import spearmanr

from coterie.numerics.arrays import FloatArray
from papers import datasets
from papers.datasets import Dataset
from papers.p001 import (
    CLEAR,
    FIXED,
    HEAD_START,
    LEARNED,
    LINEAR,
    METHODS,
    OURS,
    PAPER,
    PROGRAM,
    TUNED,
    accuracies,
    common_claims,
    densified,
    drawn,
    fit,
    progress,
)
from papers.study import Claim, Curve, Numbers, Study

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TRAIN, TEST, BITS, ROWS, TEXT = (
    "training",
    "test",
    "test, by bits",
    "by local rows",
    "test, random columns",
)
NEAR = "the learned graph"
SHOWN = (FIXED, LEARNED, TUNED, OURS, LINEAR, "local", "global")
EARLY = 2
"""The first so many marks are "earlier iterations"."""
STABLE = 1.25
"""Up to so many times as many neighbours count as as many."""
RECOVERED = 0.6
"""The share of the learned weights inside clusters from which on the clusters count as recovered;
chance is 0.3.
"""
WIDTH, LIGHT = 0.1, 1e-5
"""σ of the true graph, the paper's, and a weight from which on edges may count."""
CLOSED = 0.03
"""A gap between accuracies that counts as closed."""
INSIDE = "inside with "
TENDS, POORLY = 0.2, 0.1
"""A rank correlation that counts as a tendency, and a difference of accuracies as poor
generalisation.
"""


class Figure1(Study):
    """Personal models on Moons."""

    name: ClassVar[str] = "001 fig1"
    paper: ClassVar[str] = PAPER
    title: ClassVar[str] = "Moons: accuracy, communication, the learned graph (Fig. 1, 2, 3, 7)"
    quick: ClassVar[Mapping[str, Any]] = {
        "marks": (2, 5, 20, 40), "seeds": (0, 1, 2), "text": (), "count": 200, "beta": 10.0, "mu": 1.0, "lam": 1000.0,
        "learned": PROGRAM, "lams": (1e-4, 0.0125, 1.0), "seed": 0,
    }  # fmt: skip
    full: ClassVar[Mapping[str, Any]] = {
        "marks": (2, 5, 10, 20, 40, 80, 160), "seeds": (0, 1, 2, 3, 4), "text": (0,), "count": 200, "beta": 10.0,
        "mu": 1.0, "lam": 1000.0, "learned": PROGRAM, "lams": (1e-4, 0.001, 0.0125, 0.1, 1.0, 10.0), "seed": 0,
    }  # fmt: skip
    remark: ClassVar[str] = (
        "Dada learned has the μ and λ of the authors' program, which the paper does not print; "
        "tuned has those that "
        "three-fold cross-validation chooses, the paper's protocol (001 tuning). Marks are rounds "
        "of learning "
        "together: before them Local converges, and the first graph is learned from it. Then, as "
        "printed, 2,000 "
        "iterations of models, 1,000 of the graph, with steps that suit the curvature. Columns "
        "beyond the moons are "
        "zeros, as in the authors' program, and random in the last panel of the larger size, as "
        "the text has it. Ours "
        "tries models on each other's rows."
    )

    def run(self, settings: Mapping[str, Any]) -> Numbers:
        def zeros(seed: int) -> Dataset:
            return datasets.moons("paper", "zeros", seed=seed)

        def text(seed: int) -> Dataset:
            return datasets.moons("paper", "random", seed=seed)

        curves, ends = progress(zeros, SHOWN, settings, (TRAIN, TEST, BITS, NEAR))
        curves = [curve for curve in curves if curve.panel != NEAR or "learned" in curve.label]
        if settings["text"]:
            few = {**settings, "marks": settings["marks"][-2:], "seeds": settings["text"]}
            both, _ = progress(text, SHOWN, few, ("", TEXT, ""))
            curves += [curve for curve in both if curve.panel == TEXT]
        data = zeros(settings["seeds"][0])
        rows, cluster = np.bincount(data.extras["user_train"].astype(int)), data.extras["clusters"]
        groups, truth = np.unique(rows), float((data.extras["graph"] > 0).sum() / len(rows))
        same = cluster[:, None] == cluster

        def inside(result: Any) -> float:
            W = result.model.weights.toarray()
            return float(W[same].sum() / (W.sum() or 1.0))

        wider = _wider(data)
        more = fit(wider, FIXED, settings["marks"][-1], settings, settings["seed"])
        for label in (FIXED, LEARNED, TUNED, OURS, "local"):
            model: Any = ends[label].model
            scores, W = accuracies(ends[label], data), model.weights.toarray()
            means = np.array([scores[rows == size].mean() for size in groups])
            known = {"inside": inside(ends[label]), "truth": truth}
            if label == FIXED:
                known |= {
                    "wider": float((wider.extras["graph"] > 0).sum() / len(rows)),
                    "bits": float(more.bill.bits),
                }
            if label in (LEARNED, TUNED, OURS):
                known["degree"] = float(
                    spearmanr(model.confidence * model.losses, W.sum(axis=1))[0]
                )
            if label == LEARNED:
                for lam in settings["lams"]:
                    graph = fit(
                        data,
                        LEARNED,
                        HEAD_START[LEARNED] + settings["marks"][-1],
                        settings,
                        settings["seed"],
                        lam=lam,
                    )
                    known[f"λ = {lam:g}"] = float(graph.model.weights.nnz / len(rows))
                    known[f"{INSIDE}λ = {lam:g}"] = inside(graph)
            curves.append(
                Curve(ROWS, label, METHODS[label][0], groups.astype(float), means, {}, known)
            )
        return Numbers(curves, ["Moons, 100 users", f"{len(settings['seeds'])} seed(s)"])

    def claims(self, numbers: Numbers) -> list[Claim]:
        train, test, bits, rows, text = (
            numbers.panel(name) for name in (TRAIN, TEST, BITS, ROWS, TEXT)
        )
        near_by = numbers.panel(NEAR)
        random = "".join([" (with random columns)"] if text else [])
        ends = ", ".join(
            f"{label} {test[label].last:.3f}" + (f" ({text[label].last:.3f})" if text else "")
            for label in SHOWN
        )
        learned_first = float(np.mean(test[LEARNED].y[:EARLY] - test[FIXED].y[:EARLY]))
        edges = float(near_by[LEARNED].y[:EARLY].min())
        few, many = slice(0, len(rows[FIXED].y) // 3), slice(-(len(rows[FIXED].y) // 3), None)
        gain = {
            label: [
                float(np.mean(rows[label].y[part] - rows["local"].y[part])) for part in (few, many)
            ]
            for label in (FIXED, LEARNED, TUNED)
        }
        gap = float(np.mean(rows[FIXED].y[many]) - np.mean(rows[FIXED].y[few]))
        alone = [float(np.mean(rows["local"].y[part])) for part in (few, many)]
        near = {key: value for key, value in rows[LEARNED].chosen.items() if key.startswith("λ = ")}
        within = {key: rows[LEARNED].chosen[INSIDE + key] for key in near}
        budget = float(bits[LINEAR].x[-1])
        quickly = max(
            (y for x, y in zip(bits[FIXED].x, bits[FIXED].y, strict=True) if x <= budget),
            default=0.0,
        )
        lag = {
            label: [
                float(np.mean(rows[FIXED].y[part] - rows[label].y[part])) for part in (few, many)
            ]
            for label in (LEARNED, TUNED)
        }
        why, truth = densified(near_by, test), rows[LEARNED].chosen["truth"]
        shares = {label: rows[label].chosen["inside"] for label in (LEARNED, TUNED, OURS)}
        degrees = {label: rows[label].chosen["degree"] for label in (LEARNED, TUNED, OURS)}
        listed = ", ".join(f"{key}: {value:.1f} ({within[key]:.2f})" for key, value in near.items())
        return [
            *common_claims(
                train, test, near_by, f"test accuracy with zeros{random}: {ends}", truth
            ),
            Claim(
                "Dada-Fixed outperforms Dada-Learned.",
                test[FIXED].last >= test[LEARNED].last + CLEAR,
                (
                    f"{test[FIXED].last:.3f} against {test[LEARNED].last:.3f} "
                    f"({test[TUNED].last:.3f} "
                    "tuned)"
                ),
                fails_if=f"its accuracy is not {CLEAR} higher at the end (our threshold).",
            ),
            Claim(
                "Dada-Learned improves faster in earlier iterations.",
                edges > 0 and learned_first > 0,
                f"by {learned_first:.3f} in the mean of rounds "
                f"{', '.join(f'{x:g}' for x in test[FIXED].x[:EARLY])} "
                "with "
                f"{edges:.1f} neighbours or more",
                "It starts from the same zeros as Dada-Fixed, with a graph of lighter and partly "
                "wrong edges; how "
                "far the "
                "paper's was ahead it does not say. In this run: "
                f"{_pairs(test[LEARNED].y, test[FIXED].y)} at the "
                "marks.",
                cause="unsaid",
                fails_if="its graph has no edge then, or its mean accuracy there is not higher "
                "than that of "
                "Dada-Fixed.",
            ),
            Claim(
                "The learned graph approximately recovers the clusters.",
                shares[LEARNED] >= RECOVERED,
                "share of the weights inside clusters: "
                + ", ".join(f"{label} {value:.2f}" for label, value in shares.items())
                + "; chance 0.30",
                why,
                cause="settings",
                fails_if=f"less than {RECOVERED} of its weight is inside clusters (our threshold).",
            ),
            Claim(
                "The learned graph is very stable with respect to λ.",
                max(near.values()) <= STABLE * min(near.values())
                and min(within.values()) >= RECOVERED,
                f"neighbours (share inside clusters) with {listed}",
                "What is stable is that edges stay inside clusters, not how many there are; the "
                "paper says neither "
                "what "
                "it compared nor over which λ.",
                cause="unsaid",
                fails_if=f"one λ has more than {STABLE:g} times the neighbours of another, or a "
                "graph that has not "
                "moved "
                f"from chance to {RECOVERED} inside clusters (our thresholds).",
            ),
            Claim(
                (
                    "Users of high confidence and high loss tend to have small degrees in the "
                    "learned "
                    "graph."
                ),
                degrees[LEARNED] < -TENDS,
                "rank correlation of confidence times loss with degree: "
                + ", ".join(f"{label} {value:.2f}" for label, value in degrees.items()),
                fails_if=f"the correlation is not below −{TENDS} (our threshold).",
            ),
            Claim(
                "Dada quickly reaches a high accuracy, by bits.",
                quickly >= float(bits[LINEAR].y.max()) + CLEAR,
                (
                    f"{quickly:.3f} with the bits of Perso-linear at most, which reaches "
                    f"{bits[LINEAR].y.max():.3f}"
                ),
                fails_if=(
                    f"with those bits it is less than {CLEAR} above Perso-linear (our threshold)."
                ),
            ),
            Claim(
                "In so few dimensions Dada sends a bit more than Perso-linear.",
                bits[FIXED].x[-1] > bits[LINEAR].x[-1],
                f"{bits[FIXED].x[-1]:.2g} against {bits[LINEAR].x[-1]:.2g} bits after as many "
                "rounds; an iteration has "
                f"Z + log n for each of {truth:.0f} neighbours, and 2DZ",
                f"Edges are dropped below {datasets.NEGLIGIBLE:g}, and from which weight on one "
                "is negligible the "
                f"paper does not say: with those from {LIGHT:g} on there are "
                f"{rows[FIXED].chosen['wider']:.0f} "
                f"neighbours, and Dada sends {rows[FIXED].chosen['bits']:.2g} bits.",
                cause="unsaid",
                fails_if="Dada has sent less after as many rounds.",
            ),
            Claim(
                "Local does well on large local sets and generalises poorly on small ones.",
                alone[1] >= alone[0] + POORLY,
                f"{alone[0]:.3f} in the smallest third, {alone[1]:.3f} in the largest",
                fails_if=f"the thirds are less than {POORLY} apart (our threshold).",
            ),
            Claim(
                "Dada-Learned outperforms Local especially on small local sets.",
                gain[LEARNED][0] >= max(gain[LEARNED][1], 0.0) + CLEAR,
                _by_third(gain[LEARNED], gain[TUNED]),
                "It is the first seed's users, and the paper's are not published: after 40, 100 "
                "and 160 rounds the "
                "gain in the smallest third is 0.025, -0.003 and 0.011, in the largest 0.014, "
                "0.018 and 0.014.",
                cause="data",
                fails_if=f"its gain in the smallest third is not {CLEAR} above 0 and above that "
                "in the largest (our "
                "threshold).",
            ),
            Claim(
                "Dada-Fixed outperforms Local especially on small local sets.",
                gain[FIXED][0] >= max(gain[FIXED][1], 0.0) + CLEAR,
                (
                    f"by {gain[FIXED][0]:.3f} in the smallest third, {gain[FIXED][1]:.3f} in the "
                    "largest"
                ),
                fails_if=f"its gain in the smallest third is not {CLEAR} above 0 and above that "
                "in the largest (our "
                "threshold).",
            ),
            Claim(
                "Dada-Fixed closes the gap between small and large local sets.",
                abs(gap) <= CLOSED,
                f"{gap:.3f} between the largest and the smallest third",
                fails_if=f"the thirds are more than {CLOSED} apart (our threshold).",
            ),
            Claim(
                "Dada-Learned matches Dada-Fixed except on small local sets.",
                lag[LEARNED][0] > lag[LEARNED][1] and lag[LEARNED][1] <= CLOSED,
                "behind " + _by_third(lag[LEARNED], lag[TUNED]),
                "On many rows it is near, and how near is a match the paper does not say: with "
                "the first seed it is "
                f"behind by {lag[LEARNED][1]:.3f} here, 0.037 after 40 rounds, 0.029 after 100 "
                "and 0.035 after 160.",
                cause="unsaid",
                fails_if=f"it is more than {CLOSED} behind in the largest third (our threshold), "
                "or less so in the "
                "smallest.",
            ),
        ]

    def draw(self, numbers: Numbers) -> Figure:
        axes = {TRAIN: ("rounds", "training accuracy"), TEST: ("rounds", "test accuracy")}
        axes |= {
            BITS: ("bits sent", "test accuracy"),
            ROWS: ("rows to learn from", "test accuracy"),
        }
        axes |= {NEAR: ("rounds", "mean neighbours")}
        axes |= {TEXT: ("rounds", "test accuracy")} if numbers.panel(TEXT) else {}
        return drawn(numbers, axes, log_x=(BITS,))


def _wider(data: Dataset) -> Dataset:
    """The same with all edges of the true graph from a lighter weight on."""
    angles = data.extras["angles"]
    graph = np.exp((np.cos(angles[:, None] - angles) - 1) / WIDTH)
    graph[graph < LIGHT] = 0.0
    np.fill_diagonal(graph, 0.0)
    return replace(data, extras={**data.extras, "graph": graph})


def _by_third(learned: list[float], kept: list[float]) -> str:
    return (
        f"by {learned[0]:.3f} in the smallest third, {learned[1]:.3f} in the largest "
        f"({kept[0]:.3f} and {kept[1]:.3f} tuned)"
    )


def _pairs(one: FloatArray, other: FloatArray) -> str:
    return ", ".join(f"{a:.3f} against {b:.3f}" for a, b in zip(one, other, strict=True))
