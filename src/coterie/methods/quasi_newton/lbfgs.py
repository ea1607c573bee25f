"""L-BFGS over blocks of columns: far fewer rounds than first-order methods, for messages as long.

A round (`rounds.py`) sends `Sum`s of inner products of each agent's blocks; one of X p, n numbers;
and one in which the agent with the labels, after an exact search along X p, sends the derivative of
the loss at every row, n numbers. Rows are split in `lbfgs_rows.py`. The loss may be non-smooth:
`envelope.py`.

For l1 the way ends at a point with zeros, so that t ≤ 1. Where it would be more, the first guess of
the Hessian is made twice as soft for the next round, and where it is less than a half, twice as
stiff.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np

from coterie.methods.auto.costs import Sizes
from coterie.methods.columns.chambolle_pock import first_dual_step
from coterie.methods.columns.column_costs import cheaper, numbers_sent, per_row, seconds
from coterie.methods.columns.envelope import (
    gradients,
    is_smooth,
    mean_curvature,
    next_width,
    step_along,
)
from coterie.methods.columns.score_sums import ColumnSums, RowSums
from coterie.methods.quasi_newton.metrics import Diagonal, Metric, block_of
from coterie.methods.quasi_newton.pairs import Memory, most_of_products
from coterie.methods.quasi_newton.rounds import (
    NOTHING,
    Form,
    Found,
    QuasiNewton,
    State,
    Way,
    gradient_at,
    has_threshold,
    is_for,
    memory_after,
    nothing,
    ridge_of,
    stretched,
    way_of_pairs,
)
from coterie.networks import Network
from coterie.numerics.arrays import FloatArray
from coterie.numerics.tuning import Tuning, tuned
from coterie.problems.problem import Problem
from coterie.run.agent import Agent
from coterie.run.certificate import Point
from coterie.run.collectives import Protocol, Sum
from coterie.run.disclosure import SCORES_OF_BRANCHES, SCORES_OF_OTHERS, Case, Counts, Disclosure

ROUNDING = 1e-13
"""A pair whose ⟨s, y⟩ is below this share of the decrease along it has no curvature."""
SCORE = 3.0
"""Above tree and graph-cp wherever it applies: they send ten times as much."""


@dataclass(frozen=True)
class _Tuning(Tuning):
    equation_share: int = tuned(
        10, "With l1, k pairs make messages of 2 k² numbers: k² is at most n over this, ..."
    )
    fewest_pairs: int = tuned(5, "... but this many pairs are remembered.")
    block_share: int = tuned(
        2, "A block of d_j² numbers is kept where it is at most this many times n."
    )
    solved_well: float = tuned(
        0.03, "A centre is left when a round promises this share of what the envelope costs."
    )


TUNING = _Tuning()


@dataclass(frozen=True, slots=True)
class ColumnsState(State):
    """What the agent with the labels also knows; empty or equal at the others."""

    curvature: float = 0.0
    """The mean of ℓ'' over n in the first guess, at all agents."""
    scores: FloatArray = field(default_factory=nothing)
    v: FloatArray = field(default_factory=nothing)
    """The derivatives of the loss, or of its envelope."""
    centre: FloatArray = field(default_factory=nothing)
    width: float = 0.0
    """The envelope's; 0 for a smooth loss."""
    rounds: int = 0
    """Since the centre was moved."""
    cost: float = math.inf
    """What the envelope cost around the last centre."""


