"""Proofs for low-rank models: the Frank-Wolfe gap, with the spectral norm bounded from above.

With G = ∇P(W), convexity gives for every matrix W' of trace norm at most r

    P(W') ≥ P(W) + ⟨G, W' − W⟩ ≥ P(W) − (⟨G, W⟩ + r ‖G‖₂)

so P(W) − P* ≤ ⟨G, W⟩ + r ‖G‖₂, and all three tasks have P ≥ 0. A linear oracle that is inexact, as
the methods' power iterations are, would give a number that is too small: power iterations bound
‖G‖₂ from *below*. Here it is bounded from
above:

- If W has at most `EXACT_SIZE` entries, the agents' gradients are summed and ‖G‖₂ is computed, d m
  numbers each.
- Beyond that, with orthonormal U, V from a few block power iterations (started from W's own
  factors),

      ‖G‖₂ ≤ ‖ [ ‖UᵀGV‖₂           ‖UᵀG(I − VVᵀ)‖₂ ] ‖
             ‖ [ ‖(I − UUᵀ)GV‖₂    Σ_j ρ_j          ] ‖₂,      ρ_j = ‖(I − UUᵀ) G_j (I − VVᵀ)‖_F

  where the first three are exact, from sums of k (d + m) numbers, and the last follows from the
  triangle inequality. Whatever U and V are, this is a bound; the better they are, and the fewer
  agents, the tighter it is.

With an intercept, G is the slope at the best intercept beside W, where the slope in b is 0 up to
rounding; that is part of the gap, times how far other intercepts may be that the bound speaks of
(`room`). What W's own intercept loses beside the best one is part of the gap, too. That holds for
classes, and for the rows and columns of a completed matrix.

Where a matrix is completed in stages, the witness has the matrix W₀ of the stage before: the ball
is the one that W₀ weighs (`tasks.weighted`), and the proof is about the best matrix of that ball.
What led to W₀ is no part of it.

Everything is computed from the data, in float64, a few rows at a time.

**Rounding.** The slopes v at the scores û as they were computed are a dual of W, whatever the exact
scores u are: with G = X̃ᵀ(s∘v), what they lose is at most ‖δu‖², of second order. G itself goes
through so many roundings as a sum over rows has, |⟨δG, W⟩| ≤ r ‖δG‖ and r ‖δG‖ are part of the gap,
and ‖v‖ ‖δu‖ is how far P(W) may be off (`Lost`):

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
from coterie.run.certificate.intercepts import EXACT, best_intercept, taken_apart
from coterie.run.certificate.introduction import FLOOR, SAME
from coterie.run.collectives import Protocol, Sum
from coterie.run.disclosure import TOTALS, Case, Protocols, discloses

EXACT_SIZE = 1 << 22
"""Up to how many entries of W the gradient is sent as a whole for a proof."""
EXTRA = 4
"""How many random vectors accompany W's own in the block power iterations."""
ROUNDING = 1e-12
LARGE = 1 << 18
"""Entries from which on a spectral norm is the root of an eigenvalue."""


class Lost(NamedTuple):
    """What rounding can have taken away, of one party or of all of them."""

    losses: float
    """Of the sum of the losses."""
    dual: float
    """Between the losses and their dual: of second order."""
    slope: float
    """Of G, as a length."""
    means: float
    """Of Σ s x̃ W and Σ s ỹ, which are 0 but for rounding."""


class Found(NamedTuple):
    """What all parties together computed at W."""

    loss: float
    inner: float
    """⟨G, W⟩."""
    norm: float
    """At least ‖G‖₂."""
    lost: Lost


