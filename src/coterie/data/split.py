"""Split one table between agents: by rows (samples, users) or by columns (features).

Every row or column goes to exactly one agent. Consecutive rows are views of the table, not copies.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from numbers import Real
from typing import Any

import numpy as np
import numpy.typing as npt

from coterie.data.check import SPLITS
from coterie.data.table import ROW_VALUES, Indices, Table
from coterie.data.values import plain
from coterie.errors import InvalidInput, UnknownName
from coterie.numerics.arrays import as_number, is_sparse

Agents = int | Sequence[int] | Sequence[Sequence[int]] | Sequence[Sequence[str]] | npt.NDArray[Any]
"""A count, sizes, lists of row or column numbers (or column names), or, for users, the user of each
row.
"""


def split(
    table: Table,
    by: str,
    agents: Agents,
    *,
    seed: int | None = None,
    shuffle: bool = False,
    labels_at: int = 0,
) -> list[Table]:
    """Split a table into one table per agent.

    Parameters
    ----------
    table : Table
        The table to split.
    by : {"samples", "features", "users"}
        Whether agents get rows, columns, or the rows of one user each.
    agents : int or list
        The number of agents (equal blocks; more agents than rows leaves some empty), their sizes,
        or lists of row numbers, of column numbers or of column names. By users, it may be an array
        with the user of every row.
    seed : int, optional
        Seed of the shuffle.
    shuffle : bool, default=False
        Whether to permute the rows or columns at random before a split into a count or sizes.
    labels_at : int, default=0
        By features: the agent that gets labels, weights and offsets.

    Returns
    -------
    list of Table
        `rows` and `cols` of the new tables are numbers in the given table.

    Raises
    ------
    InvalidInput
        If `agents` does not describe a split of the rows or columns.

    Examples
    --------
    >>> import coterie as co, numpy as np
    >>> table = co.Table(np.arange(6.0).reshape(3, 2), np.array([0.0, 1.0, 1.0]))
    >>> [part.rows.tolist() for part in co.data.split(table, "samples", 2)]
    [[0, 1], [2]]
    """
    if by not in SPLITS:
        raise UnknownName("split", by, SPLITS)
    if by == "users" and not isinstance(agents, Real | str) and not _are_lists(agents):
        users, parts = _by_label(agents, table)
        names = [str(user) for user in users]
    else:
        shuffler = None
        if shuffle:
            shuffler = np.random.default_rng(seed)
        if by == "features":
            parts = _parts(agents, table.d, "column", table.columns, shuffler)
        else:
            parts = _parts(agents, table.n, "row", table.columns, shuffler)
        stem = f"{table.name}/"
        if table.name == "data":
            stem = "agent "
        names = [f"{stem}{k}" for k in range(len(parts))]
    if by == "features":
        return _by_columns(table, parts, names, labels_at)
    numbered = replace(table, rows=np.arange(table.n))
    return [numbered.take_rows(part, name=name) for part, name in zip(parts, names, strict=True)]


def hold_out(
    tables: Sequence[Table], share: float, *, by: str, seed: int
) -> tuple[list[Table], list[Table]]:
    """Hold out a random share of the rows of all parties; by features, the same rows at all.

    Returns the tables of the kept rows, and those of the held-out rows.
    """
    if not 0 < as_number(share) < 1:
        raise InvalidInput(f"the share of rows to hold out is between 0 and 1, not {share!r}.")
    kept = []
    held = []
    for k, table in enumerate(tables):
        stream = k
        if by == "features":
            stream = 0
        order = np.random.default_rng([seed, stream]).permutation(table.n)
        count = round(share * table.n)
        held.append(table.take_rows(np.sort(order[:count])))
        kept.append(table.take_rows(np.sort(order[count:])))
    return kept, held


def _by_columns(
    table: Table, parts: list[Indices], names: list[str], labels_at: int
) -> list[Table]:
    if not 0 <= labels_at < len(parts):
        raise InvalidInput(
            f"labels_at={labels_at} is not the number of an agent. Give a number from 0 to "
            f"{len(parts) - 1}."
        )
    X = table.X
    if is_sparse(X):
        X = X.tocsc()
    # No roles: the rows of one table are paired already.
    source = replace(table, X=X, cols=np.arange(table.d), roles=None)
    no_labels: dict[str, Any] = {"y": None, **dict.fromkeys(ROW_VALUES.values())}
    shards = []
    for k, (part, name) in enumerate(zip(parts, names, strict=True)):
        shard = replace(source.take_columns(part), name=name)
        if k != labels_at:
            shard = replace(shard, **no_labels)
        shards.append(shard)
    return shards


def _by_label(agents: Any, table: Table) -> tuple[npt.NDArray[Any], list[Indices]]:
    labels = plain(agents, table.name, "user label")
    if labels.shape != (table.n,):
        raise InvalidInput(
            f"the user labels have shape {labels.shape}, but the table has {table.n} rows. Give "
            "one label per row."
        )
    users, user_of, counts = np.unique(labels, return_inverse=True, return_counts=True)
    order = np.argsort(user_of, kind="stable")
    return users, np.split(order, np.cumsum(counts)[:-1])


def _parts(
    agents: Any,
    size: int,
    noun: str,
    columns: tuple[str, ...] | None,
    shuffler: np.random.Generator | None,
) -> list[Indices]:
    if _are_lists(agents):
        if shuffler is not None:
            raise InvalidInput(
                f"shuffle=True needs a count or sizes, but agents= lists {noun} numbers. Leave "
                "one out."
            )
        lists = [_numbers(part, noun, columns) for part in agents]
        _refuse_overlaps(lists, size, noun)
        return lists
    order = np.arange(size)
    if shuffler is not None:
        order = shuffler.permutation(size)
    if isinstance(agents, int | np.integer):
        if isinstance(agents, bool) or agents < 1:
            raise InvalidInput(f"agents={agents!r} is not a number of agents. Give 1 or more.")
        return _in_order(np.array_split(order, int(agents)), shuffler)
    sizes = _sizes(agents, size, noun)
    return _in_order(np.split(order, np.cumsum(sizes)[:-1]), shuffler)


def _sizes(agents: Any, size: int, noun: str) -> Indices:
    sizes = np.asarray(agents)
    if sizes.ndim != 1 or sizes.size == 0 or sizes.dtype.kind not in "iu" or (sizes < 0).any():
        raise InvalidInput(
            f"agents={agents!r} is neither a count (a whole number), nor sizes, nor lists of "
            f"{noun} numbers."
        )
    if sizes.sum() != size:
        raise InvalidInput(
            f"the {sizes.size} sizes in agents= add up to {sizes.sum()}, but there are {size} "
            f"{noun}s. Make them equal."
        )
    return sizes


def _in_order(parts: list[Indices], shuffler: np.random.Generator | None) -> list[Indices]:
    if shuffler is None:
        return parts
    return [np.sort(part) for part in parts]


def _are_lists(agents: Any) -> bool:
    if isinstance(agents, np.ndarray):
        return agents.ndim == 2
    return isinstance(agents, Iterable) and any(np.ndim(part) == 1 for part in agents)


def _numbers(part: Any, noun: str, columns: tuple[str, ...] | None) -> Indices:
    numbers = np.asarray(part)
    if numbers.size == 0:
        return np.empty(0, np.intp)
    named = columns is not None and noun == "column"
    if columns is not None and named and numbers.dtype.kind in "UO":
        return _named_columns(part, columns)
    if numbers.ndim != 1 or numbers.dtype.kind not in "iu":
        fix = "Give whole numbers."
        if numbers.dtype.kind == "b":
            fix = "Use np.flatnonzero for a mask."
        names = ""
        if named:
            names = " or names"
        raise InvalidInput(
            f"a list in agents= holds {numbers.dtype} values, not {noun} numbers{names}. {fix}"
        )
    return numbers.astype(np.intp)


def _named_columns(names: Any, columns: tuple[str, ...]) -> Indices:
    position = {name: j for j, name in enumerate(columns)}
    for name in names:
        if name not in position:
            raise UnknownName("column", name, columns)
    return np.array([position[name] for name in names], np.intp)


def _refuse_overlaps(lists: list[Indices], size: int, noun: str) -> None:
    given = np.concatenate(lists)
    outside = given[(given < 0) | (given >= size)]
    if outside.size:
        raise InvalidInput(
            f"{outside.size} {noun} numbers in agents= lie outside 0 to {size - 1}, e.g. "
            f"{outside[0]}. Count from 0."
        )
    times = np.bincount(given, minlength=size)
    for problem, which in (("more than one place", times > 1), ("no agent", times == 0)):
        numbers = np.flatnonzero(which)
        if numbers.size:
            shown = ", ".join(map(str, numbers[:5]))
            if numbers.size > 5:
                shown += ", ..."
            raise InvalidInput(
                f"agents= gives {numbers.size} of {size} {noun}s to {problem} ({shown}). Give "
                "each to one agent only."
            )
