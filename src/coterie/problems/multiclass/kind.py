"""Linear models of several classes: one row of coefficients a class, learned from data split by samples."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt

from coterie.data import Table, encode_classes
from coterie.data.check import ClassCounts
from coterie.errors import InvalidInput, InvalidProblem
from coterie.networks import Network
from coterie.numerics.arrays import Design, FloatArray, stored
from coterie.numerics.losses import Fit
from coterie.problems.kind import SHOWN, Ask, Classes, Protocols, Shown
from coterie.problems.multiclass import proof
from coterie.problems.multiclass.loss import Softmax
from coterie.problems.multiclass.methods import SoftmaxNewton
from coterie.problems.multiclass.model import MulticlassModel
from coterie.problems.multiclass.view import SoftmaxHere, StackedDesign
from coterie.problems.problem import Problem
from coterie.problems.proof import certify_rows
from coterie.problems.rows import RowsKind
from coterie.run.agent import Agent, Facts
from coterie.run.certificate import ANY, Bound, Participant, Point
from coterie.run.collectives import Sum, Talk
from coterie.run.disclosure import discloses
from coterie.run.rounds import Outcome

if TYPE_CHECKING:
    from coterie.problems.multiclass.stats import MulticlassStats


class MulticlassKind(RowsKind[Problem[Softmax], MulticlassModel]):
    """Softmax, and a penalty of all coefficients."""

    name = "multiclass"
    called = "linear model of several classes"
    usual_intercept = True
    labels_alone = False
    beside = ("weights",)
    losses: ClassVar[dict[str, type[Fit]]] = {Softmax.name: Softmax}
    loss_class = Softmax
    model_class = MulticlassModel
    methods = (SoftmaxNewton,)
    introduces: Protocols = (proof.introduce,)
    proves: Protocols = (proof.SoftmaxTerms.balance, certify_rows)

    def classification(self, problem: Problem[Softmax]) -> bool:
        return True

    def codes(self, classes: npt.NDArray[Any]) -> FloatArray:
        return np.arange(len(classes), dtype=float)

    def outputs(self, problem: Problem[Softmax]) -> int:
        return problem.loss.outputs

    def with_classes(self, problem: Problem[Softmax], classes: Classes) -> Problem[Softmax]:
        return problem.changed(loss=problem.loss.with_classes(classes))

    def flattened(self, problem: Problem[Softmax], columns: int) -> Problem[Softmax]:
        return problem.changed(penalty=problem.penalty.repeated(columns, problem.outputs))

    def design(self, agent: Agent[Problem[Softmax]]) -> Design:
        return StackedDesign(super().design(agent), agent.problem.outputs)

    def centred(self, agent: Agent[Problem[Softmax]]) -> Design:
        return StackedDesign(super().centred(agent), agent.problem.outputs)

    def view(self, agent: Agent[Problem[Softmax]], w: FloatArray, design: Design) -> SoftmaxHere:
        assert isinstance(design, StackedDesign)
        return SoftmaxHere(w, design, agent.exact_labels, agent.data.weights)

    def introduce(self, agent: Agent[Problem[Softmax]]) -> Talk[Facts]:
        return proof.introduce(agent)

    def certify(
        self, agent: Agent[Problem[Softmax]], point: Point, target: float = 0.0, radius: float | None = ANY
    ) -> Talk[Bound]:
        return proof.certify(agent, point, target, radius)

    def dual_at(self, agent: Agent[Problem[Softmax]], w: FloatArray) -> FloatArray:
        return proof.dual_at(agent, w)

    @property
    def stats(self) -> MulticlassStats:
        from coterie.problems.multiclass.stats import MulticlassStats

        return MulticlassStats()

    @discloses(
        "for each class: the weight of your rows",
        applies=lambda case: case.intercept,
        most=lambda case: (1, case.outputs),
    )
    def constants(self, agent: Agent[Problem[Softmax]]) -> Talk[Any]:
        ones = agent.weighted(np.ones(agent.data.n))
        counts = yield Sum(np.bincount(agent.exact_labels.astype(np.intp), ones, agent.problem.outputs).astype(float))
        return np.log(counts / agent.total)

    finds_strengths: Protocols = (constants, RowsKind.slope_at_constant)

    def check_split(self, problem: Problem[Softmax], split: str) -> None:
        if split != "samples":
            raise InvalidProblem(
                f"models of several classes need data split by samples, but it is split by {split}. "
                "Of columns at several parties, fit one class against the rest with loss 'logistic'."
            )

    def check_columns(self, problem: Problem[Softmax], columns: int) -> None:
        super().check_columns(problem.flattened(columns), columns * problem.outputs)

    def classes(self, problem: Problem[Softmax], found: ClassCounts) -> npt.NDArray[Any]:
        fixed = self._fixed(problem)
        return found.labels if fixed is None else fixed

    def _fixed(self, problem: Problem[Softmax]) -> npt.NDArray[Any] | None:
        known = problem.loss.classes
        return None if known is None else np.array(known)

    def encode(self, table: Table, problem: Problem[Softmax], classes: Classes) -> Table:
        return encode_classes([table], classes)[0][0]

    def shapes(self, model: Any, members: Sequence[Agent[Problem[Softmax]]]) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Classes and columns."""
        return model.coef_.shape, (members[0].problem.outputs, members[0].data.d)

    def _points(
        self, model: Any, members: Sequence[Agent[Problem[Softmax]]], witness: Sequence[FloatArray] | None, ask: Ask
    ) -> list[Point]:
        sizes = [agent.labelled * agent.problem.outputs for agent in members]
        if witness is not None and [v.size for v in witness] != sizes and any(v.size for v in witness):
            raise InvalidInput("the dual vectors do not belong to these parties; use those of a run on the same data.")
        W = model.coef_.T.astype(float)
        if model.problem.intercept:
            W = np.vstack([W, model.intercept_])
        given = [None if witness is None or not v.size else v for v in witness or [np.empty(0)] * len(members)]
        return [Point(W.ravel(), v) for v in given]

    def model(
        self, outcome: Outcome, members: Sequence[Agent[Problem[Softmax]]], problem: Problem[Softmax], classes: Classes
    ) -> Any:
        """The coefficients, which everybody has."""
        first, classes = members[0], np.asarray(classes)
        W = outcome.points[0].w.reshape(-1, len(classes))
        coef = stored(W[: first.data.d].T, first.data.X.dtype)
        intercept = W[-1].astype(float) if problem.intercept else np.zeros(len(classes))
        return MulticlassModel(np.ascontiguousarray(coef), intercept, problem, classes, first.data.columns)

    def made_up(self, problem: Problem[Softmax], scores: FloatArray) -> FloatArray:
        raise InvalidProblem("sizes alone do not say how many classes there are. Give data; random labels will do.")

    def shown(self, model: Any, people: Sequence[Participant]) -> Shown:
        """How much each column counts."""
        sizes = np.linalg.norm(model.coef_, axis=0)
        order = np.argsort(-sizes, kind="stable")[:SHOWN]
        names = model.columns or [f"column {j}" for j in range(len(sizes))]
        bars = [(names[j], float(sizes[j])) for j in order.tolist() if sizes[j] > 0 and np.isfinite(sizes[j])]
        explanation = (
            "How much a column counts: the length of its coefficients over all classes, largest first. They can only "
            "be compared if the columns are on the same scale."
        )
        if not bars:
            explanation = "Every coefficient is zero: the model does not use any column."
        return Shown("coefficients", explanation, ("column", "length of its coefficients"), bars)

    def facts(self, model: Any, network: Network) -> dict[str, str]:
        used = f"{np.count_nonzero(model.coef_):,} of {model.coef_.size:,} are not zero"
        intercept = "one for each class" if model.problem.intercept else "none"
        return {"Coefficients": used, "Intercept": intercept}
