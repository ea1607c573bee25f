"""Newton's method with a line search, for every loss that has an `Oracle` and every penalty with a
prox.

    f(w) = (1/n) Σ_agents F_k(w),   P = f + g,   H = ∇²f(w)
    z    = argmin ⟨∇f(w), z − w⟩ + ½ (z − w)ᵀ H (z − w) + g(z)       `quadratic_models.py`
    w⁺   = w + t (z − w)                                             step size t: `line_search.py`

A method may search in another way, as `semismooth.py` does with slopes.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar

from coterie.methods.auto.costs import Outlook, Sizes
from coterie.methods.line_search import Line, best_step, line_to, most_of_search, objective_at
from coterie.methods.method import Method
from coterie.methods.second_order import quadratic_models
from coterie.methods.second_order.oracle import (
    NOTHING,
    WHOLE,
    Aim,
    HessianOracle,
    Oracle,
    Taken,
)
from coterie.methods.second_order.quadratic import rounded
from coterie.networks import Network
from coterie.numerics.arrays import FloatArray, sealed, shared_result, whole_number
from coterie.numerics.tuning import Tuning, tuned
from coterie.problems.problem import Problem
from coterie.run.agent import Agent, AgentForm
from coterie.run.certificate import Point
from coterie.run.collectives import Protocol, Sum
from coterie.run.disclosure import Case, Counts


@dataclass(frozen=True)
class _Tuning(Tuning):
    full: int = tuned(
        100,
        "Coefficients up to which agents add up whole Hessians.",
        "measured: 26 made classes, digits",
        costs=8.0,
    )
    full_nonsmooth: int = tuned(
        500,
        "That number with l1, groups and bounds.",
        "measured: 26 made classes, digits",
        costs=8.0,
    )
    doubt: float = tuned(
        1.2,
        "A certificate waits until the estimate of the gap, divided by this, allows it.",
        above=1,
    )


TUNING = _Tuning()


@dataclass(frozen=True, slots=True)
class State:
    """Where one agent stands between two rounds; all but `own` and `v` is equal at all agents."""

    w: FloatArray
    steepest: float = 0.0
    """The steepness in the first round, which sets the exactness of later rounds; 0 before."""
    left: float = 0.0
    """The least gap that the last step can have left; 0 if unknown."""
    memory: Any = None
    """The memory of the oracle, equal at all agents."""
    own: FloatArray = field(default_factory=lambda: NOTHING)
    """The memory of the oracle about the agent's own rows."""
    v: FloatArray | None = None
    """Dual variables of the agent's own rows that are better than the gradient of the loss at w."""


@dataclass(frozen=True)
class ProximalNewton(Method[State]):
    """Newton's method; a subclass names the oracle, and finds the target of a step."""

    split: ClassVar[str] = "samples"
    first_look: ClassVar[int] = 1
    discloses_labels: ClassVar[bool] = False
    memory: ClassVar[type | None] = None
    """The class of the oracle's memory."""

    @property
    def states(self) -> tuple[type, ...]:
        if self.memory is None:
            return (State,)
        return (State, self.memory)

    @abstractmethod
    def oracle(self, agent: Agent, state: State) -> Oracle:
        """Return the agent's part of f, at the model of that State."""

    def aim(self, agent: Agent, state: State, oracle: Any) -> Protocol[Aim]:
        """Find the target of the next step."""
        return (yield from quadratic_models.from_hessian(agent, oracle))

    def start(self, agent: Agent) -> Protocol[State]:
        yield from ()  # sends nothing
        w = agent.centred.inner(agent.first_model().astype(float))
        return State(sealed(w))

    def warmed(self, agent: Agent, state: State, point: Point) -> State:
        w = agent.centred.inner(point.w.astype(float))
        return replace(state, w=sealed(w))

    def round(self, agent: Agent, state: State, t: int) -> Protocol[State]:
        oracle = self.oracle(agent, state)
        aim = yield from self.aim(agent, state, oracle)
        taken = yield from self.search(agent, oracle, aim, t)
        kept = oracle.kept_after(aim, taken)
        steepest = state.steepest or aim.steepness
        return State(taken.w, steepest, taken.left, kept.memory, kept.own, kept.v)

    def search(self, agent: Agent, oracle: Any, aim: Aim, t: int) -> Protocol[Taken]:
        """Take a step towards the target in round t, after a search on values of P."""
        losses = yield Sum(oracle.values(aim.target, WHOLE))
        losses_there = float(losses[0])
        self.check_step(agent, losses_there, t)
        line, whole = shared_result(losses, _measured, agent, oracle.w, aim, losses_there)
        step_size = 1.0
        w = aim.target
        left = _gap_after(line, whole, aim.foreseen)
        if not line.is_enough(whole):
            values = partial(oracle.values, aim.target)
            step_size = yield from best_step(agent, line, whole, values)
        if step_size < 1.0:
            w = shared_result(losses, line.at, step_size)
            left = 0.0
        return Taken(w, step_size, left, line.objective, whole)

    def check_step(self, agent: Agent, losses: float, t: int) -> None:
        """Refuse, in round t, data on which steps never end; n f is `losses` after a whole step."""

    def expected_gap(self, agent: AgentForm, state: State) -> float | None:
        if state.left:
            return state.left / TUNING.doubt
        return None

    def point(self, agent: Agent, state: State) -> Point:
        """Return w. The gradients of the loss are the dual variables: at the minimum, these are the
        best.
        """
        return Point(rounded(agent, state.w), state.v)


