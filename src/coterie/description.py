"""What columns look like: counts, means, quantiles, categories, correlations, as text and as a file."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from coterie.arrays import FloatArray
from coterie.bill import Bill
from coterie.files import read_bytes, readable, with_nan, without_nan, write_atomically

MOST_CORRELATIONS = 20
"""Columns of a matrix that is printed."""
OTHER = "(other)"


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
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()
    """Each quantile of the pooled values is between these."""
    categories: dict[str, int] | None = None
    """Rows of each category; rare ones are pooled. None for numbers, and for text with too many different values."""
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
        lines = [self.about, " " * wide + "".join(f"{head:>12}" for head in heads)]
        for column in self.columns:
            start = f"{column.name:<{wide}}{column.count:>12}{column.missing:>12}"
            if column.categories is not None:
                lines.append(f"{start}  {_listed(column.categories)}")
            elif column.text:
                lines.append(f"{start}  text with many different values")
            else:
                lines.append(start + "".join(f"{_short(x):>12}" for x in (column.mean, column.std, *column.quantiles)))
        if self.labels is not None:
            lines.append(f"Labels ({self.target}): {_listed(self.labels)}")
        if self.correlation is not None and 1 < len(self.correlated) <= MOST_CORRELATIONS:
            lines += ["Correlation", " " * wide + "".join(f"{name[:11]:>12}" for name in self.correlated)]
            for name, row in zip(self.correlated, self.correlation.tolist(), strict=True):
                lines.append(f"{name:<{wide}}" + "".join(f"{_short(x, 3):>12}" for x in row))
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
        known = {**summary, "parties": {name: Description.of(own) for name, own in summary["parties"].items()}}
        matrix = summary["correlation"]
        known["correlation"] = None if matrix is None else np.array([[_number(x) for x in row] for row in matrix])
        known["columns"] = tuple(_column(one) for one in summary["columns"])
        known |= {name: tuple(summary[name]) for name in ("probabilities", "correlated", "notes")}
        return Description(**known)


def _column(plain: dict[str, Any]) -> ColumnSummary:
    series = {name: tuple(map(_number, plain[name])) for name in ("quantiles", "low", "high")}
    return ColumnSummary(**{**plain, **with_nan({name: plain[name] for name in ("mean", "std")}), **series})


def _number(value: Any) -> float:
    return math.nan if value is None else float(value)


def _listed(categories: dict[str, int], most: int = 12) -> str:
    shown = [f"{name} {rows}" for name, rows in list(categories.items())[:most]]
    more = [f"and {len(categories) - most} more"] if len(categories) > most else []
    return ", ".join([*shown, *more]) or "–"


def _short(value: float, digits: int = 5) -> str:
    return f"{value:.{digits}g}" if math.isfinite(value) else "–"
