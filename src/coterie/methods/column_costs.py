"""What methods for columns are expected to send until a relative gap of 1e-6, beside moving the columns once.

Rounds are those that were measured on columns that nobody tuned on (docs/benchmarks.md); they are for choosing between
methods and nothing else. A `Sum` sends every number 2 (m − 1) times, or 2 m with a server; a column that moves sends n
numbers for each hop to the labels.
"""

from __future__ import annotations

import numpy as np

from coterie.methods.costs import Sizes
from coterie.networks import Network
from coterie.problem import Problem

ROUNDS = {"squared": 20.0, "smooth": 40.0, "kinks beside l2": 250.0, "kinks": 800.0}
"""Rounds of `lbfgs`, and of `blocks`, which goes the same way."""
TREE_ROUNDS = 10.0
"""Rounds of `tree` for one of these."""
PROOFS = 1.25
"""Certificates cost a quarter of the rounds."""
PAIRS, EQUATIONS = 30, 3
"""Pairs that are remembered, 8 numbers each; beside l1, so many messages of 2 k² numbers for k pairs."""
DENSE, SMALL = 0.25, 10**7
"""Columns of which fewer numbers are not 0 do not move, because rotated they are dense, unless they are so small."""


def numbers_sent(problem: Problem, network: Network, sizes: Sizes) -> dict[str, float]:
    """Numbers that all agents together are expected to send, by method."""
    n, d, m = sizes.rows, sizes.columns, sizes.agents
    pieces = problem.penalty.pieces
    ridge, l1 = (0.0, False) if pieces is None else (pieces.ridge, pieces.threshold > 0)
    smooth = "squared" if problem.loss.quadratic else "smooth"
    rounds = PROOFS * ROUNDS[smooth if problem.loss.smooth else "kinks beside l2" if ridge else "kinks"]
    copies = 2.0 * m if network.server else 2.0 * (m - 1)
    small = 4.0 * PAIRS + (EQUATIONS * 2.0 * min(n / 10, PAIRS**2) if l1 else 0.0)
    few = 4.0 * PAIRS + (EQUATIONS * 2.0 * 100 if l1 else 0.0)
    moved = float(n) * d * (m - 1) / m * _hops(network)
    # Without l1 the agent with the labels solves alone: one message of coefficients, and a proof.
    later = rounds if l1 else 2.0
    return {
        "lbfgs": rounds * (2 * n + small) * copies,
        "blocks": moved + later * (2 * d + few) * copies,
        "tree": TREE_ROUNDS * rounds * 2 * n * copies,
    }


def per_row(sent: dict[str, float], rows: int) -> dict[str, str]:
    """The same for each row, in three digits."""
    return {name: f"{float(f'{numbers / max(rows, 1):.3g}'):,.10g}" for name, numbers in sent.items()}


def cheaper(sent: dict[str, float], one: str, other: str) -> float:
    """From 0 to 1: how much less the one sends than the other."""
    both = sent[one] + sent[other]
    return sent[other] / both if both else 0.5


def moves(sizes: Sizes) -> bool:
    """Whether the label party could keep all columns as dense ones."""
    numbers = sizes.rows * sizes.columns
    return sizes.nonzeros >= DENSE * numbers or numbers <= SMALL


def _hops(network: Network) -> float:
    """From an agent to the labels, on average; the root of the tree stands for where these are."""
    if network.server or network.agents < 2:
        return 1.0
    tree = network.tree()
    depths = np.zeros(network.agents)
    for agent in tree.order:
        parent = tree.parents[agent]
        depths[agent] = depths[parent] + 1 if parent >= 0 else 0
    return float(depths.sum()) / (network.agents - 1)
