"""The minimum of a quadratic and a penalty, computed alone and as exactly as float64 allows:

    z = argmin ⟨slope, z − w⟩ + ½ (z − w)ᵀ H (z − w) + g(z)             the last coordinate may be a
    free intercept

What `gram` and `newton` do between two messages. Linear equations for `l2` and `none`; for what
falls apart into coordinates (`l1`, `elasticnet`, bounds) coordinate descent that finds which
coordinates are free, and then linear equations for those; for any other penalty accelerated
proximal gradients with restarts and, for groups and balls, a way through the interior if these
creep. Nothing is random, so agents with the same numbers come to the same answer. An answer that
the clock cut short is one that only one process has, and there it is computed once: call
`minimiser` inside `once`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

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

T = TypeVar("T")

ROUNDING = 1e-14
"""Slopes this small, relative to the data's, are 0."""
ATTEMPTS, GRADIENT_STEPS = 200, 50_000
"""When to give up: attempts to solve for the free coordinates, and steps along gradients."""
FLAT, SEEN = 1e-13, 1e-5
"""A valley is flat if its curvature is this share of the largest, for a diagonal of 1, and leads
down if the pull along it is at least this share of the thresholds.
"""
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
        1e9, "Operations for all equations on the way to the minimum of a face, ..."
    )
    fewest_turns: int = tuned(2, "... and how many to solve in any case.")
    easy: int = tuned(
        300,
        "Steps before and after the way through the interior: they make zeros of what is nearly 0.",
    )


TUNING = _Tuning()


def minimiser(
    agent: Agent, H: FloatArray, slope: FloatArray, w: FloatArray
) -> tuple[FloatArray, bool]:
    """z, and whether it would be about the same if H was known in single precision only.

    It is computed as w and a correction, so that a small slope gives a small correction without
    cancellation.
    """
    penalty = agent.problem.penalty
    free = agent.problem.free()
    if penalty.name in ("l2", "none"):
        ridge = np.full(len(w), penalty.strong_convexity)
        ridge[len(w) - free :] = 0.0
        solve, pivot = solver(H, ridge)
        return w + solve(-slope - ridge * w), pivot > FIRM
    pieces = penalty.pieces
    if pieces is not None and pieces.separable:
        sides = _sides(pieces, len(w), free)
        return _by_coordinates(agent.should_stop, agent.careful, H, slope, w, *sides), False
    inside = pieces is not None and len(pieces.kinds) == 1
    z, found = _by_gradients(agent, H, slope, w, w, TUNING.easy if inside else GRADIENT_STEPS)
    if pieces is None or not inside or found:
        return z, False
    ridge = np.full(len(w), pieces.ridge)
    ridge[len(w) - free :] = 0.0
    barrier = barrier_of(pieces, len(w), len(w) - free, 1.0, np.ones(len(w)))
    equations = H, ridge, slope, w, barrier
    start = minimum_inside(
        *equations, lambda A: solver(A, ridge, least_pivot=0.0)[0], agent.should_stop
    )
    candidates = z, _by_gradients(agent, H, slope, w, start, TUNING.easy)[0]
    return min(candidates, key=partial(_value, agent, H, slope, w)), False


def rounded(agent: Agent, w: FloatArray) -> FloatArray:
    """w as people know it, in the precision of the data, put back where the penalty is finite if
    rounding left that.
    """
    plain = agent.centred.plain(w)
    single = plain.astype(agent.design.dtype, copy=False)
    if single is plain:
        return single
    return agent.problem.prox(single, 0.0)


def proven(agent: Agent, w: FloatArray) -> tuple[FloatArray, FloatArray | None]:
    """w in the precision of the data and, where that is coarser, the slopes of the loss before
    rounding: its dual.
    """
    single = rounded(agent, w)
    if single.dtype == w.dtype:
        return single, None
    return single, agent.at(w, agent.centred).gradients


