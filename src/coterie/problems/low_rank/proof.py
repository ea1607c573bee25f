"""Proofs for low-rank models: the Frank-Wolfe gap, with the spectral norm bounded from above.

With G = ∇P(W), convexity gives for every matrix W' of trace norm at most r

    P(W') ≥ P(W) + ⟨G, W' − W⟩ ≥ P(W) − (⟨G, W⟩ + r ‖G‖₂)

so P(W) − P* ≤ ⟨G, W⟩ + r ‖G‖₂, and all three tasks have P ≥ 0. An inexact linear oracle, such as
the power iterations of the methods, gives a number that is too small: it bounds ‖G‖₂ from
*below*. A proof bounds ‖G‖₂ from above:

- If W has at most `EXACT_SIZE` entries, the agents sum their gradients, d m numbers each, and
  compute ‖G‖₂.
- Beyond that, with orthonormal U, V from a few block power iterations (started from W's own
  factors),

      ‖G‖₂ ≤ ‖ [ ‖UᵀGV‖₂           ‖UᵀG(I − VVᵀ)‖₂ ] ‖
             ‖ [ ‖(I − UUᵀ)GV‖₂    Σ_j ρ_j          ] ‖₂,      ρ_j = ‖(I − UUᵀ) G_j (I − VVᵀ)‖_F

  The first three are exact, from sums of k (d + m) numbers. The last follows from the triangle
  inequality. This is a bound for every U and V; better U and V, and fewer agents, make it tighter.

With an intercept, G is the gradient at the best intercept for W, where the gradient in b is 0 up to
rounding. The gap includes that rounding, times the distance of other intercepts that the bound
allows for (`room`). It also includes the difference of the losses with W's own intercept and with
the best one. That holds for classes, and for the rows and columns of a completed matrix.

Where a matrix is completed in stages, the dual variable is the matrix W₀ of the stage before: the
ball has the weights that W₀ gives it (`tasks.weighted`), and the proof is about the best matrix of
that ball. The proof does not cover how W₀ was found.

Agents compute everything from the data, in float64, a few rows at a time.

**Rounding.** The gradients v at the computed scores û are a dual of W, whatever the exact scores u
are. With G = X̃ᵀ(s∘v), the second-order term ‖δu‖² bounds their loss. G itself goes through the
roundings of a sum over rows. |⟨δG, W⟩| ≤ r ‖δG‖ and r ‖δG‖ are part of the gap, and ‖v‖ ‖δu‖ bounds
the error of P(W) (`Lost`):

    ‖δu‖ ≤ k ε (Σ_k Σ_j ‖x_j‖ |left_jk| ‖right_k‖ + √n ‖β‖),      ‖δG‖ ≤ k ε ‖X‖ ‖v‖,      ‖v‖² ≤ 2
    Σ_i s_i ℓ_i
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from coterie.data import Table
from coterie.numerics.arrays import FloatArray, host, shared_result
from coterie.numerics.backends import backend
from coterie.numerics.factors import apart, orthonormal, trace_norm
from coterie.numerics.local_loss import weighted_norm
from coterie.numerics.penalties.ball import radius_of
from coterie.numerics.penalties.penalty import FEASIBILITY_TOLERANCE
from coterie.problems.low_rank.tasks import Information, Means, Task
from coterie.problems.low_rank.tasks.multinomial import NEVER
from coterie.problems.low_rank.tasks.weighted import Weighted, Weights
from coterie.problems.multiclass.proof import PAIRWISE
from coterie.problems.parts.proof import Proof
from coterie.problems.problem import Problem
from coterie.problems.proof import EPSILON, FEW, RADIUS, ROOM, SAFE
from coterie.run.agent import Agent, SummaryStatistics
from coterie.run.certificate.bound import Bound, Point
from coterie.run.certificate.intercepts import (
    EXACT,
    best_intercept,
    most_of_search,
    taken_apart,
)
from coterie.run.certificate.introduction import FLOOR, SAME
from coterie.run.collectives import Protocol, Sum
from coterie.run.disclosure import TOTALS, Case, Protocols, added, discloses

EXACT_SIZE = 1 << 22
"""The most entries of W for which agents send the whole gradient for a proof."""
EXTRA = 4
"""Number of random vectors that join W's own in the block power iterations."""
ROUNDING = 1e-12
LARGE = 1 << 18
"""Entries from which on a spectral norm is computed as the root of an eigenvalue."""


