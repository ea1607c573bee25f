"""What is no network is refused before anything is sent, with the offending entries and the fix in
the message.
"""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
import scipy.sparse as sp

from coterie.errors import InvalidNetwork, UnknownName
from coterie.networks import (
    Network,
    complete,
    erdos_renyi,
    expander,
    from_adjacency,
    from_edges,
    from_networkx,
    geometric,
    network,
    ring,
    star,
)


def edited(net: Network, *entries: tuple[int, int, float]) -> np.ndarray:
    W = net.weights.toarray()
    for i, j, value in entries:
        W[i, j] = value
    return W


def refused(*parts: str):
    """A context in which an InvalidNetwork with all these parts in its message must be raised."""
    return pytest.raises(
        InvalidNetwork, match="(?s)" + "".join(f"(?=.*{part})" for part in map(_literal, parts))
    )


def _literal(text: str) -> str:
    return "".join(f"\\{c}" if c in r".^$*+?{}[]\|()" else c for c in text)


BAD_ADJACENCY = {
    "not square": (np.ones((2, 3)), ["square", "2 × 3", "from_edges"]),
    "a vector": (np.ones(4), ["square", "is 4"]),
    "ragged": ([[0, 1], [1]], ["equal length"]),
    "empty": (np.zeros((0, 0)), ["at least 1"]),
    "words": ([["a", "b"], ["b", "a"]], ["real numbers"]),
    "complex": (np.eye(2) * 1j, ["real numbers", "complex128"]),
    "nan": (edited(ring(4), (0, 1, np.nan)), ["finite", "(0, 1) is nan"]),
    "inf": (edited(ring(4), (2, 3, np.inf)), ["finite", "(2, 3) is inf"]),
    "self loops": (edited(ring(4), (1, 1, 1), (3, 3, 2)), ["itself", "1, 3", "diagonal to 0"]),
    "negative": (
        edited(ring(4), (0, 1, -1), (1, 0, -1)),
        ["positive", "(0, 1) is -1", "(1, 0) is -1"],
    ),
    "asymmetric": (
        edited(ring(4), (0, 1, 2.5), (3, 2, 0)),
        [
            "symmetric",
            "(0, 1) is 2.5 but (1, 0) is 1",
            "(2, 3) is 1 but (3, 2) is 0",
            "(W + W.T) / 2",
        ],
    ),
    "very asymmetric": (
        np.triu(np.ones((5, 5)), 1),
        ["symmetric", "(0, 1) is 1 but (1, 0) is 0", "(10 in total)"],
    ),
    "apart": (
        edited(ring(6), (0, 1, 0), (1, 0, 0), (3, 4, 0), (4, 3, 0)),
        ["not connected", "2 components", "{1, 2, 3}", "{0, 4, 5}", "(0, 1)"],
    ),
}


@pytest.mark.parametrize("kind", BAD_ADJACENCY)
@pytest.mark.parametrize(
    "door", [from_adjacency, lambda W: network(W, 4 if len(W) == 4 else len(W) or 1)]
)
def test_bad_adjacency(kind, door):
    matrix, parts = BAD_ADJACENCY[kind]
    with refused(*parts):
        door(matrix)


@pytest.mark.parametrize(
    "kind", [k for k, (W, _) in BAD_ADJACENCY.items() if getattr(W, "ndim", 0) == 2 and len(W)]
)
def test_bad_adjacency_sparse(kind):
    matrix, parts = BAD_ADJACENCY[kind]
    with refused(*parts):
        from_adjacency(sp.coo_matrix(matrix))


def test_components_are_listed_shortly():
    blocks = sp.block_diag([complete(2).weights, np.zeros((1, 1)), complete(12).weights])
    with refused("3 components: {0, 1}, {2}, {3, 4, …(12 agents)}", "Add edges", "(0, 2), (0, 3)"):
        from_adjacency(blocks)
    with refused("20 components: {0}, {1}, {2}, {3}, … and 16 more"):
        from_adjacency(np.zeros((20, 20)))


@pytest.mark.parametrize(
    "door",
    [
        lambda: network(Network(np.zeros((2, 2))), 2),
        lambda: network(nx.empty_graph(2), 2),
        lambda: from_networkx(nx.empty_graph(2)),
        lambda: from_edges([], agents=2),
        lambda: Network(np.zeros((2, 2))).diameter,
        lambda: Network(np.zeros((2, 2))).tree(),
        lambda: Network(np.zeros((2, 2))).laplacian_pinv_norm(),
    ],
)
def test_every_door_refuses_what_falls_apart(door):
    with refused("2 components: {0}, {1}"):
        door()


