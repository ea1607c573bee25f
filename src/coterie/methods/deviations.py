"""One user's own part of a common model with deviations: given the scores u that the common model gives its rows,

    o = argmin  (1/N) Σ_i s_i ℓ(u_i + [A o]_i)  +  ½ oᵀMo           A = [X, 1],  M = diag(μ, …, μ, ν)

by Newton's method, computed alone and as exactly as float64 allows. Columns with an infinite M are not in A. Where the
user has fewer rows than columns, equations are solved in the rows:

    (AᵀDA + M)⁻¹ = M⁻¹ − M⁻¹Aᵀ D^½ (I + D^½ K D^½)⁻¹ D^½ A M⁻¹,       K = A M⁻¹ Aᵀ,  D = diag(s ℓ'')/N
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.linalg

from coterie.agent import Agent, remembered
from coterie.arrays import FloatArray, Matrix, is_sparse
from coterie.errors import NumericalError
from coterie.methods.moments import second_moment
from coterie.personal import Shared
from coterie.tuning import Tuning, tuned


@dataclass(frozen=True)
class _Tuning(Tuning):
    steps: int = tuned(100, "Newton's steps at most.", "measured: 12 suffice on har and school")
    solved: float = tuned(1e-22, "Share of the loss of a last squared decrement.", "rounding: the slopes' ε, squared")
    enough: float = tuned(1e-4, "Share of the linear decrease that a step needs.", "paper: Armijo 1966")
    halvings: int = tuned(40, "How often a step is halved.", "rounding: 2⁻⁴⁰ of a step changes nothing")


TUNING = _Tuning()
SMALL = 1 << 20
"""Numbers of which a second copy is kept."""


class Own(NamedTuple):
    """Where a user stands beside a common model."""

    own: FloatArray
    """Its deviation, a number for each column of its design; 0 where it has none."""
    scores: FloatArray
    slopes: FloatArray
    """ℓ' of every row."""
    value: float
    """Σ s ℓ + N ½ oᵀMo."""


class _Columns(NamedTuple):
    """The columns in which a user may deviate."""

    X: Matrix
    own: FloatArray
    """M, a number for each of them."""
    places: npt.NDArray[np.intp]
    """Their places in the design."""
    K: FloatArray | None
    """A M⁻¹ Aᵀ, where there are fewer rows than columns."""
    full: FloatArray | None
    """A itself, if it is dense and small."""

    def forward(self, o: FloatArray) -> FloatArray:
        d = self.X.shape[1]
        scores: FloatArray = self.X @ o[:d] if d else np.zeros(self.X.shape[0])
        return scores + o[d] if len(o) > d else scores

    def adjoint(self, v: FloatArray) -> FloatArray:
        d, result = self.X.shape[1], np.empty(len(self.own))
        result[:d] = self.X.T @ v if d else 0.0
        result[d:] = v.sum()
        return result

    def dense(self) -> FloatArray:
        X = self.X.toarray() if is_sparse(self.X) else self.X
        return np.hstack([X, np.ones((len(X), len(self.own) - X.shape[1]))])


@remembered
def columns_of(agent: Agent) -> _Columns:
    """What the problem lets this user deviate in."""
    problem, (n, width) = agent.problem, agent.design.shape
    assert isinstance(problem, Shared)
    d = agent.data.d if math.isfinite(problem.mu) else 0
    X = (agent.data.X if d else agent.data.X[:, :0]).astype(float, copy=False)
    own = np.append(np.full(d, problem.mu), [problem.nu] if math.isfinite(problem.nu) else [])
    places = np.append(np.arange(d), [width - 1] if math.isfinite(problem.nu) else []).astype(np.intp)
    K = None
    if n < len(own):
        K = np.asarray((X @ X.T).toarray() if is_sparse(X) else X @ X.T) / problem.mu
        K += 1.0 / problem.nu
    columns = _Columns(X, own, places, K, None)
    small = K is None and not is_sparse(X) and n * len(own) <= SMALL
    return columns._replace(full=np.ascontiguousarray(columns.dense())) if small else columns


