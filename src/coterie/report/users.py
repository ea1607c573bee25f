"""Accuracy of personal models: one row per user, and the spread over all users."""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from coterie.data import Table
from coterie.data.archives import plain_cell, write_atomically
from coterie.errors import InvalidInput, UnknownName
from coterie.problems.models import UserModel

FORMATS = (".csv", ".parquet")
UserRow: TypeAlias = dict[str, Any]
"""`user`, `rows`, `train` (accuracy), `test_rows`, `test` (accuracy), `neighbours`, `confidence`;
None: not known.
"""


def accuracy_by_user(
    model: UserModel[Any],
    train: Sequence[Table] = (),
    test: Sequence[Table] = (),
    *,
    unknown: str = "error",
) -> list[UserRow]:
    """One row per user of the model, then one per user that has rows here only (`unknown` as in
    `predict`).
    """
    learned = {table.name: table for table in train}
    held_out = {table.name: table for table in test}
    graph = model.in_graph()
    rows = []
    for user in dict.fromkeys((*model.users, *learned, *held_out)):
        row: UserRow = {"user": user}
        row["rows"], row["train"] = _right(model, learned.get(user), unknown)
        row["test_rows"], row["test"] = _right(model, held_out.get(user), unknown)
        row["neighbours"], row["confidence"] = graph.get(user, (None, None))
        rows.append(row)
    return rows


def _right(
    model: UserModel[Any], table: Table | None, unknown: str
) -> tuple[int | None, float | None]:
    """The number of rows and the share of right predictions; None for unknown values."""
    if table is None:
        return None, None
    if table.y is None or not table.n:
        return table.n, None
    if not np.isin(table.y, model.classes_).all():
        strange = np.setdiff1d(table.y, model.classes_).tolist()
        raise InvalidInput(
            f"user {table.name!r} has labels {strange[:3]}, and the model knows "
            f"{model.classes_.tolist()} only. "
            "Is it the right column?"
        )
    predicted = model.predict(table.X, table.name, unknown=unknown)
    return table.n, float((predicted == table.y).mean())


def spread(accuracies: Iterable[float | None]) -> dict[str, float] | None:
    """Mean, minimum and quartiles over users; None if no user has rows."""
    known = [accuracy for accuracy in accuracies if accuracy is not None]
    if not known:
        return None
    low, middle, high = np.quantile(known, (0.25, 0.5, 0.75)).tolist()
    return {
        "mean": float(np.mean(known)),
        "least": min(known),
        "quarter": low,
        "median": middle,
        "three_quarters": high,
    }


def write_rows(rows: Sequence[Mapping[str, Any]], path: Path) -> Path:
    """Write rows as CSV or Parquet, depending on the ending of the path."""
    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.parquet

    table = pa.table({name: [row[name] for row in rows] for name in rows[0]})
    buffer = io.BytesIO()
    match path.suffix:
        case ".csv":
            for place, name in enumerate(table.column_names):
                if pa.types.is_string(table[name].type):
                    cells = [plain_cell(cell) for cell in table[name].to_pylist()]
                    table = table.set_column(place, name, [cells])
            pa.csv.write_csv(table, buffer)
        case ".parquet":
            pa.parquet.write_table(table, buffer)
        case other:
            raise UnknownName("kind of table", other, FORMATS)
    return write_atomically(path, buffer.getvalue())
