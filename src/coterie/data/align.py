"""The same people in the same order at every party: an inner join by row id.

    common = ids₁ ∩ ids₂ ∩ …, sorted        order digest = SHA-256 of common, with its type

Parties that computed the same order digest hold the same rows in the same order; the digest is all
they need to tell each other to be sure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from coterie.data.table import Indices, Table, party_error
from coterie.data.values import is_text, plain_ids
from coterie.errors import InvalidData, UnknownName
from coterie.numerics.arrays import digest


def align(
    tables: Sequence[Table], *, duplicates: Literal["error", "first"] = "error"
) -> tuple[list[Table], str]:
    """The rows whose id occurs at every party, sorted by id, and the digest of that order.

    `duplicates` says what to do with an id that occurs twice at one party: refuse it, or keep its
    first row.
    """
    if duplicates not in ("error", "first"):
        raise UnknownName("policy for duplicates", duplicates, ("error", "first"))
    if not tables:
        raise InvalidData("there are no parties to align. Give at least one.")
    tables = [replace(table, ids=_ids(table)) for table in tables]
    refuse_mixed_ids([table.name for table in tables], [table.ids for table in tables])
    keys = [_unique(table, duplicates) for table in tables]
    common = reduce(
        lambda a, b: np.intersect1d(a, b, assume_unique=True), (key.ids for key in keys)
    )
    if common.size == 0:
        shown = []
        for table, key in zip(tables, keys, strict=True):
            example = f", e.g. {key.ids[0]!s}" if table.n else ""
            shown.append(f"party {table.name!r} has {table.n} ids{example}")
        listed = "; ".join(shown)
        raise InvalidData(
            f"no id occurs at every party ({listed}). Check that all use the same column as id."
        )
    aligned = []
    for table, key in zip(tables, keys, strict=True):
        places = np.searchsorted(key.ids, common)
        aligned.append(table.take_rows(key.rows[places]))
    return aligned, order_digest(aligned[0])


def order_digest(table: Table) -> str:
    """SHA-256 over the ids in their order and their type: equal at two parties if and only if their
    rows match.
    """
    ids = _ids(table)
    if is_text(ids):
        longest = int(np.char.str_len(ids).max(initial=1))
        ids = ids.astype(f"<U{max(longest, 1)}")
    return digest("order", ids)


def refuse_mixed_ids(names: Sequence[str], ids: Sequence[npt.NDArray[Any] | None]) -> None:
    """Refuse integer ids at one party and text at another, which could never match."""
    known = [
        (name, own) for name, own in zip(names, ids, strict=True) if own is not None and len(own)
    ]
    text = [(name, len(own)) for name, own in known if is_text(own)]
    number = [(name, len(own)) for name, own in known if not is_text(own)]
    if text and number:
        raise InvalidData(
            f"the {text[0][1]} ids of party {text[0][0]!r} are text and the {number[0][1]} of "
            "party "
            f"{number[0][0]!r} are integers. Convert them to one type, e.g. with ids.astype(str)."
        )


@dataclass(frozen=True)
class _Key:
    ids: npt.NDArray[Any]
    """Sorted, each once."""
    rows: Indices
    """The row of each."""


def _ids(table: Table) -> npt.NDArray[Any]:
    if table.ids is None:
        raise party_error(
            table.name,
            f"has no ids for its {table.n} rows. Name their column with read(..., id=...).",
        )
    return plain_ids(table.ids, table.name)


def _unique(table: Table, duplicates: str) -> _Key:
    ids, rows, counts = np.unique(_ids(table), return_index=True, return_counts=True)
    repeated = np.flatnonzero(counts > 1)
    if repeated.size and duplicates == "error":
        example = ids[repeated[0]]
        what = "1 id occurs" if repeated.size == 1 else f"{repeated.size} ids occur"
        raise party_error(
            table.name,
            f"{what} more than once, e.g. {example!s} ({counts[repeated[0]]} times). Remove the "
            "surplus rows, or pass "
            "duplicates='first' to keep the first row of each.",
        )
    return _Key(ids, rows)
