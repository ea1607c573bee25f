"""An interior-point method for losses with kinks: samples split over agents, a dozen or two of rounds.

The losses `hinge`, `absolute` and `quantile` are ℓ(u; y) = max over a ≤ v ≤ b of v (u − y), and |w_j| is the maximum of
u_j w_j over |u_j| ≤ 1: one kind of term. With r = X̃w − y, p = b − v, q = v − a, weights ω and
g(w) = λ₁‖w‖₁ + (λ₂/2)‖w‖², the optimum is where μ = 0 in

    X̃ᵀ(ω∘v)/n + λ₁ u + λ₂ w = 0,      r = s − t,      s p = μ,   t q = μ,   s, t, p, q > 0

and the same for (u, w) in place of (v, r).

1. **To the path.** For a fixed μ, v follows from r, and w minimises a smooth function: damped Newton steps, each one
   `Sum` of the Hessian's triangle and the slope and one of a few trial values.
2. **Along it**, by Mehrotra's predictor and corrector: Δv = θ∘(X̃Δw) + g_v for θ = 1/(s/p + t/q), so that

       (X̃ᵀ(ωθ)X̃/n + λ₁θ_u + λ₂) Δw = −(residual of the first equation) − X̃ᵀ(ω∘g_v)/n − λ₁ g_u.

   A round is one `Sum` of the triangle and two slopes, one of the corrector's slope, and two in which everybody says
   how far it can go.

After S. Mehrotra, "On the implementation of a primal-dual interior point method" (1992), and M. Ferris and T. Munson,
"Interior-point methods for massive support vector machines" (2002), who solve in d dimensions as is done here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np

from coterie.agent import Agent
from coterie.arrays import FloatArray, once, sealed
from coterie.certificate import Point
from coterie.errors import InvalidProblem
from coterie.kernels import barrier
from coterie.methods.costs import Sizes, products_work, worth
from coterie.methods.method import Method
from coterie.methods.quadratic import packed, rounded, second_moment, solver, unpacked
from coterie.networks import Network
from coterie.problem import Problem
from coterie.words import Sum, Talk

__all__ = ["InteriorPoint", "State"]

STEPS = np.array([1.0, 1 / 2, 1 / 4, 1 / 8, 1 / 16, 1 / 64, 1 / 256, 1 / 1024, 0.0])
FIRST_MU = 0.02
"""The first μ, in units of P(0)."""
NEAR = 0.1
"""The path is reached when a Newton step promises less than this share of μ."""
BLOCKED = 1e-3
"""After a shorter step along the path it is approached anew."""
INSIDE = 0.99
"""Which share of the longest step is taken."""
ROUNDING = 1e-15
"""A smaller μ, in units of P(0), is 0."""
LEAST_ROOM = 1e-14
"""How far from their bounds duals are at least when the path is reached, in units of the interval's length."""
NEGLIGIBLE = {True: 1e-7, False: 1e-13}
"""Rows with less than this share of the largest θ are left out of the Hessian, which only shapes the steps; with a
ridge more of them, because every direction has some curvature then."""
WIDEST = 1500
"""Columns up to which Hessians are added up."""
EXPECTED_ROUNDS = 22
PENALTIES = ("l2", "l1", "elasticnet", "none")


@dataclass(frozen=True, slots=True)
class State:
    """Where one agent stands between two rounds."""

    w: FloatArray
    mu: float
    """μ; all below is empty until the path is reached."""
    v: FloatArray
    s: FloatArray
    t: FloatArray
    u: FloatArray
    """Of the penalty, the same at every agent, as are the next two."""
    s_u: FloatArray
    t_u: FloatArray


