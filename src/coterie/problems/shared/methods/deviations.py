"""The deviations of users from a common model. Let u be the scores of the common model for one
user's rows. The deviation of this user is

    o = argmin  (1/N) Σ_i s_i ℓ(u_i + [A o]_i)  +  ½ oᵀMo           A = [X, 1],  M = diag(μ, …, μ,
                ν)

The user computes it alone, by Newton's method, as exactly as float64 allows. A has no columns with
an infinite entry of M. If the user has fewer rows than columns, the equations are solved in the
space of the rows:

    (AᵀDA + M)⁻¹ = M⁻¹ − M⁻¹Aᵀ D^½ (I + D^½ K D^½)⁻¹ D^½ A M⁻¹,       K = A M⁻¹ Aᵀ,  D = diag(s
    ℓ'')/N
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt
import scipy.linalg

from coterie.errors import NumericalError
from coterie.numerics.arrays import FloatArray, Matrix, is_sparse
from coterie.numerics.kernels.cholesky import solve_positive
from coterie.numerics.local_loss import BatchDesign
from coterie.numerics.tuning import Tuning, tuned
from coterie.problems.shared.problem import Shared
from coterie.run.agent import Agent, remembered
from coterie.stats.moments import second_moment


@dataclass(frozen=True)
class _Tuning(Tuning):
    steps: int = tuned(
        100, "Largest number of Newton steps.", "measured: 12 suffice on har and school"
    )
    solved: float = tuned(
        1e-22,
        "A squared decrement below this share of the loss ends the steps.",
        "rounding: the ε of gradients, squared",
    )
    solved_far: float = tuned(
        1e-17,
        "The same share, where columns have large means.",
        "rounding: scores of means of 1e6, squared",
    )
    far: float = tuned(100.0, "Ratio of mean to spread from which the mean of a column is large.")
    passes: int = tuned(
        3, "Number of corrections of a dual variable.", "rounding: each gives some digits"
    )
    flattest: float = tuned(
        1e-12,
        "Smallest second derivative in a score that all rows share.",
        "rounding: linear losses",
    )
    enough: float = tuned(
        1e-4, "A step must achieve this share of the linear decrease.", "paper: Armijo 1966"
    )
    halvings: int = tuned(
        40,
        "Largest number of times that a step is halved.",
        "rounding: 2⁻⁴⁰ of a step changes nothing",
    )


TUNING = _Tuning()
SMALL = 1 << 20
"""Largest number of entries of a matrix A that is stored in addition to X."""
FEW = 32
"""Largest number of equations whose Cholesky factors are computed without LAPACK."""
NEGLIGIBLE = 1e-10
"""A full step is taken without a line search if its predicted decrease, as a share of the loss, is
at most this number.
"""
Users = npt.NDArray[np.intp]
Some = slice | Users
Formula = Callable[[FloatArray, FloatArray], FloatArray]
At = Callable[[FloatArray, Users], tuple[FloatArray, FloatArray]]
"""A function that computes the scores and the values of some users from their deviations."""


class Own(NamedTuple):
    """The deviation of a user from a common model. Arrays for several users have a first axis for
    the users.
    """

    own: FloatArray
    """The deviation, one number per column of the design; 0 in columns that may not deviate."""
    scores: FloatArray
    gradients: FloatArray
    """ℓ' for each row."""
    value: Any
    """Σ s ℓ + N ½ oᵀMo."""


