"""Exchanges of graph-cp and tree on the paper's least-squares problem, and the time of a round
beside its products.

    python benchmarks/graph_cp.py                 n = 512, 16 agents: seconds
    python benchmarks/graph_cp.py --paper-size    16384 × 2048, 64 and 256 agents: some minutes
    python benchmarks/graph_cp.py --cost          the time and the memory of a round at that size: a
                                                  minute
    python benchmarks/graph_cp.py --ratio         rounds of graph-cp over those of tree, four
                                                  problems: two minutes

The error is that of the paper's Fig. 1: (𝓛_t − 𝓛*) / (𝓛_0 − 𝓛*), of the current model for the
default and of the average, which Theorem 1 and the figure speak of, for the paper's form. An
exchange is one vector of n numbers along every edge: the default needs one a round, the paper's
form two. `tree` sends along a spanning tree only.
"""

from __future__ import annotations

import argparse
import math
import time
import tracemalloc
from dataclasses import replace
from typing import NamedTuple

import numpy as np

import coterie as co
from coterie.data import Table, read
from coterie.data import split as split_table
from coterie.methods import method
from coterie.networks import Network, complete, erdos_renyi, lattice, path, ring, star
from coterie.numerics.arrays import FloatArray
from coterie.run.bill import Bill
from coterie.run.certificate import introduce
from coterie.run.setup import make_agents
from coterie.transport.in_process import InProcess


class LeastSquares:
    """The paper's synthetic data: everything standard normal."""

    def __init__(self, n: int, d: int, seed: int = 0):
        rng = np.random.default_rng(seed)
        self.X = rng.standard_normal((n, d))
        self.y = self.X @ rng.standard_normal(d) + rng.standard_normal(n)
        self.theta = np.linalg.solve(self.X.T @ self.X, self.X.T @ self.y)
        self.best = 0.5 * float(np.mean((self.X @ self.theta - self.y) ** 2))
        self.zero = 0.5 * float(np.mean(self.y**2))

    def shards(self, graph: Network) -> list[Table]:
        """Equal column blocks; the labels are at a lattice's centre, at agent 0 (a star's hub)
        elsewhere.
        """
        at = 0
        if graph.name == "lattice" and graph.positions is not None:
            at = int(
                np.argmin(
                    np.linalg.norm(graph.positions - graph.positions.mean(axis=0) - 1e-3, axis=1)
                )
            )
        return split_table(read((self.X, self.y)), "features", graph.agents, labels_at=at)

    def constants(self, graph: Network) -> dict[str, float]:
        """The exact R, χ, δ, D of Theorem 1."""
        known = {"R": float(np.linalg.norm(self.theta)), "chi": float(np.linalg.norm(self.X, 2))}
        return known | {"delta": 1.0 / graph.laplacian_pinv_norm(), "D": graph.laplacian_norm()}

    def rounds_to(
        self, graph: Network, max_rounds: int, every: int, name: str, **options: object
    ) -> list[float]:
        """Rounds until the relative error is 1e-3 and 1e-6; infinite if that takes more than
        `max_rounds`.
        """
        result = co.solve(
            co.Problem("squared", intercept=False), self.shards(graph), split="features", network=graph, method=name,
            max_rounds=max_rounds, check_every=every, tol=1e-14, **options,
        )  # fmt: skip
        errors = (np.asarray(result.history.primal) - self.best) / (self.zero - self.best)
        rounds = np.asarray(result.history.round)
        return [min(rounds[errors <= level], default=math.inf) for level in (1e-3, 1e-6)]


