"""L-BFGS on data split by samples, for smooth losses and many columns: `lbfgs.py` has the text that both splits share.

A round is one `Sum` of ∇f(w + p) and its value, d + 1 numbers. Where P does not fall enough there, and in the first
round, a `Sum` of values at trial steps says how far to go, and another one ∇f there.

Where the loss is curved everywhere and the penalty is a ridge or none, `curved_pairs.py` takes fewer rounds, in single
precision for as long as it suffices.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import partial
from typing import Any, ClassVar

import numpy as np

from coterie.errors import InvalidProblem
from coterie.methods.auto.costs import Outlook, Sizes, root_condition
from coterie.methods.quasi_newton import curved_pairs, searched_rows
from coterie.methods.quasi_newton.curved_pairs import State
from coterie.methods.quasi_newton.lbfgs import NOTHING, QuasiNewton, is_for
from coterie.methods.quasi_newton.lbfgs import State as LbfgsState
from coterie.methods.second_order.linear import FULL
from coterie.methods.second_order.quadratic import proven
from coterie.networks import Network
from coterie.numerics.arrays import FloatArray, sealed, shared_result
from coterie.numerics.losses import Loss
from coterie.problems.problem import Problem
from coterie.run.agent import Agent
from coterie.run.certificate import Point
from coterie.run.collectives import Sum, Talk
from coterie.run.disclosure import WEIGHTED_ROWS, Disclosure
from coterie.stats.moments import diagonal

EXPECTED_ROUNDS = {"few": 14.0, "many": 9.5}
"""What "auto" assumes, for κ = 1. Where columns are few, half as many again as usual: correlated ones take far more,
and `newton` is at hand."""
EXPECTED_SHARED = 8e5, 500.0
"""Multiplications in a round that all agents do alike, and for each column."""


@dataclass(frozen=True)
class LbfgsRows(QuasiNewton):
    """L-BFGS on data split by samples: one `Sum` of d + 1 numbers in most rounds."""

    name: ClassVar[str] = "lbfgs-rows"
    state: ClassVar[type] = State
    split: ClassVar[str] = "samples"
    tensors: ClassVar[bool] = True
    summary: ClassVar[str] = "quasi-Newton for smooth losses: messages of one number per column, for many columns"
    instead: ClassVar[str] = "proximal-1"
    disclosure: ClassVar[Disclosure] = WEIGHTED_ROWS
    tells_labels: ClassVar[bool] = False

    @classmethod
    def outlook(cls, problem: Problem, sizes: Sizes) -> Outlook | None:
        """Where pairs are curved, numbers are in single precision at first; without them, steps are searched."""
        if not problem.loss.smooth or type(problem.loss).curvature is Loss.curvature or not is_for(problem):
            return None
        d, (fixed, each) = sizes.width(problem), EXPECTED_SHARED
        rounds = EXPECTED_ROUNDS["few" if d <= FULL else "many"] * root_condition(problem, sizes)
        what = "messages of a number per column suffice"
        return Outlook(rounds, 1.5, 1.2 * d, 3 * sizes.rows_work, what, fixed + each * d)

    def check(self, problem: Problem, network: Network) -> None:
        super().check(problem, network)
        if not problem.loss.smooth:
            raise InvalidProblem(
                f"lbfgs-rows needs a smooth loss, and {problem.loss.name} has a kink. Use interior-point, "
                "or a smooth relative: huber for absolute, squared_hinge for hinge."
            )

    def start(self, agent: Agent) -> Talk[State]:
        if curved_pairs.suits(agent.problem):
            w = sealed(agent.centred.inner(agent.first_model().astype(float)))
            return (yield from curved_pairs.started(agent, w, agent.known.slope))
        return (yield from self._started(agent, agent.first_model().astype(float)))

    def warm(self, agent: Agent, state: LbfgsState, point: Point) -> Talk[State]:
        return (yield from self._started(agent, point.w.astype(float)))

    def _started(self, agent: Agent, plain: FloatArray) -> Talk[State]:
        w = sealed(agent.centred.inner(plain))
        if curved_pairs.suits(agent.problem):
            return (yield from curved_pairs.started(agent, w, None))
        here = agent.at(w, agent.centred)
        bends, losses = searched_rows.bends_of(agent, here.curvature), np.array([here.losses]).T
        heard = yield Sum(np.concatenate([diagonal(agent.centred, bends), here.adjoint, losses], axis=-1))

        def started() -> State:
            first = searched_rows.started(agent, w, heard)
            known: dict[str, Any] = {field.name: getattr(first, field.name) for field in fields(first)}
            return State(**known, images=NOTHING, own=NOTHING, said=NOTHING, steepest=0.0, softer=1.0, along=0.0)

        return shared_result(heard, started, key=id(w))

    def round(self, agent: Agent, state: LbfgsState, t: int) -> Talk[State]:
        assert isinstance(state, State)
        if curved_pairs.suits(agent.problem):
            return (yield from curved_pairs.taken(agent, state, self.memory))
        after = yield from searched_rows.searched(self, agent, state, t, partial(_Rows, agent, state.w))
        assert isinstance(after, State)
        return after

    def point(self, agent: Agent, state: LbfgsState) -> Point:
        return Point(*proven(agent, state.w))

    def together(self, agent: Agent) -> tuple[str, ...] | None:
        return ("images", "own") if curved_pairs.suits(agent.problem) else ()

    def expected_gap(self, agent: Agent, state: LbfgsState) -> float | None:
        return curved_pairs.expected_gap(agent, state) if curved_pairs.suits(agent.problem) else None


class _Rows:
    """The rows of an agent along a way from w."""

    def __init__(self, agent: Agent, w: FloatArray, p: FloatArray):
        self.here, self.image = agent.at(w, agent.centred), agent.centred.forward(p)

    def at(self, step: float) -> FloatArray:
        there = self.here.moved(step * self.image)
        return np.concatenate([there.adjoint, np.array([there.losses]).T], axis=-1)

    def values(self, steps: FloatArray) -> FloatArray:
        losses: FloatArray = self.here.losses_along(self.image, steps)
        return losses
