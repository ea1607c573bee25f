"""One agent's dual block problem, which consensus, proximal-1 and cocoa share:

    v⁺ = argmin over v of  Σ_i s_i ℓ*(v_i) + (c/2) ‖X̃ᵀ(s∘(v − v⁰))‖² − ⟨s∘v, X̃ w⟩

together with X̃ᵀ(s∘v⁺), the next message of the agent, which coordinate ascent computes anyway.

| loss                                   | algorithm                               |
|----------------------------------------|-----------------------------------------|
| quadratic, and the block is small      | a cached factorisation                  |
| the compiled code has its conjugate    | coordinate ascent, then Newton's method |
| any other                              | accelerated proximal gradients          |

Where columns are correlated and the loss is smooth, coordinate ascent needs very many sweeps. Then
Newton's method takes over, on the same problem in z = w − c X̃ᵀ(s∘(v − v⁰)),

    z⁺ = argmin Σ_i s_i ℓ(x̃_iᵀz) + ‖z − w − c X̃ᵀ(s∘v⁰)‖² / 2c,      v⁺ = ℓ'(X̃z⁺).

Without it, answers would be so inexact that a run stalls before the tolerance.
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
    small: int = tuned(1000, "The largest min(rows, columns) that is factorised.")
    resting: int = tuned(
        4, "While the tolerance is rough, a row at a bound is visited once in these rounds."
    )
    run: int = tuned(64, "Rows that are read one after the other, in a random order of such runs.")
    exactness: float = tuned(
        0.1, "The share of the tolerance at which gradient and Newton steps stop.", below=1
    )
    first: int = tuned(4, "Sweeps before Newton steps.")
    many: float = tuned(20.0, "By this factor, dense products are faster than sweeps.")


TUNING = _Tuning()
MOST_STEPS = 20
"""The largest number of Newton steps, and of halvings of one: far more than needed."""
ROUNDING = 1e-12
"""Steps that promise less than this share of the losses are not halved."""


def knows(loss: Loss) -> bool:
    """Return whether the compiled code has the conjugate of that loss."""
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
    """Return v⁺ and X̃ᵀ(s∘v⁺), from v and X̃ᵀ(s∘v).

    The tolerance is relative to the progress of the first sweep: 0.1 gives a rough answer.
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
            centre = w + c * Xv
            start = w + moved
            new = _by_newton(agent, centre, start, c, tolerance).astype(v.dtype, copy=False)
        elif v.dtype == float:  # in single precision, sums of changes would drift away from v
            return new, Xv + moved / -c
    else:
        new = _by_gradients(agent, v, w, c, tolerance, max_epochs)
    return new, agent.centred.adjoint(agent.weighted(new))


def _quadratic(agent: Agent, v: FloatArray, w: FloatArray, c: float) -> FloatArray:
    """Solve (I + c A Aᵀ) p = √s∘(X̃w − y − v⁰) for A = √s X̃, p = √s∘(v − v⁰), with eigenvectors of
    the smaller Gram matrix.
    """
    design = agent.centred
    values, vectors = _eigenvectors(agent)
    r = design.forward(w) - agent.labels - v
    if _is_tall(agent):
        # (I + c A Aᵀ)⁻¹ = I − A (I/c + AᵀA)⁻¹ Aᵀ
        adjoint = design.adjoint(agent.weighted(r))
        inner = vectors @ ((vectors.T @ adjoint) / (1.0 / c + values))
        change: FloatArray = r - design.forward(inner)
    elif agent.data.weights is None:
        change = vectors @ ((vectors.T @ r) / (1.0 + c * values))
    else:
        root = np.sqrt(agent.data.weights)
        p = vectors @ ((vectors.T @ (root * r)) / (1.0 + c * values))
        change = p / root
    result: FloatArray = v + change.astype(v.dtype)
    return result


def _is_tall(agent: Agent) -> bool:
    """Return whether there are more rows than columns."""
    rows, columns = agent.design.shape
    return rows > columns


@remembered
def _eigenvectors(agent: Agent) -> tuple[FloatArray, FloatArray]:
    values, vectors = np.linalg.eigh(_gram(agent))
    return np.maximum(values, 0.0), vectors


