"""Proportional hazards: one coefficient per column, the logarithm of a hazard ratio. Baselines stay
at their parties.
"""

from __future__ import annotations

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
    """Hazards are in proportion to e^{X·coef_}. Each party keeps its own factor, see `baseline`."""

    kind: ClassVar[str] = "survival"

    def hazard_ratios(self) -> FloatArray:
        """e^coef: the factor by which the hazard grows when a column grows by 1."""
        return np.exp(self.coef_)

    def predict_proba(self, X: Matrix, offset: Any = None) -> FloatArray:
        """Refused: there are no classes."""
        raise InvalidProblem(
            "a survival model has no classes. Use predict for risk scores, and baseline for curves."
        )

    def baseline(self, data: Any) -> Baseline:
        """Breslow's estimate of the baseline hazard of one party's rows, (X, y) or a `Table`. It
        stays at that party.
        """
        table = read(data, prepare=self.preparation)
        if table.y is None or np.ndim(table.y) != 2:
            raise InvalidData(
                "the rows have no times and events. Give labels as co.survival_labels makes them."
            )
        prepared = replace(self.prepared(table), columns=None)
        table = validated(prepared, classification=None)
        assert table.y is not None
        scores = self.with_offset(product(table.X, self.coef_), table.offset)
        risk = RiskSets(table.y.astype(float), table.weights)
        if len(scores):
            reference = float(np.average(scores, weights=risk.weights))
        else:
            reference = 0.0
        about = scores - reference
        local = CoxLocalLoss(self.coef_, Design(table.X), risk, about)
        # Sums over risk sets are relative to the largest score of their stratum.
        most = risk.largest(about)
        at_risk = risk.at_risk(risk.weights)
        strata_of_events = risk.stratum[risk.events]
        curves = []
        for k, stratum in enumerate(risk.strata.tolist()):
            first_row = np.flatnonzero(risk.stratum == k)[0]
            own = np.unique(risk.at_event[strata_of_events == k])
            growth = local.hazards[own] * np.exp(-most[first_row])
            hazard = np.cumsum(growth)
            curve = Curve(stratum, risk.times[own], hazard, risk.deaths[own], at_risk[own])
            curves.append(curve)
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
    """The weights of rows with an event then, and of rows at risk."""

    def at(self, times: Any) -> FloatArray:
        """The cumulative hazard at these times."""
        known = np.append(0.0, self.hazard)
        place = np.searchsorted(self.times, np.asarray(times, float), side="right")
        found: FloatArray = known[place]
        return found


@dataclass(frozen=True)
class Baseline:
    """The baseline hazards at one party: a curve for each of its strata."""

    curves: tuple[Curve, ...]
    reference: float
    """The score, X·coef, of the row that the curves describe: the mean of the party's rows."""

    def survival(self, scores: Any, times: Any, stratum: float | None = None) -> FloatArray:
        """The probability of no event until each time, one row per score (`model.predict`)."""
        curve = self._curve(stratum)
        ratios = np.exp(np.asarray(scores, float) - self.reference)
        hazards = np.outer(ratios, curve.at(times))
        curves: FloatArray = np.exp(-hazards)
        return curves

    def _curve(self, stratum: float | None) -> Curve:
        if stratum is None and len(self.curves) == 1:
            return self.curves[0]
        for curve in self.curves:
            if curve.stratum == stratum:
                return curve
        known = [f"{curve.stratum:g}" for curve in self.curves]
        raise UnknownName("stratum", stratum, known)

    def table(self) -> list[dict[str, float]]:
        """A row for each stratum and time of an event."""
        rows = []
        for curve in self.curves:
            columns = (curve.times, curve.at_risk, curve.events, curve.hazard)
            for time, at_risk, events, hazard in zip(*columns, strict=True):
                row = {
                    "stratum": curve.stratum,
                    "time": float(time),
                    "at_risk": float(at_risk),
                    "events": float(events),
                    "cumulative_hazard": float(hazard),
                    "survival": float(np.exp(-hazard)),
                }
                rows.append(row)
        return rows

    def csv(self) -> str:
        """The table as CSV. Every line repeats the reference score."""
        names = [
            "stratum",
            "time",
            "at_risk",
            "events",
            "cumulative_hazard",
            "survival",
            "reference",
        ]
        rows = [[*row.values(), self.reference] for row in self.table()]
        return csv_text(names, rows)

    def save(self, path: str | Path) -> Path:
        """Write it as CSV."""
        return write_atomically(path, self.csv().encode())
