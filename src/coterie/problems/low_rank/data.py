"""Tables of low-rank models: the task checks and encodes the labels."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from coterie.data import Table
from coterie.data.check import ClassCounts
from coterie.errors import InvalidProblem
from coterie.numerics.arrays import FloatArray
from coterie.problems.low_rank.tasks import Task
from coterie.problems.parts.data import Classes, Data, on_the_host
from coterie.problems.problem import Problem


class LowRankData(Data[Problem[Task]]):
    """Tensors stay on their device, except for the entries of a matrix."""

    fields: ClassVar[tuple[str, ...]] = ("weights",)
    labels_alone = False

    def on_device(self, split: str, tensors: bool) -> bool:
        return True

    def classification(self, problem: Problem[Task]) -> bool | None:
        if problem.loss.kind == "classes":
            return True
        return None

    def check_split(self, problem: Problem[Task], split: str) -> None:
        if split != "samples":
            raise InvalidProblem(
                f"low-rank models need data split by samples, but it is split by {split}."
            )

    def classes(self, problem: Problem[Task], found: ClassCounts) -> npt.NDArray[Any]:
        fixed = getattr(problem.loss, "classes", None)
        if fixed is None:
            return found.labels
        return np.array(fixed)

    def encode(self, table: Table, problem: Problem[Task], classes: Classes) -> Table:
        """Places in a matrix are looked up on the host."""
        if problem.loss.kind == "entries":
            (table,) = on_the_host([table])
        task = problem.loss.with_classes(classes)
        (encoded,), _ = task.prepared([table])
        return encoded

    def codes(self, classes: npt.NDArray[Any]) -> FloatArray:
        return np.arange(len(classes), dtype=float)

    def made_up(self, problem: Problem[Task], scores: FloatArray) -> FloatArray:
        raise InvalidProblem(
            f"sizes alone describe data with one label per row, but {problem.loss.name} needs "
            "other labels. Give data; random numbers of the right shape will do."
        )