class _Columns(NamedTuple):
    """The columns in which users may deviate. Dense arrays have a first axis for the users. Sparse
    matrices are for one user.
    """

    X: Matrix
    own: FloatArray
    """The diagonal of M, one number per column."""
    places: npt.NDArray[np.intp]
    """The places of the columns in the design."""
    K: FloatArray | None
    """A M⁻¹ Aᵀ, if there are fewer rows than columns; else None."""
    full: FloatArray | None
    """A itself, if it is dense and small; else None."""
    centred: FloatArray | None = None
    """[X − c, 1] for the means c of the columns, if these are large; else None."""
    centre: FloatArray | None = None

    def of(self, users: npt.NDArray[np.intp]) -> _Columns:
        """The columns of some of the users."""
        if is_sparse(self.X) or len(users) == len(self.X):
            return self
        parts = {"X": self.X, "K": self.K, "full": self.full, "centred": self.centred}
        chosen = {name: part[users] for name, part in parts.items() if part is not None}
        return self._replace(**chosen)

    def forward(self, o: FloatArray) -> FloatArray:
        d = self.X.shape[-1]
        scores: FloatArray
        if is_sparse(self.X):
            scores = (self.X @ o[0, :d])[None]
        elif d:
            scores = (self.X @ o[:, :d, None])[:, :, 0]
        else:
            scores = np.zeros(self.X.shape[:2])
        if o.shape[1] > d:
            scores = scores + o[:, d:]
        return scores

    def adjoint(self, v: FloatArray) -> FloatArray:
        d = self.X.shape[-1]
        result = np.empty((len(v), len(self.own)))
        if is_sparse(self.X):
            result[0, :d] = self.X.T @ v[0]
        elif d:
            result[:, :d] = (self.X.transpose(0, 2, 1) @ v[:, :, None])[:, :, 0]
        result[:, d:] = v.sum(axis=1, keepdims=True)
        return result

    def dense(self) -> FloatArray:
        X = self.X
        if is_sparse(X):
            X = X.toarray()[None]
        ones = np.ones((*X.shape[:2], len(self.own) - X.shape[2]))
        return np.concatenate([X, ones], axis=2)


@remembered
def columns_of(agent: Agent) -> _Columns:
    """The columns in which the problem lets these users deviate."""
    problem = agent.problem
    n, width = agent.design.shape
    assert isinstance(problem, Shared)
    X = _deviating(agent, problem)
    d = X.shape[-1]
    own = np.full(d, problem.mu)
    places = np.arange(d)
    if math.isfinite(problem.nu):
        own = np.append(own, problem.nu)
        places = np.append(places, width - 1)
    about_means = _about_means(agent, _Columns(X, own, places, None, None))
    if about_means is not None:
        return about_means
    if n < len(own):
        return _Columns(X, own, places, _products_of_rows(X, problem), None)
    columns = _Columns(X, own, places, None, None)
    if is_sparse(X) or n * len(own) > SMALL:
        return columns
    return columns._replace(full=np.ascontiguousarray(columns.dense()))


def _deviating(agent: Agent, problem: Shared) -> Matrix:
    """The columns of X whose coefficients may deviate: all, or none if μ is infinite."""
    if isinstance(agent.centred, BatchDesign):
        X = agent.centred.stack
    else:
        X = agent.data.X
    if not math.isfinite(problem.mu):
        X = X[:, :0] if is_sparse(X) else X[..., :0]
    X = X.astype(float, copy=False)
    if not is_sparse(X) and X.ndim == 2:
        return X[None]
    return X


def _products_of_rows(X: Matrix, problem: Shared) -> FloatArray:
    """The matrix A M⁻¹ Aᵀ."""
    if is_sparse(X):
        products = (X @ X.T).toarray()[None]
    else:
        products = X @ X.transpose(0, 2, 1)
    K: FloatArray = np.asarray(products) / problem.mu
    K += 1.0 / problem.nu
    return K


def _about_means(agent: Agent, columns: _Columns) -> _Columns | None:
    """The columns, with X centred at their means if these are large; else None."""
    X = columns.X
    centre = agent.known.centre
    lengths = agent.known.lengths
    if centre is None or lengths is None or is_sparse(X):
        return None
    if not 0 < X.shape[-1] < len(columns.own):
        return None
    means = agent.total * float(centre @ centre)
    if float(lengths.sum()) - means >= means / TUNING.far**2:
        return None
    centred = np.concatenate([X - centre, np.ones((*X.shape[:2], 1))], axis=2)
    return columns._replace(centred=centred, centre=centre)


