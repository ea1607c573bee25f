"""Tables at workers: the form that a driver has of each, and the tables that a worker keeps."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np

from coterie.data.table import Indices, Table

T = TypeVar("T")
DOUBLE: np.dtype[Any] = np.dtype(float)

_kept: dict[Hashable, Any] | None = None


@contextmanager
def keeping() -> Iterator[None]:
    """Let this process, a worker of a cluster, keep for the next question what it has read."""
    global _kept
    _kept = {}
    try:
        yield
    finally:
        _kept = None


def keep(place: Hashable, key: Hashable, make: Callable[[], T]) -> T:
    """What was made of that key the last time; of another key it takes the place. Elsewhere nothing
    is kept.
    """
    kept = _kept  # another thread may forget it while the data is read
    if kept is None:
        return make()
    held = kept.get(place)
    if held is None or held[0] != key:
        held = kept[place] = key, make()
    found: T = held[1]
    return found


class NotLocal(RuntimeError):
    """Code asked this process for something of a table that is at a worker."""

    def __init__(self, asked: str):
        super().__init__(
            f"this process does not have {asked}: the table is where its agent lives. Compute what "
            "needs it there: with Engine.ask, or in a conversation."
        )


@dataclass(frozen=True)
class NoSource:
    """The source in the form of a table, which travels without the table."""

    def __call__(self) -> Table:
        raise NotLocal("a table")


@dataclass(frozen=True, eq=False, kw_only=True)
class RemoteTable:
    """The form of a table that is at a worker: names, shape and precision, and no number of it.

    It is no `Table`: code that reads numbers takes a `Table`, and `with_data` reads it where the
    agent lives.
    """

    name: str
    fetch: Callable[[], Table]
    """Called where the data is, it gives the real table, checked and prepared."""
    n: int = 0
    """The number of rows; 0 until the table is read."""
    d: int = 0
    """The number of columns; 0 until the table is read."""
    precision: np.dtype[Any] = DOUBLE
    """The precision of X."""
    outputs: tuple[int, ...] | None = None
    """The shape of one row's label; None without labels."""
    row_values: tuple[str, ...] = ()
    """The fields of the `Table` that belong to the labels."""
    has_ids: bool = False
    """Whether its rows have ids."""
    columns: tuple[str, ...] | None = None
    """Column names."""
    rows: Indices | None = None
    """Pooled row numbers, after a split by samples or users."""
    cols: Indices | None = None
    """Pooled column numbers, after a split by features."""
    open_ended: bool = False
    """Whether columns after the last may have been left out, see `Table`."""
    roles: tuple[str, ...] | None = None
    """The columns of labels, weights and so on in a file or a data frame, see `Table`."""
    notes: tuple[str, ...] | None = None
    """Warnings for its owner."""
    key: str = ""
    """The key under which a worker keeps the table, if its digest is not known."""
    part: str = ""
    """The name of this part of the party's table: parts are kept next to the whole table."""
    known_digest: str = ""
    nonzeros: int = 0
    """The number of stored entries, if known."""
    independence: float | None = None
    """How independent its columns are (see `Table`), if known."""

    @staticmethod
    def of(table: Table, fetch: Callable[[], Table] = NoSource(), **known: Any) -> RemoteTable:
        """The form of that table."""
        return RemoteTable(
            name=table.name,
            fetch=fetch,
            n=table.n,
            d=table.d,
            precision=table.precision,
            outputs=table.outputs,
            row_values=tuple(table.row_values),
            has_ids=table.has_ids,
            columns=table.columns,
            rows=table.rows,
            cols=table.cols,
            open_ended=table.open_ended,
            roles=table.roles,
            notes=table.notes,
            **known,
        )

    def read(self, place: Hashable) -> Table:
        """The real table, where it is: the one that was kept at that place, if it is still
        there.
        """
        key = self.key or self.known_digest
        if not key:
            return self.fetch()
        if self.part:
            place = place, self.part
        return keep(place, key, self.fetch)

    def seen_as(self, form: RemoteTable) -> RemoteTable:
        """This table with the form that was found where it is."""
        return replace(
            form,
            fetch=self.fetch,
            key=self.key,
            part=self.part,
            known_digest=self.known_digest,
            nonzeros=self.nonzeros,
            independence=self.independence,
        )

    def digest(self) -> str:
        """The digest of the real table."""
        if not self.known_digest:
            raise NotLocal("a digest")
        return self.known_digest


AnyTable = Table | RemoteTable
"""A table that may be at a worker: code may read what both classes have, and no number."""
