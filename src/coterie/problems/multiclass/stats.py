"""Measures of linear models of several classes, and the sums for their standard errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from coterie.api.evaluation import Evaluation
from coterie.data import Table
from coterie.numerics.arrays import FloatArray
from coterie.problems.models.model import shown_label
from coterie.problems.multiclass.loss import Softmax
from coterie.problems.multiclass.model import MulticlassModel
from coterie.problems.multiclass.view import SoftmaxLocalLoss
from coterie.problems.parts.stats import Stats, named_columns
from coterie.problems.problem import Problem
from coterie.run.agent import Agent
from coterie.run.collectives import Protocol
from coterie.stats.information import Asking, Own, of_rows
from coterie.stats.scoring import of_classes


class MulticlassStats(Stats[Problem[Softmax], MulticlassModel]):
    """For one score per class. Coefficients are differences from those of the first class."""

    evaluates = True
    has_errors = True
    adjustable = True

    def measured(
        self, model: MulticlassModel, table: Table, scores: FloatArray, limits: dict[str, Any]
    ) -> Protocol[Evaluation]:
        return of_classes(model, table, scores, limits)

    def coefficients(self, model: MulticlassModel) -> tuple[tuple[str, ...], FloatArray]:
        """Class by class."""
        W = model.coef_
        if model.problem.intercept:
            W = np.column_stack([W, model.intercept_[:, None]])
        columns = named_columns(model.columns, model.coef_.shape[-1], model.problem.intercept)
        names = []
        for label in model.classes_[1:].tolist():
            names += [f"{label}: {name}" for name in columns]
        differences = W[1:] - W[0]
        return tuple(names), differences.astype(float).ravel()

    def information(self, agent: Agent[Problem[Softmax]], w: FloatArray, asking: Asking) -> Own:
        local: SoftmaxLocalLoss = agent.at(agent.centred.inner(w), agent.centred)
        p = local.p[:, 1:]
        gradients = local.gradients[:, 1:]

        def second_derivatives(a: int, b: int) -> FloatArray:
            found: FloatArray = p[:, a] * ((a == b) - p[:, b])
            return found

        return of_rows(agent, asking, local.design.base, gradients, second_derivatives)

    def blocks(self, model: MulticlassModel) -> int:
        return len(model.classes_) - 1

    def reference(self, model: MulticlassModel) -> str:
        return f", against class {shown_label(model.classes_[0])}"

    def meaning(self, problem: Problem[Softmax]) -> str:
        return "change of the log odds against the reference class"

    def events(self, problem: Problem[Softmax]) -> int:
        return problem.outputs

    def event_of_rows(self, agent: Agent[Problem[Softmax]]) -> npt.NDArray[np.intp]:
        return agent.exact_labels.astype(np.intp)

    def notes(self, model: MulticlassModel, events: FloatArray, n: float) -> list[str]:
        reference, *classes = map(shown_label, model.classes_)
        return [
            f"modelled classes: {', '.join(classes)} (reference: {reference})",
            model.counted(events.tolist()),
            *model.notes()[1:],
        ]
