"""001, the protocol of Section 6: β, μ and λ by three-fold cross-validation at the users, on
Moons.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from papers import datasets
from papers.p001 import (
    FIXED,
    HEAD_START,
    LEARNED,
    PAPER,
    PROGRAM,
    SETTLED,
    accuracies,
    fit,
    validated,
)
from papers.study import Claim, Curve, Numbers, Study

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BETA, MU, LAM, TEST = "by β", "by μ", "by λ, Dada learned", "test rows, by λ, Dada learned"
PROGRAM_BETA, PROGRAM_FIXED = 10.0, 1.0
"""β, and μ of Dada-Fixed, in the authors' program."""


class Tuning(Study):
    """What three-fold cross-validation chooses, and what the test rows say of it."""

    name: ClassVar[str] = "001 tuning"
    paper: ClassVar[str] = PAPER
    title: ClassVar[str] = "β, μ and λ by three-fold cross-validation, and what the test rows say"
    quick: ClassVar[Mapping[str, Any]] = {
        "betas": (1.0, 10.0), "mus": (0.1, 1.0, 10.0), "learned_mus": (0.1, 1.0), "lams": (0.0125, 1.0, 1000.0),
        "together": 100, "count": 200, "beta": 10.0, "mu": 1.0, "lam": 1.0, "seed": 0,
    }  # fmt: skip
    full: ClassVar[Mapping[str, Any]] = {
        "betas": (1.0, 10.0, 100.0, 1000.0), "mus": (0.001, 0.01, 0.1, 1.0, 10.0, 100.0, 1000.0),
        "learned_mus": (0.01, 0.1, 1.0, 10.0), "lams": (0.001, 0.0125, 0.1, 1.0, 10.0, 100.0, 1000.0), "together": 100,
        "count": 200, "beta": 10.0, "mu": 1.0, "lam": 1.0, "seed": 0,
    }  # fmt: skip
    remark: ClassVar[str] = (
        "Moons with columns of zeros. A third of every user's rows is held out in turn, dealt out "
        "class by class; "
        "accuracies are means over users. β is asked of Local, Global and Dada-Fixed, μ of "
        "Dada-Fixed, and μ with λ of "
        "Dada-Learned, whose graph is updated as printed. The paper prints the protocol and the "
        "grids, not what was "
        "chosen; the authors' program has β = 10, μ = 1 for the fixed graph, and μ = 0.1 for the "
        "learned one."
    )

    def run(self, settings: Mapping[str, Any]) -> Numbers:
        data, together, curves = (
            datasets.moons("paper", "zeros", seed=settings["seed"]),
            settings["together"],
            [],
        )

        def curve(
            panel: str, label: str, across: str, values: Any, method: str, **fixed: float
        ) -> None:
            heights = [
                validated(data, method, together, settings, **fixed, **{across: value})
                for value in values
            ]
            curves.append(
                Curve(
                    panel,
                    label,
                    "dada" if "Dada" in method else method,
                    np.array(values),
                    np.array(heights),
                )
            )

        for method in ("local", "global", FIXED):
            curve(BETA, method, "beta", settings["betas"], method)
        curve(MU, FIXED, "mu", settings["mus"], FIXED)
        for mu in settings["learned_mus"]:
            curve(LAM, f"μ = {mu:g}", "lam", settings["lams"], LEARNED, mu=mu)
            ends = [_tested(data, settings, mu=mu, lam=lam) for lam in settings["lams"]]
            curves.append(
                Curve(TEST, f"μ = {mu:g}", "dada", np.array(settings["lams"]), np.array(ends))
            )
        local = float(np.mean(accuracies(fit(data, "local", SETTLED["local"], settings, 0), data)))
        curves.append(
            Curve(
                TEST,
                "local",
                "local",
                np.array(settings["lams"]),
                np.full(len(settings["lams"]), local),
            )
        )
        return Numbers(curves, ["Moons, 100 users, 3 to 15 rows each", "3 folds"])

    def claims(self, numbers: Numbers) -> list[Claim]:
        beta, mu, lam, test = (numbers.panel(panel) for panel in (BETA, MU, LAM, TEST))
        best_beta = {label: float(curve.x[curve.y.argmax()]) for label, curve in beta.items()}
        best_mu = float(mu[FIXED].x[mu[FIXED].y.argmax()])
        chosen = max(lam, key=lambda label: float(lam[label].y.max()))
        place = int(lam[chosen].y.argmax())
        theirs = f"μ = {PROGRAM['mu']:g}"
        near = int(np.abs(lam[theirs].x - PROGRAM["lam"]).argmin())
        listed = ", ".join(f"{x:g}: {y:.3f}" for x, y in zip(mu[FIXED].x, mu[FIXED].y, strict=True))
        found = "; ".join(f"{label} at most {curve.y.max():.3f}" for label, curve in lam.items())
        local = test["local"].last
        return [
            Claim(
                "Cross-validation chooses β = 10 for Dada-Fixed, the authors' program's.",
                best_beta[FIXED] == PROGRAM_BETA,
                ", ".join(f"{label}: {value:g}" for label, value in best_beta.items()),
                fails_if="another β of the grid has a higher accuracy on what was held out.",
            ),
            Claim(
                "It chooses μ = 1 for Dada-Fixed, the authors' program's.",
                best_mu == PROGRAM_FIXED,
                listed,
                fails_if="another μ of the grid has a higher accuracy on what was held out.",
            ),
            Claim(
                "It chooses μ = 0.1 for Dada-Learned, the authors' program's.",
                chosen == theirs,
                f"on what was held out: {found}; best with {chosen}, λ = {lam[chosen].x[place]:g}",
                f"With two thirds of so few rows Local has {beta['local'].y.max():.3f} on what "
                "was held out, and "
                "leaning on others pays more than it does with all rows: on the test rows the "
                "program's μ has "
                f"{test[theirs].y[near]:.3f}, Local {local:.3f}, and what was chosen "
                f"{test[chosen].y[place]:.3f}.",
                cause="settings",
                fails_if="another μ of the grid has a higher accuracy on what was held out.",
            ),
        ]

    def draw(self, numbers: Numbers) -> Figure:
        from coterie.report.figures import GREY, OCHRE, PURPLE, VERMILION, colour
        from papers.drawing import DASHED, SOLID, panels

        # Other hues than those of the methods in the same panels.
        labels = dict(zip(numbers.panel(LAM), (OCHRE, VERMILION, PURPLE, GREY), strict=False))
        axes = {BETA: ("β", "accuracy, held out"), MU: ("μ", "accuracy, held out")}
        axes |= {LAM: ("λ", "accuracy, held out"), TEST: ("λ", "test accuracy")}
        return panels(
            numbers, list(axes), axes, columns=2, log_x=True, log_y=False,
            hue=lambda c: labels.get(c.label) or colour(c.method),
            stroke=lambda c: DASHED if c.label in labels else SOLID,
        )  # fmt: skip


def _tested(data: datasets.Dataset, settings: Mapping[str, Any], **prices: float) -> float:
    rounds = HEAD_START[LEARNED] + settings["together"]
    own = {**settings, "learned": {}, **prices}
    return float(np.mean(accuracies(fit(data, LEARNED, rounds, own, settings["seed"]), data)))