class Lost(NamedTuple):
    """Bounds of rounding errors, of one party or of all parties."""

    losses: float
    """The error of the sum of the losses."""
    dual: float
    """The second-order error between the losses and their dual."""
    gradient: float
    """The norm of the error of G."""
    means: float
    """The error of Σ s x̃ W and Σ s ỹ, which are 0 in exact arithmetic."""


class MatrixPoint(NamedTuple):
    """W = left rightᵀ, or Z in place of W where the ball has weights."""

    left: FloatArray
    right: FloatArray
    means: Means | None
    weights: Weights | None


class Found(NamedTuple):
    """The sums of all parties at W."""

    loss: float
    inner: float
    """⟨G, W⟩."""
    norm: float
    """A bound of ‖G‖₂."""
    lost: Lost


class Best(NamedTuple):
    """The best intercept for W."""

    beta: FloatArray
    excess: float
    """The loss with the given intercept less the loss with the best one."""
    gradient: FloatArray
    """The gradient in the intercept, which is 0 in exact arithmetic."""


class LowRankProof(Proof[Problem[Task]]):
    """Introduces agents and certifies matrices by the Frank-Wolfe gap."""

    @discloses(
        "the number of your rows, and the loss of a model of zeros", most=lambda case: (1, 2)
    )
    @discloses(
        (
            "for each row and column of the matrix: how many entries you have, and their sums; "
            "then your loss at the means"
        ),
        "the means of your entries",
        TOTALS,
        applies=lambda case: case.intercept and case.problem.loss.kind == "entries",
        most=lambda case: (3, _sums_of_means(case)),
    )
    @discloses(
        (
            "for each column: its sum; for each class: your rows, or for each label: its sum; and "
            "your loss at these means"
        ),
        "the means of your columns, and how many of your rows each class has",
        TOTALS,
        applies=lambda case: case.intercept and case.problem.loss.kind != "entries",
        most=lambda case: (3, _sums_of_means(case)),
    )
    def introduce(self, agent: Agent[Problem[Task]]) -> Protocol[SummaryStatistics]:
        """Send the number of rows, the loss at W = 0, and with an intercept the means."""
        weights = agent.data.weights
        task = agent.problem.loss
        means = None
        if weights is None:
            own_total = float(agent.data.n)
        else:
            own_total = float(np.sum(weights, dtype=float))
        own_loss = sum(part.loss() for part in _parts(agent, None))
        sums = yield Sum(np.array([own_total, own_loss]))
        total, losses = map(float, sums)
        at_zero = agent.problem.primal(losses, total, 0.0)
        null = at_zero
        if agent.problem.intercept:
            sums = yield Sum(_added(task.sums(block) for block in _blocks(agent)))
            left = task.mean(sums.astype(float), total)
            sums = yield Sum(_added(task.sums(block, left) for block in _blocks(agent)))
            right = task.mean(sums.astype(float), total, left)
            means = Means(left, right)
            own_loss = sum(part.loss() for part in _parts(agent, means))
            losses = yield Sum(np.array([own_loss]))
            null = agent.problem.primal(float(losses[0]), total, 0.0)
        unit = _gap_unit(task, null, at_zero)
        return SummaryStatistics(
            total, null, 0.0, 0.0, gap_unit=unit, primal_at_zero=at_zero, means=means
        )

    def certify(
        self,
        agent: Agent[Problem[Task]],
        point: Point,
        target: float = 0.0,
        radius: float | None = None,
    ) -> Protocol[Bound]:
        """P(W), and the lower bound that the Frank-Wolfe gap proves."""
        problem = agent.problem
        task = problem.loss
        total = agent.total
        means = agent.known.means
        d, m = task.size(agent.data)
        r = radius_of(problem.penalty)
        left, right, free = taken_apart(agent, point.w.astype(np.float64))
        weights = None
        if task.stages > 1:
            weights = Weights.known(point.v, (d, m))
        if weights is not None:
            # The rest of the proof is about Z, in place of W.
            left = weights.left(left, -1.0)
            right = weights.right(right, -1.0)
        at = MatrixPoint(left, right, means, weights)
        distance = 0.0
        excess = 0.0
        room = None
        left_over = 0.0
        inside = trace_norm(left, right) <= r * (1.0 + FEASIBILITY_TOLERANCE)
        if free is not None and means is not None:
            if task.kind == "numbers":
                # Σ s x̃ and Σ s ỹ are 0, so the mean of the labels is the best intercept.
                excess = 0.5 * total * float(np.square(free - means.right).sum())
                distance = float(np.linalg.norm(free - means.right))
            else:
                best = yield from _best(agent, at, free)
                excess = best.excess
                room, left_over = _room_and_left_over(agent, best, means)
                at = at._replace(means=_means(agent, best.beta))
        if d * m <= EXACT_SIZE:
            found = yield from _whole(agent, at)
        else:
            found = yield from _in_blocks(agent, at)
        off = found.lost
        primal = problem.primal(found.loss + excess, total, 0.0)
        left_over += off.means * (distance + off.means / total)
        # ⟨G, W⟩ and r ‖G‖₂ cancel at the optimum: their difference there is rounding.
        cut = agent.cut * (1.0 + 2.0 * r * (d + m))
        gradient_error = 2.0 * r * (1.0 + FEASIBILITY_TOLERANCE) * off.gradient
        size = abs(found.inner) + r * found.norm + excess
        rounding = ROUNDING * size + gradient_error + off.dual + cut + left_over
        rounding = problem.primal(rounding, total, 0.0)
        losses_error = off.losses + ROUNDING * excess + left_over + cut
        primal_error = problem.primal(losses_error, total, 0.0)
        linear_gap = problem.primal(found.inner + r * found.norm, total, 0.0)
        gap = max(linear_gap, 0.0) + excess / total + rounding
        # No loss is below 0.
        if gap > primal + primal_error:
            gap = primal + primal_error
            rounding = primal_error
        if not inside:
            return Bound(math.inf, max(primal - gap, 0.0))
        return Bound.of(primal, gap, rounding, room=room, primal_rounding=primal_error)

    introduces: Protocols = (introduce,)

    @property
    def proves(self) -> Protocols:
        """The best intercept, and the gradient, as a whole or in blocks."""
        return _best, _whole, _in_blocks


