"""What columns look like: counts, means, quantiles, categories, correlations, as text and as a
file.
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from coterie.data.archives import read_bytes, readable, with_nan, without_nan, write_atomically
from coterie.numerics.arrays import FloatArray
from coterie.run.bill import Bill

MOST_CORRELATIONS = 20
"""Columns of a matrix that is printed."""
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
    """Of the quantiles."""
    target: str | None = None
    """The column of labels; its categories are the classes."""
    correlated: tuple[str, ...] = ()
    correlation: FloatArray | None = None
    """Pearson's, of each two columns over the rows that have both."""
    notes: tuple[str, ...] = ()
    """What was left out, and why."""
    parties: dict[str, Description] = field(default_factory=dict)
    """The same for single parties, of those that tell it."""
    bill: Bill | None = field(default=None, repr=False, compare=False)
    """What it cost to ask; not saved."""

    def __getitem__(self, name: str) -> ColumnSummary:
        return next(column for column in self.columns if column.name == name)

    @property
    def labels(self) -> dict[str, int] | None:
        """Rows of each class, where there is a target of classes."""
        return None if self.target is None else self[self.target].categories

    def __str__(self) -> str:
        wide = max([8, *(len(column.name) for column in self.columns)]) + 2
        heads = ["count", "missing", "mean", "std", *(f"{100 * p:g}%" for p in self.probabilities)]
        cells = {column.name: _cells(column) for column in self.columns}
        widths = [12, 12]
        for k in range(len(heads) - len(widths)):
            widths.append(max([12, *(len(row[k]) + 2 for row in cells.values() if k < len(row))]))
        lines = [
            self.about,
            " " * wide + "".join(f"{head:>{w}}" for head, w in zip(heads, widths, strict=True)),
        ]
        for column in self.columns:
            start = f"{column.name:<{wide}}{column.count:>12}{column.missing:>12}"
            if column.categories is not None:
                lines.append(f"{start}  {_listed(column.categories)}")
            elif column.text:
                lines.append(f"{start}  text with many different values")
            else:
                numbers = zip(cells[column.name], widths[2:], strict=False)
                lines.append(start + "".join(f"{cell:>{w}}" for cell, w in numbers))
        if self.labels is not None:
            lines.append(f"Labels ({self.target}): {_listed(self.labels)}")
        if self.correlation is not None and 1 < len(self.correlated) <= MOST_CORRELATIONS:
            lines += [
                "Correlation",
                " " * wide + "".join(f"{name[:11]:>12}" for name in self.correlated),
            ]
            for name, row in zip(self.correlated, self.correlation.tolist(), strict=True):
                lines.append(f"{name:<{wide}}" + "".join(f"{_short(x, 3):>12}" for x in row))
        if any(BETWEEN in cell for row in cells.values() for cell in row):
            lines.append(WIDE_NOTE)
        lines += list(self.notes)
        for party, own in self.parties.items():
            lines += ["", str(replace(own, about=f"{party}: {own.about}"))]
        return "\n".join(lines)

    def summary(self) -> dict[str, Any]:
        """Plain values under names that do not change."""
        plain = asdict(replace(self, bill=None, parties={}))
        plain["correlation"] = None if self.correlation is None else self.correlation.tolist()
        plain["parties"] = {name: own.summary() for name, own in self.parties.items()}
        del plain["bill"]
        return plain

    def save(self, path: str | Path) -> Path:
        """Write it as one JSON file."""
        content = without_nan({"coterie_description": 1, **self.summary()})
        return write_atomically(path, json.dumps(content, allow_nan=False).encode())

    @staticmethod
    def load(path: str | Path) -> Description:
        """Read what `save` wrote."""
        text = read_bytes(path)
        with readable(path, "description"):
            content = json.loads(text)
            if content.pop("coterie_description") != 1:
                raise ValueError("a newer version wrote it")
            return Description.of(content)

    @staticmethod
    def of(summary: dict[str, Any]) -> Description:
        """From plain values."""
        known = {
            **summary,
            "parties": {name: Description.of(own) for name, own in summary["parties"].items()},
        }
        matrix = summary["correlation"]
        known["correlation"] = (
            None if matrix is None else np.array([[_number(x) for x in row] for row in matrix])
        )
        known["columns"] = tuple(_column(one) for one in summary["columns"])
        known |= {name: tuple(summary[name]) for name in ("probabilities", "correlated", "notes")}
        return Description(**known)


def _column(plain: dict[str, Any]) -> ColumnSummary:
    series = {name: tuple(map(_number, plain[name])) for name in ("quantiles", "low", "high")}
    return ColumnSummary(
        **{**plain, **with_nan({name: plain[name] for name in ("mean", "std")}), **series}
    )


def _number(value: Any) -> float:
    return math.nan if value is None else float(value)


def _listed(categories: dict[str, int], most: int = 12) -> str:
    shown = [f"{name} {rows}" for name, rows in list(categories.items())[:most]]
    more = [f"and {len(categories) - most} more"] if len(categories) > most else []
    return ", ".join([*shown, *more]) or "–"


def is_wide(low: float, high: float, spread: float) -> bool:
    """Whether bounds on a quantile are too far apart for one number, in a column of that standard
    deviation.
    """
    if not high > low:
        return False
    near = max(abs(low), abs(high))
    near = min(near, spread) if spread > 0 else near
    return not high - low <= WIDE * near


BETWEEN = " to "


def _cells(column: ColumnSummary) -> list[str]:
    """Mean, standard deviation and quantiles of a column of numbers, in words."""
    if column.categories is not None or column.text:
        return []
    cells = [_short(column.mean), _short(column.std)]
    for value, low, high in zip(column.quantiles, column.low, column.high, strict=True):
        is_known = math.isfinite(value) and not is_wide(low, high, column.std)
        cells.append(_short(value) if is_known else _interval(low, high))
    return cells


def _interval(low: float, high: float) -> str:
    """Between what a quantile is, where it is not known as a number."""
    if math.isnan(low) or math.isnan(high):
        return "–"
    ends = [_short(end) if math.isfinite(end) else str(end) for end in (low, high)]
    return BETWEEN.join(ends)


def _short(value: float, digits: int = 5) -> str:
    return f"{value:.{digits}g}" if math.isfinite(value) else "–"
