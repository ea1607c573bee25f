"""The files of a command, as tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import coterie as co
from coterie.errors import InvalidData, InvalidInput, UnknownName
from coterie.problems import kinds

if TYPE_CHECKING:
    from coterie.api.entries import NamedMatrix


def has_named_columns(path: Path) -> bool:
    """Whether labels of such a file are a column that has to be named."""
    return bool(
        {".csv", ".parquet", ".arrow", ".feather"} & {ending.lower() for ending in path.suffixes}
    )


def columns_of_labels(given: Sequence[str] | None) -> dict[str, str]:
    """The columns of labels by role, of ROLE=COLUMN."""
    pairs = (pair.partition("=") for pair in given or ())
    return {role: column for role, _, column in pairs}


def label_roles(
    problem: co.Problem[Any], target: str | None, **named: str | None
) -> dict[str, Any]:
    """The columns of labels that take the place of a target; refused where they do not belong."""
    own, needed = problem.kind.labels.roles, problem.kind.labels.needed
    given = [role for role, column in named.items() if column is not None]
    if stray := [role for role in given if role not in own]:
        other = next(kind for kind in kinds() if stray[0] in kind.labels.roles)
        raise InvalidInput(
            f"--{stray[0]} is for {other.name} times: add --loss {min(other.losses)}, or leave it "
            "out."
        )
    if needed and (target is not None or any(named.get(role) is None for role in own[:needed])):
        columns = " and ".join(
            f"--{role} COLUMN" if role in named else f"--label {role}=COLUMN"
            for role in own[:needed]
        )
        raise InvalidInput(f"--loss {problem.loss.name} takes {columns} in place of --target.")
    doors = {role: column for role, column in named.items() if role in DOORS}
    others = {
        role: column for role, column in named.items() if role not in DOORS and column is not None
    }
    return {**doors, **({"labels": others} if others else {})}


DOORS = ("time", "event", "entry", "strata")
"""Roles that have an option, and a parameter of `read`, of their own."""


def paired_by_position(same_order: bool, id: str | None, split: str) -> bool:
    """Whether rows are paired by position; refused where they are not paired, or paired by id."""
    if same_order and id is not None:
        raise InvalidInput("--id and --same-order both say which rows belong together. Give one.")
    if same_order and split != "features":
        raise InvalidInput(
            "--same-order is for --split features, where files hold columns of the same rows."
        )
    return same_order


def numbered(path: Path, columns: int) -> tuple[str, ...] | None:
    """Names that tell an svmlight file, which says nothing of columns it does not use, how many
    there are.
    """
    nameless = {".svm", ".svmlight", ".libsvm"} & set(path.suffixes)
    return tuple(map(str, range(columns))) if nameless else None


def tables(
    paths: list[Path], split: str, columns: str | Sequence[str] | None = None, **roles: Any
) -> co.Table | list[co.Table]:
    """One party's file as it is, several as a list; the roles are those of `read`.

    Split by features, one of the files has labels, and what stands beside them.
    """
    wanted, on_disk = listed(columns), roles.pop("on_disk", None)
    if split == "features" and len(paths) > 1:
        return _by_columns(paths, wanted, {"by_columns": True, "on_disk": on_disk}, roles)
    found = [
        co.read(path, columns=wanted, by_columns=split == "features", on_disk=on_disk, **roles)
        for path in paths
    ]
    return found[0] if len(found) == 1 else _as_wide(paths, found)


def listed(columns: str | Sequence[str] | None) -> Sequence[str] | None:
    """The names in a list that is separated by commas."""
    return [name.strip() for name in columns.split(",")] if isinstance(columns, str) else columns


def _as_wide(paths: list[Path], found: list[co.Table]) -> list[co.Table]:
    """The tables, those of svmlight files with as many columns as the widest."""
    widest = max(table.d for table in found)
    names = [numbered(path, widest) for path in paths]
    return [
        table if own is None else co.read(path, columns=own)
        for path, table, own in zip(paths, found, names, strict=True)
    ]


def _by_columns(
    paths: list[Path], wanted: Sequence[str] | None, how: dict[str, Any], roles: dict[str, Any]
) -> list[co.Table]:
    """A table per file, of which one has labels."""
    found, refusals = [], []
    bare: dict[str, Any] = {"id": roles.get("id"), "prepare": roles.get("prepare")}
    for path in paths:
        try:
            found.append(co.read(path, **how, **roles))
        except InvalidData as refusal:
            refusals.append(refusal)
            found.append(co.read(path, **how, **bare))
    if roles.get("target") is not None and len(refusals) == len(paths):
        raise refusals[0]
    if wanted is not None:
        found = _only(found, list(wanted))
    return found if bare["id"] is None else co.align(found)[0]


def entries(
    paths: list[Path],
    columns: str | Sequence[str] | None,
    target: str | None,
    weight: str | None = None,
    matrix: NamedMatrix | None = None,
) -> tuple[NamedMatrix, co.Table | list[co.Table]]:
    """Entries of a matrix by the names of their rows and columns; these are those of all files,
    unless given.
    """
    from coterie.api.entries import NamedMatrix
    from coterie.data.entries import pairs_of

    wanted = tuple(listed(columns) or ())
    if len(wanted) != 2 or target is None:
        raise InvalidInput(
            "--loss completion takes --columns ROW,COLUMN, the two columns that name an entry's "
            "place, and --target "
            "COLUMN with its value."
        )
    names = [path.name.split(".")[0] for path in paths]
    places = [
        pairs_of(named_places(path, wanted), name) for path, name in zip(paths, names, strict=True)
    ]
    known = matrix or NamedMatrix.of(places)
    parts = []
    for path, name, pairs in zip(paths, names, places, strict=True):
        values, weights = (_numbers(path, column, name) for column in (target, weight))
        parts.append(known.table(pairs, values, weights, columns=wanted, name=name))
    return known, parts if len(parts) > 1 else parts[0]


def named_places(path: Path, columns: Sequence[str] | None) -> Any:
    """The names of rows and columns that a file has, as words."""
    import numpy as np

    cells = co.data.read_cells(path, columns or ())
    return np.array(
        [[None if cell is None else str(cell) for cell in column] for column in cells.values()],
        object,
    ).T


def _numbers(path: Path, column: str | None, party: str) -> Any:
    """The numbers in a column of a file; None without a column."""
    import numpy as np

    if column is None:
        return None
    try:
        cells = co.data.read_cells(path, [column])[column]
        return np.array([np.nan if cell is None else float(cell) for cell in cells])
    except (TypeError, ValueError) as error:
        raise InvalidData(
            f"party {party!r}: column {column!r} holds no numbers: {error}."
        ) from None


def by_user(
    paths: list[Path], target: str | None, users: str | None, columns: str | Sequence[str] | None
) -> list[co.Table]:
    """One table per user: the rows of one file by a column that names them, or one file each."""
    wanted = listed(columns)
    if users is None and len(paths) == 1:
        raise InvalidData(
            "one file holds the rows of all users: name the column with the user of each row with "
            "--users."
        )
    if users is None:
        return [co.read(path, target=target, columns=wanted) for path in paths]
    if len(paths) > 1:
        raise InvalidData(
            "--users takes one file with the rows of all users; without --users, each file is one "
            "user."
        )
    whole = co.read(paths[0], target=target, id=users, columns=wanted, name="data")
    assert whole.ids is not None
    return co.data.split(replace(whole, ids=None), "users", whole.ids)


def _only(parts: list[co.Table], wanted: list[str]) -> list[co.Table]:
    """Of every party the wanted columns, each of which somebody must have."""
    everything = [name for part in parts for name in part.columns or ()]
    for name in wanted:
        if name not in everything:
            raise UnknownName("column", name, everything)
    import numpy as np

    return [
        part.take_columns(np.flatnonzero(np.isin(part.columns or (), wanted))) for part in parts
    ]
