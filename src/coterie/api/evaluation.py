"""How a model predicts other rows: scores, calibration, confusion, as text and as a file."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from coterie.data.archives import read_bytes, readable, with_nan, without_nan, write_atomically
from coterie.numerics.arrays import FloatArray
from coterie.run.bill import Bill

WORDS = {
    "deviance": "deviance",
    "null_deviance": "null deviance",
    "explained_deviance": "explained deviance",
    "r2": "R²",
    "rmse": "root mean squared error",
    "mae": "mean absolute error",
    "mean_loss": "mean loss",
    "mean_observed": "mean label",
    "mean_predicted": "mean prediction",
    "share_below": "labels below their prediction",
    "log_loss": "log loss",
    "accuracy": "accuracy",
    "balanced_accuracy": "balanced accuracy",
    "auc": "AUC",
    "brier": "Brier score",
    "sensitivity": "sensitivity",
    "specificity": "specificity",
    "precision": "precision",
    "f1": "F1",
    "calibration_error": "calibration error",
    "concordance": "concordance",
    "events": "events",
}
"""The printed names of the scores."""
HEADLINE = (
    "auc",
    "accuracy",
    "concordance",
    "r2",
    "explained_deviance",
    "rmse",
    "brier",
    "log_loss",
)
"""Scores for a headline, the most important first."""


@dataclass(frozen=True)
class Bin:
    """Rows whose predictions lie between two numbers, with their mean prediction and mean label."""

    low: float
    high: float
    weight: float
    """Rows, or the sum of their weights."""
    predicted: float
    """The mean prediction, NaN without rows."""
    observed: float
    """The mean label; of classes, the share of rows of that class."""

    @property
    def span(self) -> str:
        """The two ends of the bin, as text."""
        has_low = math.isfinite(self.low)
        has_high = math.isfinite(self.high)
        if has_low and has_high:
            return f"{self.low:.4g} to {self.high:.4g}"
        if has_low:
            return f"from {self.low:.4g}"
        if has_high:
            return f"below {self.high:.4g}"
        return ""


@dataclass(frozen=True)
class Evaluation:
    """Scores of a model on rows of one party or of several; NaN where a score is not defined."""

    about: str
    """Description of the model and the rows."""
    rows: int
    weight: float
    """The number of rows, or the sum of their weights."""
    scores: dict[str, float]
    auc_bound: float = 0.0
    """The AUC of the pooled rows is within this of the one here."""
    classes: tuple[Any, ...] | None = None
    confusion: FloatArray | None = None
    """Rows of each class (down) that were predicted as each class (across), or the sums of their
    weights.
    """
    calibration: tuple[Bin, ...] = ()
    roc: dict[str, FloatArray] = field(default_factory=dict, repr=False)
    """False and true positive rates by class; of two classes, of the second one."""
    parties: dict[str, dict[str, float]] = field(default_factory=dict)
    """The scores of single parties on their rows, of those whose policy allows it."""
    model: str = ""
    """The digest of the model, by which scores of another model are recognised."""
    notes: tuple[str, ...] = ()
    """Scores that were left out, with the reasons."""
    held_out: dict[str, Any] | None = None
    """How `coterie verify` finds the rows: `share` and `seed` of the rows of the fit that were held
    out, or `files`. None if the rows are not known.
    """
    bill: Bill | None = field(default=None, repr=False, compare=False)
    """Messages that were sent for the scores; not saved."""

    def headline(self) -> str:
        """Write two or three scores in a line."""
        known = [name for name in HEADLINE if math.isfinite(self.scores.get(name, math.nan))]
        return ", ".join(f"{WORDS[name]} {self.scores[name]:.4g}" for name in known[:3])

    def table(self) -> list[tuple[str, str]]:
        """List the scores with their printed names, as text."""
        rows = []
        for name, value in self.scores.items():
            rows.append((WORDS.get(name, name), self._written(name, value)))
        return rows

    def _written(self, name: str, value: float) -> str:
        if not math.isfinite(value):
            return "–"
        if name == "auc" and self.auc_bound:
            return f"{value:.6g} ± {self.auc_bound:.1g}"
        return f"{value:.6g}"

    def __str__(self) -> str:
        lines = [self.about]
        for name, value in self.table():
            lines.append(f"  {name:<32}{value:>14}")
        if self.confusion is not None and self.classes is not None:
            lines.append("Confusion (true class down, predicted class across)")
            lines += _grid(self.classes, self.confusion)
        if self.calibration:
            lines.append("Calibration")
            lines.append(f"  {'prediction':<20}{'rows':>10}{'predicted':>12}{'observed':>12}")
        for one in self.calibration:
            predicted = _short(one.predicted)
            observed = _short(one.observed)
            lines.append(f"  {one.span:<20}{one.weight:>10.6g}{predicted:>12}{observed:>12}")
        for party, scores in self.parties.items():
            lines.append(_line(party, scores))
        lines += self.notes
        return "\n".join(lines)

    def summary(self) -> dict[str, Any]:
        """Collect plain values under names that do not change, without the curves."""
        plain = asdict(replace(self, bill=None, roc={}))
        if self.confusion is not None:
            plain["confusion"] = self.confusion.tolist()
        del plain["bill"], plain["roc"]
        if self.held_out is None:
            del plain["held_out"]
        return plain

    def save(self, path: str | Path) -> Path:
        """Write the evaluation as one JSON file."""
        curves = {name: points.tolist() for name, points in self.roc.items()}
        content = {"coterie_evaluation": 1, **self.summary(), "roc": curves}
        return write_atomically(path, json.dumps(without_nan(content), allow_nan=False).encode())

    @staticmethod
    def load(path: str | Path) -> Evaluation:
        """Read an evaluation that `save` wrote."""
        text = read_bytes(path)
        with readable(path, "evaluation"):
            content = json.loads(text)
            if content.pop("coterie_evaluation") != 1:
                raise ValueError("a newer version wrote it")
            return _evaluation(content)


def _evaluation(content: dict[str, Any]) -> Evaluation:
    """Make an evaluation of the values in its file."""
    known = dict(content)
    known["scores"] = with_nan(content["scores"])
    if content["classes"] is not None:
        known["classes"] = tuple(content["classes"])
    if content["confusion"] is not None:
        known["confusion"] = np.array(content["confusion"], float)
    known["calibration"] = tuple(Bin(**with_nan(one)) for one in content["calibration"])
    known["roc"] = {name: _curve(points) for name, points in content["roc"].items()}
    known["parties"] = {name: with_nan(one) for name, one in content["parties"].items()}
    known["notes"] = tuple(content.get("notes", ()))
    return Evaluation(**known)


def _curve(points: list[list[float]]) -> FloatArray:
    return np.array(points, float).reshape(-1, 2)


def _line(party: str, scores: dict[str, float]) -> str:
    """Write the scores of one party in a line."""
    cells = [f"{scores['rows']:g} rows"]
    for name, value in scores.items():
        if name != "rows":
            cells.append(f"{WORDS.get(name, name)} {_short(value)}")
    return f"{party}: {', '.join(cells)}"


def _grid(classes: Sequence[Any], confusion: FloatArray) -> list[str]:
    names = [str(label) for label in classes]
    wide = max(10, *(len(name) + 2 for name in names))
    lines = [" " * wide + "".join(f"{name:>{wide}}" for name in names)]
    for name, row in zip(names, confusion.tolist(), strict=True):
        lines.append(f"{name:>{wide}}" + "".join(f"{value:>{wide}.6g}" for value in row))
    return lines


def _short(value: float) -> str:
    if not math.isfinite(value):
        return "–"
    return f"{value:.4g}"
