"""Laws of networks, for every topology of the catalogue and for random weighted graphs."""

from __future__ import annotations

import math

import networkx as nx
import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie import networks
from coterie.errors import InvalidNetwork
from coterie.networks import (
    MIXING_RULES,
    TOPOLOGIES,
    Network,
    complete,
    erdos_renyi,
    expander,
    from_adjacency,
    from_edges,
    from_networkx,
    geometric,
    lattice,
    network,
    path,
    ramanujan,
    ring,
    star,
)
from coterie.networks.spectrum import DENSE_LIMIT

RANDOM = {"erdos-renyi", "expander", "geometric", "ramanujan"}
REGULAR = ("expander", "ramanujan")
GENTLE = {"geometric": {"radius": 0.6}, "expander": {"degree": 1}, "ramanujan": {"degree": 1}}
SIZES = (1, 2, 3, 5, 8, 16, 31)


def build(name: str, agents: int) -> Network:
    """That topology, with parameters that exist for the size."""
    if name in REGULAR:
        return network(name, agents, degree=1 if agents == 2 else 4 if agents > 4 else 2)
    return network(name, agents, **GENTLE.get(name, {}))


CASES = [
    pytest.param(name, agents, id=f"{name}-{agents}")
    for name in TOPOLOGIES
    for agents in SIZES
    if name not in REGULAR or agents > 1
]


@st.composite
def weighted_networks(draw_from: st.DrawFn) -> Network:
    """A random spanning tree plus random edges, with weights over six orders of magnitude."""
    m = draw_from(st.integers(1, 12))
    weight = st.floats(1e-3, 1e3)
    W = np.zeros((m, m))
    for j in range(1, m):
        W[j, draw_from(st.integers(0, j - 1))] = draw_from(weight)
    for i, j in draw_from(
        st.lists(st.tuples(st.integers(0, m - 1), st.integers(0, m - 1)), max_size=15)
    ):
        if i != j:
            W[max(i, j), min(i, j)] = draw_from(weight)
    return from_adjacency(W + W.T)


def check_matrices(net: Network) -> None:
    W, L = net.weights.toarray(), net.laplacian().toarray()
    m = net.agents
    assert np.array_equal(L, L.T)
    assert np.allclose(L, np.diag(W.sum(axis=1)) - W, rtol=1e-14, atol=0)
    eigenvalues = np.linalg.eigvalsh(L)
    scale = max(eigenvalues[-1], 1.0)
    assert np.allclose(L.sum(axis=1), 0, atol=1e-12 * scale)
    assert eigenvalues[0] > -1e-12 * scale
    assert (eigenvalues > 1e-13 * scale).sum() == m - 1  # the null space is the constants alone
    assert net.laplacian_norm() == pytest.approx(np.linalg.norm(L, 2), rel=1e-10)
    assert net.laplacian_pinv_norm() == pytest.approx(
        np.linalg.norm(np.linalg.pinv(L, rcond=1e-13), 2), rel=1e-6
    )
    for rule in ("metropolis", "laplacian-mixing"):
        A = net.mixing(rule).toarray()
        assert np.array_equal(A, A.T)
        assert (A >= 0).all()
        assert (np.diag(A) > 0).all()
        assert np.allclose(A.sum(axis=1), 1, atol=1e-14)
        assert np.array_equal((A > 0) & ~np.eye(m, dtype=bool), W > 0)
        moduli = np.sort(np.abs(np.linalg.eigvalsh(A)))
        second = moduli[-2] if m > 1 else 0.0
        assert net.spectral_gap(rule) == pytest.approx(1 - second, abs=1e-12)
        assert net.spectral_gap(A) == pytest.approx(1 - second, abs=1e-12)
        assert net.check_mixing(A).toarray() == pytest.approx(A)
    i, j = net.edges.T
    counts = (W > 0).sum(axis=1)
    assert net.metropolis().toarray()[i, j] == pytest.approx(
        1 / (1 + np.maximum(counts[i], counts[j]))
    )