def deviation(agent: Agent, common: FloatArray, start: FloatArray) -> Own:
    """The best deviation of a user, or of each user of a batch, given the scores `common` of the
    common model. Newton's method starts at the deviation `start`.
    """
    if common.ndim == 2:
        return _deviations(agent, common, start)
    found = _deviations(agent, common[None], start[None])
    return Own(found.own[0], found.scores[0], found.gradients[0], float(found.value[0]))


def _deviations(agent: Agent, common: FloatArray, start: FloatArray) -> Own:
    """The best deviations of several users."""
    A = columns_of(agent)
    rows = _rows_of(agent, common.shape)
    o = start[:, A.places]
    own = np.zeros((len(common), agent.design.shape[1]))
    if not common.shape[1]:
        return Own(own, common, np.zeros(common.shape), np.zeros(len(common)))

    def at(o: FloatArray, users: Users) -> tuple[FloatArray, FloatArray]:
        some = A.of(users)
        scores = common[users] + some.forward(o)
        penalties = 0.5 * agent.total * np.vecdot(o, some.own * o)
        return scores, rows.losses(scores, users) + penalties

    live = np.arange(len(common))
    scores, value = at(o, live)
    scale = np.abs(value) + agent.weight * 1e-300
    solved = TUNING.solved if A.centred is None else TUNING.solved_far
    for _ in range(TUNING.steps if o.shape[1] else 0):
        u = scores[live]
        curvatures = rows.weighted(rows.of(rows.loss.curvature, u, live), live)
        gradients = rows.weighted(rows.of(rows.loss.gradient, u, live), live)
        way, down = _way(agent, A.of(live), gradients, curvatures, o[live])
        falls = down < 0
        if not falls.all():
            live = live[falls]
            way = way[falls]
            down = down[falls]
        if not live.size:
            break
        found = _searched(at, _Lines(live, o[live], way, down, value[live], scale[live]))
        live = live[found.moved]
        o[live] = found.o[found.moved]
        scores[live] = found.scores[found.moved]
        value[live] = found.value[found.moved]
        decrease = -down[found.moved]
        live = live[(found.share[found.moved] < 1.0) | (decrease > solved * scale[live])]
        if not live.size:
            break
    own[:, A.places] = o
    return Own(own, scores, rows.of(rows.loss.gradient, scores, slice(None)), value)


class _Rows(NamedTuple):
    """The loss, the labels and the weights of the rows of several users."""

    loss: Any
    y: FloatArray
    weights: FloatArray | None

    def of(self, formula: Formula, scores: FloatArray, users: Some) -> FloatArray:
        """Evaluate a formula of the loss for each row."""
        return formula(scores.reshape(-1), self.y[users].reshape(-1)).reshape(scores.shape)

    def weighted(self, values: FloatArray, users: Some) -> FloatArray:
        """Multiply one value per row by the weights of the rows."""
        if self.weights is None:
            return values
        return values * self.weights[users]

    def losses(self, scores: FloatArray, users: Some) -> FloatArray:
        """Σ s ℓ for each user."""
        values = self.of(self.loss.each, scores, users).astype(float, copy=False)
        losses: FloatArray
        if self.weights is None:
            losses = values.sum(axis=1)
        else:
            losses = np.vecdot(values, self.weights[users])
        return losses


def _rows_of(agent: Agent, shape: tuple[int, ...]) -> _Rows:
    y = np.broadcast_to(agent.exact_labels, shape)
    weights = agent.data.weights
    if weights is not None:
        weights = np.broadcast_to(weights, shape)
    return _Rows(agent.loss, y, weights)