def deviation(agent: Agent, common: FloatArray, start: FloatArray) -> Own:
    """The best deviation beside a common model that gives these scores, from another one."""
    loss, y, n, A = agent.loss, agent.exact_labels, agent.total, columns_of(agent)
    o = start[A.places]
    own = np.zeros(agent.design.shape[1])
    if not len(y):
        return Own(own, common, np.zeros(0), 0.0)

    def at(o: FloatArray) -> tuple[FloatArray, float]:
        scores = common + A.forward(o)
        return scores, loss.value(scores, y, agent.data.weights) + 0.5 * n * float(o @ (A.own * o))

    scores, value = at(o)
    scale = abs(value) + agent.weight * 1e-300
    for _ in range(TUNING.steps if len(o) else 0):
        slope = A.adjoint(agent.weighted(loss.gradient(scores, y))) + n * A.own * o
        bends = agent.weighted(loss.curvature(scores, y))
        way = -_solved(agent, A, bends / n, slope / n)
        down = float(slope @ way)
        if not down < 0:
            break
        share = 1.0
        for _ in range(TUNING.halvings):
            there, after = at(o + share * way)
            if after - value <= TUNING.enough * share * down:
                break
            if -down <= 1e-10 * scale:
                # What is left is below the rounding of the value: a full step of Newton's is right.
                break
            share *= 0.5
        else:
            break
        o, scores, value = o + share * way, there, after
        if share == 1.0 and -down <= TUNING.solved * scale:
            break
    own[A.places] = o
    return Own(own, scores, loss.gradient(scores, y), value)


def _solved(agent: Agent, A: _Columns, D: FloatArray, b: FloatArray) -> FloatArray:
    """(AᵀDA + M)⁻¹ b."""
    if A.K is None:
        H = second_moment(agent.design, D, A.places) if A.full is None else (A.full.T * D) @ A.full
        H.flat[:: len(H) + 1] += A.own
        return _positive(H, b)
    first, root = b / A.own, np.sqrt(D)
    inner = root[:, None] * A.K * root
    inner.flat[:: len(inner) + 1] += 1.0
    middle = root * _positive(inner, root * A.forward(first))
    return first - A.adjoint(middle) / A.own


def _positive(H: FloatArray, b: FloatArray) -> FloatArray:
    """H⁻¹ b for a positive definite matrix, of which the upper triangle is read."""
    _, x, failed = scipy.linalg.lapack.dposv(H, b, lower=0)
    if failed:
        raise NumericalError("the equations of a user's deviation are singular. Scale the columns, or raise mu.")
    result: FloatArray = x
    return result


def reduced(agent: Agent, bends: FloatArray) -> FloatArray:
    """N times the Hessian of the best value as a function of the common model, in centred coordinates: its own block is
    eliminated.

        ZᵀDZ − ZᵀDA (AᵀDA + M)⁻¹ AᵀDZ,     Z the centred design, D = diag(s ℓ'')/N
    """
    A, root = columns_of(agent), np.sqrt(bends)
    Z = agent.centred.dense(slice(None)) * root[:, None]
    if not len(A.own):
        return Z.T @ Z
    Q = A.dense() * (root[:, None] / np.sqrt(agent.total * A.own))
    # With Q = D^½ A M^-½:   Zᵀ (I − Q (I + QᵀQ)⁻¹ Qᵀ) Z = Zᵀ (I + QQᵀ)⁻¹ Z
    by_rows = len(Q) < Q.shape[1]
    inner = Q @ Q.T if by_rows else Q.T @ Q
    inner.flat[:: len(inner) + 1] += 1.0
    right = Z if by_rows else Q.T @ Z
    part: FloatArray = right.T @ scipy.linalg.solve(inner, right, assume_a="pos")
    return part if by_rows else Z.T @ Z - part
