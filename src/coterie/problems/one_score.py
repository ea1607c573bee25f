"""Labels and local losses of kinds with one score per row: linear and shared models."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Generic

import numpy as np

from coterie.data import Table
from coterie.errors import WrongValue
from coterie.numerics.arrays import Design, FloatArray, is_tensor
from coterie.numerics.local_loss import LocalLoss, TensorLocalLoss
from coterie.numerics.losses import Loss
from coterie.problems.parts.data import Data
from coterie.problems.problem import Problem
from coterie.problems.rows import RowLocal
from coterie.run.agent import Agent
from coterie.run.certificate.introduction import OF_CONSTANTS, best_constant
from coterie.run.collectives import Protocol, Sum
from coterie.run.disclosure import Protocols, discloses

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    S = TypeVar("S", bound=Problem[Loss])
else:
    from typing import TypeVar

    S = TypeVar("S")

STEEPEST_OFFSET = 300.0
"""The largest offset without an intercept: the square of e to a larger power overflows."""


class OneScoreData(Data[S], Generic[S]):
    """Labels are numbers, or one of two classes."""

    fields: ClassVar[tuple[str, ...]] = ("weights",)

    def classification(self, problem: S) -> bool:
        return problem.loss.kind == "classification"

    def check_labels(self, table: Table, problem: S) -> None:
        """Refuse a label that the loss does not take, such as a negative count, and name its
        row.
        """
        if table.y is None or self.classification(problem):
            return
        if table.offset is not None and problem.loss.steep and not problem.intercept:
            _check_offset(table, table.offset)
        wrong = np.flatnonzero(~problem.loss.accepts(table.y))
        if not wrong.size:
            return
        row = int(wrong[0])
        found = f" has the label {table.y[row]:g}"
        if wrong.size == 2:
            found += ", and so has 1 more"
        elif wrong.size > 2:
            found += f", and so have {wrong.size - 1} more"
        fix = f"the {problem.loss.name} loss takes {problem.loss.labels}. Check the labels."
        raise WrongValue(table.name, row, "", f"{found}; {fix}", noun="label").error()


def _check_offset(table: Table, offset: FloatArray) -> None:
    far = np.flatnonzero(np.abs(offset) > STEEPEST_OFFSET)
    if far.size:
        row = int(far[0])
        found = f" has the offset {offset[row]:g}, and e to that power overflows"
        fix = "Fit an intercept, or give logarithms of exposures."
        raise WrongValue(table.name, row, "", f"{found}. {fix}", noun="offset").error()


class OneScoreLocal(RowLocal[S], Generic[S]):
    """A `Loss` of one score per row."""

    def view(self, agent: Agent[S], w: FloatArray, design: Design) -> LocalLoss:
        if is_tensor(agent.data.X) and agent.problem.loss.tensors:
            loss, y, weights = agent.on_device
            scores = design.scores_on_device(w)
            on_device = LocalLoss(w, design, loss, y, weights, scores)
            return TensorLocalLoss(agent.exact_labels, on_device)
        return LocalLoss(w, design, agent.loss, agent.exact_labels, agent.data.weights)

    @discloses(
        "the sum of your labels (of two classes: how many of your rows each class has)",
        applies=lambda case: case.intercept,
        most=lambda case: (1, 1),
    )
    def constants(self, agent: Agent[S]) -> Protocol[Any]:
        ones = agent.weighted(np.ones(agent.data.n))
        own = float(ones @ agent.exact_labels)
        labels = yield Sum(np.array([own]))
        mean = float(labels[0]) / agent.total
        return (yield from best_constant(agent, agent.total, mean))

    finds_strengths: Protocols = (constants, RowLocal.gradient_at_constant, *OF_CONSTANTS)
