"""Newton's step for many columns with an l1 penalty, on the active columns only.

A column is active if its coefficient is not 0, or if the gradient is large enough to move it from
0. Where active columns are few, or rows are dense, all agents add up the triangle of the Hessian on
them and minimise the quadratic model. Sparse rows with many rare columns would make that triangle
too large to send. There, all active columns move at once. The agents add up the diagonal of H, and
its triangle on the `block` columns of the largest curvature, which many rows share. They learn the
rest of H in steps of a quasi-Newton method (Scheinberg and Tang, 2016, "Practical inexact proximal
quasi-Newton method with global complexity analysis"):

    B₀  = H on the block, diag H elsewhere
    p   = argmin ⟨∇f(w), p⟩ + ½ pᵀBp + g(w + p)      coordinate descent, alone
    y   = ∇f(w + p) − ∇f(w)                          a `Sum` of a number for each active column,
                                                     and of f
    B⁺  = B − (Bp)(Bp)ᵀ/(pᵀBp) + yyᵀ/(pᵀy)           so that B⁺p = y
    w⁺  = w + p                                      if P falls; else w stays, and the next step
                                                     uses B⁺ or is shorter

Rare columns have few rows in common, so the Hessian without the block is nearly diagonal, and a
dozen such steps reach the optimum on the active columns. Agents send only differences of
gradients, so single precision is enough: the error is relative to the step. Every round begins with
the whole gradient in double precision.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from coterie.methods.second_order.low_rank_model import Model, violation
from coterie.methods.second_order.oracle import Aim, Columns
from coterie.methods.second_order.quadratic import minimiser, ridge_of
from coterie.methods.second_order.rows import RowsOracle
from coterie.numerics.arrays import (
    CentredDesign,
    Design,
    FloatArray,
    is_sparse,
    sealed,
    shared_result,
)
from coterie.numerics.tuning import Tuning, tuned
from coterie.run.agent import Agent
from coterie.run.collectives import Protocol, Sum
from coterie.run.disclosure import Counts, triangle
from coterie.stats.moments import diagonal, packed, second_moment, unpacked

SINGLE_PRECISION = 1e30
"""A number whose sums fit into single precision."""
WIDE = "measured: logistic l1 with 100,000 rare columns, λ = 3e-5 (docs/benchmarks.md)"
REAL = "measured: w8a, MNIST and texts, logistic l1"
LASSO = "measured: lasso of 300 to 1,000 columns, λ from 0.003 to 0.3 of the largest"


@dataclass(frozen=True)
class _Tuning(Tuning):
    exact: int = tuned(
        256, "Active columns up to which agents add up all of their triangle.", WIDE, costs=2
    )
    most: int = tuned(1500, "Active columns up to which they do so where rows are dense.", REAL)
    sparse: float = tuned(
        0.02,
        "Data with at most this share of numbers that are not 0 is sparse.",
        WIDE,
        below=1,
        costs=3,
    )
    first: int = tuned(
        200, "Columns that may become active at once; or as many as are active already.", REAL
    )
    nearly_all: float = tuned(
        0.8,
        "Where ℓ'' is constant: the share of active columns from which on all columns move.",
        LASSO,
        below=1,
    )
    block: int = tuned(
        128, "Columns on which agents add up all of H, where they do not on all active ones.", WIDE
    )
    steps: int = tuned(8, "The largest number of quasi-Newton steps in a round.", WIDE)
    more_steps: int = tuned(24, "That number where few columns became active.", WIDE)
    few: float = tuned(0.1, "Few means: at most this share of the active columns.", WIDE, below=1)
    nearer: float = tuned(
        0.1,
        "A round ends when the violation of the optimality conditions falls to this share.",
        WIDE,
    )
    much_nearer: float = tuned(
        0.01, "That share where the violation was small at the begin of the round.", WIDE
    )
    farthest: float = tuned(
        10.0,
        "Violations above this, in units of λ, count as this: active columns will still change.",
        WIDE,
    )
    flat: float = tuned(
        0.1,
        "Where ℓ'' is piecewise constant, it counts as at least this share of its maximum.",
        "measured: squared hinge and Huber with many rare columns",
        below=1,
    )
    give_up: int = tuned(8, "A round ends after this number of failed steps in a row.", WIDE)


TUNING = _Tuning()


class Active(NamedTuple):
    """Active columns, with the intercept."""

    all: Columns
    few: Columns
    """The columns that are not 0 and those with the largest gradients: at most as many again, or
    `first` in all. All columns of the data, where nearly all are active and one step on them is the
    last.
    """


def target(agent: Agent, oracle: RowsOracle) -> Protocol[Aim]:
    """Find the minimum on the active columns, of the quadratic model or nearly that of P itself."""
    w = oracle.w
    total = yield Sum(np.append(oracle.gradient, oracle.losses))
    gradient = shared_result(total, lambda: total[:-1] / agent.total)
    active = shared_result(total, _active, agent, w, gradient)
    is_exact = True
    if len(active.all) > TUNING.exact:
        filled, cells = yield Sum(_filled_cells(agent))
        is_dense = float(filled) > TUNING.sparse * float(cells)
        is_exact = len(active.few) <= TUNING.most and is_dense
    if is_exact:
        columns = active.few
        found, v = yield from _exactly(agent, oracle, gradient, columns)
    else:
        columns = active.all
        found, v = yield from _step_by_step(agent, oracle, gradient, columns)

    def placed() -> FloatArray:
        z = w.copy()
        z[columns] = found
        return sealed(z)

    z = shared_result(total, placed)
    return Aim(z, gradient, float(total[-1]), float(np.linalg.norm(gradient)), v=v)


def _filled_cells(agent: Agent) -> FloatArray:
    """Count the numbers of the agent's data that are stored, and all of its cells."""
    X = agent.data.X
    cells = math.prod(X.shape)
    if is_sparse(X):
        return np.array([X.nnz, cells], float)
    return np.array([cells, cells], float)


