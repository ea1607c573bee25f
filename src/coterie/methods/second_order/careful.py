"""A Newton step for runs that stalled: as exact as float64 allows, with a dual that is not rounded
with the model.

    z = argmin ⟨∇f(w), z − w⟩ + ½ (z − w)ᵀ H (z − w) + g(z)              as in
    `second_order/quadratic_models.py`
    v = ℓ'(X̃w) + ℓ''∘X̃(z − w + δ)                                       the dual of that quadratic
    at its minimum

A model of columns with a mean of 1e6 is rounded to 1e-16 of itself, its scores to 1e-10, and their
slopes, added up over such columns, to 1e-4: at no model that float64 holds is the dual of the
slopes good enough for a small l1 penalty. Here δ is what rounding z, and solving for it, missed. On
the face of the penalty where z lies, g is smooth, and

    Aᵀ(MA δ) = −(X̃ᵀ(s∘v)/n + ∇g(z))                                     for the free coefficients,
    a few times

Without an intercept, columns are centred all the same: X = E + 1cᵀ, and M is the moment of (E, 1),
which loses no digits to c. The change of the scores is (E, 1)(δ, cᵀδ), an equation that a basis A
of its solutions keeps. The equations of `interior-point` are solved likewise.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from coterie.methods.line_search import penalty_at
from coterie.methods.second_order.oracle import Aim
from coterie.methods.second_order.quadratic import minimiser, solver
from coterie.numerics.arrays import CentredDesign, Design, FloatArray, host, sealed, shared_result
from coterie.numerics.local_loss import LocalLoss
from coterie.numerics.losses import Loss
from coterie.run.agent import Agent
from coterie.run.collectives import Protocol, Sum
from coterie.run.disclosure import Case, Counts, triangle
from coterie.stats.moments import moment_message, unpacked

PASSES = 3
"""How often what is missing is looked for."""
FACE = 1e-9
"""Coefficients below this share of the largest are 0, where a penalty ties coefficients together.
"""
DEPENDENT = 1e-12
"""Squared pivots below this, for a diagonal of 1, are those of columns that depend on others."""
ROUNDINGS = 1e-15
"""The share of a diagonal that is lost in solving equations, for each of them."""
TURNS, WORK = 6, 1e10
"""Faces that are looked at for every coefficient, and operations for all of them."""
SATISFIED = 1e-12
"""A coefficient stays where it is if it pulls less than this share of the largest slope."""
LEAST = 1e-30
"""Where a loss and its slope are both 0 there is no secant."""


class Face(NamedTuple):
    """Where on the penalty a model lies."""

    free: npt.NDArray[np.intp]
    slope: FloatArray
    """∇g of the free coefficients."""
    curvature: FloatArray
    """∇²g of the same."""
    tied: FloatArray
    """What the change of the free coefficients is orthogonal to; empty if to nothing."""


def secant(loss: Loss, scores: FloatArray, gradients: FloatArray, y: FloatArray) -> FloatArray:
    """The curvature of the parabola around the minimum of a loss that touches the loss at that
    score.

    For a loss that is quadratic and then linear it is not below the loss: steps on it lead down
    (Huber 1981).
    """
    values = loss.each(scores, y) + gradients**2 / (2.0 * loss.smoothness)
    return np.divide(gradients**2, values, out=np.zeros(len(gradients)), where=values > LEAST)


def most_of_target(case: Case) -> Counts:
    """The largest counts of `target`: of `centred`, of the Hessian with a column for the means, and
    of each pass.
    """
    width = case.columns + 1
    return 2 + PASSES, 2 * case.columns + triangle(width) + width + 1 + PASSES * width


def target(agent: Agent, w: FloatArray, local: LocalLoss, bend: FloatArray) -> Protocol[Aim]:
    """The minimum of the quadratic with that ℓ'', and its dual."""
    design = yield from centred(agent)
    gradients = _on_host(local.gradients)
    losses = np.array([local.losses])
    adjoint = design.adjoint(agent.weighted(gradients))
    total = yield Sum(moment_message(design, agent.weighted(bend), False, adjoint, losses))
    width = design.shape[1]
    n = agent.total

    def aimed() -> tuple[FloatArray, FloatArray, FloatArray, FloatArray, FloatArray, float]:
        M = unpacked(total, width) / n
        T = _plain(agent, design)
        H = T.T @ M @ T
        slope = T.T @ (total[-width - 1 : -1] / n)
        z = minimiser(agent, H, slope, w)[0]
        z, moved = _walked(agent, design, M, total[-width - 1 : -1] / n, w, z, T @ (z - w))
        return sealed(z), moved, M, H, sealed(slope), float(total[-1])

    z, moved, M, H, slope, losses_here = shared_result(total, aimed)
    v = gradients + bend * design.forward(moved)
    for _ in range(PASSES):
        message = yield Sum(design.adjoint(agent.weighted(v)))
        z, missing = shared_result(message, _missing, agent, design, M, message / n, z)
        v = v + bend * design.forward(missing)
    step = z - w
    falls = (
        penalty_at(agent, w) - penalty_at(agent, z) - float(slope @ step + 0.5 * step @ (H @ step))
    )
    return Aim(z, slope, losses_here, float(np.linalg.norm(slope)), falls, v=v)


def centred(agent: Agent) -> Protocol[Design]:
    """The design with its columns centred, and a column for their means."""
    if agent.problem.intercept:
        return agent.centred
    if "careful design" not in agent.scratch:
        ones = agent.weighted(np.ones(agent.data.n))
        known = yield Sum(np.append(agent.design.adjoint(ones), agent.column_squares))
        centre, squares = np.split(known.astype(float) / agent.total, 2)
        if len(squares):
            spread = float(np.maximum(squares - centre**2, 0.0).mean())
        else:
            spread = 0.0
        unit = math.sqrt(spread) or math.sqrt(float(squares.mean()) if len(squares) else 1.0) or 1.0
        agent.scratch["careful design"] = CentredDesign(agent.data.X, True, centre, unit)
    design: Design = agent.scratch["careful design"]
    return design


def _plain(agent: Agent, design: Design) -> FloatArray:
    """T: the coordinates of that design, from those of the model."""
    width = design.shape[1]
    if agent.problem.intercept or not isinstance(design, CentredDesign):
        return np.eye(width)
    return np.vstack([np.eye(width - 1), design.centre / design.unit])


def _missing(
    agent: Agent, design: Design, M: FloatArray, slope: FloatArray, z: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """z moved on its face to where the quadratic is least, and by how much it should have been,
    unrounded.
    """
    face = _face(agent, z)
    nothing = np.zeros(design.shape[1])
    if face is None or not face.free.size:
        return z, nothing
    free = face.free
    if agent.problem.intercept:
        means = free[:0]
    else:
        means = np.array([design.shape[1] - 1])
    places = np.append(free, means)
    A = M[np.ix_(places, places)].copy()
    pull = -slope[places]
    A[: len(free), : len(free)] += face.curvature
    pull[: len(free)] -= face.slope
    equations = _equations(agent, design, free)
    if face.tied.size:
        equations.append(np.append(face.tied, np.zeros(len(means))))
    found = _solver(A, equations, DEPENDENT)(pull)
    nothing[places] = found
    moved = z.copy()
    moved[free] += found[: len(free)]
    return (sealed(moved) if _same_face(agent, z, moved) else z), nothing


def _walked(
    agent: Agent,
    design: Design,
    M: FloatArray,
    slope: FloatArray,
    w: FloatArray,
    z: FloatArray,
    moved: FloatArray,
) -> tuple[FloatArray, FloatArray]:
    """z at the minimum of the quadratic, from face to face of a penalty that falls apart into
    coordinates.

    `moved` is z − w in the coordinates of the design, and is returned unrounded. Every step ends at
    the minimum of a face, or where a coefficient meets 0 or a bound, which it then keeps; at a
    minimum the coefficient is let go that pulls most. Where columns have large means, descent by
    coordinates would need too many steps.
    """
    problem = agent.problem
    pieces = problem.penalty.pieces
    width = len(z)
    d = len(z) - problem.free()
    if pieces is None or not pieces.separable or not pieces.kinds:
        return z, moved
    T = _plain(agent, design)
    z = z.copy()
    moved = moved.copy()
    low, high, threshold, ridge = (np.zeros(width) for _ in range(4))
    low[:d] = pieces.lower
    high[:d] = pieces.upper
    threshold[:d] = pieces.threshold
    ridge[:d] = pieces.ridge
    low[d:] = -np.inf
    high[d:] = np.inf
    lengths = np.sqrt(np.maximum(np.einsum("ij,ik,kj->j", T, M, T), 0.0)) + np.sqrt(ridge)
    sign = np.sign(z) * (threshold > 0)
    free = ((z != 0) | (threshold == 0)) & (z > low) & (z < high) & (lengths > 0)
    scale = np.divide(1.0, lengths, out=np.zeros(width), where=lengths > 0)
    steepest = float((np.abs(T.T @ slope) * scale).max(initial=0.0)) + float(
        (threshold * scale).max(initial=0.0)
    )
    for _ in range(min(TURNS * width, int(WORK / width**3) + 2)):
        if agent.should_stop():
            break
        pull = -(slope + M @ moved)
        places = np.flatnonzero(free)
        if places.size:
            found = _on_face(agent, design, M, pull, places, ridge, ridge * z + threshold * sign)
            way = found[:width]
            end_low = np.where(sign > 0, np.maximum(low, 0.0), low)
            end_high = np.where(sign < 0, np.minimum(high, 0.0), high)
            end = np.where(way > 0, end_high, end_low)
            shares = np.divide(end - z, way, out=np.full(width, np.inf), where=(way != 0) & free)
            share = min(1.0, max(float(shares.min()), 0.0))
            moved += share * found
            met = (shares <= share) & free
            z = np.where(met, end, z + share * way)
            if share < 1.0:
                free &= ~met
                continue
            pull = -(slope + M @ moved)
        force = T.T @ pull - ridge * z
        up = (
            np.where((z < high) & ~free, force - np.where(z >= 0, threshold, -threshold), 0.0)
            * scale
        )
        down = (
            np.where((z > low) & ~free, -force - np.where(z <= 0, threshold, -threshold), 0.0)
            * scale
        )
        best = int(np.argmax(np.maximum(up, down)))
        if max(up[best], down[best]) <= SATISFIED * steepest:
            break
        free[best] = True
        rising = up[best] >= down[best]
        if threshold[best] > 0:
            sign[best] = (1.0 if rising else -1.0) if z[best] == 0 else np.sign(z[best])
    return z, moved


def _on_face(
    agent: Agent,
    design: Design,
    M: FloatArray,
    pull: FloatArray,
    free: npt.NDArray[np.intp],
    ridge: FloatArray,
    slope: FloatArray,
) -> FloatArray:
    """The way to the minimum of the quadratic on that face, in the coordinates of the design."""
    if agent.problem.intercept:
        means = free[:0]
    else:
        means = np.array([design.shape[1] - 1])
    places = np.append(free, means)
    A = M[np.ix_(places, places)].copy()
    b = pull[places]
    A[np.arange(len(free)), np.arange(len(free))] += ridge[free]
    b[: len(free)] -= slope[free]
    found = np.zeros(design.shape[1])
    found[places] = _solver(A, _equations(agent, design, free), DEPENDENT)(b)
    return found


class Equations:
    """b ↦ (H + C)⁻¹b for the free coefficients, 0 for the others; M is the moment of that
    design.
    """

    def __init__(
        self, agent: Agent, design: Design, M: FloatArray, C: FloatArray, free: npt.NDArray[np.intp]
    ):
        if agent.problem.intercept:
            means = free[:0]
        else:
            means = np.array([design.shape[1] - 1])
        self.width = design.shape[1]
        self.coefficients = len(C)
        self.free = free
        self.places = np.append(free, means)
        A = M[np.ix_(self.places, self.places)].copy()
        A[: len(free), : len(free)] += C[np.ix_(free, free)]
        # Columns that depend on others have no curvature: this much is below what the equations are
        # known to.
        A.flat[:: len(A) + 1] *= 1.0 + ROUNDINGS * len(A)
        self._solve = _solver(A, _equations(agent, design, free), 0.0)

    def __call__(self, b: FloatArray) -> FloatArray:
        return self.in_design(np.append(b, np.zeros(self.width - self.coefficients)))[
            : self.coefficients
        ]

    def in_design(self, b: FloatArray) -> FloatArray:
        """The same in the coordinates of the design, where the score of the means is one more."""
        found = np.zeros(self.width)
        found[self.places] = self._solve(b[self.places])
        return found


def _equations(agent: Agent, design: Design, free: npt.NDArray[np.intp]) -> list[FloatArray]:
    """What a change of the free coefficients and of the means' score is orthogonal to, without an
    intercept.
    """
    if agent.problem.intercept:
        return []
    assert isinstance(design, CentredDesign)
    return [np.append(design.centre[free], -design.unit)]


def _solver(
    A: FloatArray, equations: list[FloatArray], least_pivot: float
) -> Callable[[FloatArray], FloatArray]:
    """b ↦ x with A x = b among those x that are orthogonal to these vectors, where A is scaled to a
    diagonal of 1.
    """
    diagonal = np.maximum(A.diagonal(), 0.0)
    scale = np.divide(1.0, np.sqrt(diagonal), out=np.ones(len(A)), where=diagonal > 0)
    basis = np.eye(len(A))
    if equations:
        Q = np.linalg.qr((np.array(equations) * scale).T, mode="complete")[0]
        basis = Q[:, len(equations) :]
    basis = scale[:, None] * basis
    inside = basis.T @ A @ basis
    solve: Callable[[FloatArray], FloatArray] = solver(inside, np.zeros(len(inside)), least_pivot)[
        0
    ]
    return lambda b: basis @ solve(basis.T @ b)


def _face(agent: Agent, z: FloatArray) -> Face | None:
    """Where on the penalty z lies; None if that is not known."""
    problem = agent.problem
    width = len(z)
    d = width - problem.free()
    pieces = problem.penalty.pieces
    w = z[:d]
    if pieces is None:
        return None
    free = np.ones(width, bool)
    slope = np.zeros(width)
    tied = np.zeros(width)
    slope[:d] = pieces.ridge * w
    curvature = np.zeros((width, width))
    curvature[np.arange(d), np.arange(d)] = pieces.ridge
    free[:d] &= (w > pieces.lower) & (w < pieces.upper)
    if pieces.threshold > 0:
        free[:d] &= w != 0
        slope[:d] += pieces.threshold * np.sign(w)
    small = FACE * float(np.abs(w).max(initial=0.0))
    if pieces.groups is not None:
        assert pieces.strengths is not None
        for group, strength in enumerate(pieces.strengths):
            members = np.flatnonzero(pieces.groups == group)
            length = float(np.linalg.norm(w[members]))
            if length <= small and strength > 0:
                free[members] = False
                continue
            if strength > 0:
                way = w[members] / length
                slope[members] += strength * way
                hessian_product = (np.eye(len(members)) - np.outer(way, way)) * (strength / length)
                curvature[np.ix_(members, members)] += hessian_product
    if pieces.radius < math.inf and np.abs(w).sum() >= (1.0 - FACE) * pieces.radius:
        free[:d] &= np.abs(w) > small
        tied[:d] = np.sign(w)
    places = np.flatnonzero(free)
    tied = tied[places]
    return Face(
        places,
        slope[places],
        curvature[np.ix_(places, places)],
        tied if tied.any() else np.empty(0),
    )


def _same_face(agent: Agent, z: FloatArray, moved: FloatArray) -> bool:
    """Whether both lie on one face of the penalty."""
    penalty = agent.problem.penalty
    problem = agent.problem
    pieces = penalty.pieces
    assert pieces is not None
    if not np.isfinite(moved).all() or not math.isfinite(
        penalty.value(problem.coefficients(moved))
    ):
        return False
    if pieces.threshold > 0 or pieces.radius < math.inf:
        before, after = (np.sign(problem.coefficients(one)) for one in (z, moved))
        return bool((before == after).all())
    return True


def _on_host(values: Any) -> FloatArray:
    numbers: FloatArray = np.asarray(host(values), float)
    return numbers
