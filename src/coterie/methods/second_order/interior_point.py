"""An interior-point method for losses with kinks: samples split over agents, a dozen or two of
rounds.

The losses `hinge`, `absolute` and `quantile` are ℓ(u; y) = max over a ≤ v ≤ b of v (u − y). With r
= X̃w − y, p = b − v, q = v − a, weights ω and a penalty of a ridge λ₂ and a rest for which a
barrier stands (`barriers.py`), the optimum is where μ = 0 in

    X̃ᵀ(ω∘v)/n + force(x) + λ₂ w = 0,      r = s − t,      s p = μ,   t q = μ,   s, t, p, q > 0

and in the barrier's equations for (w, x). For λ₁‖w‖₁, a maximum of λ₁ u_j w_j over |u_j| ≤ 1, they
are of the same kind, with (u, w) in place of (v, r).

1. **To the path.** For a fixed μ, v follows from r and x from w, and w minimises a smooth function:
   damped Newton steps, each one `Sum` of the Hessian's triangle and the slope and one of a few
   trial values, or more until one is lower.
2. **Along it**, by Mehrotra's predictor and corrector: Δv = θ∘(X̃Δw) + g_v for θ = 1/(s/p + t/q),
   and the force changes by C Δw + g_x, so that

       (X̃ᵀ(ωθ)X̃/n + C + λ₂) Δw = −(residual of the first equation) − X̃ᵀ(ω∘g_v)/n − g_x.

   A round is one `Sum` of the triangle and two slopes, one of the corrector's slope, and two in
   which everybody says how far it can go. While that is not far, up to two further correctors aim
   at the products that are in the way, each one `Sum` of a slope and one that says how far they
   reach.

After S. Mehrotra, "On the implementation of a primal-dual interior point method" (1992), M. Ferris
and T. Munson, "Interior-point methods for massive support vector machines" (2002), who solve in d
dimensions as is done here, and J. Gondzio, "Multiple centrality corrections in a primal-dual method
for linear programming" (1996).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np

from coterie.errors import InvalidProblem
from coterie.methods.auto.costs import Outlook, Sizes, equations_work, products_work
from coterie.methods.line_search import most_of_search
from coterie.methods.method import Method, Rows
from coterie.methods.second_order import careful
from coterie.methods.second_order.barriers import Barrier, Step
from coterie.methods.second_order.central_path import Samples, Terms, barrier_at, kinks_of, on_path
from coterie.methods.second_order.quadratic import rounded
from coterie.networks import Network
from coterie.numerics.arrays import FloatArray, is_tensor, sealed, shared_result
from coterie.numerics.kernels import barrier as kernel
from coterie.numerics.tuning import Tuning, tuned
from coterie.problems.problem import Problem
from coterie.run.agent import Agent
from coterie.run.certificate import Point
from coterie.run.collectives import Protocol, Sum
from coterie.run.disclosure import HESSIAN, TOTALS, Case, Counts, Disclosure, triangle
from coterie.stats.moments import diagonal

STEPS = np.array([0.0, 1.0, 1 / 2, 1 / 4, 1 / 8, 1 / 16, 1 / 64, 1 / 256, 1 / 1024])
"""Trial steps to the path, after the value here."""
WIDEST = 1500
"""Columns up to which Hessians are added up: beyond, a message has more than 9 MB."""
EXPECTED_ROUNDS, EXPECTED_SUMS = 16, 6
"""What "auto" assumes."""
GONDZIO = "paper: Gondzio 1996"
MEASURED = (
    "measured: a1a, w8a, diabetes, breast cancer and digits, all losses with kinks and all "
    "penalties"
)


@dataclass(frozen=True)
class _Tuning(Tuning):
    first_mu: float = tuned(0.2, "The first μ, in units of P(0).", MEASURED)
    near: float = tuned(
        0.7,
        "The path is reached when a Newton step promises less than this share of μ.",
        (
            "theorem: there Newton's method on a self-concordant function converges fast (Nesterov "
            "and Nemirovskii 1994)"
        ),
    )
    blocked: float = tuned(
        1e-3, "After a shorter step along the path it is approached again.", MEASURED
    )
    inside: float = tuned(
        0.99, "Which share of the longest step is taken.", "paper: Mehrotra 1992", below=1, costs=4
    )
    rounding: float = tuned(
        1e-15, "A smaller μ, in units of P(0), is 0.", "rounding: what float64 sees"
    )
    least_room: float = tuned(
        1e-14,
        "Room of duals when the path is reached, in units of the interval.",
        "rounding: what float64 sees",
    )
    balanced: float = tuned(
        1e-5, "As long as the residual, times w, is larger in units of μ, ...", MEASURED
    )
    least_share: float = tuned(0.03, "... μ is lowered to this share at most.", MEASURED, below=1)
    correctors: int = tuned(
        2, "Further correctors, which aim at products that are in the way.", GONDZIO
    )
    longer: float = tuned(0.3, "By how much they shall lengthen a step, ...", GONDZIO, below=1)
    gain: float = tuned(0.1, "... and which share of it is enough.", GONDZIO)
    least_product: float = tuned(
        0.1, "Products above this, in units of μ, are not in the way, ...", GONDZIO, below=1
    )
    most_product: float = tuned(10.0, "... nor are those below this.", GONDZIO, above=1)
    surely: float = tuned(
        0.2,
        "A certificate is put off while this share of μ, which its gap is not below, is too large.",
        "measured: losses with kinks, all penalties and one to eight agents",
    )
    poor: float = tuned(
        0.5,
        (
            "If the corrector reaches less than this share of what the predictor did, it is tried "
            "without that."
        ),
        "measured: one-sided bounds, where w goes far for nothing",
    )


TUNING = _Tuning()
OUTSIDE, APPROACHING, ON_PATH = range(3)
EMPTY = np.empty(0)


@dataclass(frozen=True, slots=True)
class State:
    """Where one agent stands between two rounds."""

    w: FloatArray
    mu: float
    stage: int
    """`OUTSIDE` before the first round, then `APPROACHING` the path, then `ON_PATH`: all below is
    empty until then.
    """
    v: FloatArray
    s: FloatArray
    t: FloatArray
    x: FloatArray
    """The barrier's variables, the same at every agent."""
    lengths: FloatArray
    """By how much a coefficient has to change to change residuals by what the first μ smooths; 0
    for empty columns, and empty where the barrier does not ask.
    """


