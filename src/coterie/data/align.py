"""Match the rows of all parties: an inner join by row id.

    common = ids₁ ∩ ids₂ ∩ …, sorted        order digest = SHA-256 of common, with its type

Parties that computed the same order digest hold the same rows in the same order, so parties compare
only this digest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NoReturn

import numpy as np
import numpy.typing as npt

from coterie.data.table import Indices, Table, party_error
from coterie.data.values import is_text, plain_ids
from coterie.errors import InvalidData, UnknownName
from coterie.numerics.arrays import digest


def align(
    tables: Sequence[Table], *, duplicates: Literal["error", "first"] = "error"
) -> tuple[list[Table], str]:
    """Take the rows whose id occurs at every party, sorted by id.

    Parameters
    ----------
    tables : list of Table
        The tables of all parties, with ids.
    duplicates : {"error", "first"}, default="error"
        Refuse an id that occurs twice at one party, or keep its first row.

    Returns
    -------
    tables : list of Table
        The tables with the common rows, in the same order.
    digest : str
        The digest of that order, equal at all parties.

    Raises
    ------
    InvalidData
        If a table has no ids, if no id occurs at every party, or if an id occurs twice.

    Examples
    --------
    >>> import coterie as co, numpy as np
    >>> bank = co.Table(np.array([[1.0], [2.0], [3.0]]), ids=np.array(["a", "b", "c"]), name="bank")
    >>> shop = co.Table(np.array([[7.0], [8.0]]), ids=np.array(["c", "a"]), name="shop")
    >>> (bank, shop), _ = co.align([bank, shop])
    >>> bank.ids.tolist(), shop.X.ravel().tolist()
    (['a', 'c'], [8.0, 7.0])
    """
    if duplicates not in ("error", "first"):
        raise UnknownName("policy for duplicates", duplicates, ("error", "first"))
    if not tables:
        raise InvalidData("there are no parties to align. Give at least one.")
    tables = [replace(table, ids=_ids(table)) for table in tables]
    refuse_mixed_ids([table.name for table in tables], [table.ids for table in tables])
    keys = [_unique(table, duplicates) for table in tables]
    common = keys[0].ids
    for key in keys[1:]:
        common = np.intersect1d(common, key.ids, assume_unique=True)
    if common.size == 0:
        _refuse_nothing_in_common(tables, keys)
    aligned = []
    for table, key in zip(tables, keys, strict=True):
        places = np.searchsorted(key.ids, common)
        aligned.append(table.take_rows(key.rows[places]))
    return aligned, order_digest(aligned[0])


def _refuse_nothing_in_common(tables: Sequence[Table], keys: Sequence[_Key]) -> NoReturn:
    shown = []
    for table, key in zip(tables, keys, strict=True):
        held = f"party {table.name!r} has {table.n} ids"
        if table.n:
            held = f"{held}, e.g. {key.ids[0]!s}"
        shown.append(held)
    listed = "; ".join(shown)
    raise InvalidData(
        f"no id occurs at every party ({listed}). Check that all use the same column as id."
    )


def order_digest(table: Table) -> str:
    """Compute SHA-256 over the ids in their order and their type.

    It is equal at two parties if and only if their rows match.
    """
    ids = _ids(table)
    if is_text(ids):
        longest = int(np.char.str_len(ids).max(initial=1))
        ids = ids.astype(f"<U{max(longest, 1)}")
    return digest("order", ids)


def refuse_mixed_ids(names: Sequence[str], ids: Sequence[npt.NDArray[Any] | None]) -> None:
    """Refuse integer ids at one party and text at another, which could never match."""
    text = []
    number = []
    for name, own in zip(names, ids, strict=True):
        if own is None or not len(own):
            continue
        if is_text(own):
            text.append((name, len(own)))
        else:
            number.append((name, len(own)))
    if text and number:
        with_text, texts = text[0]
        with_numbers, integers = number[0]
        raise InvalidData(
            f"the {texts} ids of party {with_text!r} are text and the {integers} of party "
            f"{with_numbers!r} are integers. Convert them to one type, e.g. with ids.astype(str)."
        )


@dataclass(frozen=True)
class _Key:
    ids: npt.NDArray[Any]
    """The different ids, sorted."""
    rows: Indices
    """The first row of each id."""


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
        times = counts[repeated[0]]
        occur = "1 id occurs"
        if repeated.size > 1:
            occur = f"{repeated.size} ids occur"
        raise party_error(
            table.name,
            f"{occur} more than once, e.g. {example!s} ({times} times). Remove the surplus rows, "
            "or pass duplicates='first' to keep the first row of each.",
        )
    return _Key(ids, rows)