def most_of_target(width: int) -> Counts:
    """Return the largest counts of `target` for `width` coefficients, where few are active or rows
    are sparse.
    """
    exactly = triangle(min(width, TUNING.exact))
    block = triangle(min(width, TUNING.block))
    steps = width + block + TUNING.more_steps * (width + 1)
    collectives = 2 + TUNING.more_steps
    return 2 + collectives, width + 3 + max(exactly, steps)


def most_of_many(width: int) -> int:
    """Return the size of the triangle of the Hessian on many active columns of dense rows."""
    return triangle(min(width, TUNING.most))


def _active(agent: Agent, w: FloatArray, gradient: FloatArray) -> Active:
    pull = np.abs(gradient)
    pull[w != 0] = np.inf
    if agent.problem.intercept:
        pull[-1] = np.inf
    held = int(np.isinf(pull).sum())
    thresholds = ridge_of(_threshold(agent), len(pull), agent.problem.free())
    active = np.flatnonzero(pull > thresholds)
    nearly_all = TUNING.nearly_all * len(pull) < len(active) <= TUNING.most
    if agent.problem.loss.quadratic and nearly_all:
        return Active(active, np.arange(len(pull)))
    most = max(TUNING.first, 2 * held)
    if len(active) <= most:
        return Active(active, active)
    steepest = np.argsort(-pull, kind="stable")[:most]
    return Active(active, np.sort(steepest))


def _exactly(
    agent: Agent, oracle: RowsOracle, gradient: FloatArray, columns: Columns
) -> Protocol[tuple[FloatArray, FloatArray | None]]:
    message = yield Sum(oracle.block(columns))

    def minimum() -> FloatArray:
        H = unpacked(message, len(columns)) / agent.total
        return minimiser(agent, H, gradient[columns], oracle.w[columns], columns)[0]

    return shared_result(message, minimum), None


