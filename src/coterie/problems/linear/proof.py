"""Proofs for linear models, split by samples or by features: the duality gap, as a sum of terms
that are at least 0.

For every w and every dual v in the domain, with q = Xᵀ(s∘v)/n and u = Xw + b,

    P(w) − P* ≤ (1/n) Σ_i s_i (ℓ(u_i) + ℓ*(v_i) − u_i v_i)  +  g(w) + g*(−q) + ⟨w, q⟩  +  (b − b*)
    Σ_i s_i v_i / n

The first two parts are Fenchel–Young terms. Each of them is ≥ 0 by itself, so large numbers do not
cancel. A method supplies any (w, v). The proof makes v feasible:

1. It clips v into the domain of ℓ* (an interval per sample that contains 0).
2. With an intercept, it scales the larger of the positive and the negative side down to the other.
3. It shrinks v by the largest c ≤ 1 that puts −q into the domain of g* (l1, groups), rounding
   included.

Each step moves v towards 0, inside every domain. The proof always tries v = 0, too. What step 2
leaves of Σ s v is rounding; the third part of the bound allows for every intercept within `ROOM`
times the scale of the labels. Where the penalty is not coercive (none, one-sided bounds), c may be
0. Then the bound holds for models of norm at most `radius`, the largest of several norm bounds with
which the gap is still small enough.

**Rounding.** A score goes through about d roundings and an entry of q through about n; with ε =
2⁻⁵³

    ‖δu‖ ≤ k ε Σ_j ‖x_j‖ |w_j|,      |δq_j| ≤ k ε ‖x_j‖ ‖v‖ / n

in norms weighted by s. An error in a score changes its term by the distance of v from the gradient
times the error, plus the second derivative times the squared error. Secure sums cut off up to
K 2⁻⁹⁷ of every sum (`Agent.cut`). The proof adds all of it to the gap, so the gap is a bound in
exact arithmetic.

Agents send these sums as collectives like any other, so a certificate costs messages. The bill
lists them under `proof`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

from coterie.numerics.arrays import Design, FarDesign, FloatArray
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
from coterie.run.certificate.bound import ANY, Bound, OwnParts, Point
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
        """P(w), and a bound of its distance from the minimum.

        Where only models of bounded norm can be covered, `radius` is the norm bound, and None asks
        for a bound for all models nevertheless. By default the target determines the norm bound.
        """
        if agent.split == "features":
            certified = _by_features
        else:
            certified = _by_samples
        return (yield from certified(agent, point, target, radius))

    def dual_at(self, agent: Agent, w: FloatArray) -> FloatArray | None:
        """The gradients of the rows' losses at w. Split by features, no agent knows all of them."""
        if agent.split == "features":
            return None
        gradients: FloatArray = agent.at(w.astype(float, copy=False)).gradients
        return gradients

    introduces: Protocols = PROTOCOLS

    @property
    def proves(self) -> Protocols:
        """For rows, and for columns."""
        return RowTerms.balance, certify_rows, _by_features


def _by_samples(agent: Agent, point: Point, target: float, radius: float | None) -> Protocol[Bound]:
    w = point.w.astype(float, copy=False)
    design = agent.proof_design
    if design is agent.design:
        local = agent.at(w)
    else:
        local = agent.at(design.inner(w), design)
    terms = RowTerms(agent, w, local, point.v)
    return (yield from certify_rows(agent, w, terms, target, radius))