def _sums_of_means(case: Case) -> int:
    """Numbers for the means, and one for the loss."""
    task = case.problem.loss
    if task.kind == "entries":
        each = 2
    else:
        each = 1
    numbers: int = each * sum(case.matrix) + 1
    return numbers


def _gap_unit(task: Task, null: float, at_zero: float) -> float:
    """The null loss; a floor where that is rounding because all labels are equal."""
    if task.quadratic:
        rounding = SAME**2
        floor = FLOOR**2
    else:
        rounding = SAME
        floor = 1.0
    if null > rounding * at_zero:
        return null
    return floor * at_zero or 1.0


def _blocks(agent: Agent[Problem[Task]]) -> Iterator[Table]:
    """The rows, a few at a time, in float64."""
    for block in agent.problem.loss.blocks(agent.data):
        widened = backend(block.X).widened
        if block.y is None:
            y = block.y
        else:
            y = backend(block.y).widened(block.y)
        if block.weights is None:
            s = None
        else:
            s = block.weights.astype(np.float64)
        yield replace(block, X=widened(block.X), y=y, weights=s)


def _parts(
    agent: Agent[Problem[Task]], means: Means | None, weights: Weights | None = None
) -> Iterator[Information]:
    """The sufficient information of each block of rows."""
    for block in _blocks(agent):
        information = agent.problem.loss.stats(block, "implicit", means)
        if weights is None:
            yield information
        else:
            yield Weighted(information, weights)


def _parts_at(agent: Agent[Problem[Task]], at: MatrixPoint) -> Iterator[Information]:
    for part in _parts(agent, at.means, at.weights):
        part.reset(at.left, at.right)
        yield part


def _added(parts: Iterator[FloatArray]) -> FloatArray:
    total: FloatArray = sum(parts, np.zeros(()))
    return total