def _sides(pieces: Pieces, width: int, free: int) -> FloatArray:
    """(λ₂, λ₁, lower, upper) per coordinate, the last of which may be free."""
    sides: FloatArray = np.empty((4, width))
    parts = (
        (pieces.ridge, 0.0),
        (pieces.threshold, 0.0),
        (pieces.lower, -np.inf),
        (pieces.upper, np.inf),
    )
    for side, (part, of_free) in zip(sides, parts, strict=True):
        side[: width - free], side[width - free :] = part, of_free
    return sides


def solver(
    H: FloatArray, ridge: FloatArray, least_pivot: float = 1e-12
) -> tuple[Callable[[FloatArray], FloatArray], float]:
    """b ↦ (H + diag(ridge))⁻¹b for a positive semi-definite matrix; the shortest solution, where
    there are several.

    There are several if a squared pivot of Cholesky's factor, for a diagonal of 1, is at most
    `least_pivot`; the least one is returned, too, and 0 in that case.
    """
    # Columns on scales of their own would look dependent: all have a diagonal of 1.
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
    kept = values > len(A) * np.finfo(float).eps * max(values.max(initial=0.0), 0.0)
    values = values[kept]
    vectors = vectors[:, kept]
    return lambda b: scale * np.asarray(vectors @ ((vectors.T @ (scale * b)) / values)), 0.0


def _refined(A: FloatArray, factor: FloatArray, b: FloatArray) -> FloatArray:
    solve = scipy.linalg.lapack.dpotrs
    x: FloatArray = solve(factor, b)[0]
    x += solve(factor, b - A @ x)[0]
    return x


def _by_coordinates(
    should_stop: Callable[[], bool],
    careful: bool,
    H: FloatArray,
    slope: FloatArray,
    w: FloatArray,
    ridge: FloatArray,
    threshold: FloatArray,
    lower: FloatArray,
    upper: FloatArray,
) -> FloatArray:
    z = np.clip(w, lower, upper)
    scale = max(
        float(np.abs(slope - H @ w).max(initial=0)), float(threshold.max(initial=0)), 1e-300
    )
    tolerance = ROUNDING * scale
    descend: Any = coordinate_descent
    before = np.zeros(len(z), bool)
    best = math.inf
    most = max(TUNING.fewest_turns, int(TUNING.turns_work / max(len(z), 1) ** 3))
    for attempt in range(ATTEMPTS):
        left = descend(
            H, ridge, threshold, lower, upper, z, -slope - H @ (z - w), tolerance, TUNING.sweeps
        )
        if left <= tolerance or should_stop():
            break
        # Descent and one turn by turns are enough in easy valleys, and cheaper.
        turns = min(most, 2 ** min(attempt, 30))
        free = _to_the_face_minimum(
            turns, should_stop, careful, H, slope, w, z, ridge, threshold, lower, upper
        )
        if np.array_equal(free, before) and left > 0.5 * best:
            pull = -slope - H @ (z - w) - ridge * z - threshold * np.sign(z)
            places = np.flatnonzero(free)
            if careful or not _down_a_flat_valley(H, ridge, pull, threshold, places).any():
                break
            careful = True
        before = free
        best = left
    return z


