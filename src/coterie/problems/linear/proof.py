"""Proofs for linear models, split by samples or by features: the duality gap, as a sum of terms
that are not negative.

For every w and every dual v in the domain, with q = Xᵀ(s∘v)/n and u = Xw + b,

    P(w) − P* ≤ (1/n) Σ_i s_i (ℓ(u_i) + ℓ*(v_i) − u_i v_i)  +  g(w) + g*(−q) + ⟨w, q⟩  +  (b − b*)
    Σ_i s_i v_i / n

where the first two parts are Fenchel–Young terms, each ≥ 0 by itself, so that large numbers do not
cancel. A method hands over any (w, v); here v is made feasible:

1. clipped into the domain of ℓ* (an interval per sample that holds 0);
2. with an intercept, the heavier of the positive and the negative side is scaled down to the other;
3. shrunk by the largest c ≤ 1 that puts −q into the domain of g* (l1, groups), rounding included.

Each step moves v towards 0, inside every domain; v = 0 itself is always tried too. What is left of
Σ s v after step 2 is rounding; the third part allows for every intercept within `ROOM` times the
scale of the labels, as the bound says. Where the penalty has no growth (none, one-sided bounds),
step 3 can leave nothing; then the bound is computed against models of norm at most `radius` only,
for the largest of several radii with which the gap is still small enough.

**Rounding.** A score goes through about d roundings and an entry of q through about n; with ε =
2⁻⁵³

    ‖δu‖ ≤ k ε Σ_j ‖x_j‖ |w_j|,      |δq_j| ≤ k ε ‖x_j‖ ‖v‖ / n

in norms weighted by s. An error in a score changes its term by the distance of v from the slope
times the error, and by curvature times its square. Secure sums cut off up to K 2⁻⁹⁷ of every total
(`Agent.cut`). All of it is added to the gap, so that a gap is a bound also beside exact arithmetic.

The sums travel as words like any other, so a certificate costs messages, and the bill shows them
under `proof`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

from coterie.numerics.arrays import Design, FarDesign, FloatArray, shared_result
from coterie.numerics.kernels.sides import all_sides, sides
from coterie.numerics.local_loss import LocalLoss, weighted_norm
from coterie.numerics.losses import Loss
from coterie.problems.parts.proof import Proof
from coterie.problems.problem import Problem
from coterie.problems.proof import (
    EPSILON,
    FEW,
    RADIUS,
    ROOM,
    SAFE,
    Terms,
    Totals,
    bound_of,
    bounded_parts,
    certify_rows,
    radii_for,
)
from coterie.run.agent import Agent, SummaryStatistics
from coterie.run.certificate.bound import ANY, Beside, Bound, Point
from coterie.run.certificate.introduction import PROTOCOLS, introduce
from coterie.run.collectives import Protocol, Sum
from coterie.run.disclosure import Protocols, discloses


class LinearProof(Proof[Problem[Loss]]):
    """Introduces agents and certifies points by the duality gap."""

    def introduce(self, agent: Agent) -> Protocol[SummaryStatistics]:
        return introduce(agent)

    def certify(
        self, agent: Agent, point: Point, target: float = 0.0, radius: float | None = ANY
    ) -> Protocol[Bound]:
        """P(w), and how far it can be above the least.

        Where the claim can only be about models of bounded norm, `radius` is the norm, and None
        asks for a claim about all models all the same; by default it is what the target leaves room
        for.
        """
        if agent.split == "features":
            certified = _by_features
        else:
            certified = _by_samples
        return (yield from certified(agent, point, target, radius))

    def dual_at(self, agent: Agent, w: FloatArray) -> FloatArray | None:
        """The gradients of the rows' losses at w; split by features, no agent knows all of them."""
        if agent.split == "features":
            return None
        gradients: FloatArray = agent.at(w.astype(float, copy=False)).gradients
        return gradients

    introduces: Protocols = PROTOCOLS

    @property
    def proves(self) -> Protocols:
        """By rows, and by columns."""
        return RowTerms.balance, certify_rows, _by_features


