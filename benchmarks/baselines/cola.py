"""CoLA (L. He, A. Bian, M. Jaggi, "COLA: Decentralized Linear Learning", 2018): columns apart, one
`Mix` of n numbers.

    v_k  ← Σ_l A_kl v_l                                                      everybody's guess of X
         w
    Δ_k  = argmin ⟨∇f(v_k), X_k Δ⟩ + (β σ'/2) ‖X_k Δ‖²/n + g_k(w_k + Δ)        f(v) = Σ ℓ(v_i)/n,
         ℓ'' ≤ β, σ' = K
    w_k ← w_k + Δ_k,   v_k ← v_k + K X_k Δ_k                                 γ = 1

The local problem is solved to the end by coordinate descent. Smooth losses; all agents know the
labels.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from coterie.numerics.arrays import is_sparse
from coterie.numerics.kernels.coordinate_descent import coordinate_descent
from coterie.run.agent import Agent
from coterie.run.collectives import Mix, Protocol

__all__ = ["Cola"]


@dataclass(frozen=True)
class Cola:
    """CoLA with exact local solutions."""

    name: ClassVar[str] = "CoLA"
    split: ClassVar[str] = "features"

    def start(self, agent: Agent) -> Protocol[Any]:
        """w = 0, v = 0, and the own Gram matrix."""
        yield from ()
        X = agent.data.X.toarray() if is_sparse(agent.data.X) else np.asarray(agent.data.X, float)
        gram = agent.count * agent.problem.loss.smoothness * (X.T @ X) / len(X)
        return {
            "w": np.zeros(X.shape[1]),
            "v": np.zeros(len(X)),
            "gram": gram,
            "cols": agent.data.cols,
        }

    def round(self, agent: Agent, state: Any, t: int) -> Protocol[Any]:
        """One `Mix` of n numbers."""
        X, w, gram, penalty = agent.data.X, state["w"], state["gram"], agent.problem.penalty
        v = yield Mix(state["v"], "metropolis")
        d, infinite, new = len(w), np.full(len(w), np.inf), w.copy()
        ridge = penalty.strong_convexity
        threshold = penalty.value(np.ones(1)) - 0.5 * ridge
        pull = -X.T @ agent.problem.loss.gradient(v, agent.data.y) / len(v)  # −slope at Δ = 0
        coordinate_descent(
            gram,
            np.full(d, ridge),
            np.full(d, threshold),
            -infinite,
            infinite,
            new,
            pull,
            1e-10,
            200,
        )
        return {**state, "w": new, "v": v + agent.count * (X @ (new - w))}

    def model(self, states: list[Any]) -> np.ndarray:
        """All blocks, each in its place."""
        whole = np.empty(sum(len(state["w"]) for state in states))
        for state in states:
            whole[state["cols"]] = state["w"]
        return whole
