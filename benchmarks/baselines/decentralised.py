"""Three ways to agree on a graph: distributed subgradients, EXTRA and gradient tracking. Rows
apart, one `Mix` a round.

    subgradient (A. Nedić, A. Ozdaglar, 2009)    w⁺ = A w − (c/√t) ∇f(w)                         any
                                                 loss
    EXTRA (W. Shi, Q. Ling, G. Wu, W. Yin, 2015) w⁺⁺ = (I + A) w⁺ − ½(I + A) w − c(∇f(w⁺) − ∇f(w))
    tracking (A. Nedić, A. Olshevsky, W. Shi, 2017, "DIGing")   w⁺ = A w − c y,   y⁺ = A y + ∇f(w⁺)
    − ∇f(w)

A are Metropolis weights; the steps are c = factor / L, L the largest smoothness of an agent.
Penalties: l2, and l1 by its prox in the first two (PG-EXTRA).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from benchmarks.baselines import local_slope, local_smoothness
from coterie.run.agent import Agent
from coterie.run.collectives import Mix, Protocol, Sum

__all__ = ["Extra", "Subgradient", "Tracking"]

METROPOLIS = "metropolis"


@dataclass(frozen=True)
class Decentralised:
    """What the three share."""

    factor: float = 1.0
    split: ClassVar[str] = "samples"

    def start(self, agent: Agent) -> Protocol[Any]:
        """w = 0 and the common step."""
        largest = yield Sum(agent.one_hot(local_smoothness(agent)))
        return {"w": np.zeros(agent.design.shape[1]), "c": self.factor / float(largest.max())}

    def model(self, states: list[Any]) -> np.ndarray:
        """The mean of all models."""
        return np.mean([state["w"] for state in states], axis=0)


@dataclass(frozen=True)
class Subgradient(Decentralised):
    """Distributed subgradients with a step c/√t."""

    name: ClassVar[str] = "distributed subgradient"

    def round(self, agent: Agent, state: Any, t: int) -> Protocol[Any]:
        """One `Mix` of d numbers."""
        mixed = yield Mix(state["w"], METROPOLIS)
        step = state["c"] / np.sqrt(t)
        ahead = mixed - step * local_slope(agent, state["w"])
        smooth = agent.problem.penalty.strong_convexity > 0
        return {**state, "w": ahead if smooth else agent.problem.prox(ahead, step)}


@dataclass(frozen=True)
class Extra(Decentralised):
    """EXTRA, and PG-EXTRA where the penalty has a kink."""

    name: ClassVar[str] = "EXTRA"

    def round(self, agent: Agent, state: Any, t: int) -> Protocol[Any]:
        """One `Mix` of d numbers; the last one is remembered."""
        w, c = state["w"], state["c"]
        mixed, slope = (yield Mix(w, METROPOLIS)), local_slope(agent, w)
        if t == 1:
            half = mixed - c * slope
        else:
            half = (
                state["half"]
                + mixed
                - 0.5 * (state["before"] + state["mixed"])
                - c * (slope - state["slope"])
            )
        smooth = agent.problem.penalty.strong_convexity > 0
        after = half if smooth else agent.problem.prox(half, c)
        return {"w": after, "c": c, "half": half, "before": w, "mixed": mixed, "slope": slope}


@dataclass(frozen=True)
class Tracking(Decentralised):
    """DIGing: everybody also tracks the mean slope."""

    name: ClassVar[str] = "gradient tracking"

    def round(self, agent: Agent, state: Any, t: int) -> Protocol[Any]:
        """One `Mix` of 2d numbers."""
        w, c, d = state["w"], state["c"], len(state["w"])
        slope = state.get("slope")
        if slope is None:
            slope = local_slope(agent, w)
            state = {**state, "y": slope}
        mixed = yield Mix(np.concatenate([w, state["y"]]), METROPOLIS)
        after = mixed[:d] - c * state["y"]
        new = local_slope(agent, after)
        return {"w": after, "c": c, "slope": new, "y": mixed[d:] + new - slope}
