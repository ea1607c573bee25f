"""The summary of a party's table, which shows no row, and the checks of all summaries together.

The checks are the same for tables in this process, on a cluster, and at other organisations.
Organisations send only a digest of their column names.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any, TypeAlias

import msgspec
import numpy as np
import scipy.sparse as sp

from coterie.data.remote_table import AnyTable
from coterie.data.table import Table, party_error
from coterie.errors import InvalidData
from coterie.numerics.arrays import digest

SAME = "Give every party the same columns in the same order"
MOST_ROWS, MOST_COLUMNS = 2**53, 10**8
"""Largest counts that a summary may state: a party cannot make others allocate more."""
Outputs: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=10**6)]
Class: TypeAlias = Annotated[str, msgspec.Meta(max_length=1000)]


class TableSummary(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The description of a table that parties exchange before they compute."""

    name: str
    rows: Annotated[int, msgspec.Meta(ge=0, le=MOST_ROWS)]
    columns: Annotated[int, msgspec.Meta(ge=0, le=MOST_COLUMNS)]
    nonzeros: Annotated[int, msgspec.Meta(ge=0, le=MOST_ROWS)]
    single: bool
    """Whether its numbers are float32."""
    outputs: Annotated[list[Outputs], msgspec.Meta(max_length=3)] | None
    """The shape of one row's label; None without labels."""
    classes: list[Class | float] = []
    """The distinct labels, if they are classes."""
    header: Annotated[str, msgspec.Meta(max_length=64)] = ""
    """The digest of the column names."""
    names: tuple[str, ...] | None = None
    """The column names, if they may be known."""
    open_ended: bool = False
    """Whether columns after the last may have been left out, see `Table`."""
    independence: float | None = None
    """How independent its columns are (see `Table`), if that may be known."""
    row_values: Annotated[tuple[Class, ...], msgspec.Meta(max_length=16)] = msgspec.field(
        default=(), name="beside"
    )
    """The fields of the `Table` that belong to the labels, without weights, which concern only
    their party.
    """
    roles: tuple[str, ...] | None = None
    """The columns of labels, weights and so on in a file or a data frame, if names may be known."""
    has_ids: bool = False
    """Whether its rows have ids, if names may be known."""

    def column_name(self, j: int) -> str:
        """The name of column j in errors, as `Table.column_name` gives it."""
        if self.names is None:
            return f"column {j}"
        return f"column {self.names[j]!r}"

    @staticmethod
    def of(
        table: AnyTable,
        *,
        classification: bool = False,
        names: bool = True,
        independence: bool = False,
    ) -> TableSummary:
        """The summary of a table; without `names`, only the digest of its column names.

        `independence` asks for the independence of its columns, which takes some microseconds.
        """
        header = ""
        if not names and table.columns is not None:
            header = digest(json.dumps(table.columns))
        classes: list[Class | float] = []
        if classification and isinstance(table, Table) and table.y is not None:
            classes = np.unique(table.y).tolist()
        outputs = None
        if table.outputs is not None:
            outputs = list(table.outputs)
        optional: dict[str, Any] = {}
        if names:
            optional |= {"names": table.columns, "roles": table.roles}
        if independence:
            optional["independence"] = table.independence
        return TableSummary(
            name=table.name,
            rows=table.n,
            columns=table.d,
            nonzeros=table.nonzeros,
            single=table.precision == np.float32,
            outputs=outputs,
            classes=classes,
            header=header,
            open_ended=table.open_ended,
            row_values=tuple(field for field in table.row_values if field != "weights"),
            has_ids=names and table.has_ids,
            **optional,
        )


def check_together(parties: Sequence[TableSummary], split: str, *, labels: bool = True) -> None:
    """Refuse tables that do not fit together for this split and, with `labels`, tables without the
    labels it needs.
    """
    missing = None
    if not any(party.rows for party in parties):
        missing = "rows"
    elif not any(party.columns for party in parties):
        missing = "columns"
    if missing is not None:
        names = ", ".join(repr(party.name) for party in parties)
        raise InvalidData(f"no party has any {missing} ({names}). Give at least one party data.")
    if split == "features":
        _check_features(parties)
    else:
        _check_samples(parties, labels)


def common_shape(parties: Sequence[TableSummary]) -> tuple[int, int]:
    """The largest number of rows, and of columns, of a party."""
    return max(party.rows for party in parties), max(party.columns for party in parties)


