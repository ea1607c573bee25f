"""Cut one table into what each agent holds: rows (samples, users) or columns (features).

Every row or column goes to exactly one agent. Consecutive rows are views of the table, not copies.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from numbers import Real
from typing import Any

import numpy as np
import numpy.typing as npt

from coterie.arrays import as_number, is_sparse
from coterie.data.check import SPLITS
from coterie.data.table import BESIDE, Indices, Table
from coterie.data.values import plain
from coterie.errors import InvalidInput, UnknownName

Agents = int | Sequence[int] | Sequence[Sequence[int]] | Sequence[Sequence[str]] | npt.NDArray[Any]
"""A count, sizes, lists of row or column numbers (or column names), or, by users, one label per row."""


def split(
    table: Table,
    by: str,
    agents: Agents,
    *,
    seed: int | None = None,
    shuffle: bool = False,
    labels_at: int = 0,
) -> list[Table]:
    """One table per agent, by "samples", "features" or "users".

    `agents` is a count (equal blocks; more agents than rows leaves some empty), sizes, or lists of row numbers, of
    column numbers or of column names; by users it may be an array with the user of every row. `shuffle` deals the rows
    or columns of a count or of sizes at random. By features, only the agent `labels_at` has labels, and what stands
    beside them. The shards' `rows` and `cols` are numbers in this table.
    """
    if by not in SPLITS:
        raise UnknownName("split", by, SPLITS)
    noun, size = ("column", table.d) if by == "features" else ("row", table.n)
    if by == "users" and not isinstance(agents, Real | str) and not _are_lists(agents):
        users, parts = _by_label(agents, table)
        names = [str(user) for user in users]
    else:
        parts = _parts(agents, size, noun, table.columns, np.random.default_rng(seed) if shuffle else None)
        stem = "agent " if table.name == "data" else f"{table.name}/"
        names = [f"{stem}{k}" for k in range(len(parts))]
    if by == "features":
        return _by_columns(table, parts, names, labels_at)
    numbered = replace(table, rows=np.arange(table.n))
    return [numbered.take_rows(part, name=name) for part, name in zip(parts, names, strict=True)]


def hold_out(tables: Sequence[Table], share: float, *, by: str, seed: int) -> tuple[list[Table], list[Table]]:
    """Every party's rows without those held out, and those held out: that share of them, drawn at random.

    By features, all parties hold out the same rows.
    """
    if not 0 < as_number(share) < 1:
        raise InvalidInput(f"the share of rows to hold out is between 0 and 1, not {share!r}.")
    kept, held = [], []
    for k, table in enumerate(tables):
        order = np.random.default_rng([seed, 0 if by == "features" else k]).permutation(table.n)
        count = round(share * table.n)
        held.append(table.take_rows(np.sort(order[:count])))
        kept.append(table.take_rows(np.sort(order[count:])))
    return kept, held


def _by_columns(table: Table, parts: list[Indices], names: list[str], labels_at: int) -> list[Table]:
    if not 0 <= labels_at < len(parts):
        raise InvalidInput(
            f"labels_at={labels_at} is not the number of an agent. Give a number from 0 to {len(parts) - 1}."
        )
    source = replace(
        table,
        X=table.X.tocsc() if is_sparse(table.X) else table.X,
        cols=np.arange(table.d),
        roles=None,  # the rows of one table are paired already
    )
    shards = [replace(source.take_columns(part), name=name) for part, name in zip(parts, names, strict=True)]
    nothing: dict[str, Any] = {"y": None, **dict.fromkeys(BESIDE.values())}
    return [shard if k == labels_at else replace(shard, **nothing) for k, shard in enumerate(shards)]


def _by_label(agents: Any, table: Table) -> tuple[npt.NDArray[Any], list[Indices]]:
    labels = plain(agents, table.name, "user label")
    if labels.shape != (table.n,):
        raise InvalidInput(
            f"the user labels have shape {labels.shape}, but the table has {table.n} rows. Give one label per row."
        )
    users, user_of, counts = np.unique(labels, return_inverse=True, return_counts=True)
    return users, np.split(np.argsort(user_of, kind="stable"), np.cumsum(counts)[:-1])


def _parts(
    agents: Any, size: int, noun: str, columns: tuple[str, ...] | None, shuffler: np.random.Generator | None
) -> list[Indices]:
    order = np.arange(size) if shuffler is None else shuffler.permutation(size)
    if isinstance(agents, int | np.integer):
        if isinstance(agents, bool) or agents < 1:
            raise InvalidInput(f"agents={agents!r} is not a number of agents. Give 1 or more.")
        return _in_order(np.array_split(order, int(agents)), shuffler)
    if _are_lists(agents):
        if shuffler is not None:
            raise InvalidInput(f"shuffle=True needs a count or sizes, but agents= lists {noun} numbers. Leave one out.")
        lists = [_numbers(part, noun, columns) for part in agents]
        _refuse_overlaps(lists, size, noun)
        return lists
    sizes = np.asarray(agents)
    if sizes.ndim != 1 or sizes.size == 0 or sizes.dtype.kind not in "iu" or (sizes < 0).any():
        raise InvalidInput(
            f"agents={agents!r} is neither a count (a whole number), nor sizes, nor lists of {noun} numbers."
        )
    if sizes.sum() != size:
        raise InvalidInput(
            f"the {sizes.size} sizes in agents= add up to {sizes.sum()}, but there are {size} {noun}s. Make them equal."
        )
    return _in_order(np.split(order, np.cumsum(sizes)[:-1]), shuffler)


def _in_order(parts: list[Indices], shuffler: np.random.Generator | None) -> list[Indices]:
    return parts if shuffler is None else [np.sort(part) for part in parts]


def _are_lists(agents: Any) -> bool:
    if isinstance(agents, np.ndarray):
        return agents.ndim == 2
    return isinstance(agents, Iterable) and any(np.ndim(part) == 1 for part in agents)


def _numbers(part: Any, noun: str, columns: tuple[str, ...] | None) -> Indices:
    numbers = np.asarray(part)
    if numbers.size == 0:
        return np.empty(0, np.intp)
    if numbers.dtype.kind in "UO" and noun == "column" and columns is not None:
        position = {name: j for j, name in enumerate(columns)}
        for name in part:
            if name not in position:
                raise UnknownName("column", name, columns)
        return np.array([position[name] for name in part], np.intp)
    if numbers.ndim != 1 or numbers.dtype.kind not in "iu":
        fix = "Use np.flatnonzero for a mask." if numbers.dtype.kind == "b" else "Give whole numbers."
        names = " or names" if columns is not None and noun == "column" else ""
        raise InvalidInput(f"a list in agents= holds {numbers.dtype} values, not {noun} numbers{names}. {fix}")
    return numbers.astype(np.intp)


def _refuse_overlaps(lists: list[Indices], size: int, noun: str) -> None:
    given = np.concatenate(lists)
    outside = given[(given < 0) | (given >= size)]
    if outside.size:
        raise InvalidInput(
            f"{outside.size} {noun} numbers in agents= lie outside 0 to {size - 1}, e.g. {outside[0]}. Count from 0."
        )
    times = np.bincount(given, minlength=size)
    for problem, which in (("more than one place", times > 1), ("no agent", times == 0)):
        numbers = np.flatnonzero(which)
        if numbers.size:
            shown = ", ".join(map(str, numbers[:5])) + (", ..." if numbers.size > 5 else "")
            raise InvalidInput(
                f"agents= gives {numbers.size} of {size} {noun}s to {problem} ({shown}). Give each to one agent only."
            )
