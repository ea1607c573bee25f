"""Proofs for linear models, split by samples or by features: the duality gap, as a sum of terms that are not negative.

For every w and every dual v in the domain, with q = Xᵀ(s∘v)/n and u = Xw + b,

    P(w) − P* ≤ (1/n) Σ_i s_i (ℓ(u_i) + ℓ*(v_i) − u_i v_i)  +  g(w) + g*(−q) + ⟨w, q⟩  +  (b − b*) Σ_i s_i v_i / n

where the first two parts are Fenchel–Young terms, each ≥ 0 by itself, so that large numbers do not cancel. A method
hands over any (w, v); here v is made feasible:

1. clipped into the domain of ℓ* (an interval per sample that holds 0);
2. with an intercept, the heavier of the positive and the negative side is scaled down to the other;
3. shrunk by the largest c ≤ 1 that puts −q into the domain of g* (l1, groups), rounding included.

Each step moves v towards 0, inside every domain; v = 0 itself is always tried too. What is left of Σ s v after step 2
is rounding; the third part allows for every intercept within `ROOM` times the scale of the labels, as the bound says.
Where the penalty has no growth (none, one-sided bounds), step 3 can leave nothing; then the bound is computed against
models of norm at most `radius` only, for the largest of several radii with which the gap is still small enough.

**Rounding.** A score goes through about d roundings and an entry of q through about n; with ε = 2⁻⁵³

    ‖δu‖ ≤ k ε Σ_j ‖x_j‖ |w_j|,      |δq_j| ≤ k ε ‖x_j‖ ‖v‖ / n

in norms weighted by s. An error in a score changes its term by the distance of v from the slope times the error, and by
curvature times its square. Secure sums cut off up to K 2⁻⁹⁷ of every total (`Agent.cut`). All of it is added to the
gap, so that a gap is a bound also beside exact arithmetic.

The sums travel as words like any other, so a certificate costs messages, and the bill shows them under `proof`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from coterie.agent import Agent
from coterie.arrays import FloatArray, shared_result
from coterie.certificate.bound import ANY, Beside, Bound, Point
from coterie.certificate.introduction import introduce as introduce
from coterie.here import Here, side_by_side, weighted_norm
from coterie.kernels.sides import all_sides, sides
from coterie.penalties import Penalty
from coterie.words import Sum, Talk

EPSILON = 2.0**-53
SAFE = 1.01
"""Covers what is lost in computing a bound on rounding."""
FEW = 16
"""Roundings of a term that is computed from its score, its label and its dual."""
ROOM = 1e3
"""Claims beside an intercept allow for every other within so many times the scale of the labels."""
RADIUS = 10.0
"""Bounded claims speak of norms up to at least so many times that of the model,"""
RADII = RADIUS ** np.arange(7)
"""and up to as many times more as this share of the target leaves room for:"""
SPENT_ON_RADIUS = 0.1


@dataclass(frozen=True)
class Totals:
    """What a bound is made of: sums over all samples and columns. An `_error` is what rounding can have taken away."""

    losses: float
    losses_error: float
    at_zero: float
    """Σ s ℓ*(0)."""
    gaps: float
    """Σ s (ℓ + ℓ* − u v) for v as it is, and the same for v shrunk into the domain of g*."""
    gaps_error: float
    shrunk: float
    shrunk_error: float
    imbalance: float
    """The most that (b − b*) Σ s v can be."""
    penalty: float
    """g(w)."""
    penalty_gap: float
    """g(w) + g*(−c q) + c ⟨w, q⟩, without and with rounding."""
    penalty_gap_and_error: float
    nothing: float
    """g*(0)."""
    bounded: tuple[float, ...] = ()
    """g(w) + g*(−q) + ⟨w, q⟩ with the conjugate of each radius, where the penalty has no growth."""
    bounded_errors: tuple[float, ...] = ()
    radii: tuple[float, ...] = ()
    room: float | None = None
    """How far from this one the intercepts may be that the claim is about."""


def certify(agent: Agent, point: Point, target: float = 0.0, radius: float | None = ANY) -> Talk[Bound]:
    """P(w), and how far it can be above the least.

    Where the claim can only be about models of bounded norm, `radius` is the norm, and None asks for a claim about all
    models all the same; by default it is what the target leaves room for.
    """
    return (yield from (_by_features if agent.split == "features" else _by_samples)(agent, point, target, radius))


def dual_at(agent: Agent, w: FloatArray) -> FloatArray | None:
    """The dual that a model has where no other is given: the slopes at it; split by features, nobody knows them all."""
    return None if agent.split == "features" else agent.at(w.astype(float, copy=False)).slopes


def _by_samples(agent: Agent, point: Point, target: float, radius: float | None) -> Talk[Bound]:
    w = point.w.astype(float, copy=False)
    return (yield from by_samples(agent, w, agent.at(w), point.v, target, radius))


def by_samples(
    agent: Agent,
    w: FloatArray,
    here: Here,
    dual: FloatArray | None,
    target: float,
    radius: float | None,
    beside: Beside | None = None,
) -> Talk[Bound]:
    """The bound for a model w that all agents share, and what stands beside it at each of them."""
    problem = agent.problem
    v = here.slopes if dual is None else _clipped(agent, dual)
    both = np.zeros(2)
    if problem.intercept:
        both = yield Sum(np.array(_sides(agent, v)).T)
        v = _balanced(v, *both.tolist())
    adjoint = here.adjoint if dual is None and v is here.slopes else agent.design.adjoint(agent.weighted(v))
    sizes = w if beside is None else beside.sizes
    error = _score_error(agent, sizes) + _label_error(agent, here.scores, sizes)
    size = here.slopes_norm if v is here.slopes else weighted_norm(v, agent.data.weights)
    length = (agent.design.roundings[1] + agent.count + 4) * size
    curved = _curved(agent, here, error)
    losses, gaps = _losses(agent, here, error, curved), _gaps(agent, here, v, error, curved)
    if beside is not None:
        losses, gaps = _both(losses, beside.value()), _both(gaps, beside.gaps(adjoint, length, 1.0))
    own = [*losses, agent.conjugate_at_zero, *gaps]
    own += [length * length, *(_imbalance(agent, v, both) if problem.intercept else ())]
    d = adjoint.shape[-1] - problem.free()
    sums = yield Sum(np.concatenate([adjoint[..., :d], side_by_side(own, adjoint.ndim > 1)], axis=-1))
    # Where all agents of this process stand at one and the same w, one of them computes what follows from the sums.
    place = id(w) if beside is None else None
    u, off, c = shared_result(sums, _slope, agent, sums, key=place)
    shrunk = sums[d + 3 : d + 5]
    if c < 1.0:
        less = _gaps(agent, here, c * v, error, curved)
        less = less if beside is None else _both(less, beside.gaps(adjoint, length, c))
        shrunk = yield Sum(side_by_side(less, adjoint.ndim > 1))
    return shared_result(sums, _of_rows, agent, w, sums, both, (u, off, c), shrunk, target, radius, key=place)


def _both(one: tuple[Any, Any], other: tuple[Any, Any]) -> tuple[Any, Any]:
    return one[0] + other[0], one[1] + other[1]


def _slope(agent: Agent, sums: FloatArray) -> tuple[FloatArray, FloatArray, float]:
    """−q about the columns' means, how far its entries may be off, and what must shrink it into the domain of g*."""
    problem, known = agent.problem, agent.known
    assert known.lengths is not None
    d = len(known.lengths)
    u = problem.slope(sums[:d], known.total)
    if known.centre is not None:
        u = u + known.centre * (float(sums[-2] + sums[-1]) / known.total)
    return slope_with_error(agent, u, float(sums[d + 5]))


