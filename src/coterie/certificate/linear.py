"""Proofs for linear models, split by samples or by features: the duality gap.

For every w and every dual v in the domain, P(w) − P* ≤ P(w) − D(v). A method hands over any (w, v); here v is made
feasible:

1. clipped into the domain of ℓ* (an interval per sample that holds 0);
2. with an intercept, D needs Σ s_i v_i = 0: the heavier of the positive and the negative side is scaled down to the
other;
3. shrunk by the largest c ≤ 1 that puts −Xᵀ(s∘cv)/n into the domain of g* (l1, groups).

Each step moves v towards 0, inside every domain; v = 0 itself is always tried too. Where the penalty has no growth
(none, one-sided bounds), step 3 can leave nothing; then the bound is also computed against models of norm at most
`radius` only, and the certificate says so.

The sums travel as words like any other, so a certificate costs messages, and the bill shows them under `proof`.
"""

from __future__ import annotations

import math

import numpy as np

from coterie.agent import Agent, Facts
from coterie.arrays import FloatArray
from coterie.certificate.bound import Bound, Point
from coterie.words import Sum, Talk

__all__ = ["certify", "introduce"]

ROUNDING = 1e-10
"""Below this share of all squares, those about the mean are taken for rounding errors: the columns are constant."""


def introduce(agent: Agent) -> Talk[Facts]:
    """The first conversation: how much data there is, and the objective and its slope at w = 0."""
    loss, y, s = agent.problem.loss, agent.labels.astype(float), agent.data.weights
    slopes = loss.gradient(np.zeros(len(y)), y)
    mine = [
        float(len(y)) if s is None else float(s.sum(dtype=float)),
        loss.value(np.zeros(len(y)), y, s),
        float(np.dot(slopes, agent.weighted(slopes))),
    ]
    design, intercept = agent.design, agent.problem.intercept
    if agent.split == "features":
        # ∇ℓ(0) would tell everybody the labels; ‖∇P(0)‖ ≤ ‖X‖_F ‖∇ℓ(0)‖ / n tells a length without them.
        lengths = design.squared_lengths()[: agent.data.d]
        numbers = np.array([*mine, lengths.sum(dtype=float), _inverses(lengths)])
        total, losses, squares, spread, inverses = yield Sum(numbers)
        slope_squared, centre, unit = squares * spread, None, 1.0
    else:
        width, numbers = design.shape[1], np.array([*mine, design.squared_frobenius(s)])
        columns = design.adjoint(agent.weighted(np.ones(len(y))))[:-1] if intercept else np.empty(0)
        lengths = np.empty(0) if agent.problem.penalty.coercive else design.squares(s)
        sums = yield Sum(np.concatenate([design.adjoint(agent.weighted(slopes)), numbers, columns, lengths]))
        sums, lengths = np.split(sums, [len(sums) - len(lengths)])
        (total, losses, squares, spread), slope, centre, unit = sums[width : width + 4], sums[:width], None, 1.0
        if intercept:
            # In the coordinates of `CentredDesign`: for constant columns the unit is that of their values.
            centre = sums[width + 4 :] / total
            about = spread - total * float(centre @ centre)
            spread = about if about > ROUNDING * spread else spread
            unit = math.sqrt(spread / (total * len(centre))) or 1.0
            slope = np.append(slope[:-1] - slope[-1] * centre, unit * slope[-1])
            about = lengths - total * centre[: len(lengths)] ** 2
            lengths = np.where(about > ROUNDING * lengths, about, 0.0)
        # A slope that vanishes by symmetry (centred columns) tells no length: at least a hundredth of its bound.
        slope_squared = max(slope @ slope, 1e-4 * spread * squares)
        inverses = _inverses(lengths)
    steepness = math.sqrt(slope_squared) / total
    at_zero = agent.problem.primal(float(losses), float(total), 0.0)
    reach = at_zero / steepness if steepness > 0 else 0.0
    # A column alone may need a coefficient of 2 P(0) n / (‖x_j‖ ‖∇ℓ(0)‖): for the squared loss ‖y‖ / ‖x_j‖.
    span = 2.0 * at_zero * total * math.sqrt(inverses / squares) if squares > 0 else 0.0
    residual, span = math.sqrt(squares), max(float(reach), span)
    return Facts(float(total), at_zero, float(reach), residual, centre=centre, unit=unit, span=span)


def _inverses(lengths: FloatArray) -> float:
    """Σ_j 1 / ‖x_j‖² over the columns that are not zero, up to rounding."""
    kept = lengths[lengths > ROUNDING**2 * lengths.max(initial=0.0)].astype(float)
    return float((1.0 / kept).sum())


def certify(agent: Agent, point: Point) -> Talk[Bound]:
    """P(w) and a feasible D(v)."""
    return (yield from (_by_features if agent.split == "features" else _by_samples)(agent, point))


