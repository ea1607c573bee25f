"""Newton's method for several classes: softmax, for data split by samples.

    z  = argmin ⟨∇f(W), z − W⟩ + ½ (z − W)ᵀ H (z − W) + g(z)            H = ∇²f(W), a block for every pair of classes
    W⁺ = W + θ (z − W)                                                 θ = 1, or the best of a few trial steps

With few coefficients a round is one `Sum` of ∇f and the upper triangle of H. With many, and `l2` or no penalty, it is
one of ∇f and the diagonal of H, and one for every conjugate gradient, which multiplies H by a direction:

    Xᵀ(s ∘ (p ∘ Xd − p ⟨p, Xd⟩))                                       a row of scores a row, never a matrix of H's size

Any other penalty beside many coefficients takes accelerated proximal gradients on the same quadratic, in the metric of
H's diagonal: each of them is a product too.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

import numpy as np

from coterie.agent import Agent, SoftmaxHere
from coterie.arrays import FloatArray, is_sparse, sealed, shared_result, whole_number
from coterie.certificate import Point
from coterie.methods.conjugate_gradients import solved
from coterie.methods.costs import Outlook, Sizes
from coterie.methods.disclosure import TOTALS, Disclosure
from coterie.methods.method import Method
from coterie.methods.moments import diagonal, packed, second_moment, unpacked
from coterie.methods.quadratic import minimiser, rounded
from coterie.networks import Network
from coterie.problem import Problem
from coterie.tuning import Tuning, tuned
from coterie.words import Sum, Talk

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
class SoftmaxNewton(Method[State]):
    """Proximal Newton for softmax with a line search."""

    name: ClassVar[str] = "softmax-newton"
    split: ClassVar[str] = "samples"
    family: ClassVar[str] = "multiclass"
    summary: ClassVar[str] = "Newton's method for several classes: a handful of rounds"
    first_look: ClassVar[int] = 1
    tells_labels: ClassVar[bool] = False
    disclosure: ClassVar[Disclosure] = Disclosure(
        sent="the slope of its own rows, a number per column and class, and their Hessian, or products with it",
        learned="weighted sums of its own rows and of their products; with few rows, the rows and labels themselves",
        secure=TOTALS,
    )

    products: int = 50
    """The largest number of products with the Hessian in a round."""

    def __post_init__(self) -> None:
        whole_number("softmax-newton: products", self.products)

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
        here: SoftmaxHere = agent.at(state.w, agent.centred)
        few = len(state.w) <= (TUNING.full if _is_smooth(agent.problem) else TUNING.full_kinks)
        z, slope, before = yield from (_from_hessian(agent, here) if few else self._from_products(agent, state, here))
        image = agent.centred.forward(z - state.w)
        penalty, there = (_penalty(agent, w) for w in (state.w, z))
        promised = float(slope @ (z - state.w)) + there - penalty
        primal, n, rounding = before / agent.total + penalty, agent.total, TUNING.rounding * abs(before / agent.total)
        losses = yield Sum(np.array([here.losses_at(here.scores + image)]))
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

    def _from_products(
        self, agent: Agent, state: State, here: SoftmaxHere
    ) -> Talk[tuple[FloatArray, FloatArray, float]]:
        """The next target, ∇f and Σ s ℓ, from products of the Hessian with directions."""
        n, width = agent.total, len(state.w)
        first = yield Sum(np.concatenate([_diagonal(here), here.adjoint, [here.losses]]))
        scale, slope = first[:width] / n, first[width:-1] / n
        scale = np.maximum(scale, scale.max(initial=0.0) * TUNING.least)
        solve = _conjugate_gradients if _is_smooth(agent.problem) else _proximal_gradients
        exact = TUNING.exact
        if state.steepest:
            exact = min(exact, math.sqrt(float(np.linalg.norm(slope)) / state.steepest))
        z = yield from solve(agent, here, first, slope, scale, exact, self.products)
        return sealed(z), slope, float(first[-1])


BLOCK = 1 << 20
"""Numbers of long rows that are multiplied out at a time."""


def _from_hessian(agent: Agent, here: SoftmaxHere) -> Talk[tuple[FloatArray, FloatArray, float]]:
    """The next target, ∇f and Σ s ℓ, from the whole Hessian."""
    total = yield Sum(packed(_hessian(here), here.adjoint, np.array([here.losses])))
    width = len(here.w)

    def found() -> tuple[FloatArray, FloatArray, float]:
        slope = total[-width - 1 : -1] / agent.total
        H = unpacked(total, width) / agent.total
        return sealed(minimiser(agent, H, slope, here.w)[0]), slope, float(total[-1])

    return shared_result(total, found)


def _hessian(here: SoftmaxHere) -> FloatArray:
    """The upper triangle of X̃ᵀ ∇²ℓ X̃ = Σ s x xᵀ ⊗ (diag(p) − p pᵀ): the second part is one product of long rows."""
    base, classes, width = here.design.base, here.design.outputs, len(here.w)
    H = np.zeros((width, width))
    for start in range(0, len(here.y), BLOCK // width + 1):
        rows = slice(start, start + BLOCK // width + 1)
        roots = here.p[rows] if here.weights is None else here.p[rows] * np.sqrt(here.weights[rows])[:, None]
        long = (base.dense(rows)[:, :, None] * roots[:, None, :]).reshape(-1, width)
        H -= long.T @ long
    for c, shares in enumerate(here.weighted(here.p).T):
        H[c::classes, c::classes] += second_moment(base, np.ascontiguousarray(shares))
    return H


def _diagonal(here: SoftmaxHere) -> FloatArray:
    """The diagonal of the same."""
    base, shares = here.design.base, here.weighted(here.p * (1.0 - here.p))
    if is_sparse(base.X):
        return np.column_stack([diagonal(base, np.ascontiguousarray(part)) for part in shares.T]).ravel()
    squares = np.zeros((base.shape[1], here.design.outputs))
    for start in range(0, len(here.y), BLOCK // base.shape[1] + 1):
        rows = slice(start, start + BLOCK // base.shape[1] + 1)
        squares += np.square(base.dense(rows)).T @ shares[rows]
    return squares.ravel()


def _bent(here: SoftmaxHere, direction: FloatArray) -> FloatArray:
    """What its own rows add to n H times a direction."""
    return here.design.adjoint(here.bent(here.design.forward(direction)))


def _conjugate_gradients(
    agent: Agent, here: SoftmaxHere, said: FloatArray, slope: FloatArray, scale: FloatArray, exact: float, most: int
) -> Talk[FloatArray]:
    """w + p with (H + λI) p = −∇P, nearly, where λ is 0 for intercepts."""
    ridge = np.full(len(slope), agent.problem.penalty.strong_convexity)
    ridge[len(ridge) - agent.problem.free() :] = 0.0
    left = -slope - ridge * here.w
    enough = exact * float(np.linalg.norm(left))
    p = yield from solved(agent, partial(_bent, here), ridge, scale + ridge, left, enough, most, said)
    return here.w + p


def _proximal_gradients(
    agent: Agent, here: SoftmaxHere, said: FloatArray, slope: FloatArray, scale: FloatArray, exact: float, most: int
) -> Talk[FloatArray]:
    """The minimum of the quadratic and the penalty, nearly: FISTA with restarts in the metric of the diagonal."""
    problem, w = agent.problem, here.w
    steps, longer, momentum, first = problem.tied(1.0 / scale), 1.0, 1.0, 0.0
    point, lead, pull_point, pull = w, w, 0.0 * w, 0.0 * w  # H times what point and lead are away from w
    for _ in range(most):
        if shared_result(said, agent.should_stop):
            break
        new = problem.prox(lead - longer * steps * (slope + pull), longer * steps)
        way = new - lead
        said = yield Sum(_bent(here, way))
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