class _Lines(NamedTuple):
    """The users that take a step: their deviations, directions, derivatives along the directions,
    values, and scales of the values.
    """

    users: Users
    o: FloatArray
    way: FloatArray
    down: FloatArray
    value: FloatArray
    scale: FloatArray


class _Found(NamedTuple):
    """The deviations after a step, their scores and values, and the step sizes."""

    o: FloatArray
    scores: FloatArray
    value: FloatArray
    share: FloatArray
    moved: npt.NDArray[np.bool_]
    """Whether the value of each user decreases enough."""


def _searched(at: At, lines: _Lines) -> _Found:
    """Halve the step of each user until its value decreases enough."""
    share = np.ones(len(lines.users))
    o = lines.o + lines.way
    scores, value = at(o, lines.users)
    # The remaining decrease is below the rounding error of the value. Take the full Newton step.
    tiny = -lines.down <= NEGLIGIBLE * lines.scale
    moved = tiny | (value - lines.value <= TUNING.enough * lines.down)
    for _ in range(TUNING.halvings - 1):
        if moved.all():
            break
        short = np.flatnonzero(~moved)
        share[short] *= 0.5
        o[short] = lines.o[short] + share[short, None] * lines.way[short]
        scores[short], value[short] = at(o[short], lines.users[short])
        enough = TUNING.enough * share[short] * lines.down[short]
        moved[short] = value[short] - lines.value[short] <= enough
    return _Found(o, scores, value, share, moved)


def best_dual(agent: Agent, local: Own) -> FloatArray:
    """The derivatives ℓ' of the rows' losses at the best deviation, as dual variables.

    If columns have large means, a score has few correct digits. The function then corrects the
    derivatives so that q = −M o. Each correction is ℓ'' times the scores of a further Newton step,
    which do not have the rounding errors of the full scores.
    """
    A = columns_of(agent)
    if A.centred is None or not local.scores.size:
        return local.gradients
    alone = local.own.ndim == 1
    own, scores, v = (
        part[None] if alone else part for part in (local.own, local.scores, local.gradients)
    )
    y = np.broadcast_to(agent.exact_labels, scores.shape)
    curvature = agent.loss.curvature(scores.reshape(-1), y.reshape(-1)).reshape(scores.shape)
    for _ in range(TUNING.passes):
        way, _ = _way(agent, A, agent.weighted(v), agent.weighted(curvature), own[:, A.places])
        v = v + curvature * A.forward(way)
    return v[0] if alone else v


