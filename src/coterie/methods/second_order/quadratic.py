"""The minimum of a quadratic and a penalty, computed alone and as exactly as float64 allows:

    z = argmin ⟨gradient, z − w⟩ + ½ (z − w)ᵀ H (z − w) + g(z)

The last coordinate may be a free intercept. `gram` and `newton` compute this between two messages.

| penalty                           | algorithm                                                    |
|-----------------------------------|--------------------------------------------------------------|
| `l2`, `none`                      | linear equations                                             |
| separable: `l1`, `elasticnet`,    | coordinate descent finds the free coordinates; then linear   |
| bounds                            | equations for those                                          |
| any other                         | accelerated proximal gradients with restarts; for groups and |
|                                   | balls also an interior-point method, if these steps are slow |

Nothing is random, so agents with the same numbers get the same answer. A deadline may cut a
computation short, and then its answer may differ between processes: call `minimiser` inside
`shared_result`, which computes it once per process.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.linalg

from coterie.methods.second_order.barriers import barrier_of
from coterie.methods.second_order.inside import minimum_inside
from coterie.numerics.arrays import FloatArray
from coterie.numerics.kernels.coordinate_descent import coordinate_descent
from coterie.numerics.penalties.pieces import Pieces
from coterie.numerics.tuning import Tuning, tuned
from coterie.run.agent import Agent

ROUNDING = 1e-14
"""Gradients this small, relative to those of the data, are 0."""
ATTEMPTS = 200
"""The largest number of attempts to solve for the free coordinates."""
GRADIENT_STEPS = 50_000
"""The largest number of proximal gradient steps."""
FLAT = 1e-13
"""A direction is flat if its curvature is this share of the largest, for a diagonal of 1."""
SEEN = 1e-5
"""A flat direction leads down if the pull along it is at least this share of the thresholds."""
FIRM = 1e-3
"""The least squared pivot, for a diagonal of 1, for which errors of single precision in H do not
matter.
"""


@dataclass(frozen=True)
class _Tuning(Tuning):
    sweeps: int = tuned(
        22, "Sweeps of coordinate descent between two attempts to solve for the free coordinates."
    )
    turns_work: float = tuned(
        1e9, "Operations for all equations that lead to the minimum of a face, at most."
    )
    fewest_turns: int = tuned(2, "The number of these equations that are solved in any case.")
    easy: int = tuned(
        300,
        "Gradient steps before and after the interior-point method: they set small numbers to 0.",
    )


TUNING = _Tuning()


class Quadratic(NamedTuple):
    """⟨gradient, z − w⟩ + ½ (z − w)ᵀ H (z − w)."""

    H: FloatArray
    gradient: FloatArray
    w: FloatArray

    def after(self, step: FloatArray) -> float:
        """Return the value at z = w + step."""
        return float(self.gradient @ step + 0.5 * step @ (self.H @ step))

    def pull(self, z: FloatArray) -> FloatArray:
        """Return the negative gradient at z."""
        pull: FloatArray = -self.gradient - self.H @ (z - self.w)
        return pull


class Coordinates(NamedTuple):
    """A separable penalty: four numbers for every coordinate."""

    ridge: FloatArray
    """λ₂."""
    threshold: FloatArray
    """λ₁."""
    lower: FloatArray
    upper: FloatArray

    def inside(self, z: FloatArray) -> npt.NDArray[np.bool_]:
        """Return which coordinates are neither at 0, where the penalty is non-smooth, nor at a
        bound.
        """
        smooth = (z != 0) | (self.threshold == 0)
        inside: npt.NDArray[np.bool_] = smooth & (z > self.lower) & (z < self.upper)
        return inside

    def face(self, sign: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the interval of each coordinate in which it keeps its sign and its bounds."""
        low = np.where(sign > 0, np.maximum(self.lower, 0.0), self.lower)
        high = np.where(sign < 0, np.minimum(self.upper, 0.0), self.upper)
        return low, high


