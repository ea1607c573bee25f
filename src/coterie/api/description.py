"""A description of columns: counts, means, quantiles, categories, correlations, as text and as a
file.
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from coterie.data.archives import read_bytes, readable, without_nan, write_atomically
from coterie.numerics.arrays import FloatArray
from coterie.run.bill import Bill

MOST_CORRELATIONS = 20
"""The maximum number of columns of a printed correlation matrix."""
OTHER = "(other)"
WIDE = 0.01
"""A quantile whose bounds are further apart than this share of it, or of the standard deviation, is
an interval.
"""
WIDE_NOTE = (
    "a to b: the quantile lies between a and b; too few rows, or too few numbers allowed, to know "
    "it better."
)


@dataclass(frozen=True)
class ColumnSummary:
    """One column over all rows; NaN where too few rows have a value."""

    name: str
    count: int
    """Rows with a value."""
    missing: int
    mean: float = math.nan
    std: float = math.nan
    """The standard deviation, with n − 1 in the denominator."""
    quantiles: tuple[float, ...] = ()
    """NaN where a quantile is known only to be between `low` and `high`, and these are far apart
    (`WIDE`).
    """
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()
    """Each quantile of the pooled values is between these."""
    categories: dict[str, int] | None = None
    """Rows of each category; rare ones are pooled. None for numbers, and for text with too many
    different values.
    """
    text: bool = False


@dataclass(frozen=True)
class Description:
    """Columns of one party or of several, from sums and counts."""

    about: str
    rows: int
    columns: tuple[ColumnSummary, ...]
    probabilities: tuple[float, ...]
    """The probabilities of the quantiles."""
    target: str | None = None
    """The column of labels; its categories are the classes."""
    correlated: tuple[str, ...] = ()
    correlation: FloatArray | None = None
    """Pearson's correlation of each two columns, over the rows that have both."""
    notes: tuple[str, ...] = ()
    """Numbers that were left out, with the reasons."""
    parties: dict[str, Description] = field(default_factory=dict)
    """Descriptions of single parties, of those whose policy allows it."""
    bill: Bill | None = field(default=None, repr=False, compare=False)
    """Messages that were sent for the description; not saved."""

    def __getitem__(self, name: str) -> ColumnSummary:
        return next(column for column in self.columns if column.name == name)

    @property
    def labels(self) -> dict[str, int] | None:
        """Rows of each class, where there is a target of classes."""
        if self.target is None:
            return None
        return self[self.target].categories

    def __str__(self) -> str:
        cells = {column.name: _cells(column) for column in self.columns}
        lines = [self.about, *self._table(cells)]
        if self.labels is not None:
            lines.append(f"Labels ({self.target}): {_listed(self.labels)}")
        if self.correlation is not None and 1 < len(self.correlated) <= MOST_CORRELATIONS:
            lines += self._correlations(self.correlation)
        if any(BETWEEN in cell for row in cells.values() for cell in row):
            lines.append(WIDE_NOTE)
        lines += self.notes
        for party, own in self.parties.items():
            described = replace(own, about=f"{party}: {own.about}")
            lines += ["", str(described)]
        return "\n".join(lines)

    @property
    def _width(self) -> int:
        """The width of the names of columns, in characters."""
        longest = max((len(column.name) for column in self.columns), default=0)
        return max(8, longest) + 2

    def _table(self, cells: dict[str, list[str]]) -> list[str]:
        """Write a line of headings, and a line per column."""
        heads = ["mean", "std", *(f"{100 * p:g}%" for p in self.probabilities)]
        widths = _widths(list(cells.values()), len(heads))
        head = f"{'':<{self._width}}{'count':>12}{'missing':>12}"
        lines = [head + _right_aligned(heads, widths)]
        for column in self.columns:
            start = f"{column.name:<{self._width}}{column.count:>12}{column.missing:>12}"
            if column.categories is not None:
                lines.append(f"{start}  {_listed(column.categories)}")
            elif column.text:
                lines.append(f"{start}  text with many different values")
            else:
                lines.append(start + _right_aligned(cells[column.name], widths))
        return lines

    def _correlations(self, correlation: FloatArray) -> list[str]:
        """Write the matrix of correlations."""
        heads = "".join(f"{name[:11]:>12}" for name in self.correlated)
        lines = ["Correlation", " " * self._width + heads]
        for name, row in zip(self.correlated, correlation.tolist(), strict=True):
            numbers = "".join(f"{_short(number, 3):>12}" for number in row)
            lines.append(f"{name:<{self._width}}{numbers}")
        return lines

    def summary(self) -> dict[str, Any]:
        """Collect plain values under names that do not change."""
        plain = asdict(replace(self, bill=None, parties={}))
        if self.correlation is not None:
            plain["correlation"] = self.correlation.tolist()
        plain["parties"] = {name: own.summary() for name, own in self.parties.items()}
        del plain["bill"]
        return plain

    def save(self, path: str | Path) -> Path:
        """Write the description as one JSON file."""
        content = without_nan({"coterie_description": 1, **self.summary()})
        return write_atomically(path, json.dumps(content, allow_nan=False).encode())

    @staticmethod
    def load(path: str | Path) -> Description:
        """Read a description that `save` wrote."""
        text = read_bytes(path)
        with readable(path, "description"):
            content = json.loads(text)
            if content.pop("coterie_description") != 1:
                raise ValueError("a newer version wrote it")
            return Description.of(content)

    @staticmethod
    def of(summary: dict[str, Any]) -> Description:
        """Make a description of plain values."""
        known = dict(summary)
        known["parties"] = {name: Description.of(own) for name, own in summary["parties"].items()}
        known["columns"] = tuple(_column(one) for one in summary["columns"])
        if summary["correlation"] is not None:
            rows = [[_number(cell) for cell in row] for row in summary["correlation"]]
            known["correlation"] = np.array(rows)
        for name in ("probabilities", "correlated", "notes"):
            known[name] = tuple(summary[name])
        return Description(**known)


