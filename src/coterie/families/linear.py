"""Linear models: one coefficient a column, learned from data split by samples or by features."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from coterie.agent import Agent
from coterie.arrays import FloatArray, stored
from coterie.certificate import Participant, Point
from coterie.data import Table
from coterie.data.table import columns_of, party_error
from coterie.errors import InvalidInput, InvalidProblem
from coterie.families.family import SHOWN, Classes, Family, Shown, spelt
from coterie.models import LinearModel
from coterie.networks import Network
from coterie.problem import Problem
from coterie.rounds import Outcome

STEEPEST_OFFSET = 300.0
"""Without an intercept to make good for it, e to a larger power has a square that is no number."""


class LinearFamily(Family):
    """A loss and a penalty of a vector."""

    name = "linear"
    called = "linear model"
    beside: ClassVar[tuple[str, ...]] = ("weights", "offset")

    def classification(self, problem: Problem) -> bool:
        return problem.loss.kind == "classification"

    def check_labels(self, table: Table, problem: Problem) -> None:
        """Refuse, say, a negative count, and tell where it is."""
        if table.y is None or self.classification(problem):
            return
        if table.offset is not None and problem.loss.steep and not problem.intercept:
            far = np.flatnonzero(np.abs(table.offset) > STEEPEST_OFFSET)
            if far.size:
                said = f"row {far[0]} has the offset {table.offset[far[0]]:g}, and e to its power is no mean"
                raise party_error(table.name, f"{said}. Fit an intercept, or give logarithms of exposures.")
        wrong = np.flatnonzero(~problem.loss.accepts(table.y))
        if wrong.size:
            said = f"row {wrong[0]} has the label {table.y[wrong[0]]:g}"
            more = f", and so {'has' if wrong.size == 2 else 'have'} {wrong.size - 1} more" if wrong.size > 1 else ""
            raise party_error(
                table.name, f"{said}{more}; the {problem.loss.name} loss takes {problem.loss.labels}. Check the labels."
            )

    def check_columns(self, problem: Problem, columns: int) -> None:
        """Refuse a penalty with bounds or groups for another number of columns."""
        try:
            problem.penalty.value(problem.penalty.prox(np.zeros(columns), 1.0))
        except (ValueError, IndexError) as error:
            name = problem.penalty.name
            raise InvalidProblem(f"the {name} penalty does not fit {columns} columns: {error}") from error

    def words(self, problem: Problem) -> str:
        return f"{problem.loss.name} loss, {problem.penalty.name} penalty"

    def described(self, settings: dict[str, Any]) -> str:
        beside = [f"an {part}" for part in ("intercept", "offset") if settings.get(part)]
        more = f" with {' and '.join(beside)}" if beside else ""
        return f"{spelt(settings['loss'])} loss, {spelt(settings['penalty'])} penalty{more}"

    def call(self, problem: Problem) -> tuple[str, dict[str, Any]]:
        loss, penalty = problem.loss.settings(), problem.penalty.settings()
        named = {"loss": loss.pop("name"), "penalty": penalty.pop("name"), **loss, **penalty}
        return "Problem", {**named, **{part: True for part in ("intercept", "offset") if getattr(problem, part)}}

    def parts(self, settings: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
        intercept = {"name": "yes, without penalty" if settings["intercept"] else "no"}
        offset = [("Offset", {"name": "yes, added to the scores"})] if settings.get("offset") else []
        return [("Loss", settings["loss"]), ("Penalty", settings["penalty"]), ("Intercept", intercept), *offset]

    def shapes(self, model: Any, members: Sequence[Agent]) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """One coefficient a column."""
        first = members[0]
        width = sum(agent.data.d for agent in members) if first.split == "features" else first.data.d
        return (len(model.coef_),), (width,)

    def _points(self, model: Any, members: Sequence[Agent], witness: Sequence[FloatArray] | None) -> list[Point]:
        sizes, by_columns = [len(agent.labels) for agent in members], members[0].split == "features"
        if witness is not None and (
            len(witness) != len(sizes) or any(len(v) not in (0, n) for v, n in zip(witness, sizes, strict=True))
        ):
            raise InvalidInput("the dual vectors do not belong to these parties; use those of a run on the same data.")
        points = []
        for index, (agent, block) in enumerate(zip(members, columns_of([a.data for a in members]), strict=True)):
            w = model.coef_[block] if by_columns else model.coef_.copy()
            if agent.design.intercept:
                w = np.append(w, model.intercept_)
            points.append(Point(w, None if witness is None or len(witness[index]) == 0 else witness[index]))
        if by_columns:
            # Each agent may have centred its columns; the one with the intercept makes good for all.
            debt = model.intercept_ - sum(agent.design.offset(p.w) for agent, p in zip(members, points, strict=True))
            for agent, point in zip(members, points, strict=True):
                if agent.design.intercept:
                    point.w[-1] += debt
        return points

    def model(self, outcome: Outcome, members: Sequence[Agent], problem: Problem, classes: Classes) -> LinearModel:
        """Split by features, everybody's coefficients in their places."""
        first, dtype = members[0], members[0].design.dtype
        if first.split != "features":
            w: FloatArray = outcome.points[0].w
            coef, intercept = problem.coefficients(w), float(w[-1]) if problem.intercept else 0.0
            return LinearModel(stored(coef, dtype), intercept, problem, classes, first.data.columns)
        held = list(zip(members, outcome.points, strict=True))
        places = np.concatenate(columns_of([agent.data for agent in members]))
        placed: FloatArray = np.empty(len(places))
        placed[places] = np.concatenate([problem.coefficients(p.w, agent.design.intercept) for agent, p in held])
        placed = stored(placed, dtype)
        names = [agent.data.columns for agent in members]
        known = [name for own in names if own is not None for name in own]
        columns = None if None in names else tuple(known[j] for j in np.argsort(places))
        return LinearModel(placed, sum(a.design.offset(p.w) for a, p in held), problem, classes, columns)

    def shown(self, model: Any, people: Sequence[Participant]) -> Shown:
        """The largest coefficients."""
        coef, columns = model.coef_, model.columns
        order = np.argsort(-np.abs(coef), kind="stable")[:SHOWN]
        order = order[(coef[order] != 0) & np.isfinite(coef[order])]
        bars = [(f"column {j}" if columns is None else columns[j], float(coef[j])) for j in order.tolist()]
        many = np.count_nonzero(coef) > SHOWN
        which = f"The {len(bars)} largest coefficients" if many else "All coefficients that are not zero"
        explanation = (
            f"{which}, largest first. A positive one raises the prediction as its column grows, a negative one lowers "
            "it. Their sizes can only be compared if the columns are on the same scale."
        )
        if not bars:
            explanation = "Every coefficient is zero: the model does not use any column."
        return Shown("coefficients", explanation, ("column", "coefficient"), bars)

    def facts(self, model: Any, network: Network) -> dict[str, str]:
        intercept = f"{model.intercept_ + 0.0:.6g}".replace("-", "−", 1) if model.problem.intercept else "none"
        used = f"{np.count_nonzero(model.coef_):,} of {len(model.coef_):,} are not zero"
        return {"Coefficients": used, "Intercept": intercept}
