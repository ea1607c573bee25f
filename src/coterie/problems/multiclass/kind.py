"""Linear models of several classes: one row of coefficients per class, fitted to data split by
samples.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from coterie.numerics.arrays import Design, FloatArray
from coterie.numerics.losses import Fit
from coterie.problems.kind import Kind
from coterie.problems.multiclass.assembly import MulticlassModels
from coterie.problems.multiclass.data import MulticlassData
from coterie.problems.multiclass.loss import Softmax
from coterie.problems.multiclass.methods import SoftmaxNewton
from coterie.problems.multiclass.model import MulticlassModel
from coterie.problems.multiclass.proof import MulticlassProof
from coterie.problems.multiclass.report import MulticlassReport
from coterie.problems.multiclass.view import SoftmaxLocalLoss, StackedDesign
from coterie.problems.parts.data import Classes
from coterie.problems.problem import Problem
from coterie.problems.rows import RowLocal, RowProblems
from coterie.run.agent import Agent
from coterie.run.collectives import Protocol, Sum
from coterie.run.disclosure import Protocols, discloses

if TYPE_CHECKING:
    from coterie.problems.multiclass.stats import MulticlassStats


class MulticlassProblems(RowProblems[Problem[Softmax]]):
    """A row has one score for each class, and usually there are intercepts."""

    usual_intercept = True

    def outputs(self, problem: Problem[Softmax]) -> int:
        return problem.loss.outputs

    def with_classes(self, problem: Problem[Softmax], classes: Classes) -> Problem[Softmax]:
        return problem.changed(loss=problem.loss.with_classes(classes))

    def flattened(self, problem: Problem[Softmax], columns: int) -> Problem[Softmax]:
        penalty = problem.penalty.repeated(columns, problem.outputs)
        return problem.changed(penalty=penalty)

    def check_columns(self, problem: Problem[Softmax], columns: int) -> None:
        flattened = problem.flattened(columns)
        super().check_columns(flattened, columns * problem.outputs)


class MulticlassLocal(RowLocal[Problem[Softmax]]):
    """Softmax of several scores per row."""

    def design(self, agent: Agent[Problem[Softmax]]) -> Design:
        return StackedDesign(super().design(agent), agent.problem.outputs)

    def centred(self, agent: Agent[Problem[Softmax]]) -> Design:
        return StackedDesign(super().centred(agent), agent.problem.outputs)

    def view(
        self, agent: Agent[Problem[Softmax]], w: FloatArray, design: Design
    ) -> SoftmaxLocalLoss:
        assert isinstance(design, StackedDesign)
        return SoftmaxLocalLoss(w, design, agent.exact_labels, agent.data.weights)

    @discloses(
        "for each class: the weight of your rows",
        applies=lambda case: case.intercept,
        most=lambda case: (1, case.outputs),
    )
    def constants(self, agent: Agent[Problem[Softmax]]) -> Protocol[Any]:
        ones = agent.weighted(np.ones(agent.data.n))
        labels = agent.exact_labels.astype(np.intp)
        own = np.bincount(labels, ones, agent.problem.outputs)
        counts = yield Sum(own.astype(float))
        return np.log(counts / agent.total)

    finds_strengths: Protocols = (constants, RowLocal.gradient_at_constant)


class MulticlassKind(Kind[Problem[Softmax], MulticlassModel]):
    """Softmax, and a penalty of all coefficients."""

    name = "multiclass"
    called = "linear model of several classes"
    losses: ClassVar[dict[str, type[Fit]]] = {Softmax.name: Softmax}
    loss_class = Softmax
    model_class = MulticlassModel
    methods = (SoftmaxNewton,)
    data = MulticlassData()
    problems = MulticlassProblems()
    local = MulticlassLocal()
    proof = MulticlassProof()
    models = MulticlassModels()
    report = MulticlassReport()

    @property
    def stats(self) -> MulticlassStats:
        from coterie.problems.multiclass.stats import MulticlassStats

        return MulticlassStats()