@dataclass(frozen=True)
class Lbfgs(QuasiNewton[ColumnsState]):
    """L-BFGS on data split by features: n numbers to the label agent and n from it per round, and
    small sums.
    """

    name: ClassVar[str] = "lbfgs"
    split: ClassVar[str] = "features"
    summary: ClassVar[str] = (
        "quasi-Newton over blocks of columns, labels at one agent: few rounds, every loss"
    )
    instead: ClassVar[str] = "tree or graph-cp"
    disclosure: ClassVar[Disclosure] = Disclosure(
        sent=(
            "the change of your partial scores, one number per row, as part of a sum to the label "
            "party; inner products of your last steps and gradients, as parts of sums; from the "
            "label party the gradient of the loss at every row"
        ),
        learned=f"the labels, from the gradients; and {SCORES_OF_BRANCHES}",
        secure=f"the labels, from the gradients; and {SCORES_OF_OTHERS}",
        most=lambda case: _most(case),
        before=lambda case: (2, 2 * case.rows + 1),
    )
    discloses_labels: ClassVar[bool] = True
    first_look: ClassVar[int] = 4

    @classmethod
    def score(
        cls, problem: Problem, network: Network, sizes: Sizes | None = None
    ) -> tuple[float, str] | None:
        if sizes is None or not is_for(problem):
            return None
        sent = numbers_sent(problem, network, sizes)
        each = per_row(sent, sizes.rows)
        taken = seconds(problem, network, sizes)
        return SCORE + cheaper(taken, "lbfgs", "blocks"), (
            f"it is expected to send about {each['lbfgs']} numbers per row, against "
            f"{each['blocks']} for moving the "
            f"columns (blocks) and {each['tree']} for tree, and to take about "
            f"{taken['lbfgs']:.2g} s, against "
            f"{taken['blocks']:.2g} s and {taken['tree']:.2g} s, {sizes.link}"
        )

    def start(self, agent: Agent) -> Protocol[ColumnsState]:
        return (yield from self._started(agent, agent.first_model().astype(float), None, RowSums()))

    def warm(self, agent: Agent, state: ColumnsState, point: Point) -> Protocol[ColumnsState]:
        return (yield from self._started(agent, point.w.astype(float), point.v, RowSums()))

    def score_sums(self, agent: Agent, state: ColumnsState) -> RowSums | ColumnSums:
        """How scores and derivatives travel."""
        return RowSums()

    def form(self, agent: Agent, state: ColumnsState) -> Form:
        return OfColumns(self.score_sums(agent, state), self._pairs(agent))

    def _pairs(self, agent: Agent) -> int:
        """How many pairs to remember."""
        if not has_threshold(agent):
            return self.memory
        most = int(math.sqrt(agent.design.shape[0] / TUNING.equation_share))
        return min(self.memory, max(TUNING.fewest_pairs, most))

    def _started(
        self, agent: Agent, w: FloatArray, dual: FloatArray | None, sums: RowSums | ColumnSums
    ) -> Protocol[ColumnsState]:
        """At w; without derivatives of the loss, around that dual."""
        scores, _ = yield from sums.scores(agent, w)
        has_labels = agent.data.y is not None
        smooth = is_smooth(agent)
        v = NOTHING
        centre = NOTHING
        width = curvature = 0.0
        if has_labels:
            if dual is not None:
                centre = dual.astype(float)
            else:
                centre = np.zeros(0 if smooth else len(scores))
            if not smooth:
                width = 1.0 / first_dual_step(agent)
            v = gradients(agent, scores, centre, width)
            curvature = mean_curvature(agent, scores, v, width)
        adjoint, (curvature,) = yield from sums.gradients(agent, v, (curvature,))
        curvature = float(curvature) / agent.total
        ridge = ridge_of(agent)
        lengths = agent.design.squared_lengths().astype(float)
        base = curvature * lengths + ridge
        base[lengths == 0] = base.max(initial=0.0) or 1.0
        return ColumnsState(
            w,
            gradient=gradient_at(agent, w, adjoint),
            memory=Memory.empty(len(w), 2),
            base=base,
            curvature=curvature,
            scores=scores if has_labels else NOTHING,
            v=v,
            centre=centre,
            width=width,
        )

    def point(self, agent: Agent, state: ColumnsState) -> Point:
        w = state.w.astype(agent.design.dtype)
        if agent.data.y is None:
            return Point(w)
        return Point(w, state.v)


