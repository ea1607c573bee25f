"""What can be said of a party's table without showing a row, and the checks that it takes for all parties together.

They are the same for tables that are here, on a cluster, and at other organisations; between those, the names of the
columns stay at home, and only their digest travels.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import replace

import msgspec
import numpy as np
import scipy.sparse as sp

from coterie.arrays import digest, precision_of
from coterie.data.table import Table, party_error
from coterie.errors import InvalidData

SAME = "Give every party the same columns in the same order"


class TableSummary(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the parties tell each other of their tables before anything is computed."""

    name: str
    rows: int
    columns: int
    nonzeros: int
    single: bool
    """Whether it is float32."""
    outputs: list[int] | None
    """The shape of one row's label; None: there are no labels."""
    classes: list[str | float] = []
    """The different labels, where they are classes."""
    header: str = ""
    """The digest of the column names."""
    names: tuple[str, ...] | None = None
    """The column names, where they may be known."""
    open_ended: bool = False
    """Whether columns after the last may have been left out, see `Table`."""
    independence: float | None = None
    """How independent its columns are, see `Table`, where that may be known."""
    beside: tuple[str, ...] = ()
    """What stands beside the labels: fields of a `Table`, weights excepted, which concern nobody else."""
    roles: tuple[str, ...] | None = None
    """For a file or a data frame, the columns of labels and so on, where names may be known, ..."""
    has_ids: bool = False
    """... and whether it has ids of its rows."""

    @staticmethod
    def of(
        table: Table, *, classification: bool = False, names: bool = True, independence: bool = False
    ) -> TableSummary:
        """The summary of a table; without `names`, of its column names only the digest.

        How independent its columns are is looked at only if that is asked for: it takes some microseconds.
        """
        y = table.y
        return TableSummary(
            name=table.name,
            rows=table.n,
            columns=table.d,
            nonzeros=table.nonzeros,
            single=precision_of(table.X) == np.float32,
            outputs=None if y is None else list(y.shape[1:]),
            classes=np.unique(y).tolist() if y is not None and classification else [],
            header="" if names or table.columns is None else digest(json.dumps(table.columns)),
            names=table.columns if names else None,
            open_ended=table.open_ended,
            independence=table.independence if independence else None,
            beside=tuple(field for field in table.beside if field != "weights"),
            roles=table.roles if names else None,
            has_ids=names and table.ids is not None,
        )


def check_together(parties: Sequence[TableSummary], split: str, *, labels: bool = True) -> None:
    """Refuse tables that do not fit together for data that is split in that way; `labels`: and have to have some."""
    if not any(party.rows for party in parties) or not any(party.columns for party in parties):
        what = "columns" if any(party.rows for party in parties) else "rows"
        names = ", ".join(repr(party.name) for party in parties)
        raise InvalidData(f"no party has any {what} ({names}). Give at least one party data.")
    if split == "features":
        _check_features(parties)
    else:
        _check_samples(parties, labels)


def common_shape(parties: Sequence[TableSummary]) -> tuple[int, int]:
    """The most rows, and the most columns, that any of them has."""
    return max(party.rows for party in parties), max(party.columns for party in parties)


def in_common_shape(table: Table, shape: tuple[int, int], split: str) -> Table:
    """The table as it stands among the others: an empty one gets their shape, an open-ended one its last columns."""
    rows, columns = shape
    if not table.n and not table.d:
        empty = (rows, 0) if split == "features" else (0, columns)
        table = Table(X=np.empty(empty, table.X.dtype), name=table.name)
    if split == "features":
        return table
    if table.open_ended and table.d < columns:
        X = table.X
        table = replace(table, X=sp.csr_array((X.data, X.indices, X.indptr), shape=(table.n, columns)))
    return table if table.y is not None or table.n else replace(table, y=np.empty(0))


def refuse_unequal_rows(names: Sequence[str], rows: Sequence[int]) -> None:
    """Split by features, all parties have the same rows."""
    for name, count in zip(names, rows, strict=True):
        if count != rows[0]:
            fix = "Match the rows by id (align(tables), or id in a study), or give every party the same rows."
            raise party_error(name, f"has {count} rows but party {names[0]!r} has {rows[0]}. {fix}")


def _check_features(parties: Sequence[TableSummary]) -> None:
    parties = [party for party in parties if party.rows or party.columns]
    refuse_unequal_rows([party.name for party in parties], [party.rows for party in parties])
    holders = [party.name for party in parties if party.outputs is not None]
    if len(holders) != 1:
        count = f"at {len(holders)} parties: {', '.join(holders)}" if holders else "at no party"
        fix = "Leave them out elsewhere." if holders else "Give it (X, y), or name the label column with target=."
        raise InvalidData(
            f"labels {count}. Split by features, exactly one party has the labels (and weights and offsets). {fix}"
        )


def _check_samples(parties: Sequence[TableSummary], labels: bool) -> None:
    full = [party for party in parties if party.rows or party.columns]
    first = next((party for party in full if party.names is not None or party.header), full[0])
    for party in full:
        _refuse_other_names(first, party)
    widest = max(full, key=lambda party: party.columns)
    # An svmlight file ends with the last column that has an entry; all others must be as wide as the widest.
    short = next((party for party in full if party.columns < widest.columns and not party.open_ended), None)
    if short is not None:
        one, other = sorted((short, widest), key=full.index)
        raise party_error(other.name, f"has {other.columns} columns but party {one.name!r} has {one.columns}. {SAME}.")
    unlabelled = [f"party {party.name!r} ({party.rows} rows)" for party in full if party.rows and party.outputs is None]
    if unlabelled and labels:
        raise InvalidData(
            f"there are no labels at {', '.join(unlabelled)}. Split by samples, every party labels its own rows: give "
            "(X, y), or name the label column with target=."
        )
    labelled = [party for party in full if party.outputs is not None and party.rows]
    for party in labelled:
        here, there = (math.prod(one.outputs or []) for one in (party, labelled[0]))
        if here != there:
            raise party_error(
                party.name,
                f"the labels have {here} columns but those of party {labelled[0].name!r} have {there}. Give all "
                "the same ones.",
            )
        for field in {*party.beside} ^ {*labelled[0].beside}:
            with_it, without = (party, labelled[0]) if field in party.beside else (labelled[0], party)
            raise party_error(
                without.name, f"has no {field}, but party {with_it.name!r} has. Give all parties one, or none."
            )


def _refuse_other_names(first: TableSummary, other: TableSummary) -> None:
    known, found = first.names, other.names
    if first.header and other.header and first.header != other.header:
        raise party_error(
            other.name,
            f"has other columns than party {first.name!r}, or in another order ({other.columns} here and "
            f"{first.columns} there). {SAME}, with columns.",
        )
    if known is None or found is None or known == found:
        return
    if sorted(known) == sorted(found):
        j = next(j for j in range(len(known)) if known[j] != found[j])
        raise party_error(
            other.name,
            f"has the {len(known)} columns of party {first.name!r} in a different order (first, column {j} is "
            f"{found[j]!r} here and {known[j]!r} there). {SAME}: read them with columns=[...].",
        )
    alone = {first.name: [c for c in known if c not in found], other.name: [c for c in found if c not in known]}
    only = "; ".join(
        f"{len(names)} only at party {party!r}, e.g. {names[0]!r}" for party, names in alone.items() if names
    )
    raise party_error(
        other.name, f"has other columns than party {first.name!r} ({only or 'some names repeat'}). {SAME}."
    )
