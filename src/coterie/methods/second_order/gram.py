"""Least squares from one message: all agents add up X̃ᵀX̃ and X̃ᵀy once, and each solves the rest
alone.

    P(w) = ½ wᵀHw − cᵀw + g(w) + constant
    H = Σ_k X̃_kᵀ S_k X̃_k / n,   c = Σ_k X̃_kᵀ S_k y_k / n

The first round is one `Sum` of d (d + 3)/2 numbers, the upper triangle of H and then c. Every agent
finds the minimum from these numbers by the same deterministic steps (`quadratic.py`). H and c do
not depend on the penalty. So another penalty on the same data, or a path of strengths, needs no
message.

Squaring the data loses half of the digits where columns are nearly dependent. If the certificate
asks for a second round, this is a step of iterative refinement: one `Sum` of the gradient at w,
r = X̃ᵀS(X̃w − y)/n, d numbers, and

    w⁺ = argmin ⟨r, w⁺ − w⟩ + ½ (w⁺ − w)ᵀ H (w⁺ − w) + g(w⁺).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from coterie.errors import InvalidProblem
from coterie.methods.auto.costs import Outlook, Sizes, equations_work, products_work
from coterie.methods.method import Method, Rows
from coterie.methods.second_order.quadratic import minimiser, proven
from coterie.networks import Network
from coterie.numerics.arrays import FloatArray, sealed, shared_result
from coterie.problems.problem import Problem
from coterie.run.agent import Agent
from coterie.run.certificate import Point
from coterie.run.collectives import Protocol, Sum
from coterie.run.disclosure import TOTALS, Disclosure, triangle
from coterie.stats.moments import blas_message, unpacked


@dataclass(frozen=True, slots=True)
class State:
    """Where one agent stands between two rounds."""

    w: FloatArray
    """The model in float64, the same at every agent."""
    moments: FloatArray
    """The upper triangle of n H, and n c; empty before the first round."""


@dataclass(frozen=True)
class Gram(Method[State, Rows]):
    """The normal equations, added up once."""

    name: ClassVar[str] = "gram"
    split: ClassVar[str] = "samples"
    summary: ClassVar[str] = "least squares from one sum of XᵀX and Xᵀy, for few columns"
    disclosure: ClassVar[Disclosure] = Disclosure(
        sent="XᵀX and Xᵀy of your rows, one number per pair of columns, once, as part of a sum",
        learned=(
            "all second moments: means, variances, correlations. If you have no more rows than "
            "columns: your rows up to a rotation (all distances and angles between people), and "
            "their labels"
        ),
        secure=TOTALS,
        most=lambda case: (1, triangle(case.width) + case.width),
    )
    keeps_sums: ClassVar[bool] = True
    tensors: ClassVar[bool] = True
    discloses_labels: ClassVar[bool] = False
    first_look: ClassVar[int] = 1

    @classmethod
    def outlook(cls, problem: Problem, sizes: Sizes) -> Outlook | None:
        if not problem.loss.quadratic:
            return None
        d = sizes.width(problem)
        return Outlook(
            rounds=1,
            sums=1,
            scalars=d * (d + 3) / 2,
            work=products_work(sizes, d),
            what="one message suffices",
            shared=equations_work(d),
        )

    def check(self, problem: Problem, network: Network) -> None:
        if not problem.loss.quadratic:
            raise InvalidProblem(
                f"gram needs the squared loss (quadratic); {problem.loss.name!r} is not quadratic. "
                "Use newton for another smooth loss, or proximal-1 for any."
            )

    def together(self, agent: Agent) -> tuple[str, ...] | None:
        return ()  # the State is equal at all agents

    def start(self, agent: Agent) -> Protocol[State]:
        yield from ()  # sends nothing
        w = agent.centred.inner(agent.first_model().astype(float))
        return State(w, np.empty(0))

    def warmed(self, agent: Agent, state: State, point: Point) -> State:
        """Start at the model of an earlier run; with its sums, start at the minimum."""
        w = agent.centred.inner(point.w.astype(float))
        if point.kept is None:
            return replace(state, w=w)
        moments = sealed(point.kept)  # equal at all agents: one process solves once for all
        return State(_solved(agent, moments, w), moments)

    def round(self, agent: Agent, state: State, t: int) -> Protocol[State]:
        design = agent.centred
        n = agent.total
        if not state.moments.size:
            border = design.adjoint(agent.weighted(agent.exact_labels))
            moments = yield Sum(blas_message(design, agent.data.weights, border))
            return State(_solved(agent, moments, state.w), moments)
        if t == 1:
            return state  # a warm start has solved already
        gradients = design.forward(state.w) - agent.exact_labels
        total = yield Sum(design.adjoint(agent.weighted(gradients)))
        H = _normal(agent, state.moments)[0]

        def refined() -> FloatArray:
            return minimiser(agent, H, total / n, state.w)[0]

        w = shared_result(total, refined, key=agent.problem)
        return replace(state, w=w)

    def point(self, agent: Agent, state: State) -> Point:
        """Return w. The gradients of the loss are the dual variables: at the minimum, these are the
        best.
        """
        w, v = proven(agent, state.w)
        if state.moments.size:
            return Point(w, v, kept=state.moments)
        return Point(w, v)


def _normal(agent: Agent, moments: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return H and c."""
    width = agent.design.shape[1]

    def divided() -> tuple[FloatArray, FloatArray]:
        H = unpacked(moments, width) / agent.total
        c = moments[-width:] / agent.total
        return H, c

    return shared_result(moments, divided, key=width)


def _solved(agent: Agent, moments: FloatArray, w: FloatArray) -> FloatArray:
    """Return the minimum, from the sums of all agents."""
    H, c = _normal(agent, moments)
    # A deadline may cut the computation short, so each run with these sums computes its own.
    key = agent.problem, agent.should_stop
    return shared_result(moments, lambda: minimiser(agent, H, H @ w - c, w)[0], key=key)
