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

WITH_NAMES = {".csv", ".parquet", ".arrow", ".feather"}
WITHOUT_NAMES = {".svm", ".svmlight", ".libsvm"}
OPTIONS_OF_LABELS = ("time", "event", "entry", "strata")
"""Roles of labels that have an option, and a parameter of `read`, of their own."""


def has_named_columns(path: Path) -> bool:
    """Whether the labels in such a file are a column that has to be named."""
    endings = {ending.lower() for ending in path.suffixes}
    return bool(WITH_NAMES & endings)


def columns_of_labels(given: Sequence[str] | None) -> dict[str, str]:
    """Read the columns of labels by role, each given as ROLE=COLUMN."""
    pairs = (pair.partition("=") for pair in given or ())
    return {role: column for role, _, column in pairs}


def label_roles(
    problem: co.Problem[Any], target: str | None, **named: str | None
) -> dict[str, Any]:
    """Check the columns of labels that take the place of a target, and return them by role.

    Columns of labels of another kind of problem are refused.
    """
    roles = problem.kind.labels.roles
    needed = roles[: problem.kind.labels.needed]
    for role, column in named.items():
        if column is not None and role not in roles:
            _refuse_role(role)
    missing = [role for role in needed if named.get(role) is None]
    if missing or (needed and target is not None):
        _refuse_labels(problem.loss.name, needed, list(named))
    found: dict[str, Any] = {}
    others = {}
    for role, column in named.items():
        if role in OPTIONS_OF_LABELS:
            found[role] = column
        elif column is not None:
            others[role] = column
    if others:
        found["labels"] = others
    return found


def _refuse_role(role: str) -> None:
    other = next(kind for kind in kinds() if role in kind.labels.roles)
    raise InvalidInput(
        f"--{role} is for {other.name} times: add --loss {min(other.losses)}, or leave it out."
    )


def _refuse_labels(loss: str, needed: Sequence[str], named: Sequence[str]) -> None:
    columns = []
    for role in needed:
        if role in named:
            columns.append(f"--{role} COLUMN")
        else:
            columns.append(f"--label {role}=COLUMN")
    raise InvalidInput(f"--loss {loss} takes {' and '.join(columns)} in place of --target.")


def paired_by_position(same_order: bool, id: str | None, split: str) -> bool:
    """Whether rows are paired by position; refused for rows with ids, or split by samples."""
    if same_order and id is not None:
        raise InvalidInput("--id and --same-order both pair the rows of parties. Give one.")
    if same_order and split != "features":
        raise InvalidInput(
            "--same-order is for --split features, where files hold columns of the same rows."
        )
    return same_order


def refuse_part(fitted: Any, command: str) -> None:
    """Refuse one party's part of a model, which only all parties together can use."""
    part = getattr(fitted, "part", None)
    if part is None:
        return
    owner = part.partition(" of ")[0]
    raise InvalidInput(
        f"this is {owner}'s part of a model; use `coterie {command} party.toml` at every party."
    )


def model_columns(fitted: Any) -> Any:
    """The columns that the model needs, as they are named in files."""
    if fitted.preparation is not None:
        return fitted.preparation.raw
    return fitted.columns


def numbered(path: Path, columns: int) -> tuple[str, ...] | None:
    """Make names for the columns of an svmlight file; None for other files.

    An svmlight file does not mention columns at its end that it does not use.
    """
    if not WITHOUT_NAMES & set(path.suffixes):
        return None
    return tuple(map(str, range(columns)))


def as_list(tables: co.Table | list[co.Table]) -> list[co.Table]:
    """Put one party's table into a list; a list stays as it is."""
    if isinstance(tables, list):
        return tables
    return [tables]


def one_or_list(tables: list[co.Table]) -> co.Table | list[co.Table]:
    """Take the table of a single party out of its list."""
    if len(tables) == 1:
        return tables[0]
    return tables


def tables(
    paths: list[Path], split: str, columns: str | Sequence[str] | None = None, **roles: Any
) -> co.Table | list[co.Table]:
    """Read one party's file as a table, several as a list; the roles are those of `read`.

    Split by features, one of the files has labels, and with them weights and offsets.
    """
    wanted = listed(columns)
    on_disk = roles.pop("on_disk", None)
    if split == "features" and len(paths) > 1:
        return _by_columns(paths, wanted, on_disk, roles)
    found = []
    for path in paths:
        by_columns = split == "features"
        table = co.read(path, columns=wanted, by_columns=by_columns, on_disk=on_disk, **roles)
        found.append(table)
    if len(found) == 1:
        return found[0]
    return _as_wide(paths, found)