def coordinates_of(pieces: Pieces, width: int, free: int) -> Coordinates:
    """Return a separable penalty by coordinate; the last `free` coordinates have none."""
    count = width - free
    ridge = ridge_of(pieces.ridge, width, free)
    threshold = ridge_of(pieces.threshold, width, free)
    lower = np.full(width, -np.inf)
    lower[:count] = pieces.lower
    upper = np.full(width, np.inf)
    upper[:count] = pieces.upper
    return Coordinates(ridge, threshold, lower, upper)


def ridge_of(ridge: float | FloatArray, width: int, free: int) -> FloatArray:
    """Return λ₂ of every coordinate: 0 for the last `free` ones."""
    ridges = np.zeros(width)
    ridges[: width - free] = ridge
    return ridges


def minimiser(
    agent: Agent,
    H: FloatArray,
    gradient: FloatArray,
    w: FloatArray,
    columns: npt.NDArray[np.intp] | None = None,
) -> tuple[FloatArray, bool]:
    """Return z, and whether H in single precision would lead to about the same z; with `columns`,
    for these columns of a penalty by column, and the intercept.

    z is computed as w and a correction, so that a small gradient gives a small correction without
    cancellation.
    """
    penalty = agent.problem.penalty
    free = agent.problem.free()
    width = len(w)
    if penalty.name in ("l2", "none"):
        ridge = ridge_of(penalty.strong_convexity, width, free)
        solve, pivot = solver(H, ridge)
        step = solve(-gradient - ridge * w)
        return w + step, pivot > FIRM
    model = Quadratic(H, gradient, w)
    pieces = penalty.pieces
    if pieces is not None and pieces.separable:
        if columns is not None and pieces.per_column:
            pieces = penalty.restrict(columns[: width - free]).pieces
            assert pieces is not None
        coordinates = coordinates_of(pieces, width, free)
        return _by_coordinates(agent.should_stop, agent.careful, model, coordinates), False
    if pieces is None or len(pieces.kinds) != 1:
        return _by_gradients(agent, model, w, GRADIENT_STEPS)[0], False
    z, found = _by_gradients(agent, model, w, TUNING.easy)
    if found:
        return z, False
    start = _through_the_interior(agent, model, pieces)
    other = _by_gradients(agent, model, start, TUNING.easy)[0]
    return min(z, other, key=partial(_value, agent, model)), False


def _through_the_interior(agent: Agent, model: Quadratic, pieces: Pieces) -> FloatArray:
    """Return the minimum that an interior-point method finds with the barrier of the penalty."""
    H, gradient, w = model
    width = len(w)
    free = agent.problem.free()
    ridge = ridge_of(pieces.ridge, width, free)
    barrier = barrier_of(pieces, width, width - free, 1.0, np.ones(width))

    def solver_for(A: FloatArray) -> Callable[[FloatArray], FloatArray]:
        return solver(A, ridge, least_pivot=0.0)[0]

    return minimum_inside(H, ridge, gradient, w, barrier, solver_for, agent.should_stop)


def rounded(agent: Agent, w: FloatArray) -> FloatArray:
    """Return w in the columns and the precision of the data. Where rounding leaves the domain of
    the penalty, w is moved back into it.
    """
    plain = agent.centred.plain(w)
    single = plain.astype(agent.design.dtype, copy=False)
    if single is plain:
        return single
    return agent.problem.prox(single, 0.0)


def proven(agent: Agent, w: FloatArray) -> tuple[FloatArray, FloatArray | None]:
    """Return w in the precision of the data and, where that is coarser than w, the gradients of
    the loss before rounding: its dual variables.
    """
    single = rounded(agent, w)
    if single.dtype == w.dtype:
        return single, None
    return single, agent.at(w, agent.centred).gradients