def _by_samples(agent: Agent, point: Point) -> Talk[Bound]:
    problem, loss, y, s = agent.problem, agent.problem.loss, agent.labels.astype(float), agent.data.weights
    w = point.w.astype(float)
    scores = agent.design.forward(w)
    v = _in_domain(agent, scores, point.v)
    if problem.intercept:
        v = _balanced(v, *(yield Sum(_sides(agent.weighted(v)))))
    adjoint = problem.coefficients(agent.design.adjoint(agent.weighted(v)))
    at_zero = loss.conjugate(np.zeros(len(y)), y, s)
    sums = yield Sum(np.append(adjoint, [loss.value(scores, y, s), loss.conjugate(v, y, s), at_zero]))
    slope, coefficients = problem.slope(sums[:-3], agent.total), problem.coefficients(w)
    losses, conjugates, at_zero = map(float, sums[-3:])
    primal = problem.primal(losses, agent.total, problem.penalty.value(coefficients))

    c = problem.penalty.scale_into_domain(slope)
    shrunk = conjugates if c == 1.0 else float((yield Sum(np.array([loss.conjugate(c * v, y, s)])))[0])
    dual = problem.dual(shrunk, agent.total, problem.penalty.conjugate(c * slope))
    dual = max(dual, problem.dual(at_zero, agent.total, problem.penalty.conjugate(0.0 * slope)))
    if problem.penalty.coercive:
        return Bound(primal, dual)
    radius = _radius(agent, float(np.linalg.norm(coefficients)))
    bounded = problem.dual(conjugates, agent.total, problem.penalty.bounded_conjugate(slope, radius))
    return Bound(primal, bounded, radius) if bounded > dual else Bound(primal, dual)


def _by_features(agent: Agent, point: Point) -> Talk[Bound]:
    problem, loss, y, s = agent.problem, agent.problem.loss, agent.labels.astype(float), agent.data.weights
    here, rows = agent.data.y is not None, agent.design.shape[0]
    w = point.w.astype(float)
    scores = yield Sum(agent.design.forward(w))
    v = _in_domain(agent, scores, point.v) if here else np.empty(0)
    if here and problem.intercept:
        v = _balanced(v, *_sides(agent.weighted(v)))
    everybodys = yield Sum(_or_zeros(agent.weighted(v), rows))
    adjoint = problem.coefficients(agent.design.adjoint(everybodys), agent.design.intercept)
    slope, coefficients = problem.slope(adjoint, agent.total), problem.coefficients(w, agent.design.intercept)
    penalty = problem.penalty

    # The common shrinkage is the least of everybody's, so each tells its own.
    known = yield Sum(np.append(agent.one_hot(penalty.scale_into_domain(slope)), coefficients @ coefficients))
    c, radius = float(known[:-1].min()), _radius(agent, math.sqrt(known[-1]))
    mine = [
        loss.value(scores, y, s) if here else 0.0,
        loss.conjugate(v, y, s) if here else 0.0,
        loss.conjugate(c * v, y, s) if here else 0.0,
        loss.conjugate(0.0 * v, y, s) if here else 0.0,
        penalty.value(coefficients),
        penalty.conjugate(c * slope),
        penalty.conjugate(0.0 * slope),
        penalty.bounded_conjugate(slope, radius),
        0.0 if penalty.coercive else 1.0,
    ]
    sums = yield Sum(np.array(mine))
    losses, conjugates, shrunk, at_zero, value, conjugate, nothing, bounded_conjugate, flat = map(float, sums)
    primal = problem.primal(losses, agent.total, value)
    dual = max(problem.dual(shrunk, agent.total, conjugate), problem.dual(at_zero, agent.total, nothing))
    if not flat:
        return Bound(primal, dual)
    bounded = problem.dual(conjugates, agent.total, bounded_conjugate)
    return Bound(primal, bounded, radius) if bounded > dual else Bound(primal, dual)


def _in_domain(agent: Agent, scores: FloatArray, v: FloatArray | None) -> FloatArray:
    y = agent.labels.astype(float)
    if v is None:
        return agent.problem.loss.gradient(scores, y)
    lower, upper = agent.problem.loss.domain(y)
    clipped: FloatArray = np.clip(v.astype(float), lower, upper)
    return clipped


def _sides(weighted: FloatArray) -> FloatArray:
    return np.array([weighted[weighted > 0].sum(), -weighted[weighted < 0].sum()])


def _balanced(v: FloatArray, up: float, down: float) -> FloatArray:
    if up > down:
        return np.where(v > 0, v * (down / up), v)
    return np.where(v < 0, v * (up / down), v) if down > up else v


def _radius(agent: Agent, norm: float) -> float:
    assert agent.facts is not None
    return max(10.0 * norm, agent.facts.span)


def _or_zeros(x: FloatArray, size: int) -> FloatArray:
    return x if len(x) else np.zeros(size)
