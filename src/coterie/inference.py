"""What a fit says of its coefficients: standard errors, tests and intervals, as a table and as a file."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from coterie.arrays import FloatArray
from coterie.bill import Bill
from coterie.files import read_bytes, readable, write_atomically

KINDS = ("model", "robust", "clustered")


@dataclass(frozen=True)
class Inference:
    """Standard errors, tests and intervals, one entry per coefficient; the intercept comes last."""

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
    """"t" for squared loss and kind "model", as least squares has it; else "z"."""
    rows: float
    """n: rows, or the sum of their weights."""
    dispersion: float
    distance: float
    """At most so many standard errors are the coefficients from those of the best model (one Newton step)."""
    about: str
    """Loss, kind and clusters, in words."""
    ratios: str = ""
    """What the exponential of a coefficient is, if that is worth a column: "hazard ratio"."""
    bill: Bill | None = field(default=None, repr=False, compare=False)
    """What it cost to ask; not saved."""

    def table(self) -> list[dict[str, Any]]:
        """A row per coefficient, under the names that statsmodels uses; for hazards also the ratio e^coef."""
        columns = (self.estimates, self.standard_errors, self.statistics, self.p_values, *self.intervals.T)
        heads = ["coef", "std err", self.statistic, "p", "lower", "upper"]
        if self.ratios:
            columns += tuple(np.exp(column) for column in (self.estimates, *self.intervals.T))
            heads += [f"exp({name})" for name in ("coef", "lower", "upper")]
        rows = zip(self.names, *(column.tolist() for column in columns), strict=True)
        return [dict(zip(("name", *heads), row, strict=True)) for row in rows]

    def __str__(self) -> str:
        widest = max(map(len, self.names), default=0)
        tail = (1 - self.level) / 2
        heads = ["coef", "std err", self.statistic, f"P>|{self.statistic}|", f"[{tail:.4g}", f"{1 - tail:.4g}]"]
        heads += ["exp(coef)", "exp(lower)", "exp(upper)"] if self.ratios else []
        lines = [" " * widest + "".join(f"{head:>12}" for head in heads)]
        for row in self.table():
            name, *numbers = row.values()
            cells = [f"{value:.3f}" if place == 3 else f"{value:.5g}" for place, value in enumerate(numbers)]
            lines.append(f"{name:<{widest}}" + "".join(f"{cell:>12}" for cell in cells))
        rule = "=" * len(lines[0])
        return "\n".join([self.about, rule, lines[0], "-" * len(rule), *lines[1:], rule])

    def save(self, path: str | Path) -> Path:
        """Write it as one JSON file."""
        content = {**asdict(replace(self, bill=None)), "coterie_inference": 1, "bill": None}
        plain = {name: x.tolist() if isinstance(x, np.ndarray) else x for name, x in content.items()}
        return write_atomically(path, json.dumps(plain, allow_nan=False).encode())

    @staticmethod
    def load(path: str | Path) -> Inference:
        """Read what `save` wrote."""
        text = read_bytes(path)
        with readable(path, "inference"):
            content = json.loads(text)
            if content.pop("coterie_inference") != 1:
                raise ValueError("a newer version wrote it")
            numbers = {name: np.array(x, float) for name, x in content.items() if name != "names" and type(x) is list}
            return Inference(**{**content, **numbers, "names": tuple(content["names"])})