@dataclass(frozen=True)
class InteriorPoint(Method[State, Rows]):
    """Mehrotra's predictor and corrector in the space of the model."""

    name: ClassVar[str] = "interior-point"
    tensors: ClassVar[bool] = True
    split: ClassVar[str] = "samples"
    summary: ClassVar[str] = (
        "an interior-point method for losses with kinks and few columns: two dozen rounds"
    )
    disclosure: ClassVar[Disclosure] = Disclosure(
        sent=HESSIAN.sent,
        learned=HESSIAN.learned,
        secure=f"{TOTALS}; and your longest steps",
        setup=(
            "in each round the longest step that your rows allow, one number, which all parties see"
        ),
        most=lambda case: _most(case),
        sometimes=lambda case: _sometimes(case),
    )
    tells_labels: ClassVar[bool] = False

    @classmethod
    def outlook(cls, problem: Problem, sizes: Sizes) -> Outlook | None:
        fits = problem.loss.conjugate_curvature == 0.0 and _has_barrier(problem)
        if not fits or sizes.width(problem) > WIDEST:
            return None
        d = sizes.width(problem)
        scalars = d * (d + 7) / 2
        work = products_work(sizes, d) + 10 * sizes.rows_work
        return Outlook(
            EXPECTED_ROUNDS, EXPECTED_SUMS, scalars, work, "few rounds suffice", equations_work(d)
        )

    @classmethod
    def rescues(cls, problem: Problem, sizes: Sizes) -> bool:
        return sizes.width(problem) <= WIDEST

    def check(self, problem: Problem, network: Network) -> None:
        if problem.loss.conjugate_curvature != 0.0:
            raise InvalidProblem(
                "interior-point is for losses with kinks (hinge, absolute, quantile); this "
                "problem has "
                f"{problem.loss.name!r}. Use newton."
            )
        if not _has_barrier(problem):
            raise InvalidProblem(
                f"interior-point has no barrier for the {problem.penalty.name!r} penalty, because "
                "it does not say "
                "of which pieces it is made. Use proximal-1."
            )

    def start(self, agent: Agent) -> Protocol[State]:
        yield from ()  # there is nothing to ask
        if agent.design.shape[1] > WIDEST:
            raise InvalidProblem(
                f"interior-point adds up Hessians of at most {WIDEST} columns; this problem has "
                f"{agent.design.shape[1]}. Use proximal-1."
            )
        w = sealed(agent.centred.inner(agent.first_model().astype(float)))
        mu = TUNING.first_mu * (agent.known.primal_at_start or 1.0)
        return State(w, mu, OUTSIDE, EMPTY, EMPTY, EMPTY, EMPTY, EMPTY)

    def warmed(self, agent: Agent, state: State, point: Point) -> State:
        if agent.careful:
            # where columns depend on each other, the model of a run that stalled may have gone far
            return state
        return replace(state, w=sealed(agent.centred.inner(point.w.astype(float))))

    def round(self, agent: Agent, state: State, t: int) -> Protocol[State]:
        if state.stage == OUTSIDE:
            state = yield from self._enter(agent, state)
        design = None
        if agent.careful and not is_tensor(agent.data.X):
            design = yield from careful.centred(agent)
        terms = Terms(agent, state.w, state.lengths, design)
        return (
            yield from (self._along if state.stage == ON_PATH else self._approach)(
                agent, state, terms
            )
        )

    def point(self, agent: Agent, state: State) -> Point:
        w = rounded(agent, state.w)
        v = state.v
        if state.stage != ON_PATH:
            v = on_path(agent, state.w, state.mu)[0]
        return Point(w, v.astype(agent.design.dtype, copy=False))

    def expected_gap(self, agent: Agent, state: State) -> float | None:
        """A share of what all products add up to, samples' and barrier's: a sample's gap is p r ≤ p
        s, or q r ≤ q t.
        """
        return TUNING.surely * state.mu

    # -- 1. ----------------------------------------------------------------------------------------

    def _enter(self, agent: Agent, state: State) -> Protocol[State]:
        """Away from the bounds, if there are any."""
        pieces = agent.problem.penalty.pieces
        assert pieces is not None
        if not {"bounds", "ball"} & set(pieces.kinds):
            return replace(state, stage=APPROACHING)
        squares = yield Sum(diagonal(agent.centred, kinks_of(agent).weights))

        def entered() -> tuple[FloatArray, FloatArray]:
            sizes = agent.problem.loss.lipschitz * np.sqrt(squares / agent.total)
            lengths = sealed(np.divide(state.mu, sizes, out=np.zeros(len(sizes)), where=sizes > 0))
            return sealed(barrier_at(agent, lengths).inside(state.w)), lengths

        w, lengths = shared_result(squares, entered)
        return replace(state, w=w, lengths=lengths, stage=APPROACHING)

    def _approach(self, agent: Agent, state: State, terms: Terms) -> Protocol[State]:
        w = state.w
        n = agent.total
        mu = state.mu
        barrier = terms.barrier
        kinks = terms.kinks
        v, theta = on_path(agent, w, mu)
        total = yield Sum(terms.hessian(theta, agent.centred.adjoint(agent.weighted(v))))

        def aimed() -> tuple[FloatArray, float]:
            x = barrier.centred(w, mu)
            slope = total[-len(w) :] / n + barrier.force(x) + terms.ridge * w + mu * barrier.tilt
            dw = terms.equations(total, x)(-slope)
            return dw, -0.5 * float(slope @ dw)

        dw, promised = shared_result(total, aimed)
        dr = agent.centred.forward(dw)
        shares = STEPS
        share = 0.0
        smoothed: Any = kernel.smoothed
        while share == 0.0:
            values = np.zeros(len(shares))
            smoothed(terms.r, dr, mu, kinks.lower, kinks.upper, kinks.weights, shares, values)
            losses = yield Sum(values)
            share, unseen = shared_result(losses, terms.best, mu, dw, promised, shares, losses)
            if unseen:
                break
            shares = shares * STEPS[-1]
        if share:
            w = shared_result(losses, lambda: sealed(w + share * dw))
        if promised > TUNING.near * mu and share:
            return replace(state, w=w)
        room = TUNING.least_room * (kinks.upper - kinks.lower)
        v = np.clip(on_path(agent, w, mu)[0], kinks.lower + room, kinks.upper - room)
        sides = mu / (kinks.upper - v), mu / (v - kinks.lower)
        return State(
            w, mu, ON_PATH, v, *sides, shared_result(losses, barrier.centred, w, mu), state.lengths
        )

    # -- 2. ----------------------------------------------------------------------------------------

    def _along(self, agent: Agent, state: State, terms: Terms) -> Protocol[State]:
        design = agent.centred
        own = Samples(terms.kinks, terms.r, state.v, state.s, state.t)
        # Predictor: as far as possible towards μ = 0.
        way = own.aimed(0.0)
        _, _, theta, g = way.aim
        gradients = design.adjoint(agent.weighted(state.v)), design.adjoint(agent.weighted(g))
        total = yield Sum(terms.hessian(theta, *gradients, np.array([own.complementarity()])))
        first = shared_result(total, _predicted, agent, state, terms, total)
        way = own.moved(way, design.forward(first.step.dw))
        told = yield Sum(np.append(agent.one_hot(way.longest), own.quadratic(way)))
        mu, target, predicted = shared_result(
            told, _target, agent, state, first, terms.barrier, told
        )
        if mu <= TUNING.rounding * agent.known.primal_at_start:
            return state  # the end of the path, as far as float64 sees
        # Corrector: back to the middle, with the predictor's second-order term; then, while the
        # step is short, others.
        aim = own.aimed(target, way)
        alpha = 0.0
        aims = shared_result(told, terms.barrier.aims, target, state.w, state.x, first.step)
        for attempt in range(1 + TUNING.correctors):
            message = yield Sum(design.adjoint(agent.weighted(aim.aim[3])))
            new, longest = shared_result(
                message, _stepped, agent, state, terms, first, message, aims, target
            )
            aim = own.moved(aim, design.forward(new.dw))
            told = yield Sum(agent.one_hot(aim.longest))
            reach = shared_result(told, _reach, told, longest)
            if attempt and reach < alpha + TUNING.gain * TUNING.longer:
                break
            alpha = reach
            step = new
            way = aim
            if alpha > 1 - TUNING.longer:
                break
            if attempt == 0 and alpha < TUNING.poor * predicted:
                # Where w goes far for nothing, the second-order term is worse than none.
                aim = own.aimed(target)
                aims = shared_result(told, terms.barrier.aims, target, state.w, state.x)
                continue
            share = min(1.0, alpha + TUNING.longer)
            least = TUNING.least_product * target
            most = TUNING.most_product * target
            aim = own.recentred(way, share, least, most)
            aims = shared_result(
                told, terms.barrier.recentred, aims, state.w, state.x, step, share, least, most
            )
        if alpha < TUNING.blocked:
            return replace(state, mu=mu, stage=APPROACHING, v=EMPTY, s=EMPTY, t=EMPTY, x=EMPTY)
        w = shared_result(told, lambda: sealed(state.w + alpha * step.dw))
        x = shared_result(
            told, lambda: sealed(terms.barrier.kept(w, state.x + alpha * step.dx, target))
        )
        v, s, t = own.after(alpha, way)
        if isinstance(first.solve, careful.Equations):
            v = yield from self._refined(
                agent, terms, first.solve, theta, State(w, mu, ON_PATH, v, s, t, x, EMPTY)
            )
        return State(w, mu + alpha * (target - mu), ON_PATH, v, s, t, x, state.lengths)

    def _refined(
        self,
        agent: Agent,
        terms: Terms,
        equations: careful.Equations,
        theta: FloatArray,
        state: State,
    ) -> Protocol[FloatArray]:
        """v with less of what rounding left in the first equation, for a careful agent."""
        design = terms.careful_design
        kinks = terms.kinks
        v = state.v
        assert design is not None
        room = TUNING.least_room * (kinks.upper - kinks.lower)
        force = terms.barrier.force(state.x) + terms.ridge * state.w
        for _ in range(careful.PASSES):
            message = yield Sum(design.adjoint(agent.weighted(v)))
            left = message / agent.total
            left[: len(force)] += force
            missing = shared_result(message, equations.in_design, -left)
            v = np.clip(v + theta * design.forward(missing), kinks.lower + room, kinks.upper - room)
        return v


