"""PG-EXTRA (W. Shi, Q. Ling, G. Wu, W. Yin, 2015) on the dual: columns apart, one `Mix` of n
numbers, beside l2.

    min over v of  (1/n) Σ_i ℓ_i*(v_i)  +  Σ_j s_j(v),     s_j(v) = ‖X_jᵀv/n‖² / 2ρ,     w_j =
                   −X_jᵀv / (n ρ)

Every agent has a copy of v. The first term is at agent 0, by its prox; here all know the labels,
but nobody else uses them. The step is 1/L for the largest L = ‖X_j‖² / (ρ n²) of all agents.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from coterie.run.agent import Agent
from coterie.run.collectives import Mix, Protocol, Sum

__all__ = ["DualExtra"]


@dataclass(frozen=True)
class DualExtra:
    """PG-EXTRA on copies of the dual."""

    name: ClassVar[str] = "EXTRA on the dual"
    split: ClassVar[str] = "features"

    def start(self, agent: Agent) -> Protocol[Any]:
        """v = 0 and the common step."""
        n, ridge = agent.design.shape[0], agent.problem.penalty.strong_convexity
        largest = yield Sum(agent.one_hot(agent.design.squared_norm() / (ridge * n * n)))
        return {
            "v": np.zeros(n),
            "c": 1.0 / float(largest.max()),
            "w": np.zeros(agent.data.d),
            "cols": agent.data.cols,
        }

    def round(self, agent: Agent, state: Any, t: int) -> Protocol[Any]:
        """One `Mix` of n numbers; the last one is remembered."""
        v, c, n, ridge = (
            state["v"],
            state["c"],
            len(state["v"]),
            agent.problem.penalty.strong_convexity,
        )
        mixed = yield Mix(v, "metropolis")
        w = -agent.design.adjoint(v) / (n * ridge)
        slope = -agent.design.forward(w) / n
        if t == 1:
            half = mixed - c * slope
        else:
            half = (
                state["half"]
                + mixed
                - 0.5 * (state["before"] + state["mixed"])
                - c * (slope - state["slope"])
            )
        after = (
            agent.problem.loss.dual_prox(half, agent.data.y, c / n) if agent.index == 0 else half
        )
        return {
            **state,
            "v": after,
            "w": w,
            "half": half,
            "before": v,
            "mixed": mixed,
            "slope": slope,
        }

    def model(self, states: list[Any]) -> np.ndarray:
        """All blocks, each in its place."""
        whole = np.empty(sum(len(state["w"]) for state in states))
        for state in states:
            whole[state["cols"]] = state["w"]
        return whole
