"""One agent's dual block problem, which consensus, proximal-1 and cocoa share:

    v⁺ = argmin over v of  Σ_i s_i ℓ*(v_i) + (c/2) ‖X̃ᵀ(s∘(v − v⁰))‖² − ⟨s∘v, X̃ w⟩

together with X̃ᵀ(s∘v⁺), which is what an agent says next, and which coordinate ascent has at hand.

By a cached factorisation where the loss is quadratic and the block small, else by compiled
coordinate ascent, else, for a loss that the compiled code does not know, by accelerated proximal
gradient steps. Where columns are correlated and the loss is smooth, sweeps go on and on: Newton's
steps then take over, on the same problem in z = w − c X̃ᵀ(s∘(v − v⁰)),

    z⁺ = argmin Σ_i s_i ℓ(x̃_iᵀz) + ‖z − w − c X̃ᵀ(s∘v⁰)‖² / 2c,      v⁺ = ℓ'(X̃z⁺).

Without them, answers stay so inexact that a run comes to rest before the tolerance.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.linalg
import scipy.sparse as sp

from coterie.numerics.arrays import CentredDesign, Design, FloatArray, is_sparse
from coterie.numerics.kernels.dual_ascent import ALL_EVERY, ROUGH, dual_ascent, squared_norms
from coterie.numerics.losses import Loss
from coterie.numerics.tuning import Tuning, tuned
from coterie.run.agent import Agent, remembered
from coterie.stats.moments import second_moment


@dataclass(frozen=True)
class _Tuning(Tuning):
    small: int = tuned(1000, "Factorise min(rows, columns) up to this size.")
    resting: int = tuned(
        4, "While the tolerance is rough, rows at a bound are looked at every so many rounds."
    )
    run: int = tuned(64, "Rows that are read one after the other, in a random order of such runs.")
    exactness: float = tuned(
        0.1, "The share of the tolerance at which gradient steps, and Newton's, stop.", below=1
    )
    first: int = tuned(4, "Sweeps before them.")
    many: float = tuned(
        20.0,
        "A Newton step may cost so many sweeps: dense products are that much faster than these.",
    )


TUNING = _Tuning()
MOST_STEPS = 20
"""Newton's steps, and halvings of one, at most: far more than it takes."""
ROUNDING = 1e-12
"""Steps that promise less than this share of the losses are not looked at twice."""


def knows(loss: Loss) -> bool:
    """Whether the compiled solver knows that loss."""
    return loss.conjugate_curvature is not None or loss.conjugate_entropy


def solve_block(
    agent: Agent,
    v: FloatArray,
    Xv: FloatArray,
    w: FloatArray,
    c: float,
    tolerance: float,
    max_epochs: int,
    t: int,
) -> tuple[FloatArray, FloatArray]:
    """v⁺ and X̃ᵀ(s∘v⁺), from v and X̃ᵀ(s∘v).

    v⁺ is as exact as the tolerance says: relative to the first sweep's progress, so that 0.1 is a
    rough answer.
    """
    if not len(v):
        return v, Xv
    loss = agent.problem.loss
    if loss.quadratic and min(agent.design.shape) <= TUNING.small:
        new = _quadratic(agent, v, w, c)
    elif knows(loss):
        if _sweeps_for_newton(agent) > max_epochs:
            few = max_epochs
        else:
            few = min(max_epochs, TUNING.first)
        new, moved, settled = _by_coordinates(agent, v, w, c, tolerance, few, t)
        if not settled and few < max_epochs:
            new = _by_newton(agent, w + c * Xv, w + moved, c, tolerance).astype(v.dtype, copy=False)
        elif v.dtype == float:  # in single precision, sums of changes would drift away from v
            return new, Xv + moved / -c
    else:
        new = _by_gradients(agent, v, w, c, tolerance, max_epochs)
    return new, agent.centred.adjoint(agent.weighted(new))


