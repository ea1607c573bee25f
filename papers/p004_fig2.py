"""004 Fig. 2: multinomial logistic regression for three bounds on the trace norm: objective and
top-5 error.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from coterie.api.result import Result
from coterie.numerics.arrays import FloatArray
from coterie.problems.low_rank.model import LowRankModel
from coterie.problems.problem import Problem
from papers.p004 import METHODS, OURS, PAPER, located, low_rank_data, objective, placed, run
from papers.study import Claim, Curve, Numbers, Study

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ERROR = ", top-5 error"
DRAW, SEARCHED = "draw ", "with a line search"
LOWER = 0.005
"""By how much an error must be lower to count as lower: less is noise with a thousand rows."""
WELL = 1.1
"""A factor between objectives that still counts as "well"."""


class Figure2(Study):
    """Multinomial logistic regression."""

    name: ClassVar[str] = "004 fig2"
    paper: ClassVar[str] = PAPER
    title: ClassVar[str] = "multinomial logistic regression for three trace norms"
    quick: ClassVar[Mapping[str, Any]] = {
        "n": 600, "d": 40, "classes": 40, "agents": 8, "marks": (10, 50, 100, 200), "sva": (10, 50, 100, 200),
        "ours": (6,), "radii": (10, 50, 100), "draws": (0, 1, 2), "searched": True, "seed": 0,
    }  # fmt: skip
    full: ClassVar[Mapping[str, Any]] = {
        "n": 100_000, "d": 1000, "classes": 1000, "agents": 96, "marks": (10, 50, 100, 200), "sva": (10, 50),
        "ours": (10,), "radii": (10, 50, 100), "draws": (0, 1, 2), "searched": True, "seed": 0,
    }  # fmt: skip
    remark: ClassVar[str] = (
        "Step 2/(t + 2), as in the paper; DFW-log has K(t) = 1 + 0.5 log t. Ours chooses its "
        "steps, for fewer epochs. "
        "Errors are of new rows, for μ = 10 of several draws. With 40 epochs, tried first, μ = "
        "100 had not settled, "
        "and "
        "the claims about SVA and naive DFW did not hold; with 100, DFW-log had made one power "
        "iteration throughout."
    )

    def run(self, settings: Mapping[str, Any]) -> Numbers:
        n, d, curves, parts = settings["n"], settings["d"], [], {}
        for draw in settings["draws"]:
            X, W = low_rank_data(2 * n, d, settings["classes"], draw)
            y = np.argmax(X @ W, axis=1)
            parts[draw] = placed(X[:n], y[:n]), (X[n:], y[n:])
        for place, radius in enumerate(settings["radii"]):
            problem, panel = (
                Problem("multinomial", "traceball", radius=float(radius)),
                f"μ = {radius}",
            )
            for label in METHODS:
                more: dict[str, Any] = {} if label == OURS else {"step": "classic"}
                more |= {"log_factor": 0.5} if label == "DFW-log" else {}
                own = settings[{OURS: "ours", "SVA": "sva"}.get(label, "marks")]
                # The claim on errors is about the first μ, where one draw would decide it.
                draws = settings["draws"] if place == 0 and label != OURS else settings["draws"][:1]
                runs = [
                    errors_at(own, problem, *parts[draw], label, settings, **more) for draw in draws
                ]
                curve = objective(runs[0][0], panel, label)
                if label == "naive" and settings["searched"] and radius == settings["radii"][-1]:
                    data, last = parts[settings["draws"][0]][0], own[-1]
                    found = run(
                        problem,
                        data,
                        label,
                        settings["agents"],
                        last,
                        settings["seed"],
                        last,
                        step="search",
                    )
                    curve = replace(curve, chosen={SEARCHED: objective(found, panel, label).last})
                curves.append(curve)
                errors = [found for _, found in runs]
                each = {
                    f"{DRAW}{draw}": float(found[-1])
                    for draw, found in zip(draws, errors, strict=True)
                }
                mean = np.mean(errors, axis=0)
                curves.append(
                    Curve(
                        panel + ERROR,
                        label,
                        METHODS[label][0],
                        np.array(own, float),
                        mean,
                        {},
                        each,
                    )
                )
        sizes = [f"{n} × {d}, {settings['classes']} classes", f"{settings['agents']} workers"]
        return Numbers(curves, [*sizes, *located(parts[settings["draws"][0]][0][0])])

    def claims(self, numbers: Numbers) -> list[Claim]:
        names = [name for name in numbers.panels if not name.endswith(ERROR)]
        ends = {
            name: {label: curve.last for label, curve in numbers.panel(name).items()}
            for name in names
        }
        errors = {
            name: {label: c.last for label, c in numbers.panel(name + ERROR).items()}
            for name in names
        }
        published = [label for label in METHODS if label != OURS]
        # SVA has fewer epochs at the paper's size; the others are then asked at its last.
        best = {
            name: min(
                float(np.interp(found["SVA"].x[-1], found[p].x, found[p].y)) for p in published
            )
            for name, found in zip(names, map(numbers.panel, names), strict=True)
        }
        first = names[0]
        others = min(errors[first][p] for p in published if p != "DFW-1")
        listed = "; ".join(
            f"{name}: " + ", ".join(f"{p} {ends[name][p]:.3f}" for p in published) for name in names
        )
        finals = numbers.panel(first + ERROR)
        draws = [key for key in finals["DFW-1"].chosen if key.startswith(DRAW)]
        wins = sum(
            min(published, key=lambda p: finals[p].chosen[draw]) == "DFW-1" for draw in draws
        )
        searched = numbers.panel(names[-1])["naive"].chosen[SEARCHED]
        bits = {label: numbers.panel(first)[label].spent["scalars"] for label in ("naive", "DFW-2")}
        return [
            Claim(
                "SVA converges to a suboptimal solution.",
                all(found["SVA"] > WELL * best[name] for name, found in ends.items()),
                f"F/F(0) at the end, {listed}",
                fails_if=(
                    f"for one μ it ends within {WELL} times the best objective of as many epochs "
                    "(our threshold)."
                ),
            ),
            Claim(
                (
                    "Naive DFW converges fast by epochs but costs more than DFW-TRACE (here: "
                    "numbers "
                    "sent)."
                ),
                bits["naive"] > bits["DFW-2"]
                and all(e["naive"] <= WELL * e["DFW-2"] for e in ends.values()),
                f"numbers sent, certificates included: {bits['naive']:,} against "
                f"{bits['DFW-2']:,} of DFW-2; F/F(0) as "
                "above",
                "For the largest μ its steps, as printed, are too long for its exact directions: "
                "with a line search "
                f"it ends at {searched:.3f}, DFW-2 as printed at {ends[names[-1]]['DFW-2']:.3f}.",
                cause="settings",
                fails_if=(
                    f"it sends less, or ends above {WELL} times DFW-2's objective for one μ (our "
                    "threshold)."
                ),
            ),
            Claim(
                "DFW-2 and DFW-log perform well for every μ.",
                all(
                    found[p] <= WELL * found["naive"]
                    for found in ends.values()
                    for p in ("DFW-2", "DFW-log")
                ),
                "the same numbers; DFW-log makes its second power iteration from epoch 100 on",
                fails_if=(
                    f"one of them ends above {WELL} times naive's objective for one μ (our "
                    "threshold)."
                ),
            ),
            Claim(
                "For the most constrained problem (μ = 10) DFW-1 has the lowest error.",
                errors[first]["DFW-1"] <= others - LOWER,
                f"top-5 error, {first}, mean of {len(draws)} draws: "
                + ", ".join(f"{p} {errors[first][p]:.3f}" for p in published),
                (
                    "With so few rows it depends on the draw: DFW-1 has the lowest error in "
                    f"{wins} "
                    f"of {len(draws)}."
                ),
                cause="size",
                fails_if=(
                    f"it is not {LOWER} below every other in the mean over the draws (our "
                    "threshold)."
                ),
            ),
        ]

    def draw(self, numbers: Numbers) -> Figure:
        from papers.drawing import DASHED, DOTTED, SOLID, panels

        names = [name for name in numbers.panels if not name.endswith(ERROR)]
        strokes = {"DFW-1": DOTTED, "DFW-log": DASHED}
        axes = dict.fromkeys(names, ("epochs", "F(W) / F(0)"))
        axes |= {name + ERROR: ("epochs", "top-5 error") for name in names}
        return panels(
            numbers, list(axes), axes, columns=3, stroke=lambda c: strokes.get(c.label, SOLID)
        )


def errors_at(
    marks: Sequence[int],
    problem: Problem,
    data: Any,
    new: Any,
    label: str,
    settings: Mapping[str, Any],
    **more: Any,
) -> tuple[Result, FloatArray]:
    """The run until the last mark, and the top-5 error on new rows at each."""
    errors, every = [], max(1, marks[-1] // 10)
    with TemporaryDirectory() as folder:
        for mark in marks:
            args = (problem, data, label, settings["agents"], mark, settings["seed"], every)
            result = run(*args, checkpoint=folder, **more)
            errors.append(top_5_error(result.model, *new))
    return result, np.array(errors)


def top_5_error(model: LowRankModel, X: FloatArray, y: Any) -> float:
    """The share of rows whose class is not among the five of the highest scores."""
    assert model.classes_ is not None
    scores = model.decision_function(X)
    place = np.minimum(np.searchsorted(model.classes_, y), len(model.classes_) - 1)
    own = scores[np.arange(len(y)), place]
    # A class that nobody showed is never among them.
    missed = (model.classes_[place] != y) | ((scores > own[:, None]).sum(axis=1) >= 5)
    return float(np.mean(missed))
