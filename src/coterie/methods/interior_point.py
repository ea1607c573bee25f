"""An interior-point method for losses with kinks: samples split over agents, a dozen or two of rounds.

The losses `hinge`, `absolute` and `quantile` are ℓ(u; y) = max over a ≤ v ≤ b of v (u − y). With r = X̃w − y,
p = b − v, q = v − a, weights ω and a penalty of a ridge λ₂ and a rest for which a barrier stands (`barriers.py`),
the optimum is where μ = 0 in

    X̃ᵀ(ω∘v)/n + force(x) + λ₂ w = 0,      r = s − t,      s p = μ,   t q = μ,   s, t, p, q > 0

and in the barrier's equations for (w, x). For λ₁‖w‖₁, a maximum of λ₁ u_j w_j over |u_j| ≤ 1, they are of the same
kind, with (u, w) in place of (v, r).

1. **To the path.** For a fixed μ, v follows from r and x from w, and w minimises a smooth function: damped Newton
   steps, each one `Sum` of the Hessian's triangle and the slope and one of a few trial values, or more until one is
   lower.
2. **Along it**, by Mehrotra's predictor and corrector: Δv = θ∘(X̃Δw) + g_v for θ = 1/(s/p + t/q), and the force changes
   by C Δw + g_x, so that

       (X̃ᵀ(ωθ)X̃/n + C + λ₂) Δw = −(residual of the first equation) − X̃ᵀ(ω∘g_v)/n − g_x.

   A round is one `Sum` of the triangle and two slopes, one of the corrector's slope, and two in which everybody says
   how far it can go. While that is not far, up to two further correctors aim at the products that are in the way, each
   one `Sum` of a slope and one that says how far they reach.

After S. Mehrotra, "On the implementation of a primal-dual interior point method" (1992), M. Ferris and T. Munson,
"Interior-point methods for massive support vector machines" (2002), who solve in d dimensions as is done here, and
J. Gondzio, "Multiple centrality corrections in a primal-dual method for linear programming" (1996).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np

from coterie.agent import Agent
from coterie.arrays import FloatArray, sealed, shared_result
from coterie.certificate import Point
from coterie.errors import InvalidProblem
from coterie.kernels import barrier as kernel
from coterie.methods.barriers import Barrier, Step, barrier_of
from coterie.methods.costs import Outlook, Sizes, products_work
from coterie.methods.disclosure import TOTALS, Disclosure
from coterie.methods.kinks import Samples
from coterie.methods.method import Method
from coterie.methods.quadratic import diagonal, packed, rounded, second_moment, solver, unpacked
from coterie.networks import Network
from coterie.problem import Problem
from coterie.words import Sum, Talk

STEPS = np.array([0.0, 1.0, 1 / 2, 1 / 4, 1 / 8, 1 / 16, 1 / 64, 1 / 256, 1 / 1024])
"""Trial steps, after the value here."""
FIRST_MU = 0.2
"""The first μ, in units of P(0)."""
NEAR = 1.0
"""The path is reached when a Newton step promises less than this share of μ."""
BLOCKED = 1e-3
"""After a shorter step along the path it is approached again."""
INSIDE = 0.99
"""Which share of the longest step is taken."""
ROUNDING = 1e-15
"""A smaller μ, in units of P(0), is 0; so is a smaller change of a value, in units of it."""
LEAST_ROOM = 1e-14
"""How far from their bounds duals are at least when the path is reached, in units of the interval's length."""
BARRIER_WEIGHT = 0.3
"""What the products of the barrier weigh together, beside 2 of the samples."""
BALANCED, LEAST_SHARE = 1e-5, 0.03
"""As long as the first equation's residual, times w, is larger in units of μ, μ is lowered to that share at most."""
CORRECTORS = 2
"""How often at most the step along the path is made longer by aiming at outlying products (Gondzio)."""
LONGER, GAIN = 0.3, 0.1
"""By how much that shall lengthen a step, and which share of it is enough."""
LEAST_PRODUCT, MOST_PRODUCT = 0.1, 10.0
"""Between which products none is outlying, in units of μ."""
POOR = 0.5
"""If the corrector reaches less than this share of what the predictor did, it is tried without that."""
NEGLIGIBLE = {True: 1e-7, False: 1e-13}
"""Rows with less than this share of the largest θ are left out of the Hessian, which only shapes the steps; with a
ridge more of them, because every direction has some curvature then."""
WIDEST = 1500
"""Columns up to which Hessians are added up."""
EXPECTED_ROUNDS, EXPECTED_SUMS = 16, 6
OUTSIDE, APPROACHING, ON_PATH = range(3)
EMPTY = np.empty(0)


