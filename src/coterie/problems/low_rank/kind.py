"""Low-rank models: a matrix of small trace norm that fits a task, with rows held by several
parties.
"""

from __future__ import annotations

from coterie.problems.kind import Kind
from coterie.problems.low_rank.assembly import LowRankModels
from coterie.problems.low_rank.data import LowRankData
from coterie.problems.low_rank.local import LowRankLocal
from coterie.problems.low_rank.methods import DfwSubspace, DfwTrace, NaiveDfw, Sva
from coterie.problems.low_rank.model import LowRankModel
from coterie.problems.low_rank.proof import LowRankProof
from coterie.problems.low_rank.report import LowRankReport
from coterie.problems.low_rank.tasks import TASKS, Task
from coterie.problems.parts.data import Classes
from coterie.problems.parts.problems import Problems
from coterie.problems.problem import Problem


class LowRankProblems(Problems[Problem[Task]]):
    """The trace norm is defined for every matrix, so any number of columns fits."""

    def with_classes(self, problem: Problem[Task], classes: Classes) -> Problem[Task]:
        return problem.changed(loss=problem.loss.with_classes(classes))


class LowRankKind(Kind[Problem[Task], LowRankModel]):
    """A task in place of a loss, and a penalty of a matrix, which fits any number of columns."""

    name = "low-rank"
    called = "low-rank model"
    losses = TASKS
    loss_class = Task
    for_matrices = True
    model_class = LowRankModel
    methods = (DfwSubspace, DfwTrace, NaiveDfw, Sva)
    data = LowRankData()
    problems = LowRankProblems()
    local = LowRankLocal()
    proof = LowRankProof()
    models = LowRankModels()
    report = LowRankReport()
