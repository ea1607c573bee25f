"""Topologies: functions that take a number of agents and return a connected `Network` with unit
weights.

Every public function of this folder whose first parameter is `agents` and that returns a `Network`
is a topology, and `network="..."` accepts its name (with dashes). Random topologies depend only on
their seed. They are drawn again until they are connected; `attempts` counts the draws.

    G(m, p) is connected with high probability for p > ln m / m, a geometric graph for π radius² >
    ln m / m.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from scipy.sparse import csgraph

from coterie.errors import InvalidNetwork
from coterie.networks.checks import check_agents
from coterie.networks.network import Network
from coterie.numerics.arrays import FloatArray, Matrix

MAX_ATTEMPTS = 1000
SPECTRAL_ROUNDING = 1e-9
"""The rounding of eigenvalues, as a share of the degree."""

Pairs = npt.NDArray[np.integer[Any]]
"""Edges as rows (i, j), each once."""


def complete(agents: int) -> Network:
    """Every agent is a neighbour of every other one."""
    m = check_agents(agents)
    return Network(_weights(m, _all_pairs(m)), "complete", positions=_circle(m))


def star(agents: int, server: bool = False) -> Network:
    """Agent 0 is the hub; with `server=True`, the hub is a server that is not an agent."""
    m = check_agents(agents)
    if server:
        no_pairs = np.empty((0, 2), int)
        return Network(_weights(m, no_pairs), "star", server=True, positions=_circle(m))
    leaves = np.arange(1, m)
    pairs = np.stack([np.zeros_like(leaves), leaves], axis=1)
    positions = np.concatenate([np.zeros((1, 2)), _circle(m - 1)])
    return Network(_weights(m, pairs), "star", positions=positions)


def path(agents: int) -> Network:
    """A line: agent j is a neighbour of j − 1 and j + 1."""
    m = check_agents(agents)
    # A long path is drawn as a snake: every other row runs backwards.
    columns = max(16, math.ceil(math.sqrt(2 * m)))
    row, column = np.divmod(np.arange(m), columns)
    across = np.where(row % 2, columns - 1 - column, column)
    positions = np.stack([across, -row], axis=1).astype(float)
    return Network(_weights(m, _consecutive(m)), "path", positions=positions)


def ring(agents: int) -> Network:
    """A closed line; two agents share one edge."""
    m = check_agents(agents)
    pairs = _consecutive(m)
    if m > 2:
        pairs = np.concatenate([pairs, [[0, m - 1]]])
    return Network(_weights(m, pairs), "ring", positions=_circle(m))


def lattice(agents: int) -> Network:
    """A grid with diagonals (the moves of a chess king), numbered row by row.

    rows × columns = agents as square as possible with rows ≤ columns: 64 is 8 × 8 and 32 is 4 × 8.
    A prime above 3 has no such pair and gets ⌈√agents⌉ columns and a last row that is only partly
    filled: 7 is 3 + 3 + 1.
    """
    m = check_agents(agents)
    columns = _lattice_columns(m)
    row, column = np.divmod(np.arange(m), columns)
    inner_left = column > 0
    inner_right = column < columns - 1
    everywhere = np.full(m, True)
    # right, down, down-left, down-right: each edge once, from its smaller agent
    pairs = []
    for step, allowed in [
        (1, inner_right),
        (columns, everywhere),
        (columns - 1, inner_left),
        (columns + 1, inner_right),
    ]:
        start = np.flatnonzero(allowed & (np.arange(m) + step < m))
        pairs.append(np.stack([start, start + step], axis=1))
    positions = np.stack([column, -row], axis=1).astype(float)
    return Network(_weights(m, np.concatenate(pairs)), "lattice", positions=positions)


def erdos_renyi(agents: int, probability: float = 0.5, seed: int = 0) -> Network:
    """Each pair of agents has an edge with that probability; drawn again until connected."""
    m = check_agents(agents)
    if not 0 < probability <= 1:
        raise InvalidNetwork(
            f"the probability of an edge must be above 0 and at most 1, not {probability!r}."
        )
    possible = _all_pairs(m)

    def sample(rng: np.random.Generator) -> tuple[Pairs, None]:
        chosen = rng.random(len(possible)) < probability
        return possible[chosen], None

    surely_connected = 2.0 * math.log(m + 1) / m
    larger = min(1.0, max(1.5 * probability, surely_connected))
    return _until_connected(m, "erdos-renyi", sample, seed, f"probability={_rounded_up(larger)}")


def geometric(agents: int, radius: float = 0.3, seed: int = 0) -> Network:
    """Agents at random points of the unit square, with an edge up to `radius` apart; drawn again
    until connected.
    """
    from scipy.spatial import cKDTree  # slow to import

    m = check_agents(agents)
    if not (radius > 0 and math.isfinite(radius)):
        raise InvalidNetwork(f"the radius must be a positive number, such as 0.3, not {radius!r}.")

    def sample(rng: np.random.Generator) -> tuple[Pairs, FloatArray]:
        points = rng.random((m, 2))
        return cKDTree(points).query_pairs(radius, output_type="ndarray"), points

    surely_connected = math.sqrt(2.0 * math.log(m + 1) / (math.pi * m))
    larger = max(1.25 * radius, surely_connected)
    return _until_connected(m, "geometric", sample, seed, f"radius={_rounded_up(larger)}")


def expander(agents: int, degree: int = 4, seed: int = 0) -> Network:
    """A random graph in which every agent has exactly `degree` neighbours; drawn again until
    connected.
    """
    import networkx  # slow to import

    m = check_agents(agents)
    if isinstance(degree, bool) or not isinstance(degree, int | np.integer) or degree < 1:
        raise InvalidNetwork(
            f"the degree of an expander must be a whole number, at least 1, not {degree!r}."
        )
    if degree >= m:
        fix = (
            f"Use degree={m - 1} or less, or more agents."
            if m > 1
            else "Use complete(1), or more agents."
        )
        raise InvalidNetwork(f"with {m} agents no agent can have {degree} neighbours. {fix}")
    if degree * m % 2:
        even = degree - 1 if degree > 1 else degree + 1
        raise InvalidNetwork(
            f"degree × agents must be even, but {degree} × {m} is odd. Use degree={even}, or "
            f"{m + 1} agents."
        )
    if degree == 1 and m > 2:
        raise InvalidNetwork(
            f"{m} agents with one neighbour each are not connected. Use degree=2 or more."
        )

    def sample(rng: np.random.Generator) -> tuple[Pairs, FloatArray]:
        graph = networkx.random_regular_graph(int(degree), m, seed=int(rng.integers(2**31)))
        return np.array(graph.edges, dtype=int), _circle(m)

    larger = degree + 1 + (degree + 1) * m % 2
    return _until_connected(m, "expander", sample, seed, f"degree={larger}")


def ramanujan(agents: int, degree: int = 4, seed: int = 0) -> Network:
    """A random Ramanujan graph: every agent has exactly `degree` = k neighbours, and the
    eigenvalues of L except 0 (and 2k, if the graph has two sides) are from k − 2√(k − 1) to
    k + 2√(k − 1).

    No large regular graph has a larger λ₂. Expanders are drawn until one is a Ramanujan graph.
    """
    rng = np.random.default_rng(seed)
    for attempt in range(1, MAX_ATTEMPTS + 1):
        drawn = expander(agents, degree, int(rng.integers(2**31)))
        if _is_ramanujan(drawn, degree):
            return replace(drawn, name="ramanujan", attempts=attempt)
    raise InvalidNetwork(
        f"{MAX_ATTEMPTS} random graphs of {agents} agents with {degree} neighbours were drawn, and "
        "none is a Ramanujan graph. Use expander, another degree, or another seed."
    )


def _is_ramanujan(network: Network, degree: int) -> bool:
    if network.agents == 1:
        return True
    spread = 2.0 * math.sqrt(degree - 1.0)
    # A graph with two sides has the eigenvalue 2k, and its others are symmetric about k.
    largest = network.laplacian_norm()
    least = degree - spread - SPECTRAL_ROUNDING * degree
    two_sides = largest >= 2.0 * degree * (1.0 - SPECTRAL_ROUNDING)
    within = largest <= degree + spread + SPECTRAL_ROUNDING * degree
    return 1.0 / network.laplacian_pinv_norm() >= least and (within or two_sides)


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
        f"{MAX_ATTEMPTS} random graphs of kind {name!r} with {agents} agents were drawn, and none "
        "is connected. "
        f"Use {advice} or more, or another seed."
    )


def _weights(agents: int, pairs: Pairs) -> Matrix:
    i = pairs[:, 0]
    j = pairs[:, 1]
    ones = np.ones(2 * len(pairs))
    rows = np.concatenate([i, j])
    columns = np.concatenate([j, i])
    return sp.csr_array((ones, (rows, columns)), shape=(agents, agents))


def _all_pairs(agents: int) -> Pairs:
    return np.stack(np.triu_indices(agents, k=1), axis=1)


def _consecutive(agents: int) -> Pairs:
    return np.stack([np.arange(agents - 1), np.arange(1, agents)], axis=1)


def _circle(agents: int) -> FloatArray:
    """Points on the unit circle, clockwise from the top."""
    turn = 2 * math.pi * np.arange(agents) / max(agents, 1)
    angle = math.pi / 2 - turn
    return np.stack([np.cos(angle), np.sin(angle)], axis=1)


def _lattice_columns(agents: int) -> int:
    rows = math.isqrt(agents)
    while agents % rows:
        rows -= 1
    if rows > 1 or agents <= 3:
        return agents // rows
    return math.isqrt(agents - 1) + 1


def _rounded_up(number: float) -> float:
    return math.ceil(number * 100) / 100
