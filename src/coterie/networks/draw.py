"""A drawing of a network: agents as discs, edges as lines, traffic as the width and warmth of a line.

The width of an edge grows with log(traffic), from the least to the most that any edge carried. All colours are
mid-tones on a transparent ground, so that the picture reads on a light and on a dark page.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from coterie.arrays import FloatArray
from coterie.errors import InvalidNetwork
from coterie.networks.network import Network

if TYPE_CHECKING:
    import networkx as nx
    from matplotlib.axes import Axes

SERVER = -1

AGENT = "#4a86c5"
OWNER = "#d9773a"
HUB = "#5d6b7c"
QUIET, BUSY = "#8b95a3", "#c8527c"
INK = "#78828f"

LABELLED_AGENTS = 64
LETTERS_INSIDE = 3
SPRING_ABOVE = 100
RASTER_ABOVE = 5000
SIDE_POINTS = 360.0
LONG_SIDE_POINTS, SHORT_SIDE_POINTS = 648.0, 90.0
LARGEST_DISC = 26.0
MARGIN = 16.0
LETTER_WIDTH, LINE_HEIGHT = 5.2, 15.0
"""In points, of the names outside the discs and of the note."""


def draw(
    network: Network,
    ax: Axes | None = None,
    *,
    traffic: Mapping[tuple[int, int], float] | None = None,
    labels: Sequence[str] | None = None,
    highlight: int | None = None,
    unit: Callable[[float], str] | None = None,
) -> Axes:
    """Draw the network, on new axes (`.figure` saves them) unless some are given.

    `traffic[i, j]` is what the edge carried, in any unit; both directions are added, and the server is agent −1.
    `unit` writes such an amount, with its unit.
    `labels` names the agents; `highlight` colours one of them, such as the owner of the labels. Networks of more than
    64 agents are drawn as dots without names.
    """
    from matplotlib.collections import LineCollection
    from matplotlib.figure import Figure

    m = network.agents
    if labels is not None and len(labels) != m:
        raise InvalidNetwork(f"there are {m} agents but {len(labels)} labels. Give one label per agent.")
    if highlight is not None and not 0 <= highlight < m:
        raise InvalidNetwork(f"there is no agent {highlight!r} to highlight: the agents are called 0 to {m - 1}.")

    positions = _positions(network)
    points = np.concatenate([positions, [_centre(positions)]]) if network.server else positions
    links = np.stack([np.full(m, SERVER), np.arange(m)], axis=1) if network.server else network.edges
    amounts = None if traffic is None else _carried(links, traffic)
    names = [str(j) for j in range(m)] if labels is None else list(labels)
    outside = max(map(len, names)) > LETTERS_INSIDE and m <= LABELLED_AGENTS
    room = _room(max(map(len, names)) if outside else 0, note=traffic is not None)
    if ax is None:
        ax = Figure(figsize=_figure_size(points, room), facecolor="none").add_axes((0.0, 0.0, 1.0, 1.0))
    scale = _set_limits(ax, points, room)
    diameter = _disc(points, scale)

    lines = LineCollection(list(points[links]), capstyle="round", zorder=1, rasterized=len(links) > RASTER_ABOVE)
    length = scale * float(np.linalg.norm(points[links[:, 0]] - points[links[:, 1]], axis=1).sum())
    lines.set(**_edge_style(len(links), length, amounts))
    ax.add_collection(lines, autolim=False)
    colours = [OWNER if j == highlight else AGENT for j in range(m)]
    ax.scatter(positions[:, 0], positions[:, 1], s=diameter**2, c=colours, linewidths=0, zorder=2)
    if network.server:
        x, y = points[SERVER]
        ax.scatter([x], [y], s=(1.35 * diameter) ** 2, c=HUB, marker="s", linewidths=0, zorder=2)
        ax.text(x, y, "server", ha="center", va="center_baseline", color="white", size=0.32 * diameter, zorder=3)
    if m <= LABELLED_AGENTS:
        _write_labels(ax, positions, names, diameter, outside)
    if amounts is not None:
        ax.text(
            0.5,
            0.0,
            _note(amounts, unit or _plain),
            transform=ax.transAxes,
            ha="center",
            va="bottom",
            color=INK,
            size=8,
        )
    return ax


def _positions(network: Network) -> FloatArray:
    if network.positions is not None:
        return network.positions
    import networkx  # which takes long to import

    graph = networkx.from_scipy_sparse_array(network.weights)
    few = network.agents <= SPRING_ABOVE
    place = _side_by_side(graph) if few else networkx.spring_layout(graph, weight=None, seed=0)
    return np.array([place[j] for j in range(network.agents)], dtype=float).reshape(-1, 2)


def _side_by_side(graph: nx.Graph) -> dict[int, FloatArray]:
    """Each connected part by itself, the largest first, in rows about as wide as they are many."""
    import networkx

    place: dict[int, FloatArray] = {}
    widest = 3.0 * math.sqrt(len(graph))
    across = down = deepest = 0.0
    for part in sorted(networkx.connected_components(graph), key=len, reverse=True):
        radius = math.sqrt(len(part))
        if across and across + 2 * radius > widest:
            across, down, deepest = 0.0, down + deepest + 1.0, 0.0
        middle = np.array([across + radius, -down - radius])
        for agent, point in networkx.kamada_kawai_layout(graph.subgraph(part), weight=None).items():
            place[agent] = middle + 0.9 * radius * point
        across, deepest = across + 2 * radius + 0.5, max(deepest, 2 * radius)
    return place


def _centre(positions: FloatArray) -> FloatArray:
    """Where the server stands: amid the agents, below a single one."""
    centre: FloatArray = positions.mean(axis=0)
    return centre if len(positions) > 1 else centre - np.array([0.0, 1.0])


def _room(letters: int, note: bool) -> FloatArray:
    """Free points left, bottom, right and top of the agents: for their discs, for names outside them, for the note."""
    side = MARGIN + LETTER_WIDTH * letters
    name = LINE_HEIGHT if letters else 0.0
    return np.array([side, MARGIN + name + (LINE_HEIGHT if note else 0.0), side, MARGIN + name])


def _figure_size(points: FloatArray, room: FloatArray) -> tuple[float, float]:
    """In inches: a square or less, or a longer strip for agents in a row."""
    extent = np.ptp(points, axis=0)
    long = float(extent.max()) or 1.0
    side = LONG_SIDE_POINTS if extent.min() < 0.3 * long and len(points) > 4 else SIDE_POINTS
    width, height = np.maximum(extent / long * side + room[:2] + room[2:], SHORT_SIDE_POINTS) / 72.0
    return float(width), float(height)


def _set_limits(ax: Axes, points: FloatArray, room: FloatArray) -> float:
    """Centre the agents in what the room leaves of the axes; returns the points on paper per unit of position."""
    ax.set_aspect("equal")
    ax.set_axis_off()
    size = np.asarray(ax.bbox.size) * 72.0 / ax.figure.dpi
    free = np.maximum(size - room[:2] - room[2:], 0.3 * size)
    extent = np.ptp(points, axis=0)
    scale = float(np.min(free[extent > 0] / extent[extent > 0], initial=SIDE_POINTS))
    low = (points.min(axis=0) + points.max(axis=0)) / 2 - (size + room[:2] - room[2:]) / 2 / scale
    high = low + size / scale
    ax.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]))
    return scale


def _disc(points: FloatArray, scale: float) -> float:
    """The diameter of a disc in points: most agents do not touch, and none is larger than a label needs."""
    if len(points) == 1:
        return LARGEST_DISC
    from scipy.spatial import cKDTree  # which takes long to import

    room = scale * float(np.quantile(cKDTree(points).query(points, k=2)[0][:, 1], 0.1))
    if len(points) > LABELLED_AGENTS + 1:
        return float(np.clip(0.5 * room, 2.5, 9.0))
    return float(np.clip(0.6 * room, min(11.0, max(0.85 * room, 9.5)), LARGEST_DISC))


def _carried(links: npt.NDArray[np.intp], traffic: Mapping[tuple[int, int], float]) -> FloatArray:
    """What each link carried, both directions together."""
    place = {(i, j): k for k, (i, j) in enumerate(links.tolist())}
    amounts = np.zeros(len(links))
    for (i, j), amount in traffic.items():
        link = (min(i, j), max(i, j))
        if link not in place or not (amount >= 0 and math.isfinite(amount)):
            raise InvalidNetwork(
                f"traffic of {amount!r} on ({i}, {j}): traffic is a number of at least 0 on an edge of the network."
            )
        amounts[place[link]] += amount
    return amounts


def _edge_style(count: int, length: float, amounts: FloatArray | None) -> dict[str, Any]:
    """Thinner lines for many edges, and fainter ones where they would cover the ground."""
    from matplotlib.colors import LinearSegmentedColormap

    thinning = 1.0 / math.sqrt(max(count, 1))
    width = float(np.clip(14.0 * thinning, 0.45, 1.6))
    alpha = float(np.clip(0.25 * SIDE_POINTS**2 / max(width * length, 1.0), 0.04, 0.85))
    if amounts is None:
        return {"color": QUIET, "linewidth": width, "alpha": alpha}
    heat = _heat(amounts)
    shades = LinearSegmentedColormap.from_list("traffic", [QUIET, BUSY])(heat)
    shades[:, 3] = np.where(amounts > 0, np.maximum(alpha, 0.2 + 0.7 * heat), 0.5 * alpha)
    widest = float(np.clip(40.0 * thinning, 1.5, 4.5))
    return {"color": shades, "linewidth": np.where(amounts > 0, width / 2 + (widest - width / 2) * heat, 0.4)}


def _heat(amounts: FloatArray) -> FloatArray:
    """0 for the least and 1 for the most busy link, on a logarithmic scale; equal traffic is half warm."""
    heat = np.zeros(len(amounts))
    busy = amounts > 0
    if busy.any():
        scale = np.log(amounts[busy])
        spread = float(np.ptp(scale))
        heat[busy] = (scale - scale.min()) / spread if spread > 1e-9 else 0.5
    return heat


def _plain(amount: float) -> str:
    return f"{amount:,.0f}" if 1 <= amount < 1e6 else f"{amount:.3g}"


def _note(amounts: FloatArray, unit: Callable[[float], str]) -> str:
    busy = amounts[amounts > 0]
    if not len(busy):
        return "no traffic"
    least, most = unit(float(busy.min())), unit(float(busy.max()))
    return (
        f"traffic per edge: {most}"
        if least == most
        else f"traffic per edge: {least} (thin) to {most} (wide), log scale"
    )


def _write_labels(ax: Axes, positions: FloatArray, names: list[str], diameter: float, outside: bool) -> None:
    if not outside:
        size = min(0.45 * diameter, 10.0)
        for name, (x, y) in zip(names, positions, strict=True):
            ax.text(x, y, name, ha="center", va="center_baseline", color="white", size=size, zorder=3)
        return
    for name, point, (right, up) in zip(names, positions, _outward(positions), strict=True):
        ax.annotate(
            name,
            point,
            xytext=(right * (0.5 * diameter + 4.0), up * (0.5 * diameter + 4.0)),
            textcoords="offset points",
            ha="center" if abs(right) < 0.3 else "left" if right > 0 else "right",
            va="center" if abs(up) < 0.7 else "bottom" if up > 0 else "top",
            color=INK,
            size=9,
            zorder=3,
        )


def _outward(positions: FloatArray) -> FloatArray:
    """Where a name goes: away from the centre for agents on a circle, else below."""
    arms = positions - positions.mean(axis=0)
    radii = np.linalg.norm(arms, axis=1)
    below = np.tile([0.0, -1.0], (len(positions), 1))
    rim = radii > 0.9 * radii.max()
    if len(positions) < 3 or rim.sum() < len(positions) - 1:
        return below
    return np.where(rim[:, None], arms / np.where(radii, radii, 1.0)[:, None], below)
