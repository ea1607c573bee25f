"""Least squares from one message: all agents add up X̃ᵀX̃ and X̃ᵀy once, and each solves the rest
alone.

    P(w) = ½ wᵀHw − cᵀw + g(w) + constant             H = Σ_k X̃_kᵀ S_k X̃_k / n,   c = Σ_k X̃_kᵀ
    S_k y_k / n

The first round is one `Sum` of d (d + 3)/2 numbers, the upper triangle of H and then c, and every
agent finds the minimum of the same numbers by the same deterministic steps (`quadratic.py`). H and
c know nothing of the penalty, so another penalty on the same data, and a whole path of strengths,
needs no message at all.

Squaring the data loses half the digits where columns are nearly dependent. So a second round,
should the certificate ask for one, is a step of iterative refinement: one `Sum` of the true slope r
= X̃ᵀS(X̃w − y)/n, d numbers, and

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
from coterie.stats.moments import packed, second_moment, unpacked


@dataclass(frozen=True, slots=True)
class State:
    """Where one agent stands between two rounds."""

    w: FloatArray
    """The model in float64, the same at every agent."""
    letter: FloatArray
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
            "columns: your rows up"
            " to a rotation (all distances and angles between people), and their labels"
        ),
        secure=TOTALS,
        most=lambda case: (1, triangle(case.width) + case.width),
    )
    keeps_sums: ClassVar[bool] = True
    tensors: ClassVar[bool] = True
    tells_labels: ClassVar[bool] = False
    first_look: ClassVar[int] = 1

    @classmethod
    def outlook(cls, problem: Problem, sizes: Sizes) -> Outlook | None:
        if not problem.loss.quadratic:
            return None
        d = sizes.width(problem)
        scalars = d * (d + 3) / 2
        shared = equations_work(d)
        return Outlook(1, 1, scalars, products_work(sizes, d), "one message suffices", shared)

    def check(self, problem: Problem, network: Network) -> None:
        if not problem.loss.quadratic:
            raise InvalidProblem(
                f"gram needs the squared loss (quadratic); {problem.loss.name!r} is not quadratic. "
                "Use newton for another smooth loss, or proximal-1 for any."
            )

    def start(self, agent: Agent) -> Protocol[State]:
        yield from ()  # there is nothing to ask
        return State(agent.centred.inner(agent.first_model().astype(float)), np.empty(0))

    def warmed(self, agent: Agent, state: State, point: Point) -> State:
        """With the message of an earlier run on the same data, the answer is there before the first
        round.
        """
        if point.kept is None:
            return replace(state, w=agent.centred.inner(point.w.astype(float)))
        kept = sealed(point.kept)  # as all agents have it: the answer is computed once
        return State(_solved(agent, kept, agent.centred.inner(point.w.astype(float))), kept)

    def round(self, agent: Agent, state: State, t: int) -> Protocol[State]:
        design = agent.centred
        n = agent.total
        if not state.letter.size:
            border = design.adjoint(agent.weighted(agent.exact_labels))
            message = yield Sum(packed(second_moment(design, agent.data.weights), border))
            return State(_solved(agent, message, state.w), message)
        if t == 1:
            return state  # it was warmed
        gradients = design.forward(state.w) - agent.exact_labels
        total = yield Sum(design.adjoint(agent.weighted(gradients)))
        H = _normal(agent, state.letter)[0]
        w = shared_result(
            total, lambda: minimiser(agent, H, total / n, state.w)[0], key=agent.problem
        )
        return replace(state, w=w)

    def point(self, agent: Agent, state: State) -> Point:
        """The slope of the loss at w is the dual: at the minimum it is the best one."""
        return Point(*proven(agent, state.w), kept=state.letter if state.letter.size else None)


def _normal(agent: Agent, message: FloatArray) -> tuple[FloatArray, FloatArray]:
    """H and c."""
    width = agent.design.shape[1]

    def divided() -> tuple[FloatArray, FloatArray]:
        return unpacked(message, width) / agent.total, message[-width:] / agent.total

    return shared_result(message, divided, key=width)


def _solved(agent: Agent, message: FloatArray, w: FloatArray) -> FloatArray:
    H, c = _normal(agent, message)
    # Another run with the same message asks again, because the clock may have cut this answer
    # short.
    key = agent.problem, agent.should_stop
    return shared_result(message, lambda: minimiser(agent, H, H @ w - c, w)[0], key=key)