def listed(columns: str | Sequence[str] | None) -> Sequence[str] | None:
    """Split a list of names that are separated by commas."""
    if isinstance(columns, str):
        return [name.strip() for name in columns.split(",")]
    return columns


def _as_wide(paths: list[Path], tables: list[co.Table]) -> list[co.Table]:
    """Read svmlight files again, with as many columns as the widest table."""
    widest = max(table.d for table in tables)
    found = []
    for path, table in zip(paths, tables, strict=True):
        names = numbered(path, widest)
        if names is None:
            found.append(table)
        else:
            found.append(co.read(path, columns=names))
    return found


def _by_columns(
    paths: list[Path], wanted: Sequence[str] | None, on_disk: Any, roles: dict[str, Any]
) -> list[co.Table]:
    """Read a table per file; one file has the labels."""
    found = []
    refusals = []
    without_labels: dict[str, Any] = {"id": roles.get("id"), "prepare": roles.get("prepare")}
    for path in paths:
        try:
            table = co.read(path, by_columns=True, on_disk=on_disk, **roles)
        except InvalidData as refusal:
            refusals.append(refusal)
            table = co.read(path, by_columns=True, on_disk=on_disk, **without_labels)
        found.append(table)
    if roles.get("target") is not None and len(refusals) == len(paths):
        raise refusals[0]
    if wanted is not None:
        found = _only(found, list(wanted))
    if without_labels["id"] is None:
        return found
    aligned, *_ = co.align(found)
    return aligned


def entries(
    paths: list[Path],
    columns: str | Sequence[str] | None,
    target: str | None,
    weight: str | None = None,
    matrix: NamedMatrix | None = None,
) -> tuple[NamedMatrix, co.Table | list[co.Table]]:
    """Read entries of a matrix by the names of their rows and columns.

    The names are those of all files, or those of `matrix`.
    """
    from coterie.api.entries import NamedMatrix
    from coterie.data.entries import pairs_of

    wanted = tuple(listed(columns) or ())
    if len(wanted) != 2 or target is None:
        raise InvalidInput(
            "--loss completion takes --columns ROW,COLUMN, the two columns that name an entry's "
            "place, and --target COLUMN with its value."
        )
    names = []
    places = []
    for path in paths:
        name = path.name.split(".")[0]
        names.append(name)
        places.append(pairs_of(named_places(path, wanted), name))
    known = matrix or NamedMatrix.of(places)
    parts = []
    for path, name, pairs in zip(paths, names, places, strict=True):
        values = _numbers(path, target, name)
        weights = _numbers(path, weight, name)
        parts.append(known.table(pairs, values, weights, columns=wanted, name=name))
    return known, one_or_list(parts)


def named_places(path: Path, columns: Sequence[str] | None) -> Any:
    """Read the names of rows and columns from a file, as text."""
    import numpy as np

    cells = co.data.read_cells(path, columns or ())
    texts = [[_text(cell) for cell in column] for column in cells.values()]
    return np.array(texts, object).T


def _text(cell: Any) -> str | None:
    if cell is None:
        return None
    return str(cell)


def _numbers(path: Path, column: str | None, party: str) -> Any:
    """Read the numbers in a column of a file; None without a column."""
    import numpy as np

    if column is None:
        return None
    try:
        cells = co.data.read_cells(path, [column])[column]
        return np.array([_number(cell) for cell in cells])
    except (TypeError, ValueError) as error:
        raise InvalidData(
            f"party {party!r}: column {column!r} holds no numbers: {error}."
        ) from None


def _number(cell: Any) -> float:
    if cell is None:
        return float("nan")
    return float(cell)


def by_user(
    paths: list[Path], target: str | None, users: str | None, columns: str | Sequence[str] | None
) -> list[co.Table]:
    """Read one table per user: from one file with a column of users, or from one file each."""
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
    """Keep the wanted columns of every party; each of them must be a column of some party."""
    import numpy as np

    known: list[str] = []
    for part in parts:
        known += part.columns or ()
    for name in wanted:
        if name not in known:
            raise UnknownName("column", name, known)
    kept = []
    for part in parts:
        places = np.flatnonzero(np.isin(part.columns or (), wanted))
        kept.append(part.take_columns(places))
    return kept
