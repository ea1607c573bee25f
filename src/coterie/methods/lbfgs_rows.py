"""L-BFGS on data split by samples, for smooth losses and many columns: `lbfgs.py` has the text that both splits share.

A round is one `Sum` of ∇f(w + p) and its value, d + 1 numbers. Where P does not fall enough there, and in the first
round, a `Sum` of values at trial steps says how far to go, and another one ∇f there.

Where the loss is curved everywhere and the penalty is a ridge or none, `curved_pairs.py` takes fewer rounds, in single
precision for as long as it suffices.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from coterie.agent import Agent
from coterie.arrays import FloatArray, sealed, shared_result
from coterie.certificate import Point
from coterie.errors import InvalidProblem
from coterie.methods import curved_pairs
from coterie.methods.costs import Outlook, Sizes
from coterie.methods.curved_pairs import State
from coterie.methods.disclosure import WEIGHTED_ROWS, Disclosure
from coterie.methods.lbfgs import LESS, MORE, NOTHING, SHORT, QuasiNewton, Way, has_threshold, ridge_of
from coterie.methods.lbfgs import State as LbfgsState
from coterie.methods.metrics import Diagonal
from coterie.methods.moments import diagonal
from coterie.methods.newton import FULL
from coterie.methods.quadratic import proven
from coterie.methods.quasi_newton import Memory
from coterie.networks import Network
from coterie.problem import Problem
from coterie.words import Sum, Talk

TRIALS = 2.0 ** np.arange(3, -14, -1)
"""Steps at whose values to look."""
EXPECTED_ROUNDS = {"squared": 10.0, "any": 15.0}
"""What "auto" assumes."""
SUFFICIENT, ROUNDING = 1e-4, 1e-13
"""The share of the linear decrease that a full step needs, and the share of P below which decreases are rounding."""


@dataclass(frozen=True)
class LbfgsRows(QuasiNewton):
    """L-BFGS on data split by samples: one `Sum` of d + 1 numbers in most rounds."""

    name: ClassVar[str] = "lbfgs-rows"
    state: ClassVar[type] = State
    split: ClassVar[str] = "samples"
    summary: ClassVar[str] = "quasi-Newton for smooth losses: messages of one number per column, for many columns"
    instead: ClassVar[str] = "proximal-1"
    disclosure: ClassVar[Disclosure] = WEIGHTED_ROWS
    tells_labels: ClassVar[bool] = False

    @classmethod
    def outlook(cls, problem: Problem, sizes: Sizes) -> Outlook | None:
        """For more columns than Hessians are added up of, where pairs are curved: half of a number per column."""
        d = sizes.width(problem)
        if d <= FULL or not curved_pairs.suits(problem):
            return None
        rounds = EXPECTED_ROUNDS["squared" if problem.loss.quadratic else "any"]
        return Outlook(rounds, 1, 0.5 * d, 10 * sizes.rows_work, "a few messages of a number per column suffice")

    def check(self, problem: Problem, network: Network) -> None:
        super().check(problem, network)
        if not problem.loss.smooth:
            raise InvalidProblem(
                f"lbfgs-rows needs a smooth loss, and {problem.loss.name} has a kink. Use interior-point, "
                "or a smooth relative: huber for absolute, squared_hinge for hinge."
            )

    def start(self, agent: Agent) -> Talk[State]:
        if curved_pairs.suits(agent.problem):
            w = sealed(agent.centred.inner(agent.first_model().astype(float)))
            return (yield from curved_pairs.started(agent, w, agent.known.slope))
        return (yield from self._started(agent, agent.first_model().astype(float)))

    def warm(self, agent: Agent, state: LbfgsState, point: Point) -> Talk[State]:
        return (yield from self._started(agent, point.w.astype(float)))

    def _started(self, agent: Agent, plain: FloatArray) -> Talk[State]:
        w = sealed(agent.centred.inner(plain))
        if curved_pairs.suits(agent.problem):
            return (yield from curved_pairs.started(agent, w, None))
        here, loss = agent.at(w, agent.centred), agent.loss
        bends = agent.weighted(loss.curvature(here.scores, here.y))
        if not bends.any():
            bends = agent.weighted(np.ones(len(here.y)))
        heard = yield Sum(np.concatenate([diagonal(agent.centred, bends), here.adjoint, [here.losses]]))

        def started() -> State:
            ridge = ridge_of(agent)
            base = heard[: len(w)] / agent.total + ridge
            base[base <= 0] = base.max(initial=0.0) or 1.0
            slope = sealed(heard[len(w) : -1] / agent.total + ridge * w)
            value = _primal(agent, float(heard[-1]), w)
            blank, none = (
                (NOTHING, NOTHING, NOTHING, 0.0, 0, 0.0, 1.0, value),
                (NOTHING, NOTHING, NOTHING, 0.0, 1.0, 0.0),
            )
            return State(w, slope, Memory.empty(len(w), 1), base, 0.0, *blank, *none)

        return shared_result(heard, started, key=id(w))

    def round(self, agent: Agent, state: LbfgsState, t: int) -> Talk[State]:
        assert isinstance(state, State)
        if curved_pairs.suits(agent.problem):
            return (yield from curved_pairs.taken(agent, state, self.memory))

        def aimed() -> Way:
            return _alone(self._way(agent, state, [Diagonal(state.base)], t, _as_it_is))

        way = shared_result(state.slope, aimed)
        here, n, s, loss = agent.at(state.w, agent.centred), agent.total, agent.data.weights, agent.loss
        image = agent.centred.forward(way.p)
        down, rounding = way.steep + way.chord, ROUNDING * abs(state.value)
        step, heard, looked = 1.0, NOTHING, not len(way.memory.S)
        if not looked:
            heard = yield Sum(_at(agent, here.scores + image, here.y))
            value = _primal(agent, float(heard[-1]), state.w + way.p)
            looked = not value - state.value <= SUFFICIENT * down + rounding
        if looked:
            trials = TRIALS[TRIALS <= 1.0] if way.chord or has_threshold(agent) else TRIALS
            losses = yield Sum(np.array([loss.value(here.scores + t * image, here.y, s) for t in trials]))
            step = shared_result(losses, _best_step, agent, state, way, trials, losses)
            heard = yield Sum(_at(agent, here.scores + step * image, here.y))

        def stepped() -> State:
            w = sealed(state.w + step * way.p)
            slope = sealed(heard[:-1] / n + ridge_of(agent) * w)
            value = _primal(agent, float(heard[-1]), w)
            change = slope - state.slope
            keeps = 1.0 if float(change @ way.p) * step > 0 else -1.0
            stretch = state.stretch
            if has_threshold(agent):
                left = float(slope @ way.p) + way.chord
                stretch *= MORE if left < 0 and step == 1.0 else LESS if step < SHORT else 1.0
            memory = self._after(agent, way.memory, step * way.p, change, keeps)
            return replace(state, w=w, slope=slope, memory=memory, stretch=stretch, value=value)

        return shared_result(heard, stepped)

    def point(self, agent: Agent, state: LbfgsState) -> Point:
        return Point(*proven(agent, state.w))

    def expected_gap(self, agent: Agent, state: LbfgsState) -> float | None:
        return curved_pairs.expected_gap(agent, state) if curved_pairs.suits(agent.problem) else None


def _at(agent: Agent, scores: FloatArray, y: FloatArray) -> FloatArray:
    """X̃ᵀ(s∘ℓ') and Σ s ℓ of its rows at those scores."""
    loss = agent.loss
    adjoint = agent.centred.adjoint(agent.weighted(loss.gradient(scores, y)))
    return np.append(adjoint, loss.value(scores, y, agent.data.weights))


def _as_it_is(x: FloatArray) -> Talk[FloatArray]:
    """All columns are here."""
    yield from ()
    return x


def _alone(talk: Talk[Way]) -> Way:
    """The end of a conversation in which nobody has to be asked."""
    try:
        next(talk)
    except StopIteration as end:
        way: Way = end.value
        return way
    raise AssertionError("this conversation has no words")


def _primal(agent: Agent, losses: float, w: FloatArray) -> float:
    """P(w) from Σ s ℓ."""
    return agent.problem.primal(losses, agent.total, agent.problem.penalty.value(agent.problem.coefficients(w)))


def _best_step(agent: Agent, state: LbfgsState, way: Way, trials: FloatArray, losses: FloatArray) -> float:
    """The best of the trial steps, or the least of the parabola around it."""
    values = np.array([_primal(agent, float(f), state.w + t * way.p) for t, f in zip(trials, losses, strict=True)])
    k = int(np.argmin(values))
    if not values[k] < state.value:
        return float(trials[-1])
    if not 0 < k < len(trials) - 1:
        return float(trials[k])
    a, b, _ = np.polyfit(trials[k - 1 : k + 2], values[k - 1 : k + 2], 2)
    return float(np.clip(-b / (2 * a), trials[k + 1], trials[k - 1])) if a > 0 else float(trials[k])
