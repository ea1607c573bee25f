"""What kinds have in common whose model has coefficients for columns, a penalty of them, and perhaps an intercept."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Generic

import numpy as np

from coterie.data.table import columns_of
from coterie.errors import InvalidInput, InvalidProblem
from coterie.numerics.arrays import FloatArray, precision_of, stored
from coterie.problems.kind import (
    SHOWN,
    Ask,
    Classes,
    Kind,
    M,
    Protocols,
    Shown,
    said_of_intercept,
    said_of_penalty,
    spelt,
)
from coterie.problems.problem import Problem
from coterie.problems.proof import certify_rows
from coterie.run.agent import Agent, with_data
from coterie.run.certificate import Participant, Point
from coterie.run.collectives import Sum, Talk
from coterie.run.disclosure import discloses

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    from coterie.networks import Network
    from coterie.run.rounds import Outcome

    Q = TypeVar("Q", bound=Problem[Any])
else:
    from coterie.problems.problem import Q


class RowsKind(Kind[Q, M], Generic[Q, M]):
    """A coefficient a column."""

    prepares = True

    @property
    def proves(self) -> Protocols:
        return (certify_rows,)

    @discloses(
        "for each column: its sum, weighted by the gradient of the loss of the best constant",
        "weighted sums of your columns: means, and of classes the means of each",
        most=lambda case: (1, (case.columns + case.intercept) * case.outputs),
    )
    def slope_at_constant(self, agent: Agent[Q]) -> Talk[FloatArray]:
        """The gradient of the mean loss at coefficients of 0 and the best intercept, or its size: for strengths."""
        w = np.zeros(agent.design.shape[1])
        if agent.problem.intercept:
            w[-agent.problem.outputs :] = yield from self.constants(agent)
        total = yield Sum(agent.at(w).adjoint.astype(float))
        return agent.problem.coefficients(total) / agent.total

    def constants(self, agent: Agent[Q]) -> Talk[Any]:
        """The best intercepts where all coefficients are 0."""
        raise NotImplementedError(f"{self.name} has no intercept")

    @property
    def finds_strengths(self) -> Protocols:
        return (RowsKind.slope_at_constant,)

    def check_columns(self, problem: Q, columns: int) -> None:
        """Refuse a penalty with bounds or groups for another number of columns."""
        try:
            problem.penalty.value(problem.penalty.prox(np.zeros(columns), 1.0))
        except (ValueError, IndexError) as error:
            name = problem.penalty.name
            raise InvalidProblem(f"the {name} penalty does not fit {columns} columns: {error}") from error

    def words(self, problem: Q) -> str:
        penalty = said_of_penalty(problem.penalty.name)
        return f"{problem.loss.name} loss, {penalty}, {said_of_intercept(problem.intercept)}"

    def described(self, settings: dict[str, Any]) -> str:
        more = said_of_intercept(settings["intercept"])
        if settings.get("offset"):
            more += " and an offset" if settings["intercept"] else ", with an offset"
        return f"{spelt(settings['loss'])} loss, {said_of_penalty(spelt(settings['penalty']))} {more}"

    def call(self, problem: Q) -> tuple[str, dict[str, Any]]:
        loss, penalty = problem.loss.settings(), problem.penalty.settings()
        named = {"loss": loss.pop("name"), "penalty": penalty.pop("name"), **loss, **penalty}
        offset = {"offset": True} if problem.offset else {}
        return "Problem", {**named, "intercept": problem.intercept, **offset}

    def parts(self, settings: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
        intercept = {"name": "yes, without penalty" if settings["intercept"] else "no"}
        offset = [("Offset", {"name": "yes, added to the scores"})] if settings.get("offset") else []
        return [("Loss", settings["loss"]), ("Penalty", settings["penalty"]), ("Intercept", intercept), *offset]

    def shapes(self, model: Any, members: Sequence[Agent[Q]]) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """One coefficient a column."""
        first = members[0]
        width = sum(agent.data.d for agent in members) if first.split == "features" else first.data.d
        return (len(model.coef_),), (width,)

    def _points(
        self, model: Any, members: Sequence[Agent[Q]], witness: Sequence[FloatArray] | None, ask: Ask
    ) -> list[Point]:
        sizes, by_columns = [agent.labelled for agent in members], members[0].split == "features"
        if witness is not None and (
            len(witness) != len(sizes) or any(len(v) not in (0, n) for v, n in zip(witness, sizes, strict=True))
        ):
            raise InvalidInput("the dual vectors do not belong to these parties; use those of a run on the same data.")
        points = []
        for index, (agent, block) in enumerate(zip(members, columns_of([a.data for a in members]), strict=True)):
            w = model.coef_[block] if by_columns else model.coef_.copy()
            if agent.has_intercept:
                w = np.append(w, model.intercept_)
            points.append(Point(w, None if witness is None or len(witness[index]) == 0 else witness[index]))
        if by_columns and members[0].problem.intercept:
            # Each agent may have centred its columns; the one with the intercept makes good for all.
            offsets = ask([partial(_offset, agent, p.w) for agent, p in zip(members, points, strict=True)])
            debt = model.intercept_ - sum(offsets)
            for agent, point in zip(members, points, strict=True):
                if agent.has_intercept:
                    point.w[-1] += debt
        return points

    def model(self, outcome: Outcome, members: Sequence[Agent[Q]], problem: Q, classes: Classes) -> Any:
        """Split by features, everybody's coefficients in their places."""
        first, dtype = members[0], precision_of(members[0].data.X)
        if first.split != "features":
            w: FloatArray = outcome.points[0].w
            coef, intercept = problem.coefficients(w), float(w[-1]) if problem.intercept else 0.0
            return _made(self)(stored(coef, dtype), intercept, problem, classes, first.data.columns)
        held = list(zip(members, outcome.points, strict=True))
        places = np.concatenate(columns_of([agent.data for agent in members]))
        placed: FloatArray = np.empty(len(places))
        placed[places] = np.concatenate([problem.coefficients(p.w, agent.has_intercept) for agent, p in held])
        placed = stored(placed, dtype)
        names = [agent.data.columns for agent in members]
        known = [name for own in names if own is not None for name in own]
        columns = None if None in names else tuple(known[j] for j in np.argsort(places))
        intercept = 0.0
        if problem.intercept:
            offsets = [point.own for point in outcome.points]
            intercept = sum(own for own in offsets if own is not None)
            assert None not in offsets, "every holder of columns has told what these add to the intercept"
        return _made(self)(placed, intercept, problem, classes, columns)

    def has_own_number(self, agent: Agent[Q]) -> bool:
        """Split by features, columns are centred, and only their holder knows their means."""
        return agent.split == "features" and agent.problem.intercept

    def own_number(self, agent: Agent[Q], w: FloatArray) -> float:
        """What w adds to every score outside of X w."""
        return agent.design.offset(w)

    def unproven(self, model: Any, members: Sequence[Agent[Q]]) -> Iterator[str]:
        """An intercept that the problem does not have would be added to every score."""
        if not model.problem.intercept and np.any(model.intercept_):
            yield "the model has an intercept, but its problem has none"

    def shown(self, model: Any, people: Sequence[Participant]) -> Shown:
        """The largest coefficients."""
        coef, columns = model.in_raw_units()[0], model.columns
        order = np.argsort(-np.abs(coef), kind="stable")[:SHOWN]
        order = order[(coef[order] != 0) & np.isfinite(coef[order])]
        bars = [(f"column {j}" if columns is None else columns[j], float(coef[j])) for j in order.tolist()]
        many = np.count_nonzero(coef) > SHOWN
        which = f"The {len(bars)} largest coefficients" if many else "All coefficients that are not zero"
        explanation = (
            f"{which}, largest first. A positive one raises the prediction as its column grows, a negative one lowers "
            "it. Their sizes can only be compared if the columns are on the same scale."
        )
        if model.preparation is not None and model.preparation.standardised:
            explanation += " They are per unit of the raw column; the fit standardised the columns."
        if not bars:
            explanation = "Every coefficient is zero: the model does not use any column."
        return Shown("coefficients", explanation, ("column", "coefficient"), bars)

    def facts(self, model: Any, network: Network) -> dict[str, str]:
        constant = model.in_raw_units()[1]
        intercept = f"{constant + 0.0:.6g}".replace("-", "−", 1) if model.problem.intercept else "none"
        used = f"{np.count_nonzero(model.coef_):,} of {len(model.coef_):,} are not zero"
        return {"Coefficients": used, "Intercept": intercept}


def _offset(agent: Agent[Any], w: FloatArray) -> float:
    """What w adds to every score outside of X w; asked where the agent's data is."""
    return with_data(agent).design.offset(w)


def _made(kind: Kind[Any, M]) -> Callable[..., M]:
    made: Any = kind.model_class
    return made  # type: ignore[no-any-return]
