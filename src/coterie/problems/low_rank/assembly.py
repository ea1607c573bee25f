"""A low-rank model is assembled from the factors that all agents have, and taken apart into
them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from coterie.numerics.arrays import FloatArray
from coterie.numerics.factors import apart, written
from coterie.problems.low_rank.model import LowRankModel
from coterie.problems.low_rank.tasks import Task
from coterie.problems.parts.data import Classes
from coterie.problems.parts.models import Models
from coterie.problems.problem import Problem
from coterie.problems.rows import stray_intercept
from coterie.run.agent import AgentForm
from coterie.run.certificate.bound import Point
from coterie.run.rounds import Outcome

ORTHOGONAL = 1e-6
"""The most by which singular vectors may differ from orthonormal ones; in single precision they are
less exact.
"""


class LowRankModels(Models[Problem[Task], LowRankModel]):
    """A point is a matrix of factors: U, s and V below each other, and with an intercept one more
    column.
    """

    def shapes(
        self, model: LowRankModel, members: Sequence[AgentForm[Problem[Task]]]
    ) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Rows and columns of the matrix."""
        agent = members[0]
        of_model = (len(model.U), len(model.V))
        of_data = agent.problem.loss.size(agent.data)
        return of_model, of_data

    def _points(
        self,
        model: LowRankModel,
        members: Sequence[AgentForm[Problem[Task]]],
        witness: Sequence[FloatArray] | None,
    ) -> list[Point]:
        problem = members[0].problem
        free = None
        if problem.intercept:
            rows = _or_zeros(model.a, len(model.U))
            columns = _or_zeros(model.b, len(model.V))
            free = np.concatenate([rows, columns])
        before = None
        same_loss = problem.loss == model.problem.loss
        same_penalty = problem.penalty == model.problem.penalty
        if problem.loss.stages > 1 and same_loss and same_penalty:
            # All parties have the same matrix of the stage before.
            before = next((v for v in witness or () if v.size), None)
        point = Point(written(model.U, model.s, model.V, free), before)
        return [point] * len(members)

    def assemble(
        self,
        outcome: Outcome,
        members: Sequence[AgentForm[Problem[Task]]],
        problem: Problem[Task],
        classes: Classes,
    ) -> LowRankModel:
        """The factors, which all agents have, as in the certificate."""
        data = members[0].data
        w = outcome.points[0].w
        d, m = problem.loss.size(data)
        a = None
        b = None
        if problem.intercept:
            rows, columns = apart(w[: d + m, -1], d)
            b = columns.copy()
            if problem.loss.kind == "entries":
                a = rows.copy()
            w = w[:, :-1]
        U, V, s = np.split(w, [d, d + m])
        return LowRankModel(
            U.copy(), s[0].copy(), V.copy(), problem, classes, data.columns, a=a, b=b
        )

    def unproven(
        self, model: LowRankModel, members: Sequence[AgentForm[Problem[Task]]], own: Sequence[float]
    ) -> Iterator[str]:
        """Also singular values and vectors that are not those of W: the proof covers the product
        only.
        """
        yield from stray_intercept(model)
        may_have_rows = model.problem.loss.kind == "entries" and model.problem.intercept
        if model.a is not None and not may_have_rows:
            yield "the model has an intercept of rows, but its problem has none"
        if not _is_decomposition(model):
            yield "U, s and V of the model are not a singular value decomposition"


def _or_zeros(part: FloatArray | None, size: int) -> FloatArray:
    if part is None:
        return np.zeros(size)
    return part


def _is_decomposition(model: LowRankModel) -> bool:
    """Whether the sides are orthonormal and the values positive and falling."""
    one = np.eye(len(model.s))
    off = []
    for side in (model.U, model.V):
        difference = side.T @ side - one
        off.append(np.abs(difference).max(initial=0.0))
    largest = model.s[:1].sum()
    positive = bool((model.s > 0).all())
    falling = bool((np.diff(model.s) <= ORTHOGONAL * largest).all())
    return positive and falling and max(off) <= ORTHOGONAL
