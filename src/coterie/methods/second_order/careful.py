"""A Newton step for runs that stalled: as exact as float64 allows, with dual variables that are not
rounded with the model.

    z = argmin ⟨∇f(w), z − w⟩ + ½ (z − w)ᵀ H (z − w) + g(z)        as in `quadratic_models.py`
    v = ℓ'(X̃w) + ℓ''∘X̃(z − w + δ)                                 the dual variables of that
                                                                  quadratic at its minimum

Let the columns have a mean of 1e6. Rounding changes the model by 1e-16 of itself, its scores by
1e-10, and the gradient, a sum over such columns, by 1e-4. So at every model that float64 can hold,
the gradients of the loss are dual variables that are too inexact for a small l1 penalty. Here δ
is the part that rounding z, and solving for z, left out. On the face of the penalty that contains
z, g is smooth, and the agents solve a few times

    Aᵀ(MA δ) = −(X̃ᵀ(s∘v)/n + ∇g(z))                               for the free coefficients

Columns are centred also without an intercept: X = E + 1cᵀ, and M is the moment of (E, 1), which
loses no digits to c. The change of the scores is (E, 1)(δ, cᵀδ). The columns of A are a basis of
the vectors (δ, cᵀδ), with one number cᵀδ for each score of a row. The equations of `interior-point`
are solved in the same way.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from coterie.methods.line_search import penalty_at
from coterie.methods.second_order.oracle import Aim
from coterie.methods.second_order.quadratic import (
    FLAT,
    SEEN,
    Coordinates,
    Quadratic,
    coordinates_of,
    minimiser,
    solver,
)
from coterie.numerics.arrays import CentredDesign, Design, FloatArray, host, sealed, shared_result
from coterie.numerics.local_loss import LocalLoss
from coterie.numerics.losses import Loss
from coterie.numerics.penalties.pieces import Pieces
from coterie.run.agent import Agent
from coterie.run.collectives import Protocol, Sum
from coterie.run.disclosure import Case, Counts, triangle
from coterie.stats.moments import moment_message, unpacked

PASSES = 3
"""How many times the agents correct v by a further δ."""
FACE = 1e-9
"""Coefficients below this share of the largest are 0, where the penalty is not separable."""
DEPENDENT = 1e-12
"""Squared pivots below this, for a diagonal of 1, belong to columns that depend on others."""
ROUNDINGS = 1e-15
"""The share of a diagonal that solving loses, for each equation."""
TURNS = 6
"""The largest number of faces to try, for each coefficient."""
WORK = 1e10
"""The largest number of operations for all faces."""
SATISFIED = 1e-12
"""A coefficient stays at 0 or a bound if its pull is less than this share of the largest gradient.
"""
LEAST = 1e-30
"""Where a loss and its gradient are both 0, there is no secant."""


class Face(NamedTuple):
    """The face of the penalty that contains a model."""

    free: npt.NDArray[np.intp]
    gradient: FloatArray
    """∇g of the free coefficients."""
    curvature: FloatArray
    """∇²g of the free coefficients."""
    tied: FloatArray
    """A vector to which changes of the free coefficients are orthogonal; empty if there is none."""


class RowsNearby(ABC):
    """The loss of an agent's own rows near w: its gradient, and a parabola."""

    @property
    @abstractmethod
    def gradients(self) -> FloatArray:
        """ℓ'(X̃w), a number for each score."""

    @property
    @abstractmethod
    def losses(self) -> float:
        """Σ s ℓ."""

    def design(self, columns: Design) -> Design:
        """Return the map from a model to the scores of the rows, from the centred columns."""
        return columns

    @abstractmethod
    def weighted(self, v: FloatArray) -> FloatArray:
        """s∘v."""

    @abstractmethod
    def hessian_message(self, design: Design, *more: FloatArray) -> FloatArray:
        """Return the upper triangle of X̃ᵀ diag(s ℓ'') X̃ for that design, and then more numbers."""

    @abstractmethod
    def gradient_change(self, change: FloatArray) -> FloatArray:
        """ℓ'' times a change of the scores."""


