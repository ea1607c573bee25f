"""L-BFGS over blocks of columns: far fewer rounds than first-order methods, for messages as long.

    p   = −H ∇P(w), or the way to the minimum of the model with the l1 penalty        `quasi_newton.py`: a few numbers
    t   = argmin P(w + t p), for l1 with the chord of the penalty in place of it
    w⁺  = w + t p

A round on data split by features says `Sum`s of inner products of each agent's blocks; one of X p, n numbers; one in
which the agent with the labels, after an exact search along X p, tells the slope of the loss at every row, n numbers.
Data split by samples is in `lbfgs_rows.py`. The loss may have kinks: `envelope.py`.

For l1 the way ends at a point with zeros, so that t ≤ 1. Where it would be more, the first guess of the Hessian is made
twice as soft for the next round, and where it is less than a half, twice as stiff.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple

import numpy as np

from coterie.errors import InvalidProblem
from coterie.methods.auto.costs import Sizes
from coterie.methods.columns.chambolle_pock import first_dual_step
from coterie.methods.columns.column_costs import cheaper, numbers_sent, per_row, seconds
from coterie.methods.columns.couriers import Blocks, Sums
from coterie.methods.columns.envelope import bend_of, is_smooth, next_width, slopes, step_along
from coterie.methods.method import Method, Rows
from coterie.methods.quasi_newton import pairs as quasi_newton
from coterie.methods.quasi_newton.metrics import Diagonal, Metric, block_of
from coterie.methods.quasi_newton.pairs import Memory
from coterie.networks import Network
from coterie.numerics.arrays import FloatArray, whole_number
from coterie.numerics.penalties.pieces import Pieces
from coterie.numerics.tuning import Tuning, tuned
from coterie.problems.problem import Problem
from coterie.run.agent import Agent
from coterie.run.certificate import Point
from coterie.run.collectives import Sum, Talk
from coterie.run.disclosure import Disclosure

ROUNDING = 1e-13
"""A pair whose ⟨s, y⟩ is below this share of the decrease along it has no curvature."""
SCORE = 3.0
"""Above tree and graph-cp wherever it applies: they send ten times as much."""
NOTHING: FloatArray = np.empty(0)


@dataclass(frozen=True)
class _Tuning(Tuning):
    equation_share: int = tuned(10, "Beside l1, k pairs make messages of 2 k² numbers: k² is at most n over this, ...")
    fewest_pairs: int = tuned(5, "... but so many pairs are remembered.")
    block_share: int = tuned(2, "A block of d_j² numbers is kept where it is at most so many times n.")
    solved_well: float = tuned(0.03, "A centre is left when a round promises this share of what the envelope costs.")
    stiffer: float = tuned(0.5, "By how much the first guess is made stiffer ...", below=1)
    short: float = tuned(0.5, "... after a step shorter than this, ...", below=1)
    softer: float = tuned(2.0, "... and softer after a full one.", above=1)

    def stretched(self, stretch: float, step: float, full: bool) -> float:
        """How soft the first guess is after that step."""
        return stretch * (self.softer if full else self.stiffer if step < self.short else 1.0)


TUNING = _Tuning()


@dataclass(frozen=True, slots=True)
class State:
    """Where one agent stands between two rounds. Split by features, what is said of rows is at the labels only."""

    w: FloatArray
    slope: FloatArray
    """∇f + ridge w on this agent's columns."""
    memory: Memory
    base: FloatArray
    """The diagonal of the first guess of the Hessian."""
    bend: float
    """The mean of ℓ'' over n in it."""
    scores: FloatArray
    v: FloatArray
    """The slopes of the loss, or of its envelope."""
    centre: FloatArray
    width: float
    """The envelope's; 0 for a smooth loss."""
    rounds: int
    """Since the centre was moved."""
    cost: float
    """What the envelope cost around the last centre."""
    stretch: float
    value: float
    """P(w), split by samples."""


class Way(NamedTuple):
    """Where to go."""

    memory: Memory
    p: FloatArray
    linear: float
    """⟨ridge w, p⟩ of this agent's columns."""
    quadratic: float
    """⟨p, ridge p⟩."""
    chord: float
    """Σ threshold |w + p| − threshold |w|."""
    steep: float
    """⟨slope, p⟩."""


