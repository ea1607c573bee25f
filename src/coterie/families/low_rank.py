"""Low-rank models: a matrix of small trace norm that fits a task, learned from rows held by several parties."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from coterie.agent import Agent
from coterie.arrays import FloatArray
from coterie.certificate import Participant, Point
from coterie.data import Table, validated_all
from coterie.errors import InvalidProblem
from coterie.factors import apart, written
from coterie.families.family import Ask, Classes, Shown, in_one_precision, on_the_host
from coterie.families.linear import LinearFamily
from coterie.models import LowRankModel
from coterie.networks import Network
from coterie.problem import Problem
from coterie.rounds import Outcome

ORTHOGONAL = 1e-6
"""How far singular vectors may be from orthonormal; those of data in single precision are less exact."""


class LowRankFamily(LinearFamily):
    """A task in place of a loss, and a penalty of a matrix, which fits any number of columns."""

    name = "low-rank"
    called = "low-rank model"
    labels_alone = False
    beside = ("weights",)

    def classification(self, problem: Problem) -> bool | None:  # type: ignore[override]
        return True if problem.task.kind == "classes" else None

    def check_split(self, problem: Problem, split: str) -> None:
        if split != "samples":
            raise InvalidProblem(f"low-rank models need data split by samples, but it is split by {split}.")

    def check_columns(self, problem: Problem, columns: int) -> None:
        """A trace norm is one of any matrix."""

    def prepare(self, tables: Sequence[Table], problem: Problem, split: str) -> tuple[list[Table], Classes]:
        if problem.task.kind == "entries":
            tables = on_the_host(tables)
        self.check_split(problem, split)
        known = validated_all(tables, split=split, classification=self.classification(problem))
        valid, classes = problem.task.prepared(known)
        return in_one_precision(valid), classes

    def _classes(self, problem: Problem, found: npt.NDArray[Any]) -> npt.NDArray[Any]:
        fixed = getattr(problem.task, "classes", None)
        return found if fixed is None else np.array(fixed)

    def encode(self, table: Table, problem: Problem, classes: Classes) -> Table:
        return problem.task.with_classes(classes).prepared([table])[0][0]

    def made_up(self, problem: Problem, scores: FloatArray) -> FloatArray:
        raise InvalidProblem(
            f"sizes alone describe data with one label per row, but {problem.task.name} needs other labels. Give data; "
            "random numbers of the right shape will do."
        )

    def shapes(self, model: Any, members: Sequence[Agent]) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Rows and columns of the matrix."""
        return (len(model.U), len(model.V)), members[0].problem.task.size(members[0].data)

    def _points(
        self, model: Any, members: Sequence[Agent], witness: Sequence[FloatArray] | None, ask: Ask
    ) -> list[Point]:
        free = None
        if members[0].problem.intercept:
            parts = zip((model.a, model.b), (model.U, model.V), strict=True)
            free = np.concatenate([np.zeros(len(side)) if part is None else part for part, side in parts])
        before, problem = None, members[0].problem
        if problem.task.stages > 1 and (problem.task, problem.penalty) == (model.problem.task, model.problem.penalty):
            # All parties have the same matrix of the stage before.
            before = next((v for v in witness or () if v.size), None)
        return [Point(written(model.U, model.s, model.V, free), before)] * len(members)

    def model(self, outcome: Outcome, members: Sequence[Agent], problem: Problem, classes: Classes) -> Any:
        """The factors, which everybody has, as they were certified."""
        first, w, a, b = members[0].data, outcome.points[0].w, None, None
        d, m = problem.task.size(first)
        if problem.intercept:
            (a, b), w = apart(w[: d + m, -1], d), w[:, :-1]
            a = a.copy() if problem.task.kind == "entries" else None
        U, V, s = (part.copy() for part in np.split(w, [d, d + m]))
        model = LowRankModel(U, s[0], V, problem, classes, first.columns)
        return model if b is None else replace(model, a=a, b=b.copy())

    def unproven(self, model: Any, members: Sequence[Agent]) -> Iterator[str]:
        """Singular values and vectors that are none, of which only the product is proven."""
        yield from super().unproven(model, members)
        if model.a is not None and (model.problem.task.kind != "entries" or not model.problem.intercept):
            yield "the model has an intercept of rows, but its problem has none"
        off = [np.abs(side.T @ side - np.eye(len(model.s))).max(initial=0.0) for side in (model.U, model.V)]
        falling = bool((model.s > 0).all() and (np.diff(model.s) <= ORTHOGONAL * model.s[:1].sum()).all())
        if not falling or max(off) > ORTHOGONAL:
            yield "what the model calls singular values and vectors are none of its matrix"

    def shown(self, model: Any, people: Sequence[Participant]) -> Shown:
        """The singular values."""
        explanation = (
            "The model is a matrix made of few patterns. Its singular values say how much each pattern weighs; where "
            "they fall steeply, a few patterns explain nearly everything."
        )
        bars = [(str(k), float(value)) for k, value in enumerate(model.s, 1) if value > 0]
        return Shown("singular-values", explanation, ("pattern", "singular value"), bars)

    def facts(self, model: Any, network: Network) -> dict[str, str]:
        kinds = ("means of all entries, rows and columns", "one for each column of W")
        free = kinds[model.a is None] if model.b is not None else "none"
        return {"Shape": f"{len(model.U):,} × {len(model.V):,}", "Rank": f"{model.rank_:,}", "Intercept": free}
