"""What kinds of problems have in common whose loss is one of a single score, row by row: labels, scores, constants."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic

import numpy as np

from coterie.data import Table
from coterie.data.table import party_error
from coterie.numerics.arrays import Design, FloatArray, is_tensor
from coterie.numerics.local_loss import Here, TensorHere
from coterie.numerics.losses import Loss
from coterie.problems.kind import M
from coterie.problems.problem import Problem
from coterie.problems.rows import RowsKind
from coterie.run.agent import Agent
from coterie.run.certificate.introduction import best_constant
from coterie.run.collectives import Sum, Talk

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    Q = TypeVar("Q", bound=Problem[Loss])
else:
    from coterie.problems.problem import Q

STEEPEST_OFFSET = 300.0
"""Without an intercept to make good for it, e to a larger power has a square that is no number."""


class OneScoreKind(RowsKind[Q, M], Generic[Q, M]):
    """A `Loss` of one score a row."""

    usual_intercept = True

    def classification(self, problem: Q) -> bool:
        return problem.loss.kind == "classification"

    def check_labels(self, table: Table, problem: Q) -> None:
        """Refuse, say, a negative count, and tell where it is."""
        if table.y is None or self.classification(problem):
            return
        if table.offset is not None and problem.loss.steep and not problem.intercept:
            far = np.flatnonzero(np.abs(table.offset) > STEEPEST_OFFSET)
            if far.size:
                said = f"row {far[0]} has the offset {table.offset[far[0]]:g}, and e to its power is no mean"
                raise party_error(table.name, f"{said}. Fit an intercept, or give logarithms of exposures.")
        wrong = np.flatnonzero(~problem.loss.accepts(table.y))
        if wrong.size:
            said = f"row {wrong[0]} has the label {table.y[wrong[0]]:g}"
            more = f", and so {'has' if wrong.size == 2 else 'have'} {wrong.size - 1} more" if wrong.size > 1 else ""
            raise party_error(
                table.name, f"{said}{more}; the {problem.loss.name} loss takes {problem.loss.labels}. Check the labels."
            )

    def view(self, agent: Agent[Q], w: FloatArray, design: Design) -> Here:
        if is_tensor(agent.data.X) and agent.problem.loss.tensors:
            loss, y, weights = agent.beside_rows
            return TensorHere(agent.exact_labels, Here(w, design, loss, y, weights, design.scores_beside(w)))
        return Here(w, design, agent.loss, agent.exact_labels, agent.data.weights)

    def introduction(self, problem: Q, messages: str) -> list[str]:
        lines = ["the sum of the labels' squares and losses at w = 0, and of the squares of all numbers here"]
        if self.classification(problem) and (problem.intercept or messages != "features"):
            lines += ["how many rows of each class there are (with weights their sums), added up"]
        if problem.loss.counts and (problem.intercept or messages != "features"):
            lines += ["how many events there are: the sum of the labels (with weights), added up"]
        if messages == "samples":
            sums = "its sum, and its sum" if problem.intercept else "its sum"
            lines += [f"for every column {sums} weighted by the slope at w = 0: means, and means per class"]
            lines += ["for every column the sum of its squares"]
        return lines

    def constants(self, agent: Agent[Q]) -> Talk[Any]:
        ones = agent.weighted(np.ones(agent.data.n))
        labels = yield Sum(np.array([float(ones @ agent.exact_labels)]))
        return (yield from best_constant(agent, agent.total, float(labels[0]) / agent.total))