@dataclass(frozen=True)
class OneScore(RowsNearby):
    """Rows with one score each, and the ℓ'' of the parabola."""

    agent: Agent
    local: LocalLoss
    curvature: FloatArray

    @property
    def gradients(self) -> FloatArray:
        return _on_host(self.local.gradients)

    @property
    def losses(self) -> float:
        return float(self.local.losses)

    def weighted(self, v: FloatArray) -> FloatArray:
        return self.agent.weighted(v)

    def hessian_message(self, design: Design, *more: FloatArray) -> FloatArray:
        weights = self.agent.weighted(self.curvature)
        return moment_message(design, weights, False, *more)

    def gradient_change(self, change: FloatArray) -> FloatArray:
        return self.curvature * change


def secant(loss: Loss, scores: FloatArray, gradients: FloatArray, y: FloatArray) -> FloatArray:
    """Return the curvature of the parabola with the minimum of the loss that touches the loss at
    these scores.

    For a loss that is quadratic and then linear, the parabola is not below the loss, so its
    minimum decreases the loss (Huber 1981).
    """
    values = loss.each(scores, y) + gradients**2 / (2.0 * loss.smoothness)
    return np.divide(gradients**2, values, out=np.zeros(len(gradients)), where=values > LEAST)


def most_of_target(case: Case) -> Counts:
    """Return the largest counts of `target`: of `centred`, of the Hessian with a column for the
    means, and of each pass.
    """
    width = (case.columns + 1) * case.outputs
    of_centring = 2 * case.columns
    of_hessian = triangle(width) + width + 1
    return 2 + PASSES, of_centring + of_hessian + PASSES * width


class _Minimum(NamedTuple):
    """The minimum of the quadratic, and facts that all agents know of it."""

    z: FloatArray
    moved: FloatArray
    """z − w in the coordinates of the centred design, before rounding."""
    M: FloatArray
    model: Quadratic
    losses: float
    """n f(w)."""


def target(agent: Agent, w: FloatArray, rows: RowsNearby) -> Protocol[Aim]:
    """Find the minimum of the quadratic with the ℓ'' of these rows, and its dual variables."""
    columns = yield from centred(agent)
    design = rows.design(columns)
    gradients = rows.gradients
    losses = np.array([rows.losses])
    adjoint = design.adjoint(rows.weighted(gradients))
    total = yield Sum(rows.hessian_message(design, adjoint, losses))
    minimum = shared_result(total, _minimum, agent, design, w, total)
    z = minimum.z
    v = gradients + rows.gradient_change(design.forward(minimum.moved))
    for _ in range(PASSES):
        message = yield Sum(design.adjoint(rows.weighted(v)))
        mean = message / agent.total
        z, missing = shared_result(message, _missing, agent, design, minimum.M, mean, z)
        v = v + rows.gradient_change(design.forward(missing))
    model = minimum.model
    gradient = model.gradient
    steepness = float(np.linalg.norm(gradient))
    penalty_falls = penalty_at(agent, w) - penalty_at(agent, z)
    foreseen = penalty_falls - model.after(z - w)
    return Aim(z, gradient, minimum.losses, steepness, foreseen, v=v)


def _minimum(agent: Agent, design: Design, w: FloatArray, total: FloatArray) -> _Minimum:
    width = design.shape[1]
    M = unpacked(total, width) / agent.total
    gradient_in_design = total[-width - 1 : -1] / agent.total
    T = _from_model(agent, width)
    H = T.T @ M @ T
    gradient = T.T @ gradient_in_design
    found = minimiser(agent, H, gradient, w)[0]
    in_design = T @ (found - w)
    # H has lost digits to the means, and M has not: by M, the minimum by H may be worse than w.
    change = float(gradient_in_design @ in_design + 0.5 * in_design @ (M @ in_design))
    if not penalty_at(agent, found) + change < penalty_at(agent, w):
        found = w
        in_design = np.zeros(width)
    z, moved = _walked(agent, design, M, gradient_in_design, found, in_design)
    model = Quadratic(H, sealed(gradient), w)
    return _Minimum(sealed(z), moved, M, model, float(total[-1]))