class RowTerms(Terms):
    """The terms of losses of one score per row, and of the parts of the model that only this agent
    has (`own_parts`).
    """

    def __init__(
        self,
        agent: Agent,
        w: FloatArray,
        local: LocalLoss,
        dual: FloatArray | None,
        own_parts: OwnParts | None = None,
    ):
        self.agent = agent
        self.w = w
        self.local = local
        self.own_parts = own_parts
        self.given = dual is not None
        if dual is None:
            self.v = local.gradients
        else:
            self.v = _clipped(agent, dual)
        self.both: FloatArray = np.zeros(2)
        self.at_zero = agent.conjugate_at_zero
        if own_parts is None:
            sizes = w
            self.design = agent.proof_design
        else:
            sizes = own_parts.sizes
            self.design = agent.design
        self.centred = self.design is not agent.design
        score_error = _score_error(agent, self.design, sizes)
        label_error = _label_error(agent, local.scores, sizes)
        self.error = score_error + label_error

    @discloses(
        "the sum of your positive dual variables, and of your negative ones",
        applies=lambda case: case.intercept,
        splits=("samples", "users"),
        most=lambda case: (1, 2),
    )
    def balance(self) -> Protocol[None]:
        """Scale the larger of the positive and the negative side down to the other."""
        own_sides = np.array(_sides(self.agent, self.v)).T
        self.both = yield Sum(own_sides)
        up, down = self.both.tolist()
        self.v = _balanced(self.v, up, down)

    @cached_property
    def adjoint(self) -> FloatArray:
        local = self.local
        known = not self.given and self.v is local.gradients
        if known:
            return local.adjoint
        weighted = self.agent.weighted(self.v)
        return self.design.adjoint(weighted)

    @cached_property
    def length(self) -> Any:
        agent = self.agent
        local = self.local
        if self.v is local.gradients:
            size = local.gradients_norm
        else:
            size = weighted_norm(self.v, agent.data.weights)
        roundings = self.design.roundings[1] + agent.count + 4
        return roundings * size

    @cached_property
    def _curved(self) -> Any:
        return _curved(self.agent, self.local, self.error)

    def losses(self) -> tuple[Any, Any]:
        own = _losses(self.agent, self.local, self.error, self._curved)
        if self.own_parts is None:
            return own
        return _both(own, self.own_parts.value())

    def gaps(self, c: float) -> tuple[Any, Any]:
        if c == 1.0:
            v = self.v
        else:
            v = c * self.v
        own = _gaps(self.agent, self.local, v, self.error, self._curved)
        if self.own_parts is None:
            return own
        own_part_gaps = self.own_parts.gaps(self.adjoint, self.length, c)
        return _both(own, own_part_gaps)

    def left(self) -> Sequence[Any]:
        return _imbalance(self.agent, self.v, self.both)

    def imbalance(self, sums: FloatArray) -> FloatArray:
        return sums[:1] + sums[1:]

    def left_over(self, sums: FloatArray, c: float) -> float:
        """A bound of |Σ s v|: its computed value, plus the rounding of the sums and of c v."""
        sum_error = self.agent.count**2 * EPSILON * _grid(self.both)
        shrinking_error = (c < 1.0) * EPSILON * float(self.both.sum())
        left = abs(sum(map(float, sums))) + sum_error
        return left + shrinking_error + 2.0 * self.agent.cut

    def room(self, intercepts: FloatArray) -> float:
        return _room(self.agent, float(intercepts[0]))


def _both(one: tuple[Any, Any], other: tuple[Any, Any]) -> tuple[Any, Any]:
    return one[0] + other[0], one[1] + other[1]


