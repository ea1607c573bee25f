"""Low-rank models: a matrix of small trace norm that fits a task, learned from rows held by several parties."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from coterie.data import Table
from coterie.data.check import ClassCounts
from coterie.errors import InvalidProblem
from coterie.networks import Network
from coterie.numerics.arrays import FloatArray
from coterie.numerics.factors import apart, factors_of, written
from coterie.problems.kind import Ask, Classes, Protocols, Shown, on_the_host
from coterie.problems.low_rank import proof
from coterie.problems.low_rank.methods import DfwSubspace, DfwTrace, NaiveDfw, Sva
from coterie.problems.low_rank.model import LowRankModel
from coterie.problems.low_rank.tasks import TASKS, Means, Task
from coterie.problems.problem import Problem
from coterie.problems.rows import RowsKind
from coterie.problems.stats import Stats
from coterie.run.agent import Agent, Facts
from coterie.run.certificate import ANY, Bound, Participant, Point
from coterie.run.certificate.intercepts import information_of
from coterie.run.collectives import Sum, Talk
from coterie.run.disclosure import TOTALS, discloses
from coterie.run.rounds import Outcome

ORTHOGONAL = 1e-6
"""How far singular vectors may be from orthonormal; those of data in single precision are less exact."""
PRODUCTS = 10
"""Power iterations that say how large the slope of a matrix is."""


class LowRankKind(RowsKind[Problem[Task], LowRankModel]):
    """A task in place of a loss, and a penalty of a matrix, which fits any number of columns."""

    name = "low-rank"
    methods = (DfwSubspace, DfwTrace, NaiveDfw, Sva)
    called = "low-rank model"
    labels_alone = False
    beside = ("weights",)
    losses = TASKS
    loss_class = Task
    for_matrices = True
    model_class = LowRankModel
    prepares = False
    introduces: Protocols = (proof.introduce,)
    proves: Protocols = proof.PROTOCOLS

    @property
    def stats(self) -> Stats[Any]:
        return Stats()

    def with_classes(self, problem: Problem[Task], classes: Classes) -> Problem[Task]:
        return problem.changed(loss=problem.loss.with_classes(classes))

    def introduce(self, agent: Agent[Problem[Task]]) -> Talk[Facts]:
        return proof.introduce(agent)

    def certify(
        self, agent: Agent[Problem[Task]], point: Point, target: float = 0.0, radius: float | None = ANY
    ) -> Talk[Bound]:
        return proof.certify(agent, point, target, radius)

    def dual_at(self, agent: Agent[Problem[Task]], w: FloatArray) -> FloatArray | None:
        return None

    def on_device(self, split: str, tensors: bool) -> bool:
        return True

    def losses_at(self, agent: Agent[Problem[Task]], w: FloatArray) -> float:
        task, free = agent.problem.loss, None
        d, m = task.size(agent.data)
        if agent.problem.intercept:
            free, w = Means(*apart(w[: d + m, -1], d)), w[:, :-1]
        factors = factors_of(w, (d, m))
        lost = 0.0
        for block in task.blocks(agent.data):
            information = task.stats(block, "implicit", free)
            information.reset(*factors)
            lost += information.loss()
        return lost

    @discloses(
        "products of the gradient of a model of zeros with ten pairs of vectors, as part of a sum",
        "ten pairs of weighted sums of your rows",
        TOTALS,
        most=lambda case: (2 * PRODUCTS, PRODUCTS * sum(case.problem.loss.size(case.table))),
    )
    def slope_at_constant(self, agent: Agent[Problem[Task]]) -> Talk[FloatArray]:
        information = information_of(agent, "auto")
        v = agent.common_random(0).standard_normal(agent.problem.loss.size(agent.data)[1]).astype(information.dtype)
        size = 0.0
        for _ in range(PRODUCTS):
            u = yield Sum(information.times(v / (np.linalg.norm(v) or 1.0)))
            size = float(np.linalg.norm(u))
            v = yield Sum(information.times_transposed(u / (size or 1.0)))
        return np.array([size / agent.total])

    finds_strengths: Protocols = (slope_at_constant,)

    def classification(self, problem: Problem[Task]) -> bool | None:
        return True if problem.loss.kind == "classes" else None

    def check_split(self, problem: Problem[Task], split: str) -> None:
        if split != "samples":
            raise InvalidProblem(f"low-rank models need data split by samples, but it is split by {split}.")

    def check_columns(self, problem: Problem[Task], columns: int) -> None:
        """A trace norm is one of any matrix."""

    def classes(self, problem: Problem[Task], found: ClassCounts) -> npt.NDArray[Any]:
        fixed = getattr(problem.loss, "classes", None)
        return found.labels if fixed is None else np.array(fixed)

    def encode(self, table: Table, problem: Problem[Task], classes: Classes) -> Table:
        """Places in a matrix are looked up on the host."""
        if problem.loss.kind == "entries":
            table = on_the_host([table])[0]
        return problem.loss.with_classes(classes).prepared([table])[0][0]

    def made_up(self, problem: Problem[Task], scores: FloatArray) -> FloatArray:
        raise InvalidProblem(
            f"sizes alone describe data with one label per row, but {problem.loss.name} needs other labels. Give data; "
            "random numbers of the right shape will do."
        )

    def shapes(self, model: Any, members: Sequence[Agent[Problem[Task]]]) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Rows and columns of the matrix."""
        return (len(model.U), len(model.V)), members[0].problem.loss.size(members[0].data)

    def _points(
        self, model: Any, members: Sequence[Agent[Problem[Task]]], witness: Sequence[FloatArray] | None, ask: Ask
    ) -> list[Point]:
        free = None
        if members[0].problem.intercept:
            parts = zip((model.a, model.b), (model.U, model.V), strict=True)
            free = np.concatenate([np.zeros(len(side)) if part is None else part for part, side in parts])
        before, problem = None, members[0].problem
        if problem.loss.stages > 1 and (problem.loss, problem.penalty) == (model.problem.loss, model.problem.penalty):
            # All parties have the same matrix of the stage before.
            before = next((v for v in witness or () if v.size), None)
        return [Point(written(model.U, model.s, model.V, free), before)] * len(members)

    def model(
        self, outcome: Outcome, members: Sequence[Agent[Problem[Task]]], problem: Problem[Task], classes: Classes
    ) -> Any:
        """The factors, which everybody has, as they were certified."""
        first, w, a, b = members[0].data, outcome.points[0].w, None, None
        d, m = problem.loss.size(first)
        if problem.intercept:
            (a, b), w = apart(w[: d + m, -1], d), w[:, :-1]
            a = a.copy() if problem.loss.kind == "entries" else None
        U, V, s = (part.copy() for part in np.split(w, [d, d + m]))
        model = LowRankModel(U, s[0], V, problem, classes, first.columns)
        return model if b is None else replace(model, a=a, b=b.copy())

    def unproven(self, model: Any, members: Sequence[Agent[Problem[Task]]]) -> Iterator[str]:
        """Singular values and vectors that are none, of which only the product is proven."""
        yield from super().unproven(model, members)
        if model.a is not None and (model.problem.loss.kind != "entries" or not model.problem.intercept):
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
