"""Data that is not here: rows of a frame in a cluster, and what is known of a table that stays
where it is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from typing import Any, TypeVar

import numpy as np

from coterie.data.preparation.prepared import Prepared
from coterie.data.preparation.recipes import Preparation
from coterie.data.read import read
from coterie.data.table import BESIDE, Table, party_error
from coterie.data.vectors import labels_of, matrix_of
from coterie.errors import InvalidData
from coterie.numerics.arrays import precision_of

T = TypeVar("T")

Source = Callable[[], Any]
"""Called where an agent lives, it gives that agent's data, in any form that `read` takes."""

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
    if _kept is None:
        return make()
    held = _kept.get(place)
    if held is None or held[0] != key:
        held = _kept[place] = key, make()
    found: T = held[1]
    return found


@dataclass(frozen=True)
class Rows:
    """Rows of a Spark DataFrame or a Ray Dataset; each agent takes a part of them, where they are.

    `columns` are those of X: names of numeric columns, or of one column of vectors; all others, if
    not given. `target` is the column of labels, or a list of them for several labels per row; they
    may be vectors, too.
    """

    frame: Any
    target: str | Sequence[str]
    columns: str | Sequence[str] | None = None
    weight: str | None = None
    offset: str | None = None
    prepare: Preparation | Prepared | None = None
    """If set, missing values and text are kept for it; `solve` sets it."""

    @property
    def beside(self) -> dict[str, str]:
        """The columns that stand beside the labels, by the field of a `Table`."""
        return {
            field: column
            for role, field in BESIDE.items()
            if (column := getattr(self, role, None)) is not None
        }


def table_of(batch: Any, rows: Rows, name: str = "data") -> Table:
    """An Arrow table of those rows as a `Table` of that name; columns of vectors are as `vectors`
    says.
    """
    if not batch.num_rows:
        return Table(X=np.empty((0, 0)), name=name)
    targets = listed(rows.target)
    with_labels = [*targets, *rows.beside.values()]
    if rows.columns is None:
        names = [column for column in batch.column_names if column not in with_labels]
    else:
        names = listed(rows.columns)
    for column in (*names, *with_labels):
        if column not in batch.column_names:
            known = ", ".join(batch.column_names)
            raise party_error(name, f"there is no column called {column!r} among {known}.")
    if rows.prepare is not None:
        return _raw(batch, rows, names, name)
    try:
        X, plain = matrix_of(batch.select(names))
        labels = [labels_of(batch.column(column), column) for column in targets]
    except InvalidData as error:
        raise party_error(name, str(error)) from None
    beside: dict[str, Any] = {
        field: batch.column(column).to_numpy() for field, column in rows.beside.items()
    }
    y = labels[0]
    if not isinstance(rows.target, str):
        y = np.column_stack(labels)
    return Table(X=X, y=y, columns=tuple(names) if plain else None, name=name, **beside)


def _raw(batch: Any, rows: Rows, columns: Sequence[str], name: str) -> Table:
    """The same for a preparation: with missing values and text."""
    if not isinstance(rows.target, str):
        raise party_error(
            name, "a preparation is for one label per row. Name one column as target."
        )
    roles: dict[str, Any] = {role: getattr(rows, role) for role in BESIDE}
    return read(
        batch, target=rows.target, columns=columns, name=name, prepare=rows.prepare, **roles
    )


def listed(names: str | Sequence[str]) -> list[str]:
    """One name or several, as a list."""
    return [names] if isinstance(names, str) else list(names)


class NotHere(RuntimeError):
    """Somebody asked this process for numbers that it does not have."""

    def __init__(self, asked: str):
        super().__init__(
            f"these numbers are not in this process, but where their agent lives ({asked} was "
            "asked for). Compute what "
            "needs them there: with Engine.ask, or in a conversation."
        )


class Elsewhere:
    """An array that is in another process: it has a shape and a precision, and no numbers.

    Whoever reads a number gets an error, because every number that could be given here would be
    invented.
    """

    def __init__(self, shape: Sequence[int], dtype: Any = float):
        self.shape, self.dtype = tuple(shape), np.dtype(dtype)

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of entries."""
        return math.prod(self.shape)

    def __len__(self) -> int:
        return self.shape[0]

    def __repr__(self) -> str:
        return f"Elsewhere({self.shape}, {self.dtype})"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise NotHere(name)

    def _refuse(self, *_: object, **__: object) -> Any:
        raise NotHere("a number")

    __array__ = __array_ufunc__ = __array_function__ = __iter__ = __getitem__ = __bool__ = (
        __contains__
    ) = _refuse
    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = __neg__ = __abs__ = _refuse
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = (
        _refuse
    )
    __matmul__ = __rmatmul__ = __pow__ = _refuse
    __hash__ = object.__hash__


@dataclass(frozen=True)
class NoSource:
    """What the form of a table has in place of the table. It travels as data, and is no
    function.
    """

    def __call__(self) -> Table:
        raise NotHere("a table")


@dataclass(frozen=True, eq=False, kw_only=True)
class RemoteTable(Table):
    """A table that lives elsewhere: names, shapes and precision are right, and numbers are
    `Elsewhere`.
    """

    fetch: Callable[[], Table]
    """Called where the data is, it gives the real table, checked and prepared."""
    key: str = ""
    """Under which it is kept where it is, if its digest is not known."""
    part: str = ""
    """What it is of the party's table: parts are kept next to the whole table."""
    known_digest: str = ""
    known_nonzeros: int = 0
    known_independence: float | None = None

    @staticmethod
    def of(table: Table, fetch: Callable[[], Table] = NoSource(), **known: Any) -> RemoteTable:
        """What stands for a table of that form; no number of that one is kept."""
        held = {
            field: _elsewhere(getattr(table, field)) for field in ("y", "ids", *BESIDE.values())
        }
        X = Elsewhere(table.X.shape, precision_of(table.X))
        return RemoteTable(**{**_fields_of(table), **held, "X": X}, fetch=fetch, **known)

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

    @property
    def nonzeros(self) -> int:
        """How many numbers the real table stores."""
        return self.known_nonzeros

    @property
    def independence(self) -> float | None:
        """How independent the columns of the real table are, if known."""
        return self.known_independence

    def digest(self) -> str:
        """The digest of the real table."""
        if not self.known_digest:
            raise NotHere("a digest")
        return self.known_digest


def _elsewhere(values: Any) -> Elsewhere | None:
    return None if values is None else Elsewhere(values.shape, values.dtype)


def _fields_of(table: Table) -> dict[str, Any]:
    return {field.name: getattr(table, field.name) for field in fields(Table)}