@dataclass(frozen=True, slots=True)
class State:
    """Where one agent stands between two rounds."""

    w: FloatArray
    mu: float
    stage: int
    """`OUTSIDE` before the first round, then `APPROACHING` the path, then `ON_PATH`: all below is empty until then."""
    v: FloatArray
    s: FloatArray
    t: FloatArray
    x: FloatArray
    """The barrier's variables, the same at every agent."""
    lengths: FloatArray
    """By how much a coefficient has to change to change residuals by what the first μ smooths; 0 for empty columns, and
    empty where the barrier does not ask."""


@dataclass(frozen=True)
class InteriorPoint(Method[State]):
    """Mehrotra's predictor and corrector in the space of the model."""

    name: ClassVar[str] = "interior-point"
    split: ClassVar[str] = "samples"
    summary: ClassVar[str] = "an interior-point method for losses with kinks and few columns: two dozen rounds"
    disclosure: ClassVar[Disclosure] = Disclosure(
        sent="the gradient and the curvature XᵀDX of its own rows, a number per column and one per pair of "
        "columns, added up",
        learned="all second moments, with new weights in each round. That is more than `gram` tells: few rows come out "
        "themselves, with their labels (six people of six columns after three rounds, to 5e-12)",
        secure=f"{TOTALS}; and the longest steps, as said",
        setup="the longest step that its own rows allow, a number per party and round, which all hear",
    )
    tells_labels: ClassVar[bool] = False

    @classmethod
    def outlook(cls, problem: Problem, sizes: Sizes) -> Outlook | None:
        fits = problem.loss.conjugate_curvature == 0.0 and _has_barrier(problem)
        if not fits or sizes.width(problem) > WIDEST:
            return None
        d = sizes.width(problem)
        scalars, work = d * (d + 7) / 2, products_work(sizes, d) + 10 * sizes.rows_work
        return Outlook(EXPECTED_ROUNDS, EXPECTED_SUMS, scalars, work, "few rounds suffice")

    def check(self, problem: Problem, network: Network) -> None:
        if problem.loss.conjugate_curvature != 0.0:
            raise InvalidProblem(
                f"interior-point is for losses with kinks (hinge, absolute, quantile); this problem has "
                f"{problem.loss.name!r}. Use newton."
            )
        if not _has_barrier(problem):
            raise InvalidProblem(
                f"interior-point has no barrier for the {problem.penalty.name!r} penalty, because it does not say "
                "of which pieces it is made. Use proximal-1."
            )

    def start(self, agent: Agent) -> Talk[State]:
        yield from ()  # there is nothing to ask
        if agent.design.shape[1] > WIDEST:
            raise InvalidProblem(
                f"interior-point adds up Hessians of at most {WIDEST} columns; this problem has "
                f"{agent.design.shape[1]}. Use proximal-1."
            )
        w = sealed(agent.centred.inner(agent.first_model().astype(float)))
        mu = FIRST_MU * (agent.known.primal_at_start or 1.0)
        return State(w, mu, OUTSIDE, EMPTY, EMPTY, EMPTY, EMPTY, EMPTY)

    def warmed(self, agent: Agent, state: State, point: Point) -> State:
        return replace(state, w=sealed(agent.centred.inner(point.w.astype(float))))

    def round(self, agent: Agent, state: State, t: int) -> Talk[State]:
        if state.stage == OUTSIDE:
            state = yield from self._enter(agent, state)
        terms = _Terms(agent, state.w, state.lengths)
        return (yield from (self._along if state.stage == ON_PATH else self._approach)(agent, state, terms))

    def point(self, agent: Agent, state: State) -> Point:
        w, v = rounded(agent, state.w), state.v
        if state.stage != ON_PATH:
            v = _centred(agent, state.w, state.mu)[0]
        return Point(w, v.astype(agent.design.dtype, copy=False))

    # -- 1. ------------------------------------------------------------------------------------------------------------

    def _enter(self, agent: Agent, state: State) -> Talk[State]:
        """Away from the bounds, if there are any."""
        pieces = agent.problem.penalty.pieces
        assert pieces is not None
        if not {"bounds", "ball"} & set(pieces.kinds):
            return replace(state, stage=APPROACHING)
        squares = yield Sum(diagonal(agent.centred, _fixed(agent).weights))

        def entered() -> tuple[FloatArray, FloatArray]:
            sizes = agent.problem.loss.lipschitz * np.sqrt(squares / agent.total)
            lengths = sealed(np.divide(state.mu, sizes, out=np.zeros(len(sizes)), where=sizes > 0))
            return sealed(_barrier(agent, lengths).inside(state.w)), lengths

        w, lengths = shared_result(squares, entered)
        return replace(state, w=w, lengths=lengths, stage=APPROACHING)

    def _approach(self, agent: Agent, state: State, terms: _Terms) -> Talk[State]:
        w, n, mu, barrier = state.w, agent.total, state.mu, terms.barrier
        v, theta = _centred(agent, w, mu)
        total = yield Sum(terms.hessian(theta, agent.centred.adjoint(terms.weights * v)))

        def aimed() -> tuple[FloatArray, float]:
            x = barrier.centred(w, mu)
            slope = total[-len(w) :] / n + barrier.force(x) + terms.ridge * w + mu * terms.barrier.tilt
            dw = terms.equations(total, x)(-slope)
            return dw, -0.5 * float(slope @ dw)

        dw, promised = shared_result(total, aimed)
        dr, shares, share = agent.centred.forward(dw), STEPS, 0.0
        smoothed: Any = kernel.smoothed
        while share == 0.0:
            values = np.zeros(len(shares))
            smoothed(terms.r, dr, mu, terms.lower, terms.upper, terms.weights, shares, values)
            losses = yield Sum(values)
            share, unseen = shared_result(losses, terms.best, mu, dw, promised, shares, losses)
            if unseen:
                break
            shares = shares * STEPS[-1]
        if share:
            w = shared_result(losses, lambda: sealed(w + share * dw))
        if promised > NEAR * mu and share:
            return replace(state, w=w)
        terms = _Terms(agent, w, state.lengths)
        v = _centred(agent, w, mu)[0]
        room = LEAST_ROOM * (terms.upper - terms.lower)
        v = np.clip(v, terms.lower + room, terms.upper - room)
        sides = mu / (terms.upper - v), mu / (v - terms.lower)
        return State(w, mu, ON_PATH, v, *sides, shared_result(losses, barrier.centred, w, mu), state.lengths)

    # -- 2. ------------------------------------------------------------------------------------------------------------

    def _along(self, agent: Agent, state: State, terms: _Terms) -> Talk[State]:
        design = agent.centred
        own = Samples(terms.r, state.v, state.s, state.t, terms.lower, terms.upper, terms.weights)
        # Predictor: as far as possible towards μ = 0.
        way = own.aimed(np.zeros(len(own.r)), np.zeros(len(own.r)))
        slopes = design.adjoint(terms.weights * state.v), design.adjoint(terms.weights * way.g)
        total = yield Sum(terms.hessian(way.theta, *slopes, np.array([own.complementarity()])))
        first = shared_result(total, _predicted, agent, state, terms, total)
        way = own.moved(way, design.forward(first.step.dw))
        told = yield Sum(np.concatenate([agent.one_hot(way.longest), [way.linear, way.quadratic]]))
        mu, target, predicted = shared_result(told, _target, agent, state, first, terms.barrier, told)
        if mu <= ROUNDING * agent.known.primal_at_start:
            return state  # the end of the path, as far as float64 sees
        # Corrector: back to the middle, with the predictor's second-order term; then, while the step is short, others.
        aim, alpha = own.aimed(target + way.ds * way.dv, target - way.dt * way.dv), 0.0
        aims = shared_result(told, terms.barrier.aims, target, state.w, state.x, first.step)
        for attempt in range(1 + CORRECTORS):
            letter = yield Sum(design.adjoint(terms.weights * aim.g))
            new, longest = shared_result(letter, _stepped, agent, state, terms, first, letter, aims, target)
            aim = own.moved(aim, design.forward(new.dw))
            told = yield Sum(agent.one_hot(aim.longest))
            reach = min(1.0, INSIDE * min(longest, float(told.min())))
            if attempt and reach < alpha + GAIN * LONGER:
                break
            alpha, step, way = reach, new, aim
            if alpha > 1 - LONGER:
                break
            if attempt == 0 and alpha < POOR * predicted:
                # Where w goes far for nothing, the second-order term is worse than none.
                aim = own.aimed(*[np.full(len(own.r), target)] * 2)
                aims = shared_result(told, terms.barrier.aims, target, state.w, state.x)
                continue
            share, least, most = min(1.0, alpha + LONGER), LEAST_PRODUCT * target, MOST_PRODUCT * target
            aim = own.recentred(way, share, least, most)
            aims = shared_result(told, terms.barrier.recentred, aims, state.w, state.x, step, share, least, most)
        if alpha < BLOCKED:
            return replace(state, mu=mu, stage=APPROACHING, v=EMPTY, s=EMPTY, t=EMPTY, x=EMPTY)
        w = shared_result(told, lambda: sealed(state.w + alpha * step.dw))
        x = shared_result(told, lambda: sealed(terms.barrier.kept(w, state.x + alpha * step.dx, target)))
        return State(w, mu, ON_PATH, *own.after(alpha, way), x, state.lengths)


