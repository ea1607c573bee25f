"""Newton's method for several classes: softmax, for data split by samples.

H = Σ s x xᵀ ⊗ (diag(p) − p pᵀ)                                    a block for every pair of classes
H d = Xᵀ(s ∘ (p ∘ Xd − p ⟨p, Xd⟩))                                 a row of scores a row, never a matrix of H's size
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from coterie.methods.disclosure import TOTALS, Disclosure
from coterie.methods.second_order.newton import ByWidth, State
from coterie.methods.second_order.oracle import ScoreOracle
from coterie.numerics.arrays import FloatArray
from coterie.problems.multiclass.view import SoftmaxHere
from coterie.run.agent import Agent
from coterie.stats.moments import packed


class SoftmaxOracle(ScoreOracle):
    """The negative logarithms of the probabilities of a party's own labels."""

    here: SoftmaxHere
    least_curvature: ClassVar[float] = 1e-10

    def hessian(self, *more: FloatArray) -> FloatArray:
        return packed(self.here.hessian(), *more)

    def diagonal(self) -> FloatArray:
        return self.here.diagonal()


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

    def oracle(self, agent: Agent[Any], state: State) -> SoftmaxOracle:
        return SoftmaxOracle(agent, state.w)
