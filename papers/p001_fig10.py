"""001 Fig. 10: Computer Buyers and School, accuracy on training and test rows against rounds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from coterie.numerics.arrays import FloatArray
from papers import datasets
from papers.datasets import Dataset
from papers.p001 import (
    CLEAR,
    FIXED,
    HEAD_START,
    LEARNED,
    LINEAR,
    LINEAR_LEARNED,
    OURS,
    PAPER,
    accuracies,
    drawn,
    fit,
    progress,
)
from papers.study import Claim, Curve, Numbers, Study

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BUYERS, SCHOOL = "Computer Buyers", "School"
TRAIN, TEST, BY_LAM = ", training", ", test", ", by λ"
SHOWN = {
    BUYERS: (LEARNED, OURS, LINEAR_LEARNED, "local", "global"),
    SCHOOL: (FIXED, LEARNED, OURS, LINEAR, "local", "global"),
}
PRICES = {
    BUYERS: {"count": 28, "beta": 1.0, "mu": 10.0, "lam": 1.0},
    SCHOOL: {"count": 112, "beta": 1.0, "mu": 1.0, "lam": 1.25e-4},
}
"""Of the authors' program, λ in terms of (3): it has λμ² = 100 for Computer Buyers and 8 λ/μ =
0.001 for School.
"""
FINISHED = 100
UNFINISHED = (
    "After so few rounds models are not finished: after 100, with the first seed, Dada has 0.729 "
    "on Computer Buyers "
    "and 0.721 on School, where the best competitors have 0.685 and 0.707."
)
COMPARABLE = 0.02
"""How far apart accuracies still count as comparable."""
WIDTH, NEGLIGIBLE = 0.1, 1e-2
"""σ of the graph of schools, and the least weight that is kept; the paper gives neither."""


class Figure10(Study):
    """Personal models of buyers and of schools."""

    name: ClassVar[str] = "001 fig10"
    paper: ClassVar[str] = PAPER
    title: ClassVar[str] = "Computer Buyers and School"
    quick: ClassVar[Mapping[str, Any]] = {
        "marks": (5, 40), "seeds": (0, 1, 2), "lams": (1.0, 1000.0),
        "own": PRICES, "seed": 0,
    }  # fmt: skip
    full: ClassVar[Mapping[str, Any]] = {
        "marks": (5, 10, 20, 40, 80, 160), "seeds": (0, 1, 2, 3, 4),
        "lams": (0.001, 0.01, 0.1, 1.0, 10.0, 100.0, 1000.0),
        "own": PRICES, "seed": 0,
    }  # fmt: skip
    remark: ClassVar[str] = (
        "β, μ and λ are those of the authors' program, which the paper does not print; the "
        "accuracy is also drawn over "
        "λ. A seed is one of the published splits of "
        "School. The paper says 140 schools, the file has 139; the width of the graph of schools "
        "is ours."
    )

    def run(self, settings: Mapping[str, Any]) -> Numbers:
        buyers = datasets.computer_buyers(5.0)
        makers = {BUYERS: lambda seed: buyers, SCHOOL: school_of_students}
        curves = []
        for name, make in makers.items():
            own = {**settings, **settings["own"][name]}
            found, _ = progress(make, SHOWN[name], own, (name + TRAIN, name + TEST))
            curves += found
            data, rounds = make(settings["seeds"][0]), HEAD_START[LEARNED] + settings["marks"][-1]
            good = [
                np.mean(accuracies(fit(data, LEARNED, rounds, own, 0, lam=lam), data))
                for lam in own["lams"]
            ]
            curves.append(
                Curve(name + BY_LAM, LEARNED, "dada", np.array(own["lams"]), np.array(good))
            )
        return Numbers(curves, ["190 buyers", "139 schools", f"{len(settings['seeds'])} seed(s)"])

    def claims(self, numbers: Numbers) -> list[Claim]:
        claims = []
        for name, shown in SHOWN.items():
            train, test = numbers.panel(name + TRAIN), numbers.panel(name + TEST)
            ours = [label for label in (FIXED, LEARNED) if label in shown]
            rivals = [label for label in shown if label not in (*ours, OURS)]
            by_lam = numbers.panel(name + BY_LAM)[LEARNED]
            listed = ", ".join(
                f"{label} {test[label].last:.3f} ({train[label].last:.3f})" for label in shown
            )
            dada = min(test[label].last for label in ours)
            best = max(rivals, key=lambda label: test[label].last)
            over = {label: train[label].last - test[label].last for label in shown}
            dull = min(train[label].last for label in ours) - CLEAR
            verdicts = {
                label: "overfits" if over[label] > max(over[p] for p in ours) + CLEAR
                else "fails to capture" if train[label].last <= dull else "neither"
                for label in rivals
            }  # fmt: skip
            top = int(by_lam.y.argmax())
            few = name != SCHOOL and test[best].x[-1] < FINISHED
            why = (
                UNFINISHED
                if few
                else f"With the program's β and μ the best λ of those drawn, {by_lam.x[top]:g}, "
                "chosen on the test "
                f"rows, gives {by_lam.y[top]:.3f}; the best competitor has {test[best].last:.3f}. "
                "The paper's splits "
                "are not published."
            )
            claims += [
                Claim(
                    f"On {name}, Dada converges to a better solution than all competitors.",
                    dada >= test[best].last + CLEAR,
                    f"test accuracy (training): {listed}",
                    why,
                    cause="size" if few else "data",
                    fails_if=(
                        f"Dada is not {CLEAR} above every competitor at the end (our threshold)."
                    ),
                ),
                Claim(
                    (
                        f"On {name}, the competitors either overfit or fail to capture the local "
                        "specificities."
                    ),
                    "neither" not in verdicts.values(),
                    ", ".join(f"{label}: {verdict}" for label, verdict in verdicts.items()),
                    why,
                    cause="size" if few else "data",
                    fails_if=f"one has a gap between training and test no {CLEAR} larger than "
                    "Dada's and a training "
                    f"accuracy no {CLEAR} smaller (our threshold).",
                ),
            ]
        school = numbers.panel(SCHOOL + TEST)
        apart = school[LEARNED].last - school[FIXED].last
        text = "On School, Dada-Learned achieves results comparable to those of Dada-Fixed."
        return [
            *claims,
            Claim(
                text,
                abs(apart) <= COMPARABLE,
                f"{apart:+.3f}",
                fails_if=f"their accuracies are more than {COMPARABLE} apart (our threshold).",
            ),
        ]

    def draw(self, numbers: Numbers) -> Figure:
        axes = {name + TRAIN: ("rounds", "training accuracy") for name in SHOWN}
        axes |= {name + TEST: ("rounds", "test accuracy") for name in SHOWN}
        axes |= {name + BY_LAM: ("λ", "test accuracy") for name in SHOWN}
        return drawn(numbers, axes, columns=2, log_x=[name + BY_LAM for name in SHOWN])


def school_of_students(fold: int) -> Dataset:
    """School by the 17 features of students, and the graph of the schools' own: exp((cos − 1) / σ)
    of their means.
    """
    data = datasets.school(fold, 20.0)
    students, of_school = (
        data.extras["student_features"],
        data.train.X[:, data.extras["school_features"]],
    )
    assert data.test is not None
    schools = np.unique(data.extras["user_train"])
    means: FloatArray = np.array(
        [of_school[data.extras["user_train"] == school].mean(axis=0) for school in schools]
    )
    means /= np.linalg.norm(means, axis=1)[:, None]
    graph = np.exp((means @ means.T - 1) / WIDTH)
    graph[graph < NEGLIGIBLE] = 0.0
    np.fill_diagonal(graph, 0.0)
    parts = (data.train.take_columns(students), data.test.take_columns(students))
    return Dataset(*parts, {**data.extras, "graph": (graph + graph.T) / 2}, data.source)
