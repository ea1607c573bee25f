"""Newton's step for many columns beside l1: on those columns only that are not 0, or want to leave
it.

Where these are few, or rows are dense, all agents add up the triangle of the Hessian on them and
minimise the quadratic model. Sparse rows with many rare columns would make that triangle too large
to send. Of these, all columns that want to move do so at once: the agents add up the diagonal of H,
and its triangle on the `block` columns of the largest curvature, which many rows share. What else
there is of H they learn in steps of a quasi-Newton method (Scheinberg and Tang, 2016, "Practical
inexact proximal quasi-Newton method with global complexity analysis"):

    B₀  = H on the block, diag H elsewhere
    p   = argmin ⟨∇f(w), p⟩ + ½ pᵀBp + g(w + p)
        coordinate descent, alone
    y   = ∇f(w + p) − ∇f(w)                                      a `Sum` of a number for each column
        in play, and of f
    B⁺  = B − (Bp)(Bp)ᵀ/(pᵀBp) + yyᵀ/(pᵀy)                                                       so
        that B⁺p = y
    w⁺  = w + p                           if P falls; if not, B⁺ knows better or p is shortened, and
        w stays where it is

Rare columns have few rows in common, so that the Hessian without the block is nearly diagonal, and
a dozen such steps
reach the optimum on the columns in play. As only differences of slopes travel, single precision is
enough for them: their error is relative to the step. Every round begins with the whole gradient in
double precision.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from coterie.methods.second_order.low_rank_model import Model, violation
from coterie.methods.second_order.oracle import Aim, Columns
from coterie.methods.second_order.quadratic import minimiser
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
"""What fits into single precision, with others of its kind."""
WIDE = "measured: logistic l1 with 100,000 rare columns, λ = 3e-5 (docs/benchmarks.md)"
REAL = "measured: w8a, MNIST and texts, logistic l1"
LASSO = "measured: lasso of 300 to 1,000 columns, λ from 0.003 to 0.3 of the largest"


@dataclass(frozen=True)
class _Tuning(Tuning):
    exact: int = tuned(
        256, "Columns in play up to which all of their triangle is added up, ...", WIDE, costs=2
    )
    most: int = tuned(1500, "... or up to this number, ...", REAL)
    sparse: float = tuned(
        0.02, "... unless at most this share of the data is not 0.", WIDE, below=1, costs=3
    )
    first: int = tuned(
        200, "Columns that may come into play at once; or as many as are in play already.", REAL
    )
    nearly_all: float = tuned(
        0.8,
        "Share of the columns that want to move from which on all may, if ℓ'' is constant.",
        LASSO,
        below=1,
    )
    block: int = tuned(
        128, "Columns on which all of H is added up, where it is not on all columns in play.", WIDE
    )
    steps: int = tuned(8, "Quasi-Newton steps in a round at most, ...", WIDE)
    more_steps: int = tuned(24, "... or this many, ...", WIDE)
    few: float = tuned(
        0.1, "... if at most this share of the columns came into play.", WIDE, below=1
    )
    nearer: float = tuned(
        0.1,
        (
            "A round ends when the conditions of the optimum are so much nearer to holding than at "
            "its begin, ..."
        ),
        WIDE,
    )
    much_nearer: float = tuned(0.01, "... or so much, when they nearly held.", WIDE)
    farthest: float = tuned(
        10.0,
        (
            "Where the conditions fail by more, in units of λ, the columns in play are not yet the "
            "right ones."
        ),
        WIDE,
    )
    flat: float = tuned(
        0.1,
        "Where ℓ'' is constant by pieces, it counts as this share of its largest value at least.",
        "measured: squared hinge and Huber with many rare columns",
        below=1,
    )
    give_up: int = tuned(8, "A round ends after so many steps in succession that failed.", WIDE)


TUNING = _Tuning()


class Wanted(NamedTuple):
    """Columns that are not 0 or want to leave it, and the intercept."""

    all: Columns
    few: Columns
    """Those that are not 0 and the steepest others: at most as many again, or `first` in all. All
    columns, where nearly all are wanted and one step on them is the last.
    """


def target(agent: Agent, oracle: RowsOracle) -> Protocol[Aim]:
    """The minimum on the columns in play, of the quadratic model or nearly that of P itself."""
    w = oracle.w
    total = yield Sum(np.append(oracle.gradient, oracle.losses))
    gradient = shared_result(total, lambda: total[:-1] / agent.total)
    wanted = shared_result(total, _wanted, agent, w, gradient)
    few = True
    if len(wanted.all) > TUNING.exact:
        X = agent.data.X
        filled, cells = yield Sum(
            np.array([X.nnz if is_sparse(X) else math.prod(X.shape), math.prod(X.shape)], float)
        )
        few = len(wanted.few) <= TUNING.most and float(filled) > TUNING.sparse * float(cells)
    columns = wanted.few if few else wanted.all
    found, v = yield from (_exactly if few else _step_by_step)(agent, oracle, gradient, columns)

    def placed() -> FloatArray:
        z = w.copy()
        z[columns] = found
        return sealed(z)

    return Aim(
        shared_result(total, placed),
        gradient,
        float(total[-1]),
        float(np.linalg.norm(gradient)),
        v=v,
    )


def most_of_target(width: int) -> Counts:
    """The largest counts of `target`, of so many coefficients, where few are in play or rows are
    sparse.
    """
    exactly = 1, triangle(min(width, TUNING.exact))
    steps = (
        2 + TUNING.more_steps,
        width + triangle(min(width, TUNING.block)) + TUNING.more_steps * (width + 1),
    )
    return 2 + max(exactly[0], steps[0]), width + 3 + max(exactly[1], steps[1])


def most_of_many(width: int) -> int:
    """The numbers of the triangle of the Hessian on many columns in play, where rows are dense."""
    return triangle(min(width, TUNING.most))


def _wanted(agent: Agent, w: FloatArray, gradient: FloatArray) -> Wanted:
    pull = np.abs(gradient)
    pull[w != 0] = np.inf
    if agent.problem.intercept:
        pull[-1] = np.inf
    held = int(np.isinf(pull).sum())
    wanted = np.flatnonzero(pull > _threshold(agent))
    if agent.problem.loss.quadratic and TUNING.nearly_all * len(pull) < len(wanted) <= TUNING.most:
        return Wanted(wanted, np.arange(len(pull)))
    most = max(TUNING.first, 2 * held)
    return Wanted(
        wanted, wanted if len(wanted) <= most else np.sort(np.argsort(-pull, kind="stable")[:most])
    )


def _exactly(
    agent: Agent, oracle: RowsOracle, gradient: FloatArray, columns: Columns
) -> Protocol[tuple[FloatArray, FloatArray | None]]:
    message = yield Sum(oracle.block(columns))

    def minimum() -> FloatArray:
        H = unpacked(message, len(columns)) / agent.total
        return minimiser(agent, H, gradient[columns], oracle.w[columns])[0]

    return shared_result(message, minimum), None


def _step_by_step(
    agent: Agent, oracle: RowsOracle, gradient: FloatArray, columns: Columns
) -> Protocol[tuple[FloatArray, FloatArray | None]]:
    w = oracle.w
    local = oracle.here
    curvature = oracle.curvature
    design = _restricted(agent.centred, columns)
    loss = agent.loss
    if loss.conjugate_curvature is not None:
        # A column may have no rows but flat ones, and its curvature is then still to come.
        curvature = np.maximum(
            curvature, agent.weighted(np.full(len(curvature), TUNING.flat * loss.smoothness))
        )
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
        slopes_there = loss.gradient(there, local.y)
        values_there = loss.each(there, local.y)
        change = design.adjoint(agent.weighted(slopes_there - gradients)) / model.unit
        more = float(agent.weighted(values_there - values).sum())
        reply = yield Sum(
            np.clip(np.append(change, more), -SINGLE_PRECISION, SINGLE_PRECISION).astype(np.float32)
        )
        taken = model.steps
        model = shared_result(reply, model.after, reply)
        if model.steps > taken:
            scores = there
            gradients = slopes_there
            values = values_there
            duals.append(gradients)
    if not model.steps:
        # A part of the last step is better than to stay.
        return model.w + model.way, None
    shares = shared_result(model.w, model.mixture)
    if shares is None:
        v = None
    else:
        v = sum(share * dual for share, dual in zip(shares, duals[-len(shares) :], strict=True))
    return model.w, v


def _first(
    agent: Agent,
    w: FloatArray,
    gradient: FloatArray,
    columns: Columns,
    curvatures: FloatArray,
    block: Columns,
    message: FloatArray,
) -> Model:
    n = agent.total
    l1 = _threshold(agent)
    ridge = np.full(len(w), agent.problem.penalty.strong_convexity)
    threshold = np.full(len(w), l1)
    if agent.problem.intercept:
        ridge[-1] = threshold[-1] = 0.0
    began = violation(w, gradient, ridge, threshold)
    if l1 > 0:
        began = min(began, TUNING.farthest * l1)
    most = TUNING.nearer
    enough = began * min(most, max(TUNING.much_nearer, began / l1 if l1 > 0 else most))
    place = np.full(len(columns), -1)
    place[block] = np.arange(len(block))
    unit = np.sqrt(curvatures)
    unit[unit == 0] = 1.0
    model = Model(
        n,
        w[columns],
        gradient[columns],
        ridge[columns],
        threshold[columns],
        unit,
        unpacked(message, len(block)) / n,
        place,
        curvatures / n,
        enough,
        way=np.empty(0),
    )
    return model.aimed()


def _largest(agent: Agent, curvatures: FloatArray) -> Columns:
    """The columns of the largest curvature; the intercept, which is in play and the last one, is
    among them.
    """
    size = curvatures.copy()
    if agent.problem.intercept:
        size[-1] = np.inf
    return np.sort(np.argsort(-size, kind="stable")[: TUNING.block])


def _restricted(design: Design, columns: Columns) -> Design:
    """Those columns of it; the last one may be that of the intercept."""
    d = design.X.shape[1]
    own = columns[columns < d]
    X = design.X[:, own]
    intercept = len(own) < len(columns)
    if isinstance(design, CentredDesign):
        return CentredDesign(X, intercept, design.centre[own], design.unit)
    return Design(X, intercept)


def _threshold(agent: Agent) -> float:
    """λ₁."""
    penalty = agent.problem.penalty
    return penalty.value(np.ones(1)) - 0.5 * penalty.strong_convexity