def slope_with_error(agent: Agent, u: FloatArray, length_squared: float) -> tuple[FloatArray, FloatArray, float]:
    """−q, how far its entries may be off for duals of that length, and what must shrink it into the domain of g*."""
    known, cut = agent.known, agent.cut
    assert known.lengths is not None
    centre = 0.0 if known.centre is None else np.abs(known.centre)
    lengths = (known.lengths + cut) * (length_squared + cut)
    off = np.sqrt(lengths) * (SAFE * EPSILON / known.total) + cut * (1.0 + 2.0 * centre) / known.total
    off = np.repeat(off, agent.problem.outputs)
    return u, off, agent.problem.penalty.scale_into_domain(u, off)


def _of_rows(
    agent: Agent,
    w: FloatArray,
    sums: FloatArray,
    both: FloatArray,
    slope: tuple[FloatArray, FloatArray, float],
    shrunk: FloatArray,
    target: float,
    radius: float | None,
) -> Bound:
    coefficients, c = agent.problem.coefficients(w), slope[2]
    losses, losses_error, at_zero, gaps, gaps_error, _, *imbalance = map(float, sums[len(coefficients) :])
    centred = float(w[-1]) + float(agent.known.centre @ coefficients) if agent.known.centre is not None else 0.0
    room = _room(agent, centred)
    # What is left of Σ s v, what adding it up can have lost, and what shrinking v has.
    left = abs(sum(imbalance)) + agent.count**2 * EPSILON * _grid(both) + (c < 1.0) * EPSILON * float(both.sum())
    left += 2.0 * agent.cut
    values = losses, losses_error, at_zero, gaps, gaps_error
    return bound_of_samples(agent, coefficients, slope, values, shrunk, room, left, target, radius)