class _Predicted(NamedTuple):
    """What all agents know after the first message of a round along the path."""

    step: Step
    longest: float
    """How far the barrier lets it go, at most 2."""
    residual: FloatArray
    """Of the first equation."""
    solve: Callable[[FloatArray], FloatArray]
    samples: float
    """Σ ω (s p + t q) of all samples."""


def _predicted(agent: Agent, state: State, terms: _Terms, total: FloatArray) -> _Predicted:
    width = len(state.w)
    residual = total[-2 * width - 1 : -width - 1] / agent.total + terms.barrier.force(state.x) + terms.ridge * state.w
    nowhere = Step(np.zeros(width), np.zeros(len(state.x)))
    first = _Predicted(nowhere, 1.0, residual, terms.equations(total, state.x), float(total[-1]))
    aims = terms.barrier.aims(0.0, state.w, state.x)
    step, longest = _stepped(agent, state, terms, first, total[-width - 1 : -1], aims, 0.0)
    return first._replace(step=step, longest=longest)


def _stepped(
    agent: Agent, state: State, terms: _Terms, first: _Predicted, letter: FloatArray, aims: FloatArray, mu: float
) -> tuple[Step, float]:
    """Δw and Δx for those aims, where the message is the sum of X̃ᵀ(ω∘g_v), and how far the barrier lets them go."""
    w, x, barrier = state.w, state.x, terms.barrier
    shift = barrier.force(barrier.direction(w, x, np.zeros(len(w)), aims))
    dw = first.solve(-first.residual - letter / agent.total - shift - mu * terms.barrier.tilt)
    dx = barrier.direction(w, x, dw, aims)
    return Step(dw, dx), barrier.longest(w, x, dw, dx)


