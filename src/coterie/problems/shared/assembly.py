"""Assemble a shared model from the points of the users, and take the points from a model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from coterie.errors import InvalidInput
from coterie.numerics.arrays import FloatArray
from coterie.problems.parts.data import Classes
from coterie.problems.parts.models import Models
from coterie.problems.rows import check_duals, dual_of, stray_intercept
from coterie.problems.shared.model import SharedModel
from coterie.problems.shared.problem import Shared
from coterie.run.agent import AgentForm
from coterie.run.certificate.bound import Point
from coterie.run.rounds import Outcome


class SharedModels(Models[Shared, SharedModel]):
    """Shared models and their points. A point is the deviation of its user, followed by the common
    model. Each of the two ends with its intercept, if there is one.
    """

    def shapes(
        self, model: SharedModel, members: Sequence[AgentForm[Shared]]
    ) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """One coefficient per column."""
        return (len(model.coef_),), (members[0].data.d,)

    def _points(
        self,
        model: SharedModel,
        members: Sequence[AgentForm[Shared]],
        witness: Sequence[FloatArray] | None,
    ) -> list[Point]:
        if len(model.users) != len(members):
            raise InvalidInput(
                f"the model is of {len(model.users)} users, but this data is of {len(members)}."
            )
        check_duals(witness, [agent.labelled for agent in members], "users")
        intercept = members[0].has_intercept
        points = []
        for index in range(len(members)):
            parts = [model.deviations[index], model.coef_]
            if intercept:
                parts = [*_with(parts[0], model.offsets[index]), *_with(parts[1], model.intercept_)]
            points.append(Point(np.concatenate(parts), dual_of(witness, index)))
        return points

    def assemble(
        self,
        outcome: Outcome,
        members: Sequence[AgentForm[Shared]],
        problem: Shared,
        classes: Classes,
    ) -> SharedModel:
        """The shared model: the common model, and the deviations of these users."""
        data = members[0].data
        d = data.d
        own, both = np.split(np.array([point.w for point in outcome.points]), 2, axis=1)
        common = both[0]
        intercept, offsets = 0.0, np.zeros(len(members))
        if problem.intercept:
            intercept, offsets = float(common[d]), own[:, d].copy()
        users = tuple(agent.data.name for agent in members)
        deviations = np.ascontiguousarray(own[:, :d])
        return SharedModel(
            common[:d].copy(), intercept, deviations, offsets, users, problem, classes, data.columns
        )

    def unproven(
        self, model: SharedModel, members: Sequence[AgentForm[Shared]], own: Sequence[float]
    ) -> Iterator[str]:
        """Report intercepts, of the common model or of users, if the problem has none."""
        yield from stray_intercept(model)
        if not model.problem.intercept and np.any(model.offsets):
            yield "users have intercepts of their own, but the problem has none"

    def problem_of(self, model: SharedModel, settings: dict[str, Any]) -> Shared:
        return Shared.from_settings(settings)


def _with(coefficients: FloatArray, intercept: float) -> tuple[FloatArray, FloatArray]:
    return coefficients, np.array([intercept])
