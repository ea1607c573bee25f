"""A model of several classes is assembled from the matrix that all agents have, and taken apart
into it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from coterie.errors import InvalidInput
from coterie.numerics.arrays import FloatArray, stored
from coterie.problems.multiclass.loss import Softmax
from coterie.problems.multiclass.model import MulticlassModel
from coterie.problems.parts.data import Classes
from coterie.problems.parts.models import Models
from coterie.problems.problem import Problem
from coterie.problems.rows import stray_intercept
from coterie.run.agent import AgentForm
from coterie.run.certificate.bound import Point
from coterie.run.rounds import Outcome


class MulticlassModels(Models[Problem[Softmax], MulticlassModel]):
    """A point is the matrix of coefficients, a row per column of the data, and then the
    intercepts.
    """

    prepares = True

    def shapes(
        self, model: MulticlassModel, members: Sequence[AgentForm[Problem[Softmax]]]
    ) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Classes and columns."""
        agent = members[0]
        return model.coef_.shape, (agent.problem.outputs, agent.data.d)

    def _points(
        self,
        model: MulticlassModel,
        members: Sequence[AgentForm[Problem[Softmax]]],
        witness: Sequence[FloatArray] | None,
    ) -> list[Point]:
        W = model.coef_.T.astype(float)
        if model.problem.intercept:
            W = np.vstack([W, model.intercept_])
        w = W.ravel()
        if witness is None or not any(v.size for v in witness):
            return [Point(w, None) for _ in members]
        expected = [agent.labelled * agent.problem.outputs for agent in members]
        if [v.size for v in witness] != expected:
            raise InvalidInput(
                "the dual vectors do not belong to these parties; use those of a run on the same "
                "data."
            )
        points = []
        for v in witness:
            if v.size:
                points.append(Point(w, v))
            else:
                points.append(Point(w, None))
        return points

    def assemble(
        self,
        outcome: Outcome,
        members: Sequence[AgentForm[Problem[Softmax]]],
        problem: Problem[Softmax],
        classes: Classes,
    ) -> MulticlassModel:
        """The coefficients, which all agents have."""
        assert classes is not None
        data = members[0].data
        count = len(classes)
        W = outcome.points[0].w.reshape(-1, count)
        transposed = W[: data.d].T
        coef = np.ascontiguousarray(stored(transposed, data.precision))
        if problem.intercept:
            intercept = W[-1].astype(float)
        else:
            intercept = np.zeros(count)
        return MulticlassModel(coef, intercept, problem, np.asarray(classes), data.columns)

    def unproven(
        self,
        model: MulticlassModel,
        members: Sequence[AgentForm[Problem[Softmax]]],
        own: Sequence[float],
    ) -> Iterator[str]:
        yield from stray_intercept(model)