def _most(case: Case) -> Counts:
    """The largest counts of a round along the path, with one corrector."""
    width, parties = case.width, case.parties
    return 4, triangle(width) + 3 * width + 2 * parties + 2


def _sometimes(case: Case) -> Counts:
    """What is added in rounds near the path, or with more correctors, and how much more a careful
    agent sends.
    """
    width, passes = case.columns + 1, careful.PASSES
    searches, trials = most_of_search(STEPS)
    more = TUNING.correctors * (width + case.parties) + passes * width
    carefully = triangle(width) - triangle(case.width) + 3 * (width - case.width) + 2 * case.columns
    entering = case.width
    collectives = 2 + max(searches, 2 * TUNING.correctors + passes)
    return collectives, entering + carefully + max(trials, more)


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


def _predicted(agent: Agent, state: State, terms: Terms, total: FloatArray) -> _Predicted:
    width = len(state.w)
    residual = (
        total[-2 * width - 1 : -width - 1] / agent.total
        + terms.barrier.force(state.x)
        + terms.ridge * state.w
    )
    nowhere = Step(np.zeros(width), np.zeros(len(state.x)))
    first = _Predicted(nowhere, 1.0, residual, terms.equations(total, state.x), float(total[-1]))
    aims = terms.barrier.aims(0.0, state.w, state.x)
    step, longest = _stepped(agent, state, terms, first, total[-width - 1 : -1], aims, 0.0)
    return first._replace(step=step, longest=longest)


