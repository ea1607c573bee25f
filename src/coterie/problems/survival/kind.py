"""Survival: proportional hazards, learned from data split by samples, each party a stratum of its own, or several."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from coterie.api.result import Result
from coterie.data import Table
from coterie.data.labels import Labels
from coterie.data.table import party_error
from coterie.errors import InvalidProblem
from coterie.networks import Network
from coterie.numerics.arrays import Design, FloatArray, whole_number
from coterie.problems.kind import (
    Classes,
    Protocols,
    Shown,
    said_of_intercept,
    said_of_penalty,
)
from coterie.problems.problem import Problem
from coterie.problems.rows import RowsKind
from coterie.problems.survival import proof
from coterie.problems.survival.labels import SurvivalLabels, wrong_labels
from coterie.problems.survival.likelihood import CoxHere, risk_of, stratified
from coterie.problems.survival.loss import Cox
from coterie.problems.survival.methods import CoxNewton
from coterie.problems.survival.model import SurvivalModel
from coterie.run.agent import Agent, Facts
from coterie.run.certificate import ANY, Bound, Participant, Point
from coterie.run.collectives import Talk
from coterie.run.rounds import Outcome

if TYPE_CHECKING:
    from coterie.problems.survival.stats import SurvivalStats

LABELS = "Name the columns of time and event, or give the labels as co.survival_labels(time, event) makes them."


class SurvivalKind(RowsKind[Problem[Cox], SurvivalModel]):
    """The partial likelihood, and a penalty of a vector."""

    name = "survival"
    called = "model of proportional hazards"
    pieces = 1
    beside: ClassVar[tuple[str, ...]] = ("weights", "offset")
    losses: ClassVar[dict[str, type[Cox]]] = {Cox.name: Cox}
    loss_class = Cox
    model_class = SurvivalModel
    methods = (CoxNewton,)
    introduces: Protocols = (proof.introduce,)
    labels: ClassVar[Labels] = SurvivalLabels()

    def classification(self, problem: Problem[Cox]) -> None:
        return None

    def check_problem(self, problem: Problem[Cox]) -> None:
        if problem.intercept:
            raise InvalidProblem("cox has no intercept: the baseline hazard takes its place. Leave intercept out.")

    # -- what an agent sees ------------------------------------------------------------------------------------------

    def design(self, agent: Agent[Problem[Cox]]) -> Design:
        """About the means of strata."""
        return stratified(agent.data.X, risk_of(agent))

    def view(self, agent: Agent[Problem[Cox]], w: FloatArray, design: Design) -> CoxHere:
        return CoxHere(w, design, risk_of(agent))

    # -- proofs, and what comes after the fit ------------------------------------------------------------------------

    def introduce(self, agent: Agent[Problem[Cox]]) -> Talk[Facts]:
        return proof.introduce(agent)

    def certify(
        self, agent: Agent[Problem[Cox]], point: Point, target: float = 0.0, radius: float | None = ANY
    ) -> Talk[Bound]:
        return proof.certify(agent, point, target, radius)

    def dual_at(self, agent: Agent[Problem[Cox]], w: FloatArray) -> FloatArray:
        return proof.dual_at(agent, w)

    @property
    def stats(self) -> SurvivalStats:
        from coterie.problems.survival.stats import SurvivalStats

        return SurvivalStats()

    def sections(self, tables: Callable[[], Sequence[Table]]) -> list[Callable[[Result], str]]:
        """A curve for each party, and the concordance."""
        from coterie.problems.survival.report import render

        return [partial(render, tables())]

    # -- data --------------------------------------------------------------------------------------------------------

    def check_split(self, problem: Problem[Cox], split: str) -> None:
        if split != "samples":
            raise InvalidProblem(
                f"survival needs data split by samples, but it is split by {split}: who is at risk is known where the "
                "rows are."
            )

    def agents(self, problem: Problem[Cox], data: Any, agents: Any) -> Any:
        """Data in one piece stays in one piece: agents would be strata. Parties come as a list."""
        if isinstance(data, list):
            return agents
        if problem.loss.agent_strata:
            return agents
        count = _count(agents)
        if count > 1:
            raise InvalidProblem(
                f"{count} agents would fit another model than one: in cox every agent is a stratum with its own "
                "baseline hazard. Use agents=1 for the model of all rows, or ask for these strata: agent_strata=True."
            )
        return 1

    def note(self, problem: Problem[Cox], parties: int) -> str:
        """By what the baseline hazards are stratified."""
        return f"{strata(problem, parties).capitalize()}."

    def encode(self, table: Table, problem: Problem[Cox], classes: Classes) -> Table:
        """A party without rows has labels of no rows."""
        if table.n or table.y is None or table.y.ndim == 2:
            return table
        return replace(table, y=np.empty((0, 2)))

    def check_labels(self, table: Table, problem: Problem[Cox]) -> None:
        """Refuse, say, a negative time, and tell where it is."""
        self._refuse_unlabelled(table)
        y = table.y
        if y is None or not table.n:
            return
        if y.ndim != 2 or not 2 <= y.shape[1] <= 4 or y.dtype.kind not in "biuf":
            found = "one value a row" if y.ndim == 1 else f"{y.shape[1]} values a row, of type {y.dtype}"
            raise party_error(table.name, f"the labels are {found}; survival needs more. {LABELS}")
        if (wrong := wrong_labels(y)) is not None:
            raise party_error(table.name, f"row {wrong[0]} {wrong[1]}. Check the labels.")

    def _refuse_unlabelled(self, table: Table) -> None:
        if table.y is None and table.n:
            raise party_error(table.name, f"there are no labels. {LABELS}")

    def made_up(self, problem: Problem[Cox], scores: FloatArray) -> FloatArray:
        """The larger the score, the sooner; every second row has an event."""
        rank = np.argsort(np.argsort(-scores)) + 1.0
        return np.column_stack([rank, rank % 2])

    def words(self, problem: Problem[Cox]) -> str:
        penalty = said_of_penalty(problem.penalty.name)
        return f"proportional hazards, {penalty}, {said_of_intercept(problem.intercept)}"

    def model(
        self, outcome: Outcome, members: Sequence[Agent[Problem[Cox]]], problem: Problem[Cox], classes: Classes
    ) -> SurvivalModel:
        """The coefficients, which everybody has."""
        return SurvivalModel(outcome.points[0].w.astype(float), 0.0, problem, None, members[0].data.columns)

    def shown(self, model: Any, people: Sequence[Participant]) -> Shown:
        shown = super().shown(model, people)
        if not shown.bars:
            return shown
        return replace(
            shown,
            explanation="Logarithms of hazard ratios, largest first: a positive one raises the hazard as its column "
            "grows, a negative one lowers it. Their sizes can only be compared if the columns are on the same scale.",
        )

    def facts(self, model: Any, network: Network) -> dict[str, str]:
        used = f"{np.count_nonzero(model.coef_):,} of {len(model.coef_):,} are not zero"
        return {"Coefficients": used, "Intercept": "none", "Baseline hazards": strata(model.problem, network.agents)}


def strata(problem: Problem[Cox], parties: int) -> str:
    """By what the baseline hazards are stratified, in words."""
    noun, several = ("agent", "agents") if problem.loss.agent_strata else ("party", "parties")
    if parties == 1:
        return "not stratified by party"
    return f"stratified by {noun}: {parties} {several}, each with its own baseline hazard"


def _count(agents: Any) -> int:
    """The number of agents that a count, sizes or lists of rows mean; one if nothing is said."""
    if isinstance(agents, Sequence | np.ndarray) and not isinstance(agents, str):
        return len(agents)
    return 1 if agents is None else whole_number("agents", agents)
