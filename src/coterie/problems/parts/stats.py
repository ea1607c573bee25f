"""`kind.stats`: measures and standard errors of a fitted model, from sums over rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeGuard

import numpy as np
import numpy.typing as npt

from coterie.data import Table
from coterie.numerics.arrays import FloatArray
from coterie.numerics.losses import Fit
from coterie.problems.problem import AnyProblem, Problem, Q
from coterie.run.agent import Agent
from coterie.run.collectives import Protocol

if TYPE_CHECKING:
    from coterie.api.evaluation import Evaluation
    from coterie.stats.information import Asking, Own


class Stats(Generic[Q]):
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
        self, model: Any, table: Table, scores: FloatArray, limits: dict[str, Any]
    ) -> Protocol[Evaluation]:
        """Measure the predictions for these scores, of rows of the fit or of other rows."""
        raise NotImplementedError

    # -- standard errors ---------------------------------------------------------------------------

    def coefficients(self, model: Any) -> tuple[tuple[str, ...], FloatArray]:
        """Names and values of the coefficients that have standard errors, an intercept last."""
        raise NotImplementedError

    def information(self, agent: Agent[Q], w: FloatArray, asking: Asking) -> Own:
        """The sums over an agent's rows for standard errors."""
        raise NotImplementedError

    def blocks(self, model: Any) -> int:
        """The number of times that `coefficients` has every column."""
        return 1

    def reference(self, model: Any) -> str:
        """The reference of the coefficients in words, if they are differences."""
        return ""

    def is_least_squares(self, problem: Q) -> bool:
        """Whether coefficients have Student's distribution, not only nearly a normal one."""
        return False

    def may_be_infinite(self, problem: Q) -> bool:
        """Whether the best coefficients can be infinite."""
        return True

    def meaning(self, problem: Q) -> str:
        """The meaning of a coefficient, in words."""
        return "change of the score"

    def constant(self, model: Any) -> float:
        """The constant of every score in raw units, where that is one number."""
        return 0.0

    # -- events ------------------------------------------------------------------------------------

    def events(self, problem: Q) -> int:
        """The number of kinds of events that are counted."""
        return 0

    def event_of_rows(self, agent: Agent[Q]) -> npt.NDArray[np.intp]:
        """The event of each row; `events` for a row without one."""
        return np.zeros(agent.data.n, np.intp)

    def count_events(self, agent: Agent[Q], weights: FloatArray) -> FloatArray:
        """How many of each event its own rows have, with these weights."""
        kinds = self.events(agent.problem)
        return np.bincount(self.event_of_rows(agent), weights, kinds + 1)[:kinds].astype(float)

    def notes(self, model: Any, events: FloatArray, n: float) -> list[str]:
        """What is modelled, and how many rows have each event."""
        if len(events) == 1:
            counted = [model.counted((n - events[0], events[0]))]
        else:
            counted = []
        return [*model.notes(), *counted]


def has_standard_errors(problem: AnyProblem) -> TypeGuard[Problem[Fit]]:
    """Whether the coefficients of a problem have standard errors: only models of rows do."""
    return problem.kind.stats.has_errors


def named_columns(model: Any) -> tuple[str, ...]:
    """The names of a model's columns, and that of its intercept if it has one."""
    names: tuple[str, ...]
    if model.columns:
        names = tuple(map(str, model.columns))
    else:
        names = tuple(f"x{j}" for j in range(model.coef_.shape[-1]))
    if model.problem.intercept:
        return (*names, "intercept")
    return names
