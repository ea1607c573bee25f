"""What `method="auto"` assumes: how large the data is, how good the link is, and what a method
would take there.

    seconds = turns · latency + bits of the busiest sender / bandwidth + local work / speed

A turn is one hop; a `Sum` takes two to a server and back, or twice the depth of the tree. On a link
every agent has a machine of its own; in memory one machine does the work of all, and messages cost
next to nothing. How many rounds a method takes that knows slopes only depends on κ, the curvature
of the loss over that of the penalty. All numbers are calibrated on the twenty problems of
`benchmarks/auto_problems.py` that are for it, and docs/auto.md says how good they are on twenty
others. They are for choosing between methods and nothing else: no certificate and no bill rests on
them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from coterie.networks import Network
from coterie.numerics.tuning import Tuning, tuned
from coterie.problems.problem import Problem

MEASURED = "measured: the calibration set of docs/auto.md"


@dataclass(frozen=True)
class _Tuning(Tuning):
    first_order: float = tuned(
        2.0, "The score of the best first-order method; twice as fast is twice as much."
    )
    smooth_rounds: float = tuned(
        15.0, "Rounds of a first-order method to 1e-6, for κ = 1, ...", MEASURED
    )
    kinks_rounds: float = tuned(500.0, "... and where the loss has kinks.", MEASURED)
    flat: float = tuned(1000.0, "κ where the penalty is not curved, ...", MEASURED)
    steepest: float = tuned(1e4, "... the most that counts, ...", MEASURED)
    least: float = tuned(100.0, "... and the least: columns are correlated.", MEASURED)
    sweeps: float = tuned(10.0, "Passes over its own rows in one of its rounds.", MEASURED)
    speed: float = tuned(1e9, "Multiplications a second of one agent, ...", MEASURED)
    blas_speed: float = tuned(2e10, "... those of dense matrix products, ...", MEASURED)
    sparse_pass: float = tuned(
        3.0, "... how much longer a pass over sparse rows takes, ...", MEASURED
    )
    dense_pass: float = tuned(0.7, "... and over dense ones.", MEASURED)
    call: float = tuned(1e-4, "Seconds of one agent for a `Sum` beside its work.", MEASURED)
    dense: float = tuned(
        0.3, "From this share of numbers that are not 0 on, products are dense.", below=1
    )


TUNING = _Tuning()


@dataclass(frozen=True)
class Link:
    """A link between two organisations, unless told otherwise: 20 ms away, 100 Mbit/s."""

    latency: float = 0.02
    """Seconds per hop."""
    bandwidth: float = 1e8
    """Bits per second."""
    memory: bool = False
    """Whether it is the memory of one machine, which does the work of all agents."""

    def __str__(self) -> str:
        if self.memory:
            return "in memory"
        return f"at {1e3 * self.latency:g} ms and {self.bandwidth / 1e6:g} Mbit/s"


LINK = Link()
MEMORY = Link(1e-5, 1e10, memory=True)


@dataclass(frozen=True)
class Sizes:
    """How large the data is, all agents together, and over which link they talk."""

    rows: int
    columns: int
    nonzeros: int
    agents: int
    link: Link = LINK
    apart: bool = False
    """Whether the agents are organisations."""
    on_gpu: bool = False
    """Whether all rows are tensors on a GPU, where methods that compute there are preferred."""
    independence: float | None = None
    """How independent many dense columns are, from 0 to 1, if it is known."""

    def width(self, problem: Problem) -> int:
        """Columns, with that of the intercept."""
        return self.columns + problem.intercept

    @property
    def row_length(self) -> float:
        """Numbers in a row that are not 0, on average."""
        return max(1.0, self.nonzeros / max(self.rows, 1))

    @property
    def rows_work(self) -> float:
        """Multiplications, at `speed`, of one pass over one agent's rows."""
        return (
            max(self.nonzeros, self.rows)
            / self.agents
            * (TUNING.dense_pass if self.dense else TUNING.sparse_pass)
        )

    @property
    def dense(self) -> bool:
        """Whether products are those of dense rows."""
        return self.nonzeros > TUNING.dense * self.rows * self.columns