def _gram(agent: Agent) -> FloatArray:
    """Return AᵀA or A Aᵀ for A = √s X̃, whichever is smaller; a sparse X stays sparse."""
    design = agent.centred
    weights = agent.data.weights
    if weights is None:
        root: FloatArray = np.ones(agent.design.shape[0])
    else:
        root = np.sqrt(weights).astype(float)
    if is_sparse(design.X):
        return _sparse_gram(agent, root)
    centre, unit = _centre(design)
    A = np.full(agent.design.shape, unit)
    np.subtract(design.X, centre, out=A[:, : design.X.shape[1]])
    A *= root[:, None]
    if _is_tall(agent):
        gram: FloatArray = A.T @ A
    else:
        gram = A @ A.T
    return gram


def _sparse_gram(agent: Agent, root: FloatArray) -> FloatArray:
    design = agent.centred
    centre, unit = _centre(design)
    is_tall = _is_tall(agent)
    A = sp.csr_array(design.X.astype(float)).multiply(root[:, None]).tocsr()
    if is_tall:
        product: FloatArray = (A.T @ A).toarray()
    else:
        product = (A @ A.T).toarray()
    if not design.intercept:
        return product
    if not is_tall:
        means = np.outer(A @ centre, root)
        squares = (centre @ centre + unit**2) * np.outer(root, root)
        return product - means - means.T + squares
    border = (A.T @ root)[:, None]
    corner = np.array([[root @ root]])
    moment = np.block([[product, border], [border.T, corner]])
    into = np.eye(agent.design.shape[1])  # [X, 1] into = X̃
    into[-1] = np.append(-centre, unit)
    return np.asarray(into.T @ moment @ into)


def _centre(design: Design) -> tuple[FloatArray, float]:
    if isinstance(design, CentredDesign):
        return design.centre, design.unit
    return np.zeros(design.X.shape[1]), 1.0


def _by_coordinates(
    agent: Agent, v: FloatArray, w: FloatArray, c: float, tolerance: float, max_epochs: int, t: int
) -> tuple[FloatArray, FloatArray, bool]:
    """Return v⁺, −c X̃ᵀ(s∘(v⁺ − v)), and whether v⁺ is within the tolerance."""
    order = shuffled(len(v), agent.random(t))
    if tolerance >= ROUGH and t > TUNING.resting:
        resting = at_rest(agent, v, t)
        order = order[~resting[order]]
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
    """Take coordinate steps on these rows in this order, an array that the steps change.

    Return v⁺, −c X̃ᵀ(s∘(v⁺ − v)), and whether the steps settled.
    """
    design = agent.centred
    rows = _rows(agent)
    columns = agent.design.X.shape[1]
    start = w[:columns]
    improved = v.astype(float)
    z = start.astype(float)
    ascend: Any = dual_ascent
    settled = False
    beta = design.offset(w)
    tau = 0.0
    first = 0.0
    left = max_epochs
    while not settled and left > 0 and not (first and agent.should_stop()):
        epochs = min(left, ALL_EVERY)
        settled, beta, tau, first = ascend(
            rows.dense,
            rows.data,
            rows.indices,
            rows.indptr,
            rows.is_dense,
            rows.tilts,
            rows.constant,
            rows.labels,
            rows.offsets,
            rows.lower,
            rows.upper,
            rows.curvature,
            rows.logistic,
            rows.weights,
            rows.norms,
            c,
            z,
            beta,
            improved,
            order,
            tolerance,
            epochs,
            tau,
            first,
        )
        left -= ALL_EVERY
    z -= start
    if design.intercept:
        centre, unit = _centre(design)
        z = np.append(z + tau * centre, -tau * unit)
    return improved.astype(v.dtype, copy=False), z, bool(settled)


@dataclass(frozen=True, slots=True)
class _Rows:
    """An agent's own rows for the compiled code, dense or sparse."""

    dense: FloatArray
    data: FloatArray
    indices: npt.NDArray[np.integer]
    indptr: npt.NDArray[np.integer]
    is_dense: bool
    tilts: FloatArray
    constant: float
    labels: FloatArray
    offsets: FloatArray
    lower: FloatArray
    upper: FloatArray
    curvature: float
    logistic: bool
    weights: FloatArray
    norms: FloatArray