@dataclass(frozen=True)
class InteriorPoint(Method):
    """Mehrotra's predictor and corrector in the space of the model."""

    name: ClassVar[str] = "interior-point"
    split: ClassVar[str] = "samples"
    summary: ClassVar[str] = "an interior-point method for losses with kinks and few columns: two dozen rounds"

    @classmethod
    def score(cls, problem: Problem, network: Network, sizes: Sizes | None = None) -> tuple[float, str] | None:
        fits = problem.loss.conjugate_curvature == 0.0 and problem.penalty.name in PENALTIES
        if sizes is None or not fits or sizes.width(problem) > WIDEST:
            return None
        d = sizes.width(problem)
        scalars, work = d * (d + 7) / 2, products_work(sizes, d) + 10 * sizes.rows_work
        rounds = EXPECTED_ROUNDS
        return worth(problem, network, sizes, rounds=rounds, sums=4, scalars=scalars, work=work, what="few rounds")

    def check(self, problem: Problem, network: Network) -> None:
        if problem.loss.conjugate_curvature != 0.0:
            raise InvalidProblem(
                f"interior-point is for losses with kinks (hinge, absolute, quantile); this problem has "
                f"{problem.loss.name!r}. Use newton."
            )
        if problem.penalty.name not in PENALTIES:
            raise InvalidProblem(
                f"interior-point knows the penalties {', '.join(PENALTIES)}; this problem has "
                f"{problem.penalty.name!r}. Use proximal-1."
            )

    @property
    def state(self) -> type:
        return State

    def start(self, agent: Agent) -> Talk[State]:
        yield from ()  # there is nothing to ask
        if agent.design.shape[1] > WIDEST:
            raise InvalidProblem(
                f"interior-point adds up Hessians of at most {WIDEST} columns; this problem has "
                f"{agent.design.shape[1]}. Use proximal-1."
            )
        empty = np.empty(0)
        w = sealed(agent.centred.inner(agent.first_model().astype(float)))
        return State(w, FIRST_MU * (agent.known.primal_at_start or 1.0), *[empty] * 6)

    def warmed(self, agent: Agent, state: State, point: Point) -> State:
        return replace(state, w=sealed(agent.centred.inner(point.w.astype(float))))

    def round(self, agent: Agent, state: State, t: int) -> Talk[State]:
        terms = _Terms(agent, state.w)
        return (yield from (self._along if len(state.u) else self._approach)(agent, state, terms, t))

    def point(self, agent: Agent, state: State) -> Point:
        w = rounded(agent, state.w)
        if len(state.u):
            return Point(w, state.v.astype(agent.design.dtype, copy=False))
        terms = _Terms(agent, state.w)
        return Point(w, terms.centred(state.mu)[0].astype(agent.design.dtype, copy=False))

    # -- 1. ------------------------------------------------------------------------------------------------------------

    def _approach(self, agent: Agent, state: State, terms: _Terms, t: int) -> Talk[State]:
        w, n, mu = state.w, agent.total, state.mu
        v, theta = terms.centred(mu)
        total = yield Sum(terms.hessian(theta, agent.centred.adjoint(terms.weights * v)))

        def aimed() -> tuple[FloatArray, float]:
            u, theta_u = terms.penalty_centred(mu)
            slope = total[-len(w) :] / n + terms.l1 * u + terms.ridge * w
            dw = terms.equations(total, theta_u)(-slope)
            return dw, -0.5 * float(slope @ dw)

        dw, promised = once(total, "aimed", aimed)
        dr, values = agent.centred.forward(dw), np.zeros(len(STEPS))
        smoothed: Any = barrier.smoothed
        smoothed(terms.r, dr, mu, terms.lower, terms.upper, terms.weights, STEPS, values)
        losses = yield Sum(values)

        def best() -> FloatArray:
            values = np.zeros(len(STEPS))
            smoothed(w, dw, mu, -terms.one, terms.one, terms.l1, STEPS, values)
            values += losses / n + [0.5 * terms.ridge @ (w + share * dw) ** 2 for share in STEPS]
            return sealed(w + float(STEPS[int(np.argmin(values))]) * dw)

        w = once(losses, "best", best)
        if promised > NEAR * mu:
            return replace(state, w=w)
        terms = _Terms(agent, w)
        v, u = terms.centred(mu)[0], terms.penalty_centred(mu)[0]
        room = LEAST_ROOM * (terms.upper - terms.lower)
        v, u = np.clip(v, terms.lower + room, terms.upper - room), np.clip(u, LEAST_ROOM - 1, 1 - LEAST_ROOM)
        sides = mu / (terms.upper - v), mu / (v - terms.lower)
        return State(w, mu, v, *sides, u, mu / (1 - u), mu / (1 + u))

    # -- 2. ------------------------------------------------------------------------------------------------------------

    def _along(self, agent: Agent, state: State, terms: _Terms, t: int) -> Talk[State]:
        design = agent.centred
        own = _Pair(terms.r, state.v, state.s, state.t, terms.lower, terms.upper, terms.weights)
        # Predictor: as far as possible towards μ = 0.
        theta, g = own.pull(0.0, own.nowhere)
        slopes = design.adjoint(terms.weights * state.v), design.adjoint(terms.weights * g)
        total = yield Sum(terms.hessian(theta, *slopes, np.array([own.complementarity()])))
        first = once(total, "predictor", _predicted, agent, state, terms, total)
        way = own.move(design.forward(first.dw), 0.0, theta, g, own.nowhere)
        told = yield Sum(np.concatenate([agent.one_hot(way.longest), [way.linear, way.quadratic]]))
        mu, target = once(told, "target", _target, agent, first, told)
        if mu <= ROUNDING * agent.known.primal_at_start:
            return state  # the end of the path, as far as float64 sees
        # Corrector: back to the middle, with the predictor's second-order term.
        theta, g = own.pull(target, way)
        letter = yield Sum(design.adjoint(terms.weights * g))
        dw, shared_way = once(letter, "corrector", _corrected, agent, first, terms, target, letter)
        way = own.move(design.forward(dw), target, theta, g, way)
        told = yield Sum(agent.one_hot(way.longest))
        alpha = min(1.0, INSIDE * min(shared_way.longest, float(told.min())))
        if alpha < BLOCKED:
            return State(state.w, mu, *[np.empty(0)] * 6)
        w = once(told, "step", lambda: sealed(state.w + alpha * dw))
        return State(w, mu, *own.after(alpha, way), *once(told, "shared", first.shared.after, alpha, shared_way))