def products_work(sizes: Sizes, width: float) -> float:
    """Multiplications, at `speed`, for one agent's X̃ᵀX̃ on so many columns."""
    if sizes.dense:
        each = TUNING.speed / TUNING.blas_speed
    else:
        each = 1.0
    return (
        0.5 * max(sizes.nonzeros, sizes.rows) / sizes.agents * min(width, sizes.row_length) * each
    )


def equations_work(width: float) -> float:
    """Multiplications, at `speed`, to solve so many equations."""
    return width**3 * TUNING.speed / TUNING.blas_speed


def root_condition(problem: Problem, sizes: Sizes) -> float:
    """The fourth root of κ, the curvature of the loss over that of the penalty, for columns of
    scale 1.

    Of n rows of d independent columns, the curvatures of all directions are within ((1 + √(d/n)) /
    (1 − √(d/n)))² of each other (Marchenko and Pastur, 1967), however small the penalty's is.
    """
    ridge = problem.penalty.strong_convexity
    bend = getattr(problem.loss, "smoothness", math.inf)
    if not math.isfinite(bend):
        bend = 1.0
    condition = min(max(bend / ridge if ridge > 0 else TUNING.flat, TUNING.least), TUNING.steepest)
    if sizes.independence is not None and sizes.columns < sizes.rows:
        edge = math.sqrt(sizes.columns / sizes.rows)
        condition = min(condition, ((1 + edge) / ((1 - edge) * sizes.independence)) ** 2)
    return float(condition**0.25)


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
    shared: float = 0.0
    """Multiplications in a round that all agents do alike, in memory once."""

    def seconds(self, network: Network, sizes: Sizes) -> float:
        """What all rounds take."""
        return self.rounds * _sum_seconds(
            network, sizes.link, self.sums, self.scalars
        ) + self.computing(sizes)

    def computing(self, sizes: Sizes) -> float:
        """What they take of that to compute."""
        own = self.work / TUNING.speed + self.sums * TUNING.call
        return self.rounds * (
            own * (sizes.agents if sizes.link.memory else 1) + self.shared / TUNING.speed
        )


def first_order(problem: Any, sizes: Sizes) -> Outlook:
    """What a first-order method takes, split by samples."""
    if problem.loss.smooth:
        rounds = TUNING.smooth_rounds * root_condition(problem, sizes)
    else:
        rounds = TUNING.kinks_rounds
    return Outlook(rounds, 2, sizes.width(problem) + 32, 2 * TUNING.sweeps * sizes.rows_work)


def worth(problem: Problem, network: Network, sizes: Sizes, outlook: Outlook) -> tuple[float, str]:
    """The score of a method with that outlook, against a first-order method, and why."""
    taken, usual = (one.seconds(network, sizes) for one in (outlook, first_order(problem, sizes)))
    reason = (
        f"{outlook.what}: about {taken:.2g} s, against {usual:.2g} s for a first-order method, "
        f"{sizes.link}"
    )
    return TUNING.first_order * usual / taken, reason


def expected(
    problem: Any, network: Network, sizes: Sizes, outlook: Outlook | None, score: float
) -> tuple[float, float, float]:
    """What "auto" expects of a method with that score: rounds, seconds, and those of them to
    compute.
    """
    if outlook is not None:
        return outlook.rounds, outlook.seconds(network, sizes), outlook.computing(sizes)
    usual = first_order(problem, sizes)
    slower = TUNING.first_order / score
    return usual.rounds, slower * usual.seconds(network, sizes), slower * usual.computing(sizes)


def _sum_seconds(network: Network, link: Link, sums: float, scalars: float) -> float:
    tree = network.tree()
    copies = network.agents
    if not network.server:
        copies = np.bincount(tree.parents[tree.parents >= 0], minlength=1).max() + 1
    return float(
        sums * 2 * max(tree.depth, 1) * link.latency + copies * 64 * scalars / link.bandwidth
    )