def check_graph(net: Network) -> None:
    W, m = net.weights.toarray(), net.agents
    edges = [(i, j) for i in range(m) for j in range(i + 1, m) if W[i, j]]
    assert [tuple(edge) for edge in net.edges.tolist()] == edges
    assert net.edges.shape == (net.n_edges, 2)
    assert net.n_edges == len(edges)
    for j in range(m):
        assert net.neighbours(j) == tuple(np.flatnonzero(W[j]))
        assert net.neighbour_counts[j] == np.count_nonzero(W[j])
    assert net.degrees == pytest.approx(W.sum(axis=1))
    graph = nx.from_numpy_array(W)
    assert net.is_connected
    assert net.diameter == nx.diameter(graph)
    for root in {0, m // 2, m - 1}:
        tree = net.tree(root)
        hops = nx.single_source_shortest_path_length(graph, root)
        assert tree.depth == max(hops.values()) <= net.diameter
        assert tree.order[0] == root
        assert sorted(tree.order) == list(range(m))
        assert tree.parents[root] == -1
        for j in set(range(m)) - {root}:
            parent = tree.parents[j]
            assert parent in net.neighbours(j)
            assert hops[parent] == hops[j] - 1  # so that every chain of parents ends at the root
            assert list(tree.order).index(parent) < list(tree.order).index(j)


@pytest.mark.parametrize(("name", "agents"), CASES)
def test_topology(name, agents):
    net = build(name, agents)
    assert (net.agents, net.name, net.server) == (agents, name, False)
    assert set(net.weights.data) <= {1.0}
    check_graph(net)
    check_matrices(net)


@settings(deadline=None, max_examples=60)
@given(weighted_networks())
def test_weighted_network(net):
    check_graph(net)
    check_matrices(net)


@settings(deadline=None, max_examples=30)
@given(weighted_networks(), st.floats(0.01, 0.99))
def test_laplacian_mixing_with_a_step(net, part):
    step = part / max(net.degrees.max(), 1e-9)
    A = net.laplacian_mixing(step).toarray()
    assert np.allclose(A, np.eye(net.agents) - step * net.laplacian().toarray(), atol=1e-15)
    assert (A >= 0).all()


@settings(deadline=None, max_examples=20)
@given(weighted_networks(), st.floats(1e-6, 1e6))
def test_default_mixing_does_not_depend_on_the_unit_of_the_weights(net, unit):
    scaled = Network(net.weights * unit)
    for rule in ("metropolis", "laplacian-mixing"):
        assert np.allclose(scaled.mixing(rule).toarray(), net.mixing(rule).toarray())


def test_mixing_repeatedly_averages():
    x = np.arange(8.0)
    for rule in ("metropolis", "laplacian-mixing"):
        A = ring(8).mixing(rule)
        mixed = x
        for _ in range(400):
            mixed = A @ mixed
        assert mixed == pytest.approx(np.full(8, x.mean()))


def test_spectral_gap_sees_oscillation():
    """Two agents that only swap have λ = 1, −1 and never agree; 0.9 of it leaves |λ₂| = 0.8."""
    swap = np.array([[0.0, 1.0], [1.0, 0.0]])
    assert path(2).spectral_gap(swap) == pytest.approx(0.0)
    assert path(2).spectral_gap(0.9 * swap + 0.1 * np.eye(2)) == pytest.approx(0.2)


def test_laplacian_rule_is_the_laplacian():
    net = star(5)
    assert set(MIXING_RULES) == {"laplacian", "laplacian-mixing", "metropolis"}
    assert np.array_equal(net.mixing("laplacian").toarray(), net.laplacian().toarray())
    assert np.array_equal(
        net.mixing("laplacian_mixing").toarray(), net.laplacian_mixing().toarray()
    )


# Closed forms


@pytest.mark.parametrize("m", [3, 4, 9])
def test_closed_forms(m):
    assert set(ring(m).neighbour_counts) == {2}
    assert set(complete(m).neighbour_counts) == {m - 1}
    assert star(m).neighbour_counts.tolist() == [m - 1] + [1] * (m - 1)
    assert path(m).neighbour_counts.tolist() == [1] + [2] * (m - 2) + [1]
    assert (ring(m).diameter, path(m).diameter, star(m).diameter, complete(m).diameter) == (
        m // 2,
        m - 1,
        2,
        1,
    )
    assert complete(m).laplacian_norm() == pytest.approx(m)
    assert complete(m).spectral_gap() == pytest.approx(1)
    assert star(m).laplacian_pinv_norm() == pytest.approx(1)
    assert path(m).laplacian_pinv_norm() == pytest.approx(1 / (2 - 2 * math.cos(math.pi / m)))


@pytest.mark.parametrize(
    ("m", "rows", "columns"), [(64, 8, 8), (32, 4, 8), (8, 2, 4), (12, 3, 4), (15, 3, 5), (9, 3, 3)]
)
def test_lattice_is_a_kings_graph(m, rows, columns):
    net = lattice(m)
    cells = [divmod(k, columns) for k in range(m)]
    kings = {
        (a, b)
        for a in range(m)
        for b in range(a + 1, m)
        if max(abs(cells[a][0] - cells[b][0]), abs(cells[a][1] - cells[b][1])) == 1
    }
    assert {tuple(edge) for edge in net.edges.tolist()} == kings
    corners = {0, columns - 1, m - columns, m - 1}
    for k, (row, column) in enumerate(cells):
        if min(rows, columns) >= 2:
            sides = (row in (0, rows - 1)) + (column in (0, columns - 1))
            assert net.neighbour_counts[k] == (8, 5, 3)[sides] or rows == 2
    assert {net.neighbour_counts[k] for k in corners} == {3}
    assert net.diameter == columns - 1


@pytest.mark.parametrize(("m", "last_row"), [(5, 2), (7, 1), (31, 1), (23, 3)])
def test_lattice_of_a_prime_has_a_part_of_a_last_row(m, last_row):
    net = lattice(m)
    columns = math.ceil(math.sqrt(m))
    assert m % columns == last_row
    rows = net.positions[:, 1]
    assert (rows == rows.min()).sum() == last_row
    assert net.diameter <= columns


def test_expander_is_regular():
    for degree, m in ((4, 30), (3, 10), (6, 7)):
        assert set(expander(m, degree).neighbour_counts) == {degree}


@pytest.mark.parametrize(("agents", "degree"), [(12, 3), (30, 4), (64, 3), (100, 6)])
def test_ramanujan_graphs_keep_their_bound(agents, degree):
    attempts = []
    for seed in range(4):
        net = ramanujan(agents, degree, seed)
        assert set(net.neighbour_counts) == {degree}
        adjacency = np.linalg.eigvalsh(net.weights.toarray())
        largest = np.abs(adjacency[np.abs(np.abs(adjacency) - degree) > 1e-9]).max()
        assert largest <= 2 * np.sqrt(degree - 1) + 1e-9
        delta = degree - 2 * np.sqrt(degree - 1)
        assert np.linalg.eigvalsh(net.laplacian().toarray())[1] >= delta - 1e-9
        attempts.append(net.attempts)
    assert max(attempts) < 40


def test_a_graph_with_a_long_way_around_is_not_ramanujan(monkeypatch):
    monkeypatch.setattr(networks.topologies, "MAX_ATTEMPTS", 3)
    ladder = from_networkx(nx.circular_ladder_graph(40))
    monkeypatch.setattr(networks.topologies, "expander", lambda *_: ladder)
    with pytest.raises(InvalidNetwork, match="none is a Ramanujan graph"):
        ramanujan(80, 3)


def test_geometric_edges_are_the_short_pairs():
    net = geometric(40, 0.3, seed=3)
    gaps = np.linalg.norm(net.positions[:, None] - net.positions[None], axis=2)
    assert np.array_equal(net.weights.toarray() > 0, (gaps <= 0.3) & ~np.eye(40, dtype=bool))


def test_erdos_renyi_has_the_probability_that_was_asked_for():
    assert erdos_renyi(200, 0.3).n_edges == pytest.approx(0.3 * 19900, rel=0.05)
    assert erdos_renyi(20, 1.0).n_edges == 190


# Random topologies


@pytest.mark.parametrize("name", sorted(RANDOM))
def test_seed_decides(name):
    first, again, other = (network(name, 30, seed=seed) for seed in (5, 5, 6))
    assert np.array_equal(first.edges, again.edges)
    assert first.attempts == again.attempts
    assert not np.array_equal(first.edges, other.edges)


def test_attempts_are_counted():
    """G(32, 0.1) is connected about one time in three, so some seeds need several attempts and some
    only one.
    """
    drawn = [erdos_renyi(32, 0.1, seed=seed) for seed in range(40)]
    assert all(net.is_connected for net in drawn)
    attempts = [net.attempts for net in drawn]
    assert min(attempts) == 1
    assert 1 / np.mean(attempts) == pytest.approx(0.31, abs=0.12)
    again = next(net for net in drawn if net.attempts > 1)
    assert f"connected at attempt {again.attempts}" in again.describe()


# A server, a single agent


@pytest.mark.parametrize("m", [1, 8])
def test_star_with_a_server(m):
    net = star(m, server=True)
    assert (net.server, net.agents, net.n_edges, net.is_connected) == (True, m, 0, True)
    assert net.neighbours(m - 1) == ()
    assert net.diameter == (2 if m > 1 else 0)
    tree = net.tree()
    assert (tree.parents.tolist(), tree.depth) == ([-1] * m, 1)
    assert net.to_networkx().degree["server"] == m
    assert network("star", m, server=True).server


def test_single_agent():
    net = complete(1)
    assert (net.n_edges, net.diameter, net.spectral_gap()) == (0, 0, 1.0)
    assert (net.laplacian_norm(), net.laplacian_pinv_norm()) == (0.0, 0.0)
    assert net.tree().parents.tolist() == [-1]
    assert net.tree().depth == 0
    assert (
        net.metropolis().toarray().tolist() == net.laplacian_mixing().toarray().tolist() == [[1.0]]
    )


def test_describe():
    assert ring(8).describe() == "ring: 8 agents, 8 edges, diameter 4, spectral gap 0.2"
    assert path(2).describe() == "path: 2 agents, 1 edge, diameter 1, spectral gap 1"
    assert star(8, server=True).describe() == "star with a server: 8 agents, 8 links to the server"
    assert repr(ring(8)) == "<Network ring: 8 agents, 8 edges>"
    assert Network(np.zeros((2, 2))).describe() == "custom: 2 agents, 0 edges, not connected"


# Large networks: Lanczos agrees with closed forms


def test_large_networks():
    m = DENSE_LIMIT + 501
    angle = 2 * math.pi / m
    net = ring(m)
    assert net.laplacian_norm() == pytest.approx(2 + 2 * math.cos(angle / 2), rel=1e-7)  # m is odd
    assert net.laplacian_pinv_norm() == pytest.approx(1 / (2 - 2 * math.cos(angle)), rel=1e-7)
    assert net.spectral_gap() == pytest.approx((2 - 2 * math.cos(angle)) / 3, rel=1e-7)
    assert net.diameter == m // 2
    hub = star(m)
    assert (hub.laplacian_norm(), hub.laplacian_pinv_norm()) == (pytest.approx(m), pytest.approx(1))


# Doors in and out


def same(a: Network, b: Network) -> bool:
    return bool(abs(a.weights - b.weights).sum() == 0)


@settings(deadline=None, max_examples=40)
@given(weighted_networks())
def test_round_trips(net):
    text = [(int(i), int(j), float(net.weights[i, j])) for i, j in net.edges]
    for copy in (
        from_networkx(net.to_networkx()),
        from_adjacency(net.weights),
        from_adjacency(net.weights.tocoo()),
        from_adjacency(net.weights.toarray().tolist()),
        from_edges(text, net.agents),
        network(net.to_networkx(), net.agents),
        network(sp.csc_matrix(net.weights), net.agents),
        network(net, net.agents),
    ):
        assert same(copy, net)


@pytest.mark.parametrize("separator", [" ", "\t", ",", " ; "])
def test_edge_file(tmp_path, separator):
    file = tmp_path / "plant.csv"
    lines = [
        ["source", "target", "weight"],
        ["0", "1"],
        ["1", "2", "2.5"],
        ["2", "0", "1e-3"],
        ["0", "2", "0.001"],
    ]
    rows = [separator.join(line) + " # a remark" for line in lines]
    file.write_text("# a triangle\n\n" + "\n".join(rows) + "\n", encoding="utf-8")
    for net in (
        from_edges(file),
        from_edges(str(file), agents=3),
        network(file, 3),
        network(str(file), 3),
    ):
        assert net.name == "plant"
        assert net.weights.toarray().tolist() == [[0, 1, 1e-3], [1, 0, 2.5], [1e-3, 2.5, 0]]


def test_networkx_nodes():
    shuffled = nx.Graph([(2, 0), (0, 1)])
    assert from_networkx(shuffled).edges.tolist() == [[0, 1], [0, 2]]
    named = nx.Graph()
    named.add_edge("Porto", "Oslo", weight=3.0)
    named.add_edge("Oslo", "Cork")
    net = from_networkx(named)
    assert net.weights.toarray().tolist() == [[0, 3, 0], [3, 0, 1], [0, 1, 0]]
    plane = geometric(20, 0.5)
    assert np.array_equal(from_networkx(plane.to_networkx()).positions, plane.positions)


def test_names_with_dashes_or_underscores():
    assert list(TOPOLOGIES) == sorted(TOPOLOGIES)
    assert {
        "complete",
        "star",
        "path",
        "ring",
        "lattice",
        "erdos-renyi",
        "geometric",
        "expander",
    } <= set(TOPOLOGIES)
    assert same(network("erdos-renyi", 12, seed=4), network("erdos_renyi", 12, seed=4))
    assert same(network("erdos-renyi", 12, seed=4, probability=0.4), erdos_renyi(12, 0.4, 4))


def test_nobody_can_change_a_network():
    given_weights = np.array([[0.0, 1.0], [1.0, 0.0]])
    net = Network(given_weights)
    given_weights[:] = 7
    assert net.weights.toarray().tolist() == [[0, 1], [1, 0]]
    for matrix in (net.weights, net.laplacian(), net.metropolis(), net.laplacian_mixing()):
        with pytest.raises(ValueError, match="read-only"):
            matrix.data[0] = 5
    for array in (net.edges, net.degrees, net.neighbour_counts, net.tree().parents):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 5


def test_rounding_is_repaired():
    W = np.array([[0, 0.1 + 0.2], [0.3, 0]])
    assert W[0, 1] != W[1, 0]
    net = Network(W)
    assert net.weights[0, 1] == net.weights[1, 0]


def test_a_disconnected_network_exists_only_on_request():
    apart = np.zeros((3, 3))
    for net in (
        Network(apart),
        from_adjacency(apart, connected=False),
        network(apart, 3, connected=False),
    ):
        assert not net.is_connected
        assert net.neighbours(1) == ()


def test_public_names_are_sorted_and_exist():
    names = networks.__all__
    assert names == sorted(
        names, key=lambda name: (not name.isupper(), not name[0].isupper(), name)
    )
    assert all(hasattr(networks, name) for name in names)