def solver(
    H: FloatArray, ridge: FloatArray, least_pivot: float = 1e-12
) -> tuple[Callable[[FloatArray], FloatArray], float]:
    """Return b ↦ (H + diag(ridge))⁻¹b for a positive semi-definite matrix, and the least squared
    pivot of its Cholesky factor, for a diagonal of 1.

    If that pivot is at most `least_pivot`, the matrix counts as singular: the shortest solution is
    returned, and 0 in place of the pivot.
    """
    # Columns in different units would look dependent: all get a diagonal of 1.
    diagonal = H.diagonal() + ridge
    scale = np.sqrt(np.maximum(diagonal, 0.0))
    scale = np.divide(1.0, scale, out=np.ones(len(H)), where=scale > 0)
    diagonal *= scale
    diagonal *= scale
    A = H * scale
    A *= scale[:, None]
    A.flat[:: len(A) + 1] = diagonal
    if len(A):
        factor, failed = scipy.linalg.lapack.dpotrf(A.T, clean=0)
        pivot = float(factor.diagonal().min()) ** 2
        if not failed and pivot > least_pivot * diagonal.max():
            return lambda b: scale * _refined(A, factor, scale * b), pivot
    values, vectors = np.linalg.eigh(A)
    largest = max(values.max(initial=0.0), 0.0)
    kept = values > len(A) * np.finfo(float).eps * largest
    values = values[kept]
    vectors = vectors[:, kept]

    def shortest(b: FloatArray) -> FloatArray:
        coordinates = (vectors.T @ (scale * b)) / values
        solution: FloatArray = scale * (vectors @ coordinates)
        return solution

    return shortest, 0.0


def _refined(A: FloatArray, factor: FloatArray, b: FloatArray) -> FloatArray:
    """Return A⁻¹b from the Cholesky factor, with one step of iterative refinement."""
    solve = scipy.linalg.lapack.dpotrs
    x: FloatArray = solve(factor, b)[0]
    x += solve(factor, b - A @ x)[0]
    return x


def _by_coordinates(
    should_stop: Callable[[], bool], careful: bool, model: Quadratic, coordinates: Coordinates
) -> FloatArray:
    """Return the minimum for a separable penalty: coordinate descent and linear equations take
    turns.
    """
    H, gradient, w = model
    ridge, threshold, lower, upper = coordinates
    z = np.clip(w, lower, upper)
    steepest = float(np.abs(gradient - H @ w).max(initial=0))
    largest_threshold = float(threshold.max(initial=0))
    tolerance = ROUNDING * max(steepest, largest_threshold, 1e-300)
    descend: Any = coordinate_descent
    before = np.zeros(len(z), bool)
    best = math.inf
    work = max(len(z), 1) ** 3
    most = max(TUNING.fewest_turns, int(TUNING.turns_work / work))
    for attempt in range(ATTEMPTS):
        pull = model.pull(z)
        left = descend(H, ridge, threshold, lower, upper, z, pull, tolerance, TUNING.sweeps)
        if left <= tolerance or should_stop():
            break
        # Where the problem is easy, descent and one equation are enough, and cheaper.
        turns = min(most, 2 ** min(attempt, 30))
        free = _to_the_face_minimum(turns, should_stop, careful, model, coordinates, z)
        if np.array_equal(free, before) and left > 0.5 * best:
            pull = model.pull(z) - ridge * z - threshold * np.sign(z)
            places = np.flatnonzero(free)
            if careful or not _down_a_flat_valley(H, coordinates, pull, places).any():
                break
            careful = True
        before = free
        best = left
    return z


def _to_the_face_minimum(
    turns: int,
    should_stop: Callable[[], bool],
    careful: bool,
    model: Quadratic,
    coordinates: Coordinates,
    z: FloatArray,
) -> npt.NDArray[np.bool_]:
    """Solve for the free coordinates of z, in place, and return which are free at the end.

    Each turn ends at the minimum of the face, or where a coordinate meets 0 or a bound, which it
    then keeps. With enough turns z arrives, however long and narrow the valley is. `careful` steps
    also go along directions in which the quadratic is flat and a small threshold alone determines
    the way down, until a coordinate meets 0 or a bound.
    """
    ridge = coordinates.ridge
    threshold = coordinates.threshold
    sign = np.sign(z) * (threshold > 0)
    face = coordinates.face(sign)
    free = coordinates.inside(z)
    for _ in range(turns):
        places = np.flatnonzero(free)
        if not places.size or should_stop():
            break
        pull = model.pull(z) - ridge * z - threshold * sign
        if careful:
            flat = _down_a_flat_valley(model.H, coordinates, pull, places)
            share, met = _move(z, places, flat, face, math.inf)
            if share < math.inf:
                free[places[met]] = False
                continue
        H_free = model.H[places[:, None], places]
        solve = solver(H_free, ridge[places])[0]
        way = solve(pull[places])
        share, met = _move(z, places, way, face, 1.0)
        if share == 1.0:
            break
        free[places[met]] = False
    still: npt.NDArray[np.bool_] = free
    return still