def centred(agent: Agent) -> Protocol[Design]:
    """Return the design with centred columns and a column for their means."""
    if agent.problem.intercept:
        return agent.centred
    if "careful design" not in agent.scratch:
        ones = agent.weighted(np.ones(agent.data.n))
        sums = Design(agent.data.X).adjoint(ones)
        received = yield Sum(np.append(sums, agent.column_squares))
        centre, squares = np.split(received.astype(float) / agent.total, 2)
        unit = _unit(centre, squares)
        agent.scratch["careful design"] = CentredDesign(agent.data.X, True, centre, unit)
    design: Design = agent.scratch["careful design"]
    return design


def _unit(centre: FloatArray, squares: FloatArray) -> float:
    """Return the size of the column for the means: the spread of the columns, if they have one."""
    if not len(squares):
        return 1.0
    spread = float(np.maximum(squares - centre**2, 0.0).mean())
    mean_square = float(squares.mean())
    return math.sqrt(spread) or math.sqrt(mean_square) or 1.0


def _from_model(agent: Agent, width: int) -> FloatArray:
    """Return T, which turns the coordinates of the model into those of a design of that width."""
    if agent.problem.intercept:
        return np.eye(width)
    outputs = agent.problem.outputs
    of_means = np.kron(_means(agent), _differences(outputs))
    return np.vstack([np.eye(width - outputs), of_means])


def _means(agent: Agent) -> FloatArray:
    """Return the means of the columns, in units of the column that `centred` has for them."""
    columns: CentredDesign = agent.scratch["careful design"]
    means: FloatArray = columns.centre / columns.unit
    return means


def _differences(outputs: int) -> FloatArray:
    """Return what turns the scores of a row into the part that the loss depends on.

    To the scores of several classes, the same number can be added without any effect. That number
    may be as large as the means.
    """
    if outputs == 1:
        return np.eye(1)
    differences: FloatArray = np.eye(outputs) - 1.0 / outputs
    return differences


