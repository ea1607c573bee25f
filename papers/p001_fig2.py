"""001 Fig. 2 and 9a: the learned graph of Moons by cluster and as a graph, and the learned and the
true graph of Moons100.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import scipy.sparse as sp

from coterie.numerics.arrays import FloatArray
from papers import datasets
from papers.p001 import HEAD_START, LEARNED, PAPER, PROGRAM, fit
from papers.study import Claim, Curve, Numbers, Study, spent

if TYPE_CHECKING:
    from matplotlib.figure import Figure

GRAPHS, USERS = "graphs", "users"
MOONS, MOONS100, TRUE = "Moons, learned", "Moons100, learned", "Moons100, true"
CONFIDENCE, LOSS, ANGLE, CLUSTER = "confidence", "loss", "angle", "cluster"


class Figure2(Study):
    """Graphs of users of Moons and of Moons100."""

    name: ClassVar[str] = "001 fig2"
    paper: ClassVar[str] = PAPER
    title: ClassVar[str] = "the learned graphs of Moons and Moons100, drawn (Fig. 2, 9a)"
    quick: ClassVar[Mapping[str, Any]] = {
        "together": 40, "count": 200, "beta": 10.0, "mu": 1.0, "lam": 1000.0, "learned": PROGRAM, "seed": 0,
    }  # fmt: skip
    full: ClassVar[Mapping[str, Any]] = {**quick, "together": 160}
    remark: ClassVar[str] = (
        "One draw of the users, columns of zeros beyond the moons, μ and λ of the authors' "
        "program. A disc is a user: its area is the confidence, green is a small loss on the own "
        "rows, the number on Moons is the angle in degrees, and darker edges are heavier; those "
        "below 2 % of the heaviest are not drawn. On Moons100, both drawings have the losses of "
        "the learned models."
    )

    def run(self, settings: Mapping[str, Any]) -> Numbers:
        curves = []
        rounds = HEAD_START[LEARNED] + settings["together"]
        for label, data in (
            (MOONS, datasets.moons("paper", "zeros", seed=settings["seed"])),
            (MOONS100, datasets.moons100("zeros", seed=settings["seed"])),
        ):
            result = fit(data, LEARNED, rounds, settings, settings["seed"])
            model: Any = result.model
            learned = model.weights.toarray()
            curves.append(_picture(label, learned, spent(result)))
            curves += [
                _of_users(label, name, values)
                for name, values in {
                    CONFIDENCE: model.confidence,
                    LOSS: model.losses,
                    ANGLE: np.rad2deg(data.extras["angles"]),
                    CLUSTER: data.extras["clusters"],
                }.items()
            ]
            if label == MOONS100:
                curves.append(_picture(TRUE, data.extras["graph"]))
        return Numbers(curves, ["100 users each"])

    def claims(self, numbers: Numbers) -> list[Claim]:
        W, users = _matrix(numbers, MOONS), _users(numbers, MOONS)
        clusters = [users[CLUSTER] == cluster for cluster in np.unique(users[CLUSTER])]
        between = np.array([[W[np.ix_(a, b)].mean() for b in clusters] for a in clusters])
        rest = np.where(np.eye(len(clusters), dtype=bool), -np.inf, between).max(axis=1)
        own = between.diagonal()
        few = users[CONFIDENCE] < np.median(users[CONFIDENCE])
        degrees = W.sum(axis=1)
        dense, sparse = float(degrees[few].mean()), float(degrees[~few].mean())
        shares = ", ".join(f"{a:.4f} against {b:.4f}" for a, b in zip(own, rest, strict=True))
        return [
            Claim(
                "The weights of the learned graph are largest inside each of the four clusters.",
                bool((own > rest).all()),
                f"mean weight inside, against that with the nearest other cluster: {shares}",
                fails_if="for one cluster, the mean weight to another is at least as large.",
            ),
            Claim(
                "Users of low confidence are more densely connected.",
                dense > sparse,
                f"mean degree {dense:.3f} below the median confidence, {sparse:.3f} from it on",
                fails_if="the mean degree of users below the median is not the larger one.",
            ),
        ]

    def draw(self, numbers: Numbers) -> Figure:
        from matplotlib.figure import Figure as Canvas

        from papers.drawing import house_style
        from papers.personal_figures import graph_of_users

        with house_style():
            figure = Canvas(figsize=(7.0, 7.2), layout="constrained")
            axes = figure.subplots(2, 2)
            users = _users(numbers, MOONS)
            left = axes[0, 0]
            left.imshow(_matrix(numbers, MOONS), cmap="Greys", interpolation="nearest")
            for end in np.flatnonzero(np.diff(users[CLUSTER])) + 0.5:
                left.axhline(end, color="#c8527c", linewidth=0.8)
                left.axvline(end, color="#c8527c", linewidth=0.8)
            left.set(xlabel="user, by cluster", ylabel="user, by cluster", title="Moons, weights")
            for ax, label in zip(axes.ravel()[1:], (MOONS, MOONS100, TRUE), strict=True):
                W = _matrix(numbers, label)
                own = _users(numbers, MOONS if label == MOONS else MOONS100)
                angles = None
                if label == MOONS:
                    angles = [f"{angle:.0f}" for angle in own[ANGLE]]
                graph_of_users(ax, sp.csr_array(W), own[CONFIDENCE], own[LOSS], angles)
                ax.set_title(f"{label}: {np.count_nonzero(W) / len(W):.1f} neighbours")
        return figure


def _picture(label: str, weights: FloatArray, sent: Mapping[str, int] | None = None) -> Curve:
    places = np.arange(weights.size, dtype=float)
    return Curve(GRAPHS, label, "dada", places, weights.ravel(), sent or {})


def _of_users(label: str, name: str, values: FloatArray) -> Curve:
    places = np.arange(len(values), dtype=float)
    return Curve(f"{USERS}, {label}", name, "dada", places, np.asarray(values, float))


def _matrix(numbers: Numbers, label: str) -> FloatArray:
    flat = numbers.panel(GRAPHS)[label].y
    side = int(np.sqrt(flat.size))
    matrix: FloatArray = flat.reshape(side, side)
    return matrix


def _users(numbers: Numbers, label: str) -> dict[str, FloatArray]:
    return {name: curve.y for name, curve in numbers.panel(f"{USERS}, {label}").items()}