def _quadratic(agent: Agent, v: FloatArray, w: FloatArray, c: float) -> FloatArray:
    """(I + c A Aᵀ) p = √s∘(X̃w − y − v⁰) for A = √s X̃, p = √s∘(v − v⁰), from eigenvectors of the
    smaller Gram matrix.
    """
    design = agent.centred
    tall = agent.design.shape[0] > agent.design.shape[1]
    if agent.data.weights is None:
        root = None
    else:
        root = np.sqrt(agent.data.weights)
    values, vectors = _eigenvectors(agent)
    r = design.forward(w) - agent.labels - v
    if tall:
        # (I + c A Aᵀ)⁻¹ = I − A (I/c + AᵀA)⁻¹ Aᵀ
        inner = vectors @ ((vectors.T @ design.adjoint(agent.weighted(r))) / (1.0 / c + values))
        change: FloatArray = r - design.forward(inner)
    else:
        p = vectors @ ((vectors.T @ (r if root is None else root * r)) / (1.0 + c * values))
        if root is None:
            change = p
        else:
            change = p / root
    result: FloatArray = v + change.astype(v.dtype)
    return result


@remembered
def _eigenvectors(agent: Agent) -> tuple[FloatArray, FloatArray]:
    values, vectors = np.linalg.eigh(_gram(agent))
    return np.maximum(values, 0.0), vectors


def _gram(agent: Agent) -> FloatArray:
    """AᵀA or A Aᵀ for A = √s X̃, whichever is smaller; a sparse X is not made dense for it."""
    design = agent.centred
    n, width = agent.design.shape
    tall = agent.design.shape[0] > agent.design.shape[1]
    d = design.X.shape[1]
    weights = agent.data.weights
    if weights is None:
        root: FloatArray = np.ones(n)
    else:
        root = np.sqrt(weights).astype(float)
    centre, unit = _centre(design)
    if not is_sparse(design.X):
        A = np.full((n, width), unit)
        np.subtract(design.X, centre, out=A[:, :d])
        A *= root[:, None]
        if tall:
            gram: FloatArray = A.T @ A
        else:
            gram = A @ A.T
        return gram
    A = sp.csr_array(design.X.astype(float)).multiply(root[:, None]).tocsr()
    product: FloatArray = (A.T @ A if tall else A @ A.T).toarray()
    if not design.intercept:
        return product
    if not tall:
        means = np.outer(A @ centre, root)
        return product - means - means.T + (centre @ centre + unit**2) * np.outer(root, root)
    border = (A.T @ root)[:, None]
    moment = np.block([[product, border], [border.T, np.array([[root @ root]])]])
    into = np.eye(width)  # [X, 1] into = X̃
    into[-1] = np.append(-centre, unit)
    return np.asarray(into.T @ moment @ into)


def _centre(design: Design) -> tuple[FloatArray, float]:
    if isinstance(design, CentredDesign):
        return design.centre, design.unit
    return np.zeros(design.X.shape[1]), 1.0


def _by_coordinates(
    agent: Agent, v: FloatArray, w: FloatArray, c: float, tolerance: float, max_epochs: int, t: int
) -> tuple[FloatArray, FloatArray, bool]:
    """v⁺, −c X̃ᵀ(s∘(v⁺ − v)), and whether v⁺ is as exact as the tolerance says."""
    order = shuffled(len(v), agent.random(t))
    if tolerance >= ROUGH and t > TUNING.resting:
        order = order[~at_rest(agent, v, t)[order]]
    return improve(agent, v, w, c, order, tolerance, max_epochs)


