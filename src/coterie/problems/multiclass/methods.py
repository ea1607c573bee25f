"""Newton's method for several classes: softmax, for data split by samples.

H = Σ s x xᵀ ⊗ (diag(p) − p pᵀ)                                    a block for every pair of classes
H d = Xᵀ(s ∘ (p ∘ Xd − p ⟨p, Xd⟩))                                 one row of scores per row, never
a matrix of H's size
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from coterie.methods.second_order import careful
from coterie.methods.second_order.newton import (
    ByWidth,
    State,
    most_by_width,
    most_of_newtons_search,
)
from coterie.methods.second_order.oracle import Aim
from coterie.numerics.arrays import Design, FloatArray
from coterie.problems.multiclass.view import SoftmaxLocalLoss, StackedDesign
from coterie.run.agent import Agent
from coterie.run.collectives import Protocol
from coterie.run.disclosure import TOTALS, Case, Counts, Disclosure
from coterie.stats.moments import packed

FULL = 500
"""Coefficients up to which a careful step adds up the whole Hessian."""


@dataclass(frozen=True)
class SeveralScores(careful.RowsNearby):
    """Rows with one score for each class."""

    local: SoftmaxLocalLoss

    @property
    def gradients(self) -> FloatArray:
        return self.local.gradients

    @property
    def losses(self) -> float:
        return self.local.losses

    def design(self, columns: Design) -> Design:
        if isinstance(columns, StackedDesign):
            return columns
        return StackedDesign(columns, self.local.design.outputs)

    def weighted(self, v: FloatArray) -> FloatArray:
        return self.local.weighted(v)

    def hessian_message(self, design: Design, *more: FloatArray) -> FloatArray:
        assert isinstance(design, StackedDesign)
        return packed(self.local.hessian(design), *more)

    def gradient_change(self, change: FloatArray) -> FloatArray:
        return self.local.gradient_change(change)


def _sometimes(case: Case) -> Counts:
    """What a search adds to a round, and how much more a careful agent sends."""
    collectives, numbers = most_of_newtons_search(case)
    if case.width * case.outputs <= FULL:
        carefully, usual = careful.most_of_target(case), most_by_width(case)
        collectives += max(0, carefully[0] + 1 - usual[0])
        numbers += max(0, carefully[1] + 1 - usual[1])
    return collectives, numbers


@dataclass(frozen=True)
class SoftmaxNewton(ByWidth):
    """Proximal Newton for softmax with a line search."""

    name: ClassVar[str] = "softmax-newton"
    family: ClassVar[str] = "multiclass"
    summary: ClassVar[str] = "Newton's method for several classes: a handful of rounds"
    disclosure: ClassVar[Disclosure] = Disclosure(
        sent=(
            "the gradient of your rows, one number per column and class, and their Hessian, or "
            "products with it, as part of a sum"
        ),
        learned=(
            "weighted sums of your rows and of their products; with few rows, your rows and labels"
        ),
        secure=TOTALS,
        most=most_by_width,
        sometimes=_sometimes,
    )

    def aim(self, agent: Agent, state: State, oracle: Any) -> Protocol[Aim]:
        if agent.careful and len(state.w) <= FULL:
            return (yield from careful.target(agent, state.w, SeveralScores(oracle.local)))
        return (yield from super().aim(agent, state, oracle))
