"""Tables of survival: labels are rows of time and event, and perhaps of entry and stratum."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from coterie.data import Table
from coterie.data.table import party_error
from coterie.errors import InvalidProblem, WrongValue
from coterie.numerics.arrays import FloatArray, whole_number
from coterie.problems.parts.data import Classes, Data
from coterie.problems.problem import Problem
from coterie.problems.survival.labels import wrong_labels
from coterie.problems.survival.loss import Cox

LABELS = (
    "Name the columns of time and event, or give the labels as co.survival_labels(time, event) "
    "makes them."
)


class SurvivalData(Data[Problem[Cox]]):
    """Rows are split by samples, and data in one piece stays in one piece."""

    fields: ClassVar[tuple[str, ...]] = ("weights", "offset")
    pieces = 1

    def check_split(self, problem: Problem[Cox], split: str) -> None:
        if split != "samples":
            raise InvalidProblem(
                f"survival needs data split by samples, but it is split by {split}: each party "
                "needs whole rows to find its risk sets."
            )

    def agents(self, problem: Problem[Cox], data: Any, agents: Any) -> Any:
        """Data in one piece stays in one piece, because agents are strata. A list has a table for
        each party.
        """
        if isinstance(data, list):
            return agents
        if problem.loss.agent_strata:
            return agents
        count = _count(agents)
        if count > 1:
            raise InvalidProblem(
                f"{count} agents would fit another model than one: in cox every agent is a "
                "stratum with its own baseline hazard. Use agents=1 for the model of all rows, or "
                "ask for these strata: agent_strata=True."
            )
        return 1

    def encode(self, table: Table, problem: Problem[Cox], classes: Classes) -> Table:
        """A party without rows gets labels without rows."""
        if table.n or table.y is None or table.y.ndim == 2:
            return table
        return replace(table, y=np.empty((0, 2)))

    def check_labels(self, table: Table, problem: Problem[Cox]) -> None:
        """Refuse a label that cannot be used, such as a negative time, and name its row."""
        _refuse_unlabelled(table)
        y = table.y
        if y is None or not table.n:
            return
        if y.ndim != 2 or not 2 <= y.shape[1] <= 4 or y.dtype.kind not in "biuf":
            if y.ndim == 1:
                found = "one value a row"
            else:
                found = f"{y.shape[1]} values a row, of type {y.dtype}"
            raise party_error(table.name, f"the labels are {found}; survival needs more. {LABELS}")
        wrong = wrong_labels(y)
        if wrong is not None:
            row, noun, words = wrong
            raise WrongValue(table.name, row, "", f" {words}. Check the labels.", noun=noun).error()

    def made_up(self, problem: Problem[Cox], scores: FloatArray) -> FloatArray:
        """Times that fall as the score grows; every second row has an event."""
        rank = np.argsort(np.argsort(-scores)) + 1.0
        return np.column_stack([rank, rank % 2])


def _refuse_unlabelled(table: Table) -> None:
    if table.y is None and table.n:
        raise party_error(table.name, f"there are no labels. {LABELS}")


def _count(agents: Any) -> int:
    """The number of agents that a count, sizes or lists of rows mean; 1 for None."""
    if isinstance(agents, Sequence | np.ndarray) and not isinstance(agents, str):
        return len(agents)
    if agents is None:
        return 1
    return whole_number("agents", agents)