@discloses(
    (
        "your partial scores, one number per row, as part of a sum to the label party; from the "
        "label party the dual vector, to all"
    ),
    "the label of each row, from its dual variable; the label party: the scores of all rows",
    splits=("features",),
    most=lambda case: (2, 2 * case.rows),
)
@discloses(
    (
        "the norm of your coefficients, their penalty, and how far your gradient is outside the "
        "dual ball"
    ),
    splits=("features",),
    most=lambda case: (2, case.parties + 2 + 22),
)
def _by_features(
    agent: Agent, point: Point, target: float, radius: float | None
) -> Protocol[Bound]:
    problem = agent.problem
    penalty = problem.penalty
    w = point.w.astype(float)
    scores = yield from _common_scores(agent, w)
    v = _dual_of_labels(agent, point, scores)
    gradients, size = yield from _common_adjoint(agent, v)
    norms, rotated = _rotated_norms(agent)
    adjoint = problem.coefficients(gradients, agent.design.intercept)
    coefficients = problem.coefficients(w, agent.design.intercept)
    u = problem.negative_gradient(adjoint, agent.total)
    roundings = 2 * (agent.design.roundings[1] + 4) + rotated
    cut = math.sqrt(agent.data.n) * agent.cut
    lost = SAFE * roundings * EPSILON * float(size) + cut
    off = norms * (lost / agent.total)

    # All agents shrink by the least factor, so each agent sends its own.
    own_factor = agent.one_hot(penalty.scale_into_domain(u, off))
    squared_norm = float(coefficients @ coefficients)
    error = _score_error(agent, agent.design, w)
    error = error + _rotation_error(agent, norms, rotated, squared_norm)
    error = error + _stored_intercept_error(agent, w)
    known = yield Sum(np.append(own_factor, [squared_norm, error]))
    factors = known[:-2]
    common_squared_norm, common_error = known[-2:]
    c = float(factors.min())
    norm = math.sqrt(common_squared_norm)
    radii = radii_for(agent, norm, radius)
    of_labels: FloatArray = np.zeros(8)
    room = 0.0
    if agent.data.y is not None:
        score_error = float(common_error) + agent.cut + cut
        of_labels = _of_labels(agent, w, scores, v, c * v, score_error)
        if problem.intercept:
            room = _room(agent, float(w[-1]))
    if penalty.coercive:
        not_coercive = 0.0
    else:
        not_coercive = 1.0
    parts = [
        penalty.value(coefficients),
        penalty.fenchel_young(coefficients, c * u),
        penalty.fenchel_young(coefficients, c * u, c * off),
        penalty.conjugate(0.0 * u),
        *bounded_parts(penalty, coefficients, u, off, radii),
        float(np.linalg.norm(off)),
        not_coercive,
        room,
    ]
    sums = yield Sum(np.concatenate([of_labels, parts]))
    totals = _totals_of_columns(sums, radii, problem.intercept)
    return bound_of(agent, totals, target, radius)


def _common_scores(agent: Agent, w: FloatArray) -> Protocol[FloatArray]:
    """The scores of the whole model, from the columns of all agents, at the agent with the labels;
    empty elsewhere.
    """
    sums = agent.scratch.get("score sums")
    scores: FloatArray | None
    if sums is None:
        scores = yield Sum(agent.design.forward(w), to=agent.known.labels_at)
    else:
        scores, _ = yield from sums.scores(agent, w)
    if scores is None:
        return np.empty(0)
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


def _common_adjoint(agent: Agent, v: FloatArray) -> Protocol[tuple[FloatArray, float]]:
    """X̃ᵀ(s∘v) of the agent's own columns, and ‖s∘v‖."""
    sums = agent.scratch.get("score sums")
    if sums is not None:
        own_size = float(np.linalg.norm(agent.weighted(v)))
        gradients, (size,) = yield from sums.gradients(agent, v, (own_size,))
        return gradients, size
    if agent.data.y is not None:
        own = agent.weighted(v)
    else:
        own = np.zeros(agent.data.n)
    common = yield Sum(own, of=agent.known.labels_at)
    adjoint = agent.design.adjoint(common)
    return adjoint, float(np.linalg.norm(common))


def _rotated_norms(agent: Agent) -> tuple[FloatArray, int]:
    """Bounds of the norms of the columns as `ColumnSums` may have rotated them, and the roundings
    of the rotation.
    """
    sums = agent.scratch.get("score sums")
    norms: FloatArray = agent.column_norms
    if sums is None or not sums.rotated:
        return norms, 0
    bounds = np.full(len(norms), np.linalg.norm(norms))
    return bounds, 2 * (agent.data.d + 2)


