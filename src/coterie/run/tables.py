"""From data in any form to one prepared table per agent."""

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
from coterie.data.check import ClassCounts, Counted, checked_together, counted_labels, told_apart
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
    """One table per agent: read what is given, and split it, into so many by default, if it is in
    one piece.

    With a preparation, missing values and text are kept for it. `same_order` is that of `solve`.
    `warn`: whether to warn of columns that look like keys.
    """
    if split not in SPLITS:
        raise UnknownName("split", split, SPLITS)
    if isinstance(data, list):
        if agents is not None and (isinstance(agents, bool) or agents != len(data)):
            raise InvalidData(
                f"the data comes from {len(data)} parties, so agents={agents!r} does not apply; "
                "leave it out."
            )
        how: dict[str, Any] = {"prepare": prepare, "by_columns": split == "features"}
        given = [part() if callable(part) else part for part in data]
        tables = [read_party(part, index, **how) for index, part in enumerate(given)]
        if split == "users":
            _refuse_two_entries_of_one(tables)
        if split == "features":
            tables = paired(tables, same_order)
        return looked_at(tables, split) if warn else tables
    whole, parts = in_one_piece(data, split, agents, pieces, prepare)
    whole = looked_at([whole], split)[0] if warn else whole
    return split_table(whole, split, parts, seed=seed)


def looked_at(tables: Sequence[Table], split: str) -> list[Table]:
    """The tables with their notes; warns of those that are new."""
    found = all_noted(tables, split)
    fresh = [table for before, table in zip(tables, found, strict=True) if before.notes is None]
    warn_caller(note for table in fresh for note in table.notes or ())
    return found


def attach_offset(
    data: Any, offset: Any, split: str, prepare: Preparation | Prepared | None = None
) -> Any:
    """The data with these offsets: one number per row, or for a list of parties a list with each
    party's.
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
    table = read(data, name=None if isinstance(data, Table | str | Path) else name, prepare=prepare)
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
    """The whole, and who has what of it."""
    if split == "users" and isinstance(data, tuple) and len(data) == 3:
        return read(data[:2]), data[2]
    if isinstance(data, tuple) and data and all(isinstance(part, tuple | Table) for part in data):
        raise InvalidData(
            "a tuple is one party's (X, y); give several parties as a list: [(X1, y1), (X2, y2)]."
        )
    if isinstance(data, Rows):
        raise InvalidData(
            f"Rows of a {type(data.frame).__name__} lie in a cluster, and this reads data here: "
            "use engine='spark' or "
            "engine='ray', or give arrays."
        )
    if data is None or isinstance(data, dict | Iterator):
        raise InvalidData(
            f"data is (X, y), a Table, or a list of those, not {type(data).__name__}; read files "
            "with co.read."
        )
    return read(
        data, prepare=prepare, by_columns=split == "features"
    ), pieces if agents is None else agents


def split_and_prepare(
    data: Any,
    problem: AnyProblem,
    split: str,
    agents: int | Sequence[Any] | None,
    seed: int = 0,
    tensors: bool = False,
    same_order: bool = False,
) -> tuple[list[Table], Classes]:
    """What `gather` gives, prepared: data in one piece is checked in one piece, and then split."""
    family = problem.kind
    if isinstance(data, list) or split not in SPLITS or not family.data.labels_alone:
        tables = gather(data, split, agents, seed, family.data.pieces, same_order=same_order)
        return prepare_tables(tables, problem, split, tensors)
    whole, parts = in_one_piece(data, split, agents, family.data.pieces)
    whole = looked_at([whole], split)[0]
    valid, classes = prepare_tables([whole], problem, split, tensors)
    return split_table(valid[0], split, parts, seed=seed), classes


def count_rows(tables: Sequence[Table], split: str) -> int:
    """The rows of all parties together; split by features, all have the same."""
    return tables[0].n if split == "features" else sum(table.n for table in tables)


def _refuse_two_entries_of_one(tables: Sequence[Table]) -> None:
    times = Counter(table.name for table in tables if table.name != "data")
    if twice := [name for name, count in times.items() if count > 1]:
        raise InvalidData(
            f"user {str(twice[0])!r} has {times[twice[0]]} entries in the list. Give each user "
            "one, with all its rows."
        )


def prepare_tables(
    tables: Sequence[Table], problem: AnyProblem, split: str, tensors: bool = False
) -> tuple[list[Table], Classes]:
    """The tables checked alone and together, with labels as numbers, in one precision; and the
    classes.

    Tensors stay where they are for low-rank models, and for linear ones if the caller says so.
    """
    if split not in SPLITS:
        raise UnknownName("split", split, SPLITS)
    if not tables:
        raise InvalidData("there are no parties. Give at least one.")
    problem.kind.data.check_split(problem, split)
    stay = problem.kind.data.on_device(split, tensors) and can_stay(tables)
    checked = [checked_alone(table, problem, stay) for table in told_apart(tables)]
    cards = checked_together(checked, split)
    classes = classes_of(
        problem, [card.name for card in cards], partial(map, counted_labels, checked)
    )
    return [encoded(problem, classes, cards, split, table) for table in checked], classes


def checked_alone(table: Table, problem: AnyProblem, stay: bool = False) -> Table:
    """One party's table, checked before it meets the others; rows that are tensors may `stay` where
    they are.
    """
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
    """The classes of all parties together, where labels are classes, from the different `labels` of
    each party.
    """
    if not problem.kind.data.classification(problem):
        return None
    return problem.kind.data.classes(problem, ClassCounts.of(names, list(labels())))


def encoded(
    problem: AnyProblem, classes: Classes, cards: Sequence[TableSummary], split: str, table: Table
) -> Table:
    """One party's table as an agent takes it: labels as numbers, in the shape and the precision of
    all parties.
    """
    table = problem.kind.data.encode(
        in_common_shape(table, common_shape(cards), split), problem, classes
    )
    if is_tensor(table.X):
        return table
    finest = np.float32 if all(card.single for card in cards) else np.float64
    if table.X.dtype != finest:
        table = replace(table, X=table.X.astype(finest))
    return table if split == "features" else by_rows(table)
