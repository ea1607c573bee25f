"""The primal-dual family of "CoCoA Is ADMM" (Wu, Liu, Wang, Wang): samples split over agents around a server.

| paper            | code                | meaning                                                                    |
|------------------|---------------------|----------------------------------------------------------------------------|
| w                | `w`                 | the model, the same at every agent                                         |
| v_[k]            | `v`                 | the dual, one number per own sample                                        |
| X_[k] (d × n_k)  | `agent.design`      | the own data (rows are samples here), with the intercept's column          |
| ρ                | `rho`               | the penalty parameter of the augmented Lagrangian: the primal step         |
| η₂ = K τ         | `eta`               | keeps Q₂ = (ρ/n²)(η₂ I − XᵀX) positive semi-definite (Lemma 1)             |
| τ                | `tau`               | max over k of λmax(X_[k]ᵀ X_[k])                                           |
| ℓ_[k], g         | `problem`           | loss and penalty                                                           |

With sample weights s, a sample of weight 2 is two samples: X_[k]ᵀ v is a weighted sum and τ the norm of √s X.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np

from coterie.agent import Agent
from coterie.arrays import FloatArray
from coterie.certificate import Point
from coterie.errors import InvalidProblem
from coterie.methods.method import Method
from coterie.networks import Network
from coterie.problem import Problem
from coterie.words import Sum, Talk

__all__ = ["Proximal2", "State"]

TUNE_ROUNDS = frozenset(10 * 2**j for j in range(12))
"""ρ may change after these rounds and never again, so that the convergence proof for a fixed ρ applies to the rest."""


@dataclass(frozen=True, slots=True)
class State:
    """Where one agent stands between two rounds."""

    w: FloatArray
    v: FloatArray
    rho: float
    eta: float
    w_tuned: FloatArray
    """w when ρ was last changed, from which travelled distances are measured."""
    v_tuned: FloatArray


@dataclass(frozen=True)
class Proximal2(Method):
    """Linearised proximal ADMM on the dual, equation (4): closed-form local steps, one `Sum` of d numbers a round."""

    name: ClassVar[str] = "proximal-2"
    split: ClassVar[str] = "samples"
    summary: ClassVar[str] = "linearised proximal ADMM: closed-form local steps, any loss and penalty"

    rho: float | Literal["auto"] = "auto"
    """The primal step; "auto" starts from a scale-free guess and balances primal and dual progress."""
    eta: float | Literal["auto"] = "auto"
    """η₂; "auto" is Kτ."""

    @classmethod
    def appeal(cls, problem: Problem, network: Network) -> tuple[float, str]:
        return 1.0, "closed-form local steps for every loss and penalty"

    def __post_init__(self) -> None:
        for name, value in (("rho", self.rho), ("eta", self.eta)):
            if value != "auto" and not (isinstance(value, (int, float)) and 0 < value < math.inf):
                raise InvalidProblem(f"proximal-2: {name} must be a positive number or 'auto', not {value!r}.")

    @property
    def state(self) -> type:
        return State

    def start(self, agent: Agent) -> Talk[State]:
        assert agent.facts is not None
        rows, columns = agent.design.shape
        if self.eta == "auto":
            norms = yield Sum(agent.one_hot(agent.design.squared_norm(agent.data.weights)))
            # η₂ = K τ, τ = max_k λmax(X_[k]ᵀ X_[k])                                                        Lemma 1
            eta = agent.count * float(norms.max())
        else:
            eta = float(self.eta)
        eta = eta or 1.0
        if self.rho == "auto":
            rho = balance(agent.facts.reach, agent.facts.residual, agent.total, eta)
        else:
            rho = float(self.rho)
        w, v = np.zeros(columns, agent.design.dtype), np.zeros(rows, agent.design.dtype)
        return State(w, v, rho or 1.0, eta, w, v)

    def round(self, agent: Agent, state: State, t: int) -> Talk[State]:
        problem, n, rho = agent.problem, agent.total, state.rho
        total = yield Sum(agent.design.adjoint(agent.weighted(state.v)))
        # w⁽ᵗ⁾ = prox_{ρg}(w⁽ᵗ⁻¹⁾ − (ρ/n) X v⁽ᵗ⁾)                                                             (4)
        w = problem.prox(state.w - (rho / n) * total, rho)
        # v⁽ᵗ⁺¹⁾ = prox_{(n/ρη₂) ℓ*}(v⁽ᵗ⁾ + (n/ρη₂) Xᵀ(2w⁽ᵗ⁾ − w⁽ᵗ⁻¹⁾))                                        (4)
        step = n / (rho * state.eta)
        v = problem.loss.dual_prox(state.v + step * agent.design.forward(2 * w - state.w), agent.labels, step)
        return replace(state, w=w, v=v)

    def tunes_after(self, t: int) -> bool:
        return self.rho == "auto" and t in TUNE_ROUNDS

    def tune(self, agent: Agent, state: State, t: int) -> Talk[State]:
        moved = agent.weighted(state.v - state.v_tuned) @ (state.v - state.v_tuned)
        dual = math.sqrt((yield Sum(np.array([moved], float)))[0])
        primal = float(np.linalg.norm(state.w - state.w_tuned))
        if not (primal > 0 and dual > 0):
            return state
        rho = math.sqrt(state.rho * balance(primal, dual, agent.total, state.eta))
        return replace(state, rho=rho, w_tuned=state.w, v_tuned=state.v)

    def point(self, agent: Agent, state: State) -> Point:
        return Point(state.w, state.v)


def balance(primal: float, dual: float, n: float, eta: float) -> float:
    """The ρ for which both distances weigh the same in the metric of Lemma 2: ‖Δw‖²/ρ = ρη₂‖Δv‖²/n²."""
    return n * primal / (math.sqrt(eta) * dual) if dual > 0 and eta > 0 else 1.0
