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
from coterie.arrays import FloatArray, once
from coterie.certificate.bound import Bound, Point
from coterie.words import Sum, Talk

__all__ = ["certify", "introduce"]

ROUNDING = 1e-10
"""Below this share of all squares, those about the mean are taken for rounding errors: the columns are constant."""


def introduce(agent: Agent) -> Talk[Facts]:
    """The first conversation: how much data there is, and the objective and its slope at w = 0."""
    loss, y, s = agent.problem.loss, agent.labels.astype(float, copy=False), agent.data.weights
    zeros = np.zeros(len(y))
    slopes = loss.gradient(zeros, y)
    weighted = agent.weighted(slopes)
    mine = [
        float(len(y)) if s is None else float(s.sum(dtype=float)),
        loss.value(zeros, y, s),
        float(np.dot(slopes, weighted)),
    ]
    design = agent.design
    if agent.split == "features":
        # ∇ℓ(0) would tell everybody the labels; ‖∇P(0)‖ ≤ ‖X‖_F ‖∇ℓ(0)‖ / n tells a length without them.
        lengths = design.squared_lengths()[: agent.data.d]
        numbers = np.array([*mine, lengths.sum(dtype=float), _inverses(lengths)])
        total, losses, squares, spread, inverses = map(float, (yield Sum(numbers)))
        return _facts(agent, total, losses, squares, squares * spread, inverses)
    columns = design.adjoint(agent.weighted(np.ones(len(y))))[:-1] if agent.problem.intercept else np.empty(0)
    lengths = np.empty(0) if agent.problem.penalty.coercive else design.squares(s)
    numbers = np.array([*mine, design.squared_frobenius(s)])
    sums = yield Sum(np.concatenate([design.adjoint(weighted), numbers, columns, lengths]))
    return once(sums, "facts", _from_rows, agent, *np.split(sums, [len(sums) - len(lengths)]))


def _from_rows(agent: Agent, sums: FloatArray, lengths: FloatArray) -> Facts:
    """What follows from the sums over the rows: of slopes, of four numbers, perhaps of columns; and of squares."""
    width, centre, unit = agent.design.shape[1], None, 1.0
    slope, (total, losses, squares, spread) = sums[:width], map(float, sums[width : width + 4])
    if agent.problem.intercept:
        # In the coordinates of `CentredDesign`: for constant columns the unit is that of their values.
        centre = sums[width + 4 :] / total
        about = spread - total * float(centre @ centre)
        spread = about if about > ROUNDING * spread else spread
        unit = math.sqrt(spread / (total * len(centre))) or 1.0
        slope = np.append(slope[:-1] - slope[-1] * centre, unit * slope[-1])
        left = lengths - total * centre[: len(lengths)] ** 2
        lengths = np.where(left > ROUNDING * lengths, left, 0.0)
    # A slope that vanishes by symmetry (centred columns) tells no length: at least a hundredth of its bound.
    slope_squared = max(float(slope @ slope), 1e-4 * spread * squares)
    return _facts(agent, total, losses, squares, slope_squared, _inverses(lengths), centre, unit)


def _facts(
    agent: Agent,
    total: float,
    losses: float,
    squares: float,
    slope_squared: float,
    inverses: float,
    centre: FloatArray | None = None,
    unit: float = 1.0,
) -> Facts:
    steepness = math.sqrt(slope_squared) / total
    at_zero = agent.problem.primal(losses, total, 0.0)
    reach = at_zero / steepness if steepness > 0 else 0.0
    # A column alone may need a coefficient of 2 P(0) n / (‖x_j‖ ‖∇ℓ(0)‖): for the squared loss ‖y‖ / ‖x_j‖.
    span = 2.0 * at_zero * total * math.sqrt(inverses / squares) if squares > 0 else 0.0
    residual, span = math.sqrt(squares), max(reach, span)
    return Facts(total, at_zero, reach, residual, centre=centre, unit=unit, span=span)