@pytest.mark.parametrize(
    "spec", [ring(6), ring(6).to_networkx(), ring(6).weights, ring(6).weights.toarray()]
)
def test_size_must_match_the_data(spec):
    with refused(
        "the network has 6 agents but the data has 8 parties",
        "network of 8 agents",
        "into 6 parties",
    ):
        network(spec, 8)


def test_unknown_names():
    with pytest.raises(UnknownName, match=r"no network called 'rnig'\. Did you mean 'ring'"):
        network("rnig", 8)
    with pytest.raises(UnknownName, match="Known: complete, erdos-renyi"):
        network("xyzzy", 8)
    with pytest.raises(
        UnknownName,
        match=r"parameter of 'erdos-renyi' called 'probabilty'\. Did you mean 'probability'",
    ):
        network("erdos-renyi", 8, probabilty=0.5)
    with pytest.raises(
        UnknownName, match=r"mixing rule called 'metropoils'\. Did you mean 'metropolis'"
    ):
        ring(4).mixing("metropoils")
    with refused("only a named topology takes probability"):
        network(ring(4), 4, probability=0.5)


@pytest.mark.parametrize("spec", [None, ring])
def test_what_is_no_network_at_all(spec):
    with refused("a network is a name", "lattice", "networkx graph", "edge file"):
        network(spec, 4)


@pytest.mark.parametrize("agents", [0, -3, 2.0, "8", True, None])
def test_agents_must_be_a_whole_number(agents):
    for build in (
        complete,
        star,
        ring,
        erdos_renyi,
        geometric,
        expander,
        lambda m: network("path", m),
    ):
        with refused("whole number of agents, at least 1", repr(agents)):
            build(agents)


# Random topologies


def test_hopeless_random_graphs_name_a_larger_parameter():
    with refused(
        "1000 random graphs", "'erdos-renyi' with 30 agents", "Use probability=0.23 or more"
    ):
        erdos_renyi(30, 0.01)
    assert erdos_renyi(30, 0.23).is_connected
    with refused("1000 random graphs", "Use radius=0.27 or more"):
        geometric(30, 0.05)
    assert geometric(30, 0.27).is_connected


@pytest.mark.parametrize("probability", [0, -0.1, 1.5, float("nan")])
def test_probability(probability):
    with refused("above 0 and at most 1", repr(probability)):
        erdos_renyi(8, probability)


@pytest.mark.parametrize("radius", [0, -1, float("nan"), float("inf")])
def test_radius(radius):
    with refused("positive number", repr(radius)):
        geometric(8, radius)


@pytest.mark.parametrize(
    ("agents", "degree", "parts"),
    [
        (4, 4, ["no agent can have 4 neighbours", "degree=3 or less"]),
        (1, 4, ["no agent can have 4", "complete(1)"]),
        (7, 3, ["3 × 7 is odd", "degree=2", "8 agents"]),
        (6, 1, ["not connected", "degree=2"]),
        (6, 0, ["whole number, at least 1"]),
        (6, 2.5, ["whole number, at least 1", "2.5"]),
    ],
)
def test_expander_degrees(agents, degree, parts):
    with refused(*parts):
        expander(agents, degree)


# networkx and edge files


def test_bad_graphs():
    with refused("directed", "to_undirected()"):
        from_networkx(nx.DiGraph([(0, 1)]))
    with refused("parallel edges", "networkx.Graph(graph)"):
        network(nx.MultiGraph([(0, 1), (0, 1)]), 2)
    with refused("at least 1"):
        from_networkx(nx.Graph())
    with refused("itself", "at 1."):
        from_networkx(nx.Graph([(0, 1), (1, 1)]))
    for weight in (0, -2.0, float("nan"), "heavy"):
        with refused("('a', 'b')", "positive number", repr(weight), "Leave out"):
            from_networkx(nx.Graph([("a", "b", {"weight": weight})]))


BAD_FILES = {
    "too few": ("0 1\n2\n", ["net.txt, line 2", "'0 1 2.5'", "not '2'"]),
    "too many": ("0 1 1 1\n", ["line 1", "0 1 1 1"]),
    "words": ("0 1\na b\n", ["line 2", "a b"]),
    "negative agent": ("0 -1\n", ["line 1", "counted from 0"]),
    "fraction": ("0 1\n1 2.5\n", ["line 2", "1 2.5"]),
    "weight": ("# x\n\n0 1 -3\n", ["line 3", "positive number", "-3"]),
    "zero weight": ("0 1 0\n", ["line 1", "positive number"]),
    "infinite": ("0 1 inf\n", ["line 1", "positive number"]),
    "two weights": ("0 1 2\n1 0 3\n", ["(0, 1)", "two weights, 2 and 3"]),
    "self loop": ("0 1\n1 1\n", ["itself", "1"]),
    "nothing": ("# nothing\n", ["no edges", "agents="]),
    "from one": ("1 2\n2 3\n", ["not connected", "{0}, {1, 2, 3}"]),
}