def _of_labels(
    agent: Agent,
    w: FloatArray,
    scores: FloatArray,
    v: FloatArray,
    shrunk_v: FloatArray,
    error: float,
) -> FloatArray:
    """The first eight numbers of `Totals`, from the labels and the dual v, and v shrunk."""
    local = LocalLoss(w, agent.design, agent.loss, agent.exact_labels, agent.data.weights, scores)
    error = error * _heaviest(agent) + _label_error(agent, scores, w)
    imbalance = 0.0
    if agent.problem.intercept:
        both = np.array(_sides(agent, v))
        left = max(abs(sum(_imbalance(agent, one, both))) for one in (v, shrunk_v))
        imbalance = _room(agent, float(w[-1])) * left
    curved = _curved(agent, local, error)
    whole = _gaps(agent, local, v, error, curved)
    shrunk = _gaps(agent, local, shrunk_v, error, curved)
    losses = _losses(agent, local, error, curved)
    return np.array([*losses, agent.conjugate_at_zero, *whole, *shrunk, imbalance])


def _totals_of_columns(sums: FloatArray, radii: tuple[float, ...], intercept: bool) -> Totals:
    """The totals from all agents' labels and columns."""
    *numbers, gradient_error, not_coercive, room = sums.astype(float).tolist()
    totals = Totals(*numbers[:12])
    if intercept:
        totals = replace(totals, room=room)
    if not not_coercive:
        return totals
    errors = tuple(gradient_error * most for most in radii)
    return replace(totals, bounded=tuple(numbers[12:]), bounded_errors=errors, radii=radii)


def _losses(agent: Agent, local: LocalLoss, error: Any, curved: Any) -> tuple[Any, Any]:
    """Σ s ℓ of the agent's own samples, and a bound of its rounding error: the gradients times the
    errors of the scores, plus `curved` (see `_curved`).
    """
    loss = agent.loss
    sizes: Any = local.losses
    if loss.steep:
        ones = np.ones(len(local.y))
        sizes = loss.sizes(local.scores, local.y) @ agent.weighted(ones)
    # No gradient of a non-smooth loss is larger than its Lipschitz constant.
    if loss.smooth:
        gradients = local.gradients_norm
    else:
        gradients = loss.lipschitz * np.sqrt(agent.weight)
    return local.losses, gradients * error + curved + _summation_error(agent, sizes)


def _gaps(
    agent: Agent, local: LocalLoss, v: FloatArray, error: Any, curved: Any
) -> tuple[Any, Any]:
    """Σ s (ℓ + ℓ* − u v) of the agent's own samples, and a bound of its rounding error."""
    loss = agent.loss
    if v is local.gradients and math.isfinite(loss.smoothness):
        # Every term is 0 where v is the gradient, up to the rounding of either.
        return 0.0, curved
    terms = loss.fenchel_young_each(local.scores, v, local.y)
    gaps = agent.summed(terms)
    # A score's error changes a term by at most |ℓ' − v| times the error; a non-smooth loss by at
    # most the size of its domain.
    if loss.smooth:
        distance = weighted_norm(local.gradients - v, agent.data.weights)
    else:
        distance = agent.domain_norm
    return gaps, distance * error + curved + _summation_error(agent, gaps)


def _curved(agent: Agent, local: LocalLoss, error: Any) -> Any:
    """The second-order part of an error of the scores of that length. For non-smooth losses, the
    first-order part includes it.
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
        positive = weights[weights > 0]
        lightest = float(np.sqrt(positive.min(initial=1.0)))
    curvature = loss.curvature_near(local.scores, local.y, error / lightest)
    return curvature * error * error


def _summation_error(agent: Agent, total: Any) -> Any:
    """The rounding error of a sum over the agent's rows and all agents, of terms that are at least
    0.
    """
    return (agent.data.n + agent.count + FEW) * EPSILON * total


def _score_error(agent: Agent, design: Design, w: FloatArray) -> Any:
    """‖δu‖ from the products of the agent's own columns with w."""
    free = agent.problem.free(agent.design.intercept)
    coefficients = w[..., : w.shape[-1] - free]
    if design is agent.design:
        norms = agent.column_norms
    else:
        norms = agent.centred_norms
    sizes = np.vecdot(norms, np.abs(coefficients))
    return SAFE * 2 * design.roundings[0] * EPSILON * sizes


