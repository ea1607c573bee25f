"""The minimum of a quadratic and a penalty, computed alone and as exactly as float64 allows:

    z = argmin ⟨slope, z − w⟩ + ½ (z − w)ᵀ H (z − w) + g(z)             the last coordinate may be a free intercept

What `gram` and `newton` do between two messages. Linear equations for `l2` and `none`; for what falls apart into
coordinates (`l1`, `elasticnet`, bounds) coordinate descent that finds which coordinates are free, and then linear
equations for those; for any other penalty accelerated proximal gradients with restarts and, for groups and balls, a way
through the interior if these creep. Nothing is random, so agents with the same numbers come to the same answer. An
answer that the clock cut short is one that only one process has, and there it is computed once: call `minimiser` inside
`once`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import scipy.linalg

from coterie.agent import Agent
from coterie.arrays import CentredDesign, Design, FloatArray, is_sparse
from coterie.kernels.coordinate_descent import coordinate_descent
from coterie.kernels.second_moment import add_second_moment, add_squares, pack, unpack
from coterie.methods.barriers import barrier_of
from coterie.methods.inside import minimum_inside
from coterie.penalties.pieces import Pieces

T = TypeVar("T")

BLOCK = 1 << 17
"""Numbers of a dense X that are weighted at a time."""
ROUNDING = 1e-14
"""Slopes this small, relative to the data's, are 0."""
SWEEPS = 22
"""Sweeps of coordinate descent between two attempts to solve for the free coordinates."""
TURNS_WORK, FEWEST_TURNS = 1e9, 2
"""Operations for all equations on the way to the minimum of a face, and how many to solve in any case."""
ATTEMPTS = 200
GRADIENT_STEPS = 50_000
EASY = 300
"""Steps that are tried before the way through the interior, and after it: they make zeros of what is nearly 0."""
FIRM = 1e-3
"""The least squared pivot, for a diagonal of 1, for which errors of single precision in H do not matter."""
LEAST_SINGLE = 1e-30
"""Squares that are smaller lose digits in single precision."""
NOISE = 1e-12
"""What is left of a column beside its mean, below this share of it, is rounding: the column is constant."""


def second_moment(
    design: Design, weights: FloatArray | None, columns: npt.NDArray[np.intp] | None = None, single: bool = False
) -> FloatArray:
    """The upper triangle of X̃ᵀ diag(weights) X̃ in float64, or only that of those columns of X̃, in ascending order.

    X̃ may be centred. Weights may be negative: differences of curvatures are. Where single precision is enough, dense
    rows are multiplied out in half the time.
    """
    n, width = design.shape
    chosen = np.arange(width) if columns is None else columns
    scale = np.ones(n) if weights is None else weights.astype(float, copy=False)
    here = chosen[:-1] if design.intercept and len(chosen) and chosen[-1] == width - 1 else chosen
    d, centre = len(here), design.centre[here] if isinstance(design, CentredDesign) else None
    sums = design.adjoint(scale)[here] if d < len(chosen) or centre is not None else np.empty(0)
    if not is_sparse(design.X):
        dense = _dense_moment(design.X, None if columns is None else here, scale, centre, single)
        if d == len(chosen):
            return dense
    moment = np.zeros((len(chosen), len(chosen)))
    if is_sparse(design.X):
        X, place = design.X.tocsr(), here
        if columns is not None:
            place = np.full(design.X.shape[1], -1)
            place[here] = np.arange(d)
        add: Any = add_second_moment
        add(X.data, X.indices, X.indptr, scale, place, moment)
        if centre is not None:
            # Σ s (x − c)(x − c)ᵀ = Σ s x xᵀ − Σ s (x − c) cᵀ − c (Σ s (x − c))ᵀ − (Σ s) c cᵀ
            half, before = np.outer(sums + 0.5 * scale.sum() * centre, centre), np.abs(moment.diagonal()[:d])
            moment[:d, :d] -= np.triu(half + half.T)
            constant = np.flatnonzero(np.abs(moment.diagonal()[:d]) <= NOISE * before)
            moment[constant, :] = moment[:, constant] = 0.0
    else:
        moment[:d, :d] = dense
    if d < len(chosen):
        # The column of the intercept: sums of the others, and of the weights.
        unit = design.unit if isinstance(design, CentredDesign) else 1.0
        moment[:d, d] = unit * sums
        moment[d, d] = unit**2 * scale.sum()
    return moment