def _means(agent: Agent[Problem[Task]], beta: FloatArray) -> Means:
    """The means, with another intercept."""
    assert agent.known.means is not None
    centre = agent.known.means.left
    if agent.problem.loss.kind == "entries":
        rows, columns = apart(beta, len(centre))
        return Means(rows, columns)
    return Means(centre, beta)


def _room_and_left_over(
    agent: Agent[Problem[Task]], best: Best, means: Means
) -> tuple[float, float]:
    """The distance of other intercepts from the best one up to which the bound holds, and the most
    that the rest of the gradient in the intercept adds to the gap there.
    """
    task = agent.problem.loss
    if task.kind == "classes":
        known = means.right > NEVER
    else:
        known = np.ones(len(best.beta), bool)
    largest = float(np.abs(best.beta[known]).max())
    scale = 1.0
    size = 1.0
    if task.kind == "entries":
        scale = math.sqrt(2.0 * agent.known.gap_unit)
        size = scale + largest
    room = ROOM * scale + RADIUS * largest
    roundings = PAIRWISE + agent.count + math.log2(agent.total + 1.0)
    gradient_error = EPSILON * roundings * agent.total * size + agent.cut
    gradient_size = float(np.abs(best.gradient).sum())
    return room, room * (gradient_size + len(best.beta) * gradient_error)


def _lost(agent: Agent[Problem[Task]], at: MatrixPoint, loss: float) -> Lost:
    """Bounds of the rounding errors of the agent's own part, given its own loss."""
    if agent.problem.loss.kind == "entries":
        lost = _lost_of_entries
    else:
        lost = _lost_of_rows
    weights = at.weights
    if weights is None:
        return lost(agent, at, loss, 0)
    # W = A Z B: a few more products, whose roundings have been divided by A and B. A and B also
    # scale gradients.
    left = weights.left(at.left)
    right = weights.right(at.right)
    unweighted = at._replace(left=left, right=right)
    more = 4 * (weights.U.shape[1] + FEW)
    known = lost(agent, unweighted, loss, more)
    largest = max(weights.rest, float(weights.size.max(initial=0.0))) ** 2
    condition = largest / weights.rest**2
    return Lost(
        losses=known.losses * condition,
        dual=known.dual * condition**2,
        gradient=known.gradient * largest,
        means=known.means,
    )


def _lost_of_rows(agent: Agent[Problem[Task]], at: MatrixPoint, loss: float, more: int) -> Lost:
    task = agent.problem.loss
    n = agent.data.n
    m = len(at.right)
    means = at.means
    root = math.sqrt(agent.weight)
    gradients = math.sqrt(2.0 * max(loss, 0.0))
    lengths = np.linalg.norm(at.right, axis=0)
    rows = min(n, task.block_rows) + n // task.block_rows + agent.count + 4
    columns = float(np.linalg.norm(agent.column_norms))
    off_means = 0.0
    scores = float((agent.column_norms @ np.abs(at.left)) @ lengths)
    if means is not None:
        columns += root * float(np.linalg.norm(means.left))
        if task.kind == "classes":
            intercepts = np.where(means.right > NEVER, means.right, 0.0)
        else:
            intercepts = means.right
        products = (np.abs(means.left) @ np.abs(at.left)) @ lengths
        taken_off = float(products + np.linalg.norm(intercepts))
        scores += root * taken_off
        off_means = SAFE * EPSILON * rows * agent.weight * taken_off
    roundings = agent.design.roundings[0] + at.left.shape[1] + FEW + more
    error = SAFE * EPSILON * (roundings * scores + FEW * gradients)
    losses = gradients * error + error**2 + rows * m * EPSILON * loss
    length = (rows + more) * gradients
    if task.kind == "classes":
        # Probabilities, and their sum of 1, have roundings of their own.
        error += SAFE * EPSILON * (m + FEW) * root
        losses += FEW * EPSILON * agent.weight * (1.0 + math.log(m))
        length += (m + FEW) * root
    gradient = SAFE * EPSILON * columns * length
    return Lost(losses, error**2, gradient, off_means)


