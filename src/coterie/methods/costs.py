"""What `method="auto"` assumes: how large the data is, how good the link is, and what a method would take there.

    seconds = turns · latency + bits of the busiest sender / bandwidth + local work / speed

A turn is one hop; a `Sum` takes two to a server and back, or twice the depth of the tree. The numbers are for choosing
between methods and nothing else: no certificate and no bill rests on them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from coterie.networks import Network
from coterie.problem import Problem
from coterie.tuning import Tuning, tuned

PAPER_2 = "measured: the five rules to 1e-6, docs/papers/002.md"


@dataclass(frozen=True)
class _Tuning(Tuning):
    first_order: float = tuned(2.0, "The score of the best first-order method; twice as fast is twice as much.")
    smooth_rounds: float = tuned(60.0, "Rounds of an accelerated first-order method to 1e-6, ...", PAPER_2)
    kinks_rounds: float = tuned(300.0, "... and where the loss has kinks.", PAPER_2)
    sweeps: float = tuned(20.0, "Passes over its own rows in one of its rounds.", PAPER_2)
    speed: float = tuned(1e9, "Multiplications a second of one agent, ...")
    blas_speed: float = tuned(1e10, "... and those of dense matrix products.")
    dense: float = tuned(0.3, "From this share of numbers that are not 0 on, products are dense.", below=1)


TUNING = _Tuning()


@dataclass(frozen=True)
class Link:
    """A link between two organisations, unless told otherwise: 20 ms away, 100 Mbit/s."""

    latency: float = 0.02
    """Seconds per hop."""
    bandwidth: float = 1e8
    """Bits per second."""


LINK = Link()


@dataclass(frozen=True)
class Sizes:
    """How large the data is, all agents together, and over which link they talk."""

    rows: int
    columns: int
    nonzeros: int
    agents: int
    link: Link = LINK
    on_gpu: bool = False
    """Whether all rows are tensors on a GPU, where methods that compute there are preferred."""

    def width(self, problem: Problem) -> int:
        """Columns, with that of the intercept."""
        return self.columns + problem.intercept

    @property
    def row_length(self) -> float:
        """Numbers in a row that are not 0, on average."""
        return max(1.0, self.nonzeros / max(self.rows, 1))

    @property
    def rows_work(self) -> float:
        """Multiplications of one pass over one agent's rows."""
        return max(self.nonzeros, self.rows) / self.agents


def products_work(sizes: Sizes, width: float) -> float:
    """Multiplications, at `speed`, for one agent's X̃ᵀX̃ on so many columns and the solution of the equations."""
    length = min(width, sizes.row_length)
    dense = sizes.nonzeros > TUNING.dense * sizes.rows * sizes.columns
    products = 0.5 * sizes.rows_work * length * (TUNING.speed / TUNING.blas_speed if dense else 1.0)
    return products + width**3 * TUNING.speed / TUNING.blas_speed


@dataclass(frozen=True)
class Outlook:
    """What a method is expected to take until a relative gap of 1e-6."""

    rounds: float
    sums: float
    """`Sum`s in a round."""
    scalars: float
    """Numbers that one party says in a round."""
    work: float
    """Multiplications of one agent in a round, at `speed`."""
    what: str = ""
    """What speaks for it."""


def first_order(problem: Problem, sizes: Sizes) -> Outlook:
    """What a first-order method takes, split by samples."""
    rounds = TUNING.smooth_rounds if problem.loss.smooth else TUNING.kinks_rounds
    return Outlook(rounds, 2, sizes.width(problem) + 32, 2 * TUNING.sweeps * sizes.rows_work)


def worth(problem: Problem, network: Network, sizes: Sizes, outlook: Outlook) -> tuple[float, str]:
    """The score of a method with that outlook, against a first-order method, and why."""
    taken, usual = (
        one.rounds * (_sum_seconds(network, sizes.link, one.sums, one.scalars) + one.work / TUNING.speed)
        for one in (outlook, first_order(problem, sizes))
    )
    link = f"{1e3 * sizes.link.latency:g} ms and {sizes.link.bandwidth / 1e6:g} Mbit/s"
    reason = f"{outlook.what}: about {taken:.2g} s, against {usual:.2g} s for a first-order method, at {link}"
    return TUNING.first_order * usual / taken, reason


def _sum_seconds(network: Network, link: Link, sums: float, scalars: float) -> float:
    tree = network.tree()
    children = np.bincount([parent for parent in tree.parents if parent >= 0], minlength=1)
    copies = network.agents if network.server else children.max() + 1
    return float(sums * 2 * max(tree.depth, 1) * link.latency + copies * 64 * scalars / link.bandwidth)
