"""Two-way tables: how many rows of all parties have each value of one column and each of
another.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
from scipy.special import chdtrc

from coterie.api.describe import RAW, in_common, raw_columns
from coterie.api.description import OTHER
from coterie.data import Table
from coterie.data.archives import read_bytes, readable, without_nan, write_atomically
from coterie.data.preparation.prepared import cells_of
from coterie.data.remote import Rows
from coterie.data.table import party_error
from coterie.engines import Engine
from coterie.errors import InvalidInput
from coterie.numerics.arrays import FloatArray, whole_number
from coterie.run.bill import Bill
from coterie.run.parties import Meeting, Operation, Parties, hosted
from coterie.run.settings import Placement, Settings
from coterie.run.site import Rules
from coterie.stats.describing import MOST_CATEGORIES
from coterie.stats.two_way import Margin, TwoWay, two_way

MISSING = "(missing)"
TOTAL = "total"
BETWEEN_NOTE = (
    "a to b: the count lies between a and b; at a party it is small, or hides a small one."
)


class ChiSquare(NamedTuple):
    """Pearson's test of independence, without a correction."""

    statistic: float
    degrees_of_freedom: int
    p_value: float


@dataclass(frozen=True)
class Crosstab:
    """Rows of all parties by two columns."""

    about: str
    """What was counted, in words."""
    by: tuple[str, str]
    """The column whose values are down, and the one whose values are across."""
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    """Values; missing ones are `(missing)`, and those that are rare at a party are counted as
    `(other)`.
    """
    low: FloatArray
    high: FloatArray
    """The count of each cell is between these; they are equal if no party withholds rows of it."""
    row_totals: tuple[int, ...]
    column_totals: tuple[int, ...]
    minimum: int
    """The least rows of a party that it tells of."""
    bill: Bill | None = field(default=None, repr=False, compare=False)
    """What it cost to ask; not saved."""

    @property
    def counts(self) -> FloatArray:
        """The rows of each cell; NaN where a party withholds some."""
        return np.where(self.low == self.high, self.low, np.nan)

    def chi_square(self) -> ChiSquare | None:
        """Whether the columns depend on each other, over the rows that have both; None if a party
        withholds rows.
        """
        there = np.ix_(
            *[[name != MISSING for name in names] for names in (self.rows, self.columns)]
        )
        counts = self.counts[there]
        counts = counts[np.ix_(counts.sum(axis=1) != 0, counts.sum(axis=0) != 0)]
        if np.isnan(counts).any() or min(counts.shape) < 2:
            return None
        expected = np.outer(counts.sum(axis=1), counts.sum(axis=0)) / counts.sum()
        statistic = float(((counts - expected) ** 2 / expected).sum())
        degrees = (counts.shape[0] - 1) * (counts.shape[1] - 1)
        return ChiSquare(statistic, degrees, float(chdtrc(degrees, statistic)))

    def __str__(self) -> str:
        lines = [[self.by[0], *self.columns, TOTAL]]
        for name, low, high, total in zip(
            self.rows, self.low, self.high, self.row_totals, strict=True
        ):
            cells = [_cell(*ends) for ends in zip(low.tolist(), high.tolist(), strict=True)]
            lines.append([name, *cells, str(total)])
        lines.append([TOTAL, *map(str, self.column_totals), str(sum(self.row_totals))])
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        printed = [self.about]
        for first, *others in lines:
            cells = [f"{cell:>{width + 2}}" for cell, width in zip(others, widths[1:], strict=True)]
            printed.append(f"{first:<{widths[0]}}" + "".join(cells))
        if (self.low < self.high).any():
            printed.append(BETWEEN_NOTE)
        if (found := self.chi_square()) is not None:
            degrees = f"df {found.degrees_of_freedom}, p {found.p_value:.2g}"
            printed.append(f"Chi-square: {found.statistic:.3g} ({degrees})")
        return "\n".join(printed)

    def summary(self) -> dict[str, Any]:
        """Plain values under names that do not change."""
        test = self.chi_square()
        return {
            "about": self.about,
            "by": self.by,
            "rows": self.rows,
            "columns": self.columns,
            "counts": without_nan(self.counts.tolist()),
            "low": self.low.tolist(),
            "high": self.high.tolist(),
            "row_totals": self.row_totals,
            "column_totals": self.column_totals,
            "minimum": self.minimum,
            "chi_square": None if test is None else test._asdict(),
        }

    def save(self, path: str | Path) -> Path:
        """Write it as one JSON file."""
        content = {"coterie_crosstab": 1, **self.summary()}
        return write_atomically(path, json.dumps(content, allow_nan=False).encode())

    @staticmethod
    def load(path: str | Path) -> Crosstab:
        """Read what `save` wrote."""
        text = read_bytes(path)
        with readable(path, "two-way table"):
            content = json.loads(text)
            if content.pop("coterie_crosstab") != 1:
                raise ValueError("a newer version wrote it")
            first, second = content["by"]
            return Crosstab(
                content["about"],
                (first, second),
                tuple(content["rows"]),
                tuple(content["columns"]),
                np.array(content["low"], float),
                np.array(content["high"], float),
                tuple(content["row_totals"]),
                tuple(content["column_totals"]),
                content["minimum"],
            )