def bound_of_samples(
    agent: Agent,
    coefficients: FloatArray,
    slope: tuple[FloatArray, FloatArray, float],
    values: tuple[float, float, float, float, float],
    shrunk: FloatArray,
    room: float,
    left: float,
    target: float,
    radius: float | None,
) -> Bound:
    """What sums over all samples prove: the first five parts of `Totals`, and what is left of Σ s v."""
    problem, penalty, (u, off, c) = agent.problem, agent.problem.penalty, slope
    losses, losses_error, at_zero, gaps, gaps_error = values
    radii: tuple[float, ...] = ()
    if not penalty.coercive:
        radii = radii_for(agent, float(np.linalg.norm(coefficients)), radius)
    totals = Totals(
        losses=losses,
        losses_error=losses_error,
        at_zero=at_zero,
        gaps=gaps,
        gaps_error=gaps_error,
        shrunk=float(shrunk[0]),
        shrunk_error=float(shrunk[1]),
        imbalance=room * left,
        penalty=penalty.value(coefficients),
        penalty_gap=penalty.fenchel_young(coefficients, c * u),
        penalty_gap_and_error=penalty.fenchel_young(coefficients, c * u, c * off),
        nothing=penalty.conjugate(0.0 * u),
        bounded=tuple(bounded_parts(penalty, coefficients, u, off, radii)) if radii else (),
        bounded_errors=tuple(most * float(np.linalg.norm(off)) for most in radii),
        radii=radii,
        room=room if problem.intercept else None,
    )
    return bound_of(agent, totals, target, radius)


def _by_features(agent: Agent, point: Point, target: float, radius: float | None) -> Talk[Bound]:
    problem, penalty = agent.problem, agent.problem.penalty
    has_labels, w = agent.data.y is not None, point.w.astype(float)
    courier = agent.scratch.get("courier")
    if courier is None:
        scores = yield Sum(agent.design.forward(w))
    else:
        scores, _ = yield from courier.scores(agent, w)
    v: FloatArray = np.empty(0)
    if has_labels:
        v = agent.loss.gradient(scores, agent.exact_labels) if point.v is None else _clipped(agent, point.v)
        if problem.intercept:
            v = _balanced(v, *_sides(agent, v))
    norms, rotated = agent.column_norms, 0
    if courier is None:
        silence = np.empty(0) if has_labels else shared_result(scores, lambda: np.zeros(len(scores)))
        everybodys = yield Sum(agent.weighted(v) if has_labels else silence)
        slopes, size = agent.design.adjoint(everybodys), float(np.linalg.norm(everybodys))
    else:
        if courier.rotated:
            norms, rotated = np.full(len(norms), np.linalg.norm(norms)), 2 * (agent.data.d + 2)
        slopes, (size,) = yield from courier.slopes(agent, v, (float(np.linalg.norm(agent.weighted(v))),))
    adjoint = problem.coefficients(slopes, agent.design.intercept)
    coefficients = problem.coefficients(w, agent.design.intercept)
    u = problem.slope(adjoint, agent.total)
    roundings = 2 * (agent.design.roundings[1] + 4) + rotated
    cut = math.sqrt(agent.data.n) * agent.cut
    lost = SAFE * roundings * EPSILON * float(size) + cut
    off = norms * (lost / agent.total)

    # The common shrinkage is the least of everybody's, so each tells its own.
    length = float(coefficients @ coefficients)
    own = [length, _score_error(agent, w) + _rotation_error(agent, norms, rotated, length)]
    known = yield Sum(np.append(agent.one_hot(penalty.scale_into_domain(u, off)), own))
    c, norm = float(known[:-2].min()), math.sqrt(known[-2])
    radii = radii_for(agent, norm, radius)
    mine = np.zeros(8)
    if has_labels:
        here = Here(w, agent.design, agent.loss, agent.exact_labels, agent.data.weights, scores)
        error = (float(known[-1]) + agent.cut + cut) * _heaviest(agent) + _label_error(agent, scores, w)
        imbalance = 0.0
        if problem.intercept:
            both = np.array(_sides(agent, v))
            left = max(abs(sum(_imbalance(agent, one, both))) for one in (v, c * v))
            imbalance = _room(agent, float(w[-1])) * left
        curved = _curved(agent, here, error)
        whole, shrunk = (_gaps(agent, here, one, error, curved) for one in (v, c * v))
        mine = np.array([*_losses(agent, here, error, curved), agent.conjugate_at_zero, *whole, *shrunk, imbalance])
    parts = [
        penalty.value(coefficients),
        penalty.fenchel_young(coefficients, c * u),
        penalty.fenchel_young(coefficients, c * u, c * off),
        penalty.conjugate(0.0 * u),
        *bounded_parts(penalty, coefficients, u, off, radii),
        float(np.linalg.norm(off)),
        0.0 if penalty.coercive else 1.0,
        _room(agent, float(w[-1])) if has_labels and problem.intercept else 0.0,
    ]
    sums = [float(number) for number in (yield Sum(np.concatenate([mine, parts])))]
    *numbers, slope_error, flat, room = sums
    totals = replace(Totals(*numbers[:12]), room=room if problem.intercept else None)  # type: ignore[arg-type]
    if flat:
        errors = tuple(slope_error * most for most in radii)
        totals = replace(totals, bounded=tuple(numbers[12:]), bounded_errors=errors, radii=radii)
    return bound_of(agent, totals, target, radius)