def _by_samples(agent: Agent, point: Point, target: float, radius: float | None) -> Protocol[Bound]:
    w = point.w.astype(float, copy=False)
    design = agent.proof_design
    if design is agent.design:
        local = agent.at(w)
    else:
        local = agent.at(design.inner(w), design)
    return (yield from certify_rows(agent, w, RowTerms(agent, w, local, point.v), target, radius))


class RowTerms(Terms):
    """Losses of single scores. With `beside`, parts of the model that are the agent's own, and
    their penalties.
    """

    def __init__(
        self,
        agent: Agent,
        w: FloatArray,
        local: LocalLoss,
        dual: FloatArray | None,
        beside: Beside | None = None,
    ):
        self.agent = agent
        self.w = w
        self.here = local
        self.beside = beside
        self.given = dual is not None
        if dual is None:
            self.v = local.gradients
        else:
            self.v = _clipped(agent, dual)
        self.both: FloatArray = np.zeros(2)
        self.at_zero = agent.conjugate_at_zero
        if beside is None:
            sizes = w
            self.design = agent.proof_design
        else:
            sizes = beside.sizes
            self.design = agent.design
        self.centred = self.design is not agent.design
        self.error = _score_error(agent, self.design, sizes) + _label_error(
            agent, local.scores, sizes
        )

    @discloses(
        "the sum of your positive dual variables, and of your negative ones",
        applies=lambda case: case.intercept,
        splits=("samples", "users"),
        most=lambda case: (1, 2),
    )
    def balance(self) -> Protocol[None]:
        """The heavier of the positive and the negative side is scaled down to the other."""
        self.both = yield Sum(np.array(_sides(self.agent, self.v)).T)
        self.v = _balanced(self.v, *self.both.tolist())

    @cached_property
    def adjoint(self) -> FloatArray:
        agent = self.agent
        local = self.here
        known = not self.given and self.v is local.gradients
        if known:
            return local.adjoint
        return self.design.adjoint(agent.weighted(self.v))

    @cached_property
    def length(self) -> Any:
        agent = self.agent
        local = self.here
        if self.v is local.gradients:
            size = local.gradients_norm
        else:
            size = weighted_norm(self.v, agent.data.weights)
        return (self.design.roundings[1] + agent.count + 4) * size

    @cached_property
    def _curved(self) -> Any:
        return _curved(self.agent, self.here, self.error)

    def losses(self) -> tuple[Any, Any]:
        own = _losses(self.agent, self.here, self.error, self._curved)
        if self.beside is None:
            return own
        return _both(own, self.beside.value())

    def gaps(self, c: float) -> tuple[Any, Any]:
        own = _gaps(
            self.agent, self.here, self.v if c == 1.0 else c * self.v, self.error, self._curved
        )
        if self.beside is None:
            return own
        return _both(own, self.beside.gaps(self.adjoint, self.length, c))

    def left(self) -> Sequence[Any]:
        return _imbalance(self.agent, self.v, self.both)

    def imbalance(self, told: FloatArray) -> FloatArray:
        return told[:1] + told[1:]

    def left_over(self, told: FloatArray, c: float) -> float:
        """What is left of Σ s v, what adding it up can have lost, and what shrinking v has."""
        left = abs(sum(map(float, told))) + self.agent.count**2 * EPSILON * _grid(self.both)
        return left + (c < 1.0) * EPSILON * float(self.both.sum()) + 2.0 * self.agent.cut

    def room(self, intercepts: FloatArray) -> float:
        return _room(self.agent, float(intercepts[0]))


def _both(one: tuple[Any, Any], other: tuple[Any, Any]) -> tuple[Any, Any]:
    return one[0] + other[0], one[1] + other[1]


