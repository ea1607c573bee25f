"""Survival: proportional hazards, fitted to data split by samples; each party is one or several
strata.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from coterie.data.labels import Labels
from coterie.errors import InvalidProblem
from coterie.numerics.arrays import Design, FloatArray
from coterie.problems.parts.data import Classes
from coterie.problems.problem import Problem
from coterie.problems.rows import RowLocal, RowProblems, RowsKind, VectorModels
from coterie.problems.survival.data import SurvivalData
from coterie.problems.survival.labels import SurvivalLabels
from coterie.problems.survival.likelihood import CoxLocalLoss, risk_of, stratified
from coterie.problems.survival.loss import Cox
from coterie.problems.survival.methods import CoxNewton
from coterie.problems.survival.model import SurvivalModel
from coterie.problems.survival.proof import SurvivalProof
from coterie.problems.survival.report import SurvivalReport
from coterie.run.agent import Agent, AgentForm
from coterie.run.rounds import Outcome

if TYPE_CHECKING:
    from coterie.problems.survival.stats import SurvivalStats


class SurvivalProblems(RowProblems[Problem[Cox]]):
    """The baseline hazard takes the place of an intercept."""

    def check(self, problem: Problem[Cox]) -> None:
        if problem.intercept:
            raise InvalidProblem(
                "cox has no intercept: the baseline hazard takes its place. Leave intercept out."
            )


class SurvivalLocal(RowLocal[Problem[Cox]]):
    """The partial likelihood of an agent's strata."""

    def design(self, agent: Agent[Problem[Cox]]) -> Design:
        """The agent's rows about the means of their strata."""
        return stratified(agent.data.X, risk_of(agent))

    def view(self, agent: Agent[Problem[Cox]], w: FloatArray, design: Design) -> CoxLocalLoss:
        return CoxLocalLoss(w, design, risk_of(agent))


class SurvivalModels(VectorModels[Problem[Cox], SurvivalModel]):
    """All agents know all coefficients."""

    def assemble(
        self,
        outcome: Outcome,
        members: Sequence[AgentForm[Problem[Cox]]],
        problem: Problem[Cox],
        classes: Classes,
    ) -> SurvivalModel:
        """The coefficients, in float64."""
        coef = outcome.points[0].w.astype(float)
        columns = members[0].data.columns
        return SurvivalModel(coef, 0.0, problem, None, columns)


class SurvivalKind(RowsKind[Problem[Cox], SurvivalModel]):
    """The partial likelihood, and a penalty of a vector."""

    name = "survival"
    called = "model of proportional hazards"
    losses: ClassVar[dict[str, type[Cox]]] = {Cox.name: Cox}
    loss_class = Cox
    model_class = SurvivalModel
    methods = (CoxNewton,)
    labels: ClassVar[Labels] = SurvivalLabels()
    data = SurvivalData()
    problems = SurvivalProblems()
    local = SurvivalLocal()
    proof = SurvivalProof()
    models = SurvivalModels()
    report = SurvivalReport()

    @property
    def stats(self) -> SurvivalStats:
        from coterie.problems.survival.stats import SurvivalStats

        return SurvivalStats()
