"""Drawings of networks: every agent, every link, traffic on a logarithmic scale, and what is
refused.
"""

from __future__ import annotations

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.collections import LineCollection, PathCollection
from matplotlib.figure import Figure

from coterie.networks import TOPOLOGIES, Network, complete, erdos_renyi, path, star
from coterie.report import draw_network
from tests.networks.test_bad_networks import refused
from tests.networks.test_networks import build


def artists(ax) -> tuple[PathCollection, LineCollection, list[str]]:
    dots = next(c for c in ax.collections if isinstance(c, PathCollection))
    lines = next(c for c in ax.collections if isinstance(c, LineCollection))
    return dots, lines, [text.get_text() for text in ax.texts]


@pytest.mark.parametrize("name", TOPOLOGIES)
@pytest.mark.parametrize("agents", [2, 16, 70])
def test_drawing(name, agents):
    net = build(name, agents)
    settings_before = dict(mpl.rcParams)
    ax = draw_network(net)
    dots, lines, texts = artists(ax)
    assert len(dots.get_offsets()) == agents
    assert len(lines.get_segments()) == net.n_edges
    assert texts == ([str(j) for j in range(agents)] if agents <= 64 else [])
    segment, (i, j) = lines.get_segments()[-1], net.edges[-1]
    assert np.allclose(segment, dots.get_offsets()[[i, j]])
    (left, right), (bottom, top) = ax.get_xlim(), ax.get_ylim()
    assert all(left < x < right and bottom < y < top for x, y in dots.get_offsets())
    assert not ax.axison
    ax.figure.canvas.draw()
    assert dict(mpl.rcParams) == settings_before


def test_drawing_a_server_traffic_labels_and_highlight():
    names = ["north", "east", "south", "west"]
    traffic = {(0, -1): 10.0, (-1, 0): 90.0, (1, -1): 1e4, (-1, 2): 1e6}
    own = Figure().add_subplot()
    ax = draw_network(star(4, server=True), own, traffic=traffic, labels=names, highlight=2)
    assert ax is own
    dots, lines, texts = artists(ax)
    squares = [c for c in ax.collections if isinstance(c, PathCollection)][1:]
    assert [len(c.get_offsets()) for c in squares] == [1]
    assert np.allclose(squares[0].get_offsets(), np.mean(dots.get_offsets(), axis=0))
    assert len(lines.get_segments()) == 4
    thin, middle, wide, silent = lines.get_linewidths()
    assert silent <= thin < middle < wide
    assert middle == pytest.approx(
        (thin + wide) / 2
    )  # 100, 10,000 and 1,000,000 are equally far apart
    assert set(names) <= set(texts)
    assert "traffic per edge: 100 (thin) to 1e+06 (wide), log scale" in texts
    colours = [tuple(colour) for colour in dots.get_facecolors()]
    assert colours.count(colours[2]) == 1


def test_drawing_is_the_same_every_time():
    net = erdos_renyi(20, 0.3)
    assert np.array_equal(
        artists(draw_network(net))[0].get_offsets(), artists(draw_network(net))[0].get_offsets()
    )


@pytest.mark.parametrize(
    "net", [complete(1), star(1, server=True), Network(np.zeros((3, 3))), complete(110)], ids=repr
)
def test_drawing_of_extremes(net):
    ax = draw_network(net, traffic={})
    dots, lines, texts = artists(ax)
    assert len(dots.get_offsets()) == net.agents
    assert len(lines.get_segments()) == (net.agents if net.server else net.n_edges)
    assert "no traffic" in texts
    assert all(np.ptp(segment, axis=0).any() for segment in lines.get_segments())
    ax.figure.canvas.draw()


@pytest.mark.parametrize(
    ("keywords", "parts"),
    [
        ({"labels": ["a", "b"]}, ["3 agents but 2 labels"]),
        ({"highlight": 3}, ["no agent 3", "0 to 2"]),
        ({"traffic": {(0, 2): 1.0}}, ["(0, 2)", "on an edge"]),
        ({"traffic": {(0, 1): -1.0}}, ["-1.0", "at least 0"]),
        ({"traffic": {(0, -1): 1.0}}, ["(0, -1)", "on an edge"]),
    ],
)
def test_bad_drawings(keywords, parts):
    with refused(*parts):
        draw_network(path(3), **keywords)