def _to_the_face_minimum(
    turns: int,
    should_stop: Callable[[], bool],
    careful: bool,
    H: FloatArray,
    slope: FloatArray,
    w: FloatArray,
    z: FloatArray,
    ridge: FloatArray,
    threshold: FloatArray,
    lower: FloatArray,
    upper: FloatArray,
) -> npt.NDArray[np.bool_]:
    """Solve for the coordinates of z that are free, those that meet 0 or a bound on the way stay
    there: who is free.

    Each turn ends at the minimum or fixes a coordinate, so that z arrives, however long and thin
    the valley is, unless the turns are fewer: then it is the descent's turn again. `careful` steps
    also go along a valley in which the quadratic is flat, where a small threshold alone says which
    way is down, until a coordinate meets 0 or a bound.
    """
    sign = np.sign(z) * (threshold > 0)
    low = np.where(sign > 0, np.maximum(lower, 0.0), lower)
    high = np.where(sign < 0, np.minimum(upper, 0.0), upper)
    free = ((z != 0) | (threshold == 0)) & (z > lower) & (z < upper)
    for _ in range(turns):
        places = np.flatnonzero(free)
        if not places.size or should_stop():
            break
        pull = -slope - H @ (z - w) - ridge * z - threshold * sign
        local = z[places]
        if careful:
            flat = _down_a_flat_valley(H, ridge, pull, threshold, places)
            end = np.where(flat > 0, high[places], low[places])
            shares = np.divide(end - local, flat, out=np.full(len(flat), np.inf), where=flat != 0)
            share = float(shares.min())
            if share < math.inf:
                met = shares <= share
                z[places] = np.where(met, end, local + share * flat)
                free[places[met]] = False
                continue
        way = solver(H[places[:, None], places], ridge[places])[0](pull[places])
        end = np.where(way > 0, high[places], low[places])
        shares = np.divide(end - local, way, out=np.full(len(way), np.inf), where=way != 0)
        share = min(1.0, float(shares.min()))
        met = shares <= share
        z[places] = np.where(met, end, local + share * way)
        if share == 1.0:
            break
        free[places[met]] = False
    still: npt.NDArray[np.bool_] = free
    return still


def _down_a_flat_valley(
    H: FloatArray,
    ridge: FloatArray,
    pull: FloatArray,
    threshold: FloatArray,
    places: npt.NDArray[np.intp],
) -> FloatArray:
    """The part of the pull on these coordinates along which the quadratic does not bend; zeros if
    it is rounding.
    """
    H = H[places[:, None], places]
    ridge = ridge[places]
    pull = pull[places]
    threshold = threshold[places]
    diagonal = H.diagonal() + ridge
    scale = np.divide(1.0, np.sqrt(diagonal), out=np.zeros(len(H)), where=diagonal > 0)
    A = H * scale * scale[:, None]
    A.flat[:: len(A) + 1] = diagonal * scale**2
    values, vectors = np.linalg.eigh(A)
    flat = vectors[:, values <= FLAT * max(float(values.max(initial=0.0)), 0.0)]
    along: FloatArray = flat @ (flat.T @ (scale * pull))
    small = SEEN * float(np.linalg.norm(scale * threshold))
    if flat.size and float(np.abs(along).max()) > small > 0:
        return scale * along
    return np.zeros(len(H))


def _value(agent: Agent, H: FloatArray, slope: FloatArray, w: FloatArray, z: FloatArray) -> float:
    """What is minimised, at z."""
    step = z - w
    value = agent.problem.penalty.value(agent.problem.coefficients(z))
    return float(slope @ step + 0.5 * step @ (H @ step) + value)


def _by_gradients(
    agent: Agent, H: FloatArray, slope: FloatArray, w: FloatArray, start: FloatArray, steps: int
) -> tuple[FloatArray, bool]:
    """FISTA with restarts from some start: any penalty with a `prox`. And whether it came to its
    end.
    """
    if len(H):
        steepest = float(scipy.linalg.eigvalsh(H, subset_by_index=[len(H) - 1, len(H) - 1])[0])
    else:
        steepest = 0.0
    if steepest <= 0:
        return agent.problem.prox(w, 1.0), True
    step = 1.0 / (steepest * (1 + 1e-12))
    momentum = 1.0
    origin = point = lead = agent.problem.prox(start, 0.0)
    enough = ROUNDING * max(float(np.linalg.norm(slope - H @ w)), 1e-300)
    for _ in range(steps):
        new = agent.problem.prox(lead - step * (slope + H @ (lead - w)), step)
        if steepest * float(np.linalg.norm(new - lead)) <= enough:
            return new, True
        if agent.should_stop():  # accelerated steps may lead up for a while
            return min(origin, new, key=partial(_value, agent, H, slope, w)), True
        if np.vdot(lead - new, new - point) > 0:
            momentum = 1.0
        following = 0.5 * (1 + math.sqrt(1 + 4 * momentum**2))
        lead = new + (momentum - 1) / following * (new - point)
        point = new
        momentum = following
    return point, False
