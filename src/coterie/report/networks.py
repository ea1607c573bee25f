"""Draw a network: agents as discs, edges as lines, traffic as the width and colour of a line.

The width of an edge grows with log(traffic), from the least to the largest traffic of an edge. All
colours are mid-tones on a transparent ground, which are visible on a light and on a dark page.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from coterie.errors import InvalidNetwork
from coterie.networks.network import Network
from coterie.numerics.arrays import FloatArray

if TYPE_CHECKING:
    import networkx as nx
    from matplotlib.axes import Axes

SERVER = -1

AGENT = "#4a86c5"
OWNER = "#d9773a"
HUB = "#5d6b7c"
QUIET = "#8b95a3"
BUSY = "#c8527c"
INK = "#78828f"

LABELLED_AGENTS = 64
LETTERS_INSIDE = 3
SPRING_ABOVE = 100
RASTER_ABOVE = 5000
SIDE_POINTS = 360.0
LONG_SIDE_POINTS = 648.0
SHORT_SIDE_POINTS = 90.0
LARGEST_DISC = 26.0
MARGIN = 16.0
LETTER_WIDTH = 5.2
LINE_HEIGHT = 15.0
"""Points per character of names outside the discs, and per line of the note."""


def draw_network(
    network: Network,
    ax: Axes | None = None,
    *,
    traffic: Mapping[tuple[int, int], float] | None = None,
    labels: Sequence[str] | None = None,
    highlight: int | None = None,
    unit: Callable[[float], str] | None = None,
) -> Axes:
    """Draw the network on `ax`, or on new axes (`.figure` saves them).

    `traffic[i, j]` is the traffic of the edge, in any unit; both directions are added, and the
    server is agent −1. `unit` formats an amount of traffic with its unit. `labels` names the
    agents; `highlight` colours one of them, such as the owner of the labels. Networks of more than
    64 agents are drawn as dots without names.
    """
    from matplotlib.figure import Figure

    m = network.agents
    names = _names(m, labels)
    colours = _colours(m, highlight)
    positions = _positions(network)
    points = positions
    links = network.edges
    if network.server:
        points = np.concatenate([positions, [_centre(positions)]])
        links = np.stack([np.full(m, SERVER), np.arange(m)], axis=1)
    amounts = None
    if traffic is not None:
        amounts = _carried(links, traffic)
    longest = max(map(len, names))
    outside = longest > LETTERS_INSIDE and m <= LABELLED_AGENTS
    margins = _margins(longest if outside else 0, note=traffic is not None)
    if ax is None:
        ax = Figure(figsize=_figure_size(points, margins), facecolor="none").add_axes(
            (0.0, 0.0, 1.0, 1.0)
        )
    scale = _set_limits(ax, points, margins)
    diameter = _disc(points, scale)

    _draw_edges(ax, points, links, scale, amounts)
    ax.scatter(positions[:, 0], positions[:, 1], s=diameter**2, c=colours, linewidths=0, zorder=2)
    if network.server:
        x, y = points[SERVER]
        ax.scatter([x], [y], s=(1.35 * diameter) ** 2, c=HUB, marker="s", linewidths=0, zorder=2)
        ax.text(
            x,
            y,
            "server",
            ha="center",
            va="center_baseline",
            color="white",
            size=0.32 * diameter,
            zorder=3,
        )
    if m <= LABELLED_AGENTS:
        _write_labels(ax, positions, names, diameter, outside)
    if amounts is not None:
        note = _note(amounts, unit or _plain)
        ax.text(0.5, 0.0, note, transform=ax.transAxes, ha="center", va="bottom", color=INK, size=8)
    return ax


def _names(agents: int, labels: Sequence[str] | None) -> list[str]:
    if labels is None:
        return list(map(str, range(agents)))
    if len(labels) != agents:
        raise InvalidNetwork(
            f"there are {agents} agents but {len(labels)} labels. Give one label per agent."
        )
    return list(labels)


def _colours(agents: int, highlight: int | None) -> list[str]:
    colours = [AGENT] * agents
    if highlight is None:
        return colours
    if not 0 <= highlight < agents:
        raise InvalidNetwork(
            f"there is no agent {highlight!r} to highlight: the agents are called 0 to "
            f"{agents - 1}."
        )
    colours[highlight] = OWNER
    return colours


def _draw_edges(
    ax: Axes,
    points: FloatArray,
    links: npt.NDArray[np.intp],
    scale: float,
    amounts: FloatArray | None,
) -> None:
    from matplotlib.collections import LineCollection

    lines = LineCollection(
        list(points[links]), capstyle="round", zorder=1, rasterized=len(links) > RASTER_ABOVE
    )
    differences = points[links[:, 0]] - points[links[:, 1]]
    length = scale * float(np.linalg.norm(differences, axis=1).sum())
    lines.set(**_edge_style(len(links), length, amounts))
    ax.add_collection(lines, autolim=False)


def _positions(network: Network) -> FloatArray:
    if network.positions is not None:
        return network.positions
    import networkx  # which takes long to import

    graph = networkx.from_scipy_sparse_array(network.weights)
    if network.agents <= SPRING_ABOVE:
        place = _side_by_side(graph)
    else:
        place = networkx.spring_layout(graph, weight=None, seed=0)
    return np.array([place[j] for j in range(network.agents)], dtype=float).reshape(-1, 2)


def _side_by_side(graph: nx.Graph) -> dict[int, FloatArray]:
    """A layout of each connected part, the largest first, in rows that make about a square."""
    import networkx

    place: dict[int, FloatArray] = {}
    widest = 3.0 * math.sqrt(len(graph))
    across = down = deepest = 0.0
    for part in sorted(networkx.connected_components(graph), key=len, reverse=True):
        radius = math.sqrt(len(part))
        if across and across + 2 * radius > widest:
            across = 0.0
            down = down + deepest + 1.0
            deepest = 0.0
        middle = np.array([across + radius, -down - radius])
        for agent, point in networkx.kamada_kawai_layout(graph.subgraph(part), weight=None).items():
            place[agent] = middle + 0.9 * radius * point
        across = across + 2 * radius + 0.5
        deepest = max(deepest, 2 * radius)
    return place


def _centre(positions: FloatArray) -> FloatArray:
    """The position of the server: at the centre of the agents, or below a single one."""
    centre: FloatArray = positions.mean(axis=0)
    if len(positions) == 1:
        centre -= np.array([0.0, 1.0])
    return centre


def _margins(letters: int, note: bool) -> FloatArray:
    """Margins in points (left, bottom, right, top) around the agents: for discs, names outside
    them, and the note.
    """
    side = MARGIN + LETTER_WIDTH * letters
    top = MARGIN
    if letters:
        top += LINE_HEIGHT
    bottom = top
    if note:
        bottom += LINE_HEIGHT
    return np.array([side, bottom, side, top])


def _figure_size(points: FloatArray, margins: FloatArray) -> tuple[float, float]:
    """The size in inches: at most a square, or a longer strip for agents in a row."""
    extent = np.ptp(points, axis=0)
    long = float(extent.max()) or 1.0
    side = SIDE_POINTS
    if extent.min() < 0.3 * long and len(points) > 4:
        side = LONG_SIDE_POINTS
    size = extent / long * side + margins[:2] + margins[2:]
    width, height = np.maximum(size, SHORT_SIDE_POINTS) / 72.0
    return float(width), float(height)


def _set_limits(ax: Axes, points: FloatArray, margins: FloatArray) -> float:
    """Centre the agents between the margins. Returns the points on paper per unit of position."""
    ax.set_aspect("equal")
    ax.set_axis_off()
    size = np.asarray(ax.bbox.size) * 72.0 / ax.figure.dpi
    free = np.maximum(size - margins[:2] - margins[2:], 0.3 * size)
    extent = np.ptp(points, axis=0)
    scale = float(np.min(free[extent > 0] / extent[extent > 0], initial=SIDE_POINTS))
    middle = (points.min(axis=0) + points.max(axis=0)) / 2
    low = middle - (size + margins[:2] - margins[2:]) / 2 / scale
    high = low + size / scale
    ax.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]))
    return scale


def _disc(points: FloatArray, scale: float) -> float:
    """The diameter of a disc in points: most agents do not touch, and none is larger than a label
    needs.
    """
    if len(points) == 1:
        return LARGEST_DISC
    from scipy.spatial import cKDTree  # which takes long to import

    distances, _ = cKDTree(points).query(points, k=2)
    space = scale * float(np.quantile(distances[:, 1], 0.1))
    if len(points) > LABELLED_AGENTS + 1:
        return float(np.clip(0.5 * space, 2.5, 9.0))
    least = min(11.0, max(0.85 * space, 9.5))
    return float(np.clip(0.6 * space, least, LARGEST_DISC))


def _carried(links: npt.NDArray[np.intp], traffic: Mapping[tuple[int, int], float]) -> FloatArray:
    """The traffic of each link, both directions together."""
    place = {(i, j): k for k, (i, j) in enumerate(links.tolist())}
    amounts = np.zeros(len(links))
    for (i, j), amount in traffic.items():
        link = (min(i, j), max(i, j))
        if link not in place or not (amount >= 0 and math.isfinite(amount)):
            raise InvalidNetwork(
                f"traffic of {amount!r} on ({i}, {j}): traffic is a number of at least 0 on an "
                "edge of the network."
            )
        amounts[place[link]] += amount
    return amounts


def _edge_style(count: int, length: float, amounts: FloatArray | None) -> dict[str, Any]:
    """Thinner lines for many edges, and fainter ones if they would cover the figure."""
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
    widths = width / 2 + (widest - width / 2) * heat
    return {"color": shades, "linewidth": np.where(amounts > 0, widths, 0.4)}


def _heat(amounts: FloatArray) -> FloatArray:
    """0 for the least traffic and 1 for the most, on a logarithmic scale; 0.5 if all links have the
    same.
    """
    heat = np.zeros(len(amounts))
    busy = amounts > 0
    if busy.any():
        scale = np.log(amounts[busy])
        spread = float(np.ptp(scale))
        heat[busy] = 0.5
        if spread > 1e-9:
            heat[busy] = (scale - scale.min()) / spread
    return heat


def _plain(amount: float) -> str:
    if 1 <= amount < 1e6:
        return f"{amount:,.0f}"
    return f"{amount:.3g}"


def _note(amounts: FloatArray, unit: Callable[[float], str]) -> str:
    busy = amounts[amounts > 0]
    if not len(busy):
        return "no traffic"
    least = unit(float(busy.min()))
    most = unit(float(busy.max()))
    if least == most:
        return f"traffic per edge: {most}"
    return f"traffic per edge: {least} (thin) to {most} (wide), log scale"


def _write_labels(
    ax: Axes, positions: FloatArray, names: list[str], diameter: float, outside: bool
) -> None:
    if not outside:
        size = min(0.45 * diameter, 10.0)
        for name, (x, y) in zip(names, positions, strict=True):
            ax.text(
                x, y, name, ha="center", va="center_baseline", color="white", size=size, zorder=3
            )
        return
    distance = 0.5 * diameter + 4.0
    for name, point, (right, up) in zip(names, positions, _outward(positions), strict=True):
        ax.annotate(
            name,
            point,
            xytext=(right * distance, up * distance),
            textcoords="offset points",
            ha=_alignment(right, 0.3, "left", "right"),
            va=_alignment(up, 0.7, "bottom", "top"),
            color=INK,
            size=9,
            zorder=3,
        )


def _alignment(direction: float, centred_below: float, positive: str, negative: str) -> str:
    if abs(direction) < centred_below:
        return "center"
    if direction > 0:
        return positive
    return negative


def _outward(positions: FloatArray) -> FloatArray:
    """The direction from an agent to its name: away from the centre for agents on a circle,
    otherwise below.
    """
    arms = positions - positions.mean(axis=0)
    radii = np.linalg.norm(arms, axis=1)
    below = np.tile([0.0, -1.0], (len(positions), 1))
    rim = radii > 0.9 * radii.max()
    if len(positions) < 3 or rim.sum() < len(positions) - 1:
        return below
    lengths = np.where(radii, radii, 1.0)
    return np.where(rim[:, None], arms / lengths[:, None], below)