def _step_by_step(
    agent: Agent, oracle: RowsOracle, gradient: FloatArray, columns: Columns
) -> Protocol[tuple[FloatArray, FloatArray | None]]:
    w = oracle.w
    local = oracle.local
    design = _restricted(agent.centred, columns)
    loss = agent.loss
    curvature = _firm_curvature(agent, oracle.curvature)
    curvatures = yield Sum(diagonal(design, curvature))
    block = shared_result(curvatures, _largest, agent, curvatures)
    message = yield Sum(packed(second_moment(design, curvature, block)))
    model = shared_result(message, _first, agent, w, gradient, columns, curvatures, block, message)
    scores = local.scores
    gradients = local.gradients
    values = loss.each(local.scores, local.y)
    duals = [gradients]
    new = np.count_nonzero(w[columns] == 0)
    if new > TUNING.few * len(columns):
        most = TUNING.steps
    else:
        most = TUNING.more_steps
    for _ in range(TUNING.more_steps):
        if model.steps == most or model.failures == TUNING.give_up or not model.way.any():
            break
        there = scores + design.forward(model.way)
        gradients_there = loss.gradient(there, local.y)
        values_there = loss.each(there, local.y)
        change = design.adjoint(agent.weighted(gradients_there - gradients)) / model.unit
        losses_change = float(agent.weighted(values_there - values).sum())
        own = np.append(change, losses_change)
        own = np.clip(own, -SINGLE_PRECISION, SINGLE_PRECISION)
        reply = yield Sum(own.astype(np.float32))
        taken = model.steps
        model = shared_result(reply, model.after, reply)
        if model.steps > taken:
            scores = there
            gradients = gradients_there
            values = values_there
            duals.append(gradients)
    if not model.steps:
        # A part of the last step is better than no step.
        return model.w + model.way, None
    shares = shared_result(model.w, model.mixture)
    if shares is None:
        return model.w, None
    last = duals[-len(shares) :]
    return model.w, sum(share * dual for share, dual in zip(shares, last, strict=True))


def _firm_curvature(agent: Agent, curvature: FloatArray) -> FloatArray:
    """Raise a piecewise constant ℓ'': a column may have only rows whose ℓ'' is 0 at w, and get its
    curvature during the step.
    """
    loss = agent.loss
    if loss.conjugate_curvature is None:
        return curvature
    least = np.full(len(curvature), TUNING.flat * loss.smoothness)
    return np.maximum(curvature, agent.weighted(least))


def _first(
    agent: Agent,
    w: FloatArray,
    gradient: FloatArray,
    columns: Columns,
    curvatures: FloatArray,
    block: Columns,
    message: FloatArray,
) -> Model:
    """Return the model before the first step."""
    n = agent.total
    free = int(agent.problem.intercept)
    pieces = agent.problem.penalty.pieces
    assert pieces is not None
    ridge = ridge_of(pieces.ridge, len(w), free)
    threshold = ridge_of(_threshold(agent), len(w), free)
    began = violation(w, gradient, ridge, threshold)
    place = np.full(len(columns), -1)
    place[block] = np.arange(len(block))
    unit = np.sqrt(curvatures)
    unit[unit == 0] = 1.0
    model = Model(
        total=n,
        w=w[columns],
        gradient=gradient[columns],
        ridge=ridge[columns],
        threshold=threshold[columns],
        unit=unit,
        H=unpacked(message, len(block)) / n,
        place=place,
        curvatures=curvatures / n,
        enough=_enough(agent, began),
        way=np.empty(0),
    )
    return model.aimed()


def _enough(agent: Agent, began: float) -> float:
    """Return the violation of the optimality conditions at which a round ends."""
    l1 = float(np.max(_threshold(agent)))
    if not l1 > 0:
        return began * TUNING.nearer
    began = min(began, TUNING.farthest * l1)
    share = max(TUNING.much_nearer, began / l1)
    return began * min(TUNING.nearer, share)


def _largest(agent: Agent, curvatures: FloatArray) -> Columns:
    """Return the columns of the largest curvature. The intercept, the last active column, is among
    them.
    """
    size = curvatures.copy()
    if agent.problem.intercept:
        size[-1] = np.inf
    largest = np.argsort(-size, kind="stable")[: TUNING.block]
    return np.sort(largest)


def _restricted(design: Design, columns: Columns) -> Design:
    """Return the design with these columns only; the last one may be that of the intercept."""
    d = design.X.shape[1]
    own = columns[columns < d]
    X = design.X[:, own]
    intercept = len(own) < len(columns)
    if isinstance(design, CentredDesign):
        return CentredDesign(X, intercept, design.centre[own], design.unit)
    return Design(X, intercept)


def _threshold(agent: Agent) -> float | FloatArray:
    """Return λ₁, or that of every column."""
    penalty = agent.problem.penalty
    pieces = penalty.pieces
    if pieces is not None and pieces.per_column:
        return pieces.threshold
    return penalty.value(np.ones(1)) - 0.5 * penalty.strong_convexity
