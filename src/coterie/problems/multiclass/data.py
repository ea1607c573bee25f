"""Tables of several classes: labels are classes, which are encoded as 0, 1, 2, ..."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from coterie.data import Table, encode_classes
from coterie.data.check import ClassCounts
from coterie.errors import InvalidProblem
from coterie.numerics.arrays import FloatArray
from coterie.problems.multiclass.loss import Softmax
from coterie.problems.parts.data import Classes, Data
from coterie.problems.problem import Problem


class MulticlassData(Data[Problem[Softmax]]):
    """The loss may fix the classes; otherwise they are the classes of all parties."""

    fields: ClassVar[tuple[str, ...]] = ("weights",)
    labels_alone = False

    def classification(self, problem: Problem[Softmax]) -> bool:
        return True

    def check_split(self, problem: Problem[Softmax], split: str) -> None:
        if split != "samples":
            raise InvalidProblem(
                "models of several classes need data split by samples, but it is split by "
                f"{split}. For columns at several parties, fit one class against the rest with "
                "loss 'logistic'."
            )

    def classes(self, problem: Problem[Softmax], found: ClassCounts) -> npt.NDArray[Any]:
        known = problem.loss.classes
        if known is None:
            return found.labels
        return np.array(known)

    def encode(self, table: Table, problem: Problem[Softmax], classes: Classes) -> Table:
        (encoded,), _ = encode_classes([table], classes)
        return encoded

    def codes(self, classes: npt.NDArray[Any]) -> FloatArray:
        return np.arange(len(classes), dtype=float)

    def made_up(self, problem: Problem[Softmax], scores: FloatArray) -> FloatArray:
        raise InvalidProblem(
            "sizes alone do not give the number of classes. Give data; random labels will do."
        )