def in_common_shape(table: Table, shape: tuple[int, int], split: str) -> Table:
    """Give a table the shape of the others: an empty one their rows or columns, an open-ended one
    their last columns.
    """
    rows, columns = shape
    if not table.n and not table.d:
        empty = (0, columns)
        if split == "features":
            empty = (rows, 0)
        table = Table(X=np.empty(empty, table.X.dtype), name=table.name)
    if split == "features":
        return table
    if table.open_ended and table.d < columns:
        X = table.X
        table = replace(
            table, X=sp.csr_array((X.data, X.indices, X.indptr), shape=(table.n, columns))
        )
    if table.y is not None or table.n:
        return table
    return replace(table, y=np.empty(0))


def refuse_unequal_rows(names: Sequence[str], rows: Sequence[int]) -> None:
    """Refuse parties with different numbers of rows, for a split by features."""
    for name, count in zip(names, rows, strict=True):
        if count != rows[0]:
            fix = (
                "Match the rows by id (align(tables), or id in a study), or give every party the "
                "same rows."
            )
            raise party_error(name, f"has {count} rows but party {names[0]!r} has {rows[0]}. {fix}")


def _check_features(parties: Sequence[TableSummary]) -> None:
    parties = [party for party in parties if party.rows or party.columns]
    refuse_unequal_rows([party.name for party in parties], [party.rows for party in parties])
    holders = [party.name for party in parties if party.outputs is not None]
    if len(holders) != 1:
        if holders:
            count = f"at {len(holders)} parties: {', '.join(holders)}"
            fix = "Leave them out elsewhere."
        else:
            count = "at no party"
            fix = "Give it (X, y), or name the label column with target=."
        raise InvalidData(
            f"labels {count}. Split by features, exactly one party has the labels (and weights "
            f"and offsets). {fix}"
        )


def _check_samples(parties: Sequence[TableSummary], labels: bool) -> None:
    full = [party for party in parties if party.rows or party.columns]
    first = next((party for party in full if party.names is not None or party.header), full[0])
    for party in full:
        _refuse_other_names(first, party)
    _check_widths(full)
    with_rows = [party for party in full if party.rows]
    unlabelled = [
        f"party {party.name!r} ({party.rows} rows)" for party in with_rows if party.outputs is None
    ]
    if unlabelled and labels:
        raise InvalidData(
            f"there are no labels at {', '.join(unlabelled)}. Split by samples, every party "
            "labels its own rows: give (X, y), or name the label column with target=."
        )
    labelled = [party for party in with_rows if party.outputs is not None]
    for party in labelled:
        _check_same_labels(party, labelled[0])


def _check_widths(full: Sequence[TableSummary]) -> None:
    """Refuse tables of different widths.

    An svmlight file may be narrower: it ends with the last column with an entry.
    """
    widest = max(full, key=lambda party: party.columns)
    for short in full:
        if short.columns < widest.columns and not short.open_ended:
            one, other = sorted((short, widest), key=full.index)
            raise party_error(
                other.name,
                f"has {other.columns} columns but party {one.name!r} has {one.columns}. {SAME}.",
            )


def _check_same_labels(party: TableSummary, first: TableSummary) -> None:
    """Refuse labels with another number of columns, or other fields (such as an offset), than the
    first party has.
    """
    local = math.prod(party.outputs or [])
    there = math.prod(first.outputs or [])
    if local != there:
        raise party_error(
            party.name,
            f"the labels have {local} columns but those of party {first.name!r} have {there}. "
            "Give all the same ones.",
        )
    for field in {*party.row_values} ^ {*first.row_values}:
        with_it, without = first, party
        if field in party.row_values:
            with_it, without = party, first
        raise party_error(
            without.name,
            f"has no {field}, but party {with_it.name!r} has. Give all parties one, or none.",
        )


def _refuse_other_names(first: TableSummary, other: TableSummary) -> None:
    known = first.names
    found = other.names
    if first.header and other.header and first.header != other.header:
        raise party_error(
            other.name,
            f"has other columns than party {first.name!r}, or in another order ({other.columns} "
            f"here and {first.columns} there). {SAME}, with columns.",
        )
    if known is None or found is None or known == found:
        return
    if sorted(known) == sorted(found):
        j = 0
        while known[j] == found[j]:
            j += 1
        raise party_error(
            other.name,
            f"has the {len(known)} columns of party {first.name!r} in a different order (first, "
            f"column {j} is {found[j]!r} here and {known[j]!r} there). {SAME}: read them with "
            "columns=[...].",
        )
    differences = [_only_at(first.name, known, found), _only_at(other.name, found, known)]
    only = "; ".join(filter(None, differences)) or "some names repeat"
    raise party_error(other.name, f"has other columns than party {first.name!r} ({only}). {SAME}.")


def _only_at(party: str, names: Sequence[str], elsewhere: Sequence[str]) -> str:
    alone = [name for name in names if name not in elsewhere]
    if not alone:
        return ""
    return f"{len(alone)} only at party {party!r}, e.g. {alone[0]!r}"
