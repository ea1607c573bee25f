"""Networks: who talks to whom.

    from coterie.networks import network
    network("ring", 8)
    network("erdos-renyi", 32, seed=1, probability=0.2)
    network(my_networkx_graph, 8)

A topology is a function `(agents, ...) -> Network` in any file of this folder; adding one adds its name.
"""

from __future__ import annotations

import importlib
import inspect
import os
import pkgutil
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import networkx as nx

from coterie.arrays import Matrix
from coterie.errors import InvalidNetwork, UnknownName
from coterie.networks.checks import check_agents
from coterie.networks.conversions import from_adjacency, from_edges, from_networkx
from coterie.networks.draw import draw
from coterie.networks.network import MIXING_RULES, Network, Tree
from coterie.networks.topologies import complete, erdos_renyi, expander, geometric, lattice, path, ring, star

__all__ = [
    "MIXING_RULES",
    "TOPOLOGIES",
    "Network",
    "Topology",
    "Tree",
    "complete",
    "draw",
    "erdos_renyi",
    "expander",
    "from_adjacency",
    "from_edges",
    "from_networkx",
    "geometric",
    "lattice",
    "network",
    "path",
    "ring",
    "star",
]

Topology = Callable[..., Network]


def _is_topology(function: object, module: str) -> bool:
    if not inspect.isfunction(function) or function.__module__ != module or function.__name__.startswith("_"):
        return False
    signature = inspect.signature(function)
    returns_network = signature.return_annotation in (Network, Network.__name__)
    return returns_network and next(iter(signature.parameters), None) == "agents"


def _topologies() -> Mapping[str, Topology]:
    found: dict[str, Topology] = {}
    for module_info in pkgutil.iter_modules(__path__):
        module = importlib.import_module(f"{__name__}.{module_info.name}")
        for name, function in vars(module).items():
            if _is_topology(function, module.__name__):
                found[name.replace("_", "-")] = function
    return MappingProxyType(dict(sorted(found.items())))


TOPOLOGIES: Mapping[str, Topology] = _topologies()


def network(
    spec: str | os.PathLike[str] | Network | nx.Graph | Matrix,
    agents: int,
    *,
    seed: int = 0,
    connected: bool = True,
    **parameters: Any,
) -> Network:
    """The network of that many agents: from a name with its parameters, a `Network`, a networkx graph, an adjacency
    matrix, a list of edges (tuples), or a path to an edge file. A graph that is not connected is refused unless
    `connected=False`.
    """
    m = check_agents(agents)
    if isinstance(spec, str) and spec.replace("_", "-") in TOPOLOGIES:
        return _named(spec.replace("_", "-"), m, seed, parameters)
    if parameters:
        raise InvalidNetwork(f"only a named topology takes {', '.join(parameters)}: {', '.join(TOPOLOGIES)}.")
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
    known = [parameter for parameter in inspect.signature(TOPOLOGIES[name]).parameters if parameter != "agents"]
    for parameter in parameters:
        if parameter not in known:
            raise UnknownName(f"parameter of {name!r}", parameter, known)
    return TOPOLOGIES[name](agents, **({"seed": seed} if "seed" in known else {}), **parameters)


def _are_edges(spec: Any) -> bool:
    return isinstance(spec, list) and bool(spec) and all(isinstance(e, tuple) and len(e) in (2, 3) for e in spec)


def _given(spec: str | os.PathLike[str] | Network | nx.Graph | Matrix, agents: int) -> Network:
    if isinstance(spec, Network):
        return spec
    if isinstance(spec, str) and not (Path(spec).suffix or os.sep in spec or Path(spec).is_file()):
        raise UnknownName("network", spec, TOPOLOGIES)
    if isinstance(spec, str | os.PathLike) or _are_edges(spec):
        return from_edges(spec, agents, connected=False)
    if isinstance(spec, nx.Graph):
        return from_networkx(spec, connected=False)
    if spec is None or callable(spec):
        raise InvalidNetwork(
            f"a network is a name ({', '.join(TOPOLOGIES)}), a Network, a networkx graph, an adjacency matrix "
            f"or an edge file, not {spec!r}."
        )
    return from_adjacency(spec, connected=False)