def _cell(low: float, high: float) -> str:
    return f"{low:.0f}" if low == high else f"{low:.0f} to {high:.0f}"


def crosstab(
    data: Any,
    rows: str,
    columns: str,
    *,
    minimum: int = 1,
    engine: str | Engine = Placement.engine,
    secure_sums: bool | None = Settings.secure_sums,
) -> Crosstab:
    """Count the rows of all parties by the values of two columns.

    Parameters
    ----------
    data : one party's data or a list
        Frames, files, `(X, y)`, Tables, or on a cluster callables and `Rows`. Values may be text,
        numbers or missing.
    rows, columns : str
        The column whose values are down, and the one whose values are across. `label` are labels
            without a name.
    minimum : int, default=1
        Least number of rows of a party, in a value or a cell that it tells. It counts rows of rarer
        values as `(other)`. It withholds smaller cells, and as many others as it takes so that no
        total tells a smaller one.
    engine : str or Engine, default="local"
        Where the data is read and counted.
    secure_sums : bool, optional
        Whether parties see sums over all parties only.

    Returns
    -------
    Crosstab
        Counts, bounds where a party withholds rows, totals, and `chi_square()`.

    Raises
    ------
    InvalidData
        If a party has no such column, or more than 50 different values in it.

    Examples
    --------
    >>> import coterie as co, pandas as pd
    >>> north = pd.DataFrame({"city": ["Bern", "Oslo", "Oslo"], "ill": ["no", "no", "yes"]})
    >>> print(co.crosstab([north, north], "city", "ill"))
    6 rows of 2 parties: city by ill
    city   no  yes  total
    Bern    2    0      2
    Oslo    2    2      4
    total   4    2      6
    Chi-square: 1.5 (df 1, p 0.22)
    """
    rules = Rules(whole_number("minimum", minimum))
    meeting = Meeting(network="star", secure_sums=secure_sums, prepare=RAW, rules=rules)
    data = data if isinstance(data, list | Rows) else [data]
    asked = CrossTabulate(rows, columns)
    with hosted(asked, data, meeting, engine) as parties:
        return asked.together(parties)


@dataclass(frozen=True)
class CrossTabulate(Operation[Crosstab]):
    """Count the rows of all parties by the values of two columns."""

    name: ClassVar[str] = "crosstab"
    file: ClassVar[str] = "crosstab"
    splits: ClassVar[tuple[str, ...]] = ("samples",)
    matches: ClassVar[bool] = False
    discloses: ClassVar = (two_way,)

    rows: str
    columns: str

    def __post_init__(self) -> None:
        if self.rows == self.columns:
            raise InvalidInput(f"rows and columns are both {self.rows!r}. Name two columns.")

    def alone(self, table: Table) -> Table:
        by = (self.rows, self.columns)
        table = raw_columns(table, None, by)
        for name, cells in zip(by, cells_of(table), strict=bool(table.d)):
            values, _ = cells.counted(text=True)
            if len(values) > MOST_CATEGORIES:
                raise party_error(
                    table.name,
                    f"column {name!r} has {len(values)} different values, and a table at most "
                    f"{MOST_CATEGORIES}. Put "
                    "them into classes first.",
                )
        return table

    def together(self, parties: Parties) -> Crosstab:
        parties = in_common(parties)
        found = parties.run_protocol(partial(two_way, parties.rules))
        assert found is not None
        low, high = bounds(found)
        count = sum(card.rows for card in parties.cards)
        held_by = "1 party" if len(parties.cards) == 1 else f"{len(parties.cards)} parties"
        return Crosstab(
            f"{count:,} rows of {held_by}: {self.rows} by {self.columns}",
            (self.rows, self.columns),
            _names(found.rows),
            _names(found.columns),
            low,
            high,
            _totals(found.rows),
            _totals(found.columns),
            parties.rules.minimum,
            parties.bill,
        )


def bounds(found: TwoWay) -> tuple[FloatArray, FloatArray]:
    """What each count is at least and at most: rows that are withheld are in some cell of their row
    and column.
    """
    rest_of_rows = np.array(_totals(found.rows)) - found.shown.sum(axis=1)
    rest_of_columns = np.array(_totals(found.columns)) - found.shown.sum(axis=0)
    most = np.minimum(rest_of_rows[:, None], rest_of_columns)
    return found.shown, np.where(found.withheld, found.shown + most, found.shown)


def _names(margin: Margin) -> tuple[str, ...]:
    known = [MISSING if value is None else value for value in margin.values]
    return (*known, OTHER) if margin.others else tuple(known)


def _totals(margin: Margin) -> tuple[int, ...]:
    return (*margin.totals, margin.others) if margin.others else margin.totals
