"""Topologies as functions: a number of agents in, a connected `Network` with unit weights out.

Every public function of this folder whose first parameter is `agents` and that returns a `Network` is a topology, and
its name (with dashes) is what `network="..."` accepts. Random topologies are functions of their seed, and are drawn
again until they are connected; `attempts` says how often.

    G(m, p) is connected with high probability for p > ln m / m, a geometric graph for π radius² > ln m / m.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from scipy.sparse import csgraph

from coterie.arrays import FloatArray, Matrix
from coterie.errors import InvalidNetwork
from coterie.networks.checks import check_agents
from coterie.networks.network import Network

MAX_ATTEMPTS = 1000

Pairs = npt.NDArray[np.integer[Any]]
"""Edges as rows (i, j), each once."""


def complete(agents: int) -> Network:
    """Every agent is a neighbour of every other one."""
    m = check_agents(agents)
    return Network(_weights(m, np.stack(np.triu_indices(m, k=1), axis=1)), "complete", positions=_circle(m))


def star(agents: int, server: bool = False) -> Network:
    """Agent 0 is the hub; with `server=True` all agents talk to a server that is none of them."""
    m = check_agents(agents)
    if server:
        return Network(_weights(m, np.empty((0, 2), int)), "star", server=True, positions=_circle(m))
    leaves = np.arange(1, m)
    positions = np.concatenate([np.zeros((1, 2)), _circle(m - 1)])
    return Network(_weights(m, np.stack([np.zeros_like(leaves), leaves], axis=1)), "star", positions=positions)


def path(agents: int) -> Network:
    """A line: agent j talks to j − 1 and j + 1."""
    m = check_agents(agents)
    # A long path is drawn as a snake: every other row runs backwards.
    columns = max(16, math.ceil(math.sqrt(2 * m)))
    row, column = np.divmod(np.arange(m), columns)
    positions = np.stack([np.where(row % 2, columns - 1 - column, column), -row], axis=1).astype(float)
    return Network(_weights(m, _consecutive(m)), "path", positions=positions)


def ring(agents: int) -> Network:
    """A closed line; two agents share one edge."""
    m = check_agents(agents)
    pairs = np.concatenate([_consecutive(m), [[0, m - 1]]]) if m > 2 else _consecutive(m)
    return Network(_weights(m, pairs), "ring", positions=_circle(m))


def lattice(agents: int) -> Network:
    """A grid with diagonals (the moves of a chess king), numbered row by row.

    rows × columns = agents as square as possible with rows ≤ columns: 64 is 8 × 8 and 32 is 4 × 8. A prime above 3 has
    no such pair and gets ⌈√agents⌉ columns and a last row that is only partly filled: 7 is 3 + 3 + 1.
    """
    m = check_agents(agents)
    columns = _lattice_columns(m)
    row, column = np.divmod(np.arange(m), columns)
    inner_left, inner_right = column > 0, column < columns - 1
    # right, down, down-left, down-right: each edge once, from its smaller agent
    steps = [(1, inner_right), (columns, np.full(m, True)), (columns - 1, inner_left), (columns + 1, inner_right)]
    starts = [np.flatnonzero(allowed & (np.arange(m) + step < m)) for step, allowed in steps]
    pairs = np.concatenate(
        [np.stack([start, start + step], axis=1) for start, (step, _) in zip(starts, steps, strict=True)]
    )
    return Network(_weights(m, pairs), "lattice", positions=np.stack([column, -row], axis=1).astype(float))


def erdos_renyi(agents: int, probability: float = 0.5, seed: int = 0) -> Network:
    """Each pair of agents has an edge with that probability; drawn again until connected."""
    m = check_agents(agents)
    if not 0 < probability <= 1:
        raise InvalidNetwork(f"the probability of an edge must be above 0 and at most 1, not {probability!r}.")
    everyone = np.stack(np.triu_indices(m, k=1), axis=1)

    def sample(rng: np.random.Generator) -> tuple[Pairs, None]:
        return everyone[rng.random(len(everyone)) < probability], None

    larger = min(1.0, max(1.5 * probability, 2.0 * math.log(m + 1) / m))
    return _until_connected(m, "erdos-renyi", sample, seed, f"probability={_rounded_up(larger)}")


def geometric(agents: int, radius: float = 0.3, seed: int = 0) -> Network:
    """Agents at random points of the unit square, with an edge up to `radius` apart; drawn again until connected."""
    from scipy.spatial import cKDTree  # which takes long to import

    m = check_agents(agents)
    if not (radius > 0 and math.isfinite(radius)):
        raise InvalidNetwork(f"the radius must be a positive number (0.3, say), not {radius!r}.")

    def sample(rng: np.random.Generator) -> tuple[Pairs, FloatArray]:
        points = rng.random((m, 2))
        return cKDTree(points).query_pairs(radius, output_type="ndarray"), points

    larger = max(1.25 * radius, math.sqrt(2.0 * math.log(m + 1) / (math.pi * m)))
    return _until_connected(m, "geometric", sample, seed, f"radius={_rounded_up(larger)}")


def expander(agents: int, degree: int = 4, seed: int = 0) -> Network:
    """A random graph in which every agent has exactly `degree` neighbours; drawn again until connected."""
    import networkx  # which takes long to import

    m = check_agents(agents)
    if isinstance(degree, bool) or not isinstance(degree, int | np.integer) or degree < 1:
        raise InvalidNetwork(f"the degree of an expander must be a whole number, at least 1, not {degree!r}.")
    if degree >= m:
        fix = f"Use degree={m - 1} or less, or more agents." if m > 1 else "Use complete(1), or more agents."
        raise InvalidNetwork(f"with {m} agents nobody can have {degree} neighbours. {fix}")
    if degree * m % 2:
        raise InvalidNetwork(
            f"degree × agents must be even, but {degree} × {m} is odd. "
            f"Use degree={degree - 1 if degree > 1 else degree + 1}, or {m + 1} agents."
        )
    if degree == 1 and m > 2:
        raise InvalidNetwork(f"{m} agents with one neighbour each are not connected. Use degree=2 or more.")

    def sample(rng: np.random.Generator) -> tuple[Pairs, FloatArray]:
        graph = networkx.random_regular_graph(int(degree), m, seed=int(rng.integers(2**31)))
        return np.array(graph.edges, dtype=int), _circle(m)

    return _until_connected(m, "expander", sample, seed, f"degree={degree + 1 + (degree + 1) * m % 2}")


def _until_connected(
    agents: int,
    name: str,
    sample: Callable[[np.random.Generator], tuple[Pairs, FloatArray | None]],
    seed: int,
    advice: str,
) -> Network:
    rng = np.random.default_rng(seed)
    for attempt in range(1, MAX_ATTEMPTS + 1):
        pairs, positions = sample(rng)
        weights = _weights(agents, pairs)
        if csgraph.connected_components(weights, directed=False, return_labels=False) == 1:
            return Network(weights, name, positions=positions, attempts=attempt)
    raise InvalidNetwork(
        f"{MAX_ATTEMPTS} random graphs of kind {name!r} with {agents} agents were drawn, and none is connected. "
        f"Use {advice} or more, or another seed."
    )


def _weights(agents: int, pairs: Pairs) -> Matrix:
    i, j = pairs[:, 0], pairs[:, 1]
    ones = np.ones(2 * len(pairs))
    return sp.csr_array((ones, (np.concatenate([i, j]), np.concatenate([j, i]))), shape=(agents, agents))


def _consecutive(agents: int) -> Pairs:
    return np.stack([np.arange(agents - 1), np.arange(1, agents)], axis=1)


def _circle(agents: int) -> FloatArray:
    """Points on the unit circle, clockwise from the top."""
    angle = math.pi / 2 - 2 * math.pi * np.arange(agents) / max(agents, 1)
    return np.stack([np.cos(angle), np.sin(angle)], axis=1)


def _lattice_columns(agents: int) -> int:
    rows = next(rows for rows in range(math.isqrt(agents), 0, -1) if agents % rows == 0)
    return agents // rows if rows > 1 or agents <= 3 else math.isqrt(agents - 1) + 1


def _rounded_up(number: float) -> float:
    return math.ceil(number * 100) / 100