@pytest.mark.parametrize("kind", BAD_FILES)
def test_bad_edge_files(kind, tmp_path):
    text, parts = BAD_FILES[kind]
    file = tmp_path / "net.txt"
    file.write_text(text, encoding="utf-8")
    with refused(*parts):
        from_edges(file)


def test_edges_beyond_the_agents(tmp_path):
    file = tmp_path / "net"
    file.write_text("1 2\n2 3\n3 1\n")
    for door in (
        lambda: network(file, 3),
        lambda: network(str(file), 3),
        lambda: from_edges([(1, 3)], agents=3),
    ):
        with refused("names agent 3", "called 0 to 2", "Count agents from 0", "agents=4"):
            door()


def test_files_that_cannot_be_read(tmp_path):
    with refused("missing.txt", "cannot be read", "No such file"):
        network("missing.txt", 4)
    with refused("cannot be read"):
        from_edges(tmp_path)
    (tmp_path / "picture.png").write_bytes(b"\x89PNG\xff\xfe")
    with refused("picture.png", "not a text file"):
        from_edges(tmp_path / "picture.png")


@pytest.mark.parametrize(
    "edge", [(0,), (0, 1, 2, 3), (0.5, 1), ("a", 1), 7, (0, None), (0, float("nan"))]
)
def test_bad_edges(edge):
    with refused("edge", "two agents"):
        from_edges([(0, 1), edge])


# Mixing matrices


GOOD = ring(5).metropolis().toarray()


def changed(*entries: tuple[int, int, float]) -> np.ndarray:
    A = GOOD.copy()
    for i, j, change in entries:
        A[i, j] += change
    return A


BAD_MIXING = {
    "rows": (changed((2, 2, 0.5)), ["sum to 1", "row 2 sums to 1.5", "metropolis()"]),
    "columns": (
        changed((0, 1, 0.1), (0, 0, -0.1)),
        ["symmetric", "(0, 1) is 0.433333 but (1, 0) is 0.333333"],
    ),
    "negative": (
        changed((0, 1, -0.5), (1, 0, -0.5), (0, 0, 0.5), (1, 1, 0.5)),
        ["not be negative", "(0, 1) is -0.166667", "(1, 0)"],
    ),
    "outside": (
        changed((0, 2, 0.1), (2, 0, 0.1), (0, 0, -0.1), (2, 2, -0.1)),
        ["no edge", "(0, 2) is 0.1", "Add these edges"],
    ),
    "size": (np.eye(4), ["4 × 4", "5 agents"]),
    "shape": (np.ones((5, 4)), ["square", "5 × 4"]),
    "nan": (changed((1, 1, np.nan)), ["finite", "(1, 1) is nan"]),
}


@pytest.mark.parametrize("kind", BAD_MIXING)
@pytest.mark.parametrize("door", ["check_mixing", "mixing", "spectral_gap"])
@pytest.mark.parametrize("form", [np.asarray, sp.csr_matrix])
def test_bad_mixing(kind, door, form):
    matrix, parts = BAD_MIXING[kind]
    with refused(*parts):
        getattr(ring(5), door)(form(matrix))


def test_the_laplacian_is_no_mixing_matrix():
    with refused("'laplacian-mixing'"):
        ring(5).spectral_gap("laplacian")
    with refused("sum to 1"):
        complete(2).mixing(np.array([[1, 1], [1, 1]]))


@pytest.mark.parametrize("step", [0, -1, 0.5, float("nan"), float("inf")])
def test_laplacian_mixing_steps(step):
    with refused("positive step", "below 1 / 2"):
        ring(5).laplacian_mixing(step)


@pytest.mark.parametrize(
    "ask", ["laplacian", "metropolis", "laplacian_mixing", "spectral_gap", "laplacian_norm"]
)
def test_nothing_mixes_through_a_server(ask):
    with refused("only to a server", "agent 0 as hub"):
        getattr(star(4, server=True), ask)()


# The rest


def test_bad_fields():
    with refused("no edges among themselves", "4 are given"):
        Network(ring(4).weights, server=True)
    with refused("4 × 2 finite", "(3, 2)"):
        Network(ring(4).weights, positions=np.zeros((3, 2)))
    for agent in (-1, 4):
        with refused(f"no agent {agent}", "0 to 3"):
            ring(4).neighbours(agent)
        with refused(f"no agent {agent}", "0 to 3"):
            ring(4).tree(agent)
