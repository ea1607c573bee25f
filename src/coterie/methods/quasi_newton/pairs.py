"""What a quasi-Newton method remembers, and where it goes from there.

    S, Y      the last k steps, and by how much each changed the gradient: one row each, of the
              columns held here
    D         the first guess of the Hessian, see `metrics.py`; D/γ, γ = ⟨s, y⟩ / ⟨y, D⁻¹y⟩ of the
              newest pair
    H         the BFGS matrix of these pairs, in the compact form of Byrd, Nocedal and Schnabel
              (1994):

    H = γD⁻¹ + [Sᵀ, γD⁻¹Yᵀ] [ R⁻ᵀ(E + γC)R⁻¹   −R⁻ᵀ ] [   S   ]          C = Y D⁻¹ Yᵀ,  R the upper
                            triangle of S Yᵀ,
                            [     −R⁻¹           0  ] [ γY D⁻¹ ]          E its diagonal
    H⁻¹ = D/γ − Uᵀ M⁻¹ U,  U = [S D/γ; Y],  M = [ S D Sᵀ/γ   L ]          L what is left below the
                                                diagonal of S Yᵀ
                                                [    Lᵀ     −E ]

Of the whole only inner products of rows are needed: split by features, a `Sum` of a few numbers, of
which those among older pairs are known. With a threshold (l1), the next point is the minimum of the
model with H⁻¹ and the penalty: the root of 2k equations in α (Becker and Fadili, 2012), found by
Newton's method with one more small `Sum` a step:

    z(α) = argmin ⟨gradient − Uᵀα, z⟩ + (z − w)ᵀD(z − w) / 2γ + Σ threshold |z|,        M α = U
    (z(α) − w)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import scipy.linalg

from coterie.methods.quasi_newton.metrics import Metric
from coterie.numerics.arrays import FloatArray
from coterie.numerics.tuning import Tuning, tuned
from coterie.run.collectives import Protocol
from coterie.run.disclosure import Counts, triangle

Add = Callable[[FloatArray], Protocol[FloatArray]]
"""The sum over all columns, of which some may be elsewhere."""


@dataclass(frozen=True)
class _Tuning(Tuning):
    equations: int = tuned(12, "Newton's steps on the equations in α at most, ...")
    solved: float = tuned(
        1e-6, "... the share of the first residual at which they end, ...", below=1
    )
    shorter: float = tuned(
        0.3, "... and by how much a step is shortened that leads to a larger one.", below=1
    )


TUNING = _Tuning()


@dataclass(frozen=True, slots=True)
class Memory:
    """Pairs of steps and changes of the gradient, the newest last; and inner products of all but
    perhaps the newest.
    """

    S: FloatArray
    Y: FloatArray
    SY: FloatArray
    """S Yᵀ over all columns."""
    YDY: FloatArray
    """Y D⁻¹ Yᵀ, one matrix for each metric D."""
    SDS: FloatArray
    """S D Sᵀ, one matrix for each metric D."""

    @staticmethod
    def empty(width: int, metrics: int) -> Memory:
        """Nothing yet."""
        none = np.empty((0, width))
        return Memory(
            none, none, np.empty((0, 0)), np.empty((metrics, 0, 0)), np.empty((metrics, 0, 0))
        )

    def with_pair(self, s: FloatArray, y: FloatArray, most: int) -> Memory:
        """The memory with one more pair. It keeps the `most` latest pairs."""
        S = np.vstack([self.S, s])[-most:]
        Y = np.vstack([self.Y, y])[-most:]
        if most == 1:
            return replace(Memory.empty(len(s), len(self.YDY)), S=S, Y=Y)
        kept = slice(1 - most, None)
        return Memory(S, Y, self.SY[kept, kept], self.YDY[:, kept, kept], self.SDS[:, kept, kept])


@dataclass(frozen=True, slots=True)
class Along:
    """The gradient's inner products with the pairs, in one metric."""

    S: FloatArray
    Y: FloatArray
    """Y D⁻¹ gradient."""


