"""Linear models of several classes: one row of coefficients a class, learned from data split by samples."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from coterie.agent import Agent
from coterie.arrays import FloatArray, stored
from coterie.certificate import Participant, Point
from coterie.data import Table, encode_classes, validated_all
from coterie.errors import InvalidInput, InvalidProblem
from coterie.families.family import SHOWN, Ask, Classes, Shown, by_rows, in_one_precision
from coterie.families.linear import LinearFamily
from coterie.models import MulticlassModel
from coterie.networks import Network
from coterie.problem import Problem
from coterie.rounds import Outcome


class MulticlassFamily(LinearFamily):
    """Softmax, and a penalty of all coefficients."""

    name = "multiclass"
    called = "linear model of several classes"
    labels_alone = False
    beside = ("weights",)

    def classification(self, problem: Problem) -> bool:
        return True

    def check_split(self, problem: Problem, split: str) -> None:
        if split != "samples":
            raise InvalidProblem(
                f"models of several classes need data split by samples, but it is split by {split}. "
                "Of columns at several parties, fit one class against the rest with loss 'logistic'."
            )

    def check_columns(self, problem: Problem, columns: int) -> None:
        super().check_columns(problem.flattened(columns), columns * problem.outputs)

    def prepare(self, tables: Sequence[Table], problem: Problem, split: str) -> tuple[list[Table], Classes]:
        self.check_split(problem, split)
        checked = validated_all(tables, split=split, classification=True)
        encoded, classes = encode_classes(checked, self._fixed(problem))
        return in_one_precision([by_rows(table) for table in encoded]), classes

    def _classes(self, problem: Problem, found: npt.NDArray[Any]) -> npt.NDArray[Any]:
        fixed = self._fixed(problem)
        return found if fixed is None else fixed

    def _fixed(self, problem: Problem) -> npt.NDArray[Any] | None:
        known = problem.task.classes  # type: ignore[attr-defined]
        return None if known is None else np.array(known)

    def encode(self, table: Table, problem: Problem, classes: Classes) -> Table:
        return encode_classes([table], classes)[0][0]

    def shapes(self, model: Any, members: Sequence[Agent]) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Classes and columns."""
        return model.coef_.shape, (members[0].problem.outputs, members[0].data.d)

    def _points(
        self, model: Any, members: Sequence[Agent], witness: Sequence[FloatArray] | None, ask: Ask
    ) -> list[Point]:
        sizes = [agent.labelled * agent.problem.outputs for agent in members]
        if witness is not None and [v.size for v in witness] != sizes and any(v.size for v in witness):
            raise InvalidInput("the dual vectors do not belong to these parties; use those of a run on the same data.")
        W = model.coef_.T.astype(float)
        if model.problem.intercept:
            W = np.vstack([W, model.intercept_])
        given = [None if witness is None or not v.size else v for v in witness or [np.empty(0)] * len(members)]
        return [Point(W.ravel(), v) for v in given]

    def model(self, outcome: Outcome, members: Sequence[Agent], problem: Problem, classes: Classes) -> Any:
        """The coefficients, which everybody has."""
        first, classes = members[0], np.asarray(classes)
        W = outcome.points[0].w.reshape(-1, len(classes))
        coef = stored(W[: first.data.d].T, first.data.X.dtype)
        intercept = W[-1].astype(float) if problem.intercept else np.zeros(len(classes))
        return MulticlassModel(np.ascontiguousarray(coef), intercept, problem, classes, first.data.columns)

    def made_up(self, problem: Problem, scores: FloatArray) -> FloatArray:
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