def _stepped(
    agent: Agent,
    state: State,
    terms: Terms,
    first: _Predicted,
    message: FloatArray,
    aims: FloatArray,
    mu: float,
) -> tuple[Step, float]:
    """Δw and Δx for those aims, where the message is the sum of X̃ᵀ(ω∘g_v), and how far the barrier
    lets them go.
    """
    w = state.w
    x = state.x
    barrier = terms.barrier
    shift = barrier.shift(w, x, aims) + mu * barrier.tilt
    dw = first.solve(-first.residual - message / agent.total - shift)
    dx = barrier.direction(w, x, dw, aims)
    return Step(dw, dx), barrier.longest(w, x, dw, dx)


def _reach(told: FloatArray, longest: float) -> float:
    """How far everybody's samples and the barrier let a step go, less a hair's breadth."""
    return min(1.0, TUNING.inside * min(longest, float(told.min())))


def _target(
    agent: Agent, state: State, first: _Predicted, barrier: Barrier, told: FloatArray
) -> tuple[float, float, float]:
    """μ now, μ to go for, the smaller the better the predictor would do, and how far that could
    go.
    """
    n = agent.total
    alpha = min(1.0, first.longest, float(told[:-1].min()))
    step = first.step
    before = first.samples + n * barrier.complementarity(state.w, state.x)
    # The predictor aims at products of 0: to the first order, a step of α leaves a share 1 − α of
    # them.
    after = (1.0 - alpha) * first.samples + alpha**2 * told[-1]
    after += n * barrier.complementarity(state.w + alpha * step.dw, state.x + alpha * step.dx)
    mu = before / (n * (2 + barrier.weight))
    share = min(1.0, max(float(after) / before, 0.0) ** 3)
    if float(np.abs(first.residual) @ np.abs(state.w)) > TUNING.balanced * mu:
        share = max(
            share, TUNING.least_share
        )  # only a full step ends the residual, and towards 0 there is none
    return mu, mu * share, alpha


def _has_barrier(problem: Problem) -> bool:
    pieces = problem.penalty.pieces
    return pieces is not None and len(pieces.kinds) <= 1
