"""The whole problem at one agent, which holds everybody's columns: solved there by a method for
rows, without a word.

| loss          | method           |
|---------------|------------------|
| quadratic     | `gram`           |
| smooth        | `newton`         |
| with kinks    | `interior-point` |

The end is a gap of rounding, proven there, because nobody at this agent knows the tolerance of the
run. Where that method ends far from it, a careful agent goes on: see `careful.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from coterie.data import Table
from coterie.methods.method import Method
from coterie.methods.second_order.gram import Gram
from coterie.methods.second_order.interior_point import WIDEST as WIDEST
from coterie.methods.second_order.interior_point import InteriorPoint
from coterie.methods.second_order.linear import Newton
from coterie.numerics.arrays import FloatArray
from coterie.numerics.penalties.group import Group
from coterie.numerics.tuning import Tuning, tuned
from coterie.problems.problem import Problem
from coterie.run.agent import Agent
from coterie.run.certificate import Bound, Point, certify, introduce
from coterie.run.collectives import alone


@dataclass(frozen=True)
class _Tuning(Tuning):
    exact: float = tuned(
        1e-13, "The relative gap at which it ends.", "rounding: what float64 data proves"
    )
    patience: int = tuned(
        3,
        "Rounds without a smaller gap after which it ends, ...",
        "rounding: gaps of rounding jump",
    )
    close: float = tuned(
        1e-7, "... if the relative gap is at most this; else ...", "measured: 1,000 seeded problems"
    )
    long_patience: int = tuned(25, "... after so many.", "measured: 1,000 seeded problems")
    rounds: int = tuned(200, "Maximum number of rounds.", "measured: 5 to 40 suffice")


TUNING = _Tuning()


def fits(columns: int) -> bool:
    """Whether so many columns are few enough."""
    return columns < WIDEST


def solved(agent: Agent, columns: FloatArray, groups: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The model, its own columns first, then everybody's, then the intercept; and a dual that
    proves it.

    `groups` are those of everybody's columns, where the penalty has groups.
    """
    own = agent.design.dense(slice(None))[:, : agent.data.d].astype(columns.dtype)
    offset = agent.offset
    table = Table(np.hstack([own, columns]), agent.exact_labels, agent.data.weights, offset=offset)
    problem = _joined(agent.problem, groups).changed(offset=offset is not None)
    whole = Agent(0, 1, table, problem, "samples", should_stop=agent.should_stop)
    whole = replace(whole, statistics=alone(introduce(whole)))
    if agent.careful:
        whole = whole.made_careful()
    best, bound = _descended(whole, None)
    if (
        not whole.careful
        and bound.gap > TUNING.close * whole.known.gap_unit
        and not agent.should_stop()
    ):
        whole = whole.made_careful()
        again, closer = _descended(whole, best)
        if closer.gap < bound.gap:
            best = again
    if best.v is None:
        v = whole.at(best.w.astype(float)).gradients
    else:
        v = best.v
    return whole.raised(best.w.astype(float)), v


def _descended(whole: Agent, start: Point | None) -> tuple[Point, Bound]:
    """The best point on the way of the method for its problem, and what is proven of it."""
    method = _method_for(whole)
    unit = whole.known.gap_unit
    state = alone(method.start(whole))
    if start is not None:
        state = alone(method.warm(whole, state, start))
    best = method.point(whole, state)
    proven = Bound(np.inf, -np.inf, gap=np.inf)
    waited = 0
    for t in range(1, TUNING.rounds + 1):
        state = alone(method.round(whole, state, t))
        point = method.point(whole, state)
        bound = alone(certify(whole, point))
        if bound.gap < proven.gap:
            waited = 0
        else:
            waited = waited + 1
        if bound.gap < proven.gap:
            best = point
            proven = bound
        if proven.gap <= TUNING.close * unit:
            patience = TUNING.patience
        else:
            patience = TUNING.long_patience
        if proven.gap <= TUNING.exact * unit or waited >= patience or whole.should_stop():
            break
    return best, proven


def _joined(problem: Problem, groups: FloatArray) -> Problem:
    """The problem of all columns, of an agent that knows its own part of the penalty."""
    if not groups.size or not isinstance(problem.penalty, Group):
        return problem
    labels = np.concatenate([np.array(problem.penalty.pieces.groups, float), groups])
    joined = tuple(np.unique(labels, return_inverse=True)[1].tolist())
    return problem.changed(penalty=Group(problem.penalty.strength, joined))


def _method_for(agent: Agent) -> Method[Any]:
    loss = agent.problem.loss
    if loss.quadratic and not agent.careful:
        return Gram()
    if loss.smooth:
        return Newton()
    return InteriorPoint()