def improve(
    agent: Agent,
    v: FloatArray,
    w: FloatArray,
    c: float,
    order: npt.NDArray[np.intp],
    tolerance: float,
    max_epochs: int,
) -> tuple[FloatArray, FloatArray, bool]:
    """v after coordinate steps on those rows in that order, which is left otherwise; −c X̃ᵀ(s∘(v⁺ −
    v)); if settled.
    """
    design = agent.centred
    X = agent.design.X
    improved = v.astype(float)
    z = w[: X.shape[1]].astype(float)
    ascend: Any = dual_ascent
    settled = False
    beta = design.offset(w)
    tau = 0.0
    first = 0.0
    left = max_epochs
    while not settled and left > 0 and not (first and agent.should_stop()):
        rest = tolerance, min(left, ALL_EVERY), tau, first
        settled, beta, tau, first = ascend(*_rows(agent), c, z, beta, improved, order, *rest)
        left -= ALL_EVERY
    z -= w[: X.shape[1]]
    if design.intercept:
        centre, unit = _centre(design)
        z = np.append(z + tau * centre, -tau * unit)
    return improved.astype(v.dtype, copy=False), z, bool(settled)


@remembered
def _rows(agent: Agent) -> tuple[Any, ...]:
    """What the compiled code wants to know of its own rows: its first arguments."""
    design = agent.centred
    X = agent.design.X
    labels = agent.exact_labels
    loss = agent.problem.loss
    sparse = is_sparse(X)
    centre, unit = _centre(design)
    length: Any = squared_norms
    if sparse:
        squares = length(X.data, X.indptr)
    else:
        squares = np.einsum("ij,ij->i", X, X, dtype=float)
    if design.intercept:
        tilts = X @ centre
        constant = float(centre @ centre) + unit**2
    else:
        tilts = np.empty(0)
        constant = 0.0
    # ‖(x − c, u)‖² = ‖x‖² − 2xᵀc + ‖c‖² + u²
    if design.intercept:
        norms = np.maximum(squares - 2 * tilts + constant, unit**2)
    else:
        norms = squares
    empty = np.empty(0, X.dtype)
    return (
        np.empty((0, 0), X.dtype) if sparse else np.ascontiguousarray(X),
        X.data if sparse else empty,
        X.indices if sparse else np.empty(0, np.int32),
        X.indptr if sparse else np.empty(0, np.int32),
        not sparse,
        tilts,
        constant,
        labels,
        np.empty(0) if agent.offset is None else agent.offset,
        *(bound.astype(float, copy=False) for bound in loss.domain(labels)),
        loss.conjugate_curvature or 0.0,
        loss.conjugate_entropy,
        np.ones(len(labels))
        if agent.data.weights is None
        else agent.data.weights.astype(float, copy=False),
        norms,
    )


def at_rest(agent: Agent, v: FloatArray, t: int, every: int | None = None) -> npt.NDArray[np.bool_]:
    """Which rows are at a bound and need not be looked at this time; in `every` so many times, each
    of them is.
    """
    lower, upper = _rows(agent)[9:11]
    resting: npt.NDArray[np.bool_] = v == lower
    resting |= v == upper
    every = every or TUNING.resting
    resting[t % every :: every] = False
    return resting


