"""Two-way tables: the number of rows of all parties with each value of one column and each of
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

from coterie.api.describe import RAW, about, in_a_list, in_common, raw_columns
from coterie.api.description import OTHER
from coterie.data import Table
from coterie.data.archives import read_bytes, readable, without_nan, write_atomically
from coterie.data.preparation.prepared import cells_of
from coterie.data.table import party_error
from coterie.engines import Engine
from coterie.errors import InvalidInput
from coterie.numerics.arrays import FloatArray, whole_number
from coterie.run.bill import Bill
from coterie.run.groups import wrong_counts
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
    """Description of the rows that were counted."""
    by: tuple[str, str]
    """The columns whose values name the rows, and the columns, of the table."""
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
    """The smallest group of a party's rows that the table may show."""
    bill: Bill | None = field(default=None, repr=False, compare=False)
    """Messages that were sent for the table; not saved."""

    @property
    def counts(self) -> FloatArray:
        """The rows of each cell; NaN where a party withholds some."""
        return np.where(self.low == self.high, self.low, np.nan)

    def chi_square(self) -> ChiSquare | None:
        """Test whether the columns depend on each other, over the rows that have both.

        Returns
        -------
        ChiSquare or None
            None if a party withholds rows, or if a column has fewer than two values.
        """
        known_rows = [name != MISSING for name in self.rows]
        known_columns = [name != MISSING for name in self.columns]
        counts = self.counts[np.ix_(known_rows, known_columns)]
        counts = counts[np.ix_(counts.sum(axis=1) != 0, counts.sum(axis=0) != 0)]
        if np.isnan(counts).any() or min(counts.shape) < 2:
            return None
        expected = np.outer(counts.sum(axis=1), counts.sum(axis=0)) / counts.sum()
        statistic = float(((counts - expected) ** 2 / expected).sum())
        degrees = (counts.shape[0] - 1) * (counts.shape[1] - 1)
        return ChiSquare(statistic, degrees, float(chdtrc(degrees, statistic)))

    def __str__(self) -> str:
        lines = [self.about, *_aligned(self._cells())]
        if (self.low < self.high).any():
            lines.append(BETWEEN_NOTE)
        found = self.chi_square()
        if found is not None:
            degrees = f"df {found.degrees_of_freedom}, p {found.p_value:.2g}"
            lines.append(f"Chi-square: {found.statistic:.3g} ({degrees})")
        return "\n".join(lines)

    def _cells(self) -> list[list[str]]:
        """The table as text: heading, rows, totals."""
        cells = [[self.by[0], *self.columns, TOTAL]]
        low = self.low.tolist()
        high = self.high.tolist()
        for place, name in enumerate(self.rows):
            counts = map(_cell, low[place], high[place])
            cells.append([name, *counts, str(self.row_totals[place])])
        cells.append([TOTAL, *map(str, self.column_totals), str(sum(self.row_totals))])
        return cells

    def summary(self) -> dict[str, Any]:
        """Collect plain values under names that do not change."""
        chi_square = None
        test = self.chi_square()
        if test is not None:
            chi_square = test._asdict()
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
            "chi_square": chi_square,
        }

    def save(self, path: str | Path) -> Path:
        """Write the table as one JSON file."""
        content = {"coterie_crosstab": 1, **self.summary()}
        return write_atomically(path, json.dumps(content, allow_nan=False).encode())

    @staticmethod
    def load(path: str | Path) -> Crosstab:
        """Read a table that `save` wrote."""
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
    if low == high:
        return f"{low:.0f}"
    return f"{low:.0f} to {high:.0f}"


def _aligned(cells: list[list[str]]) -> list[str]:
    """Align columns of text: the first to the left, the others to the right."""
    first, *others = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = []
    for name, *values in cells:
        line = f"{name:<{first}}"
        for value, width in zip(values, others, strict=True):
            line += f"{value:>{width + 2}}"
        lines.append(line)
    return lines


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
        The columns whose values name the rows and the columns of the table. Labels without a name
        are the column `label`.
    minimum : int, default=1
        Smallest group of a party's rows that the table may show. A party counts rows of rarer
        values as `(other)`. It withholds smaller cells, and as many others as necessary, so that
        no total reveals a smaller cell.
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
    asked = CrossTabulate(rows, columns)
    with hosted(asked, in_a_list(data), meeting, engine) as parties:
        return asked.together(parties)


@dataclass(frozen=True)
class CrossTabulate(Operation[Crosstab]):
    """Count the rows of all parties by the values of two columns."""

    name: ClassVar[str] = "crosstab"
    file: ClassVar[str] = "crosstab"
    tabulates: ClassVar[bool] = True
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
                    f"{MOST_CATEGORIES}. Put them into classes first.",
                )
        return table

    def together(self, parties: Parties) -> Crosstab:
        parties = in_common(parties)
        found = parties.run_protocol(partial(two_way, parties.rules))
        assert found is not None
        low, high = bounds(found)
        rows = sum(card.rows for card in parties.cards)
        if sum(found.rows.all_totals) != rows:
            raise wrong_counts("rows")
        return Crosstab(
            f"{about(rows, len(parties.cards))}: {self.rows} by {self.columns}",
            (self.rows, self.columns),
            _names(found.rows),
            _names(found.columns),
            low,
            high,
            found.rows.all_totals,
            found.columns.all_totals,
            parties.rules.minimum,
            parties.bill,
        )


def bounds(found: TwoWay) -> tuple[FloatArray, FloatArray]:
    """Compute the least and the largest value that each count can have.

    Rows that are withheld are in some cell of their row and column.
    """
    rest_of_rows = np.array(found.rows.all_totals) - found.shown.sum(axis=1)
    rest_of_columns = np.array(found.columns.all_totals) - found.shown.sum(axis=0)
    most = np.minimum(rest_of_rows[:, None], rest_of_columns)
    return found.shown, np.where(found.withheld, found.shown + most, found.shown)


def _names(margin: Margin) -> tuple[str, ...]:
    names = []
    for value in margin.values:
        if value is None:
            names.append(MISSING)
        else:
            names.append(value)
    if margin.others:
        names.append(OTHER)
    return tuple(names)
