"""An interior-point method for non-smooth losses, split by samples: one or two dozen rounds.

The losses `hinge`, `absolute` and `quantile` are ℓ(u; y) = max over a ≤ v ≤ b of v (u − y). The
penalty consists of a ridge λ₂ and a rest, which a barrier replaces (`barriers/`). With

    r = X̃w − y,   p = b − v,   q = v − a,   weights ω

the optimum is where μ = 0 in

    X̃ᵀ(ω∘v)/n + force(x) + λ₂ w = 0,      r = s − t,      s p = μ,   t q = μ,   s, t, p, q > 0

and in the equations of the barrier for (w, x). The penalty λ₁‖w‖₁ is a maximum of λ₁ u_j w_j over
|u_j| ≤ 1. Its equations are of the same kind, with (u, w) in place of (v, r).

1. **To the path.** For a fixed μ, v follows from r, x follows from w, and w minimises a smooth
   function. The agents take damped Newton steps. A round is one `Sum` of the triangle of the
   Hessian and the gradient, and one `Sum` of a few trial values, or more until one is lower.
2. **Along the path**, by Mehrotra's predictor and corrector: Δv = θ∘(X̃Δw) + g_v for
   θ = 1/(s/p + t/q), and the force changes by C Δw + g_x, so that

       (X̃ᵀ(ωθ)X̃/n + C + λ₂) Δw = −(residual of the first equation) − X̃ᵀ(ω∘g_v)/n − g_x.

   A round is one `Sum` of the triangle and two gradients, one of the gradient of the corrector,
   and two with the longest step of each agent. While steps are short, up to two further correctors
   aim at the products that limit them. Each costs one `Sum` of a gradient and one of longest steps.

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
from coterie.methods.second_order.central_path import (
    Samples,
    Terms,
    Way,
    barrier_at,
    on_path,
    row_bounds,
)
from coterie.methods.second_order.quadratic import rounded
from coterie.networks import Network
from coterie.numerics.arrays import FloatArray, is_tensor, sealed, shared_result
from coterie.numerics.kernels import barrier as kernel
from coterie.numerics.tuning import Tuning, tuned
from coterie.problems.problem import Problem
from coterie.run.agent import Agent, AgentForm
from coterie.run.certificate import Point
from coterie.run.collectives import Protocol, Sum
from coterie.run.disclosure import HESSIAN, TOTALS, Case, Counts, Disclosure, triangle
from coterie.stats.moments import diagonal

STEPS = np.array([0.0, 1.0, 1 / 2, 1 / 4, 1 / 8, 1 / 16, 1 / 64, 1 / 256, 1 / 1024])
"""Trial step sizes on the way to the path; 0 gives the value at the model."""
WIDEST = 1500
"""The largest number of columns for Hessians: with more, a message has more than 9 MB."""
EXPECTED_ROUNDS = 16
EXPECTED_SUMS = 6
"""Rounds, and sums per round, that "auto" assumes."""
GONDZIO = "paper: Gondzio 1996"
MEASURED = (
    "measured: a1a, w8a, diabetes, breast cancer and digits, non-smooth losses, all penalties"
)


@dataclass(frozen=True)
class _Tuning(Tuning):
    first_mu: float = tuned(0.2, "The first μ, in units of P(0).", MEASURED)
    near: float = tuned(
        0.7,
        "The path is reached when a Newton step promises less than this share of μ.",
        "theorem: there Newton's method on a self-concordant function converges fast (Nesterov "
        "and Nemirovskii 1994)",
    )
    blocked: float = tuned(
        1e-3, "After a shorter step along the path, the agents approach it again.", MEASURED
    )
    inside: float = tuned(
        0.99,
        "The share of the longest step that is taken.",
        "paper: Mehrotra 1992",
        below=1,
        costs=4,
    )
    rounding: float = tuned(
        1e-15, "A smaller μ, in units of P(0), is 0.", "rounding: the precision of float64"
    )
    least_margin: float = tuned(
        1e-14,
        "Distance of dual variables to their bounds when the path is reached, in intervals.",
        "rounding: the precision of float64",
    )
    balanced: float = tuned(
        1e-5, "The residual times w, in units of μ, above which `least_share` applies.", MEASURED
    )
    least_share: float = tuned(
        0.03,
        "The share to which a round may lower μ, while the residual is large.",
        MEASURED,
        below=1,
    )
    correctors: int = tuned(
        2, "The number of further correctors, which aim at products that limit the step.", GONDZIO
    )
    longer: float = tuned(0.3, "The aim of a corrector: a step longer by this.", GONDZIO, below=1)
    gain: float = tuned(0.1, "The share of that aim which is enough.", GONDZIO)
    least_product: float = tuned(
        0.1, "The least product, in units of μ, that does not limit the step.", GONDZIO, below=1
    )
    most_product: float = tuned(
        10.0, "The largest product, in units of μ, that does not limit the step.", GONDZIO, above=1
    )
    surely: float = tuned(
        0.2,
        "The gap is at least this share of μ: no certificate is made while that is too large.",
        "measured: non-smooth losses, all penalties and one to eight agents",
    )
    poor: float = tuned(
        0.5,
        "A corrector that reaches less than this share of the predictor's step is tried again "
        "without the second-order term.",
        "measured: one-sided bounds, where w may go far without a gain",
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
    """`OUTSIDE` before the first round, then `APPROACHING` the path, then `ON_PATH`. The fields
    below are empty until `ON_PATH`.
    """
    v: FloatArray
    s: FloatArray
    t: FloatArray
    x: FloatArray
    """The barrier's variables, the same at every agent."""
    lengths: FloatArray
    """The change of each coefficient that changes residuals by the width of the first smoothing.
    0 for empty columns; an empty array where the barrier needs none.
    """