def _move(
    z: FloatArray,
    places: npt.NDArray[np.intp],
    way: FloatArray,
    face: tuple[FloatArray, FloatArray],
    most: float,
) -> tuple[float, npt.NDArray[np.bool_]]:
    """Move z at these places along that way, until a coordinate meets an end of its interval or
    the share `most` of the way is done. Return the share, and which coordinates met their end.
    """
    low, high = face
    local = z[places]
    end = np.where(way > 0, high[places], low[places])
    shares = np.divide(end - local, way, out=np.full(len(way), np.inf), where=way != 0)
    share = min(most, float(shares.min()))
    met = shares <= share
    if share < math.inf:
        z[places] = np.where(met, end, local + share * way)
    return share, met


def _down_a_flat_valley(
    H: FloatArray, coordinates: Coordinates, pull: FloatArray, places: npt.NDArray[np.intp]
) -> FloatArray:
    """Return the part of the pull on these coordinates along which the quadratic is flat; zeros if
    that part is rounding.
    """
    H = H[places[:, None], places]
    pull = pull[places]
    threshold = coordinates.threshold[places]
    diagonal = H.diagonal() + coordinates.ridge[places]
    scale = np.divide(1.0, np.sqrt(diagonal), out=np.zeros(len(H)), where=diagonal > 0)
    A = H * scale * scale[:, None]
    A.flat[:: len(A) + 1] = diagonal * scale**2
    values, vectors = np.linalg.eigh(A)
    largest = max(float(values.max(initial=0.0)), 0.0)
    flat = vectors[:, values <= FLAT * largest]
    along: FloatArray = flat @ (flat.T @ (scale * pull))
    small = SEEN * float(np.linalg.norm(scale * threshold))
    if flat.size and float(np.abs(along).max()) > small > 0:
        return scale * along
    return np.zeros(len(H))


def _value(agent: Agent, model: Quadratic, z: FloatArray) -> float:
    """Return the minimised function at z."""
    penalty = agent.problem.penalty.value(agent.problem.coefficients(z))
    return model.after(z - model.w) + penalty


def _by_gradients(
    agent: Agent, model: Quadratic, start: FloatArray, steps: int
) -> tuple[FloatArray, bool]:
    """Take accelerated proximal gradient steps with restarts (FISTA), for any penalty with a
    `prox`. Return the point, and whether the steps ended by themselves.
    """
    H, gradient, w = model
    problem = agent.problem
    last = len(H) - 1
    steepest = 0.0
    if len(H):
        steepest = float(scipy.linalg.eigvalsh(H, subset_by_index=[last, last])[0])
    if steepest <= 0:
        return problem.prox(w, 1.0), True
    step = 1.0 / (steepest * (1 + 1e-12))
    momentum = 1.0
    origin = problem.prox(start, 0.0)
    point = origin
    lead = origin
    norm = float(np.linalg.norm(gradient - H @ w))
    enough = ROUNDING * max(norm, 1e-300)
    for _ in range(steps):
        gradient_at_lead = gradient + H @ (lead - w)
        new = problem.prox(lead - step * gradient_at_lead, step)
        moved = float(np.linalg.norm(new - lead))
        if steepest * moved <= enough:
            return new, True
        if agent.should_stop():  # accelerated steps may increase the value for a while
            return min(origin, new, key=partial(_value, agent, model)), True
        if np.vdot(lead - new, new - point) > 0:
            momentum = 1.0
        following = 0.5 * (1 + math.sqrt(1 + 4 * momentum**2))
        lead = new + (momentum - 1) / following * (new - point)
        point = new
        momentum = following
    return point, False