def most_with_losses(aim: Counts) -> Counts:
    """Return the largest counts of a round without a search: of the target of the step, and of the
    losses after it.
    """
    return aim[0] + 1, aim[1] + 1


def most_of_newtons_search(case: Case) -> Counts:
    """Return the largest counts of the search in some rounds."""
    return most_of_search()


def most_by_width(case: Case) -> Counts:
    """Return the largest counts of a round of a method `ByWidth`."""
    width = case.width * case.outputs
    if width <= _few(case.problem):
        return most_with_losses(quadratic_models.most_from_hessian(width))
    return most_with_losses(quadratic_models.most_from_products(width, ByWidth.products))


def _measured(agent: Agent, w: FloatArray, aim: Aim, losses: float) -> tuple[Line, float]:
    """Return the line to the target, and P there."""
    line = line_to(agent, w, aim.target, aim.gradient, aim.losses)
    return line, objective_at(agent, losses, aim.target)


def _gap_after(line: Line, whole: float, foreseen: float) -> float:
    """Return the least gap that a whole step can have left; 0 if that is not known.

    The quadratic model is off by E = gain − foreseen along the step p. That leaves a derivative of
    3E along p if ∇³P is the cause, or of 2E if H lacks rows. With ⟨p, ∇²P p⟩ ≈ 2 gain, P can fall
    by another E² / gain or more.
    """
    gain = line.objective - whole
    if foreseen > 0 and gain > line.rounding:
        return (gain - foreseen) ** 2 / gain
    return 0.0


@dataclass(frozen=True)
class ByWidth(ProximalNewton):
    """Newton's method with the whole Hessian of few coefficients, and with products with the
    Hessian of many.
    """

    products: int = 50
    """The largest number of products with the Hessian in a round."""

    def __post_init__(self) -> None:
        whole_number(f"{self.name}: products", self.products)

    def oracle(self, agent: Agent, state: State) -> Oracle:
        return HessianOracle(agent, state.w)

    @classmethod
    def score(
        cls, problem: Problem, network: Network, sizes: Sizes | None = None
    ) -> tuple[float, str] | None:
        return 1.0, "a few rounds suffice"

    @classmethod
    def outlook(cls, problem: Problem, sizes: Sizes) -> Outlook | None:
        width = sizes.width(problem) * problem.outputs
        if width <= _few(problem):
            sums = 2
            scalars = width * (width + 3) / 2
        else:
            sums = 30
            scalars = 30 * width
        work = 2 * sums * problem.outputs * sizes.rows_work
        return Outlook(8, sums, scalars, work)

    def aim(self, agent: Agent, state: State, oracle: Any) -> Protocol[Aim]:
        if len(state.w) <= _few(agent.problem):
            return (yield from quadratic_models.from_hessian(agent, oracle))
        # With a penalty, more exact steps save no round (measured: digits, 26 made classes).
        if agent.problem.penalty.is_zero:
            steepest = state.steepest
        else:
            steepest = 0.0
        return (yield from quadratic_models.from_products(agent, oracle, steepest, self.products))


def _few(problem: Problem) -> int:
    """Return the largest number of coefficients for which agents add up whole Hessians."""
    if quadratic_models.is_smooth(problem):
        return TUNING.full
    return TUNING.full_nonsmooth