@dataclass(frozen=True)
class QuasiNewton(Method[State, Rows]):
    """What both splits share."""

    memory: int = 30
    """Pairs of steps and slopes to remember, at most: 2 · memory numbers for each of its columns."""

    def __post_init__(self) -> None:
        whole_number(f"{self.name}: memory", self.memory)

    def check(self, problem: Problem, network: Network) -> None:
        if not is_for(problem):
            raise InvalidProblem(
                f"{self.name} is for the penalties none, l2, l1 and elasticnet, and this problem has "
                f"{problem.penalty.name!r}. Use {self.instead}."
            )

    instead: ClassVar[str]

    @property
    def states(self) -> tuple[type, ...]:
        return self.state, Memory

    def _pairs(self, agent: Agent) -> int:
        """How many pairs to remember."""
        if agent.split != "features" or not has_threshold(agent):
            return self.memory
        return min(self.memory, max(TUNING.fewest_pairs, int(math.sqrt(agent.design.shape[0] / TUNING.equation_share))))

    def way(self, agent: Agent, state: State, metrics: list[Metric], t: int, add: quasi_newton.Add) -> Talk[Way]:
        """Where to go from that State."""
        turn, ridge, threshold = t % len(metrics), ridge_of(agent), threshold_of(agent)
        memory, along = yield from quasi_newton.known(state.memory, metrics, turn, state.slope, add)
        p: FloatArray
        if has_threshold(agent):
            where = memory, metrics[turn], turn, state.slope, state.w, threshold, state.stretch
            p = (yield from quasi_newton.minimum(*where, add)) - state.w
        else:
            p = quasi_newton.along_slopes(memory, metrics[turn], turn, state.slope, along)
        pull = ridge * p
        chord = float(threshold @ (np.abs(state.w + p) - np.abs(state.w)))
        return Way(memory, p, float(pull @ state.w), float(pull @ p), chord, float(state.slope @ p))

    def after(self, agent: Agent, memory: Memory, step: FloatArray, change: FloatArray, keeps: float) -> Memory:
        """With the new pair, without it (0), or without all (−1)."""
        if keeps < 0:
            return Memory.empty(len(step), len(memory.YDY))
        return memory.with_pair(step, change, self._pairs(agent)) if keeps else memory


@dataclass(frozen=True)
class Lbfgs(QuasiNewton):
    """L-BFGS on data split by features: two `Sum`s of n numbers per round and small ones."""

    name: ClassVar[str] = "lbfgs"
    split: ClassVar[str] = "features"
    summary: ClassVar[str] = "quasi-Newton over blocks of columns, labels at one agent: few rounds, every loss"
    instead: ClassVar[str] = "tree or graph-cp"
    disclosure: ClassVar[Disclosure] = Disclosure(
        sent="the change of its partial scores, one number per row, and inner products of its last steps and slopes, a "
        "few numbers, all added up along the tree; from the label party the slope of the loss at every row",
        learned="the labels, from the slopes. And how the scores of a leaf, or of a whole branch, move: after as many "
        "rounds as it has columns, these up to a rotation (who resembles whom, to 2e-9)",
        secure="the labels, from the slopes; and how the scores of all other parties together move",
    )
    tells_labels: ClassVar[bool] = True
    first_look: ClassVar[int] = 4

    @classmethod
    def score(cls, problem: Problem, network: Network, sizes: Sizes | None = None) -> tuple[float, str] | None:
        if sizes is None or not is_for(problem):
            return None
        sent = numbers_sent(problem, network, sizes)
        each, taken = per_row(sent, sizes.rows), seconds(problem, network, sizes)
        return SCORE + cheaper(taken, "lbfgs", "blocks"), (
            f"it is expected to send about {each['lbfgs']} numbers per row, against {each['blocks']} for moving the "
            f"columns (blocks) and {each['tree']} for tree, and to take about {taken['lbfgs']:.2g} s, against "
            f"{taken['blocks']:.2g} s and {taken['tree']:.2g} s, {sizes.link}"
        )

    def start(self, agent: Agent) -> Talk[State]:
        return (yield from self._started(agent, agent.first_model().astype(float), None, Sums()))

    def warm(self, agent: Agent, state: State, point: Point) -> Talk[State]:
        return (yield from self._started(agent, point.w.astype(float), point.v, Sums()))

    def courier(self, agent: Agent, state: State) -> Sums | Blocks:
        """How scores and slopes travel."""
        return Sums()

    def _started(self, agent: Agent, w: FloatArray, dual: FloatArray | None, courier: Sums | Blocks) -> Talk[State]:
        """At w; with kinks, around that dual."""
        scores, _ = yield from courier.scores(agent, w)
        v, centre = NOTHING, NOTHING
        width = bend = 0.0
        if agent.data.y is not None:
            centre = np.zeros(0 if is_smooth(agent) else len(scores)) if dual is None else dual.astype(float)
            width = 0.0 if is_smooth(agent) else 1.0 / first_dual_step(agent)
            v = slopes(agent, scores, centre, width)
            bend = bend_of(agent, scores, v, width)
        adjoint, (bend,) = yield from courier.slopes(agent, v, (bend,))
        bend, ridge = float(bend) / agent.total, ridge_of(agent)
        lengths = agent.design.squared_lengths().astype(float)
        base = bend * lengths + ridge
        base[lengths == 0] = base.max(initial=0.0) or 1.0
        mine = scores if agent.data.y is not None else NOTHING
        none, slope = Memory.empty(len(w), 2), adjoint / agent.total + ridge * w
        return State(w, slope, none, base, bend, mine, v, centre, width, 0, math.inf, 1.0, 0.0)

    def round(self, agent: Agent, state: State, t: int) -> Talk[State]:
        courier = self.courier(agent, state)
        way = yield from self.way(agent, state, _metrics(agent, state), t, _summed)
        image, numbers = yield from courier.scores(agent, way.p, way[2:])
        after, decided = self._decided(agent, state, image, numbers) if state.v.size else (state, (0.0, 0.0, 0.0))
        adjoint, told = yield from courier.slopes(agent, after.v, decided)
        step, keeps, stretch = map(float, told)
        w = state.w + step * way.p
        slope = adjoint / agent.total + ridge_of(agent) * w
        memory = self.after(agent, way.memory, step * way.p, slope - state.slope, keeps)
        return replace(after, w=w, slope=slope, memory=memory, stretch=stretch)

    def _decided(
        self, agent: Agent, state: State, image: FloatArray, numbers: FloatArray
    ) -> tuple[State, tuple[float, float, float]]:
        """Where the agent with the labels goes: the step, whether to remember the pair, and the next stretch."""
        linear, quadratic, chord, steep = map(float, numbers)
        most = 1.0 if has_threshold(agent) else math.inf
        place = state.scores, image, state.centre, state.width
        step = step_along(agent, *place, (linear + chord, quadratic), most)
        scores = state.scores + step * image
        v = slopes(agent, scores, state.centre, state.width)
        stretch = state.stretch
        if most == 1.0:
            stretch = TUNING.stretched(stretch, step, step >= most)
        after = replace(state, scores=scores, v=v, rounds=state.rounds + 1)
        if state.width:
            # What the envelope costs: (width/2) Σ s (v − c)² / n
            distance = v - state.centre
            cost = 0.5 * state.width * float(distance @ agent.weighted(distance)) / agent.total
            if -0.5 * (steep + chord) <= TUNING.solved_well * cost:
                width = next_width(state.width, after.rounds, cost, state.cost)
                v, centre = slopes(agent, scores, v, width), v
                return replace(after, v=v, centre=centre, width=width, cost=cost, rounds=0), (step, 0.0, stretch)
        # ⟨s, y⟩ of the new pair: between kinks there may be no curvature at all.
        bent = step * (float((v - state.v) @ agent.weighted(image)) / agent.total + step * quadratic)
        keeps = -1.0 if not step else 1.0 if bent > ROUNDING * abs(step * steep) else 0.0
        return after, (step, keeps, stretch)

    def point(self, agent: Agent, state: State) -> Point:
        w = state.w.astype(agent.design.dtype)
        return Point(w, state.v) if agent.data.y is not None else Point(w)


