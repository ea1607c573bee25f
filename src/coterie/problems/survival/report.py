"""Models of proportional hazards in words."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from coterie.api.result import Result
from coterie.data import Table
from coterie.networks import Network
from coterie.problems.parts.report import Shown, intercept_words, penalty_words
from coterie.problems.problem import Problem
from coterie.problems.rows import VectorReport, count_used
from coterie.problems.survival.loss import Cox
from coterie.problems.survival.model import SurvivalModel
from coterie.run.certificate import Participant


class SurvivalReport(VectorReport[Problem[Cox], SurvivalModel]):
    """Logarithms of hazard ratios, and the stratification of the baseline hazards."""

    def words(self, problem: Problem[Cox]) -> str:
        penalty = penalty_words(problem.penalty.name)
        return f"proportional hazards, {penalty}, {intercept_words(problem.intercept)}"

    def note(self, problem: Problem[Cox], parties: int) -> str:
        """The stratification of the baseline hazards, in a sentence."""
        return f"{strata(problem, parties).capitalize()}."

    def shown(self, model: SurvivalModel, participants: Sequence[Participant]) -> Shown:
        shown = super().shown(model, participants)
        if not shown.bars:
            return shown
        explanation = (
            "Logarithms of hazard ratios, largest first: a positive one raises the hazard as its "
            "column grows, a negative one lowers it. Their sizes can only be compared if the "
            "columns are on the same scale."
        )
        return replace(shown, explanation=explanation)

    def statistics(self, model: SurvivalModel, network: Network) -> dict[str, str]:
        return {
            "Coefficients": count_used(model.coef_),
            "Intercept": "none",
            "Baseline hazards": strata(model.problem, network.agents),
        }

    def sections(self, tables: Callable[[], Sequence[Table]]) -> list[Callable[[Result], str]]:
        """A curve for each party, and the concordance."""
        from coterie.problems.survival.section import render

        return [partial(render, tables())]


def strata(problem: Problem[Cox], parties: int) -> str:
    """The stratification of the baseline hazards, in words."""
    if parties == 1:
        return "not stratified by party"
    noun = "party"
    several = "parties"
    if problem.loss.agent_strata:
        noun = "agent"
        several = "agents"
    return f"stratified by {noun}: {parties} {several}, each with its own baseline hazard"
