"""Standard errors, tests and intervals of the coefficients of a fit, as a table and as a file."""

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
    """The estimates divided by their standard errors."""
    p_values: FloatArray
    """Two-sided p-values of the hypothesis that the coefficient is 0."""
    intervals: FloatArray
    """The lower and upper ends of the intervals, a row per coefficient."""
    covariance: FloatArray
    level: float
    statistic: str
    """"t" where tests have degrees of freedom, else "z"."""
    rows: float
    """The number of rows, or the sum of the weights if these are counts."""
    dispersion: float
    distance: float
    """The largest distance of a coefficient from that of the best model, in standard errors
    (estimated by one Newton step).
    """
    about: str
    """Description of loss, kind and clusters."""
    ratios: str = ""
    """The name of the exponential of a coefficient, if it has a column: "hazard ratio"."""
    weights: str = ""
    """The meaning of the weights of the rows: one of `choices.WEIGHTS`; "" without weights."""
    correction: str = ""
    """The correction of small samples: one of `choices.CORRECTIONS`, "HC0 · n/(n − 1)", or "" for
    none.
    """
    degrees: FloatArray | None = None
    """The degrees of freedom of t, one per coefficient; None for z."""
    notes: tuple[str, ...] = ()
    """Notes on the modelled class, the units and the weights, each as "label: value"."""
    warnings: tuple[str, ...] = ()
    """Reasons why the numbers may be less reliable than they look."""
    fitted: FloatArray | None = None
    """The coefficients of the columns as they were prepared: per standard deviation after
    "standardise".
    """
    per_sd: bool = False
    """Whether `fitted` is a column of the table."""
    clusters: int = 0
    """The number of clusters."""
    clusters_shared: int = 0
    """The number of clusters with rows at several agents, which held no parts of one table."""
    sums: FloatArray | None = field(default=None, repr=False, compare=False)
    """The sums over all parties that the table comes from."""
    bill: Bill | None = field(default=None, repr=False, compare=False)
    """Messages that were sent for the standard errors; not saved."""

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
        """List a row per coefficient, under the names that statsmodels uses; for hazards also the
        ratio e^coef.

        CR2 has a column "df", the degrees of freedom; with per_sd=True, "per SD" has the
        coefficients of standardised columns.
        """
        columns = self.columns
        rows = zip(self.names, *(column.tolist() for column in columns.values()), strict=True)
        return [dict(zip(("name", *columns), row, strict=True)) for row in rows]

    def with_per_sd(self) -> Inference:
        """Add the coefficients of standardised columns as a further column of the table."""
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
            cells = [_cell(place, value) for place, value in enumerate(numbers)]
            lines.append(f"{name:<{widest}}" + "".join(cells))
        head, *body = lines
        rule = "=" * len(head)
        printed = [self.about, *self.notes, rule, head, "-" * len(rule), *body, rule]
        for text in self.warnings:
            printed.append(f"warning: {text}")
        return "\n".join(printed)

    def summary(self) -> dict[str, Any]:
        """Collect the table and its description as plain values, for programs."""
        return {
            "inference": self.table(),
            "inference_about": self.about,
            "inference_notes": list(self.notes),
            "inference_warnings": list(self.warnings),
        }

    def save(self, path: str | Path) -> Path:
        """Write the table as one JSON file."""
        content = asdict(replace(self, bill=None))
        content["coterie_inference"] = VERSION
        for name, value in content.items():
            if isinstance(value, np.ndarray):
                content[name] = value.tolist()
        return write_atomically(path, json.dumps(content, allow_nan=False).encode())

    @staticmethod
    def load(path: str | Path) -> Inference:
        """Read a table that `save` wrote."""
        text = read_bytes(path)
        with readable(path, "inference"):
            content = json.loads(text)
            if content.pop("coterie_inference") not in (1, VERSION):
                raise ValueError("a newer version wrote it")
            texts = {name: tuple(map(str, content.pop(name))) for name in TEXTS if name in content}
            numbers = {name: np.array(x, float) for name, x in content.items() if type(x) is list}
            return Inference(**{**content, **numbers, **texts})


def _cell(place: int, value: float) -> str:
    """Write one number of a row; the fourth is a p-value."""
    if place == 3:
        return f"{value:>12.3f}"
    return f"{value:>12.5g}"
