"""Read data of any form, and split, check and encode it: one table per agent."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from coterie.data import Table, read, validated
from coterie.data import split as split_table
from coterie.data.check import (
    ClassCounts,
    Counted,
    checked_together,
    counted_labels,
    with_distinct_names,
)
from coterie.data.digests import begin_to_compile
from coterie.data.keys import all_noted, warn_caller
from coterie.data.pairing import paired
from coterie.data.places import naming_lines
from coterie.data.preparation.prepared import Prepared
from coterie.data.preparation.recipes import Preparation
from coterie.data.read import read_party, values_of
from coterie.data.remote import Rows
from coterie.data.summary import TableSummary, common_shape, in_common_shape
from coterie.errors import InvalidData, InvalidProblem, UnknownName
from coterie.numerics.arrays import is_tensor
from coterie.problems.parts.data import Classes, Data, by_rows, can_stay, on_the_host
from coterie.problems.problem import AnyProblem

SPLITS = ("samples", "features", "users")


def gather(
    data: Any,
    split: str,
    agents: int | Sequence[Any] | None,
    seed: int = 0,
    pieces: int = Data.pieces,
    prepare: Preparation | Prepared | None = None,
    same_order: bool = False,
    warn: bool = True,
) -> list[Table]:
    """Read one table per agent. Data in one piece is split into `agents` parts, by default
    `pieces`.

    With a preparation, tables keep missing values and text. `same_order` is that of `solve`.
    `warn`: whether to warn of columns that look like keys.
    """
    if split not in SPLITS:
        raise UnknownName("split", split, SPLITS)
    if not isinstance(data, list):
        whole, parts = in_one_piece(data, split, agents, pieces, prepare)
        if warn:
            (whole,) = looked_at([whole], split)
        return split_table(whole, split, parts, seed=seed)
    if agents is not None and (isinstance(agents, bool) or agents != len(data)):
        raise InvalidData(
            f"the data comes from {len(data)} parties, so agents={agents!r} does not apply; "
            "leave it out."
        )
    tables = _read_parties(data, split, prepare)
    if split == "users":
        _refuse_two_entries_of_one(tables)
    if split == "features":
        tables = paired(tables, same_order)
    return looked_at(tables, split) if warn else tables


def _read_parties(
    data: Sequence[Any], split: str, prepare: Preparation | Prepared | None
) -> list[Table]:
    """The table of each party, whose data may be a function that returns it."""
    given = [part() if callable(part) else part for part in data]
    by_columns = split == "features"
    return [
        read_party(part, index, prepare=prepare, by_columns=by_columns)
        for index, part in enumerate(given)
    ]


def looked_at(tables: Sequence[Table], split: str) -> list[Table]:
    """The tables with their notes; warns of the notes that are new."""
    found = all_noted(tables, split)
    fresh = [table for before, table in zip(tables, found, strict=True) if before.notes is None]
    warn_caller(note for table in fresh for note in table.notes or ())
    return found


def attach_offset(
    data: Any, offset: Any, split: str, prepare: Preparation | Prepared | None = None
) -> Any:
    """The data with these offsets: one number per row; for a list of parties, a list with the
    offsets of each.
    """
    if offset is None:
        return data
    if split == "users":
        raise InvalidProblem("a model per user takes no offset. Leave offset out.")
    if not isinstance(data, list):
        return _with_offset(data, offset, None, prepare)
    if not isinstance(offset, list) or len(offset) != len(data):
        raise InvalidData(
            f"the data comes from {len(data)} parties: give offset as a list of {len(data)}, one "
            "array for each; None "
            "for a party without labels."
        )
    return [
        part if own is None else _with_offset(part, own, f"party {index}", prepare)
        for index, (part, own) in enumerate(zip(data, offset, strict=True))
    ]


def _with_offset(
    data: Any, offset: Any, name: str | None, prepare: Preparation | Prepared | None
) -> Table:
    if callable(data) or isinstance(data, Rows):
        raise InvalidData(
            "this data is read elsewhere: name the offset there, with read(..., offset=) or "
            "Rows(offset=)."
        )
    if isinstance(data, Table | str | Path):
        name = None
    table = read(data, name=name, prepare=prepare)
    if table.offset is not None:
        raise InvalidData(
            f"party {table.name!r}: the offset is in the data and in offset=. Give one."
        )
    return replace(table, offset=values_of(offset, table.name, "offset"))


def in_one_piece(
    data: Any,
    split: str,
    agents: int | Sequence[Any] | None,
    pieces: int,
    prepare: Preparation | Prepared | None = None,
) -> tuple[Table, Any]:
    """The table of all parties together, and the number, sizes, rows or columns of the parts."""
    if split == "users" and isinstance(data, tuple) and len(data) == 3:
        return read(data[:2]), data[2]
    if isinstance(data, tuple) and data and all(isinstance(part, tuple | Table) for part in data):
        raise InvalidData(
            "a tuple is one party's (X, y); give several parties as a list: [(X1, y1), (X2, y2)]."
        )
    if isinstance(data, Rows):
        raise InvalidData(
            f"Rows of a {type(data.frame).__name__} are in a cluster, but this function reads "
            "data in its own process: "
            "use engine='spark' or engine='ray', or give arrays."
        )
    if data is None or isinstance(data, dict | Iterator):
        raise InvalidData(
            f"data is (X, y), a Table, or a list of those, not {type(data).__name__}; read files "
            "with co.read."
        )
    parts = pieces if agents is None else agents
    return read(data, prepare=prepare, by_columns=split == "features"), parts


def split_and_prepare(
    data: Any,
    problem: AnyProblem,
    split: str,
    agents: int | Sequence[Any] | None,
    seed: int = 0,
    tensors: bool = False,
    same_order: bool = False,
) -> tuple[list[Table], Classes]:
    """The tables of `gather`, prepared. Data in one piece is checked in one piece, and then
    split.
    """
    family = problem.kind
    if isinstance(data, list) or split not in SPLITS or not family.data.labels_alone:
        tables = gather(data, split, agents, seed, family.data.pieces, same_order=same_order)
        return prepare_tables(tables, problem, split, tensors)
    whole, parts = in_one_piece(data, split, agents, family.data.pieces)
    whole = looked_at([whole], split)[0]
    valid, classes = prepare_tables([whole], problem, split, tensors)
    return split_table(valid[0], split, parts, seed=seed), classes


def count_rows(tables: Sequence[Table], split: str) -> int:
    """The number of rows of all parties together; split by features, all have the same rows."""
    if split == "features":
        return tables[0].n
    return sum(table.n for table in tables)


def _refuse_two_entries_of_one(tables: Sequence[Table]) -> None:
    times = Counter(table.name for table in tables if table.name != "data")
    for name, count in times.items():
        if count > 1:
            raise InvalidData(
                f"user {str(name)!r} has {count} entries in the list. Give each user one, with all "
                "its rows."
            )


def prepare_tables(
    tables: Sequence[Table], problem: AnyProblem, split: str, tensors: bool = False
) -> tuple[list[Table], Classes]:
    """Check the tables alone and together; return them with labels as numbers and in one precision,
    and the classes.

    Tensors stay on their device for low-rank models, and with `tensors` for linear ones.
    """
    if split not in SPLITS:
        raise UnknownName("split", split, SPLITS)
    if not tables:
        raise InvalidData("there are no parties. Give at least one.")
    problem.kind.data.check_split(problem, split)
    stay = problem.kind.data.on_device(split, tensors) and can_stay(tables)
    checked = [checked_alone(table, problem, stay) for table in with_distinct_names(tables)]
    cards = checked_together(checked, split)
    classes = classes_of(
        problem, [card.name for card in cards], partial(map, counted_labels, checked)
    )
    return [encoded(problem, classes, cards, split, table) for table in checked], classes


def checked_alone(table: Table, problem: AnyProblem, stay: bool = False) -> Table:
    """One party's table, checked before any message; with `stay`, tensors stay on their device."""
    kind = problem.kind
    kind.data.check_fields(table, problem)
    if not stay:
        table = on_the_host([table])[0]
    begin_to_compile(table.X)
    with naming_lines(table):
        table = validated(table, classification=kind.data.classification(problem))
        kind.data.check_labels(table, problem)
    return table


def classes_of(
    problem: AnyProblem, names: Sequence[str], labels: Callable[[], Iterable[Counted]]
) -> Classes:
    """The classes of all parties together, from the different `labels` of each party; None if
    labels are no classes.
    """
    if not problem.kind.data.classification(problem):
        return None
    return problem.kind.data.classes(problem, ClassCounts.of(names, list(labels())))


def encoded(
    problem: AnyProblem, classes: Classes, cards: Sequence[TableSummary], split: str, table: Table
) -> Table:
    """One party's table for its agent: labels as numbers, in the common shape and precision of all
    parties.
    """
    table = in_common_shape(table, common_shape(cards), split)
    table = problem.kind.data.encode(table, problem, classes)
    if is_tensor(table.X):
        return table
    single = all(card.single for card in cards)
    precision = np.float32 if single else np.float64
    if table.X.dtype != precision:
        table = replace(table, X=table.X.astype(precision))
    if split == "features":
        return table
    return by_rows(table)
