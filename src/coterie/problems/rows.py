"""The neutral base of kinds whose model has one coefficient per column, a penalty on them, and
perhaps an intercept.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Generic

import numpy as np

from coterie.data.remote_table import AnyTable
from coterie.data.table import Indices, columns_of
from coterie.errors import InvalidInput, InvalidProblem
from coterie.numerics.arrays import FloatArray, stored
from coterie.problems.kind import Kind
from coterie.problems.parts.data import Classes
from coterie.problems.parts.local import Local
from coterie.problems.parts.models import M, Models
from coterie.problems.parts.problems import Problems
from coterie.problems.parts.report import (
    SHOWN,
    Report,
    Shown,
    intercept_words,
    penalty_words,
    spelt,
)
from coterie.problems.problem import Problem
from coterie.run.agent import Agent, AgentForm
from coterie.run.certificate.bound import Point
from coterie.run.collectives import Protocol, Sum
from coterie.run.disclosure import Protocols, discloses

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    from coterie.networks import Network
    from coterie.problems.linear.model import LinearModel
    from coterie.run.certificate import Participant
    from coterie.run.rounds import Outcome

    R = TypeVar("R", bound=Problem[Any])
    L = TypeVar("L", bound=LinearModel)
else:
    from typing import TypeVar

    R = TypeVar("R")
    L = TypeVar("L")


class RowProblems(Problems[R], Generic[R]):
    """Problems with a penalty of a vector."""

    def check_columns(self, problem: R, columns: int) -> None:
        """Refuse a penalty with bounds or groups for another number of columns."""
        penalty = problem.penalty
        try:
            penalty.value(penalty.prox(np.zeros(columns), 1.0))
        except (ValueError, IndexError) as error:
            raise InvalidProblem(
                f"the {penalty.name} penalty does not fit {columns} columns: {error}"
            ) from error


class RowLocal(Local[R], Generic[R]):
    """The loss of rows, from a gradient in all coefficients."""

    @discloses(
        "for each column: its sum, weighted by the gradient of the null loss",
        "weighted sums of your columns: means, and of classes the means of each",
        most=lambda case: (1, (case.columns + case.intercept) * case.outputs),
    )
    def gradient_at_constant(self, agent: Agent[R]) -> Protocol[FloatArray]:
        """The gradient of the mean loss at coefficients of 0 and the best intercept."""
        w = np.zeros(agent.design.shape[1])
        if agent.problem.intercept:
            w[-agent.problem.outputs :] = yield from self.constants(agent)
        own = agent.at(w).adjoint.astype(float)
        total = yield Sum(own)
        return agent.problem.coefficients(total) / agent.total

    finds_strengths: Protocols = (gradient_at_constant,)

    def constants(self, agent: Agent[R]) -> Protocol[Any]:
        """The best intercepts where all coefficients are 0."""
        raise NotImplementedError(f"{agent.problem.kind.name} has no intercept")


class RowReport(Report[R, M], Generic[R, M]):
    """A loss, a penalty and an intercept in words."""

    def words(self, problem: R) -> str:
        loss = problem.loss.name
        penalty = penalty_words(problem.penalty.name)
        intercept = intercept_words(problem.intercept)
        return f"{loss} loss, {penalty}, {intercept}"

    def described(self, settings: dict[str, Any]) -> str:
        loss = spelt(settings["loss"])
        penalty = penalty_words(spelt(settings["penalty"]))
        more = intercept_words(settings["intercept"])
        offset = settings.get("offset")
        if offset and settings["intercept"]:
            more += " and an offset"
        elif offset:
            more += ", with an offset"
        return f"{loss} loss, {penalty} {more}"

    def call(self, problem: R) -> tuple[str, dict[str, Any]]:
        loss = problem.loss.settings()
        penalty = problem.penalty.settings()
        names = {"loss": loss.pop("name"), "penalty": penalty.pop("name")}
        named = {**names, **loss, **penalty}
        named["intercept"] = problem.intercept
        if problem.offset:
            named["offset"] = True
        return "Problem", named

    def parts(self, settings: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
        if settings["intercept"]:
            intercept = "yes, without penalty"
        else:
            intercept = "no"
        found = [
            ("Loss", settings["loss"]),
            ("Penalty", settings["penalty"]),
            ("Intercept", {"name": intercept}),
        ]
        if settings.get("offset"):
            found.append(("Offset", {"name": "yes, added to the scores"}))
        return found


class VectorReport(RowReport[R, L], Generic[R, L]):
    """Coefficients in words, and a picture of the largest."""

    def shown(self, model: L, participants: Sequence[Participant]) -> Shown:
        """The largest coefficients."""
        coef = model.in_raw_units()[0]
        columns = model.columns
        order = np.argsort(-np.abs(coef), kind="stable")[:SHOWN]
        largest = coef[order]
        order = order[(largest != 0) & np.isfinite(largest)]
        bars = []
        for j in order.tolist():
            if columns is None:
                name = f"column {j}"
            else:
                name = columns[j]
            bars.append((name, float(coef[j])))
        explanation = _explanation(model, coef, len(bars))
        return Shown("coefficients", explanation, ("column", "coefficient"), bars)

    def statistics(self, model: L, network: Network) -> dict[str, str]:
        if model.problem.intercept:
            intercept = intercept_text(model.in_raw_units()[1])
        else:
            intercept = "none"
        return {"Coefficients": count_used(model.coef_), "Intercept": intercept}


def _explanation(model: LinearModel, coef: FloatArray, bars: int) -> str:
    if not bars:
        return "Every coefficient is zero: the model does not use any column."
    which = "All coefficients that are not zero"
    if np.count_nonzero(coef) > SHOWN:
        which = f"The {bars} largest coefficients"
    explanation = (
        f"{which}, largest first. A positive one raises the prediction as its column grows, a "
        "negative one lowers it. Their sizes can only be compared if the columns are on the same "
        "scale."
    )
    if model.preparation is not None and model.preparation.standardised:
        explanation += " They are per unit of the raw column; the fit standardised the columns."
    return explanation


def count_used(coef: FloatArray) -> str:
    """The number of coefficients that are not zero, in words."""
    return f"{np.count_nonzero(coef):,} of {coef.size:,} are not zero"


def intercept_text(intercept: float) -> str:
    """An intercept in words."""
    return f"{intercept + 0.0:.6g}".replace("-", "−", 1)


def stray_intercept(model: Any) -> Iterator[str]:
    """Object to an intercept that the problem does not have: every score would include it."""
    if not model.problem.intercept and np.any(model.intercept_):
        yield "the model has an intercept, but its problem has none"


def check_duals(
    witness: Sequence[FloatArray] | None, rows: Sequence[int], owners: str = "parties"
) -> None:
    """Refuse dual variables that are neither one per row of each agent, nor none."""
    if witness is None:
        return
    if len(witness) == len(rows):
        pairs = zip(witness, rows, strict=True)
        if all(len(v) in (0, n) for v, n in pairs):
            return
    raise InvalidInput(
        f"the dual vectors do not belong to these {owners}; use those of a run on the same data."
    )


def dual_of(witness: Sequence[FloatArray] | None, index: int) -> FloatArray | None:
    """The dual variables of one agent; None where it has none."""
    if witness is None or len(witness[index]) == 0:
        return None
    return witness[index]


class VectorModels(Models[R, L], Generic[R, L]):
    """One coefficient per column. Split by features, each agent holds a part of them."""

    prepares = True
    settles = True

    def shapes(
        self, model: L, members: Sequence[AgentForm[R]]
    ) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """One coefficient per column."""
        width = members[0].data.d
        if members[0].split == "features":
            width = sum(agent.data.d for agent in members)
        of_model = (len(model.coef_),)
        of_data = (width,)
        return of_model, of_data

    def _points(
        self, model: L, members: Sequence[AgentForm[R]], witness: Sequence[FloatArray] | None
    ) -> list[Point]:
        check_duals(witness, [agent.labelled for agent in members])
        by_columns = members[0].split == "features"
        points = []
        blocks = columns_of([agent.data for agent in members])
        for index, (agent, block) in enumerate(zip(members, blocks, strict=True)):
            if by_columns:
                w = model.coef_[block]
            else:
                w = model.coef_.copy()
            if agent.has_intercept:
                w = np.append(w, model.intercept_)
            points.append(Point(w, dual_of(witness, index)))
        return points

    def settled(
        self, model: L, members: Sequence[AgentForm[R]], points: list[Point], own: Sequence[float]
    ) -> list[Point]:
        """Correct the one intercept for the centring of all agents' columns."""
        debt = model.intercept_ - sum(own)
        for agent, point in zip(members, points, strict=True):
            if agent.has_intercept:
                point.w[-1] += debt
        return points

    def assemble(
        self, outcome: Outcome, members: Sequence[AgentForm[R]], problem: R, classes: Classes
    ) -> L:
        """The model; split by features, with the coefficients of all agents in their places."""
        if members[0].split == "features":
            return self._assemble_columns(outcome, members, problem, classes)
        data = members[0].data
        w: FloatArray = outcome.points[0].w
        if problem.intercept:
            intercept = float(w[-1])
        else:
            intercept = 0.0
        coef = stored(problem.coefficients(w), data.precision)
        model: L = problem.kind.model_class(coef, intercept, problem, classes, data.columns)
        return model

    def _assemble_columns(
        self, outcome: Outcome, members: Sequence[AgentForm[R]], problem: R, classes: Classes
    ) -> L:
        tables = [agent.data for agent in members]
        places = np.concatenate(columns_of(tables))
        coefficients = []
        for agent, point in zip(members, outcome.points, strict=True):
            coefficients.append(problem.coefficients(point.w, agent.has_intercept))
        placed: FloatArray = np.empty(len(places))
        placed[places] = np.concatenate(coefficients)
        coef = stored(placed, tables[0].precision)
        intercept = 0.0
        if problem.intercept:
            intercept = _added([point.own for point in outcome.points])
        names = _names_in_place(tables, places)
        model: L = problem.kind.model_class(coef, intercept, problem, classes, names)
        return model

    def has_own_number(self, agent: AgentForm[R]) -> bool:
        """Split by features, columns are centred, and only the agent that holds them knows their
        means.
        """
        return agent.split == "features" and agent.problem.intercept

    def own_number(self, agent: Agent[R], w: FloatArray) -> float:
        """The constant that w adds to every score in addition to X w."""
        return agent.design.offset(w)

    def unproven(
        self, model: L, members: Sequence[AgentForm[R]], own: Sequence[float]
    ) -> Iterator[str]:
        yield from stray_intercept(model)


def _added(offsets: Sequence[float | None]) -> float:
    """The intercept: the sum of the constants that all agents' columns add to it."""
    assert None not in offsets, "every agent has sent the constant of its columns"
    return sum(own for own in offsets if own is not None)


def _names_in_place(tables: Sequence[AnyTable], places: Indices) -> tuple[str, ...] | None:
    """The names of all columns in the order of the model; None unless every table has names."""
    if any(table.columns is None for table in tables):
        return None
    names = [name for table in tables for name in table.columns or ()]
    return tuple(names[j] for j in np.argsort(places))


class RowsKind(Kind[R, L], Generic[R, L]):
    """One coefficient per column: `LinearModel` or a class of its own that derives from it."""

    problems: Problems[R] = RowProblems()
    local: Local[R] = RowLocal()
    models: Models[R, L] = VectorModels()
    report: Report[R, L] = VectorReport()
