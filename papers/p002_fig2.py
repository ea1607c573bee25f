"""002 Fig. 2: what η₁, η₂, τ, ρ and β do to three rules, for a support vector machine on a1a."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from coterie.problems.problem import Problem
from papers.p002 import PAPER, classification_data, gap_curve, run_rule
from papers.study import Claim, Curve, Numbers, Study

if TYPE_CHECKING:
    from matplotlib.figure import Figure

RULES = {"proximal-1": ("η₁", "ρ"), "proximal-2": ("η₂", "ρ"), "lin-consensus": ("τ", "β")}
"""Each rule with the parameter that keeps it convergent and the one that is its step."""
SLIGHTLY = 0.5
"""A rule that needs at least this share of the rounds is "only slightly" faster."""


class Figure2(Study):
    """Gap against rounds in Experiment 1."""

    name: ClassVar[str] = "002 fig2"
    paper: ClassVar[str] = PAPER
    title: ClassVar[str] = "the effect of η₁, η₂, τ, ρ and β"
    full: ClassVar[Mapping[str, Any]] = {
        "rows": None, "agents": 10, "rounds": 500, "every": 5, "shares": (2.0, 1.0, 0.8, 0.5, 0.1),
        "steps": (0.01, 0.1, 1.0, 10.0, 100.0), "middle": 10.0, "seed": 0,
    }  # fmt: skip
    quick: ClassVar[Mapping[str, Any]] = full
    remark: ClassVar[str] = (
        "Above, η₁, η₂ and τ as multiples of the recommended K, Kτ and λmax, with ρ fixed; below, "
        "ρ (or 1/(βK)) with "
        "the recommended values. The paper does not print its values; these are ours."
    )

    def run(self, settings: Mapping[str, Any]) -> Numbers:
        table, remark = classification_data("a1a", settings["rows"], settings["seed"])
        problem, data, K = (
            Problem("hinge", "l2", 1.0 / table.n, intercept=False),
            (table.X, table.y),
            settings["agents"],
        )
        rounds, every = settings["rounds"], settings["every"]
        shards = np.array_split(np.arange(table.n), K)
        tau = max(float(np.linalg.norm(_dense(table.X[rows]), 2)) ** 2 for rows in shards)
        curves = []
        for rule, (safety, _) in RULES.items():
            recommended = float(K) if rule == "proximal-1" else K * tau
            for share in settings["shares"]:
                options = {**_step(rule, settings["middle"], K), "eta": share * recommended}
                result = run_rule(problem, data, rule, K, rounds, every, **options)
                curves.append(
                    gap_curve(result, f"{rule}, {safety}", f"{share:g} × recommended", share=share)
                )
        for rule, (_, step) in RULES.items():
            for rho in settings["steps"]:
                result = run_rule(problem, data, rule, K, rounds, every, **_step(rule, rho, K))
                curves.append(gap_curve(result, f"{rule}, {step}", f"ρ = {rho:g}", rho=rho))
        bases = [np.linalg.qr(_dense(table.X[rows]).T)[0] for rows in shards]
        needed = float(np.linalg.norm(np.hstack(bases), 2)) ** 2
        tight = f"Lemma 1 holds from η₁ = {needed / K:.2f} K on"
        return Numbers(
            curves, [remark, f"{K} agents", f"ρ = {settings['middle']:g} in the upper row", tight]
        )

    def claims(self, numbers: Numbers) -> list[Claim]:
        safe, slight, broken, spread = {}, {}, {}, {}
        for rule, (safety, step) in RULES.items():
            found = {
                curve.chosen["share"]: curve
                for curve in numbers.panel(f"{rule}, {safety}").values()
            }
            recommended, least = found[1.0], found[min(found)]
            safe[rule] = recommended.last / float(recommended.y[0])
            level = float(recommended.least[-1])
            for share in (0.8, 0.5):
                slight[f"{rule} at {share}"] = found[share].first_below(
                    level
                ) / recommended.first_below(level)
            broken[rule] = least.last / recommended.last
            ends = [float(curve.least[-1]) for curve in numbers.panel(f"{rule}, {step}").values()]
            spread[rule] = math.log10(max(ends) / min(ends))
        return [
            Claim(
                "The recommended values ensure convergence.",
                max(safe.values()) < 0.5,
                f"last over first gap: {_listed(safe)}",
                fails_if="the last gap is more than half the first (our threshold).",
            ),
            Claim(
                "With smaller values the speed increases only slightly.",
                all(
                    SLIGHTLY <= ratio <= 1.0 for key, ratio in slight.items() if key.endswith("0.8")
                ),
                (
                    "share of the rounds needed for the same gap, with 0.8 and 0.5 times the "
                    "value: "
                    f"{_listed(slight)}"
                ),
                fails_if=(
                    f"0.8 times the value needs more rounds, or less than {SLIGHTLY:g} of them "
                    "(our threshold)."
                ),
            ),
            Claim(
                "With values that are too small the algorithms may fail to converge.",
                max(broken.values()) > 10.0,
                (
                    "last gap with the smallest over that with the recommended value: "
                    f"{_listed(broken)}"
                ),
                fails_if=(
                    "with the smallest values no rule's gap ends 10 times as large (our threshold)."
                ),
            ),
            Claim(
                "ρ and β have a significant impact.",
                min(spread.values()) >= 1.0,
                f"powers of ten between the best and the worst last gap: {_listed(spread)}",
                fails_if=(
                    "for one rule the best and the worst step end less than 10 times apart (our "
                    "threshold)."
                ),
            ),
        ]

    def draw(self, numbers: Numbers) -> Figure:
        from papers.drawing import dashed, ladder, panels

        def hue(curve: Curve) -> str:
            key = next(iter(curve.chosen))
            values = sorted({c.chosen[key] for c in numbers if key in c.chosen})
            return ladder(values.index(curve.chosen[key]), len(values))

        axes = "communication rounds", "relative gap"
        return panels(
            numbers,
            numbers.panels,
            axes,
            columns=3,
            hue=hue,
            stroke=dashed(lambda c: "share" in c.chosen),
        )


def _step(rule: str, rho: float, agents: int) -> dict[str, float]:
    return {"beta": 1.0 / (rho * agents)} if rule == "lin-consensus" else {"rho": rho}


def _dense(X: Any) -> Any:
    return X.toarray() if hasattr(X, "toarray") else X


def _listed(values: Mapping[str, float]) -> str:
    return ", ".join(f"{name}: {value:.3g}" for name, value in values.items())
