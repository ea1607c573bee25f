"""`kind.data`: checks and encodes tables before the fit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar, Generic

import numpy as np
import numpy.typing as npt

from coterie.data import Table
from coterie.data.check import ClassCounts, encoded_as_signs
from coterie.data.table import party_error
from coterie.numerics.arrays import FloatArray, host, is_tensor
from coterie.problems.problem import K

Classes = npt.NDArray[Any] | None
"""The classes of all parties, sorted; None where labels are numbers."""
DEVICES = ("cpu", "cuda")
"""Kinds of devices that compute in float64; torch calls AMD's GPUs cuda, too."""


class Data(Generic[K]):
    """Checks tables and encodes labels. The defaults serve labels that are one number per row, or
    one of two classes.
    """

    fields: ClassVar[tuple[str, ...]] = ()
    """Which of "weights" and "offset" the loss uses. Tables with others are refused."""
    pieces: ClassVar[int] = 8
    """The default number of agents for data in one piece."""
    labels_alone: ClassVar[bool] = True
    """Whether labels can be encoded before the rows are split over agents: then data in one piece
    is checked before the split.
    """

    def on_device(self, split: str, tensors: bool) -> bool:
        """Whether rows that are tensors may stay on their device; `tensors`: whether the caller's
        method takes them.
        """
        return False

    def classification(self, problem: K) -> bool | None:
        """Whether labels are classes; None where a row may have several numbers as its label."""
        return None

    # -- refusals ----------------------------------------------------------------------------------

    def check_fields(self, table: Table, problem: K) -> None:
        """Refuse weights or offsets that the fit would ignore."""
        for field in table.row_values:
            if field not in self.fields:
                called = problem.kind.called
                raise party_error(
                    table.name, f"the data has {field}, but a {called} takes none. Leave it out."
                )

    def check_split(self, problem: K, split: str) -> None:
        """Refuse a split that this kind cannot be fitted to."""

    def check_labels(self, table: Table, problem: K) -> None:
        """Refuse labels that the problem cannot use. The table has been validated."""

    def agents(self, problem: K, data: Any, agents: Any) -> Any:
        """The `agents` of `solve`. A kind refuses a number of agents that would change the
        model.
        """
        return agents

    # -- preparation -------------------------------------------------------------------------------

    def classes(self, problem: K, found: ClassCounts) -> npt.NDArray[Any]:
        """The classes of all parties, sorted, where labels are classes."""
        return found.two()

    def encode(self, table: Table, problem: K, classes: Classes) -> Table:
        """One party's labels as numbers, once the classes of all parties are known."""
        if classes is None:
            return table
        return encoded_as_signs(table, classes)

    def codes(self, classes: npt.NDArray[Any]) -> FloatArray:
        """The numbers that stand for these classes in encoded labels."""
        return np.array([-1.0, 1.0])

    def made_up(self, problem: K, scores: FloatArray) -> FloatArray:
        """Invent labels for these scores, to try a problem out."""
        if self.classification(problem):
            return np.where(scores > 0, 1.0, -1.0)
        return scores


def on_the_host(tables: Sequence[Table]) -> list[Table]:
    """The tables without tensors: only some low-rank tasks compute with tensors on their device."""
    found = []
    for table in tables:
        if is_tensor(table.X):
            table = replace(table, X=host(table.X))
        found.append(table)
    return found


def can_stay(tables: Sequence[Table]) -> bool:
    """Whether all rows are tensors of one precision on devices that have float64, so that agents
    compute there.

    The devices may differ: messages come to the host, which adds them in the order of the agents.
    """
    precisions = {str(table.X.dtype) for table in tables}
    if len(precisions) != 1:
        return False
    return all(is_tensor(table.X) and table.X.device.type in DEVICES for table in tables)


def by_rows(table: Table) -> Table:
    """The table with dense rows contiguous in memory, as methods for samples read them; data frames
    are contiguous by columns.
    """
    X = table.X
    if not isinstance(X, np.ndarray) or X.flags.c_contiguous:
        return table
    return replace(table, X=np.ascontiguousarray(X))