# -- what is said ------------------------------------------------------------------------------------------------------


def is_for(problem: Problem) -> bool:
    """Whether its penalty is none, l2, l1 or both of these."""
    pieces = problem.penalty.pieces
    return pieces is not None and not set(pieces.kinds) - {"l1"}


def _summed(x: FloatArray) -> Talk[FloatArray]:
    total: FloatArray = yield Sum(x)
    return total


# -- what is computed --------------------------------------------------------------------------------------------------


def _metrics(agent: Agent, state: State) -> list[Metric]:
    """Its diagonal, and its block where it is no larger than two vectors of all rows."""
    if agent.scratch.get("metrics of", NOTHING) is not state.base:
        own, (n, width) = Diagonal(state.base), agent.design.shape
        small = width > 1 and width * width <= TUNING.block_share * n
        both: list[Metric] = [own, block_of(agent.design, state.bend, ridge_of(agent)) if small else own]
        agent.scratch["metrics of"], agent.scratch["metrics"] = state.base, both
    metrics: list[Metric] = agent.scratch["metrics"]
    return metrics


def ridge_of(agent: Agent) -> FloatArray:
    return _per_column(agent, _pieces(agent).ridge)


def threshold_of(agent: Agent) -> FloatArray:
    return _per_column(agent, _pieces(agent).threshold)


def has_threshold(agent: Agent) -> bool:
    return _pieces(agent).threshold > 0


def _pieces(agent: Agent) -> Pieces:
    pieces = agent.problem.penalty.pieces
    assert pieces is not None
    return pieces


def _per_column(agent: Agent, number: float) -> FloatArray:
    """That number for each of its columns, 0 for the intercept's."""
    numbers = np.full(agent.design.shape[1], number)
    if agent.design.intercept:
        numbers[-1] = 0.0
    return numbers