class LowRankProof(Proof[Problem[Task]]):
    """Introduces agents and certifies matrices by the Frank-Wolfe gap."""

    @discloses(
        "the number of your rows, and the loss of a model of zeros", most=lambda case: (1, 2)
    )
    @discloses(
        (
            "for each row and column of the matrix: how many entries you have, and their sums; "
            "then "
            "your loss at the means"
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
        """How much data there is, means if there is an intercept, and the objective at W = 0."""
        weights = agent.data.weights
        task = agent.problem.loss
        means = None
        if weights is None:
            mine = float(agent.data.n)
        else:
            mine = float(np.sum(weights, dtype=float))
        own = [mine, sum(part.loss() for part in _parts(agent, None))]
        total, losses = map(float, (yield Sum(np.array(own))))
        at_zero = constant = agent.problem.primal(losses, total, 0.0)
        if agent.problem.intercept:
            sums = yield Sum(_added(task.sums(block) for block in _blocks(agent)))
            left = task.mean(sums.astype(float), total)
            sums = yield Sum(_added(task.sums(block, left) for block in _blocks(agent)))
            means = Means(left, task.mean(sums.astype(float), total, left))
            losses = yield Sum(np.array([sum(part.loss() for part in _parts(agent, means))]))
            constant = agent.problem.primal(float(losses[0]), total, 0.0)
        return SummaryStatistics(
            total,
            constant,
            0.0,
            0.0,
            gap_unit=_unit(task, constant, at_zero),
            primal_at_zero=at_zero,
            means=means,
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
        means = agent.known.means
        d, m = problem.loss.size(agent.data)
        r = radius_of(problem.penalty)
        left, right, free = taken_apart(agent, point.w.astype(np.float64))
        if problem.loss.stages > 1:
            weights = Weights.known(point.v, (d, m))
        else:
            weights = None
        if weights is not None:
            # What follows is about Z, in place of W.
            left = weights.left(left, -1.0)
            right = weights.right(right, -1.0)
        away = 0.0
        lost = 0.0
        room = None
        left_over = 0.0
        inside = trace_norm(left, right) <= r * (1.0 + FEASIBILITY_TOLERANCE)
        if free is not None and means is not None:
            if problem.loss.kind == "numbers":
                # Σ s x̃ and Σ s ỹ are 0, so that another intercept than the mean of the labels
                # loses this much.
                lost = 0.5 * agent.total * float(np.square(free - means.right).sum())
                away = float(np.linalg.norm(free - means.right))
            else:
                best, lost, slope = yield from _best(agent, left, right, free, weights)
                if problem.loss.kind == "classes":
                    known = means.right > NEVER
                else:
                    known = np.ones(len(best), bool)
                largest = float(np.abs(best[known]).max())
                scale = 1.0
                size = 1.0
                if problem.loss.kind == "entries":
                    scale = math.sqrt(2.0 * agent.known.gap_unit)
                    size = scale + largest
                room = ROOM * scale + RADIUS * largest
                roundings = PAIRWISE + agent.count + math.log2(agent.total + 1.0)
                lost_slope = EPSILON * roundings * agent.total * size + agent.cut
                left_over = room * (float(np.abs(slope).sum()) + len(best) * lost_slope)
                means = _means(agent, best)
        found = yield from (_whole if d * m <= EXACT_SIZE else _in_blocks)(
            agent, left, right, means, weights
        )
        loss, inner, norm, off = found
        primal = problem.primal(loss + lost, agent.total, 0.0)
        left_over += off.means * (away + off.means / agent.total)
        # ⟨G, W⟩ and r ‖G‖₂ cancel at the optimum: what is left of them there is rounding.
        cut = agent.cut * (1.0 + 2.0 * r * (d + m))
        gradients = 2.0 * r * (1.0 + FEASIBILITY_TOLERANCE) * off.slope
        rounding = (
            ROUNDING * (abs(inner) + r * norm + lost) + gradients + off.dual + cut + left_over
        )
        rounding = problem.primal(rounding, agent.total, 0.0)
        primal_error = problem.primal(
            off.losses + ROUNDING * lost + left_over + cut, agent.total, 0.0
        )
        gap = (
            max(problem.primal(inner + r * norm, agent.total, 0.0), 0.0)
            + lost / agent.total
            + rounding
        )
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


def _unit(task: Task, constant: float, at_zero: float) -> float:
    """What the best constant loses, with a floor where that is rounding because all labels are
    one.
    """
    if task.quadratic:
        rounding, floor = (SAME**2, FLOOR**2)
    else:
        rounding, floor = (SAME, 1.0)
    if constant > rounding * at_zero:
        return constant
    return floor * at_zero or 1.0


def _blocks(agent: Agent[Problem[Task]]) -> Iterator[Table]:
    """A few rows after the other, in float64."""
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
    """Their sufficient information."""
    for block in _blocks(agent):
        information = agent.problem.loss.stats(block, "implicit", means)
        yield information if weights is None else Weighted(information, weights)


def _added(parts: Iterator[FloatArray]) -> FloatArray:
    total: FloatArray = sum(parts, np.zeros(()))
    return total


def _means(agent: Agent[Problem[Task]], beta: FloatArray) -> Means:
    """What is taken off, with another intercept."""
    assert agent.known.means is not None
    centre = agent.known.means.left
    if agent.problem.loss.kind == "entries":
        return Means(*apart(beta, len(centre)))
    return Means(centre, beta)


def _lost(
    agent: Agent[Problem[Task]],
    left: FloatArray,
    right: FloatArray,
    means: Means | None,
    weights: Weights | None,
    loss: float,
) -> Lost:
    """What rounding can have taken away of its own part, where its own loss is that."""
    if agent.problem.loss.kind == "entries":
        lost = _lost_of_entries
    else:
        lost = _lost_of_rows
    if weights is None:
        return lost(agent, left, right, means, loss, 0)
    # W = A Z B: a few products more, whose roundings have been divided by A and B. A and B also
    # lengthen slopes.
    known = lost(
        agent, weights.left(left), weights.right(right), means, loss, 4 * (weights.U.shape[1] + FEW)
    )
    largest = max(weights.rest, float(weights.size.max(initial=0.0))) ** 2
    condition = largest / weights.rest**2
    return Lost(
        known.losses * condition, known.dual * condition**2, known.slope * largest, known.means
    )


def _lost_of_rows(
    agent: Agent[Problem[Task]],
    left: FloatArray,
    right: FloatArray,
    means: Means | None,
    loss: float,
    more: int,
) -> Lost:
    task = agent.problem.loss
    m = len(right)
    root = math.sqrt(agent.weight)
    gradients = math.sqrt(2.0 * max(loss, 0.0))
    lengths = np.linalg.norm(right, axis=0)
    rows = min(agent.data.n, task.block_rows) + agent.data.n // task.block_rows + agent.count + 4
    columns = float(np.linalg.norm(agent.column_norms))
    off_means = 0.0
    scores = float((agent.column_norms @ np.abs(left)) @ lengths)
    if means is not None:
        columns += root * float(np.linalg.norm(means.left))
        if task.kind == "classes":
            beside = np.where(means.right > NEVER, means.right, 0.0)
        else:
            beside = means.right
        taken_off = float((np.abs(means.left) @ np.abs(left)) @ lengths + np.linalg.norm(beside))
        scores += root * taken_off
        off_means = SAFE * EPSILON * rows * agent.weight * taken_off
    roundings = agent.design.roundings[0] + left.shape[1] + FEW + more
    error = SAFE * EPSILON * (roundings * scores + FEW * gradients)
    losses = gradients * error + error**2 + rows * m * EPSILON * loss
    length = (rows + more) * gradients
    if task.kind == "classes":
        # Probabilities are right, and add up to 1, up to some roundings of their own.
        error += SAFE * EPSILON * (m + FEW) * root
        losses += FEW * EPSILON * agent.weight * (1.0 + math.log(m))
        length += (m + FEW) * root
    return Lost(losses, error**2, SAFE * EPSILON * columns * length, off_means)


def _lost_of_entries(
    agent: Agent[Problem[Task]],
    left: FloatArray,
    right: FloatArray,
    means: Means | None,
    loss: float,
    more: int,
) -> Lost:
    rows, columns = agent.data.X.astype(np.intp).T
    y = agent.data.y
    s = agent.data.weights
    assert y is not None
    sizes = np.einsum("ik,ik->i", np.abs(left[rows]), np.abs(right[columns])) + np.abs(y)
    if means is not None:
        sizes = sizes + np.abs(means.left[rows]) + np.abs(means.right[columns])
    error = (
        SAFE
        * EPSILON
        * (left.shape[1] + FEW + more)
        * weighted_norm(sizes, None if s is None else s.astype(float))
    )
    gradients = math.sqrt(2.0 * max(loss, 0.0))
    losses = gradients * error + error**2 + (agent.data.n + agent.count + FEW) * EPSILON * loss
    # An entry of G is its slope times its weight, or the sum of a few of those: no length is above
    # Σ s |v|.
    length = math.sqrt(agent.weight) * gradients
    return Lost(losses, error**2, SAFE * EPSILON * (agent.count + FEW + more) * length, 0.0)


@discloses(
    (
        "for each intercept: gradients and curvatures of your loss, while the best intercept is "
        "searched"
    ),
    (
        "how many of your rows each class has; of entries, your sums for each row and column of "
        "the "
        "matrix"
    ),
    TOTALS,
    applies=lambda case: case.intercept and case.problem.loss.kind != "numbers",
)
def _best(
    agent: Agent[Problem[Task]],
    left: FloatArray,
    right: FloatArray,
    beta: FloatArray,
    weights: Weights | None,
) -> Protocol[tuple[FloatArray, float, FloatArray]]:
    """The best intercept beside W, what another one loses, and the slope there."""
    looked = beta

    def at(b: FloatArray) -> Iterator[Information]:
        for part in _parts(agent, _means(agent, b), weights):
            part.reset(left, right)
            yield part

    def look(b: FloatArray) -> FloatArray:
        nonlocal looked
        looked = b
        return _added(part.gradient_of_intercept() for part in at(b))

    def bend(x: FloatArray) -> FloatArray:
        return _added(part.curvature_of_intercept(x) for part in at(looked))

    best, slope = yield from best_intercept(agent, look, bend, beta, EXACT)
    if best is beta:
        return best, 0.0, slope
    losses = yield Sum(np.array([sum(part.loss() for part in at(b)) for b in (beta, best)]))
    return best, max(float(losses[0] - losses[1]), 0.0) + ROUNDING * float(losses[0]), slope


@discloses(
    (
        "the gradient of your loss, one number for each entry of the matrix, and your total loss, "
        "as "
        "part of a sum"
    ),
    "a weighted sum of your rows for each column of labels",
    TOTALS,
    applies=lambda case: _is_small(case),
    most=lambda case: (1, math.prod(case.matrix) + 5),
)
def _whole(
    agent: Agent[Problem[Task]],
    left: FloatArray,
    right: FloatArray,
    means: Means | None,
    weights: Weights | None,
) -> Protocol[Found]:
    d = len(left)
    m = len(right)

    def own() -> FloatArray:
        """The gradient and both values; in a function, so that no block is held until everybody has
        sent its own.
        """
        gradient: Any = 0.0
        loss = 0.0
        for part in _parts(agent, means, weights):
            part.reset(left, right)
            gradient = gradient + part.matrix()
            loss += part.loss()
        return np.append(host(gradient), [loss, *_lost(agent, left, right, means, weights, loss)])

    sums = yield Sum(own())
    loss, *lost = map(float, sums[-5:])
    G = sums[:-5].reshape(d, m)
    norm = shared_result(sums, lambda: _spectral_norm(G, agent.data.X))
    return Found(loss, float(np.vdot(left, G @ right)), norm, Lost(*lost))


def _is_small(case: Case) -> bool:
    entries: int = math.prod(case.matrix)
    return entries <= EXACT_SIZE


@discloses(
    (
        "products of the gradient of your loss with a few vectors, and your total loss, as part "
        "of a "
        "sum"
    ),
    "a few combinations of weighted sums of your rows",
    TOTALS,
    applies=lambda case: not _is_small(case),
)
def _in_blocks(
    agent: Agent[Problem[Task]],
    left: FloatArray,
    right: FloatArray,
    means: Means | None,
    weights: Weights | None,
) -> Protocol[Found]:
    d = len(left)
    m = len(right)
    random = agent.common_random(0).standard_normal((m, EXTRA))

    def products(u: FloatArray | None, v: FloatArray | None) -> FloatArray:
        """G_j v and G_jᵀ u, beside each other in one message."""
        out = np.zeros((0 if v is None else d * v.shape[1]) + (0 if u is None else m * u.shape[1]))
        for part in _parts(agent, means, weights):
            part.reset(left, right)
            if v is None:
                images = []
            else:
                images = [part.times(v)]
            images += [] if u is None else [part.times_transposed(u)]
            out += np.concatenate([image.ravel() for image in images])
        return out

    V = orthonormal(np.hstack([right, random]))
    U = orthonormal((yield Sum(products(None, V))).reshape(d, -1))
    V = orthonormal((yield Sum(products(U, None))).reshape(m, -1))

    def own() -> FloatArray:
        values = np.zeros(2)
        rest = 0.0
        message = np.zeros(d * V.shape[1] + m * U.shape[1])
        for part in _parts(agent, means, weights):
            part.reset(left, right)
            GV = part.times(V)
            GU = part.times_transposed(U)
            message += np.concatenate([GV.ravel(), GU.ravel()])
            values += part.loss(), part.inner()
            whole = part.squared_norm()
            corner = float(np.linalg.norm(U.T @ GV)) ** 2
            seen = float(np.linalg.norm(GV)) ** 2 + float(np.linalg.norm(GU)) ** 2 - corner
            rest += math.sqrt(max(whole - seen, 0.0) + ROUNDING * whole)
        lost = _lost(agent, left, right, means, weights, float(values[0]))
        return np.append(message, [*lost, *values, rest])

    sums = yield Sum(own())
    GV = sums[: d * V.shape[1]].reshape(d, -1)
    GU = sums[d * V.shape[1] : -7].reshape(m, -1)
    corner = U.T @ GV
    pieces = [
        [_norm(corner), _norm(GU.T - (GU.T @ V) @ V.T)],
        [_norm(GV - U @ corner), float(sums[-1])],
    ]
    # Here ⟨G, W⟩ is a sum over rows, as the losses are, of terms that may cancel.
    loss = float(sums[-3])
    inner = float(sums[-2])
    lost = Lost(*map(float, sums[-7:-3]))
    lost = lost._replace(dual=lost.dual + lost.losses)
    return Found(loss, inner, _norm(np.array(pieces)) * (1.0 + ROUNDING), lost)


def _spectral_norm(G: FloatArray, X: Any) -> float:
    """‖G‖₂, rounded up; of a large matrix as the root of λmax(GᵀG), in a tenth of the time, where X
    is.
    """
    if G.size < LARGE:
        return _norm(G)
    size = float(np.abs(G).max())
    if not size > 0.0:
        return 0.0
    tall = (G if len(G) >= len(G.T) else G.T) / size
    return size * math.sqrt(backend(X).largest_eigenvalue(tall)) * (1.0 + ROUNDING)


def _norm(M: FloatArray) -> float:
    if M.size:
        return float(np.linalg.norm(M, 2))
    return 0.0