def _way(
    agent: Agent, A: _Columns, v: FloatArray, curvatures: FloatArray, o: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """The Newton step from the deviation o, and the derivative of the value along this step. v is
    s ∘ ℓ', and `curvatures` is s ∘ ℓ''.
    """
    n = agent.total
    if A.centred is not None:
        return _way_about_means(A, v, curvatures, n, o)
    gradient = A.adjoint(v) + n * A.own * o
    way = -_solved(agent, A, curvatures / n, gradient / n)
    return way, np.vecdot(gradient, way)


def _way_about_means(
    A: _Columns, v: FloatArray, curvatures: FloatArray, n: float, o: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """The Newton step of `_way` in the coordinates δ and γ = β + ⟨c, δ⟩. In these coordinates only
    the penalty of β has a large gradient:

    (Z̃ᵀDZ̃ + diag(μ, 0) + ν a aᵀ)⁻¹ b = p − r ν ⟨a, p⟩ / (1 + ν ⟨a, r⟩)       a = (−c, 1),  p =
    (…)⁻¹ b,  r = (…)⁻¹ a
    """
    assert A.centred is not None
    assert A.centre is not None
    Z, a, price = A.centred, np.append(-A.centre, 1.0), float(A.own[-1])
    ridge = np.append(A.own[:-1], 0.0)
    gradient = (
        (Z.transpose(0, 2, 1) @ v[:, :, None])[:, :, 0] / n + ridge * o + price * o[:, -1:] * a
    )
    G = (Z.transpose(0, 2, 1) * (curvatures / n)[:, None, :]) @ Z
    G[:, (k := np.arange(G.shape[1])), k] += ridge
    G[:, -1, -1] = np.maximum(G[:, -1, -1], TUNING.flattest)
    p = _positive(G.copy(), gradient)
    r = _positive(G, np.broadcast_to(a, gradient.shape).copy())
    intercept = (p @ a) / (1.0 + price * (r @ a))
    found = -(p - price * intercept[:, None] * r)
    return np.column_stack([found[:, :-1], -intercept]), n * np.vecdot(gradient, found)


def _solved(agent: Agent, A: _Columns, D: FloatArray, b: FloatArray) -> FloatArray:
    """Solve for (AᵀDA + M)⁻¹ b."""
    if A.K is None:
        if A.full is None:
            H = second_moment(agent.design, D[0], A.places)[None]
        else:
            H = (A.full.transpose(0, 2, 1) * D[:, None, :]) @ A.full
        H[:, (k := np.arange(H.shape[1])), k] += A.own
        return _positive(H, b)
    first, root = b / A.own, np.sqrt(D)
    inner = root[:, :, None] * A.K * root[:, None, :]
    inner[:, (k := np.arange(inner.shape[1])), k] += 1.0
    middle = root * _positive(inner, root * A.forward(first))
    return first - A.adjoint(middle) / A.own


def _positive(H: FloatArray, b: FloatArray) -> FloatArray:
    """Solve for H⁻¹ b with positive definite matrices. Only their upper triangles are read."""
    if b.shape[1] <= FEW:
        x, solve = b.copy(), cast(Any, solve_positive)
        failed = solve(np.ascontiguousarray(H), x) >= 0
    else:
        found = [
            scipy.linalg.lapack.dposv(one, right, lower=0) for one, right in zip(H, b, strict=True)
        ]
        x = np.array([solution for _, solution, _ in found])
        failed = any(code for _, _, code in found)
    if failed:
        raise NumericalError(
            "the equations of a user's deviation are singular. Scale the columns, or raise mu."
        )
    return x


def reduced(agent: Agent, curvatures: FloatArray) -> FloatArray:
    """N times the Hessian of the least value as a function of the common model, in centred
    coordinates. The block of the user's deviation is eliminated.

        ZᵀDZ − ZᵀDA (AᵀDA + M)⁻¹ AᵀDZ,     Z the centred design, D = diag(s ℓ'')/N
    """
    A, root = columns_of(agent), np.sqrt(np.atleast_2d(curvatures))[:, :, None]
    Z = _centred_rows(agent) * root
    H: FloatArray = Z.transpose(0, 2, 1) @ Z
    if len(A.own):
        H = _without_own_block(H, Z, A.dense() * (root / np.sqrt(agent.total * A.own)))
    return H if curvatures.ndim == 2 else H[0]


def _centred_rows(agent: Agent) -> FloatArray:
    """The rows of the centred designs of these users."""
    design = agent.centred
    if isinstance(design, BatchDesign):
        return design.dense(slice(None))
    return design.dense(slice(None))[None]


def _without_own_block(H: FloatArray, Z: FloatArray, Q: FloatArray) -> FloatArray:
    """Zᵀ (I − Q (I + QᵀQ)⁻¹ Qᵀ) Z = Zᵀ (I + QQᵀ)⁻¹ Z, where H is ZᵀZ and Q is D^½ A M^-½."""
    Qt, by_rows = Q.transpose(0, 2, 1), Q.shape[1] < Q.shape[2]
    inner, right = (Q @ Qt, Z) if by_rows else (Qt @ Q, Qt @ Z)
    diagonal = np.arange(inner.shape[1])
    inner[:, diagonal, diagonal] += 1.0
    part: FloatArray = right.transpose(0, 2, 1) @ np.linalg.solve(inner, right)
    return part if by_rows else H - part