@discloses(
    (
        "your partial scores, one number per row, as part of a sum; from the label party the dual "
        "vector, to all"
    ),
    "the label of each row, from its score and its dual variable",
    splits=("features",),
    most=lambda case: (2, 2 * case.rows),
)
@discloses(
    (
        "the norm of your coefficients, their penalty, and how far your gradient is outside the "
        "dual "
        "ball"
    ),
    splits=("features",),
    most=lambda case: (2, case.parties + 2 + 22),
)
def _by_features(
    agent: Agent, point: Point, target: float, radius: float | None
) -> Protocol[Bound]:
    problem = agent.problem
    penalty = agent.problem.penalty
    w = point.w.astype(float)
    scores = yield from _common_scores(agent, w)
    v = _dual_of_labels(agent, point, scores)
    gradients, size = yield from _common_adjoint(agent, v, scores)
    norms, rotated = _rotated_norms(agent)
    adjoint = problem.coefficients(gradients, agent.design.intercept)
    coefficients = problem.coefficients(w, agent.design.intercept)
    u = problem.slope(adjoint, agent.total)
    roundings = 2 * (agent.design.roundings[1] + 4) + rotated
    cut = math.sqrt(agent.data.n) * agent.cut
    lost = SAFE * roundings * EPSILON * float(size) + cut
    off = norms * (lost / agent.total)

    # The common shrinkage is the least of all agents', so each sends its own.
    length = float(coefficients @ coefficients)
    error = _score_error(agent, agent.design, w) + _rotation_error(agent, norms, rotated, length)
    own = [length, error + _stored_intercept_error(agent, w)]
    known = yield Sum(np.append(agent.one_hot(penalty.scale_into_domain(u, off)), own))
    c = float(known[:-2].min())
    norm = math.sqrt(known[-2])
    radii = radii_for(agent, norm, radius)
    mine: FloatArray = np.zeros(8)
    room = 0.0
    if agent.data.y is not None:
        mine = _of_labels(agent, w, scores, (v, c * v), float(known[-1]) + agent.cut + cut)
        if problem.intercept:
            room = _room(agent, float(w[-1]))
    parts = [
        penalty.value(coefficients),
        penalty.fenchel_young(coefficients, c * u),
        penalty.fenchel_young(coefficients, c * u, c * off),
        penalty.conjugate(0.0 * u),
        *bounded_parts(penalty, coefficients, u, off, radii),
        float(np.linalg.norm(off)),
        0.0 if penalty.coercive else 1.0,
        room,
    ]
    sums = yield Sum(np.concatenate([mine, parts]))
    return bound_of(agent, _totals_of_columns(sums, radii, problem.intercept), target, radius)


def _common_scores(agent: Agent, w: FloatArray) -> Protocol[FloatArray]:
    """The scores that all columns add up to."""
    courier = agent.scratch.get("courier")
    scores: FloatArray
    if courier is None:
        scores = yield Sum(agent.design.forward(w))
    else:
        scores, _ = yield from courier.scores(agent, w)
    return scores


def _dual_of_labels(agent: Agent, point: Point, scores: FloatArray) -> FloatArray:
    """The balanced dual, at agents that hold labels; empty elsewhere."""
    if agent.data.y is None:
        return np.empty(0)
    if point.v is None:
        v = agent.loss.gradient(scores, agent.exact_labels)
    else:
        v = _clipped(agent, point.v)
    if agent.problem.intercept:
        v = _balanced(v, *_sides(agent, v))
    return v


def _common_adjoint(
    agent: Agent, v: FloatArray, scores: FloatArray
) -> Protocol[tuple[FloatArray, float]]:
    """X̃ᵀ(s∘v) of the agent's own columns, and ‖s∘v‖."""
    courier = agent.scratch.get("courier")
    if courier is not None:
        gradients, (size,) = yield from courier.gradients(
            agent, v, (float(np.linalg.norm(agent.weighted(v))),)
        )
        return gradients, size
    if agent.data.y is not None:
        own = agent.weighted(v)
    else:
        own = shared_result(scores, lambda: np.zeros(len(scores)))
    common = yield Sum(own)
    return agent.design.adjoint(common), float(np.linalg.norm(common))


def _rotated_norms(agent: Agent) -> tuple[FloatArray, int]:
    """At least the lengths of the columns as a courier may have rotated them, and the roundings of
    the rotation.
    """
    courier = agent.scratch.get("courier")
    norms: FloatArray = agent.column_norms
    if courier is None or not courier.rotated:
        return norms, 0
    return np.full(len(norms), np.linalg.norm(norms)), 2 * (agent.data.d + 2)


