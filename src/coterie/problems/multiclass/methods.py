"""Newton's method for several classes: softmax, for data split by samples.

H = Σ s x xᵀ ⊗ (diag(p) − p pᵀ)                                    a block for every pair of classes
H d = Xᵀ(s ∘ (p ∘ Xd − p ⟨p, Xd⟩))                                 one row of scores per row, never
a matrix of H's size
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from coterie.methods.second_order.newton import ByWidth, most_by_width, most_of_newtons_search
from coterie.run.disclosure import TOTALS, Disclosure


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
        sometimes=most_of_newtons_search,
    )
