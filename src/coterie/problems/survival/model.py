"""Proportional hazards: a coefficient a column, the logarithm of a hazard ratio; and baselines,
which stay at home.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from coterie.data import read, validated
from coterie.data.archives import csv_text, write_atomically
from coterie.errors import InvalidData, InvalidProblem, UnknownName
from coterie.numerics.arrays import Design, FloatArray, Matrix, product
from coterie.problems.linear.model import LinearModel
from coterie.problems.survival.likelihood import CoxLocalLoss, RiskSets


@dataclass(frozen=True)
class SurvivalModel(LinearModel):
    """Hazards are in proportion to e^{X·coef_}; what they are in proportion to stays at the
    parties, see `baseline`.
    """

    kind: ClassVar[str] = "survival"

    def hazard_ratios(self) -> FloatArray:
        """e^coef: what the hazard is multiplied by where a column is larger by 1."""
        return np.exp(self.coef_)

    def predict_proba(self, X: Matrix, offset: Any = None) -> FloatArray:
        """Refused: there are no classes."""
        raise InvalidProblem(
            "a survival model has no classes. Use predict for risk scores, and baseline for curves."
        )

    def baseline(self, data: Any) -> Baseline:
        """Breslow's estimate of the baseline hazard of one party's rows, (X, y) or a `Table`, which
        stays there.
        """
        table = read(data, prepare=self.preparation)
        if table.y is None or np.ndim(table.y) != 2:
            raise InvalidData(
                "the rows have no times and events. Give labels as co.survival_labels makes them."
            )
        table = validated(replace(self.prepared(table), columns=None), classification=None)
        assert table.y is not None
        scores = self.with_offset(product(table.X, self.coef_), table.offset)
        risk = RiskSets(table.y.astype(float), table.weights)
        if len(scores):
            reference = float(np.average(scores, weights=risk.weights))
        else:
            reference = 0.0
        local = CoxLocalLoss(self.coef_, Design(table.X), risk, scores - reference)
        # Sums over risk sets are beside the largest score of their stratum.
        most = risk.largest(scores - reference)
        curves = []
        for k, stratum in enumerate(risk.strata.tolist()):
            rows = np.flatnonzero(risk.stratum == k)
            own = np.unique(risk.at_event[np.isin(np.flatnonzero(risk.events), rows)])
            growth = local.hazards[own] * np.exp(-most[rows[0]])
            present = risk.at_risk(risk.weights)[own]
            curves.append(
                Curve(stratum, risk.times[own], np.cumsum(growth), risk.deaths[own], present)
            )
        return Baseline(tuple(curves), reference)


@dataclass(frozen=True)
class Curve:
    """The baseline hazard of one stratum: it grows at the times of events."""

    stratum: float
    """Its label, or its number where strata had names (in their order)."""
    times: FloatArray
    hazard: FloatArray
    """The cumulative hazard after each time, for a row whose score is the reference."""
    events: FloatArray
    at_risk: FloatArray
    """The weight of those who had an event then, and of those at risk."""

    def at(self, times: Any) -> FloatArray:
        """The cumulative hazard at these times."""
        known = np.append(0.0, self.hazard)
        found: FloatArray = known[
            np.searchsorted(self.times, np.asarray(times, float), side="right")
        ]
        return found


@dataclass(frozen=True)
class Baseline:
    """What hazards are in proportion to, at one party: a curve for each of its strata."""

    curves: tuple[Curve, ...]
    reference: float
    """The score, X·coef, of the row that the curves are about: the mean of the party's rows."""

    def survival(self, scores: Any, times: Any, stratum: float | None = None) -> FloatArray:
        """The probability of no event until each time, a row for each of these scores
        (`model.predict`).
        """
        curve = self._curve(stratum)
        ratios = np.exp(np.asarray(scores, float) - self.reference)
        curves: FloatArray = np.exp(-np.outer(ratios, curve.at(times)))
        return curves

    def _curve(self, stratum: float | None) -> Curve:
        if stratum is None and len(self.curves) == 1:
            return self.curves[0]
        for curve in self.curves:
            if curve.stratum == stratum:
                return curve
        raise UnknownName("stratum", stratum, [f"{curve.stratum:g}" for curve in self.curves])

    def table(self) -> list[dict[str, float]]:
        """A row for each stratum and time of an event."""
        return [
            {
                "stratum": curve.stratum,
                "time": float(time),
                "at_risk": float(present),
                "events": float(events),
                "cumulative_hazard": float(hazard),
                "survival": float(np.exp(-hazard)),
            }
            for curve in self.curves
            for time, present, events, hazard in zip(*_columns(curve), strict=True)
        ]

    def csv(self) -> str:
        """The table as CSV, of a row whose score is the reference, which every line repeats."""
        names = [
            "stratum",
            "time",
            "at_risk",
            "events",
            "cumulative_hazard",
            "survival",
            "reference",
        ]
        return csv_text(names, [[*row.values(), self.reference] for row in self.table()])

    def save(self, path: str | Path) -> Path:
        """Write it as CSV."""
        return write_atomically(path, self.csv().encode())


def _columns(curve: Curve) -> Sequence[FloatArray]:
    return curve.times, curve.at_risk, curve.events, curve.hazard