def _dense_moment(
    X: FloatArray, columns: npt.NDArray[np.intp] | None, scale: FloatArray, centre: FloatArray | None, single: bool
) -> FloatArray:
    d = X.shape[1] if columns is None else len(columns)
    moment = np.zeros((d, d))
    kind: Any = np.float32 if single else float
    for sign in (1.0, -1.0):
        rows = np.flatnonzero(scale > 0 if sign > 0 else scale < 0)
        if not rows.size or not d:
            continue
        height = max(BLOCK // d, 2 * d)
        for part in np.array_split(rows, -(-len(rows) // height)) if len(rows) > height else [rows]:
            # Rows that do not count are left out; where all do, a slice spares a copy.
            some: Any = slice(part[0], part[-1] + 1) if part[-1] - part[0] + 1 == len(part) else part
            A = X[some] if columns is None else X[some][:, columns]
            if centre is not None:
                A = A - centre
                A[np.abs(A) <= NOISE * np.abs(centre)] = 0.0
            shares = sign * scale[some]
            with np.errstate(over="ignore", invalid="ignore"):
                if (shares == 1).all():
                    A = A.astype(kind, copy=False)
                else:
                    A = np.multiply(A, np.sqrt(shares).astype(kind)[:, None], dtype=kind)
                # Half the work of a product, as numpy sees whose transpose it is; scipy's would hold other threads up.
                (np.add if sign > 0 else np.subtract)(moment, A.T @ A, out=moment)
    lengths = moment.diagonal()
    if single and not (np.isfinite(lengths).all() and (lengths[lengths > 0] > LEAST_SINGLE).all()):
        return _dense_moment(X, columns, scale, centre, single=False)
    return np.triu(moment)


def diagonal(design: Design, weights: FloatArray) -> FloatArray:
    """The diagonal of X̃ᵀ diag(weights) X̃."""
    X, squares = design.X, np.zeros(design.shape[1])
    d = X.shape[1]
    if is_sparse(X):
        csr = X.tocsr()
        add: Any = add_squares
        add(csr.data, csr.indices, csr.indptr, weights, squares)
    else:
        rows = max(1, BLOCK // max(d, 1))
        for start in range(0, len(weights), rows):
            squares[:d] += np.square(X[start : start + rows], dtype=float).T @ weights[start : start + rows]
    if isinstance(design, CentredDesign):
        # Σ s (x − c)² = Σ s x² − c (2 Σ s (x − c) + c Σ s)
        before = squares[:d].copy()
        squares[:d] -= design.centre * (2 * design.adjoint(weights)[:d] + design.centre * weights.sum())
        squares[:d][squares[:d] <= NOISE * before] = 0.0
    if design.intercept:
        squares[d] = weights.sum() * (design.unit**2 if isinstance(design, CentredDesign) else 1.0)
    return squares


def packed(moment: FloatArray, *more: FloatArray) -> FloatArray:
    """A message: the upper triangle, row by row, and then more numbers."""
    triangle = len(moment) * (len(moment) + 1) // 2
    message = np.empty(triangle + sum(part.size for part in more))
    write: Any = pack
    write(moment, message)
    for part in more:
        message[triangle : triangle + part.size] = part
        triangle += part.size
    return message


def unpacked(message: FloatArray, width: int) -> FloatArray:
    """The symmetric matrix of the upper triangle with which that message begins."""
    matrix = np.empty((width, width))
    read: Any = unpack
    read(message, matrix)
    return matrix


def minimiser(agent: Agent, H: FloatArray, slope: FloatArray, w: FloatArray) -> tuple[FloatArray, bool]:
    """z, and whether it would be about the same if H was known in single precision only.

    It is computed as w and a correction, so that a small slope gives a small correction without cancellation.
    """
    penalty, free = agent.problem.penalty, agent.problem.free()
    if penalty.name in ("l2", "none"):
        ridge = np.full(len(w), penalty.strong_convexity)
        ridge[len(w) - free :] = 0.0
        solve, pivot = solver(H, ridge)
        return w + solve(-slope - ridge * w), pivot > FIRM
    pieces = penalty.pieces
    if pieces is not None and pieces.separable:
        bounds = (np.append(side, np.full(free, end)) for side, end in _sides(pieces, len(w) - free))
        return _by_coordinates(agent.should_stop, H, slope, w, *bounds), False
    inside = pieces is not None and len(pieces.kinds) == 1
    z, found = _by_gradients(agent, H, slope, w, w, EASY if inside else GRADIENT_STEPS)
    if pieces is None or not inside or found:
        return z, False
    ridge = np.full(len(w), pieces.ridge)
    ridge[len(w) - free :] = 0.0
    barrier = barrier_of(pieces, len(w), len(w) - free, 1.0, np.ones(len(w)))
    equations = H, ridge, slope, w, barrier
    start = minimum_inside(*equations, lambda A: solver(A, ridge, least_pivot=0.0)[0], agent.should_stop)
    candidates = z, _by_gradients(agent, H, slope, w, start, EASY)[0]
    return min(candidates, key=partial(_value, agent, H, slope, w)), False


def rounded(agent: Agent, w: FloatArray) -> FloatArray:
    """w as people know it, in the precision of the data, put back where the penalty is finite if rounding left that."""
    plain = agent.centred.plain(w)
    single = plain.astype(agent.design.dtype, copy=False)
    return single if single is plain else agent.problem.prox(single, 0.0)


def proven(agent: Agent, w: FloatArray) -> tuple[FloatArray, FloatArray | None]:
    """w in the precision of the data and, where that is coarser, the slopes of the loss before rounding: its dual."""
    single = rounded(agent, w)
    if single.dtype == w.dtype:
        return single, None
    return single, agent.at(w, agent.centred).slopes


def _sides(pieces: Pieces, d: int) -> list[tuple[FloatArray, float]]:
    """(λ₂, λ₁, lower, upper) per coordinate, each with what a free intercept has."""
    parts = (pieces.ridge, 0.0), (pieces.threshold, 0.0), (pieces.lower, -np.inf), (pieces.upper, np.inf)
    return [(np.broadcast_to(part, d).astype(float), free) for part, free in parts]


def solver(
    H: FloatArray, ridge: FloatArray, least_pivot: float = 1e-12
) -> tuple[Callable[[FloatArray], FloatArray], float]:
    """b ↦ (H + diag(ridge))⁻¹b for a positive semi-definite matrix; the shortest solution, where there are several.

    There are several if a squared pivot of Cholesky's factor, for a diagonal of 1, is at most `least_pivot`; the least
    one is returned, too, and 0 in that case.
    """
    # Columns on scales of their own would look dependent: all have a diagonal of 1.
    diagonal = np.diag(H) + ridge
    scale = np.sqrt(np.maximum(diagonal, 0.0))
    scale = np.divide(1.0, scale, out=np.ones(len(H)), where=scale > 0)
    diagonal *= scale
    diagonal *= scale
    A = H * scale
    A *= scale[:, None]
    A.flat[:: len(A) + 1] = diagonal
    if len(A):
        factor, failed = scipy.linalg.lapack.dpotrf(A.T, clean=0)
        pivot = float(np.diag(factor).min()) ** 2
        if not failed and pivot > least_pivot * diagonal.max():
            return lambda b: scale * _refined(A, factor, scale * b), pivot
    values, vectors = np.linalg.eigh(A)
    kept = values > len(A) * np.finfo(float).eps * max(values.max(initial=0.0), 0.0)
    values, vectors = values[kept], vectors[:, kept]
    return lambda b: scale * np.asarray(vectors @ ((vectors.T @ (scale * b)) / values)), 0.0


def _refined(A: FloatArray, factor: FloatArray, b: FloatArray) -> FloatArray:
    solve = scipy.linalg.lapack.dpotrs
    x: FloatArray = solve(factor, b)[0]
    x += solve(factor, b - A @ x)[0]
    return x


def _by_coordinates(
    should_stop: Callable[[], bool],
    H: FloatArray,
    slope: FloatArray,
    w: FloatArray,
    ridge: FloatArray,
    threshold: FloatArray,
    lower: FloatArray,
    upper: FloatArray,
) -> FloatArray:
    z = np.clip(w, lower, upper)
    scale = max(float(np.abs(slope - H @ w).max(initial=0)), float(threshold.max(initial=0)), 1e-300)
    tolerance = ROUNDING * scale
    descend: Any = coordinate_descent
    before, best = np.zeros(len(z), bool), math.inf
    most = max(FEWEST_TURNS, int(TURNS_WORK / max(len(z), 1) ** 3))
    for attempt in range(ATTEMPTS):
        left = descend(H, ridge, threshold, lower, upper, z, -slope - H @ (z - w), tolerance, SWEEPS)
        if left <= tolerance or should_stop():
            break
        # Descent and one turn by turns are enough in easy valleys, and cheaper.
        turns = min(most, 2 ** min(attempt, 30))
        free = _to_the_face_minimum(turns, should_stop, H, slope, w, z, ridge, threshold, lower, upper)
        if np.array_equal(free, before) and left > 0.5 * best:
            break
        before, best = free, left
    return z


def _to_the_face_minimum(
    turns: int,
    should_stop: Callable[[], bool],
    H: FloatArray,
    slope: FloatArray,
    w: FloatArray,
    z: FloatArray,
    ridge: FloatArray,
    threshold: FloatArray,
    lower: FloatArray,
    upper: FloatArray,
) -> npt.NDArray[np.bool_]:
    """Solve for the coordinates of z that are free, those that meet 0 or a bound on the way stay there: who is free.

    Each turn ends at the minimum or fixes a coordinate, so that z arrives, however long and thin the valley is, unless
    the turns are fewer: then it is the descent's turn again.
    """
    sign = np.sign(z) * (threshold > 0)
    low, high = np.where(sign > 0, np.maximum(lower, 0.0), lower), np.where(sign < 0, np.minimum(upper, 0.0), upper)
    free = ((z != 0) | (threshold == 0)) & (z > lower) & (z < upper)
    for _ in range(turns):
        if not free.any() or should_stop():
            break
        pull = -slope - H @ (z - w) - ridge * z - threshold * sign
        way = solver(H[np.ix_(free, free)], ridge[free])[0](pull[free])
        end = np.where(way > 0, high[free], low[free])
        with np.errstate(divide="ignore", invalid="ignore"):
            shares = np.where(way == 0, np.inf, (end - z[free]) / way)
        share = min(1.0, float(shares.min()))
        met = shares <= share
        z[free] = np.where(met, end, z[free] + share * way)
        if share == 1.0:
            break
        free[np.flatnonzero(free)[met]] = False
    still: npt.NDArray[np.bool_] = free
    return still


def _value(agent: Agent, H: FloatArray, slope: FloatArray, w: FloatArray, z: FloatArray) -> float:
    """What is minimised, at z."""
    step = z - w
    value = agent.problem.penalty.value(agent.problem.coefficients(z))
    return float(slope @ step + 0.5 * step @ (H @ step) + value)


def _by_gradients(
    agent: Agent, H: FloatArray, slope: FloatArray, w: FloatArray, start: FloatArray, steps: int
) -> tuple[FloatArray, bool]:
    """FISTA with restarts from some start: any penalty with a `prox`. And whether it came to its end."""
    steepest = float(scipy.linalg.eigvalsh(H, subset_by_index=[len(H) - 1, len(H) - 1])[0]) if len(H) else 0.0
    if steepest <= 0:
        return agent.problem.prox(w, 1.0), True
    step, momentum = 1.0 / (steepest * (1 + 1e-12)), 1.0
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
        point, lead = new, new + (momentum - 1) / following * (new - point)
        momentum = following
    return point, False
