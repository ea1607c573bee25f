"""The target of a step: the minimum of a quadratic model of f and the penalty, from an oracle.

    z = argmin ⟨∇f(w), z − w⟩ + ½ (z − w)ᵀ H (z − w) + g(z)
    H = ∇²f(w)

`from_hessian`    for few coefficients: one `Sum` of the upper triangle of H, ∇f and f. Each agent
                  then computes z alone.
`from_products`   for many: one `Sum` of the diagonal of H, ∇f and f, and one for each product of H
                  with a direction. With a ridge or no penalty, the products serve conjugate
                  gradients; else accelerated proximal gradients.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from coterie.methods.line_search import penalty_at
from coterie.methods.second_order.oracle import NOTHING, Aim, Oracle
from coterie.methods.second_order.quadratic import Quadratic, minimiser, ridge_of
from coterie.numerics.arrays import FloatArray, sealed, shared_result
from coterie.numerics.tuning import Tuning, tuned
from coterie.problems.problem import Problem
from coterie.run.agent import Agent
from coterie.run.collectives import Protocol, Sum
from coterie.run.disclosure import Counts, triangle
from coterie.stats.moments import unpacked


@dataclass(frozen=True)
class _Tuning(Tuning):
    forcing: float = tuned(
        0.1,
        "The residual of the equations, as a share of ‖∇P‖, at which products end; it falls near "
        "the minimum.",
        "theorem: superlinear convergence if it falls with ‖∇P‖ (Dembo, Eisenstat and Steihaug "
        "1982)",
        below=1,
    )


TUNING = _Tuning()


def is_smooth(problem: Problem) -> bool:
    """Return whether the penalty is a ridge, or none."""
    pieces = problem.penalty.pieces
    return pieces is not None and not pieces.kinds


def from_hessian(agent: Agent, oracle: Oracle) -> Protocol[Aim]:
    """Find the target from the whole Hessian."""
    # The message has no name here: a name would keep its memory until the reply.
    total = yield Sum(oracle.hessian(oracle.gradient, np.array([oracle.losses]).T))
    return shared_result(total, _minimum, agent, oracle, total)


def _minimum(agent: Agent, oracle: Oracle, total: FloatArray) -> Aim:
    w = oracle.w
    n = agent.total
    width = len(oracle.w)
    gradient = total[-width - 1 : -1] / n
    triangle = oracle.triangle(total[: -width - 1])
    H = unpacked(triangle, width)
    H /= n
    target, firm = minimiser(agent, H, gradient, w)
    penalty_falls = penalty_at(agent, w) - penalty_at(agent, target)
    losses_rise = Quadratic(H, gradient, w).after(target - w)
    if oracle.remembers:
        kept = triangle
    else:
        kept = NOTHING
    return Aim(
        target=sealed(target),
        gradient=gradient,
        losses=float(total[-1]),
        steepness=float(np.linalg.norm(gradient)),
        foreseen=penalty_falls - losses_rise,
        triangle=kept,
        firm=firm,
    )


def most_from_hessian(width: int) -> Counts:
    """Return the largest counts of `from_hessian` for `width` coefficients."""
    return 1, triangle(width) + width + 1


def most_from_products(width: int, products: int) -> Counts:
    """Return the largest counts of `from_products` for `width` coefficients."""
    first = 2 * width + 1
    return 1 + products, first + products * width


def from_products(agent: Agent, oracle: Oracle, steepest: float, most: int) -> Protocol[Aim]:
    """Find the target from at most `most` products. `steepest` is the steepness of the first round,
    and 0 in that round.
    """
    w = oracle.w
    n = agent.total
    width = len(oracle.w)
    total = yield Sum(np.concatenate([oracle.diagonal(), oracle.gradient, [oracle.losses]]))
    curvature = total[:width] / n
    gradient = total[width:-1] / n
    least = oracle.least_curvature * float(curvature.max(initial=0.0))
    diagonal: FloatArray = np.maximum(curvature, least)
    if is_smooth(agent.problem):
        pieces = agent.problem.penalty.pieces
        assert pieces is not None
        ridge = ridge_of(pieces.ridge, width, agent.problem.free())
        scale: FloatArray = diagonal + ridge
        scale[scale <= 0] = 1.0
        pull = -(gradient + ridge * w)
        steepness = float(np.linalg.norm(pull))
        enough = _exactness(steepness, steepest) * steepness
        p = yield from _conjugate_gradients(agent, oracle, ridge, scale, pull, enough, most, total)
        target: FloatArray = w + p
    else:
        steepness = float(np.linalg.norm(gradient))
        exactness = _exactness(steepness, steepest)
        diagonal[diagonal <= 0] = 1.0
        scale = agent.problem.tied(1.0 / diagonal)
        target = yield from _proximal_gradients(
            agent, oracle, gradient, scale, exactness, most, total
        )
    return Aim(shared_result(total, lambda: sealed(target)), gradient, float(total[-1]), steepness)


def _exactness(steepness: float, steepest: float) -> float:
    """Return the residual at which products end, as a share of the first one."""
    scale = steepest or steepness or 1.0
    return min(TUNING.forcing, math.sqrt(steepness / scale))


def _conjugate_gradients(
    agent: Agent,
    oracle: Oracle,
    ridge: FloatArray,
    scale: FloatArray,
    residual: FloatArray,
    enough: float,
    most: int,
    received: FloatArray,
) -> Protocol[FloatArray]:
    """Return p with ‖residual − (H + ridge) p‖ ≤ enough, or the p after `most` products. The scale
    is the preconditioner.

    `received` is the last sum that the agent received.
    """
    p = np.zeros(len(residual))
    scaled = residual / scale
    direction = scaled
    size = float(residual @ scaled)
    for _ in range(most):
        if np.linalg.norm(residual) <= enough or size <= 0:
            break
        # One look at the clock holds for all agents, which must send the same messages.
        if shared_result(received, agent.should_stop):
            break
        received = yield Sum(oracle.product(direction))
        product = received / agent.total + ridge * direction
        curvature = float(direction @ product)
        if not curvature > 0:
            break
        length = size / curvature
        p = p + length * direction
        residual = residual - length * product
        scaled = residual / scale
        before = size
        size = float(residual @ scaled)
        direction = scaled + size / before * direction
    return p


def _proximal_gradients(
    agent: Agent,
    oracle: Oracle,
    gradient: FloatArray,
    scale: FloatArray,
    exactness: float,
    most: int,
    received: FloatArray,
) -> Protocol[FloatArray]:
    """Approach the minimum of the quadratic model and the penalty, by accelerated proximal
    gradients with restarts (FISTA) in the metric of the scale.
    """
    problem = agent.problem
    w = oracle.w
    step_size = 1.0
    momentum = 1.0
    first = 0.0
    point = w
    lead = w
    Hpoint = 0.0 * w  # H (point − w)
    Hlead = 0.0 * w  # H (lead − w)
    for _ in range(most):
        if shared_result(received, agent.should_stop):
            break
        steps = step_size * scale
        new = problem.prox(lead - steps * (gradient + Hlead), steps)
        way = new - lead
        received = yield Sum(oracle.product(way))
        product = received / agent.total
        moved = float(way @ (way / scale))
        curvature = float(way @ product)
        if step_size * curvature > moved * (1 + 1e-9):
            # The step is too long for this metric: try again from the same place.
            step_size /= 2.0
            continue
        first = first or moved
        if moved <= (exactness**2) * 0.01 * first:
            return new
        if np.vdot(lead - new, (new - point) / scale) > 0:
            momentum = 1.0
        following = 0.5 * (1 + math.sqrt(1 + 4 * momentum**2))
        share = (momentum - 1) / following
        Hnew = Hlead + product
        lead = new + share * (new - point)
        Hlead = Hnew + share * (Hnew - Hpoint)
        point = new
        Hpoint = Hnew
        momentum = following
    return point
