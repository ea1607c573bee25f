"""Newton's method for several classes: softmax, for data split by samples.

H = Σ s x xᵀ ⊗ (diag(p) − p pᵀ)                                    a block for every pair of classes
H d = Xᵀ(s ∘ (p ∘ Xd − p ⟨p, Xd⟩))                                 a row of scores a row, never a matrix of H's size
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from coterie.agent import Agent
from coterie.arrays import FloatArray, is_sparse
from coterie.here import SoftmaxHere
from coterie.methods.disclosure import TOTALS, Disclosure
from coterie.methods.moments import diagonal, packed, second_moment
from coterie.methods.second_order.newton import ByWidth, State
from coterie.methods.second_order.oracle import ScoreOracle

BLOCK = 1 << 20
"""Numbers of long rows that are multiplied out at a time."""


class SoftmaxOracle(ScoreOracle):
    """The negative logarithms of the probabilities of a party's own labels."""

    here: SoftmaxHere
    least_curvature: ClassVar[float] = 1e-10

    def hessian(self, *more: FloatArray) -> FloatArray:
        """X̃ᵀ ∇²ℓ X̃ = Σ s x xᵀ ⊗ (diag(p) − p pᵀ): the second part is one product of long rows."""
        here = self.here
        base, classes, width = here.design.base, here.design.outputs, len(self.w)
        H = np.zeros((width, width))
        for start in range(0, len(here.y), BLOCK // width + 1):
            rows = slice(start, start + BLOCK // width + 1)
            roots = here.p[rows] if here.weights is None else here.p[rows] * np.sqrt(here.weights[rows])[:, None]
            long = (base.dense(rows)[:, :, None] * roots[:, None, :]).reshape(-1, width)
            H -= long.T @ long
        for c, shares in enumerate(here.weighted(here.p).T):
            H[c::classes, c::classes] += second_moment(base, np.ascontiguousarray(shares))
        return packed(H, *more)

    def diagonal(self) -> FloatArray:
        here = self.here
        base, shares = here.design.base, here.weighted(here.p * (1.0 - here.p))
        if is_sparse(base.X):
            return np.column_stack([diagonal(base, np.ascontiguousarray(part)) for part in shares.T]).ravel()
        squares = np.zeros((base.shape[1], here.design.outputs))
        for start in range(0, len(here.y), BLOCK // base.shape[1] + 1):
            rows = slice(start, start + BLOCK // base.shape[1] + 1)
            squares += np.square(base.dense(rows)).T @ shares[rows]
        return squares.ravel()


@dataclass(frozen=True)
class SoftmaxNewton(ByWidth):
    """Proximal Newton for softmax with a line search."""

    name: ClassVar[str] = "softmax-newton"
    family: ClassVar[str] = "multiclass"
    summary: ClassVar[str] = "Newton's method for several classes: a handful of rounds"
    disclosure: ClassVar[Disclosure] = Disclosure(
        sent="the slope of its own rows, a number per column and class, and their Hessian, or products with it",
        learned="weighted sums of its own rows and of their products; with few rows, the rows and labels themselves",
        secure=TOTALS,
    )

    def oracle(self, agent: Agent, state: State) -> SoftmaxOracle:
        return SoftmaxOracle(agent, state.w)