def shuffled(rows: int, random: np.random.Generator) -> npt.NDArray[np.intp]:
    """The rows in a random order of short runs: what is consecutive in memory is read several times
    faster.
    """
    run = min(TUNING.run, 1 + rows // 100)
    starts = run * random.permutation(-(-rows // run))
    order: npt.NDArray[np.intp] = (starts[:, None] + np.arange(run)).ravel()
    return order[order < rows]


@remembered
def _sweeps_for_newton(agent: Agent) -> float:
    """What a Newton step costs, in sweeps of coordinate ascent; infinite where it is not for the
    loss, or too large.
    """
    n, width = agent.design.shape
    X = agent.design.X
    loss = agent.problem.loss
    if not loss.smooth or type(loss).curvature is Loss.curvature or min(n, width) > TUNING.small:
        return np.inf
    numbers = max(X.nnz if is_sparse(X) else X.size, 1)
    if n > width:
        products = numbers * (numbers / n / 2 if is_sparse(X) else width / TUNING.many)
    else:
        products = 0.0
    return float((products + min(n, width) ** 3 / TUNING.many) / numbers)


def _solved(A: FloatArray, b: FloatArray) -> FloatArray:
    """A⁻¹b for the positive definite matrix with that upper triangle; where rounding spoils it, for
    its diagonal.
    """
    _, x, failed = scipy.linalg.lapack.dposv(A, b)
    if failed:
        solution: FloatArray = b / A.diagonal()
    else:
        solution = x
    return solution


def _by_newton(
    agent: Agent, centre: FloatArray, z: FloatArray, c: float, tolerance: float
) -> FloatArray:
    """ℓ'(X̃z) at the least Σ s ℓ(X̃z) + ‖z − centre‖²/2c, by damped Newton steps from that z."""
    design = agent.centred
    loss = agent.loss
    y = agent.exact_labels
    weights = agent.data.weights
    tall = agent.design.shape[0] > agent.design.shape[1]
    centre = centre.astype(float)
    z = z.astype(float)
    scores = design.forward(z).astype(float)
    first = 0.0
    gradients = loss.gradient(scores, y)
    for _ in range(MOST_STEPS):
        slope = design.adjoint(agent.weighted(gradients)) + (z - centre) / c
        size = float(np.linalg.norm(slope))
        first = first or size
        if size <= TUNING.exactness * tolerance * first or agent.should_stop():
            break
        curvatures = loss.curvature(scores, y)
        if tall:
            H = second_moment(design, agent.weighted(curvatures))
            H[np.diag_indices_from(H)] += 1.0 / c
            step = -_solved(H, slope)
        else:
            # (I/c + AᵀA)⁻¹ = c I − c² Aᵀ(I + c AAᵀ)⁻¹A for A = √(s∘ℓ'') X̃
            root = np.sqrt(curvatures)
            K = c * root[:, None] * _products(agent) * root
            K[np.diag_indices_from(K)] += 1.0
            if weights is None:
                weigh = root
            else:
                weigh = root * np.sqrt(weights)
            inner = _solved(K, weigh * design.forward(slope))
            step = c * (c * design.adjoint(weigh * inner) - slope)
        # P falls by half of what its slope promises at least, or the step is halved. Far from
        # rounding the whole fits.
        ahead = design.forward(step).astype(float)
        length = 1.0
        promised = float(slope @ step)
        before = loss.value(scores, y, weights)
        away = z - centre
        for _ in range(MOST_STEPS):
            rise = loss.value(scores + length * ahead, y, weights) - before
            rise += (length * float(away @ step) + 0.5 * length**2 * float(step @ step)) / c
            if rise <= 0.25 * length * promised or -length * promised <= ROUNDING * abs(before):
                break
            length *= 0.5
        z = z + length * step
        scores = scores + length * ahead
        gradients = loss.gradient(scores, y)
    return gradients


@remembered
def _products(agent: Agent) -> FloatArray:
    return _gram(agent)


def _by_gradients(
    agent: Agent, v: FloatArray, w: FloatArray, c: float, tolerance: float, max_epochs: int
) -> FloatArray:
    """FISTA with restarts in the metric s: any loss with a `dual_prox`."""
    step = 1.0 / (c * agent.squared_norm)
    point = v
    lead = v
    momentum = 1.0
    first = 0.0
    design = agent.centred
    scores = agent.centred.forward(w)
    for _ in range(50 * max_epochs):
        pull = scores - c * design.forward(design.adjoint(agent.weighted(lead - v)))
        new = agent.loss.dual_prox(lead + step * pull, agent.labels, step)
        moved = float(np.linalg.norm(new - lead))
        first = first or moved
        if moved <= TUNING.exactness * tolerance * first or agent.should_stop():
            return new
        if np.vdot(lead - new, new - point) > 0:
            momentum = 1.0
        following = 0.5 * (1 + np.sqrt(1 + 4 * momentum**2))
        lead = new + float((momentum - 1) / following) * (new - point)
        point = new
        momentum = float(following)
    return point