@remembered
def _rows(agent: Agent) -> _Rows:
    """Return the agent's own rows for the compiled code."""
    X = agent.design.X
    loss = agent.problem.loss
    labels = agent.exact_labels
    lower, upper = loss.domain(labels)
    weights = agent.data.weights
    if weights is None:
        weights = np.ones(len(labels))
    offsets = agent.offset
    if offsets is None:
        offsets = np.empty(0)
    tilts, constant, norms = _norms(agent)
    if is_sparse(X):
        dense = np.empty((0, 0), X.dtype)
        data = X.data
        indices = X.indices
        indptr = X.indptr
    else:
        dense = np.ascontiguousarray(X)
        data = np.empty(0, X.dtype)
        indices = np.empty(0, np.int32)
        indptr = np.empty(0, np.int32)
    return _Rows(
        dense=dense,
        data=data,
        indices=indices,
        indptr=indptr,
        is_dense=not is_sparse(X),
        tilts=tilts,
        constant=constant,
        labels=labels,
        offsets=offsets,
        lower=lower.astype(float, copy=False),
        upper=upper.astype(float, copy=False),
        curvature=loss.conjugate_curvature or 0.0,
        logistic=loss.conjugate_entropy,
        weights=weights.astype(float, copy=False),
        norms=norms,
    )


def _norms(agent: Agent) -> tuple[FloatArray, float, FloatArray]:
    """Return Xm, ‖m‖² + u² and the squared norms of the rows (x − m, u); without an intercept an
    empty array, 0 and the squared norms of x.
    """
    design = agent.centred
    X = agent.design.X
    length: Any = squared_norms
    if is_sparse(X):
        squares = length(X.data, X.indptr)
    else:
        squares = np.einsum("ij,ij->i", X, X, dtype=float)
    if not design.intercept:
        return np.empty(0), 0.0, squares
    centre, unit = _centre(design)
    tilts = X @ centre
    constant = float(centre @ centre) + unit**2
    # ‖(x − m, u)‖² = ‖x‖² − 2xᵀm + ‖m‖² + u²
    norms = np.maximum(squares - 2 * tilts + constant, unit**2)
    return tilts, constant, norms


def at_rest(agent: Agent, v: FloatArray, t: int, every: int | None = None) -> npt.NDArray[np.bool_]:
    """Return which rows are at a bound and rest in round t; each of them is visited once in `every`
    rounds.
    """
    rows = _rows(agent)
    resting: npt.NDArray[np.bool_] = v == rows.lower
    resting |= v == rows.upper
    every = every or TUNING.resting
    resting[t % every :: every] = False
    return resting


