"""The expected traffic and time of methods for columns until a relative gap of 1e-6, with and
without moving the columns.

The rounds were measured on columns that served no tuning (docs/benchmarks.md) and on the
calibration set of docs/auto.md. They only serve the choice of a method. A `Sum` sends every number
2 (m − 1) times, or 2 m times with a server; one to or of the label agent half as often. A column
that moves sends n numbers for each hop to the label agent.
"""

from __future__ import annotations

import numpy as np

from coterie.methods.auto import costs
from coterie.methods.auto.costs import Sizes, equations_work
from coterie.networks import Network
from coterie.problems.problem import Problem

ROUNDS = {"squared": 20.0, "smooth": 40.0, "non-smooth with l2": 250.0, "non-smooth": 800.0}
"""Rounds of `lbfgs` and of `blocks`, which takes the same steps."""
TREE_ROUNDS = 10.0
"""Rounds of `tree` for one round of `lbfgs`."""
PROOFS = 1.25
"""The cost of rounds with certificates, relative to that without."""
PAIRS = 30
"""Pairs that are remembered, 8 numbers each."""
EQUATIONS = 3
"""With l1: messages of 2 k² numbers for k pairs in a round."""
SUMS = {"lbfgs": 4.0, "blocks": 14.0, "tree": 2.2}
"""`Sum`s in a round, with those of certificates; for `blocks`, before the first round."""
SUMS_L1 = 7.0
"""`Sum`s in a round of `lbfgs` with l1."""
ALONE_ROUNDS = 8.0
"""Rounds of Newton's method where the label party has all columns."""
FEW = 1500
"""With l1, the label party solves problems with fewer columns alone."""
DENSE = 0.25
"""Columns with a smaller share of numbers that are not 0 do not move: rotation makes them dense."""
SMALL = 10**7
"""Data with at most this number of cells moves in any case."""


def numbers_sent(problem: Problem, network: Network, sizes: Sizes) -> dict[str, float]:
    """Return the numbers that all agents together are expected to send, by method."""
    n = sizes.rows
    d = sizes.columns
    m = sizes.agents
    rounds = _rounds(problem)
    l1 = _has_threshold(problem)
    if network.server:
        copies = 2.0 * m
    else:
        copies = 2.0 * (m - 1)
    of_rows = 4.0 * PAIRS
    of_columns = 4.0 * PAIRS
    if l1:
        of_rows += EQUATIONS * 2.0 * min(n / 10, PAIRS**2)
        of_columns += EQUATIONS * 2.0 * 100
    moved = float(n) * d * (m - 1) / m * _hops(network)
    # The label agent often solves alone: one message of coefficients, and a proof.
    if _alone(sizes, l1):
        later = 2.0
    else:
        later = rounds
    return {
        "lbfgs": rounds * (n + of_rows) * copies,
        "blocks": moved + later * (d + of_columns) * copies,
        "tree": TREE_ROUNDS * rounds * n * copies,
    }


def seconds(problem: Problem, network: Network, sizes: Sizes) -> dict[str, float]:
    """Return the expected time of methods, by name."""
    rounds = _rounds(problem)
    l1 = _has_threshold(problem)
    if l1:
        sums_of_lbfgs = rounds * SUMS_L1
    else:
        sums_of_lbfgs = rounds * SUMS["lbfgs"]
    alone = _alone(sizes, l1)
    if alone:
        sums_of_blocks = SUMS["blocks"] + 3.0
        passes_of_blocks = 1.0
        solving = _solving(sizes)
    else:
        sums_of_blocks = SUMS["blocks"] + sums_of_lbfgs
        passes_of_blocks = 3 * rounds
        solving = 0.0
    rounds_of_tree = TREE_ROUNDS * rounds
    sent = numbers_sent(problem, network, sizes)
    sums_of_tree = rounds_of_tree * SUMS["tree"]
    return {
        "lbfgs": _seconds(network, sizes, sums_of_lbfgs, sent["lbfgs"], 3 * rounds),
        "blocks": _seconds(network, sizes, sums_of_blocks, sent["blocks"], passes_of_blocks)
        + solving,
        "tree": _seconds(network, sizes, sums_of_tree, sent["tree"], 2 * rounds_of_tree),
    }


def _seconds(network: Network, sizes: Sizes, sums: float, sent: float, passes: float) -> float:
    """Return the time of sums and of passes over the rows of each agent."""
    link = sizes.link
    depth = max(network.tree().depth, 1)
    # All senders send about the same amount.
    senders = network.agents + network.server
    messages = sums * 2 * depth * link.latency + 64 * sent / senders / link.bandwidth
    work = passes * sizes.rows_work / costs.TUNING.speed + sums * costs.TUNING.call
    if link.memory:
        work = work * sizes.agents
    return messages + work


def _solving(sizes: Sizes) -> float:
    """Return the time in which the label agent solves the whole problem."""
    fewer = min(sizes.columns, sizes.rows)
    products = sizes.rows * fewer * sizes.columns * costs.TUNING.speed / costs.TUNING.blas_speed
    work = ALONE_ROUNDS * (0.5 * products + equations_work(fewer))
    return work / costs.TUNING.speed


def _rounds(problem: Problem) -> float:
    """Return the expected rounds of `lbfgs`, with certificates."""
    pieces = problem.penalty.pieces
    if problem.loss.quadratic:
        kind = "squared"
    elif problem.loss.smooth:
        kind = "smooth"
    elif pieces is not None and np.any(pieces.ridge):
        kind = "non-smooth with l2"
    else:
        kind = "non-smooth"
    return PROOFS * ROUNDS[kind]


def _has_threshold(problem: Problem) -> bool:
    """Return whether the penalty has an l1 part."""
    pieces = problem.penalty.pieces
    return pieces is not None and pieces.has_threshold


def _alone(sizes: Sizes, l1: bool) -> bool:
    """Return whether the label agent solves alone, once it has the columns."""
    # Organisations rotate their columns, and a rotation changes l1.
    return not l1 or (sizes.columns < FEW and not sizes.apart)


def per_row(sent: dict[str, float], rows: int) -> dict[str, str]:
    """Return the numbers per row, with three digits."""
    return {name: _three_digits(numbers / max(rows, 1)) for name, numbers in sent.items()}


def _three_digits(number: float) -> str:
    rounded = float(f"{number:.3g}")
    return f"{rounded:,.10g}"


def cheaper(sent: dict[str, float], one: str, other: str) -> float:
    """Return from 0 to 1 by how much the one takes less than the other."""
    both = sent[one] + sent[other]
    if both:
        return sent[other] / both
    return 0.5


def moves(sizes: Sizes) -> bool:
    """Return whether the label party could keep all columns as dense ones."""
    numbers = sizes.rows * sizes.columns
    return sizes.nonzeros >= DENSE * numbers or numbers <= SMALL


def _hops(network: Network) -> float:
    """Return the average number of hops from an agent to the label agent, as if that agent were the
    root of the tree.
    """
    if network.server or network.agents < 2:
        return 1.0
    tree = network.tree()
    depths = np.zeros(network.agents)
    for agent in tree.order:
        parent = tree.parents[agent]
        if parent >= 0:
            depths[agent] = depths[parent] + 1
    return float(depths.sum()) / (network.agents - 1)