def _rotation_error(agent: Agent, norms: FloatArray, roundings: int, squared_norm: float) -> float:
    """‖δu‖ from the rotation of columns and coefficients, ‖w‖² = squared_norm."""
    longest = float(norms.max(initial=0.0))
    return SAFE * roundings * EPSILON * longest * math.sqrt(squared_norm)


def _stored_intercept_error(agent: Agent, w: FloatArray) -> float:
    """‖δu‖ from the part of the intercept that columns far from 0 add: the agent that holds the
    columns rounds it, and so does the sum over agents.
    """
    if not isinstance(agent.design, FarDesign):
        return 0.0
    roundings = 2.0 * (agent.count + 1) * EPSILON
    return roundings * math.sqrt(agent.data.n) * abs(agent.design.offset(w))


def _label_error(agent: Agent, scores: FloatArray, w: FloatArray) -> Any:
    """‖δu‖ from the last steps: the rounding of the stored intercept, of the sum with the offset,
    and of the difference from the label.
    """
    root = np.sqrt(agent.weight)
    intercept: Any = 0.0
    if agent.design.intercept:
        intercept = np.abs(w[..., -1]) + abs(agent.known.shift)
    lengths = weighted_norm(scores, agent.data.weights) + agent.label_norm + agent.offset_norm
    rounding = FEW * EPSILON * (lengths + root)
    return rounding + 2.0 * EPSILON * root * intercept


def _heaviest(agent: Agent) -> float:
    """The root of the largest weight: split by features, agents without labels measure their errors
    without weights.
    """
    weights = agent.data.weights
    if weights is None:
        return 1.0
    return math.sqrt(float(weights.max(initial=0.0)))


def _clipped(agent: Agent, v: FloatArray) -> FloatArray:
    if agent.problem.loss.quadratic:
        return v.astype(float)
    lower, upper = agent.domain
    raised = np.maximum(v.astype(float, copy=False), lower)
    clipped: FloatArray = np.minimum(raised, upper)
    return clipped


def _sides(agent: Agent, v: FloatArray) -> tuple[Any, Any]:
    """Σ s v over the positive v, and −Σ s v over the negative ones."""
    up, up_rest, down, down_rest = _exact_sides(agent, v)
    return up + up_rest, down + down_rest


def _exact_sides(agent: Agent, v: FloatArray) -> Any:
    weights = agent.data.weights
    weighted = weights is not None
    if weights is None:
        s = v
    else:
        s = weights.astype(float, copy=False)
    if v.ndim == 2:
        return all_sides(v, s, weighted)
    return sides(v, s, weighted)


def _imbalance(agent: Agent, v: FloatArray, both: FloatArray) -> tuple[Any, Any]:
    """Σ s v of the agent's own samples, as a multiple of the grid, and the rest. The sum of all
    agents' multiples is exact.
    """
    grid = _grid(both)
    up, up_rest, down, down_rest = _exact_sides(agent, v)
    coarse_up = _on_grid(up, grid)
    coarse_down = _on_grid(down, grid)
    fine = (up - coarse_up) - (down - coarse_down) + (up_rest - down_rest)
    return coarse_up - coarse_down, fine


def _on_grid(side: Any, grid: float) -> Any:
    """The nearest multiple of the grid."""
    if not grid:
        return side
    return np.rint(side / grid) * grid


def _grid(both: FloatArray) -> float:
    """A power of two: the weight of both sides, divided by about 2²⁷."""
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
    """The distance of other intercepts from this one up to which the bound holds; a generous
    one.
    """
    return ROOM * agent.known.label_scale + RADIUS * abs(intercept)