def _target(
    agent: Agent, state: State, first: _Predicted, barrier: Barrier, told: FloatArray
) -> tuple[float, float, float]:
    """μ now, μ to go for, the smaller the better the predictor would do, and how far that could go."""
    n, alpha, step = agent.total, min(1.0, first.longest, float(told[:-2].min())), first.step
    before = first.samples + n * barrier.complementarity(state.w, state.x)
    after = first.samples + alpha * told[-2] + alpha**2 * told[-1]
    after += n * barrier.complementarity(state.w + alpha * step.dw, state.x + alpha * step.dx)
    mu = before / (n * (2 + barrier.weight))
    share = min(1.0, max(float(after) / before, 0.0) ** 3)
    if float(np.abs(first.residual) @ np.abs(state.w)) > BALANCED * mu:
        share = max(share, LEAST_SHARE)  # only a full step ends the residual, and towards 0 there is none
    return mu, mu * share, alpha


class _Fixed(NamedTuple):
    """What does not follow from w: labels, bounds and weights, and the ridge of every coordinate."""

    y: FloatArray
    lower: FloatArray
    upper: FloatArray
    weights: FloatArray
    ridge: FloatArray


def _fixed(agent: Agent) -> _Fixed:
    if "interior" not in agent.scratch:
        y, problem, width = agent.labels.astype(float), agent.problem, agent.design.shape[1]
        lower, upper = (side.astype(float) for side in problem.loss.domain(y))
        weights = np.ones(len(y)) if agent.data.weights is None else agent.data.weights.astype(float)
        ridge = np.full(width, problem.penalty.strong_convexity)
        ridge[width - problem.intercept :] = 0.0
        agent.scratch["interior"] = _Fixed(y, lower, upper, weights, ridge)
    fixed: _Fixed = agent.scratch["interior"]
    return fixed


