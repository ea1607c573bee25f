"""002 Fig. 3: ridge and lasso on synthetic data, IID and not, five rules with their best step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from coterie.problems.problem import Problem
from papers import datasets
from papers.p002 import EXACT, LINEARISED, OURS, PAPER, SIMPLER, compared, family_claims
from papers.study import Claim, Curve, Numbers, Study

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Figure3(Study):
    """Gap against rounds in Experiment 2."""

    name: ClassVar[str] = "002 fig3"
    paper: ClassVar[str] = PAPER
    title: ClassVar[str] = "ridge and lasso, IID and not"
    quick: ClassVar[Mapping[str, Any]] = {
        "n": 600, "d": 100, "agents": 10, "rounds": 60, "every": 2, "grid": (-2, 2, 9), "seed": 0,
    }  # fmt: skip
    full: ClassVar[Mapping[str, Any]] = {
        "n": 3000, "d": 500, "agents": 30, "rounds": 500, "every": 5, "grid": (-3, 3, 13), "seed": 0,
    }  # fmt: skip
    remark: ClassVar[str] = (
        "The paper gives no strengths: ridge has λ = 1/n here, lasso 0.01 of the largest useful "
        "one. The rules pair up "
        "as the theory says. Ours tunes nothing by hand."
    )

    def run(self, settings: Mapping[str, Any]) -> Numbers:
        return Numbers(
            [
                c
                for penalty in ("ridge", "lasso")
                for iid in (True, False)
                for c in panel(settings, penalty, iid)
            ]
        )

    def claims(self, numbers: Numbers) -> list[Claim]:
        best = {
            name: {r: numbers.panel(name)[r].chosen["rho"] for r in (*EXACT, *LINEARISED)}
            for name in numbers.panels
        }
        pairs = all(
            found[one] == found[other]
            for found in best.values()
            for one, other in (EXACT, LINEARISED)
        )
        listed = [
            f"{name}: {', '.join(f'{rho:.2g}' for rho in found.values())}"
            for name, found in best.items()
        ]
        work = {
            name: [
                sum(numbers.panel(name)[r].chosen["seconds_per_round"] for r in p)
                for p in (LINEARISED, EXACT)
            ]
            for name in numbers.panels
        }
        shares = {name: linear / exact for name, (linear, exact) in work.items()}
        return [
            *family_claims(numbers, numbers.panels, significantly=True),
            Claim(
                "The computation of lin-consensus and proximal-2 is significantly simpler.",
                float(np.mean(list(shares.values()))) <= SIMPLER,
                (
                    "processor time of their rounds over that of consensus and proximal-1, "
                    "certificates included: "
                )
                + ", ".join(f"{name}: {share:.2f}" for name, share in shares.items()),
                (
                    "With so few rows an agent, most of a round is the same for all rules: "
                    "messages, "
                    "sums, certificates."
                ),
                cause="size",
                fails_if=(
                    f"their rounds take more than {SIMPLER:g} of the time in the mean (our "
                    "threshold)."
                ),
            ),
            Claim(
                "The best β and ρ of a pair satisfy βK = 1/ρ.",
                pairs,
                f"best ρ, or 1/(βK), of {', '.join((*EXACT, *LINEARISED))}: {'; '.join(listed)}",
                fails_if="the best steps of a pair are different ones of the grid.",
            ),
        ]

    def draw(self, numbers: Numbers) -> Figure:
        from coterie.report.figures import INK, colour
        from papers.drawing import dashed, panels

        return panels(
            numbers, numbers.panels, ("communication rounds", "relative gap"), columns=2,
            hue=lambda c: INK if c.label.startswith(OURS) else colour(c.method),
            stroke=dashed(lambda c: c.method in ("proximal-1", "proximal-2") and not c.label.startswith(OURS)),
        )  # fmt: skip


def panel(settings: Mapping[str, Any], penalty: str, iid: bool) -> list[Curve]:
    """All rules on one kind of data."""
    made = datasets.experiment2(
        settings["n"],
        settings["d"],
        settings["agents"],
        iid,
        settings["seed"],
        sparse=penalty == "lasso",
    ).train
    assert made.y is not None
    strength = 1.0 / made.n
    if penalty == "lasso":
        strength = 0.01 * float(np.abs(made.X.T @ made.y).max()) / made.n
    problem = Problem("squared", "l2" if penalty == "ridge" else "l1", strength, intercept=False)
    name, grid = (
        f"{penalty}, {'IID' if iid else 'non-IID'}",
        np.logspace(*settings["grid"]).tolist(),
    )
    data, agents = (made.X, made.y), settings["agents"]
    return compared(problem, data, name, agents, settings["rounds"], grid, settings["every"])
