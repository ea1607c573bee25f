"""Measures of linear models, and the sums for their standard errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from coterie.api.evaluation import Evaluation
from coterie.data import Table
from coterie.numerics.arrays import FloatArray
from coterie.numerics.local_loss import LocalLoss
from coterie.numerics.losses import Loss
from coterie.problems.linear.model import MEANINGS, SCORE, LinearModel
from coterie.problems.parts.stats import Stats, named_columns
from coterie.problems.problem import Problem
from coterie.run.agent import Agent
from coterie.run.collectives import Protocol
from coterie.stats.information import Asking, Own, of_rows
from coterie.stats.scoring import of_numbers, of_two


class LinearStats(Stats[Problem[Loss], LinearModel]):
    """For losses of one score per row."""

    evaluates = True
    has_errors = True
    adjustable = True

    def measured(
        self, model: LinearModel, table: Table, scores: FloatArray, limits: dict[str, Any]
    ) -> Protocol[Evaluation]:
        if model.problem.loss.kind == "classification":
            measure = of_two
        else:
            measure = of_numbers
        return measure(model, table, scores, limits)

    def coefficients(self, model: LinearModel) -> tuple[tuple[str, ...], FloatArray]:
        values = model.coef_.astype(float)
        if model.problem.intercept:
            values = np.append(values, model.intercept_)
        return named_columns(model.columns, model.coef_.shape[-1], model.problem.intercept), values

    def information(self, agent: Agent[Problem[Loss]], w: FloatArray, asking: Asking) -> Own:
        local: LocalLoss = agent.at(agent.centred.inner(w), agent.centred)
        if asking.kind == "model":
            curvature = agent.loss.expected_curvature(local.scores, local.y)
        else:
            curvature = agent.loss.curvature(local.scores, local.y)
        gradients = local.gradients[:, None]
        return of_rows(agent, asking, agent.centred, gradients, lambda a, b: curvature)

    def is_least_squares(self, problem: Problem[Loss]) -> bool:
        return problem.loss.quadratic

    def may_be_infinite(self, problem: Problem[Loss]) -> bool:
        if problem.loss.kind == "regression" and problem.loss.dispersion is None:
            return False
        return problem.loss.dispersion is not True

    def meaning(self, problem: Problem[Loss]) -> str:
        return MEANINGS.get(problem.loss.name, SCORE)

    def constant(self, model: LinearModel) -> float:
        return float(model.in_raw_units()[1])

    def events(self, problem: Problem[Loss]) -> int:
        return int(problem.loss.kind == "classification" or problem.loss.counts)

    def event_of_rows(self, agent: Agent[Problem[Loss]]) -> npt.NDArray[np.intp]:
        return np.where(agent.exact_labels > 0, 0, 1)

    def count_events(self, agent: Agent[Problem[Loss]], weights: FloatArray) -> FloatArray:
        if not agent.problem.loss.counts:
            return super().count_events(agent, weights)
        return np.array([float(weights @ agent.exact_labels)])

    def notes(self, model: LinearModel, events: FloatArray, n: float) -> list[str]:
        if not model.problem.loss.counts:
            return super().notes(model, events, n)
        return [*model.notes(), model.counted(events.tolist())]
