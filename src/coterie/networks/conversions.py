"""Networks from a networkx graph, an adjacency matrix, or a list or file of edges.

An edge file has one edge per line, "i j" or "i j weight", separated by blanks, commas or
semicolons; agents are counted from 0, a `#` starts a comment, and a first line of words is a
header:

    # a triangle with one strong edge
    0 1
    1 2 2.5
    0 2
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from coterie.errors import InvalidNetwork
from coterie.networks.checks import check_agents
from coterie.networks.network import Network
from coterie.numerics.arrays import FloatArray, Matrix

if TYPE_CHECKING:
    import networkx as nx

Edge = tuple[int, int, float]


def from_adjacency(matrix: Matrix, *, connected: bool = True) -> Network:
    """A network from a symmetric m × m matrix of weights, dense or sparse; 0 means no edge."""
    return _checked(Network(matrix), connected)


def from_networkx(graph: nx.Graph, *, connected: bool = True) -> Network:
    """A network from an undirected graph; the edge attribute "weight" counts, 1 where there is
    none.

    Nodes that are called 0 to m − 1 keep their numbers; others are numbered in the order in which
    they were added. The node attribute "pos" becomes the positions if every node has one.
    """
    if graph.is_directed():
        raise InvalidNetwork(
            "edges of a network have no direction, but this graph is directed. Use "
            "graph.to_undirected()."
        )
    if graph.is_multigraph():
        raise InvalidNetwork(
            "the graph may have parallel edges. Use networkx.Graph(graph), with summed weights if "
            "wanted."
        )
    nodes = list(graph.nodes)
    m = check_agents(len(nodes))
    if all(isinstance(node, int | np.integer) for node in nodes) and set(nodes) == set(range(m)):
        nodes.sort()
    number = {node: j for j, node in enumerate(nodes)}
    edges = []
    for u, v, weight in graph.edges(data="weight"):
        edges.append((number[u], number[v], _weight(weight, f"edge ({u!r}, {v!r})")))
    name = graph.name or "custom"
    return _checked(
        Network(_assembled(edges, m), name, positions=_positions(graph, nodes)), connected
    )


def _positions(graph: nx.Graph, nodes: Sequence[Any]) -> FloatArray | None:
    """The node attribute "pos" of all nodes; None unless every node has one."""
    points = [graph.nodes[node].get("pos") for node in nodes]
    if any(point is None or len(point) != 2 for point in points):
        return None
    return np.array(points, dtype=float)


def from_edges(
    source: str | os.PathLike[str] | Iterable[Sequence[float]],
    agents: int | None = None,
    *,
    connected: bool = True,
) -> Network:
    """A network from an edge file, or from (i, j) and (i, j, weight); `agents` defaults to the
    largest number + 1.
    """
    if isinstance(source, str | os.PathLike):
        path = Path(source)
        edges = _read(path)
        name = path.stem
    else:
        edges = [_edge(fields, f"edge {fields!r}") for fields in source]
        name = "custom"
    if agents is None:
        if not edges:
            raise InvalidNetwork(
                "there are no edges, so the number of agents is unknown. Give it as agents=."
            )
        agents = 1 + max(max(i, j) for i, j, _ in edges)
    m = check_agents(agents)
    beyond = next(((i, j) for i, j, _ in edges if max(i, j) >= m), None)
    if beyond is not None:
        raise InvalidNetwork(
            f"the edge {beyond} names agent {max(beyond)}, but the {m} agents are called 0 to "
            f"{m - 1}. "
            f"Count agents from 0, or give agents={max(beyond) + 1}."
        )
    return _checked(Network(_assembled(edges, m), name), connected)


def _checked(network: Network, connected: bool) -> Network:
    if connected:
        network.check_connected()
    return network


def _read(path: Path) -> list[Edge]:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not a text file"
        raise InvalidNetwork(f"the edge file {str(path)!r} cannot be read: {reason}.") from None
    lines = (
        (number, line.partition("#")[0]) for number, line in enumerate(text.splitlines(), start=1)
    )
    rows = [
        (number, line.replace(",", " ").replace(";", " ").split())
        for number, line in lines
        if line.strip()
    ]
    if rows and not any(_is_number(field) for field in rows[0][1]):
        del rows[0]
    return [_edge(fields, f"{path.name}, line {number}") for number, fields in rows]


def _edge(fields: Sequence[Any], where: str) -> Edge:
    try:
        i, j, weight = fields if len(fields) == 3 else (*fields, 1.0)
        ends = [int(i), int(j)]
        if any(end < 0 or end != float(given) for end, given in zip(ends, (i, j), strict=True)):
            raise ValueError
    except (TypeError, ValueError, OverflowError):
        shown = (
            " ".join(map(str, fields))
            if isinstance(fields, Sequence | np.ndarray)
            else repr(fields)
        )
        raise InvalidNetwork(
            f"{where}: an edge is two agents, counted from 0, and perhaps a weight, like '0 1' or "
            "'0 1 2.5', "
            f"not {shown!r}."
        ) from None
    return ends[0], ends[1], _weight(weight, where)


def _weight(weight: Any, where: str) -> float:
    try:
        number = 1.0 if weight is None else float(weight)
    except (TypeError, ValueError):
        number = float("nan")
    if not (number > 0 and np.isfinite(number)):
        raise InvalidNetwork(
            f"{where}: a weight must be a positive number, not {weight!r}. Leave out an edge that "
            "carries nothing."
        )
    return number


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _assembled(edges: Iterable[Edge], agents: int) -> Matrix:
    """The weights matrix; an edge may be listed twice, in either direction, as long as its weight
    is the same.
    """
    weight_of: dict[tuple[int, int], float] = {}
    for i, j, weight in edges:
        pair = (min(i, j), max(i, j))
        if weight_of.setdefault(pair, weight) != weight:
            raise InvalidNetwork(
                f"the edge {pair} is listed with two weights, {weight_of[pair]:g} and {weight:g}. "
                "Edges have no direction: give each one weight."
            )
    pairs = np.array(list(weight_of), dtype=np.intp).reshape(-1, 2)
    weights = np.array(list(weight_of.values()), dtype=float)
    upper = sp.coo_array((weights, (pairs[:, 0], pairs[:, 1])), (agents, agents))
    return sp.csr_array(upper + upper.T)