def known(
    memory: Memory, metrics: Sequence[Metric], turn: int, gradient: FloatArray, add: Add
) -> Protocol[tuple[Memory, Along]]:
    """All inner products, after a `Sum` of the new ones: 2k of the gradient, and of a new pair 2 +
    2m times k.
    """
    S = memory.S
    Y = memory.Y
    k = len(S)
    if not k:
        return memory, Along(np.empty(0), np.empty(0))
    is_new = k > len(memory.SY)
    own = [S @ gradient, Y @ metrics[turn].inverse(gradient)]
    if is_new:
        own += [S @ Y[-1], Y @ S[-1]]
        own += [Y @ metric.inverse(Y[-1]) for metric in metrics]
        own += [S @ metric.times(S[-1]) for metric in metrics]
    received = (yield from add(np.concatenate(own))).reshape(-1, k)
    along = Along(received[0], received[1])
    if not is_new:
        return memory, along
    m = len(metrics)
    YDY = np.stack(
        [_grown(old, row, row) for old, row in zip(memory.YDY, received[4 : 4 + m], strict=True)]
    )
    SDS = np.stack(
        [_grown(old, row, row) for old, row in zip(memory.SDS, received[4 + m :], strict=True)]
    )
    return Memory(S, Y, _grown(memory.SY, received[2], received[3]), YDY, SDS), along


def _grown(old: FloatArray, column: FloatArray, row: FloatArray) -> FloatArray:
    """A square matrix with one more column and row."""
    k = len(row)
    grown = np.empty((k, k))
    grown[:-1, :-1], grown[:, -1], grown[-1, :-1] = old, column, row[:-1]
    return grown


def gamma(memory: Memory, turn: int) -> float:
    """How much softer the first guess is made, as the newest pair wants it."""
    if not len(memory.SY):
        return 1.0
    return float(memory.SY[-1, -1] / memory.YDY[turn][-1, -1])


def along_gradient(
    memory: Memory, metric: Metric, turn: int, gradient: FloatArray, along: Along
) -> FloatArray:
    """−H gradient."""
    scale = gamma(memory, turn)
    if not len(memory.SY):
        return -scale * metric.inverse(gradient)
    R = np.triu(memory.SY)
    E = np.diag(np.diag(memory.SY))
    inner = scipy.linalg.solve_triangular(R, along.S)
    right = (E + scale * memory.YDY[turn]) @ inner - scale * along.Y
    top = scipy.linalg.solve_triangular(R, right, trans=1)
    way: FloatArray = -(scale * metric.inverse(gradient - memory.Y.T @ inner) + memory.S.T @ top)
    return way


class Model(NamedTuple):
    """⟨gradient, z⟩ + ½ (z − w)ᵀ H⁻¹ (z − w) + Σ threshold |z|, with γ times `stretch` in H."""

    memory: Memory
    metric: Metric
    turn: int
    gradient: FloatArray
    w: FloatArray
    threshold: FloatArray
    stretch: float


def most_of_products(pairs: int, metrics: int, has_equations: bool) -> Counts:
    """The largest counts of collectives and of numbers in `known` and, if the penalty has an l1
    part, in `minimum`. `pairs` is the number of stored pairs.
    """
    products = (4 + 2 * metrics) * pairs
    if not has_equations:
        return 1, products
    equations = TUNING.equations * (2 * pairs + triangle(2 * pairs))
    return 1 + TUNING.equations, products + equations


def minimum(model: Model, add: Add) -> Protocol[FloatArray]:
    """The z that minimises that model."""
    memory = model.memory
    metric = model.metric
    turn = model.turn
    scale = model.stretch * gamma(memory, turn)
    k = len(memory.S)
    if not k:
        return metric.minimum(model.gradient, model.w, model.threshold, scale)[0]
    U = np.vstack([metric.times(memory.S) / scale, memory.Y])
    below = np.tril(memory.SY, -1)
    M = np.block([[memory.SDS[turn] / scale, below], [below.T, -np.diag(np.diag(memory.SY))]])
    # In units in which the diagonal is 1: pairs of different length then do not matter to the
    # equations.
    unit = 1.0 / np.sqrt(np.abs(M.diagonal()))
    M = M * unit[:, None] * unit
    U = U * unit[:, None]
    upper = np.triu_indices(2 * k)
    first = 0.0
    best = np.inf
    z = model.w
    alpha = np.zeros(2 * k)
    step = np.zeros(2 * k)
    kept = np.zeros(2 * k)
    for _ in range(TUNING.equations):
        trial, free = metric.minimum(model.gradient - U.T @ alpha, model.w, model.threshold, scale)
        received = yield from add(
            np.concatenate([U @ (trial - model.w), metric.products(U, free, scale)[upper]])
        )
        left = M @ alpha - received[: 2 * k]
        size = float(np.linalg.norm(left))
        first = first or size
        if size < best:
            z = trial
            best = size
            kept = alpha
            if size <= TUNING.solved * first:
                break
            J = np.zeros((2 * k, 2 * k))
            J[upper] = received[2 * k :]
            step = -scipy.linalg.lstsq(M - (J + np.triu(J, 1).T), left)[0]
        else:
            # From one piece to the next a full step may lead away.
            step = TUNING.shorter * step
        alpha = kept + step
    return z
