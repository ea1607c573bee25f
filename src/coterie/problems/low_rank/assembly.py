"""A low-rank model is assembled from the factors that all agents have, and taken apart into
them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from coterie.numerics.arrays import FloatArray
from coterie.numerics.factors import apart, written
from coterie.problems.low_rank.model import LowRankModel
from coterie.problems.low_rank.tasks import Task
from coterie.problems.parts.data import Classes
from coterie.problems.parts.models import Models
from coterie.problems.problem import Problem
from coterie.problems.rows import stray_intercept
from coterie.run.agent import Agent
from coterie.run.certificate.bound import Point
from coterie.run.rounds import Outcome

ORTHOGONAL = 1e-6
"""The most by which singular vectors may fail to be orthonormal; those of data in single precision
are less exact.
"""


class LowRankModels(Models[Problem[Task], LowRankModel]):
    """A point is a matrix of factors: U, s and V below each other, and perhaps a column of
    intercepts.
    """

    def shapes(
        self, model: LowRankModel, members: Sequence[Agent[Problem[Task]]]
    ) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Rows and columns of the matrix."""
        return (len(model.U), len(model.V)), members[0].problem.loss.size(members[0].data)

    def _points(
        self,
        model: LowRankModel,
        members: Sequence[Agent[Problem[Task]]],
        witness: Sequence[FloatArray] | None,
    ) -> list[Point]:
        problem = members[0].problem
        free = None
        if problem.intercept:
            free = np.concatenate(
                [_or_zeros(model.a, len(model.U)), _or_zeros(model.b, len(model.V))]
            )
        before = None
        if problem.loss.stages > 1 and (problem.loss, problem.penalty) == (
            model.problem.loss,
            model.problem.penalty,
        ):
            # All parties have the same matrix of the stage before.
            before = next((v for v in witness or () if v.size), None)
        return [Point(written(model.U, model.s, model.V, free), before)] * len(members)

    def assemble(
        self,
        outcome: Outcome,
        members: Sequence[Agent[Problem[Task]]],
        problem: Problem[Task],
        classes: Classes,
    ) -> LowRankModel:
        """The factors, which all agents have, as they were certified."""
        data = members[0].data
        w = outcome.points[0].w
        d, m = problem.loss.size(data)
        a = b = None
        if problem.intercept:
            a, b = apart(w[: d + m, -1], d)
            if problem.loss.kind == "entries":
                a = a.copy()
            else:
                a = None
            w = w[:, :-1]
        U, V, s = (part.copy() for part in np.split(w, [d, d + m]))
        model = LowRankModel(U, s[0], V, problem, classes, data.columns)
        if b is None:
            return model
        return replace(model, a=a, b=b.copy())

    def unproven(
        self, model: LowRankModel, members: Sequence[Agent[Problem[Task]]], own: Sequence[float]
    ) -> Iterator[str]:
        """Also singular values and vectors that are none, of which only the product is proven."""
        yield from stray_intercept(model)
        if model.a is not None and (
            model.problem.loss.kind != "entries" or not model.problem.intercept
        ):
            yield "the model has an intercept of rows, but its problem has none"
        if not _is_decomposition(model):
            yield "what the model calls singular values and vectors are none of its matrix"


def _or_zeros(part: FloatArray | None, size: int) -> FloatArray:
    if part is None:
        return np.zeros(size)
    return part


def _is_decomposition(model: LowRankModel) -> bool:
    """Whether the sides are orthonormal and the values positive and falling."""
    one = np.eye(len(model.s))
    off = [np.abs(side.T @ side - one).max(initial=0.0) for side in (model.U, model.V)]
    falling = (np.diff(model.s) <= ORTHOGONAL * model.s[:1].sum()).all()
    return bool((model.s > 0).all() and falling) and max(off) <= ORTHOGONAL