class _Predicted(NamedTuple):
    """What all agents know after the first letter of a round along the path."""

    dw: FloatArray
    residual: FloatArray
    """Of the first equation."""
    solve: Callable[[FloatArray], FloatArray]
    complementarity: float
    """Σ ω (s p + t q) of all samples and the penalty."""
    shared: _Pair
    """The penalty's terms."""
    way: _Way
    """Where they go with dw."""


def _predicted(agent: Agent, state: State, terms: _Terms, total: FloatArray) -> _Predicted:
    w, n, width = state.w, agent.total, len(state.w)
    shared = _Pair(w, state.u, state.s_u, state.t_u, -terms.one, terms.one, n * terms.l1)
    theta, g = shared.pull(0.0, shared.nowhere)
    residual = total[-2 * width - 1 : -width - 1] / n + terms.l1 * state.u + terms.ridge * w
    solve = terms.equations(total, theta)
    dw = solve(-residual - total[-width - 1 : -1] / n - terms.l1 * g)
    way = shared.move(dw, 0.0, theta, g, shared.nowhere)
    return _Predicted(dw, residual, solve, float(total[-1]) + shared.complementarity(), shared, way)


def _target(agent: Agent, first: _Predicted, told: FloatArray) -> tuple[float, float]:
    """μ now, and μ to go for: the better the predictor would do, the smaller."""
    alpha, before = min(first.way.longest, float(told[:-2].min())), first.complementarity
    after = before + alpha * (told[-2] + first.way.linear) + alpha**2 * (told[-1] + first.way.quadratic)
    mu = before / (2 * (agent.total + float(first.shared.weights.sum())))
    return mu, mu * min(1.0, max(float(after) / before, 0.0) ** 3)


def _corrected(
    agent: Agent, first: _Predicted, terms: _Terms, target: float, letter: FloatArray
) -> tuple[FloatArray, _Way]:
    theta, g = first.shared.pull(target, first.way)
    dw = first.solve(-first.residual - letter / agent.total - terms.l1 * g)
    return dw, first.shared.move(dw, target, theta, g, first.way)