def _missing(
    agent: Agent, design: Design, M: FloatArray, gradient: FloatArray, z: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return z, moved on its face to the minimum of the quadratic, and δ, which is not rounded."""
    face = _face(agent, z)
    delta = np.zeros(design.shape[1])
    if face is None or not face.free.size:
        return z, delta
    free = face.free
    count = len(free)
    places = _places(agent, design, free)
    A = M[np.ix_(places, places)].copy()
    pull = -gradient[places]
    A[:count, :count] += face.curvature
    pull[:count] -= face.gradient
    equations = _equations(agent, free)
    if face.tied.size:
        no_means = np.zeros(len(places) - count)
        equations.append(np.append(face.tied, no_means))
    found = _solver(A, equations, DEPENDENT)(pull)
    delta[places] = found
    moved = z.copy()
    moved[free] += found[:count]
    if _same_face(agent, z, moved):
        return sealed(moved), delta
    return z, delta


def _places(agent: Agent, design: Design, free: npt.NDArray[np.intp]) -> npt.NDArray[np.intp]:
    """Return the free coefficients and, without an intercept, those of the means."""
    if agent.problem.intercept:
        return free
    width = design.shape[1]
    return np.append(free, np.arange(width - agent.problem.outputs, width))


def _walked(
    agent: Agent,
    design: Design,
    M: FloatArray,
    gradient: FloatArray,
    z: FloatArray,
    moved: FloatArray,
) -> tuple[FloatArray, FloatArray]:
    """Move z to the minimum of the quadratic, from face to face of a separable penalty.

    `moved` is z − w in the coordinates of the design, and is returned unrounded. Every step ends at
    the minimum of a face, or where a coefficient meets 0 or a bound, which it then keeps. At a
    minimum, the coefficient with the largest pull is released. Where columns have large means,
    coordinate descent would need too many steps.
    """
    pieces = agent.problem.penalty.pieces
    width = len(z)
    if pieces is None or not pieces.separable or not pieces.kinds:
        return z, moved
    T = _from_model(agent, design.shape[1])
    z = z.copy()
    moved = moved.copy()
    coordinates = coordinates_of(pieces, width, agent.problem.free())
    ridge = coordinates.ridge
    threshold = coordinates.threshold
    curvatures = np.einsum("ij,ik,kj->j", T, M, T)
    lengths = np.sqrt(np.maximum(curvatures, 0.0)) + np.sqrt(ridge)
    scale = np.divide(1.0, lengths, out=np.zeros(width), where=lengths > 0)
    largest_gradient = float((np.abs(T.T @ gradient) * scale).max(initial=0.0))
    largest_threshold = float((threshold * scale).max(initial=0.0))
    least_pull = SATISFIED * (largest_gradient + largest_threshold)
    sign = np.sign(z) * (threshold > 0)
    free = coordinates.inside(z) & (lengths > 0)
    turns = min(TURNS * width, int(WORK / width**3) + 2)
    for _ in range(turns):
        if agent.should_stop():
            break
        pull = -(gradient + M @ moved)
        places = np.flatnonzero(free)
        if places.size:
            penalty_gradient = ridge * z + threshold * sign
            way, farthest = _on_face(agent, design, M, pull, places, coordinates, penalty_gradient)
            face = coordinates.face(sign)
            share, z, met = _stepped(z, way[:width], free, face, farthest)
            moved += share * way
            if share < farthest:
                if not met.any():
                    break
                free &= ~met
                continue
            pull = -(gradient + M @ moved)
        force = T.T @ pull - ridge * z
        up, down = _releasing_pulls(z, free, force, coordinates)
        up = up * scale
        down = down * scale
        best = int(np.argmax(np.maximum(up, down)))
        if max(up[best], down[best]) <= least_pull:
            break
        free[best] = True
        if threshold[best] > 0:
            sign[best] = _sign_after(z[best], up[best] >= down[best])
    return z, moved


def _stepped(
    z: FloatArray,
    way: FloatArray,
    free: npt.NDArray[np.bool_],
    face: tuple[FloatArray, FloatArray],
    farthest: float,
) -> tuple[float, FloatArray, npt.NDArray[np.bool_]]:
    """Go that way until a free coefficient meets an end of its interval, or as far as `farthest`.

    Return the share of the way, the new z, and which coefficients met their end.
    """
    low, high = face
    end = np.where(way > 0, high, low)
    moves = (way != 0) & free
    shares = np.divide(end - z, way, out=np.full(len(z), np.inf), where=moves)
    share = min(farthest, max(float(shares.min()), 0.0))
    if share == math.inf:
        return 0.0, z, np.zeros(len(z), bool)
    met = (shares <= share) & free
    return share, np.where(met, end, z + share * way), met


def _releasing_pulls(
    z: FloatArray, free: npt.NDArray[np.bool_], force: FloatArray, coordinates: Coordinates
) -> tuple[FloatArray, FloatArray]:
    """Return by how much the force on each fixed coefficient exceeds the threshold, upwards and
    downwards; 0 where the coefficient is free or its bound is in the way.
    """
    threshold = coordinates.threshold
    may_rise = (z < coordinates.upper) & ~free
    may_fall = (z > coordinates.lower) & ~free
    against_rise = np.where(z >= 0, threshold, -threshold)
    against_fall = np.where(z <= 0, threshold, -threshold)
    up = np.where(may_rise, force - against_rise, 0.0)
    down = np.where(may_fall, -force - against_fall, 0.0)
    return up, down


def _sign_after(coefficient: float, rises: bool) -> float:
    """Return the sign of a coefficient that is released."""
    if coefficient != 0:
        return float(np.sign(coefficient))
    if rises:
        return 1.0
    return -1.0


def _on_face(
    agent: Agent,
    design: Design,
    M: FloatArray,
    pull: FloatArray,
    free: npt.NDArray[np.intp],
    coordinates: Coordinates,
    penalty_gradient: FloatArray,
) -> tuple[FloatArray, float]:
    """Return the way to the minimum of the quadratic on that face, in the coordinates of the
    design, and how often to go it at most.

    That is once, or without end in a valley in which the quadratic is flat and the thresholds
    alone lead down.
    """
    count = len(free)
    places = _places(agent, design, free)
    A = M[np.ix_(places, places)].copy()
    b = pull[places]
    A[np.arange(count), np.arange(count)] += coordinates.ridge[free]
    b[:count] -= penalty_gradient[free]
    thresholds = np.zeros(len(places))
    thresholds[:count] = coordinates.threshold[free]
    basis = _basis(A, _equations(agent, free))
    inside = basis.T @ A @ basis
    solve, pivot = solver(inside, np.zeros(len(inside)), DEPENDENT)
    way = np.zeros(design.shape[1])
    if pivot == 0.0:
        way[places] = basis @ _flat_valley(inside, basis.T @ b, basis.T * thresholds)
        if way.any():
            return way, math.inf
    way[places] = basis @ solve(basis.T @ b)
    return way, 1.0


def _flat_valley(inside: FloatArray, pull: FloatArray, thresholds: FloatArray) -> FloatArray:
    """Return the part of the pull along which that matrix has no curvature; zeros if it is
    rounding.
    """
    values, vectors = np.linalg.eigh(inside)
    flat = vectors[:, values <= FLAT * max(float(values.max(initial=0.0)), 0.0)]
    along: FloatArray = flat @ (flat.T @ pull)
    small = SEEN * float(np.linalg.norm(flat.T @ thresholds))
    if float(np.linalg.norm(along)) > small > 0:
        return along
    return np.zeros(len(pull))


class Equations:
    """b ↦ (H + C)⁻¹b for the free coefficients, 0 for the others; M is the moment of that
    design.
    """

    def __init__(
        self, agent: Agent, design: Design, M: FloatArray, C: FloatArray, free: npt.NDArray[np.intp]
    ):
        self.width = design.shape[1]
        self.coefficients = len(C)
        self.free = free
        self.places = _places(agent, design, free)
        count = len(free)
        A = M[np.ix_(self.places, self.places)].copy()
        A[:count, :count] += C[np.ix_(free, free)]
        # Columns that depend on others have no curvature. This increase is below the rounding of
        # the equations.
        A.flat[:: len(A) + 1] *= 1.0 + ROUNDINGS * len(A)
        self._solve = _solver(A, _equations(agent, free), 0.0)

    def __call__(self, b: FloatArray) -> FloatArray:
        no_means = np.zeros(self.width - self.coefficients)
        solution = self.in_design(np.append(b, no_means))
        return solution[: self.coefficients]

    def in_design(self, b: FloatArray) -> FloatArray:
        """Solve in the coordinates of the design, which has one more for the means."""
        found = np.zeros(self.width)
        found[self.places] = self._solve(b[self.places])
        return found


def _equations(agent: Agent, free: npt.NDArray[np.intp]) -> list[FloatArray]:
    """Return the vectors to which a change of the free coefficients and of the means is
    orthogonal: none with an intercept, else one for each score of a row.
    """
    if agent.problem.intercept:
        return []
    outputs = agent.problem.outputs
    column, output = np.divmod(free, outputs)
    means = _means(agent)[column]
    own = np.eye(outputs)
    parts = _differences(outputs)
    return [np.append(means * parts[k, output], -own[k]) for k in range(outputs)]


def _solver(
    A: FloatArray, equations: list[FloatArray], least_pivot: float
) -> Callable[[FloatArray], FloatArray]:
    """Return b ↦ x with A x = b among the x that are orthogonal to these vectors. A is scaled to a
    diagonal of 1.
    """
    basis = _basis(A, equations)
    inside = basis.T @ A @ basis
    no_ridge = np.zeros(len(inside))
    solve, _ = solver(inside, no_ridge, least_pivot)
    return lambda b: basis @ solve(basis.T @ b)


def _basis(A: FloatArray, equations: list[FloatArray]) -> FloatArray:
    """Return a basis of the vectors that are orthogonal to these, on scales in which A has a
    diagonal of 1.
    """
    diagonal = np.maximum(A.diagonal(), 0.0)
    scale = np.divide(1.0, np.sqrt(diagonal), out=np.ones(len(A)), where=diagonal > 0)
    basis = np.eye(len(A))
    if equations:
        Q = np.linalg.qr((np.array(equations) * scale).T, mode="complete")[0]
        basis = Q[:, len(equations) :]
    return scale[:, None] * basis


def _face(agent: Agent, z: FloatArray) -> Face | None:
    """Return the face of the penalty that contains z; None if the pieces of the penalty are not
    declared.
    """
    problem = agent.problem
    width = len(z)
    d = width - problem.free()
    pieces = problem.penalty.pieces
    w = z[:d]
    if pieces is None:
        return None
    free = np.ones(width, bool)
    gradient = np.zeros(width)
    tied = np.zeros(width)
    gradient[:d] = pieces.ridge * w
    curvature = np.zeros((width, width))
    curvature[np.arange(d), np.arange(d)] = pieces.ridge
    free[:d] &= (w > pieces.lower) & (w < pieces.upper)
    if pieces.has_threshold:
        free[:d] &= (w != 0) | (np.asarray(pieces.threshold) == 0)
        gradient[:d] += pieces.threshold * np.sign(w)
    small = FACE * float(np.abs(w).max(initial=0.0))
    _add_groups(pieces, w, small, free, gradient, curvature)
    if pieces.radius < math.inf and np.abs(w).sum() >= (1.0 - FACE) * pieces.radius:
        free[:d] &= np.abs(w) > small
        tied[:d] = np.sign(w)
    places = np.flatnonzero(free)
    tied = tied[places]
    if not tied.any():
        tied = np.empty(0)
    return Face(places, gradient[places], curvature[np.ix_(places, places)], tied)


def _add_groups(
    pieces: Pieces,
    w: FloatArray,
    small: float,
    free: npt.NDArray[np.bool_],
    gradient: FloatArray,
    curvature: FloatArray,
) -> None:
    """Add ∇ and ∇² of the norms of groups, in place; groups of small coefficients are not free."""
    if pieces.groups is None:
        return
    assert pieces.strengths is not None
    for group, strength in enumerate(pieces.strengths):
        members = np.flatnonzero(pieces.groups == group)
        length = float(np.linalg.norm(w[members]))
        if not strength > 0:
            continue
        if length <= small:
            free[members] = False
            continue
        way = w[members] / length
        gradient[members] += strength * way
        across = np.eye(len(members)) - np.outer(way, way)
        curvature[np.ix_(members, members)] += across * (strength / length)


def _same_face(agent: Agent, z: FloatArray, moved: FloatArray) -> bool:
    """Return whether both lie on one face of the penalty."""
    problem = agent.problem
    pieces = problem.penalty.pieces
    assert pieces is not None
    if not np.isfinite(moved).all():
        return False
    after = problem.coefficients(moved)
    if not math.isfinite(problem.penalty.value(after)):
        return False
    if pieces.has_threshold or pieces.radius < math.inf:
        before = problem.coefficients(z)
        return bool((np.sign(before) == np.sign(after)).all())
    return True


def _on_host(values: Any) -> FloatArray:
    numbers: FloatArray = np.asarray(host(values), float)
    return numbers
