"""Newton's method with a line search for losses that are no sum over single scores: softmax, partial likelihoods.

    z  = argmin ⟨∇f(w), z − w⟩ + ½ (z − w)ᵀ H (z − w) + g(z)            H = ∇²f(w)
    w⁺ = w + θ (z − w)                                                 θ = 1, or the best of a few trial steps

With few coefficients a round is one `Sum` of ∇f and the upper triangle of H. With many, and `l2` or no penalty, it is
one of ∇f and about the diagonal of H, and one for every conjugate gradient, which multiplies H by a direction. Any
other penalty beside many coefficients takes accelerated proximal gradients on the same quadratic, in the metric of that
diagonal: each of them is a product too. What H is says a subclass: `softmax_newton.py`, `cox_newton.py`.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, TypeAlias

import numpy as np

from coterie.agent import Agent
from coterie.arrays import FloatArray, sealed, shared_result, whole_number
from coterie.certificate import Point
from coterie.methods.conjugate_gradients import solved
from coterie.methods.costs import Outlook, Sizes
from coterie.methods.method import Method
from coterie.methods.moments import packed, unpacked
from coterie.methods.quadratic import minimiser, rounded
from coterie.networks import Network
from coterie.problem import Problem
from coterie.tuning import Tuning, tuned
from coterie.words import Sum, Talk

Product: TypeAlias = Callable[[FloatArray], FloatArray]

TRIALS = np.array([1 / 2, 1 / 4, 1 / 8, 1 / 16, 1 / 64, 1 / 256, 1 / 1024])
"""Shares of a step that are tried where the whole one is too long."""


@dataclass(frozen=True)
class _Tuning(Tuning):
    full: int = tuned(
        100, "Coefficients up to which whole Hessians are added up.", "measured: 26 made classes, digits", costs=8.0
    )
    full_kinks: int = tuned(
        500, "The same beside l1, groups and bounds.", "measured: 26 made classes, digits", costs=8.0
    )
    enough: float = tuned(
        0.25,
        "The share of the linear decrease that a whole step must bring.",
        "theorem: Armijo's rule takes any share below 1",
        below=1.0,
    )
    exact: float = tuned(
        0.1, "How exactly the first quadratics are solved, relatively.", "measured: 26 made classes, digits", below=1.0
    )
    least: float = tuned(
        1e-10, "Share of the largest curvature that every column has at least.", "rounding: of nearly constant columns"
    )
    rounding: float = tuned(
        1e-13, "Values of P that differ by less, relatively, are equal.", "rounding: of sums in double precision"
    )


TUNING = _Tuning()


@dataclass(frozen=True, slots=True)
class State:
    """Where one agent stands between two rounds; the same at every agent."""

    w: FloatArray
    steepest: float
    """‖∇P‖ in the first round, from which later ones know how exact to be; 0 before."""


@dataclass(frozen=True)
class DampedNewton(Method[State]):
    """Proximal Newton with a line search."""

    split: ClassVar[str] = "samples"
    first_look: ClassVar[int] = 1
    tells_labels: ClassVar[bool] = False

    products: int = 50
    """The largest number of products with the Hessian in a round."""

    def __post_init__(self) -> None:
        whole_number(f"{self.name}: products", self.products)

    @staticmethod
    @abstractmethod
    def hessian(here: Any) -> FloatArray:
        """The upper triangle of what its own rows add to n H."""

    @staticmethod
    @abstractmethod
    def diagonal(here: Any) -> FloatArray:
        """About the diagonal of the same, and not less."""

    @staticmethod
    def bent(here: Any, direction: FloatArray) -> FloatArray:
        """What its own rows add to n H times a direction."""
        image: FloatArray = here.design.adjoint(here.bent(here.design.forward(direction)))
        return image

    def check_step(self, agent: Agent, losses: float, t: int) -> None:
        """Refuse, in round t, data on which steps never end: f at the end of a whole one is n times that."""

    @classmethod
    def score(cls, problem: Problem, network: Network, sizes: Sizes | None = None) -> tuple[float, str] | None:
        return 1.0, "a few rounds suffice"

    @classmethod
    def outlook(cls, problem: Problem, sizes: Sizes) -> Outlook:
        width = sizes.width(problem) * problem.outputs
        few = width <= (TUNING.full if _is_smooth(problem) else TUNING.full_kinks)
        sums, scalars = (2, width * (width + 3) / 2) if few else (30, 30 * width)
        return Outlook(8, sums, scalars, 2 * sums * problem.outputs * sizes.rows_work)

    def start(self, agent: Agent) -> Talk[State]:
        yield from ()  # there is nothing to ask
        return State(sealed(agent.centred.inner(agent.first_model().astype(float))), 0.0)

    def warmed(self, agent: Agent, state: State, point: Point) -> State:
        return replace(state, w=sealed(agent.centred.inner(point.w.astype(float))))

    def point(self, agent: Agent, state: State) -> Point:
        """The slope of the loss at w is the dual."""
        return Point(rounded(agent, state.w))

    def round(self, agent: Agent, state: State, t: int) -> Talk[State]:
        here = agent.at(state.w, agent.centred)
        few = len(state.w) <= (TUNING.full if _is_smooth(agent.problem) else TUNING.full_kinks)
        z, slope, before = yield from (
            self._from_hessian(agent, here) if few else self._from_products(agent, state, here)
        )
        image = agent.centred.forward(z - state.w)
        penalty, there = (_penalty(agent, w) for w in (state.w, z))
        promised = float(slope @ (z - state.w)) + there - penalty
        primal, n, rounding = before / agent.total + penalty, agent.total, TUNING.rounding * abs(before / agent.total)
        losses = yield Sum(np.array([here.losses_at(here.scores + image)]))
        self.check_step(agent, float(losses[0]), t)
        steepest = state.steepest or float(np.linalg.norm(slope))
        if float(losses[0]) / n + there - primal <= TUNING.enough * promised + rounding:
            return State(z, steepest)
        shares, theta = TRIALS, 0.0
        while theta == 0.0 and shares[0] * -promised > rounding:
            values = yield Sum(np.array([here.losses_at(here.scores + share * image) for share in shares]))
            after = values / n + [_penalty(agent, state.w + share * (z - state.w)) for share in shares]
            best = int(np.argmin(after))
            theta, shares = float(shares[best]) if after[best] < primal else 0.0, shares * TRIALS[-1]
        return State(sealed(state.w + theta * (z - state.w)), steepest)

    def _from_products(self, agent: Agent, state: State, here: Any) -> Talk[tuple[FloatArray, FloatArray, float]]:
        """The next target, ∇f and Σ s ℓ, from products of the Hessian with directions."""
        n, width = agent.total, len(state.w)
        first = yield Sum(np.concatenate([self.diagonal(here), here.adjoint, [here.losses]]))
        scale, slope = first[:width] / n, first[width:-1] / n
        scale = np.maximum(scale, scale.max(initial=0.0) * TUNING.least)
        solve = _conjugate_gradients if _is_smooth(agent.problem) else _proximal_gradients
        exact = TUNING.exact
        if state.steepest:
            exact = min(exact, math.sqrt(float(np.linalg.norm(slope)) / state.steepest))
        bent = partial(self.bent, here)
        z = yield from solve(agent, here.w, bent, first, slope, scale, exact, self.products)
        return sealed(z), slope, float(first[-1])

    def _from_hessian(self, agent: Agent, here: Any) -> Talk[tuple[FloatArray, FloatArray, float]]:
        """The next target, ∇f and Σ s ℓ, from the whole Hessian."""
        total = yield Sum(packed(self.hessian(here), here.adjoint, np.array([here.losses])))
        width = len(here.w)

        def found() -> tuple[FloatArray, FloatArray, float]:
            slope = total[-width - 1 : -1] / agent.total
            H = unpacked(total, width) / agent.total
            return sealed(minimiser(agent, H, slope, here.w)[0]), slope, float(total[-1])

        return shared_result(total, found)


def _conjugate_gradients(
    agent: Agent,
    w: FloatArray,
    bent: Product,
    said: FloatArray,
    slope: FloatArray,
    scale: FloatArray,
    exact: float,
    most: int,
) -> Talk[FloatArray]:
    """w + p with (H + λI) p = −∇P, nearly, where λ is 0 for intercepts."""
    ridge = np.full(len(slope), agent.problem.penalty.strong_convexity)
    ridge[len(ridge) - agent.problem.free() :] = 0.0
    left = -slope - ridge * w
    enough = exact * float(np.linalg.norm(left))
    p = yield from solved(agent, bent, ridge, scale + ridge, left, enough, most, said)
    return w + p


def _proximal_gradients(
    agent: Agent,
    w: FloatArray,
    bent: Product,
    said: FloatArray,
    slope: FloatArray,
    scale: FloatArray,
    exact: float,
    most: int,
) -> Talk[FloatArray]:
    """The minimum of the quadratic and the penalty, nearly: FISTA with restarts in the metric of the diagonal."""
    problem = agent.problem
    steps, longer, momentum, first = problem.tied(1.0 / scale), 1.0, 1.0, 0.0
    point, lead, pull_point, pull = w, w, 0.0 * w, 0.0 * w  # H times what point and lead are away from w
    for _ in range(most):
        if shared_result(said, agent.should_stop):
            break
        new = problem.prox(lead - longer * steps * (slope + pull), longer * steps)
        way = new - lead
        said = yield Sum(bent(way))
        image, moved = said / agent.total, float(way @ (way / steps))
        if longer * float(way @ image) > moved * (1 + 1e-9):
            longer /= 2.0  # the metric was too short: try again from the same place
            continue
        first = first or moved
        if moved <= (exact**2) * 0.01 * first:
            return new
        if np.vdot(lead - new, (new - point) / steps) > 0:
            momentum = 1.0
        following = 0.5 * (1 + math.sqrt(1 + 4 * momentum**2))
        share, pull_new = (momentum - 1) / following, pull + image
        point, lead, pull = new, new + share * (new - point), pull_new + share * (pull_new - pull_point)
        pull_point, momentum = pull_new, following
    return point


def _is_smooth(problem: Problem) -> bool:
    """Whether the penalty is."""
    return problem.penalty.quadratic or problem.penalty.is_zero


def _penalty(agent: Agent, w: FloatArray) -> float:
    return agent.problem.penalty.value(agent.problem.coefficients(w))