class OfColumns(Form):
    """Where columns are split: the agent with the labels finds the step size, and all agents hear
    it.
    """

    def __init__(self, sums: RowSums | ColumnSums, most: int):
        """`most`: how many pairs to remember."""
        self._sums = sums
        self._most = most

    def way(self, agent: Agent, state: ColumnsState, t: int) -> Protocol[Way]:
        return (yield from way_of_pairs(agent, state, _metrics(agent, state), t, _summed))

    def search(self, agent: Agent, state: ColumnsState, way: Way) -> Protocol[Found]:
        score_change, numbers = yield from self._sums.scores(agent, way.p, way[2:])
        after = state
        decided = (0.0, 0.0, 0.0)
        if state.v.size:
            after, decided = _decided(agent, state, score_change, numbers)
        adjoint, decision = yield from self._sums.gradients(agent, after.v, decided)
        step_size, keeps, stretch = map(float, decision)
        return Found(after, adjoint, step_size, adjoint, keeps=keeps, stretch=stretch)

    def learned(
        self, agent: Agent, state: ColumnsState, way: Way, found: Found, gradient: FloatArray
    ) -> tuple[Memory, float]:
        change = gradient - state.gradient
        memory = memory_after(way.memory, found.step_size * way.p, change, found.keeps, self._most)
        return memory, found.stretch


def _decided(
    agent: Agent, state: ColumnsState, score_change: FloatArray, numbers: FloatArray
) -> tuple[ColumnsState, tuple[float, float, float]]:
    """The State of the agent with the labels after the search; step size, whether to keep the pair,
    and stretch.
    """
    linear, quadratic, chord, steep = map(float, numbers)
    if has_threshold(agent):
        most = 1.0
    else:
        most = math.inf
    envelope = state.centre, state.width
    step_size = step_along(
        agent, state.scores, score_change, *envelope, (linear + chord, quadratic), most
    )
    scores = state.scores + step_size * score_change
    v = gradients(agent, scores, *envelope)
    stretch = state.stretch
    if most == 1.0:
        stretch = stretched(stretch, step_size, step_size >= most)
    after = replace(state, scores=scores, v=v, rounds=state.rounds + 1)
    if state.width:
        # What the envelope costs: (width/2) Σ s (v − c)² / n
        distance = v - state.centre
        cost = 0.5 * state.width * float(distance @ agent.weighted(distance)) / agent.total
        if -0.5 * (steep + chord) <= TUNING.solved_well * cost:
            width = next_width(state.width, after.rounds, cost, state.cost)
            moved = gradients(agent, scores, v, width)
            return replace(after, v=moved, centre=v, width=width, cost=cost, rounds=0), (
                step_size,
                0.0,
                stretch,
            )
    # ⟨s, y⟩ of the new pair: between kinks there may be no curvature at all.
    change = float((v - state.v) @ agent.weighted(score_change)) / agent.total
    curvature = step_size * (change + step_size * quadratic)
    keeps = 0.0
    if not step_size:
        keeps = -1.0
    elif curvature > ROUNDING * abs(step_size * steep):
        keeps = 1.0
    return after, (step_size, keeps, stretch)


def _most(case: Case) -> Counts:
    """The largest counts of a round: products of pairs in two metrics, scores, and gradients with a
    few numbers.
    """
    pieces = case.problem.penalty.pieces
    has_equations = pieces is None or bool(np.any(pieces.threshold))
    collectives, numbers = most_of_products(Lbfgs.memory, 2, has_equations)
    return collectives + 2, numbers + 2 * case.rows + 7


def _summed(x: FloatArray) -> Protocol[FloatArray]:
    total: FloatArray = yield Sum(x)
    return total


def _metrics(agent: Agent, state: ColumnsState) -> list[Metric]:
    """The agent's diagonal, and its block where it is no larger than two vectors of all rows."""
    if agent.scratch.get("metrics of", NOTHING) is not state.base:
        own = Diagonal(state.base)
        n, width = agent.design.shape
        both: list[Metric] = [own, own]
        if width > 1 and width * width <= TUNING.block_share * n:
            both[1] = block_of(agent.design, state.curvature, ridge_of(agent))
        agent.scratch["metrics of"], agent.scratch["metrics"] = state.base, both
    metrics: list[Metric] = agent.scratch["metrics"]
    return metrics
