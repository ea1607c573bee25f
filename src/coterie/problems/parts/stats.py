"""`kind.stats`: measures and standard errors of a fitted model, from sums over rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeGuard

import numpy as np
import numpy.typing as npt

from coterie.data import Table
from coterie.numerics.arrays import FloatArray
from coterie.numerics.losses import Fit
from coterie.problems.parts.models import M
from coterie.problems.problem import AnyProblem, K, Problem
from coterie.run.agent import Agent
from coterie.run.collectives import Protocol

if TYPE_CHECKING:
    from coterie.api.evaluation import Evaluation
    from coterie.stats.information import Asking, Own


class Stats(Generic[K, M]):
    """The statistics of a kind of problem: none, unless a subclass has some."""

    evaluates: ClassVar[bool] = False
    """Whether there is `measured`."""
    counts_bins: ClassVar[bool] = True
    """Whether `measured` counts rows in bins of scores, so that its sums depend on the data."""
    has_errors: ClassVar[bool] = False
    """Whether there are standard errors: then everything below is defined."""
    adjustable: ClassVar[bool] = False
    """Whether a row has a part of the Hessian of its own, as the correction CR2 needs it."""
    usual_correction: ClassVar[str] = "CR1S"
    """The correction of clustered errors where clusters are not few."""
    ratios: ClassVar[str] = ""
    """The name of e to the power of a coefficient, where users know one."""

    def measured(
        self, model: M, table: Table, scores: FloatArray, limits: dict[str, Any]
    ) -> Protocol[Evaluation]:
        """Measure the predictions for these scores, of rows of the fit or of other rows."""
        raise NotImplementedError

    # -- standard errors ---------------------------------------------------------------------------

    def coefficients(self, model: M) -> tuple[tuple[str, ...], FloatArray]:
        """Names and values of the coefficients that have standard errors, an intercept last."""
        raise NotImplementedError

    def information(self, agent: Agent[K], w: FloatArray, asking: Asking) -> Own:
        """The sums over an agent's rows for standard errors."""
        raise NotImplementedError

    def blocks(self, model: M) -> int:
        """The number of times that `coefficients` has every column."""
        return 1

    def reference(self, model: M) -> str:
        """The reference of the coefficients in words, if they are differences."""
        return ""

    def is_least_squares(self, problem: K) -> bool:
        """Whether coefficients have Student's distribution, not only nearly a normal one."""
        return False

    def may_be_infinite(self, problem: K) -> bool:
        """Whether the best coefficients can be infinite."""
        return True

    def meaning(self, problem: K) -> str:
        """The meaning of a coefficient, in words."""
        return "change of the score"

    def constant(self, model: M) -> float:
        """The constant of every score in raw units, where that is one number."""
        return 0.0

    # -- events ------------------------------------------------------------------------------------

    def events(self, problem: K) -> int:
        """The number of kinds of events that are counted."""
        return 0

    def event_of_rows(self, agent: Agent[K]) -> npt.NDArray[np.intp]:
        """The event of each row; `events` for a row without one."""
        return np.zeros(agent.data.n, np.intp)

    def count_events(self, agent: Agent[K], weights: FloatArray) -> FloatArray:
        """The weights of the agent's rows with each kind of event."""
        kinds = self.events(agent.problem)
        counts = np.bincount(self.event_of_rows(agent), weights, kinds + 1)
        return counts[:kinds].astype(float)

    def notes(self, model: M, events: FloatArray, n: float) -> list[str]:
        """Notes on the modelled class, and on the number of rows with each event."""
        notes = model.notes()
        if len(events) == 1:
            counts = (n - events[0], events[0])
            notes.append(model.counted(counts))
        return notes


def has_standard_errors(problem: AnyProblem) -> TypeGuard[Problem[Fit]]:
    """Whether the coefficients of a problem have standard errors: only models of rows do."""
    return problem.kind.stats.has_errors


def named_columns(columns: Sequence[str] | None, width: int, intercept: bool) -> tuple[str, ...]:
    """The names of a model's columns, and that of its intercept if it has one."""
    names = [f"x{j}" for j in range(width)]
    if columns:
        names = list(map(str, columns))
    if intercept:
        names.append("intercept")
    return tuple(names)