def _lost_of_entries(agent: Agent[Problem[Task]], at: MatrixPoint, loss: float, more: int) -> Lost:
    rows, columns = agent.data.X.astype(np.intp).T
    y = agent.data.y
    s = agent.data.weights
    means = at.means
    assert y is not None
    left_sizes = np.abs(at.left[rows])
    right_sizes = np.abs(at.right[columns])
    sizes = np.einsum("ik,ik->i", left_sizes, right_sizes) + np.abs(y)
    if means is not None:
        sizes = sizes + np.abs(means.left[rows]) + np.abs(means.right[columns])
    if s is not None:
        s = s.astype(float)
    roundings = at.left.shape[1] + FEW + more
    error = SAFE * EPSILON * roundings * weighted_norm(sizes, s)
    gradients = math.sqrt(2.0 * max(loss, 0.0))
    summation = (agent.data.n + agent.count + FEW) * EPSILON * loss
    losses = gradients * error + error**2 + summation
    # An entry of G is its gradient times its weight, or the sum of a few of those: no length is
    # above Σ s |v|.
    length = math.sqrt(agent.weight) * gradients
    gradient = SAFE * EPSILON * (agent.count + FEW + more) * length
    return Lost(losses, error**2, gradient, 0.0)


@discloses(
    (
        "for each intercept: gradients and curvatures of your loss, while the best intercept is "
        "searched"
    ),
    (
        "how many of your rows each class has; of entries, your sums for each row and column of "
        "the matrix"
    ),
    TOTALS,
    applies=lambda case: case.intercept and case.problem.loss.kind != "numbers",
    most=lambda case: added([most_of_search(case), (1, 2)]),
)
def _best(agent: Agent[Problem[Task]], at: MatrixPoint, beta: FloatArray) -> Protocol[Best]:
    """The best intercept for W, found from `beta`."""
    current = beta

    def parts_with(b: FloatArray) -> Iterator[Information]:
        return _parts_at(agent, at._replace(means=_means(agent, b)))

    def gradient_and_shares(b: FloatArray) -> FloatArray:
        nonlocal current
        current = b
        return _added(part.gradient_of_intercept() for part in parts_with(b))

    def hessian_product(x: FloatArray) -> FloatArray:
        return _added(part.curvature_of_intercept(x) for part in parts_with(current))

    best, gradient = yield from best_intercept(
        agent, gradient_and_shares, hessian_product, beta, EXACT
    )
    if best is beta:
        return Best(best, 0.0, gradient)
    own = [sum(part.loss() for part in parts_with(b)) for b in (beta, best)]
    losses = yield Sum(np.array(own))
    with_given = float(losses[0])
    difference = float(losses[0] - losses[1])
    excess = max(difference, 0.0) + ROUNDING * with_given
    return Best(best, excess, gradient)


@discloses(
    (
        "the gradient of your loss, one number for each entry of the matrix, and your total loss, "
        "as part of a sum"
    ),
    "a weighted sum of your rows for each column of labels",
    TOTALS,
    applies=lambda case: _is_small(case),
    most=lambda case: (1, math.prod(case.matrix) + 5),
)
def _whole(agent: Agent[Problem[Task]], at: MatrixPoint) -> Protocol[Found]:
    d = len(at.left)
    m = len(at.right)
    sums = yield Sum(_own_gradient(agent, at))
    loss, *lost = map(float, sums[-5:])
    G = sums[:-5].reshape(d, m)
    norm = shared_result(sums, lambda: _spectral_norm(G, agent.data.X))
    inner = float(np.vdot(at.left, G @ at.right))
    return Found(loss, inner, norm, Lost(*lost))


def _own_gradient(agent: Agent[Problem[Task]], at: MatrixPoint) -> FloatArray:
    """The gradient, the loss, and bounds of their rounding errors.

    A function, so that the agent holds no block of rows while it waits for the others.
    """
    gradient: Any = 0.0
    loss = 0.0
    for part in _parts_at(agent, at):
        gradient = gradient + part.matrix()
        loss += part.loss()
    lost = _lost(agent, at, loss)
    return np.append(host(gradient), [loss, *lost])


def _numbers_in_blocks(d: int, m: int) -> int:
    """The largest number of numbers of a proof in blocks, with W's rank as large as it can be."""
    rank = min(d, m)
    first = min(rank + EXTRA, m)
    return first * d + rank * m + rank * (d + m) + 7


def _is_small(case: Case) -> bool:
    entries: int = math.prod(case.matrix)
    return entries <= EXACT_SIZE


