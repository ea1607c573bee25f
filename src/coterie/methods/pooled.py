"""The whole problem at one agent, which holds everybody's columns: solved there by a method for rows, without a word.

| loss          | method           |
|---------------|------------------|
| quadratic     | `gram`           |
| smooth        | `newton`         |
| with kinks    | `interior-point` |

The end is a gap of rounding, proven there, because nobody at this agent knows the tolerance of the run.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from coterie.agent import Agent
from coterie.arrays import FloatArray
from coterie.certificate import certify, introduce
from coterie.data import Table
from coterie.methods.gram import Gram
from coterie.methods.interior_point import WIDEST as WIDEST
from coterie.methods.interior_point import InteriorPoint
from coterie.methods.method import Method
from coterie.methods.newton import Newton
from coterie.penalties.group import Group
from coterie.problem import Problem
from coterie.tuning import Tuning, tuned
from coterie.words import alone


@dataclass(frozen=True)
class _Tuning(Tuning):
    exact: float = tuned(1e-13, "The relative gap at which it ends.", "rounding: what float64 data proves")
    patience: int = tuned(3, "Rounds without a smaller gap after which it ends.", "rounding: gaps of rounding jump")
    rounds: int = tuned(200, "Maximum number of rounds.", "measured: 5 to 40 suffice")


TUNING = _Tuning()


def fits(columns: int) -> bool:
    """Whether so many columns are few enough."""
    return columns < WIDEST


def solved(agent: Agent, columns: FloatArray, groups: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The model, its own columns first, then everybody's, then the intercept; and a dual that proves it.

    `groups` are those of everybody's columns, where the penalty has groups.
    """
    own = agent.design.dense(slice(None))[:, : agent.data.d].astype(columns.dtype)
    offset = agent.offset
    table = Table(np.hstack([own, columns]), agent.exact_labels, agent.data.weights, offset=offset)
    problem = _joined(agent.problem, groups).changed(offset=offset is not None)
    whole = Agent(0, 1, table, problem, "samples", should_stop=agent.should_stop)
    whole = replace(whole, facts=alone(introduce(whole)))
    method = _method_for(agent.problem)
    state = alone(method.start(whole))
    best, gap, waited = method.point(whole, state), np.inf, 0
    for t in range(1, TUNING.rounds + 1):
        state = alone(method.round(whole, state, t))
        point = method.point(whole, state)
        bound = alone(certify(whole, point))
        waited = 0 if bound.gap < gap else waited + 1
        if bound.gap < gap:
            best, gap = point, bound.gap
        if gap <= TUNING.exact * whole.known.gap_unit or waited >= TUNING.patience or agent.should_stop():
            break
    v = whole.at(best.w.astype(float)).slopes if best.v is None else best.v
    return whole.raised(best.w.astype(float)), v


def _joined(problem: Problem, groups: FloatArray) -> Problem:
    """The problem of all columns, of an agent that knows its own part of the penalty."""
    if not groups.size or not isinstance(problem.penalty, Group):
        return problem
    labels = np.concatenate([np.array(problem.penalty.pieces.groups, float), groups])
    joined = tuple(np.unique(labels, return_inverse=True)[1].tolist())
    return problem.changed(penalty=Group(problem.penalty.strength, joined))


def _method_for(problem: Problem) -> Method[Any]:
    if problem.loss.quadratic:
        return Gram()
    return Newton() if problem.loss.smooth else InteriorPoint()