def _of_labels(
    agent: Agent,
    w: FloatArray,
    scores: FloatArray,
    duals: tuple[FloatArray, FloatArray],
    error: float,
) -> FloatArray:
    """The first numbers of `Totals`, from the labels and their duals: as they are, and shrunk."""
    local = LocalLoss(w, agent.design, agent.loss, agent.exact_labels, agent.data.weights, scores)
    error = error * _heaviest(agent) + _label_error(agent, scores, w)
    imbalance = 0.0
    if agent.problem.intercept:
        both = np.array(_sides(agent, duals[0]))
        left = max(abs(sum(_imbalance(agent, one, both))) for one in duals)
        imbalance = _room(agent, float(w[-1])) * left
    curved = _curved(agent, local, error)
    whole, shrunk = (_gaps(agent, local, one, error, curved) for one in duals)
    losses = _losses(agent, local, error, curved)
    return np.array([*losses, agent.conjugate_at_zero, *whole, *shrunk, imbalance])


def _totals_of_columns(sums: FloatArray, radii: tuple[float, ...], intercept: bool) -> Totals:
    """The totals of all agents' labels and columns."""
    *numbers, slope_error, flat, room = sums.astype(float).tolist()
    totals = Totals(*numbers[:12])
    if intercept:
        totals = replace(totals, room=room)
    if not flat:
        return totals
    errors = tuple(slope_error * most for most in radii)
    return replace(totals, bounded=tuple(numbers[12:]), bounded_errors=errors, radii=radii)


def _losses(agent: Agent, local: LocalLoss, error: Any, curved: Any) -> tuple[Any, Any]:
    """Σ s ℓ of its own samples, and how far it may be off: the slopes times the errors of the
    scores, and `_curved`.
    """
    loss = agent.loss
    sizes: Any = local.losses
    if loss.steep:
        sizes = loss.sizes(local.scores, local.y) @ agent.weighted(np.ones(len(local.y)))
    # Beside kinks nobody else needs the slopes, and none is longer than the loss is steep.
    if loss.smooth:
        gradients = local.gradients_norm
    else:
        gradients = loss.lipschitz * np.sqrt(agent.weight)
    return local.losses, gradients * error + curved + _summed(agent, sizes)


def _gaps(
    agent: Agent, local: LocalLoss, v: FloatArray, error: Any, curved: Any
) -> tuple[Any, Any]:
    """Σ s (ℓ + ℓ* − u v) of its own samples, and how far it may be off."""
    loss = agent.loss
    if v is local.gradients and math.isfinite(loss.smoothness):
        # Every term is 0 where v is the slope, up to the rounding of either.
        return 0.0, curved
    gaps = agent.summed(loss.fenchel_young_each(local.scores, v, local.y))
    # How fast the terms change when a score is off: |ℓ' − v|, or at kinks the most it can be.
    if loss.smooth:
        distance = weighted_norm(local.gradients - v, agent.data.weights)
    else:
        distance = agent.domain_norm
    return gaps, distance * error + curved + _summed(agent, gaps)


def _curved(agent: Agent, local: LocalLoss, error: Any) -> Any:
    """What curvature adds to an error of the scores of that length; kinks are in the distance of
    the slopes.
    """
    loss = agent.loss
    weights = agent.data.weights
    if not loss.steep:
        if loss.smooth:
            return loss.smoothness * error * error
        return 0.0
    if weights is None:
        lightest = 1.0
    else:
        lightest = float(np.sqrt(weights[weights > 0].min(initial=1.0)))
    return loss.curvature_near(local.scores, local.y, error / lightest) * error * error


def _summed(agent: Agent, total: Any) -> Any:
    """What adding up so many terms that are not negative can lose."""
    return (agent.data.n + agent.count + FEW) * EPSILON * total