def _inverses(lengths: FloatArray) -> float:
    """Σ_j 1 / ‖x_j‖² over the columns that are not zero, up to rounding."""
    kept = lengths[lengths > ROUNDING**2 * lengths.max(initial=0.0)].astype(float)
    return float((1.0 / kept).sum())


def certify(agent: Agent, point: Point) -> Talk[Bound]:
    """P(w) and a feasible D(v)."""
    return (yield from (_by_features if agent.split == "features" else _by_samples)(agent, point))


def _by_samples(agent: Agent, point: Point) -> Talk[Bound]:
    problem, loss, s = agent.problem, agent.problem.loss, agent.data.weights
    w = point.w.astype(float, copy=False)
    here = agent.at(w)
    v = here.slopes if point.v is None else _clipped(agent, here.y, point.v)
    if problem.intercept:
        v = _balanced(v, *(yield Sum(_sides(agent.weighted(v)))))
    known = point.v is None and v is here.slopes
    adjoint = here.adjoint if known else agent.design.adjoint(agent.weighted(v))
    values = here.losses, loss.conjugate(v, here.y, s), agent.conjugate_at_zero
    sums = yield Sum(np.concatenate([problem.coefficients(adjoint), values]))
    # Where all agents of this process stand at one and the same w, one of them computes what follows from the sums.
    slope, primal, c = once(sums, "primal", _primal, agent, w, sums, key=id(w))
    shrunk = float(sums[-2]) if c == 1.0 else float((yield Sum(np.array([loss.conjugate(c * v, here.y, s)])))[0])
    return once(sums, "bound", _bound, agent, w, sums, slope, primal, c, shrunk, key=id(w))


def _primal(agent: Agent, w: FloatArray, sums: FloatArray) -> tuple[FloatArray, float, float]:
    """−Xᵀ(s∘v)/n, P(w), and what must shrink the former."""
    problem, slope = agent.problem, agent.problem.slope(sums[:-3], agent.total)
    value = problem.penalty.value(problem.coefficients(w))
    return slope, problem.primal(float(sums[-3]), agent.total, value), problem.penalty.scale_into_domain(slope)


def _bound(
    agent: Agent, w: FloatArray, sums: FloatArray, slope: FloatArray, primal: float, c: float, shrunk: float
) -> Bound:
    problem, total = agent.problem, agent.total
    dual = problem.dual(shrunk, total, problem.penalty.conjugate(c * slope))
    dual = max(dual, problem.dual(float(sums[-1]), total, problem.penalty.conjugate(0.0 * slope)))
    if problem.penalty.coercive:
        return Bound(primal, dual)
    radius = _radius(agent, float(np.linalg.norm(problem.coefficients(w))))
    bounded = problem.dual(float(sums[-2]), total, problem.penalty.bounded_conjugate(slope, radius))
    return Bound(primal, bounded, radius) if bounded > dual else Bound(primal, dual)


def _by_features(agent: Agent, point: Point) -> Talk[Bound]:
    problem, loss, y, s = agent.problem, agent.problem.loss, agent.labels.astype(float, copy=False), agent.data.weights
    here, rows = agent.data.y is not None, agent.design.shape[0]
    w = point.w.astype(float)
    scores = yield Sum(agent.design.forward(w))
    v: FloatArray = np.empty(0)
    if here:
        v = loss.gradient(scores, y) if point.v is None else _clipped(agent, y, point.v)
    if here and problem.intercept:
        v = _balanced(v, *_sides(agent.weighted(v)))
    everybodys = yield Sum(agent.weighted(v) if here else once(scores, "silence", np.zeros, rows))
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


def _clipped(agent: Agent, y: FloatArray, v: FloatArray) -> FloatArray:
    clipped: FloatArray = np.clip(v.astype(float, copy=False), *agent.problem.loss.domain(y))
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
