"""Pictures of personal models: who learns from whom, and what it brings to whom.

Every function draws on new axes (`.figure` saves them) or returns the figure; nothing is shown or
written here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import networkx as nx
import numpy as np
import numpy.typing as npt

from coterie.numerics.arrays import FloatArray, Matrix
from coterie.problems.personal.model import PersonalModel

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.collections import PathCollection
    from matplotlib.figure import Figure

LABELLED_USERS = 120
FAINT = 0.02
"""Edges below this share of the heaviest one are not drawn."""
SMALLEST, LARGEST = 40.0, 420.0
"""The area of a user's disc, in square points, from the least to the most confident."""


def draw_users(model: PersonalModel, labels: Sequence[str] | None = None) -> Axes:
    """The collaboration graph: large discs are confident users, green ones have a small loss on
    their own rows, and the darker an edge, the heavier it is.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.5, 7.0), layout="constrained")
    ax = figure.add_subplot()
    edges = model.weights.nnz // 2
    named = (labels or model.users) if len(model.users) <= LABELLED_USERS else None
    discs = graph_of_users(ax, model.weights, model.confidence, model.losses, named)
    figure.colorbar(discs, ax=ax, shrink=0.6, label="loss on own rows, relative (green: small)")
    ax.set_title(f"{len(model.users)} users, {edges} edges; disc: confidence")
    return ax


def graph_of_users(
    ax: Axes,
    weights: Matrix,
    confidence: FloatArray,
    losses: FloatArray,
    labels: Sequence[str] | None = None,
) -> PathCollection:
    """Draw a collaboration graph on these axes, and return its discs."""
    from matplotlib.collections import LineCollection

    users = len(confidence)
    # Springs of heavy edges would draw all discs together.
    graph = nx.from_scipy_sparse_array(weights / (weights.max() or 1.0))
    place = nx.spring_layout(graph, seed=0, iterations=100, k=2.0 / max(users, 1) ** 0.5)
    points = np.array([place[k] for k in range(users)]).reshape(-1, 2)
    edges = sorted(graph.edges(data="weight"), key=lambda edge: edge[2])
    edges = [edge for edge in edges if edge[2] >= FAINT]
    shades = [(0.15, 0.15, 0.2, 0.04 + 0.8 * weight) for _, _, weight in edges]
    ax.add_collection(
        LineCollection(
            [points[[i, j]] for i, j, _ in edges],
            colors=shades,
            linewidths=1.0,
            zorder=1,
            rasterized=True,
        )
    )
    discs = ax.scatter(
        points[:, 0],
        points[:, 1],
        s=SMALLEST + (LARGEST - SMALLEST) * confidence,
        c=_relative(losses),
        cmap="RdYlGn_r",
        edgecolors="0.3",
        zorder=2,
    )
    for point, label in zip(points, labels or (), strict=labels is not None):
        ax.annotate(
            str(label), (point[0], point[1]), ha="center", va="center", fontsize=6, zorder=3
        )
    ax.set_axis_off()
    return discs


def _relative(losses: FloatArray) -> FloatArray:
    low, high = float(losses.min()), float(losses.max())
    relative: FloatArray = (losses - low) / (high - low or 1.0)
    return relative


def weight_matrix(model: PersonalModel, clusters: npt.ArrayLike | None = None) -> Axes:
    """The weights as a matrix, users ordered by cluster (given, or found from the graph's
    communities).
    """
    from matplotlib.figure import Figure

    known = _communities(model) if clusters is None else np.asarray(clusters)
    order = np.argsort(known, kind="stable")
    W = model.weights.toarray()[np.ix_(order, order)]
    figure = Figure(figsize=(6.5, 5.5), layout="constrained")
    ax = figure.add_subplot()
    shown = ax.imshow(W, cmap="Greys", interpolation="nearest")
    figure.colorbar(shown, ax=ax, label="weight")
    for end in np.flatnonzero(np.diff(known[order])) + 0.5:
        ax.axhline(end, color="#c8527c", linewidth=0.8)
        ax.axvline(end, color="#c8527c", linewidth=0.8)
    inside = W[known[order][:, None] == known[order]].sum() / W.sum() if W.sum() else 0.0
    ax.set(
        xlabel="user, by cluster",
        ylabel="user, by cluster",
        title=f"{inside:.0%} of the weight is inside clusters",
    )
    return ax


def _communities(model: PersonalModel) -> npt.NDArray[np.intp]:
    graph = nx.from_scipy_sparse_array(model.weights)
    found = np.zeros(len(model.users), np.intp)
    for number, members in enumerate(nx.community.louvain_communities(graph, seed=0)):
        found[list(members)] = number
    return found


def accuracy_by_traffic(curves: Mapping[str, Sequence[tuple[int, int, float]]]) -> Figure:
    """Accuracy against wake-ups and against bits; each curve is a list of (wake-ups, bits,
    accuracy).
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.0, 3.8), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    for name, curve in curves.items():
        wakes, bits, scores = (np.array(column, float) for column in zip(*curve, strict=True))
        left.plot(wakes, scores, marker="o", markersize=3, label=name)
        sent = bits > 0
        right.plot(bits[sent], scores[sent], marker="o", markersize=3, label=name)
    right.set_xscale("log")
    left.set(xlabel="wake-ups of all users", ylabel="test accuracy, mean over users")
    right.set_xlabel("bits sent")
    left.legend(frameon=False)
    for ax in (left, right):
        ax.grid(alpha=0.3)
    return figure


def accuracy_by_rows(
    models: Mapping[str, PersonalModel], X: Any, y: Any, users: Any, bins: int = 5
) -> Axes:
    """Accuracy against the number of rows that a user had to learn from, one line per model."""
    from matplotlib.figure import Figure

    ax = Figure(figsize=(5.5, 4.0), layout="constrained").add_subplot()
    for name, model in models.items():
        scores = model.score_per_user(X, y, users)
        place = {user: k for k, user in enumerate(model.users)}
        confidence = np.array([model.confidence[place[user]] for user in scores])
        accuracy = np.array(list(scores.values()))
        groups = np.array_split(np.argsort(confidence, kind="stable"), min(bins, len(accuracy)))
        ax.plot(
            [confidence[group].mean() for group in groups],
            [accuracy[group].mean() for group in groups],
            marker="o",
            label=name,
        )
    ax.set(xlabel="rows to learn from, relative to the largest user", ylabel="test accuracy")
    ax.legend(frameon=False)
    ax.grid(alpha=0.3)
    return ax