def _barrier(agent: Agent, lengths: FloatArray) -> Barrier:
    """That of the penalty, remembered for the same lengths."""
    known: tuple[FloatArray, Barrier] | None = agent.scratch.get("barrier")
    if known is None or known[0] is not lengths:
        pieces, width = agent.problem.penalty.pieces, agent.design.shape[1]
        assert pieces is not None
        made = barrier_of(pieces, width, width - agent.problem.intercept, BARRIER_WEIGHT, lengths)
        agent.scratch["barrier"] = known = lengths, made
    return known[1]


def _has_barrier(problem: Problem) -> bool:
    pieces = problem.penalty.pieces
    return pieces is not None and len(pieces.kinds) <= 1


def _centred(agent: Agent, w: FloatArray, mu: float) -> tuple[FloatArray, FloatArray]:
    """v on the central path, and how it changes with r."""
    fixed = _fixed(agent)
    r = agent.at(w, agent.centred).scores - fixed.y
    v, theta = np.empty(len(r)), np.empty(len(r))
    centre: Any = kernel.centre
    centre(r, mu, fixed.lower, fixed.upper, v, theta)
    return v, theta


class _Terms:
    """What follows from w and the problem: residuals, bounds, weights, and the penalty's parts."""

    def __init__(self, agent: Agent, w: FloatArray, lengths: FloatArray):
        self.agent, self.w, self.barrier = agent, w, _barrier(agent, lengths)
        y, self.lower, self.upper, self.weights, self.ridge = _fixed(agent)
        self.r = agent.at(w, agent.centred).scores - y

    def hessian(self, theta: FloatArray, *more: FloatArray) -> FloatArray:
        """A message: its own triangle of X̃ᵀ(ωθ)X̃, without the rows that do not matter, and then more."""
        scale = self.weights * theta
        scale[theta < NEGLIGIBLE[bool(self.ridge.min(initial=1.0) > 0)] * theta.max(initial=0.0)] = 0.0
        return packed(second_moment(self.agent.centred, scale), *more)

    def equations(self, letter: FloatArray, x: FloatArray) -> Callable[[FloatArray], FloatArray]:
        """What multiplies by (X̃ᵀ(ωθ)X̃/n + C + λ₂)⁻¹; what cannot move does not."""
        H = unpacked(letter, len(self.w))
        H /= self.agent.total
        self.barrier.add_curvature(self.w, x, H)
        # Near the optimum θ is huge or tiny by nature: what looks singular is not.
        free = np.flatnonzero(~self.barrier.stuck)
        if len(free) == len(H):
            return solver(H, self.ridge, least_pivot=0.0)[0]
        solve = solver(H[np.ix_(free, free)], self.ridge[free], least_pivot=0.0)[0]

        def solved(b: FloatArray) -> FloatArray:
            dw = np.zeros(len(b))
            dw[free] = solve(b[free])
            return dw

        return solved

    def best(
        self, mu: float, dw: FloatArray, promised: float, shares: FloatArray, losses: FloatArray
    ) -> tuple[float, bool]:
        """The best of those steps, and whether a shorter one could not be told from staying."""
        ways = [self.w + share * dw for share in shares]
        values = losses / self.agent.total
        values += [
            self.barrier.value(w, mu) + float(0.5 * self.ridge @ w**2 + mu * self.barrier.tilt @ w) for w in ways
        ]
        return float(shares[int(np.argmin(values))]), not shares[-1] * promised > ROUNDING * abs(values[0])