@dataclass(frozen=True)
class InteriorPoint(Method[State, Rows]):
    """Mehrotra's predictor and corrector in the space of the model."""

    name: ClassVar[str] = "interior-point"
    tensors: ClassVar[bool] = True
    split: ClassVar[str] = "samples"
    summary: ClassVar[str] = (
        "an interior-point method for non-smooth losses and few columns: two dozen rounds"
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
    discloses_labels: ClassVar[bool] = False

    @classmethod
    def outlook(cls, problem: Problem, sizes: Sizes) -> Outlook | None:
        fits = problem.loss.conjugate_curvature == 0.0 and _has_barrier(problem)
        d = sizes.width(problem)
        if not fits or d > WIDEST:
            return None
        return Outlook(
            rounds=EXPECTED_ROUNDS,
            sums=EXPECTED_SUMS,
            scalars=d * (d + 7) / 2,
            work=products_work(sizes, d) + 10 * sizes.rows_work,
            what="few rounds suffice",
            shared=equations_work(d),
        )

    @classmethod
    def rescues(cls, problem: Problem, sizes: Sizes) -> bool:
        return sizes.width(problem) <= WIDEST

    def check(self, problem: Problem, network: Network) -> None:
        if problem.loss.conjugate_curvature != 0.0:
            raise InvalidProblem(
                "interior-point is for non-smooth losses (hinge, absolute, quantile); this problem "
                f"has {problem.loss.name!r}. Use newton."
            )
        if not _has_barrier(problem):
            raise InvalidProblem(
                f"interior-point has no barrier for the {problem.penalty.name!r} penalty, whose "
                "pieces are not declared. Use proximal-1."
            )

    def start(self, agent: Agent) -> Protocol[State]:
        yield from ()  # sends nothing
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
            # Where columns are dependent, a stalled run may have ended at a very large model.
            return state
        return replace(state, w=sealed(agent.centred.inner(point.w.astype(float))))

    def round(self, agent: Agent, state: State, t: int) -> Protocol[State]:
        if state.stage == OUTSIDE:
            state = yield from self._enter(agent, state)
        design = None
        if agent.careful and not is_tensor(agent.data.X):
            design = yield from careful.centred(agent)
        terms = Terms(agent, state.w, state.lengths, design)
        if state.stage == ON_PATH:
            return (yield from self._along(agent, state, terms))
        return (yield from self._approach(agent, state, terms))

    def point(self, agent: Agent, state: State) -> Point:
        w = rounded(agent, state.w)
        v = state.v
        if state.stage != ON_PATH:
            v = on_path(agent, state.w, state.mu)[0]
        return Point(w, v.astype(agent.design.dtype, copy=False))

    def expected_gap(self, agent: AgentForm, state: State) -> float | None:
        """Return a share of the sum of all products, of rows and barrier: the gap of a row is
        p r ≤ p s, or q r ≤ q t.
        """
        return TUNING.surely * state.mu

    # -- 1. to the path ----------------------------------------------------------------------------

    def _enter(self, agent: Agent, state: State) -> Protocol[State]:
        """Move the model away from its bounds, if it has any."""
        pieces = agent.problem.penalty.pieces
        assert pieces is not None
        if not {"bounds", "ball"} & set(pieces.kinds):
            return replace(state, stage=APPROACHING)
        squares = yield Sum(diagonal(agent.centred, row_bounds(agent).weights))

        def entered() -> tuple[FloatArray, FloatArray]:
            sizes = agent.problem.loss.lipschitz * np.sqrt(squares / agent.total)
            lengths = np.divide(state.mu, sizes, out=np.zeros(len(sizes)), where=sizes > 0)
            lengths = sealed(lengths)
            w = barrier_at(agent, lengths).inside(state.w)
            return sealed(w), lengths

        w, lengths = shared_result(squares, entered)
        return replace(state, w=w, lengths=lengths, stage=APPROACHING)

    def _approach(self, agent: Agent, state: State, terms: Terms) -> Protocol[State]:
        """Take a damped Newton step for a fixed μ."""
        w = state.w
        mu = state.mu
        v, theta = on_path(agent, w, mu)
        adjoint = agent.centred.adjoint(agent.weighted(v))
        total = yield Sum(terms.hessian(theta, adjoint))
        dw, promised = shared_result(total, _newton_step, agent, terms, mu, total)
        share, losses = yield from self._searched(agent, terms, mu, dw, promised)
        if share:
            w = shared_result(losses, lambda: sealed(w + share * dw))
        if promised > TUNING.near * mu and share:
            return replace(state, w=w)
        rows = terms.rows
        margin = TUNING.least_margin * (rows.upper - rows.lower)
        v = on_path(agent, w, mu)[0]
        v = np.clip(v, rows.lower + margin, rows.upper - margin)
        s = mu / (rows.upper - v)
        t = mu / (v - rows.lower)
        x = shared_result(losses, terms.barrier.centred, w, mu)
        return State(w, mu, ON_PATH, v, s, t, x, state.lengths)

    def _searched(
        self, agent: Agent, terms: Terms, mu: float, dw: FloatArray, promised: float
    ) -> Protocol[tuple[float, FloatArray]]:
        """Return the best step size, 0 if no step can gain, and the last sum that was received."""
        rows = terms.rows
        dr = agent.centred.forward(dw)
        shares = STEPS
        smoothed: Any = kernel.smoothed
        while True:
            values = np.zeros(len(shares))
            smoothed(terms.r, dr, mu, rows.lower, rows.upper, rows.weights, shares, values)
            losses = yield Sum(values)
            share, is_hidden = shared_result(losses, terms.best, mu, dw, promised, shares, losses)
            if is_hidden or share != 0.0:
                return share, losses
            shares = shares * STEPS[-1]

    # -- 2. along the path -------------------------------------------------------------------------

    def _along(self, agent: Agent, state: State, terms: Terms) -> Protocol[State]:
        """Take a step of predictor and corrector."""
        own = Samples(terms.rows, terms.r, state.v, state.s, state.t)
        predicted = yield from self._predict(agent, state, terms, own)
        mu = predicted.mu
        if mu <= TUNING.rounding * agent.known.primal_at_start:
            return state  # the end of the path, as far as float64 sees
        corrected = yield from self._correct(agent, state, terms, own, predicted)
        alpha = corrected.alpha
        if alpha < TUNING.blocked:
            return replace(state, mu=mu, stage=APPROACHING, v=EMPTY, s=EMPTY, t=EMPTY, x=EMPTY)
        step = corrected.step
        target = predicted.target

        def moved() -> tuple[FloatArray, FloatArray]:
            x = terms.barrier.kept(state.w, state.x + alpha * step.dx, target)
            return sealed(state.w + alpha * step.dw), sealed(x)

        w, x = shared_result(corrected.received, moved)
        v, s, t = own.after(alpha, corrected.way)
        solve = predicted.first.solve
        if isinstance(solve, careful.Equations):
            after = State(w, mu, ON_PATH, v, s, t, x, EMPTY)
            v = yield from self._refined(agent, terms, solve, predicted.theta, after)
        next_mu = mu + alpha * (target - mu)
        return State(w, next_mu, ON_PATH, v, s, t, x, state.lengths)

    def _predict(
        self, agent: Agent, state: State, terms: Terms, own: Samples
    ) -> Protocol[_Prediction]:
        """Find the step as far as possible towards μ = 0, and the μ that it allows."""
        design = agent.centred
        way = own.aimed(0.0)
        _, _, theta, g = way.aim
        adjoint = design.adjoint(agent.weighted(state.v))
        adjoint_of_g = design.adjoint(agent.weighted(g))
        complementarity = np.array([own.complementarity()])
        total = yield Sum(terms.hessian(theta, adjoint, adjoint_of_g, complementarity))
        first = shared_result(total, _predicted, agent, state, terms, total)
        way = own.moved(way, design.forward(first.step.dw))
        longest = agent.one_hot(way.longest)
        received = yield Sum(np.append(longest, own.quadratic(way)))
        mu, target, reach = shared_result(
            received, _target, agent, state, first, terms.barrier, received
        )
        return _Prediction(first, way, theta, mu, target, reach, received)

    def _correct(
        self, agent: Agent, state: State, terms: Terms, own: Samples, predicted: _Prediction
    ) -> Protocol[_Corrected]:
        """Find the step back to the middle of the path, with the second-order term of the
        predictor; while that step is short, try further correctors.
        """
        design = agent.centred
        barrier = terms.barrier
        first = predicted.first
        target = predicted.target
        received = predicted.received
        aim = own.aimed(target, predicted.way)
        aims = shared_result(received, barrier.aims, target, state.w, state.x, first.step)
        alpha = 0.0
        for attempt in range(1 + TUNING.correctors):
            message = yield Sum(design.adjoint(agent.weighted(aim.aim[3])))
            new, longest = shared_result(
                message, _stepped, agent, state, terms, first, message, aims, target
            )
            aim = own.moved(aim, design.forward(new.dw))
            received = yield Sum(agent.one_hot(aim.longest))
            reach = shared_result(received, _reach, received, longest)
            if attempt and reach < alpha + TUNING.gain * TUNING.longer:
                break
            alpha = reach
            step = new
            way = aim
            if alpha > 1 - TUNING.longer:
                break
            if attempt == 0 and alpha < TUNING.poor * predicted.reach:
                # Where w may go far without a gain, the second-order term is worse than none.
                aim = own.aimed(target)
                aims = shared_result(received, barrier.aims, target, state.w, state.x)
                continue
            share = min(1.0, alpha + TUNING.longer)
            least = TUNING.least_product * target
            most = TUNING.most_product * target
            aim = own.recentred(way, share, least, most)
            aims = shared_result(
                received, barrier.recentred, aims, state.w, state.x, step, share, least, most
            )
        return _Corrected(alpha, step, way, received)

    def _refined(
        self,
        agent: Agent,
        terms: Terms,
        equations: careful.Equations,
        theta: FloatArray,
        state: State,
    ) -> Protocol[FloatArray]:
        """Return v with less of the residual that rounding leaves in the first equation, for a
        careful agent.
        """
        design = terms.careful_design
        v = state.v
        assert design is not None
        rows = terms.rows
        margin = TUNING.least_margin * (rows.upper - rows.lower)
        lowest = rows.lower + margin
        highest = rows.upper - margin
        force = terms.barrier.force(state.x) + terms.ridge * state.w
        for _ in range(careful.PASSES):
            message = yield Sum(design.adjoint(agent.weighted(v)))
            left = message / agent.total
            left[: len(force)] += force
            missing = shared_result(message, equations.in_design, -left)
            v = np.clip(v + theta * design.forward(missing), lowest, highest)
        return v


def _most(case: Case) -> Counts:
    """Return the largest counts of a round along the path, with one corrector."""
    numbers = triangle(case.width) + 3 * case.width + 2 * case.parties + 2
    return 4, numbers


def _sometimes(case: Case) -> Counts:
    """Return the additional counts of rounds near the path, of further correctors, and of a
    careful agent.
    """
    width = case.columns + 1
    passes = careful.PASSES
    searches, trials = most_of_search(STEPS)
    of_correctors = TUNING.correctors * (width + case.parties)
    of_passes = passes * width
    larger_triangle = triangle(width) - triangle(case.width)
    carefully = larger_triangle + 3 * (width - case.width) + 2 * case.columns
    entering = case.width
    collectives = 2 + max(searches, 2 * TUNING.correctors + passes)
    numbers = entering + carefully + max(trials, of_correctors + of_passes)
    return collectives, numbers


class _Predicted(NamedTuple):
    """Facts that all agents know after the first message of a round along the path."""

    step: Step
    longest: float
    """The longest step that the barrier allows, at most 2."""
    residual: FloatArray
    """The residual of the first equation."""
    solve: Callable[[FloatArray], FloatArray]
    samples: float
    """Σ ω (s p + t q) of all rows."""


class _Prediction(NamedTuple):
    """The predictor, and the μ at which the corrector aims."""

    first: _Predicted
    way: Way
    """The direction of the agent's own rows."""
    theta: FloatArray
    mu: float
    """μ of the current model."""
    target: float
    """μ at which the corrector aims."""
    reach: float
    """The longest step of the predictor, at most 1."""
    received: FloatArray
    """The last sum that was received."""


class _Corrected(NamedTuple):
    """The step that is taken."""

    alpha: float
    """Its size."""
    step: Step
    way: Way
    """The direction of the agent's own rows."""
    received: FloatArray
    """The last sum that was received."""


def _newton_step(
    agent: Agent, terms: Terms, mu: float, total: FloatArray
) -> tuple[FloatArray, float]:
    """Return Δw for a fixed μ, and the decrease that the quadratic model promises."""
    w = terms.w
    barrier = terms.barrier
    x = barrier.centred(w, mu)
    loss_gradient = total[-len(w) :] / agent.total
    gradient = loss_gradient + barrier.force(x) + terms.ridge * w + mu * barrier.tilt
    dw = terms.equations(total, x)(-gradient)
    return dw, -0.5 * float(gradient @ dw)


def _predicted(agent: Agent, state: State, terms: Terms, total: FloatArray) -> _Predicted:
    width = len(state.w)
    adjoint = total[-2 * width - 1 : -width - 1]
    adjoint_of_g = total[-width - 1 : -1]
    force = terms.barrier.force(state.x)
    residual = adjoint / agent.total + force + terms.ridge * state.w
    solve = terms.equations(total, state.x)
    nowhere = Step(np.zeros(width), np.zeros(len(state.x)))
    first = _Predicted(nowhere, 1.0, residual, solve, float(total[-1]))
    aims = terms.barrier.aims(0.0, state.w, state.x)
    step, longest = _stepped(agent, state, terms, first, adjoint_of_g, aims, 0.0)
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
    """Return Δw and Δx for these aims, and the longest step that the barrier allows. The message is
    the sum of X̃ᵀ(ω∘g_v).
    """
    w = state.w
    x = state.x
    barrier = terms.barrier
    shift = barrier.shift(w, x, aims) + mu * barrier.tilt
    dw = first.solve(-first.residual - message / agent.total - shift)
    dx = barrier.direction(w, x, dw, aims)
    longest = barrier.longest(w, x, dw, dx)
    return Step(dw, dx), longest


def _reach(received: FloatArray, longest: float) -> float:
    """Return the step size that the rows of all agents and the barrier allow, a little less than
    the longest.
    """
    longest = min(longest, float(received.min()))
    return min(1.0, TUNING.inside * longest)


def _target(
    agent: Agent, state: State, first: _Predicted, barrier: Barrier, received: FloatArray
) -> tuple[float, float, float]:
    """Return the μ of the current model, the μ at which the corrector aims, and the longest step of
    the predictor. The better that step is, the smaller is the second μ.
    """
    n = agent.total
    w = state.w
    x = state.x
    step = first.step
    longest_of_rows = float(received[:-1].min())
    alpha = min(1.0, first.longest, longest_of_rows)
    before = first.samples + n * barrier.complementarity(w, x)
    # The predictor aims at products of 0: to the first order, a step of α leaves a share 1 − α of
    # them.
    after = (1.0 - alpha) * first.samples + alpha**2 * received[-1]
    after += n * barrier.complementarity(w + alpha * step.dw, x + alpha * step.dx)
    mu = before / (n * (2 + barrier.weight))
    remaining = max(float(after) / before, 0.0)
    share = min(1.0, remaining**3)
    residual = float(np.abs(first.residual) @ np.abs(w))
    if residual > TUNING.balanced * mu:
        # Only a full step ends the residual, and towards μ = 0 no full step is possible.
        share = max(share, TUNING.least_share)
    return mu, mu * share, alpha


def _has_barrier(problem: Problem) -> bool:
    pieces = problem.penalty.pieces
    return pieces is not None and len(pieces.kinds) <= 1
