"""L-BFGS on data split by samples, for smooth losses and many columns.

A round (`rounds.py`) is one `Sum` of ∇f(w + p) and its value, d + 1 numbers, where P falls enough
there: `searched_rows.py`. Where the loss is curved everywhere and the penalty is a ridge or none,
`curved_pairs.py` takes fewer rounds, in single precision for as long as it suffices.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

import numpy as np

from coterie.errors import InvalidProblem
from coterie.methods.auto.costs import Outlook, Sizes, root_condition
from coterie.methods.quasi_newton import curved_pairs
from coterie.methods.quasi_newton.curved_pairs import Curved, CurvedState
from coterie.methods.quasi_newton.pairs import Memory
from coterie.methods.quasi_newton.rounds import Form, QuasiNewton, State, is_for
from coterie.methods.quasi_newton.searched_rows import (
    Along,
    Searched,
    curvatures_of,
    most_of_searched_step,
    started,
)
from coterie.methods.second_order.linear import FULL
from coterie.methods.second_order.quadratic import proven
from coterie.networks import Network
from coterie.numerics.arrays import FloatArray, sealed
from coterie.numerics.losses import Loss
from coterie.problems.problem import Problem
from coterie.run.agent import Agent, AgentForm
from coterie.run.certificate import Point
from coterie.run.collectives import Protocol
from coterie.run.disclosure import WEIGHTED_ROWS, Case, Counts, Disclosure
from coterie.stats.moments import diagonal

EXPECTED_ROUNDS = {"few": 14.0, "many": 9.5}
"""What "auto" assumes, for κ = 1. Where columns are few, half as many again as usual: correlated
ones take far more, and `newton` is at hand.
"""
EXPECTED_SHARED = 8e5, 500.0
"""Multiplications in a round that all agents do alike, and for each column."""


@dataclass(frozen=True)
class LbfgsRows(QuasiNewton[State]):
    """L-BFGS on data split by samples: one `Sum` of d + 1 numbers in most rounds."""

    name: ClassVar[str] = "lbfgs-rows"
    split: ClassVar[str] = "samples"
    tensors: ClassVar[bool] = True
    summary: ClassVar[str] = (
        "quasi-Newton for smooth losses: messages of one number per column, for many columns"
    )
    instead: ClassVar[str] = "proximal-1"
    disclosure: ClassVar[Disclosure] = replace(
        WEIGHTED_ROWS,
        most=lambda case: _most(case),
        sometimes=lambda case: _sometimes(case),
        before=lambda case: (2, 3 * case.width + 4),
    )
    discloses_labels: ClassVar[bool] = False

    @classmethod
    def outlook(cls, problem: Problem, sizes: Sizes) -> Outlook | None:
        """Where pairs are curved, numbers are in single precision at first; without them, steps are
        searched.
        """
        if (
            not problem.loss.smooth
            or type(problem.loss).curvature is Loss.curvature
            or not is_for(problem)
        ):
            return None
        d = sizes.width(problem)
        fixed, each = EXPECTED_SHARED
        rounds = EXPECTED_ROUNDS["few" if d <= FULL else "many"] * root_condition(problem, sizes)
        what = "messages of a number per column suffice"
        return Outlook(rounds, 1.5, 1.2 * d, 3 * sizes.rows_work, what, fixed + each * d)

    def check(self, problem: Problem, network: Network) -> None:
        super().check(problem, network)
        if not problem.loss.smooth:
            raise InvalidProblem(
                f"lbfgs-rows needs a smooth loss, and {problem.loss.name} is not differentiable. "
                "Use "
                "interior-point, "
                "or a smooth relative: huber for absolute, squared_hinge for hinge."
            )

    @property
    def states(self) -> tuple[type, ...]:
        return State, CurvedState, Memory

    def form(self, agent: Agent, state: State) -> Form:
        if curved_pairs.suits(agent.problem):
            return Curved(self.memory)
        return Searched(partial(_Rows, agent, state.w), self.memory)

    def start(self, agent: Agent) -> Protocol[State]:
        return (
            yield from self._started(
                agent, agent.first_model().astype(float), agent.known.gradient_at_start
            )
        )

    def warm(self, agent: Agent, state: State, point: Point) -> Protocol[State]:
        return (yield from self._started(agent, point.w.astype(float), None))

    def _started(
        self, agent: Agent, plain: FloatArray, known: FloatArray | None
    ) -> Protocol[State]:
        """At that model, where the gradient of the losses may be known."""
        w = sealed(agent.centred.inner(plain))
        if curved_pairs.suits(agent.problem):
            return (yield from curved_pairs.started(agent, w, known))
        local = agent.at(w, agent.centred)
        curvatures = diagonal(agent.centred, curvatures_of(agent, local.curvature))
        return (yield from started(agent, w, curvatures, local.adjoint, local.losses))

    def point(self, agent: Agent, state: State) -> Point:
        return Point(*proven(agent, state.w))

    def together(self, agent: Agent) -> tuple[str, ...] | None:
        if curved_pairs.suits(agent.problem):
            return ("score_changes", "own")
        return ()

    def expected_gap(self, agent: AgentForm, state: State) -> float | None:
        if not curved_pairs.suits(agent.problem):
            return None
        return curved_pairs.expected_gap(agent, state)


class _Rows(Along):
    """The rows of an agent along a way from w."""

    def __init__(self, agent: Agent, w: FloatArray, p: FloatArray):
        self._local = agent.at(w, agent.centred)
        self._score_change = agent.centred.forward(p)

    def at(self, step_size: float) -> FloatArray:
        there = self._local.moved(step_size * self._score_change)
        return np.concatenate([there.adjoint, np.array([there.losses]).T], axis=-1)

    def values(self, step_sizes: FloatArray) -> FloatArray:
        losses: FloatArray = self._local.losses_along(self._score_change, step_sizes)
        return losses


def _most(case: Case) -> Counts:
    """The largest counts of a round without a shorter step."""
    if curved_pairs.suits(case.problem):
        return curved_pairs.most_of_round(case.width, LbfgsRows.memory)
    return 1, case.width + 1


def _sometimes(case: Case) -> Counts:
    """What is added in a round with a shorter step."""
    if curved_pairs.suits(case.problem):
        return _most(case)
    return most_of_searched_step(case.width)