@discloses(
    (
        "products of the gradient of your loss with a few vectors, and your total loss, as part "
        "of a sum"
    ),
    "a few combinations of weighted sums of your rows",
    TOTALS,
    applies=lambda case: not _is_small(case),
    most=lambda case: (3, _numbers_in_blocks(*case.matrix)),
)
def _in_blocks(agent: Agent[Problem[Task]], at: MatrixPoint) -> Protocol[Found]:
    d = len(at.left)
    m = len(at.right)
    random = agent.common_random(0).standard_normal((m, EXTRA))
    V = orthonormal(np.hstack([at.right, random]))
    products = yield Sum(_products(agent, at, V))
    U = orthonormal(products.reshape(d, -1))
    products = yield Sum(_transposed_products(agent, at, U))
    V = orthonormal(products.reshape(m, -1))
    sums = yield Sum(_own_blocks(agent, at, U, V))
    entries = d * V.shape[1]
    GV = sums[:entries].reshape(d, -1)
    GU = sums[entries:-7].reshape(m, -1)
    corner = U.T @ GV
    right_rest = GU.T - (GU.T @ V) @ V.T
    left_rest = GV - U @ corner
    upper = [_norm(corner), _norm(right_rest)]
    lower = [_norm(left_rest), float(sums[-1])]
    # In blocks, ⟨G, W⟩ is a sum over rows, as the losses are, of terms that may cancel.
    loss = float(sums[-3])
    inner = float(sums[-2])
    lost = Lost(*map(float, sums[-7:-3]))
    lost = lost._replace(dual=lost.dual + lost.losses)
    norm = _norm(np.array([upper, lower])) * (1.0 + ROUNDING)
    return Found(loss, inner, norm, lost)


def _products(agent: Agent[Problem[Task]], at: MatrixPoint, v: FloatArray) -> FloatArray:
    """G_j v, as one vector."""
    out = np.zeros(len(at.left) * v.shape[1])
    for part in _parts_at(agent, at):
        out += part.times(v).ravel()
    return out


def _transposed_products(agent: Agent[Problem[Task]], at: MatrixPoint, u: FloatArray) -> FloatArray:
    """G_jᵀ u, as one vector."""
    out = np.zeros(len(at.right) * u.shape[1])
    for part in _parts_at(agent, at):
        out += part.times_transposed(u).ravel()
    return out


def _own_blocks(
    agent: Agent[Problem[Task]], at: MatrixPoint, U: FloatArray, V: FloatArray
) -> FloatArray:
    """G_j V and G_jᵀ U; bounds of rounding errors; F_j, ⟨G_j, W⟩ and ρ_j."""
    values = np.zeros(2)
    rest = 0.0
    size = len(at.left) * V.shape[1] + len(at.right) * U.shape[1]
    products = np.zeros(size)
    for part in _parts_at(agent, at):
        GV = part.times(V)
        GU = part.times_transposed(U)
        products += np.concatenate([GV.ravel(), GU.ravel()])
        values += part.loss(), part.inner()
        whole = part.squared_norm()
        corner = float(np.linalg.norm(U.T @ GV)) ** 2
        right_square = float(np.linalg.norm(GV)) ** 2
        left_square = float(np.linalg.norm(GU)) ** 2
        seen = right_square + left_square - corner
        rest += math.sqrt(max(whole - seen, 0.0) + ROUNDING * whole)
    lost = _lost(agent, at, float(values[0]))
    return np.append(products, [*lost, *values, rest])


def _spectral_norm(G: FloatArray, X: Any) -> float:
    """‖G‖₂, rounded up. For a large matrix it is the root of λmax(GᵀG), computed on the device that
    holds X, in a tenth of the time.
    """
    if G.size < LARGE:
        return _norm(G)
    size = float(np.abs(G).max())
    if not size > 0.0:
        return 0.0
    if len(G) >= len(G.T):
        tall = G / size
    else:
        tall = G.T / size
    root = math.sqrt(backend(X).largest_eigenvalue(tall))
    return size * root * (1.0 + ROUNDING)


def _norm(M: FloatArray) -> float:
    if M.size:
        return float(np.linalg.norm(M, 2))
    return 0.0
