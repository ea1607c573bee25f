"""004 Fig. 2: multinomial logistic regression for three bounds on the trace norm: objective and top-5 error."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from coterie.arrays import FloatArray
from coterie.models import LowRankModel
from coterie.problem import Problem
from coterie.result import Result
from papers.p004 import METHODS, OURS, PAPER, low_rank_data, objective, run
from papers.study import Claim, Curve, Numbers, Study

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ERROR = ", top-5 error"
WELL = 1.1
"""A factor between objectives that still counts as "well"."""


class Figure2(Study):
    """Multinomial logistic regression."""

    name: ClassVar[str] = "004 fig2"
    paper: ClassVar[str] = PAPER
    title: ClassVar[str] = "multinomial logistic regression for three trace norms"
    quick: ClassVar[Mapping[str, Any]] = {
        "n": 1000, "d": 40, "classes": 40, "agents": 8, "marks": (10, 25, 50, 100), "ours": (8,),
        "radii": (10, 50, 100), "seed": 0,
    }  # fmt: skip
    full: ClassVar[Mapping[str, Any]] = {
        "n": 100_000, "d": 1000, "classes": 1000, "agents": 96, "marks": (10, 25, 50, 100), "ours": (40,),
        "radii": (10, 50, 100), "seed": 0,
    }  # fmt: skip
    remark: ClassVar[str] = (
        "Step 2/(t + 2), as in the paper; DFW-log has K(t) = 1 + 0.5 log t. Ours chooses its steps, for fewer epochs. "
        "Errors are of new rows. With 40 epochs, tried first, μ = 100 had not settled, and the claims about SVA and "
        "naive DFW did not hold."
    )

    def run(self, settings: Mapping[str, Any]) -> Numbers:
        n, d = settings["n"], settings["d"]
        X, W = low_rank_data(2 * n, d, settings["classes"], settings["seed"])
        y = np.argmax(X @ W, axis=1)
        curves = []
        for radius in settings["radii"]:
            problem, panel = Problem("multinomial", "traceball", radius=float(radius)), f"μ = {radius}"
            for label in METHODS:
                more: dict[str, Any] = {} if label == OURS else {"step": "classic"}
                more |= {"log_factor": 0.5} if label == "DFW-log" else {}
                own = settings["ours"] if label == OURS else settings["marks"]
                result, errors = errors_at(own, problem, (X[:n], y[:n]), (X[n:], y[n:]), label, settings, **more)
                curves.append(objective(result, panel, label))
                curves.append(Curve(panel + ERROR, label, METHODS[label][0], np.array(own, float), errors))
        return Numbers(curves, [f"d = {d}, {settings['classes']} classes", f"{settings['agents']} workers"])

    def claims(self, numbers: Numbers) -> list[Claim]:
        names = [name for name in numbers.panels if not name.endswith(ERROR)]
        ends = {name: {label: curve.last for label, curve in numbers.panel(name).items()} for name in names}
        errors = {name: {label: c.last for label, c in numbers.panel(name + ERROR).items()} for name in names}
        published = [label for label in METHODS if label != OURS]
        first = names[0]
        best = min(published, key=errors[first].__getitem__)
        listed = "; ".join(f"{name}: " + ", ".join(f"{p} {ends[name][p]:.3f}" for p in published) for name in names)
        bits = {label: numbers.panel(first)[label].spent["scalars"] for label in ("naive", "DFW-2")}
        return [
            Claim(
                "SVA converges to a suboptimal solution.",
                all(found["SVA"] > WELL * min(found[p] for p in published) for found in ends.values()),
                f"F/F(0) at the end, {listed}",
            ),
            Claim(
                "Naive DFW converges fast by epochs but costs more than DFW-TRACE (here: numbers sent).",
                bits["naive"] > bits["DFW-2"] and all(e["naive"] <= WELL * e["DFW-2"] for e in ends.values()),
                f"numbers sent, certificates included: {bits['naive']:,} against {bits['DFW-2']:,} of DFW-2",
            ),
            Claim(
                "DFW-2 and DFW-log perform well for every μ.",
                all(found[p] <= WELL * found["naive"] for found in ends.values() for p in ("DFW-2", "DFW-log")),
                f"up to {WELL} times naive's objective counts as well; the same numbers",
                "DFW-log makes one power iteration until epoch 100, where this ends.",
            ),
            Claim(
                "For the most constrained problem (μ = 10) DFW-1 has the lowest error.",
                best == "DFW-1",
                f"top-5 error, {first}: " + ", ".join(f"{p} {errors[first][p]:.3f}" for p in published),
                "It is a few of a thousand rows behind DFW-2."
                if errors[first]["DFW-1"] <= 1.1 * errors[first][best]
                else "",
            ),
        ]

    def draw(self, numbers: Numbers) -> Figure:
        from papers.drawing import DASHED, DOTTED, SOLID, panels

        names = [name for name in numbers.panels if not name.endswith(ERROR)]
        strokes = {"DFW-1": DOTTED, "DFW-log": DASHED}
        axes = dict.fromkeys(names, ("epochs", "F(W) / F(0)"))
        axes |= {name + ERROR: ("epochs", "top-5 error") for name in names}
        return panels(numbers, list(axes), axes, columns=3, stroke=lambda c: strokes.get(c.label, SOLID))


def errors_at(
    marks: Sequence[int], problem: Problem, data: Any, new: Any, label: str, settings: Mapping[str, Any], **more: Any
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
    return float(np.mean(~np.any(model.top_k(X, 5) == y[:, None], axis=1)))