def shuffled(rows: int, random: np.random.Generator) -> npt.NDArray[np.intp]:
    """Return the rows in a random order of short runs: consecutive memory is read several times
    faster.
    """
    run = min(TUNING.run, 1 + rows // 100)
    runs = -(-rows // run)
    starts = run * random.permutation(runs)
    order: npt.NDArray[np.intp] = (starts[:, None] + np.arange(run)).ravel()
    return order[order < rows]


@remembered
def _sweeps_for_newton(agent: Agent) -> float:
    """Return the cost of a Newton step, in sweeps of coordinate ascent; infinite where the loss has
    no second derivative, or the equations are too large.
    """
    n, width = agent.design.shape
    smaller = min(n, width)
    X = agent.design.X
    loss = agent.problem.loss
    if not loss.smooth or type(loss).curvature is Loss.curvature or smaller > TUNING.small:
        return np.inf
    if is_sparse(X):
        numbers = max(X.nnz, 1)
        cost_of_number = numbers / n / 2
    else:
        numbers = max(X.size, 1)
        cost_of_number = width / TUNING.many
    products = 0.0
    if n > width:
        products = numbers * cost_of_number
    equations = smaller**3 / TUNING.many
    return float((products + equations) / numbers)


def _solved(A: FloatArray, b: FloatArray) -> FloatArray:
    """Return A⁻¹b for the positive definite matrix with that upper triangle. If rounding prevents
    that, A is replaced by its diagonal.
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
    """Return ℓ'(X̃z) at the minimum of Σ s ℓ(X̃z) + ‖z − centre‖²/2c, by damped Newton steps from
    that z.
    """
    design = agent.centred
    loss = agent.loss
    y = agent.exact_labels
    centre = centre.astype(float)
    z = z.astype(float)
    scores = design.forward(z).astype(float)
    first = 0.0
    gradients = loss.gradient(scores, y)
    for _ in range(MOST_STEPS):
        away = z - centre
        gradient = design.adjoint(agent.weighted(gradients)) + away / c
        size = float(np.linalg.norm(gradient))
        first = first or size
        if size <= TUNING.exactness * tolerance * first or agent.should_stop():
            break
        curvatures = loss.curvature(scores, y)
        if _is_tall(agent):
            step = _primal_newton_step(agent, curvatures, gradient, c)
        else:
            step = _dual_newton_step(agent, curvatures, gradient, c)
        ahead = design.forward(step).astype(float)
        length = _damped_length(agent, scores, ahead, away, step, float(gradient @ step), c)
        z = z + length * step
        scores = scores + length * ahead
        gradients = loss.gradient(scores, y)
    return gradients


def _primal_newton_step(
    agent: Agent, curvatures: FloatArray, gradient: FloatArray, c: float
) -> FloatArray:
    """Return the step from equations of the size of the columns."""
    H = second_moment(agent.centred, agent.weighted(curvatures))
    H[np.diag_indices_from(H)] += 1.0 / c
    return -_solved(H, gradient)


def _dual_newton_step(
    agent: Agent, curvatures: FloatArray, gradient: FloatArray, c: float
) -> FloatArray:
    """Return the step from equations of the size of the rows."""
    design = agent.centred
    # (I/c + AᵀA)⁻¹ = c I − c² Aᵀ(I + c AAᵀ)⁻¹A for A = √(s∘ℓ'') X̃
    root = np.sqrt(curvatures)
    K = c * root[:, None] * _products(agent) * root
    K[np.diag_indices_from(K)] += 1.0
    if agent.data.weights is not None:
        root = root * np.sqrt(agent.data.weights)
    inner = _solved(K, root * design.forward(gradient))
    return c * (c * design.adjoint(root * inner) - gradient)


def _damped_length(
    agent: Agent,
    scores: FloatArray,
    ahead: FloatArray,
    away: FloatArray,
    step: FloatArray,
    promised: float,
    c: float,
) -> float:
    """Return the length of a Newton step. It is halved until the value falls by at least half of
    the decrease of the quadratic model. Far from rounding, the whole step suffices.
    """
    loss = agent.loss
    y = agent.exact_labels
    weights = agent.data.weights
    before = loss.value(scores, y, weights)
    along = float(away @ step)
    square = float(step @ step)
    negligible = ROUNDING * abs(before)
    length = 1.0
    for _ in range(MOST_STEPS):
        rise = loss.value(scores + length * ahead, y, weights) - before
        rise += (length * along + 0.5 * length**2 * square) / c
        if rise <= 0.25 * length * promised or -length * promised <= negligible:
            break
        length *= 0.5
    return length


@remembered
def _products(agent: Agent) -> FloatArray:
    return _gram(agent)


def _by_gradients(
    agent: Agent, v: FloatArray, w: FloatArray, c: float, tolerance: float, max_epochs: int
) -> FloatArray:
    """Take accelerated proximal gradient steps with restarts (FISTA) in the metric s, for any loss
    with a `dual_prox`.
    """
    step = 1.0 / (c * agent.squared_norm)
    point = v
    lead = v
    momentum = 1.0
    first = 0.0
    design = agent.centred
    scores = agent.centred.forward(w)
    for _ in range(50 * max_epochs):
        adjoint = design.adjoint(agent.weighted(lead - v))
        pull = scores - c * design.forward(adjoint)
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