def _score_error(agent: Agent, design: Design, w: FloatArray) -> Any:
    """‖δu‖ for what its own columns add to the scores."""
    coefficients = w[..., : w.shape[-1] - agent.problem.free(agent.design.intercept)]
    if design is agent.design:
        norms = agent.column_norms
    else:
        norms = agent.centred_norms
    return SAFE * 2 * design.roundings[0] * EPSILON * np.vecdot(norms, np.abs(coefficients))


def _rotation_error(agent: Agent, norms: FloatArray, roundings: int, length: float) -> float:
    """‖δu‖ for what rotating columns and coefficients adds, ‖w‖² = length."""
    return SAFE * roundings * EPSILON * float(norms.max(initial=0.0)) * math.sqrt(length)


def _stored_intercept_error(agent: Agent, w: FloatArray) -> float:
    """‖δu‖ for what columns far from 0 add to the intercept, which is rounded at their holder and
    in the sum of all.
    """
    if not isinstance(agent.design, FarDesign):
        return 0.0
    return 2.0 * (agent.count + 1) * EPSILON * math.sqrt(agent.data.n) * abs(agent.design.offset(w))


def _label_error(agent: Agent, scores: FloatArray, w: FloatArray) -> Any:
    """‖δu‖ for what happens at the end: the intercept as it will be stored, the offset that is
    added, and the label that is subtracted."""
    root = np.sqrt(agent.weight)
    intercept: Any = 0.0
    if agent.design.intercept:
        intercept = np.abs(w[..., -1]) + abs(agent.known.shift)
    lengths = weighted_norm(scores, agent.data.weights) + agent.label_norm + agent.offset_norm
    return FEW * EPSILON * (lengths + root) + 2.0 * EPSILON * root * intercept


def _heaviest(agent: Agent) -> float:
    """The root of the largest weight: split by features, the others measure their errors without
    weights.
    """
    weights = agent.data.weights
    if weights is None:
        return 1.0
    return math.sqrt(float(weights.max(initial=0.0)))


def _clipped(agent: Agent, v: FloatArray) -> FloatArray:
    if agent.problem.loss.quadratic:
        return v.astype(float)
    clipped: FloatArray = np.minimum(
        np.maximum(v.astype(float, copy=False), agent.domain[0]), agent.domain[1]
    )
    return clipped


def _sides(agent: Agent, v: FloatArray) -> tuple[Any, Any]:
    """Σ s v over the positive v, and −Σ s v over the negative ones."""
    up, up_rest, down, down_rest = _exact_sides(agent, v)
    return up + up_rest, down + down_rest


def _exact_sides(agent: Agent, v: FloatArray) -> Any:
    weights = agent.data.weights
    weighted = weights is not None
    s = v if weights is None else weights.astype(float, copy=False)
    if v.ndim == 2:
        return all_sides(v, s, weighted)
    return sides(v, s, weighted)


def _imbalance(agent: Agent, v: FloatArray, both: FloatArray) -> tuple[Any, Any]:
    """Σ s v of its own samples, as a multiple of the grid and the rest: the sum of everybody's
    multiples is exact.
    """
    grid = _grid(both)
    up, up_rest, down, down_rest = _exact_sides(agent, v)
    coarse = [np.rint(side / grid) * grid if grid else side for side in (up, down)]
    fine = (up - coarse[0]) - (down - coarse[1]) + (up_rest - down_rest)
    return coarse[0] - coarse[1], fine


def _grid(both: FloatArray) -> float:
    """A power of two, 2²⁷ times smaller than what both sides weigh."""
    weight = float(both.sum())
    if weight > 0:
        return 2.0 ** (math.frexp(weight)[1] - 27)
    return 0.0


def _balanced(v: FloatArray, up: float, down: float) -> FloatArray:
    if up > down:
        return np.where(v > 0, v * (down / up), v)
    if down > up:
        return np.where(v < 0, v * (up / down), v)
    return v


def _room(agent: Agent, intercept: float) -> float:
    """How far from this one intercepts may be that the claim is about: generously."""
    return ROOM * agent.known.label_scale + RADIUS * abs(intercept)