class _Terms:
    """What follows from w and the problem: residuals, bounds, weights, and the penalty's parts per coordinate."""

    def __init__(self, agent: Agent, w: FloatArray):
        self.agent, self.w = agent, w
        if "terms" not in agent.scratch:
            agent.scratch["terms"] = _fixed(agent)
        y, self.lower, self.upper, self.weights, self.one, self.ridge, self.l1 = agent.scratch["terms"]
        self.r = agent.at(w, agent.centred).scores - y

    def centred(self, mu: float) -> tuple[FloatArray, FloatArray]:
        """v on the central path, and how it changes with r."""
        return _centred(self.r, mu, self.lower, self.upper)

    def penalty_centred(self, mu: float) -> tuple[FloatArray, FloatArray]:
        """u on the central path, and how it changes with w."""
        return _centred(self.w, mu, -self.one, self.one)

    def hessian(self, theta: FloatArray, *more: FloatArray) -> FloatArray:
        """A letter: the own triangle of X̃ᵀ(ωθ)X̃, without the rows that do not matter, and then more."""
        scale = self.weights * theta
        scale[theta < NEGLIGIBLE[bool(self.ridge.min(initial=1.0) > 0)] * theta.max(initial=0.0)] = 0.0
        return packed(second_moment(self.agent.centred, scale), *more)

    def equations(self, letter: FloatArray, theta_u: FloatArray) -> Callable[[FloatArray], FloatArray]:
        """What multiplies by (X̃ᵀ(ωθ)X̃/n + λ₁θ_u + λ₂)⁻¹."""
        H = unpacked(letter, len(self.w))
        H /= self.agent.total
        # Near the optimum θ is huge or tiny by nature: what looks singular is not.
        return solver(H, self.l1 * theta_u + self.ridge, least_pivot=0.0)[0]


def _fixed(agent: Agent) -> tuple[FloatArray, ...]:
    """What does not follow from w: labels, bounds, weights, ones, and the ridge and l1 of every coordinate."""
    y, penalty, width = agent.labels.astype(float), agent.problem.penalty, agent.design.shape[1]
    lower, upper = (side.astype(float) for side in agent.problem.loss.domain(y))
    weights = np.ones(len(y)) if agent.data.weights is None else agent.data.weights.astype(float)
    one, ridge = np.ones(width), np.full(width, penalty.strong_convexity)
    l1 = np.full(width, penalty.value(one[:1]) - 0.5 * penalty.strong_convexity)
    if agent.problem.intercept:
        ridge[-1] = l1[-1] = 0.0
    return y, lower, upper, weights, one, ridge, l1


def _centred(r: FloatArray, mu: float, lower: FloatArray, upper: FloatArray) -> tuple[FloatArray, FloatArray]:
    v, theta = np.empty(len(r)), np.empty(len(r))
    find: Any = barrier.centre
    find(r, mu, lower, upper, v, theta)
    return v, theta


class _Way(NamedTuple):
    """Directions of v, s and t."""

    dv: FloatArray
    ds: FloatArray
    dt: FloatArray
    longest: float = 0.0
    """The longest step that stays inside, at most 1."""
    linear: float = 0.0
    """How Σ ω (s p + t q) changes along it."""
    quadratic: float = 0.0


class _Pair:
    """Terms of one kind, the samples' or the penalty's: where they stand, and where they are going."""

    def __init__(
        self,
        r: FloatArray,
        v: FloatArray,
        s: FloatArray,
        t: FloatArray,
        lower: FloatArray,
        upper: FloatArray,
        weights: FloatArray,
    ):
        self.r, self.v, self.s, self.t = r, v, s, t
        self.lower, self.upper, self.weights = lower, upper, weights
        zeros = np.zeros(len(r))
        self.nowhere = _Way(zeros, zeros, zeros)

    def complementarity(self) -> float:
        """Σ ω (s p + t q)."""
        return float(self.weights @ (self.s * (self.upper - self.v) + self.t * (self.v - self.lower)))

    def pull(self, mu: float, last: _Way) -> tuple[FloatArray, FloatArray]:
        """θ and g for that μ, corrected for the last direction."""
        theta, g = np.empty(len(self.r)), np.empty(len(self.r))
        pull: Any = barrier.pull
        pull(self.r, self.v, self.s, self.t, self.lower, self.upper, mu, *last[:3], theta, g)
        return theta, g

    def move(self, dr: FloatArray, mu: float, theta: FloatArray, g: FloatArray, last: _Way) -> _Way:
        """The directions for a change of r, for the μ, θ and g of `pull`."""
        here = self.v, self.s, self.t, self.lower, self.upper, self.weights
        dv, ds, dt = (np.empty(len(dr)) for _ in range(3))
        move: Any = barrier.move
        return _Way(dv, ds, dt, *move(dr, *here, mu, theta, g, *last[:3], dv, ds, dt))

    def after(self, alpha: float, way: _Way) -> tuple[FloatArray, FloatArray, FloatArray]:
        """v, s and t after the share α of the way."""
        return self.v + alpha * way.dv, self.s + alpha * way.ds, self.t + alpha * way.dt
