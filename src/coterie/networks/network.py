"""A network of agents: an undirected graph with positive edge weights, and the matrices that travel
along its edges.

    L = D − W                                     Laplacian, D = diag(W 1)
    A_ij = 1 / (1 + max(n_i, n_j))                Metropolis weights on edges, n_j the number of
                                                  neighbours of j
    A = I − step · L                              Laplacian mixing, step < 1 / max D_jj

Both mixing matrices are symmetric, doubly stochastic and non-negative; the spectral gap of A is 1 −
|λ₂(A)|, with λ₂ the second largest eigenvalue in modulus. Distances (diameter, depth) count hops:
weights do not make an edge longer.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from scipy.sparse import csgraph

from coterie.errors import InvalidNetwork, UnknownName
from coterie.networks.checks import as_mixing, as_weights, check_connected
from coterie.networks.spectrum import laplacian_ends
from coterie.numerics.arrays import FloatArray, Matrix, digest, sealed

if TYPE_CHECKING:
    import networkx as nx

MIXING_RULES = ("laplacian", "laplacian-mixing", "metropolis")

DISTANCES_AT_ONCE = 256


class Tree(NamedTuple):
    """A breadth-first spanning tree. With a server the root is the server: every parent is −1 and
    the depth is 1.
    """

    parents: npt.NDArray[np.intp]
    """The parent of each agent, −1 at the root."""
    depth: int
    """The most hops from an agent to the root."""
    order: npt.NDArray[np.intp]
    """All agents, parents before their children."""


@dataclass(frozen=True, eq=False, repr=False)
class Network:
    """An undirected connected graph of agents with positive edge weights.

    The constructor checks the weights, but accepts a graph that is not connected (`is_connected`),
    such as a learned collaboration graph. `network`, the topologies and the `from_...` functions
    return connected graphs.
    """

    weights: Matrix
    """Symmetric, non-negative, zero diagonal: m × m CSR in float64, read-only."""
    name: str = "custom"
    server: bool = False
    """Whether every agent sends to a server only, which is no agent; the weights are then all zero.
    """
    positions: FloatArray | None = None
    """The position of each agent in drawings, m × 2."""
    attempts: int = 1
    """Number of random graphs that were drawn until one was connected."""

    def __post_init__(self) -> None:
        weights = as_weights(self.weights)
        if self.server and weights.nnz:
            raise InvalidNetwork(
                f"with a server the agents have no edges among themselves, but {weights.nnz // 2} "
                "are given. "
                "Use all-zero weights, or server=False."
            )
        object.__setattr__(self, "weights", _sealed_csr(weights))
        if self.positions is not None:
            positions = np.array(self.positions, dtype=np.float64)
            if positions.shape != (self.agents, 2) or not np.isfinite(positions).all():
                raise InvalidNetwork(
                    f"positions must be {self.agents} × 2 finite numbers, one point per agent; "
                    f"these have shape {positions.shape}."
                )
            object.__setattr__(self, "positions", sealed(positions))

    def __repr__(self) -> str:
        return f"<Network {self._title()}>"

    # The graph

    @property
    def agents(self) -> int:
        """m, the number of agents; they are called 0 to m − 1."""
        return int(self.weights.shape[0])

    @cached_property
    def digest(self) -> str:
        """SHA-256 over the weights."""
        return digest(self.weights)

    @cached_property
    def edges(self) -> npt.NDArray[np.intp]:
        """All edges as rows (i, j) with i < j, sorted."""
        upper = sp.triu(self.weights, k=1, format="csr").tocoo()
        return _read_only(np.stack([upper.row, upper.col], axis=1))

    @property
    def n_edges(self) -> int:
        """The number of edges between agents (none with a server)."""
        return int(self.weights.nnz) // 2

    @cached_property
    def degrees(self) -> FloatArray:
        """The sum of the weights at each agent: the diagonal of D."""
        return sealed(np.asarray(self.weights.sum(axis=1), dtype=np.float64).ravel())

    @cached_property
    def neighbour_counts(self) -> npt.NDArray[np.intp]:
        """The number of neighbours of each agent."""
        return _read_only(np.diff(self.weights.indptr))

    def neighbours(self, agent: int) -> tuple[int, ...]:
        """The agents that share an edge with this one, sorted."""
        self._check_agent(agent)
        start, stop = self.weights.indptr[agent : agent + 2]
        return tuple(self.weights.indices[start:stop].tolist())

    @cached_property
    def is_connected(self) -> bool:
        """Whether every agent can reach every other one, over the edges or through the server."""
        return (
            self.server
            or csgraph.connected_components(self.weights, directed=False, return_labels=False) == 1
        )

    def check_connected(self) -> None:
        """Raise an error that lists the components of a graph that is not connected."""
        if not self.is_connected:
            check_connected(self.weights)

    @cached_property
    def diameter(self) -> int:
        """The largest number of hops between two agents."""
        self.check_connected()
        m = self.agents
        if self.server:
            return 2 if m > 1 else 0
        if self.n_edges == m * (m - 1) // 2:
            return min(m - 1, 1)
        largest = 0
        for first in range(0, m, DISTANCES_AT_ONCE):
            block = range(first, min(first + DISTANCES_AT_ONCE, m))
            hops = csgraph.dijkstra(self.weights, unweighted=True, indices=block)
            largest = max(largest, int(hops.max()))
        return largest

    def tree(self, root: int = 0) -> Tree:
        """The breadth-first spanning tree from that root; agents are visited in the order of their
        numbers.
        """
        self._check_agent(root)
        if root == 0:
            return self._first_tree
        return self._tree_from(root)

    @cached_property
    def _first_tree(self) -> Tree:
        return self._tree_from(0)

    def _tree_from(self, root: int) -> Tree:
        if self.server:
            return Tree(_read_only(np.full(self.agents, -1)), 1, _read_only(np.arange(self.agents)))
        self.check_connected()
        order, parents = csgraph.breadth_first_order(
            self.weights, root, directed=True, return_predecessors=True
        )
        parents[root] = -1
        hops = np.zeros(self.agents, dtype=np.intp)
        for agent in order[1:]:
            hops[agent] = hops[parents[agent]] + 1
        return Tree(_read_only(parents), int(hops.max()), _read_only(order))

    # The matrices

    def laplacian(self) -> Matrix:
        """L = D − W, as read-only CSR."""
        return self._laplacian

    def metropolis(self) -> Matrix:
        """The Metropolis matrix, as read-only CSR: 1 / (1 + max(n_i, n_j)) on edges, the rest of 1
        on the diagonal.
        """
        return self._metropolis

    def laplacian_mixing(self, step: float | None = None) -> Matrix:
        """I − step · L, as read-only CSR; the default step is 1 / (largest degree + largest
        weight).
        """
        L = self.laplacian()
        largest = float(self.degrees.max())
        if step is None:
            step = 1.0
            if self.n_edges:
                step = 1.0 / (largest + float(self.weights.data.max()))
        elif not (step > 0 and step * largest < 1):
            limit = f"below 1 / {largest:g} (the largest degree)" if largest else "finite"
            raise InvalidNetwork(
                f"I − step · L mixes only for a positive step {limit}; the step is {step!r}."
            )
        identity = sp.diags_array(np.ones(self.agents))
        return _sealed_csr(sp.csr_array(identity - step * L))

    def mixing(self, rule: str | Matrix) -> Matrix:
        """The matrix of a `Mix`: "laplacian" (L), "metropolis", "laplacian-mixing", or a given
        matrix, checked.
        """
        if not isinstance(rule, str):
            return self.check_mixing(rule)
        match rule.replace("_", "-"):
            case "laplacian":
                return self.laplacian()
            case "metropolis":
                return self.metropolis()
            case "laplacian-mixing":
                return self.laplacian_mixing()
            case _:
                raise UnknownName("mixing rule", rule, MIXING_RULES)

    def check_mixing(self, matrix: Matrix) -> Matrix:
        """That matrix as read-only CSR, if it is symmetric, doubly stochastic, and zero where there
        is no edge.
        """
        self._need_edges()
        return _sealed_csr(as_mixing(matrix, self.weights))

    def spectral_gap(self, rule: str | Matrix = "metropolis") -> float:
        """1 − |λ₂| of a mixing matrix: 1 when one step averages all agents, near 0 when news
        travels slowly.
        """
        if isinstance(rule, str) and rule == "laplacian":
            raise InvalidNetwork(
                "the Laplacian is not a mixing matrix; its spectral gap is that of "
                "'laplacian-mixing'."
            )
        if self.agents == 1:
            return 1.0
        # I − A is a Laplacian too: λ₂(A) = 1 − λ₂(I − A), and the other end of the spectrum is 1 −
        # λmax(I − A).
        identity = sp.diags_array(np.ones(self.agents))
        low, high = laplacian_ends(sp.csr_array(identity - self.mixing(rule)))
        return 1.0 - max(abs(1.0 - low), abs(1.0 - high))

    def laplacian_norm(self) -> float:
        """‖L‖ = λmax(L)."""
        return self._laplacian_ends[1]

    def laplacian_pinv_norm(self) -> float:
        """‖L†‖ = 1 / λ₂(L); 0 for a single agent, where L = 0."""
        self.check_connected()
        if self.agents > 1:
            return 1.0 / self._laplacian_ends[0]
        return 0.0

    # Other formats

    def to_networkx(self) -> nx.Graph:
        """The same graph with the weights as edge attribute "weight"; a server is one more node,
        "server".
        """
        import networkx  # which takes long to import

        graph = networkx.from_scipy_sparse_array(self.weights)
        graph.name = self.name
        if self.positions is not None:
            positions = {j: tuple(point) for j, point in enumerate(self.positions.tolist())}
            networkx.set_node_attributes(graph, positions, "pos")
        if self.server:
            graph.add_edges_from((("server", j) for j in range(self.agents)), weight=1.0)
        return graph

    def describe(self) -> str:
        """One line: "ring: 8 agents, 8 edges, diameter 4, spectral gap 0.2"."""
        if self.server:
            return self._title()
        if not self.is_connected:
            return f"{self._title()}, not connected"
        line = f"{self._title()}, diameter {self.diameter}, spectral gap {self.spectral_gap():.2g}"
        if self.attempts == 1:
            return line
        return f"{line}, connected at attempt {self.attempts}"

    def _title(self) -> str:
        agents = _plural(self.agents, "agent")
        if self.server:
            return (
                f"{self.name} with a server: {agents}, {_plural(self.agents, 'link')} to the server"
            )
        return f"{self.name}: {agents}, {_plural(self.n_edges, 'edge')}"

    @cached_property
    def _laplacian(self) -> Matrix:
        self._need_edges()
        return _sealed_csr(sp.csr_array(sp.diags_array(self.degrees) - self.weights))

    @cached_property
    def _metropolis(self) -> Matrix:
        self._need_edges()
        A = self.weights.tocoo()
        i = A.row
        j = A.col
        larger_counts = np.maximum(self.neighbour_counts[i], self.neighbour_counts[j])
        A = sp.csr_array((1.0 / (1.0 + larger_counts), (i, j)), A.shape)
        sums = np.asarray(A.sum(axis=1)).ravel()
        return _sealed_csr(sp.csr_array(A + sp.diags_array(1.0 - sums)))

    @cached_property
    def _laplacian_ends(self) -> tuple[float, float]:
        return laplacian_ends(self.laplacian())

    def _check_agent(self, agent: int) -> None:
        if not 0 <= agent < self.agents:
            raise InvalidNetwork(
                f"there is no agent {agent!r}: the agents are called 0 to {self.agents - 1}."
            )

    def _need_edges(self) -> None:
        if self.server:
            raise InvalidNetwork(
                "the agents of this star send only to a server, so nothing can be mixed along "
                "edges. "
                "Use a method that only sums, or a network with edges: star(agents) with agent 0 "
                "as hub, ring, ..."
            )


def _plural(number: int, noun: str) -> str:
    if number == 1:
        return f"1 {noun}"
    return f"{number} {noun}s"


def _read_only(numbers: npt.NDArray[Any]) -> npt.NDArray[np.intp]:
    numbers = numbers.astype(np.intp)
    numbers.flags.writeable = False
    return numbers


def _sealed_csr(matrix: Matrix) -> Matrix:
    matrix.sort_indices()
    for array in (matrix.data, matrix.indices, matrix.indptr):
        array.flags.writeable = False
    return matrix