def bounded_parts(
    penalty: Penalty, w: FloatArray, u: FloatArray, off: FloatArray, radii: Sequence[float]
) -> list[float]:
    """Its own columns' part of a bounded claim; what holds for the largest radius holds for the others."""
    if penalty.coercive:
        return [penalty.bounded_fenchel_young(w, u, radii[-1], off)] * len(radii)
    return [penalty.bounded_fenchel_young(w, u, most, off) for most in radii]


def bound_of(agent: Agent, t: Totals, target: float, radius: float | None) -> Bound:
    """The smallest gap that these numbers prove, of all models if that can be."""
    total = agent.total
    # Of the numbers below, at most four at a time are sums of which something can have been cut off.
    cut = 4.0 * agent.cut * (1.0 + 1.0 / total)
    primal = t.losses / total + t.penalty
    primal_error = t.losses_error / total + FEW * EPSILON * t.penalty + cut
    beside = t.imbalance / total + cut
    shrunk = (t.shrunk + t.shrunk_error) / total + t.penalty_gap_and_error + beside
    rounding = t.shrunk_error / total + beside
    if math.isfinite(t.penalty_gap_and_error):
        rounding += t.penalty_gap_and_error - t.penalty_gap
    nothing = primal + primal_error + t.at_zero / total + t.nothing + cut
    whole = (shrunk, rounding) if shrunk <= nothing else (nothing, primal_error)
    bounded = [(t.gaps + t.gaps_error) / total + part + beside for part in t.bounded]
    if not bounded or radius is None or whole[0] <= target:
        return Bound.of(primal, *whole, None, t.room, primal_error)
    fits = [k for k, gap in enumerate(bounded) if gap <= target * SPENT_ON_RADIUS]
    k = fits[-1] if fits else 0
    if radius == ANY and bounded[k] > target and whole[0] <= bounded[k]:
        return Bound.of(primal, *whole, None, t.room, primal_error)
    rounding = t.gaps_error / total + beside + t.bounded_errors[k]
    return Bound.of(primal, bounded[k], rounding, t.radii[k], t.room, primal_error)


def _losses(agent: Agent, here: Here, error: Any, curved: Any) -> tuple[Any, Any]:
    """Σ s ℓ of its own samples, and how far it may be off: the slopes times the errors of the scores, and `_curved`."""
    loss = agent.loss
    sizes = loss.sizes(here.scores, here.y) @ agent.weighted(np.ones(len(here.y))) if loss.steep else here.losses
    # Beside kinks nobody else needs the slopes, and none is longer than the loss is steep.
    slopes = here.slopes_norm if loss.smooth else loss.lipschitz * math.sqrt(agent.weight)
    return here.losses, slopes * error + curved + _summed(agent, sizes)


def _gaps(agent: Agent, here: Here, v: FloatArray, error: Any, curved: Any) -> tuple[Any, Any]:
    """Σ s (ℓ + ℓ* − u v) of its own samples, and how far it may be off."""
    loss = agent.loss
    if v is here.slopes and math.isfinite(loss.smoothness):
        # Every term is 0 where v is the slope, up to the rounding of either.
        return 0.0, curved
    gaps = agent.summed(loss.fenchel_young_each(here.scores, v, here.y))
    # How fast the terms change when a score is off: |ℓ' − v|, or at kinks the most it can be.
    distance = weighted_norm(here.slopes - v, agent.data.weights) if loss.smooth else agent.domain_norm
    return gaps, distance * error + curved + _summed(agent, gaps)


