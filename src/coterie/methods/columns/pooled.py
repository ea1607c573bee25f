"""The whole problem at one agent, which has the columns of all agents: a method for rows solves it
there, without messages.

| loss          | method           |
|---------------|------------------|
| quadratic     | `gram`           |
| smooth        | `newton`         |
| non-smooth    | `interior-point` |

The method ends at a gap of the size of rounding, which the agent proves, because methods do not
know the tolerance of the run. If it ends far from that gap, a careful agent continues: see
`careful.py`.
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
        1e-13, "The relative gap at which it ends.", "rounding: the least gap of float64 data"
    )
    patience: int = tuned(
        3,
        "Near the optimum, the method ends after these rounds without a smaller gap.",
        "rounding: gaps of rounding jump",
    )
    close: float = tuned(
        1e-7, "The largest relative gap near the optimum.", "measured: 1,000 seeded problems"
    )
    long_patience: int = tuned(
        25,
        "Elsewhere, the method ends after these rounds without a smaller gap.",
        "measured: 1,000 seeded problems",
    )
    rounds: int = tuned(200, "Maximum number of rounds.", "measured: 5 to 40 suffice")


TUNING = _Tuning()


def fits(columns: int) -> bool:
    """Return whether one agent can solve a problem with that number of columns."""
    return columns < WIDEST


def solved(agent: Agent, columns: FloatArray, groups: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the model (the agent's own columns first, then the others, then the intercept), and
    dual variables that prove it.

    `groups` are those of the columns of the other agents, if the penalty has groups.
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
    is_far = bound.gap > TUNING.close * whole.known.gap_unit
    if is_far and not whole.careful and not agent.should_stop():
        whole = whole.made_careful()
        again, closer = _descended(whole, best)
        if closer.gap < bound.gap:
            best = again
    w = best.w.astype(float)
    v = best.v
    if v is None:
        v = whole.at(w).gradients
    return whole.raised(w), v


def _descended(whole: Agent, start: Point | None) -> tuple[Point, Bound]:
    """Return the best point of the method for this problem, and its proof."""
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
            best = point
            proven = bound
            waited = 0
        else:
            waited += 1
        if proven.gap <= TUNING.close * unit:
            patience = TUNING.patience
        else:
            patience = TUNING.long_patience
        if proven.gap <= TUNING.exact * unit or waited >= patience or whole.should_stop():
            break
    return best, proven


def _joined(problem: Problem, groups: FloatArray) -> Problem:
    """Return the problem of all columns; the agent's own problem has its part of the penalty."""
    if not groups.size or not isinstance(problem.penalty, Group):
        return problem
    labels = np.concatenate([np.array(problem.penalty.pieces.groups, float), groups])
    _, numbers = np.unique(labels, return_inverse=True)
    joined = Group(problem.penalty.strength, tuple(numbers.tolist()))
    return problem.changed(penalty=joined)


def _method_for(agent: Agent) -> Method[Any]:
    loss = agent.problem.loss
    if loss.quadratic and not agent.careful:
        return Gram()
    if loss.smooth:
        return Newton()
    return InteriorPoint()
