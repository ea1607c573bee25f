"""How well a model predicts rows that it was not fitted to: scores, calibration, confusion, as text
and as a file.
"""

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
    "null_deviance": "deviance of the best constant",
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
"""What the scores are called."""
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
"""Of these, the first ones that there are, for a line."""


@dataclass(frozen=True)
class Bin:
    """Rows whose predictions lie between two numbers: what was predicted, and what came true."""

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
        """Its two ends, as text."""
        ends = [f"{end:.4g}" for end in (self.low, self.high) if math.isfinite(end)]
        return (
            " to ".join(ends)
            if len(ends) != 1
            else f"{'below' if math.isfinite(self.high) else 'from'} {ends[0]}"
        )


@dataclass(frozen=True)
class Evaluation:
    """Scores of a model on rows of one party or of several; NaN where a score is not defined."""

    about: str
    """What was evaluated, in words."""
    rows: int
    weight: float
    """Σs: the rows, or the sum of their weights."""
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
    """The scores of single parties on their rows, of those that tell them."""
    model: str = ""
    """The digest of the model, so that scores of another one are not taken for those of this one.
    """
    notes: tuple[str, ...] = ()
    """What was left out, and why."""
    held_out: dict[str, Any] | None = None
    """Which rows these are, so that `coterie verify` finds them: `share` and `seed` of the rows of
    the fit that were held out, or `files`; None if nobody says.
    """
    bill: Bill | None = field(default=None, repr=False, compare=False)
    """What it cost to ask; not saved."""

    def headline(self) -> str:
        """Two or three scores in a line."""
        known = [name for name in HEADLINE if math.isfinite(self.scores.get(name, math.nan))]
        return ", ".join(f"{WORDS[name]} {self.scores[name]:.4g}" for name in known[:3])

    def table(self) -> list[tuple[str, str]]:
        """The scores with their names, as text."""
        return [
            (WORDS.get(name, name), self._written(name, value))
            for name, value in self.scores.items()
        ]

    def _written(self, name: str, value: float) -> str:
        if not math.isfinite(value):
            return "–"
        exact = f" ± {self.auc_bound:.1g}" if name == "auc" and self.auc_bound else ""
        return f"{value:.6g}{exact}"

    def __str__(self) -> str:
        lines = [self.about]
        lines += [f"  {name:<32}{value:>14}" for name, value in self.table()]
        if self.confusion is not None and self.classes is not None:
            lines += [
                "Confusion (true class down, predicted class across)",
                *_grid(self.classes, self.confusion),
            ]
        if self.calibration:
            lines += [
                "Calibration",
                f"  {'prediction':<20}{'rows':>10}{'predicted':>12}{'observed':>12}",
            ]
            for one in self.calibration:
                predicted, observed = _short(one.predicted), _short(one.observed)
                lines.append(f"  {one.span:<20}{one.weight:>10.6g}{predicted:>12}{observed:>12}")
        for party, scores in self.parties.items():
            told = [
                f"{WORDS.get(name, name)} {_short(value)}"
                for name, value in scores.items()
                if name != "rows"
            ]
            lines.append(f"{party}: {scores['rows']:g} rows, {', '.join(told)}")
        lines += self.notes
        return "\n".join(lines)

    def summary(self) -> dict[str, Any]:
        """Plain values under names that do not change, without the curves."""
        plain = asdict(replace(self, bill=None, roc={}))
        plain["confusion"] = None if self.confusion is None else self.confusion.tolist()
        unsaid = {"bill", "roc"} if self.held_out is not None else {"bill", "roc", "held_out"}
        return {name: value for name, value in plain.items() if name not in unsaid}

    def save(self, path: str | Path) -> Path:
        """Write it as one JSON file."""
        curves = {name: points.tolist() for name, points in self.roc.items()}
        content = {"coterie_evaluation": 1, **self.summary(), "roc": curves}
        return write_atomically(path, json.dumps(without_nan(content), allow_nan=False).encode())

    @staticmethod
    def load(path: str | Path) -> Evaluation:
        """Read what `save` wrote."""
        text = read_bytes(path)
        with readable(path, "evaluation"):
            content = json.loads(text)
            if content.pop("coterie_evaluation") != 1:
                raise ValueError("a newer version wrote it")
            classes, confusion = content["classes"], content["confusion"]
            return Evaluation(
                **{
                    **content,
                    "scores": with_nan(content["scores"]),
                    "classes": None if classes is None else tuple(classes),
                    "confusion": None if confusion is None else np.array(confusion, float),
                    "calibration": tuple(Bin(**with_nan(one)) for one in content["calibration"]),
                    "roc": {
                        name: np.array(rows, float).reshape(-1, 2)
                        for name, rows in content["roc"].items()
                    },
                    "parties": {name: with_nan(one) for name, one in content["parties"].items()},
                    "notes": tuple(content.get("notes", ())),
                }
            )


def _grid(classes: Sequence[Any], confusion: FloatArray) -> list[str]:
    names = [str(label) for label in classes]
    wide = max(10, *(len(name) + 2 for name in names))
    lines = [" " * wide + "".join(f"{name:>{wide}}" for name in names)]
    for name, row in zip(names, confusion.tolist(), strict=True):
        lines.append(f"{name:>{wide}}" + "".join(f"{value:>{wide}.6g}" for value in row))
    return lines


def _short(value: float) -> str:
    return f"{value:.4g}" if math.isfinite(value) else "–"
