"""Networks: the links between agents.

    from coterie.networks import network
    network("ring", 8)
    network("erdos-renyi", 32, seed=1, probability=0.2)
    network(my_networkx_graph, 8)

A topology is a function `(agents, ...) -> Network` in any file of this folder, or one that was
registered (`co.register`); adding one adds its name.
"""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coterie.catalogue import Entries
from coterie.errors import InvalidNetwork, UnknownName
from coterie.networks.checks import check_agents
from coterie.networks.conversions import from_adjacency, from_edges, from_networkx
from coterie.networks.network import MIXING_RULES, Network, Tree
from coterie.networks.topologies import (
    complete,
    erdos_renyi,
    expander,
    geometric,
    lattice,
    path,
    ramanujan,
    ring,
    star,
)
from coterie.numerics.arrays import Matrix

if TYPE_CHECKING:
    import networkx as nx

__all__ = [
    "MIXING_RULES",
    "TOPOLOGIES",
    "Network",
    "Topology",
    "Tree",
    "complete",
    "erdos_renyi",
    "expander",
    "from_adjacency",
    "from_edges",
    "from_networkx",
    "geometric",
    "lattice",
    "network",
    "path",
    "ramanujan",
    "ring",
    "star",
]

Topology = Callable[..., Network]


class _Topologies(Entries[Topology]):
    """The functions `(agents, ...) -> Network`, by their names with dashes."""

    def takes(self, thing: object) -> bool:
        return inspect.isfunction(thing)

    def is_entry(self, thing: Any) -> bool:
        return not thing.__name__.startswith("_") and not any(self.lacks(thing))

    def name_of(self, entry: Any) -> str:
        return str(entry.__name__.replace("_", "-"))

    def lacks(self, entry: Any) -> Iterator[str]:
        signature = inspect.signature(entry)
        if next(iter(signature.parameters), None) != "agents":
            yield "call its first parameter agents"
        returned = signature.return_annotation
        if returned is not Network and str(returned).rpartition(".")[2] != Network.__name__:
            yield "let it return a Network, and say so (-> co.Network)"


TOPOLOGIES: Entries[Topology] = _Topologies("coterie.networks", "network")


def network(
    spec: str | os.PathLike[str] | Network | nx.Graph | Matrix,
    agents: int,
    *,
    seed: int = 0,
    connected: bool = True,
    **parameters: Any,
) -> Network:
    """The network of that many agents: from a name with its parameters, a `Network`, a networkx
    graph, an adjacency matrix, a list of edges (tuples), or a path to an edge file. A graph that is
    not connected is refused unless `connected=False`.
    """
    m = check_agents(agents)
    if isinstance(spec, str) and spec.replace("_", "-") in TOPOLOGIES:
        return _named(spec.replace("_", "-"), m, seed, parameters)
    if parameters:
        raise InvalidNetwork(
            f"only a named topology takes {', '.join(parameters)}: {', '.join(TOPOLOGIES)}."
        )
    given = _given(spec, m)
    if given.agents != m:
        raise InvalidNetwork(
            f"the network has {given.agents} agents but the data has {m} parties. "
            f"Give a network of {m} agents, or split the data into {given.agents} parties."
        )
    if connected:
        given.check_connected()
    return given


def _named(name: str, agents: int, seed: int, parameters: dict[str, Any]) -> Network:
    known = [
        parameter
        for parameter in inspect.signature(TOPOLOGIES[name]).parameters
        if parameter != "agents"
    ]
    for parameter in parameters:
        if parameter not in known:
            raise UnknownName(f"parameter of {name!r}", parameter, known)
    if "seed" in known:
        parameters = {"seed": seed, **parameters}
    return TOPOLOGIES[name](agents, **parameters)


def _are_edges(spec: Any) -> bool:
    return (
        isinstance(spec, list)
        and bool(spec)
        and all(isinstance(e, tuple) and len(e) in (2, 3) for e in spec)
    )


def _given(spec: str | os.PathLike[str] | Network | nx.Graph | Matrix, agents: int) -> Network:
    if isinstance(spec, Network):
        return spec
    if isinstance(spec, str) and not (Path(spec).suffix or os.sep in spec or Path(spec).is_file()):
        raise TOPOLOGIES.unknown(spec)
    if isinstance(spec, str | os.PathLike) or _are_edges(spec):
        return from_edges(spec, agents, connected=False)
    networkx = sys.modules.get("networkx")
    if networkx is not None and isinstance(spec, networkx.Graph):
        return from_networkx(spec, connected=False)
    if spec is None or callable(spec):
        raise InvalidNetwork(
            f"a network is a name ({', '.join(TOPOLOGIES)}), a Network, a networkx graph, an "
            "adjacency matrix "
            f"or an edge file, not {spec!r}."
        )
    return from_adjacency(spec, connected=False)
