"""What a fit says of its coefficients: standard errors, tests and intervals, as a table and as a
file.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from coterie.data.archives import read_bytes, readable, write_atomically
from coterie.errors import InvalidProblem
from coterie.numerics.arrays import FloatArray
from coterie.run.bill import Bill

VERSION = 2
TEXTS = ("names", "notes", "warnings")
"""Fields that are tuples of texts."""


@dataclass(frozen=True)
class Inference:
    """Standard errors, tests and intervals, one entry per coefficient; the intercept comes last.

    After a preparation that scales columns, coefficients are in the raw units of the columns.
    """

    kind: str
    names: tuple[str, ...]
    estimates: FloatArray
    standard_errors: FloatArray
    statistics: FloatArray
    """Estimates in standard errors."""
    p_values: FloatArray
    """Two-sided, that the coefficient is 0."""
    intervals: FloatArray
    """Lower and upper ends, a row per coefficient."""
    covariance: FloatArray
    level: float
    statistic: str
    """"t" where tests have degrees of freedom, else "z"."""
    rows: float
    """n: rows, or for weights that are counts the sum of them."""
    dispersion: float
    distance: float
    """At most so many standard errors are the coefficients from those of the best model (one Newton
    step).
    """
    about: str
    """Loss, kind and clusters, in words."""
    ratios: str = ""
    """What the exponential of a coefficient is, if that is worth a column: "hazard ratio"."""
    weights: str = ""
    """What the weights of the rows mean: one of `choices.WEIGHTS`; "" without weights."""
    correction: str = ""
    """The correction of small samples: one of `choices.CORRECTIONS`, "HC0 · n/(n − 1)", or "" for
    none.
    """
    degrees: FloatArray | None = None
    """The degrees of freedom of t, one per coefficient; None for z."""
    notes: tuple[str, ...] = ()
    """What is modelled, in which units, and how weights are taken, each as "label: value"."""
    warnings: tuple[str, ...] = ()
    """Why the numbers may be less reliable than they look."""
    fitted: FloatArray | None = None
    """The coefficients of the columns as they were prepared: per standard deviation after
    "standardise".
    """
    per_sd: bool = False
    """Whether `fitted` is a column of the table."""
    clusters: int = 0
    """How many clusters there are."""
    clusters_shared: int = 0
    """How many of them have rows at several agents, which held no parts of one table."""
    sums: FloatArray | None = field(default=None, repr=False, compare=False)
    """The sums over all parties that the table comes from."""
    bill: Bill | None = field(default=None, repr=False, compare=False)
    """What it cost to ask; not saved."""

    @property
    def columns(self) -> dict[str, FloatArray]:
        """The columns of the table, by their heads."""
        lower, upper = self.intervals.T
        found = {
            "coef": self.estimates,
            "std err": self.standard_errors,
            self.statistic: self.statistics,
        }
        found |= {"p": self.p_values, "lower": lower, "upper": upper}
        if self.degrees is not None and self.correction == "CR2":
            found["df"] = self.degrees
        if self.ratios:
            found |= {f"exp({name})": np.exp(found[name]) for name in ("coef", "lower", "upper")}
        if self.per_sd and self.fitted is not None:
            found["per SD"] = self.fitted
        return found

    def table(self) -> list[dict[str, Any]]:
        """A row per coefficient, under the names that statsmodels uses; for hazards also the ratio
        e^coef.

        CR2 has a column "df", the degrees of freedom; with per_sd=True, "per SD" has the
        coefficients of standardised columns.
        """
        columns = self.columns
        rows = zip(self.names, *(column.tolist() for column in columns.values()), strict=True)
        return [dict(zip(("name", *columns), row, strict=True)) for row in rows]

    def with_per_sd(self) -> Inference:
        """The same with the coefficients of standardised columns as a further column."""
        if self.fitted is None:
            raise InvalidProblem(
                "per_sd=True is for columns that were standardised before the fit. Fit with "
                "prepare='standardise'."
            )
        return replace(self, per_sd=True)

    def __str__(self) -> str:
        widest = max(map(len, self.names), default=0)
        tail = (1 - self.level) / 2
        shown = {"p": f"P>|{self.statistic}|", "lower": f"[{tail:.4g}", "upper": f"{1 - tail:.4g}]"}
        heads = [shown.get(head, head) for head in self.columns]
        lines = [" " * widest + "".join(f"{head:>12}" for head in heads)]
        for row in self.table():
            name, *numbers = row.values()
            cells = [
                f"{value:.3f}" if place == 3 else f"{value:.5g}"
                for place, value in enumerate(numbers)
            ]
            lines.append(f"{name:<{widest}}" + "".join(f"{cell:>12}" for cell in cells))
        rule = "=" * len(lines[0])
        warned = [f"warning: {text}" for text in self.warnings]
        return "\n".join(
            [self.about, *self.notes, rule, lines[0], "-" * len(rule), *lines[1:], rule, *warned]
        )

    def summary(self) -> dict[str, Any]:
        """The table with what it is about, as plain values: for programs."""
        return {
            "inference": self.table(),
            "inference_about": self.about,
            "inference_notes": list(self.notes),
            "inference_warnings": list(self.warnings),
        }

    def save(self, path: str | Path) -> Path:
        """Write it as one JSON file."""
        content = {**asdict(replace(self, bill=None)), "coterie_inference": VERSION, "bill": None}
        plain = {
            name: x.tolist() if isinstance(x, np.ndarray) else x for name, x in content.items()
        }
        return write_atomically(path, json.dumps(plain, allow_nan=False).encode())

    @staticmethod
    def load(path: str | Path) -> Inference:
        """Read what `save` wrote."""
        text = read_bytes(path)
        with readable(path, "inference"):
            content = json.loads(text)
            if content.pop("coterie_inference") not in (1, VERSION):
                raise ValueError("a newer version wrote it")
            texts = {name: tuple(map(str, content.pop(name))) for name in TEXTS if name in content}
            numbers = {name: np.array(x, float) for name, x in content.items() if type(x) is list}
            return Inference(**{**content, **numbers, **texts})
