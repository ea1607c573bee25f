"""The costs of methods that `method="auto"` assumes, from the size of the data and the link.

    seconds = hops · latency + bits of the busiest sender / bandwidth + local work / speed

A `Sum` takes two hops to a server and back, or twice the depth of the tree. On a link every agent
has a machine of its own. In memory one machine does the work of all agents, and messages cost
almost nothing. The rounds of a first-order method depend on κ, the curvature of the loss over that
of the penalty. All numbers are calibrated on the twenty problems of `benchmarks/auto_problems.py`
that are for this purpose. docs/auto.md reports how well they do on twenty others. The numbers only
serve the choice of a method: certificates and bills do not depend on them.
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
        2.0, "The score of the best first-order method; a method twice as fast has twice the score."
    )
    smooth_rounds: float = tuned(
        15.0, "Rounds of a first-order method to 1e-6 for a smooth loss and κ = 1.", MEASURED
    )
    nonsmooth_rounds: float = tuned(
        500.0, "Rounds of a first-order method to 1e-6 for a non-smooth loss.", MEASURED
    )
    flat: float = tuned(1000.0, "κ where the penalty has no curvature.", MEASURED)
    steepest: float = tuned(1e4, "The largest κ that counts.", MEASURED)
    least: float = tuned(100.0, "The least κ that counts: columns are correlated.", MEASURED)
    sweeps: float = tuned(10.0, "Passes over its own rows in a first-order round.", MEASURED)
    speed: float = tuned(1e9, "Multiplications per second of one agent.", MEASURED)
    blas_speed: float = tuned(2e10, "Multiplications per second in dense products.", MEASURED)
    sparse_pass: float = tuned(3.0, "The cost of a number in a pass over sparse rows.", MEASURED)
    dense_pass: float = tuned(0.7, "The cost of a number in a pass over dense rows.", MEASURED)
    call: float = tuned(1e-4, "Seconds of one agent for a `Sum`, without its work.", MEASURED)
    dense: float = tuned(
        0.3, "The share of numbers that are not 0 above which products are dense.", below=1
    )


TUNING = _Tuning()


@dataclass(frozen=True)
class Link:
    """A link between two agents; by default one between organisations, 20 ms and 100 Mbit/s."""

    latency: float = 0.02
    """Seconds per hop."""
    bandwidth: float = 1e8
    """Bits per second."""
    memory: bool = False
    """Whether the link is the memory of one machine, which does the work of all agents."""

    def __str__(self) -> str:
        if self.memory:
            return "in memory"
        return f"at {1e3 * self.latency:g} ms and {self.bandwidth / 1e6:g} Mbit/s"


LINK = Link()
MEMORY = Link(1e-5, 1e10, memory=True)


@dataclass(frozen=True)
class Sizes:
    """The size of the data of all agents together, and the link between them."""

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
    """The independence of many dense columns, from 0 to 1, if it is known."""

    def width(self, problem: Problem) -> int:
        """Return the number of columns, with that of the intercept."""
        return self.columns + problem.intercept

    @property
    def row_length(self) -> float:
        """The average number of entries of a row that are not 0."""
        return max(1.0, self.nonzeros / max(self.rows, 1))

    @property
    def rows_work(self) -> float:
        """The multiplications, at `speed`, of one pass over one agent's rows."""
        numbers = max(self.nonzeros, self.rows) / self.agents
        if self.dense:
            return numbers * TUNING.dense_pass
        return numbers * TUNING.sparse_pass

    @property
    def dense(self) -> bool:
        """Whether products count as those of dense rows."""
        return self.nonzeros > TUNING.dense * self.rows * self.columns


def products_work(sizes: Sizes, width: float) -> float:
    """Return the multiplications, at `speed`, for one agent's X̃ᵀX̃ on `width` columns."""
    if sizes.dense:
        each = TUNING.speed / TUNING.blas_speed
    else:
        each = 1.0
    half = 0.5 * max(sizes.nonzeros, sizes.rows) / sizes.agents
    return half * min(width, sizes.row_length) * each


def equations_work(width: float) -> float:
    """Return the multiplications, at `speed`, to solve `width` equations."""
    return width**3 * TUNING.speed / TUNING.blas_speed


def root_condition(problem: Problem, sizes: Sizes) -> float:
    """Return the fourth root of κ, the curvature of the loss over that of the penalty, for columns
    of scale 1.

    For n rows of d independent columns, the curvatures of all directions differ by at most the
    factor ((1 + √(d/n)) / (1 − √(d/n)))² (Marchenko and Pastur, 1967), however small the curvature
    of the penalty is.
    """
    ridge = problem.penalty.strong_convexity
    curvature = getattr(problem.loss, "smoothness", math.inf)
    if not math.isfinite(curvature):
        curvature = 1.0
    condition = TUNING.flat
    if ridge > 0:
        condition = curvature / ridge
    condition = min(max(condition, TUNING.least), TUNING.steepest)
    if sizes.independence is not None and sizes.columns < sizes.rows:
        edge = math.sqrt(sizes.columns / sizes.rows)
        of_columns = ((1 + edge) / ((1 - edge) * sizes.independence)) ** 2
        condition = min(condition, of_columns)
    return float(condition**0.25)


@dataclass(frozen=True)
class Outlook:
    """The expected costs of a method until a relative gap of 1e-6."""

    rounds: float
    sums: float
    """`Sum`s in a round."""
    scalars: float
    """Numbers that one party sends in a round."""
    work: float
    """Multiplications of one agent in a round, at `speed`."""
    what: str = ""
    """The reason to choose it."""
    shared: float = 0.0
    """Multiplications in a round that are equal at all agents; in memory they count once."""

    def seconds(self, network: Network, sizes: Sizes) -> float:
        """Return the time of all rounds."""
        messages = _sum_seconds(network, sizes.link, self.sums, self.scalars)
        own = self.work / TUNING.speed + self.sums * TUNING.call
        if sizes.link.memory:
            own = own * sizes.agents
        return self.rounds * (messages + own + self.shared / TUNING.speed)


def first_order(problem: Any, sizes: Sizes) -> Outlook:
    """Return the costs of a first-order method, for data split by samples."""
    # A personal model has no loss of its own; its rounds do not follow from a condition.
    loss = getattr(problem, "loss", None)
    if loss is not None and loss.smooth:
        rounds = TUNING.smooth_rounds * root_condition(problem, sizes)
    else:
        rounds = TUNING.nonsmooth_rounds
    scalars = sizes.width(problem) + 32
    work = 2 * TUNING.sweeps * sizes.rows_work
    return Outlook(rounds, 2, scalars, work)


def worth(problem: Problem, network: Network, sizes: Sizes, outlook: Outlook) -> tuple[float, str]:
    """Return the score of a method with these costs, relative to a first-order method, and the
    reason.
    """
    taken = outlook.seconds(network, sizes)
    usual = first_order(problem, sizes).seconds(network, sizes)
    reason = (
        f"{outlook.what}: about {taken:.2g} s, against {usual:.2g} s for a first-order method, "
        f"{sizes.link}"
    )
    return TUNING.first_order * usual / taken, reason


def _sum_seconds(network: Network, link: Link, sums: float, scalars: float) -> float:
    """Return the time of the messages of a round."""
    tree = network.tree()
    copies = network.agents
    if not network.server:
        children = np.bincount(tree.parents[tree.parents >= 0], minlength=1)
        copies = children.max() + 1
    latency = sums * 2 * max(tree.depth, 1) * link.latency
    sending = copies * 64 * scalars / link.bandwidth
    return float(latency + sending)
