"""Newton's method for proportional hazards, for data split by samples.

    H = Σ_i a_i x_i x_iᵀ − Σ_k D_k m_k m_kᵀ          a_i = Σ_k D_k p_ki,   m_k = Σ_i p_ki x_i, the
    mean of the rows at risk

over the rows i and the event times k of a party: it adds up its own strata, and needs no risk sets
of other parties.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from coterie.errors import InvalidData
from coterie.methods.second_order.newton import ByWidth, most_by_width, most_of_newtons_search
from coterie.problems.survival.likelihood import HOPELESS
from coterie.run.agent import Agent
from coterie.run.disclosure import TOTALS, Disclosure

ROUNDS = 30
"""Rounds after which steps that still overflow show that the likelihood has no maximum."""


@dataclass(frozen=True)
class CoxNewton(ByWidth):
    """Proximal Newton for Cox's partial likelihood with a line search."""

    name: ClassVar[str] = "cox-newton"
    family: ClassVar[str] = "survival"
    summary: ClassVar[str] = "Newton's method for proportional hazards: a handful of rounds"
    disclosure: ClassVar[Disclosure] = Disclosure(
        sent=(
            "the gradient of your partial likelihood, one number per column, and its Hessian, or "
            "products with it, as part of a sum"
        ),
        learned=(
            "weighted sums of your rows and of their products; with few rows, your rows and times"
        ),
        secure=TOTALS,
        most=most_by_width,
        sometimes=most_of_newtons_search,
    )

    def check_step(self, agent: Agent[Any], losses: float, t: int) -> None:
        if losses >= HOPELESS and t > ROUNDS and agent.problem.penalty.is_zero:
            raise InvalidData(
                "the likelihood has no maximum: its best coefficients are infinite, because some "
                "columns together predict the next event exactly (a monotone likelihood). Add a "
                "penalty, e.g. l2, or leave such columns out."
            )
