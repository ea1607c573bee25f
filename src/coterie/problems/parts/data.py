"""`kind.data`: how tables are checked and encoded before the fit."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Generic

import numpy as np
import numpy.typing as npt

from coterie.data import Table, encode_labels, validated_all
from coterie.data.check import SHARES, are_shares
from coterie.data.table import party_error
from coterie.errors import InvalidData
from coterie.numerics.arrays import FloatArray, host, is_tensor
from coterie.problems.problem import K

Classes = npt.NDArray[Any] | None
"""The classes of all parties, sorted; None where labels are numbers."""
DEVICES = ("cpu", "cuda")
"""Kinds of devices that compute in float64; torch calls AMD's GPUs cuda, too."""


class Data(Generic[K]):
    """Checks tables and encodes labels. The defaults serve labels that are one number a row, or one of two classes."""

    fields: ClassVar[tuple[str, ...]] = ("weights",)
    """The fields of a `Table` that may accompany the labels."""
    pieces: ClassVar[int] = 8
    """The default number of agents for data in one piece."""
    labels_alone: ClassVar[bool] = True
    """Whether labels can be encoded before the rows are split over agents: then one piece is checked as one."""

    def on_device(self, split: str, tensors: bool) -> bool:
        """Whether rows that are tensors may stay on their device; `tensors`: whether the caller's method takes them."""
        return False

    def classification(self, problem: K) -> bool | None:
        """Whether labels are classes; None where a row may have several numbers as its label."""
        return None

    # -- refusals ----------------------------------------------------------------------------------------------------

    def check_fields(self, table: Table, problem: K) -> None:
        """Refuse weights or offsets that the fit would ignore."""
        for field in table.beside:
            if field not in self.fields:
                called = problem.kind.called
                raise party_error(table.name, f"the data has {field}, but a {called} takes none. Leave it out.")

    def check_split(self, problem: K, split: str) -> None:
        """Refuse a split that this kind cannot be fitted to."""

    def check_labels(self, table: Table, problem: K) -> None:
        """Refuse labels that the problem cannot use. The table has been validated."""

    def agents(self, problem: K, data: Any, agents: Any) -> Any:
        """The `agents` of `solve`. A kind refuses a number of agents that would change the model."""
        return agents

    # -- preparation -------------------------------------------------------------------------------------------------

    def prepare(self, tables: Sequence[Table], problem: K, split: str) -> tuple[list[Table], Classes]:
        """Check all tables, encode two classes as −1 and +1, and bring the tables to one precision."""
        self.check_split(problem, split)
        wanted = self.classification(problem)
        checked = validated_all(tables, split=split, classification=wanted)
        for table in checked:
            self.check_labels(table, problem)
        valid, classes = encode_labels(checked, bool(wanted))
        if split != "features":
            valid = [by_rows(table) for table in valid]
        return in_one_precision(valid), classes

    def classes(self, problem: K, labels: Collection[str | float]) -> Classes:
        """The classes of all parties, sorted; None where labels are numbers."""
        if not self.classification(problem):
            return None
        if len({isinstance(label, str) for label in labels}) > 1:
            raise InvalidData("the labels are text at one party and numbers at another. Convert them to one type.")
        return self._classes(problem, np.unique(np.array(list(labels))))

    def _classes(self, problem: K, found: npt.NDArray[Any]) -> npt.NDArray[Any]:
        if len(found) != 2:
            shown = ", ".join(map(repr, found[:10].tolist()))
            fix = f" {SHARES}" if are_shares(found) else ""
            raise InvalidData(f"the labels have {len(found)} classes ({shown}); a classification loss needs two.{fix}")
        return found

    def encode(self, table: Table, problem: K, classes: Classes) -> Table:
        """One party's labels as numbers, once the classes of all parties are known."""
        if classes is None or table.y is None:
            return table
        return replace(table, y=np.where(table.y == classes[1], 1.0, -1.0))

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
    return [replace(table, X=host(table.X)) if is_tensor(table.X) else table for table in tables]


def can_stay(tables: Sequence[Table]) -> bool:
    """Whether all rows are tensors of one precision on devices that have float64, so that agents compute on these.

    The devices may differ: messages come to the host, which adds them in the order of the agents.
    """
    precisions = {str(table.X.dtype) for table in tables}
    return len(precisions) == 1 and all(is_tensor(table.X) and table.X.device.type in DEVICES for table in tables)


def in_one_precision(tables: list[Table]) -> list[Table]:
    """X in float32 where all parties have it, else in float64: messages of both cannot be added."""
    if any(is_tensor(table.X) for table in tables):
        return tables
    finest = np.result_type(*(table.X.dtype for table in tables))
    return [table if table.X.dtype == finest else replace(table, X=table.X.astype(finest)) for table in tables]


def by_rows(table: Table) -> Table:
    """Dense rows one after the other in memory, as methods for samples read them; data frames come by columns."""
    X = table.X
    if not isinstance(X, np.ndarray) or X.flags.c_contiguous:
        return table
    return replace(table, X=np.ascontiguousarray(X))
