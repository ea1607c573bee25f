"""CoCoA, equation (5) of "CoCoA Is ADMM": the fifth rule of the family in `primal_dual/rules.py`,
whose table explains the symbols.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from coterie.errors import InvalidProblem
from coterie.methods.method import NO_INTERCEPT
from coterie.methods.primal_dual.rules import Auto, PrimalDual, State
from coterie.networks import Network
from coterie.numerics.acceleration import Anderson
from coterie.problems.problem import Problem
from coterie.run.agent import Agent
from coterie.run.collectives import Protocol, Sum
from coterie.run.disclosure import WEIGHTED_ROWS, Disclosure
from coterie.run.steps import Coordinate, Steps


@dataclass(frozen=True)
class Cocoa(PrimalDual):
    """CoCoA, equation (5): for strongly convex penalties, with ρ = 1/λ and η = σ'."""

    name: ClassVar[str] = "cocoa"
    summary: ClassVar[str] = (
        "CoCoA: exact local problems, no parameter; needs an l2 part in the penalty, and no "
        "intercept"
    )

    disclosure: ClassVar[Disclosure] = WEIGHTED_ROWS

    sigma: Auto = "auto"
    """σ', the subproblem parameter; "auto" is K."""
    gamma: float = 1.0
    """γ, the aggregation parameter."""

    def check(self, problem: Problem, network: Network) -> None:
        if problem.penalty.strong_convexity <= 0:
            raise InvalidProblem(
                f"cocoa needs an l2 part in the penalty; {problem.penalty.name!r} has none. Use "
                "penalty='elasticnet' and intercept=False, or method='proximal-1'."
            )
        if problem.intercept:
            raise InvalidProblem(f"cocoa {NO_INTERCEPT}")

    def start(self, agent: Agent) -> Protocol[State]:
        yield from ()  # sends nothing
        w = agent.first_model()
        v = np.zeros(agent.design.shape[0], agent.design.dtype)
        Xv = np.zeros_like(w)
        if self.sigma == "auto":
            sigma = float(agent.count)
        else:
            sigma = float(self.sigma)
        rho = 1.0 / agent.problem.penalty.strong_convexity
        return State(w, v, Xv, rho, sigma, w_tuned=w, dual_tuned=w)

    def round(self, agent: Agent, state: State, t: int) -> Protocol[State]:
        total = yield Sum(state.Xv)
        # w⁽ᵗ⁾ = ∇g*(−Xv⁽ᵗ⁾/n), which is −Xv⁽ᵗ⁾/(nλ) for l2
        # (5)
        negative = agent.problem.negative_gradient(total, agent.total)
        w = agent.problem.penalty.conjugate_gradient(negative)
        v, Xv = self.dual_step(agent, state, w, t)
        v = state.v + self.gamma * (v - state.v)
        Xv = state.Xv + self.gamma * (Xv - state.Xv)
        return replace(state, w=w, v=v, Xv=Xv)

    def coordinates(self, agent: Agent, state: State) -> tuple[Coordinate, ...]:
        """Return v alone: w follows from it."""
        return super().coordinates(agent, state)[1:]

    def accelerated(self, problem: Problem) -> Steps:
        """Return Anderson's acceleration without over-relaxation, for which CoCoA has no theory."""
        if problem.loss.smooth:
            return Anderson(self, alpha=1.0)
        return self