def compare(
    data: LeastSquares, graphs: list[Network], rounds: int, papers_rounds: int, every: int
) -> None:
    """One row per graph: exchanges of the default and of the paper's form, and what tree sends in
    their place.
    """
    print(
        f"{'n × d = ' + ' × '.join(map(str, data.X.shape)):24} exchanges to 1e-3 / 1e-6           "
        "numbers sent / n"
    )
    print(f"{'':24} default       paper's form       default to 1e-6   tree to 1e-6")
    for graph in graphs:
        default = data.rounds_to(graph, rounds, every, "graph-cp")
        tree = data.rounds_to(graph, rounds // 4, every, "tree")
        papers = [math.inf, math.inf]
        if papers_rounds:
            exact = data.constants(graph)
            papers = data.rounds_to(
                graph,
                papers_rounds,
                5 * every,
                "graph-cp",
                variant="paper",
                iterate="average",
                **exact,
            )
        limit = f"> {2 * papers_rounds}" if papers_rounds else "not run"
        shown = [f"{2 * rounds:g}" if math.isfinite(rounds) else limit for rounds in papers]
        title = f"{graph.name}, {graph.agents} agents"
        sent = 2 * graph.n_edges * default[1], 4 * (graph.agents - 1) * tree[1]
        found = f"{default[0]:>4g} / {default[1]:<6g} {shown[0]:>7} / {shown[1]:<8}"
        print(f"{title:24} {found} {sent[0]:>12,g} {sent[1]:>14,g}", flush=True)


def print_ratios() -> None:
    """How many times more rounds than `tree` graph-cp takes to a gap of 1e-6, over √m: the mean of
    four problems.
    """
    rng = np.random.default_rng(3)
    X = rng.standard_normal((300, 64))
    y = X @ (rng.standard_normal(64) * (rng.random(64) < 0.4)) + rng.standard_normal(300)
    problems = [
        co.Problem("squared", "l2", 0.05, intercept=False),
        co.Problem("squared", "l1", 0.05, intercept=False),
    ]
    problems += [
        co.Problem("logistic", "l2", 0.01, intercept=False),
        co.Problem("huber", "l1", 0.05, intercept=False),
    ]
    for graph in [
        path(2),
        *(make(m) for m in (4, 8, 16, 32) for make in (path, ring, star, lattice, complete)),
    ]:
        run = {
            "split": "features",
            "agents": graph.agents,
            "network": graph,
            "check_every": 1,
            "max_rounds": 3000,
        }
        logarithms = []
        for problem in problems:
            data = X, np.sign(y) if problem.loss.kind == "classification" else y
            longer, shorter = (
                co.solve(problem, data, method=name, **run).rounds for name in ("graph-cp", "tree")
            )
            logarithms.append(math.log(longer / shorter / math.sqrt(graph.agents)))
        print(
            f"{graph.name}, {graph.agents} agents: {math.exp(np.mean(logarithms)):.2f} √m times",
            flush=True,
        )


class Cost(NamedTuple):
    """The least CPU seconds of a round and of the products X_jᵀλ_j, X_jθ_j in it, and the memory of
    a round.
    """

    in_turn: float
    """First all X_jᵀλ_j, then all X_jθ_j."""
    by_block: float
    """Both products block by block: the second finds its block in the cache."""
    round: float
    vectors: float
    """On top of X, in units of m n numbers, the engine's messages among them."""


def cost_of_a_round(X: FloatArray, y: FloatArray, graph: Network, repeat: int = 30) -> Cost:
    """What a round costs beside its products, measured in turns."""
    agents = make_agents(
        split_table(read((X, y)), "features", graph.agents),
        co.Problem("squared", intercept=False),
        "features",
        graph,
        0,
    )
    transport, steps = InProcess(graph, Bill(graph)), method("graph-cp")
    statistics = transport.converse([introduce(agent) for agent in agents], "setup")
    agents = [
        replace(agent, statistics=known) for agent, known in zip(agents, statistics, strict=True)
    ]
    states = transport.converse([steps.start(agent) for agent in agents], "setup")
    rng = np.random.default_rng(0)
    duals = [rng.standard_normal(agent.design.shape[0]) for agent in agents]
    blocks = [rng.standard_normal(agent.design.shape[1]) for agent in agents]
    best = [math.inf] * 3
    for t in range(1, repeat + 1):
        began = time.process_time()
        for agent, lam in zip(agents, duals, strict=True):
            agent.design.adjoint(lam)
        for agent, theta in zip(agents, blocks, strict=True):
            agent.design.forward(theta)
        best[0] = min(best[0], time.process_time() - began)
        began = time.process_time()
        for agent, lam, theta in zip(agents, duals, blocks, strict=True):
            agent.design.adjoint(lam)
            agent.design.forward(theta)
        best[1] = min(best[1], time.process_time() - began)
        began = time.process_time()
        # As a run does it, which hands the States over and keeps none.
        states = transport.converse(
            [steps.round(agent, states.pop(0), t) for agent in agents], "rounds"
        )
        best[2] = min(best[2], time.process_time() - began)
    del states
    transport = InProcess(graph, Bill(graph))
    tracemalloc.start()
    states = transport.converse([steps.start(agent) for agent in agents], "setup")
    tracemalloc.reset_peak()
    for t in range(1, 13):
        protocols = [steps.round(agent, states.pop(0), t) for agent in agents]
        states = transport.converse(protocols, "rounds")
        del protocols
    vectors = tracemalloc.get_traced_memory()[1] / (8 * duals[0].size * len(agents))
    tracemalloc.stop()
    return Cost(*best, vectors)


def print_cost(data: LeastSquares, graph: Network) -> None:
    """One line per graph."""
    cost = cost_of_a_round(data.X, data.y, graph, 60)
    print(
        f"{graph.name}, {graph.agents} agents: a round takes {1e3 * cost.round:.1f} ms, "
        f"{cost.round / cost.in_turn:.2f} × its two products one after the other, "
        f"{cost.round / cost.by_block:.2f} × "
        f"both block by block; {cost.vectors:.1f} m n numbers of memory on top of X",
        flush=True,
    )


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    arguments.add_argument(
        "--paper-size", action="store_true", help="16384 × 2048, as in the paper"
    )
    arguments.add_argument(
        "--cost", action="store_true", help="only the time and the memory of a round at that size"
    )
    arguments.add_argument(
        "--papers-rounds", type=int, default=None, help="rounds to give the paper's form"
    )
    arguments.add_argument(
        "--ratio", action="store_true", help="only rounds of graph-cp over those of tree"
    )
    chosen = arguments.parse_args()
    if chosen.ratio:
        print_ratios()
    elif chosen.paper_size or chosen.cost:
        data = LeastSquares(16384, 2048)
        for graph, rounds in (
            () if chosen.cost else ((complete(64), 320), (star(64), 440), (lattice(256), 900))
        ):
            compare(data, [graph], rounds, chosen.papers_rounds or 0, 10)
        for graph in (ring(64), star(64), lattice(64), complete(64)):
            print_cost(data, graph)
    else:
        papers_rounds = 3000 if chosen.papers_rounds is None else chosen.papers_rounds
        for seed in range(3):
            graphs = [ring(16), star(16), lattice(16), erdos_renyi(16, 0.5, seed=seed)]
            compare(LeastSquares(512, 64, seed), graphs, 300, papers_rounds, 5)
