"""What the studies of paper 000 share: its least-squares data, its graphs, and runs of both forms
of `graph-cp`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from coterie.api.result import Result
from coterie.api.solve import solve
from coterie.data import Table, read
from coterie.data import split as split_table
from coterie.networks import Network, complete, erdos_renyi, geometric, lattice, star
from coterie.numerics.arrays import FloatArray
from coterie.problems.problem import Problem
from papers.study import Curve, spent

PAPER = "000: Decentralized feature-distributed optimization (Ancelin, Bahmani, Romberg)"
ROTATED = (
    "the runs, and so the bills, are of the d + 1 rows into which a rotation brings all n: the "
    "same errors"
)

FAMILIES: Mapping[str, tuple[Callable[[int, int], Network], int]] = {
    "complete": (lambda m, seed: complete(m), 2),
    "star": (lambda m, seed: star(m), 2),
    "Erdős–Rényi 0.5": (lambda m, seed: erdos_renyi(m, 0.5, seed=seed), 8),
    "Erdős–Rényi 0.1": (lambda m, seed: erdos_renyi(m, 0.1, seed=seed), 32),
    "lattice": (lambda m, seed: lattice(m), 2),
    "geometric": (lambda m, seed: geometric(m, 0.3, seed=seed), 32),
}
"""The paper's six graphs, and from how many agents on it looks at them; random ones are drawn until
connected.
"""


def label_owner(graph: Network) -> int:
    """The lattice's centre; agent 0, which is the star's hub, elsewhere."""
    if graph.name != "lattice" or graph.positions is None:
        return 0
    return int(
        np.argmin(np.linalg.norm(graph.positions - graph.positions.mean(axis=0) - 1e-3, axis=1))
    )


class LeastSquares:
    """X, θ* and the noise all standard normal, and no penalty.

    For the squared loss every step of `graph-cp` commutes with a rotation of the rows, so the runs
    see [X y] rotated into its triangle, whose d + 1 rows have the same θ and the same errors as all
    n, at the work of d + 1.
    """

    def __init__(self, n: int, d: int, seed: int):
        rng = np.random.default_rng(seed)
        X = rng.standard_normal((n, d))
        y = X @ rng.standard_normal(d) + rng.standard_normal(n)
        triangle: FloatArray = np.asarray(np.linalg.qr(np.column_stack([X, y]), mode="r"))
        self.n = n
        self.X: FloatArray = triangle[:, :-1]
        self.y: FloatArray = triangle[:, -1]
        self.theta: FloatArray = np.linalg.solve(self.X[:-1], self.y[:-1])
        self.norm = float(np.linalg.norm(self.X, 2))
        self.best = 0.5 * float(np.mean((self.X @ self.theta - self.y) ** 2))
        self.zero = 0.5 * float(np.mean(self.y**2))

    def shards(self, graph: Network) -> list[Table]:
        """Equal column blocks, the labels at their owner."""
        return split_table(
            read((self.X, self.y)), "features", graph.agents, labels_at=label_owner(graph)
        )

    def papers_form(self, graph: Network, rounds: int, every: int) -> Result:
        """Equations (9) to (14) with the exact R, χ, δ, D."""
        # The number of rows enters in √n / R alone, the step of Theorem 1: this is the R that makes
        # it that of n rows.
        R = float(np.linalg.norm(self.theta)) * np.sqrt(len(self.y) / self.n)
        exact: dict[str, Any] = {"R": float(R), "chi": self.norm}
        if graph.agents > 1:
            exact |= {"delta": 1.0 / graph.laplacian_pinv_norm(), "D": graph.laplacian_norm()}
        return self._run(graph, rounds, every, variant="paper", iterate="average", **exact)

    def improved(self, graph: Network, rounds: int, every: int) -> Result:
        """The default form, which needs no constant."""
        return self._run(graph, rounds, every)

    def _run(self, graph: Network, rounds: int, every: int, **options: Any) -> Result:
        return solve(
            Problem("squared", intercept=False), self.shards(graph), split="features", network=graph, method="graph-cp",
            max_rounds=rounds, check_every=every, tol=1e-14, progress=False, **options,
        )  # fmt: skip

    def curve(self, result: Result, panel: str, label: str, per_round: float = 1.0) -> Curve:
        """(𝓛_t − 𝓛*) / (𝓛_0 − 𝓛*) against rounds, or against what a round costs."""
        errors = (np.asarray(result.history.primal) - self.best) / (self.zero - self.best)
        x = np.append(0.0, per_round * np.asarray(result.history.round, float))
        return Curve(
            panel, label, "graph-cp", x, np.append(1.0, np.maximum(errors, 1e-16)), spent(result)
        )
