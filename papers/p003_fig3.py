"""003 Fig. 3: digits 0 and 1, eight agents; w as a picture beside w*, and convergence for several
pipelines.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from coterie.api.result import Result
from coterie.api.solve import solve
from coterie.networks import ring
from coterie.numerics.arrays import FloatArray
from coterie.problems.problem import Problem
from papers import datasets
from papers.study import Claim, Curve, Numbers, Study, spent

if TYPE_CHECKING:
    from matplotlib.figure import Figure

AGENTS = 8
CURVES, PICTURES = "convergence", "w"
FULL_GRADIENT, CAREFUL = "full gradient", "small step, J = 1"
CHEBYSHEV = "ours: Chebyshev, J = "
THEOREM = "Theorem 1, J = "
FLOOR = 1e-12
"""Errors below it are drawn there: the reference is not known better."""
STRAIGHT = 0.98
"""A logarithm whose correlation with the epochs is at least this is that of an exponential."""


class Figure3(Study):
    """PVRD² with pipelines of several lengths."""

    name: ClassVar[str] = "003 fig3"
    paper: ClassVar[str] = (
        "003: An exponentially convergent algorithm for distributed features (Ying, Yuan, Sayed)"
    )
    title: ClassVar[str] = (
        "digits 0 and 1, eight agents: w as a picture, and convergence by pipeline"
    )
    quick: ClassVar[Mapping[str, Any]] = {
        "digits": "scikit-learn", "agents": AGENTS, "epochs": 60, "every": 2, "pipelines": (1, 2, 5, 10, 20), "ours": 5,
        "step": 0.33, "small_step": 0.1, "strength": 0.01, "seed": 0,
    }  # fmt: skip
    full: ClassVar[Mapping[str, Any]] = {
        "digits": "mnist", "agents": AGENTS, "epochs": 40, "every": 1, "pipelines": (1, 2, 5, 10, 20), "ours": 5,
        "step": 0.33, "small_step": 0.1, "strength": 0.01, "seed": 0,
    }  # fmt: skip
    remark: ClassVar[str] = (
        "Ring of eight agents, one step for all pipelines. A larger J is faster per gradient, and "
        "its messages are J "
        "numbers long; the Chebyshev pipeline sends what plain J = 5 sends. The full-gradient "
        "method makes one step "
        "for a pass over the data. J = 1 converges with a smaller step only. The line of Theorem "
        "1 has ν = λ, the "
        "penalty's."
    )

    def run(self, settings: Mapping[str, Any]) -> Numbers:
        X, y, remark = _digits(settings["digits"])
        problem = Problem("logistic", "l2", settings["strength"], intercept=False)
        exact = solve(problem, (X, y), agents=1, method="newton", tol=1e-13, progress=False)
        # L_max, the largest curvature of one sample
        steepest = (
            problem.loss.smoothness * float(np.max(np.sum(X**2, axis=1))) + settings["strength"]
        )
        step = settings["step"] / steepest

        def curve(label: str, method: str, J: int = 0, **options: Any) -> tuple[Curve, Result]:
            result = solve(
                problem, (X, y), split="features", agents=settings["agents"], network="ring", method=method,
                max_rounds=settings["epochs"], check_every=settings["every"], tol=1e-15, seed=settings["seed"],
                progress=False, **options,
            )  # fmt: skip
            best, zero = exact.certificate.primal, result.certificate.primal_at_zero
            errors = np.maximum((np.asarray(result.history.primal) - best) / (zero - best), FLOOR)
            epochs = np.append(0.0, np.asarray(result.history.round, float))
            return Curve(
                CURVES, label, method, epochs, np.append(1.0, errors), spent(result), {"J": J}
            ), result

        curves, slow = [], 1.0 - ring(settings["agents"]).spectral_gap("metropolis")
        for J in settings["pipelines"]:
            found, result = curve(f"J = {J}", "pvrd2", J, pipeline=J, chebyshev=False, step=step)
            # ρ = max(1 − (1 − λ^J) / 2N, 1 − μν/4) for one gradient, and N of them are an epoch
            # (30)
            rate = max(
                1 - (1 - slow**J) / (2 * len(y)), 1 - step * settings["strength"] / 4
            ) ** len(y)
            curves.append(replace(found, chosen={**found.chosen, "rate": rate}))
            if settings["ours"] == J:
                falls = rate**found.x
                curves.append(Curve(CURVES, f"{THEOREM}{J}", "pvrd2", found.x, falls, {}, {"J": J}))
        small = settings["small_step"] / steepest
        curves.append(curve(CAREFUL, "pvrd2", 1, pipeline=1, chebyshev=False, step=small)[0])
        J = settings["ours"]
        curves.append(
            curve(f"{CHEBYSHEV}{J}", "pvrd2", J, pipeline=J, chebyshev=True, step=step)[0]
        )
        curves.append(curve(FULL_GRADIENT, "dynamic-diffusion")[0])
        pixels = np.arange(X.shape[1], dtype=float)
        pictures = [
            Curve(PICTURES, "w, as the agents have it", "pvrd2", pixels, result.model.coef_),
            Curve(PICTURES, "w*, pooled", "pvrd2", pixels, exact.model.coef_),
        ]
        network = f"{settings['agents']} agents on a ring"
        steps = f"step {settings['step']} / L_max, the small one {settings['small_step']} / L_max"
        return Numbers([*pictures, *curves], [remark, network, steps])

    def claims(self, numbers: Numbers) -> list[Claim]:
        found = numbers.panel(CURVES)
        plain = {
            int(c.chosen["J"]): math.log10(c.last)
            for c in found.values()
            if c.label.startswith("J =")
        }
        careful = math.log10(found[CAREFUL].last)
        full = math.log10(found[FULL_GRADIENT].last)
        mine, theirs = (c.y for c in numbers.panel(PICTURES).values())
        parts = zip(np.array_split(mine, AGENTS), np.array_split(theirs, AGENTS), strict=True)
        off = max(float(np.linalg.norm(a - b) / np.linalg.norm(theirs)) for a, b in parts)
        straight = {
            label: _straightness(c)
            for label, c in found.items()
            if label.startswith("J =") and c.chosen["J"] > 1
        }
        rates = {
            label: (_rate(c), c.chosen["rate"])
            for label, c in found.items()
            if c.chosen.get("rate") and c.chosen["J"] > 1
        }
        ordered = [plain[J] for J in sorted(plain)]
        done = math.log10(FLOOR)
        falling = all(b < a or b <= done for a, b in pairwise(ordered))
        listed = ", ".join(f"J = {J}: {value:.2f}" for J, value in plain.items())
        every = f"{listed}, {CAREFUL}: {careful:.2f}"
        return [
            Claim(
                "Each agent's part of w converges to its part of w*.",
                off <= 1e-2,
                f"‖w_k − w_k*‖ / ‖w*‖ is at most {off:.1e} with the longest pipeline",
                fails_if=(
                    "one agent's part is more than a hundredth of ‖w*‖ away at the end (our "
                    "threshold)."
                ),
            ),
            Claim(
                "It converges exponentially (for J > 1; the title, and Theorem 1).",
                min(straight.values()) >= STRAIGHT,
                "correlation of −log error with epochs, after a tenth of them: "
                + ", ".join(f"{label}: {value:.3f}" for label, value in straight.items()),
                fails_if=f"the correlation is below {STRAIGHT:g} for one J (our threshold).",
            ),
            Claim(
                "The error falls at least as fast as ρ of Theorem 1 says (for J > 1).",
                all(measured <= promised for measured, promised in rates.values()),
                "factor by which it falls in an epoch, measured and promised: "
                + ", ".join(f"{label}: {a:.3f}, {b:.3f}" for label, (a, b) in rates.items()),
                fails_if="the measured factor is larger than ρ to the power of the rows for one J.",
            ),
            Claim(
                "The larger J, the faster the algorithm converges.",
                falling,
                f"log10 error at the end: {listed}",
                fails_if="a larger J ends with a larger error, above what is known of the optimum.",
            ),
            Claim(
                "Without a pipeline it converges for small enough steps, but slowly.",
                careful < -1 and careful > plain[2],
                f"log10 error at the end: {every}",
                fails_if=(
                    "J = 1 with the small step does not come below a tenth (our threshold), or is "
                    "ahead of J = 2."
                ),
            ),
            Claim(
                "For the same number of gradients it is faster than the full-gradient method.",
                max(careful, *(value for J, value in plain.items() if J > 1)) < full,
                f"log10 error at the end: full gradient {full:.2f}, {every}",
                fails_if=(
                    "the full-gradient method is ahead of one J > 1, or of J = 1 with the small "
                    "step."
                ),
            ),
        ]

    def draw(self, numbers: Numbers) -> Figure:
        from matplotlib.figure import Figure as Canvas

        from coterie.report.figures import BLUE, GREEN, INK, OCHRE, PURPLE, SKY, colour
        from papers.drawing import DASHED, DOTTED, SOLID, house_style, lines

        pictures = list(numbers.panel(PICTURES).values())
        pipelines = sorted({c.chosen["J"] for c in numbers if c.label.startswith("J =")})

        def hue(curve: Curve) -> str:
            if curve.chosen["J"] in pipelines and not curve.label.startswith(CHEBYSHEV):
                return (SKY, BLUE, GREEN, OCHRE, PURPLE)[pipelines.index(curve.chosen["J"]) % 5]
            return INK if curve.label.startswith(CHEBYSHEV) else colour(curve.method)

        def stroke(curve: Curve) -> Any:
            dotted = curve.label == CAREFUL or curve.label.startswith(THEOREM)
            return DOTTED if dotted else DASHED if curve.label.startswith(CHEBYSHEV) else SOLID

        side = round(math.sqrt(len(pictures[0].y)))
        largest = max(float(np.abs(c.y).max()) for c in pictures)
        with house_style():
            figure = Canvas(figsize=(8.1, 3.0), layout="constrained")
            left, right = np.ravel(figure.subfigures(1, 2, squeeze=False, width_ratios=(0.85, 1.0)))
            for ax, picture in zip(left.subplots(1, 2), pictures, strict=True):
                ax.imshow(
                    picture.y.reshape(side, side),
                    cmap="RdBu",
                    vmin=-largest,
                    vmax=largest,
                    interpolation="nearest",
                )
                for j in range(1, AGENTS):
                    ax.axhline(j * side / AGENTS - 0.5, color="#8b95a3", linewidth=0.6)
                ax.set_title(picture.label, loc="left", size=9)
                ax.set_xlabel("columns of pixels", size=8)
                ax.set_ylabel("rows of pixels, one strip per agent", size=8)
                ax.set_xticks([])
                ax.set_yticks([])
            ax = right.subplots()
            curves = list(numbers.panel(CURVES).values())
            lines(ax, curves, "gradients / N", "relative error", hue, stroke)
            right.legend(
                *ax.get_legend_handles_labels(),
                loc="outside right center",
                frameon=False,
                fontsize=8,
            )
        return figure


def _rate(curve: Curve) -> float:
    """The factor by which the error falls in an epoch, by a line through its logarithms above the
    floor.
    """
    steady = curve.y > 2 * FLOOR
    return float(np.exp(np.polyfit(curve.x[steady], np.log(curve.y[steady]), 1)[0]))


def _straightness(curve: Curve) -> float:
    """The correlation of −log error with epochs between the first steps and the floor."""
    steady = (curve.x >= 0.1 * curve.x[-1]) & (curve.y > 2 * FLOOR)
    return float(-np.corrcoef(curve.x[steady], np.log(curve.y[steady]))[0, 1])


def _digits(which: str) -> tuple[FloatArray, FloatArray, str]:
    """Zeros and ones, pixels in [0, 1]: MNIST's 28 × 28, or the 8 × 8 that scikit-learn ships."""
    if which == "mnist":
        train = datasets.mnist((0, 1)).train
        assert train.y is not None
        return train.X, np.where(train.y > 0, 1.0, -1.0), "MNIST"
    from sklearn.datasets import load_digits

    X, y = load_digits(n_class=2, return_X_y=True)
    return (
        X / 16.0,
        np.where(y > 0, 1.0, -1.0),
        "the 8 × 8 digits of scikit-learn in place of MNIST",
    )