def _curved(agent: Agent, here: Here, error: Any) -> Any:
    """What curvature adds to an error of the scores of that length; kinks are in the distance of the slopes."""
    loss, weights = agent.loss, agent.data.weights
    if not loss.steep:
        return loss.smoothness * error * error if loss.smooth else 0.0
    lightest = 1.0 if weights is None else float(np.sqrt(weights[weights > 0].min(initial=1.0)))
    return loss.curvature_near(here.scores, here.y, error / lightest) * error * error


def _summed(agent: Agent, total: Any) -> Any:
    """What adding up so many terms that are not negative can lose."""
    return (agent.data.n + agent.count + FEW) * EPSILON * total


def _score_error(agent: Agent, w: FloatArray) -> Any:
    """‖δu‖ for what its own columns add to the scores."""
    coefficients = w[..., : w.shape[-1] - agent.problem.free(agent.design.intercept)]
    return SAFE * 2 * agent.design.roundings[0] * EPSILON * np.vecdot(agent.column_norms, np.abs(coefficients))


def _rotation_error(agent: Agent, norms: FloatArray, roundings: int, length: float) -> float:
    """‖δu‖ for what rotating columns and coefficients adds, ‖w‖² = length."""
    return SAFE * roundings * EPSILON * float(norms.max(initial=0.0)) * math.sqrt(length)


def _label_error(agent: Agent, scores: FloatArray, w: FloatArray) -> Any:
    """‖δu‖ for what happens at the end: the intercept as it will be stored, the offset that is
    added, and the label that is subtracted."""
    root = math.sqrt(agent.weight)
    intercept = np.abs(w[..., -1]) + abs(agent.known.shift) if agent.design.intercept else 0.0
    lengths = weighted_norm(scores, agent.data.weights) + agent.label_norm + agent.offset_norm
    return FEW * EPSILON * (lengths + root) + 2.0 * EPSILON * root * intercept


def _heaviest(agent: Agent) -> float:
    """The root of the largest weight: split by features, the others measure their errors without weights."""
    weights = agent.data.weights
    return 1.0 if weights is None else math.sqrt(float(weights.max(initial=0.0)))


def _clipped(agent: Agent, v: FloatArray) -> FloatArray:
    if agent.problem.loss.quadratic:
        return v.astype(float)
    clipped: FloatArray = np.minimum(np.maximum(v.astype(float, copy=False), agent.domain[0]), agent.domain[1])
    return clipped


def _sides(agent: Agent, v: FloatArray) -> tuple[Any, Any]:
    """Σ s v over the positive v, and −Σ s v over the negative ones."""
    up, up_rest, down, down_rest = _exact_sides(agent, v)
    return up + up_rest, down + down_rest


def _exact_sides(agent: Agent, v: FloatArray) -> Any:
    weights = agent.data.weights
    if v.ndim == 2:
        return all_sides(v)
    return sides(v, v if weights is None else weights.astype(float), weights is not None)


def _imbalance(agent: Agent, v: FloatArray, both: FloatArray) -> tuple[Any, Any]:
    """Σ s v of its own samples, as a multiple of the grid and the rest: the sum of everybody's multiples is exact."""
    grid = _grid(both)
    up, up_rest, down, down_rest = _exact_sides(agent, v)
    coarse = [np.rint(side / grid) * grid if grid else side for side in (up, down)]
    fine = (up - coarse[0]) - (down - coarse[1]) + (up_rest - down_rest)
    return coarse[0] - coarse[1], fine


def _grid(both: FloatArray) -> float:
    """A power of two, 2²⁷ times smaller than what both sides weigh."""
    weight = float(both.sum())
    return 2.0 ** (math.frexp(weight)[1] - 27) if weight > 0 else 0.0


def _balanced(v: FloatArray, up: float, down: float) -> FloatArray:
    if up > down:
        return np.where(v > 0, v * (down / up), v)
    return np.where(v < 0, v * (up / down), v) if down > up else v


def _room(agent: Agent, intercept: float) -> float:
    """How far from this one intercepts may be that the claim is about: generously."""
    return ROOM * agent.known.label_scale + RADIUS * abs(intercept)


def radii_for(agent: Agent, norm: float, given: float | None) -> tuple[float, ...]:
    """The norms up to which a claim may speak; the one that is given, if it is one of them."""
    least = max(RADIUS * norm, agent.known.span)
    if not given or not least:
        return tuple((least * RADII).tolist())
    times = round(math.log10(given / least)) if given > 0 else 0
    return (least * RADIUS ** min(max(times, 0), len(RADII) - 1),)
