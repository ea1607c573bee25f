"""What methods for columns are expected to send, and to take, until a relative gap of 1e-6, beside
moving the columns.

Rounds are those that were measured on columns that nobody tuned on (docs/benchmarks.md) and on the
calibration set of docs/auto.md; they are for choosing between methods and nothing else. A `Sum`
sends every number 2 (m − 1) times, or 2 m with a server; a column that moves sends n numbers for
each hop to the labels.
"""

from __future__ import annotations

import numpy as np

from coterie.methods.auto import costs
from coterie.methods.auto.costs import Sizes, equations_work
from coterie.networks import Network
from coterie.problems.problem import Problem

ROUNDS = {"squared": 20.0, "smooth": 40.0, "kinks beside l2": 250.0, "kinks": 800.0}
"""Rounds of `lbfgs`, and of `blocks`, which goes the same way."""
TREE_ROUNDS = 10.0
"""Rounds of `tree` for one of these."""
PROOFS = 1.25
"""Certificates cost a quarter of the rounds."""
PAIRS, EQUATIONS = 30, 3
"""Pairs that are remembered, 8 numbers each; beside l1, so many messages of 2 k² numbers for k
pairs.
"""
SUMS = {"lbfgs": 4.0, "blocks": 14.0, "tree": 2.2}
"""`Sum`s in a round, with those of certificates; of `blocks`, while columns move."""
SUMS_L1 = 7.0
"""Those of `lbfgs` beside l1."""
ALONE_ROUNDS = 8.0
"""Rounds of Newton's method where the label party has all columns."""
FEW = 1500
"""Fewer columns it solves for alone, beside l1 too."""
DENSE, SMALL = 0.25, 10**7
"""Columns of which fewer numbers are not 0 do not move, because rotated they are dense, unless they
are so small.
"""


def numbers_sent(problem: Problem, network: Network, sizes: Sizes) -> dict[str, float]:
    """Numbers that all agents together are expected to send, by method."""
    n = sizes.rows
    d = sizes.columns
    m = sizes.agents
    rounds, l1 = _rounds(problem)
    if network.server:
        copies = 2.0 * m
    else:
        copies = 2.0 * (m - 1)
    small = 4.0 * PAIRS + (EQUATIONS * 2.0 * min(n / 10, PAIRS**2) if l1 else 0.0)
    few = 4.0 * PAIRS + (EQUATIONS * 2.0 * 100 if l1 else 0.0)
    moved = float(n) * d * (m - 1) / m * _hops(network)
    # The agent with the labels often solves alone: one message of coefficients, and a proof.
    if _alone(sizes, l1):
        later = 2.0
    else:
        later = rounds
    return {
        "lbfgs": rounds * (2 * n + small) * copies,
        "blocks": moved + later * (2 * d + few) * copies,
        "tree": TREE_ROUNDS * rounds * 2 * n * copies,
    }


def seconds(problem: Problem, network: Network, sizes: Sizes) -> dict[str, float]:
    """What methods are expected to take, by name."""
    rounds, l1 = _rounds(problem)
    sent = numbers_sent(problem, network, sizes)
    alone = _alone(sizes, l1)
    if l1:
        each = SUMS_L1
    else:
        each = SUMS["lbfgs"]
    sums = {
        "lbfgs": rounds * each,
        "blocks": SUMS["blocks"],
        "tree": TREE_ROUNDS * rounds * SUMS["tree"],
    }
    sums["blocks"] += 3.0 if alone else rounds * each
    passes = {
        "lbfgs": 3 * rounds,
        "blocks": 1.0 if alone else 3 * rounds,
        "tree": 2 * TREE_ROUNDS * rounds,
    }
    fewer = min(sizes.columns, sizes.rows)
    products = sizes.rows * fewer * sizes.columns * costs.TUNING.speed / costs.TUNING.blas_speed
    depth = max(network.tree().depth, 1)
    senders = network.agents + network.server
    solving = ALONE_ROUNDS * (0.5 * products + equations_work(fewer))

    def taken(name: str) -> float:
        own = passes[name] * sizes.rows_work / costs.TUNING.speed + sums[name] * costs.TUNING.call
        if name == "blocks" and alone:
            shared = solving / costs.TUNING.speed
        else:
            shared = 0.0
        # All send about alike.
        wire = (
            sums[name] * 2 * depth * sizes.link.latency
            + 64 * sent[name] / senders / sizes.link.bandwidth
        )
        return wire + own * (sizes.agents if sizes.link.memory else 1) + shared

    return {name: taken(name) for name in sent}


def _rounds(problem: Problem) -> tuple[float, bool]:
    """Rounds of `lbfgs`, and whether the penalty has a threshold."""
    pieces = problem.penalty.pieces
    if pieces is None:
        ridge = 0.0
        l1 = False
    else:
        ridge = pieces.ridge
        l1 = pieces.threshold > 0
    if problem.loss.quadratic:
        smooth = "squared"
    else:
        smooth = "smooth"
    return PROOFS * ROUNDS[
        smooth if problem.loss.smooth else "kinks beside l2" if ridge else "kinks"
    ], l1


def _alone(sizes: Sizes, l1: bool) -> bool:
    """Whether the agent with the labels solves alone, once it has the columns."""
    # Organisations rotate their columns, and l1 does not turn with them.
    return not l1 or (sizes.columns < FEW and not sizes.apart)


def per_row(sent: dict[str, float], rows: int) -> dict[str, str]:
    """The same for each row, in three digits."""
    return {
        name: f"{float(f'{numbers / max(rows, 1):.3g}'):,.10g}" for name, numbers in sent.items()
    }


def cheaper(sent: dict[str, float], one: str, other: str) -> float:
    """From 0 to 1: how much less the one takes than the other."""
    both = sent[one] + sent[other]
    if both:
        return sent[other] / both
    return 0.5


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
        if parent >= 0:
            depths[agent] = depths[parent] + 1
        else:
            depths[agent] = 0
    return float(depths.sum()) / (network.agents - 1)