def _column(plain: dict[str, Any]) -> ColumnSummary:
    known = dict(plain)
    for name in ("mean", "std"):
        known[name] = _number(plain[name])
    for name in ("quantiles", "low", "high"):
        known[name] = tuple(map(_number, plain[name]))
    return ColumnSummary(**known)


def _number(value: Any) -> float:
    if value is None:
        return math.nan
    return float(value)


def _widths(rows: list[list[str]], columns: int) -> list[int]:
    """The width of each column of cells, in characters."""
    widths = [12] * columns
    for row in rows:
        for k, cell in enumerate(row):
            widths[k] = max(widths[k], len(cell) + 2)
    return widths


def _right_aligned(cells: list[str], widths: list[int]) -> str:
    pairs = zip(cells, widths, strict=False)
    return "".join(f"{cell:>{width}}" for cell, width in pairs)


def _listed(categories: dict[str, int], most: int = 12) -> str:
    shown = [f"{name} {rows}" for name, rows in list(categories.items())[:most]]
    if len(categories) > most:
        shown.append(f"and {len(categories) - most} more")
    return ", ".join(shown) or "–"


def is_wide(low: float, high: float, spread: float) -> bool:
    """Whether bounds on a quantile are too far apart for one number, in a column of that standard
    deviation.
    """
    if not high > low:
        return False
    near = max(abs(low), abs(high))
    if spread > 0:
        near = min(near, spread)
    return not high - low <= WIDE * near


BETWEEN = " to "


def _cells(column: ColumnSummary) -> list[str]:
    """Write mean, standard deviation and quantiles of a column of numbers."""
    if column.categories is not None or column.text:
        return []
    cells = [_short(column.mean), _short(column.std)]
    for value, low, high in zip(column.quantiles, column.low, column.high, strict=True):
        if math.isfinite(value) and not is_wide(low, high, column.std):
            cells.append(_short(value))
        else:
            cells.append(_interval(low, high))
    return cells


def _interval(low: float, high: float) -> str:
    """Write the bounds of a quantile that is not known as a number."""
    if math.isnan(low) or math.isnan(high):
        return "–"
    return f"{_end(low)}{BETWEEN}{_end(high)}"


def _end(end: float) -> str:
    if math.isinf(end):
        return str(end)
    return _short(end)


def _short(value: float, digits: int = 5) -> str:
    if not math.isfinite(value):
        return "–"
    return f"{value:.{digits}g}"
