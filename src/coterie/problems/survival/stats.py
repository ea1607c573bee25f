"""Measures of survival models, and the sums for their standard errors.

Risk sets and pairs are of one party, as in the fit. A row's score is that of Lin and Wei (1989),
for given risk sets.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from coterie.api.evaluation import Evaluation
from coterie.data import Table
from coterie.numerics.arrays import Design, FloatArray
from coterie.problems.linear.model import MEANINGS
from coterie.problems.parts.stats import Stats, named_columns
from coterie.problems.problem import Problem
from coterie.problems.survival.likelihood import CoxLocalLoss, RiskSets, concordance_counts, risk_of
from coterie.problems.survival.loss import Cox
from coterie.problems.survival.model import SurvivalModel
from coterie.run.agent import Agent
from coterie.run.collectives import Protocol
from coterie.run.groups import Part, allowed, checked_counts, checked_weights, released
from coterie.stats.information import Asking, Own
from coterie.stats.moments import packed
from coterie.stats.scoring import deviances, labels_and_weights, notes_on, ratio


class SurvivalStats(Stats[Problem[Cox], SurvivalModel]):
    """Concordance and the deviance of the partial likelihood; standard errors from its Hessian and
    rows' scores.
    """

    evaluates = True
    counts_bins = False
    has_errors = True
    usual_correction = "CR0"
    ratios = "hazard ratio"

    def measured(
        self, model: SurvivalModel, table: Table, scores: FloatArray, limits: dict[str, Any]
    ) -> Protocol[Evaluation]:
        y, s = labels_and_weights(table)
        risk = RiskSets(y, s)
        design = Design(np.empty((len(scores), 0)))
        losses = []
        for u in (scores, 0.0 * scores):
            local = CoxLocalLoss(np.empty(0), design, risk, u)
            losses.append(local.losses - risk.saturated)
        minimum = limits["minimum"]
        by_event = [risk.events.sum(), (~risk.events).sum()]
        (counts_sent,) = yield from allowed([by_event], minimum)
        of_events = Part([], [])
        left_out = ["events"]
        if counts_sent:
            counted = [risk.deaths.sum(), *concordance_counts(y, scores, s)]
            of_events = Part(counted, by_event)
            left_out = []
        of_rows = Part([float(len(scores)), float(s.sum()), *losses], len(scores))
        sums = yield released(minimum, len(scores), of_rows, of_events)
        checked_counts(sums[:1], len(scores), "rows")
        checked_weights(np.append(sums[1], sums[4:]), "events and pairs")
        rows, n, loss, null, *more = sums.tolist()
        events, lower, equal, every = more or [math.nan] * 4
        concordance = ratio(lower + 0.5 * equal, every)
        found = {"concordance": concordance, "events": events, **deviances(2 * loss, 2 * null)}
        return Evaluation("", int(rows), n, found, notes=notes_on(left_out))

    def coefficients(self, model: SurvivalModel) -> tuple[tuple[str, ...], FloatArray]:
        values = model.coef_.astype(float)
        names = named_columns(model.columns, len(values), model.problem.intercept)
        return names, values

    def information(self, agent: Agent[Problem[Cox]], w: FloatArray, asking: Asking) -> Own:
        local: CoxLocalLoss = agent.at(w)
        risk = risk_of(agent)
        more = [local.adjoint, np.zeros(1)]
        if asking.kind != "model":
            scores = local.row_scores()
        else:
            scores = np.empty((0, len(w)))
        if asking.kind == "robust":
            squares: FloatArray = scores
            if asking.counted:
                squares = scores / risk.weights[:, None]
            more.append(packed(scores.T @ squares))

        def score(rows: npt.NDArray[np.bool_]) -> FloatArray:
            found: FloatArray = scores[rows].sum(axis=0)
            return found

        def hessian(rows: npt.NDArray[np.bool_]) -> FloatArray:
            raise NotImplementedError  # a risk set has rows of several clusters: see `adjustable`

        def move(d: FloatArray) -> FloatArray:
            return risk.about_mean(local.design.forward(d))[:, None]

        clusters = asking.of_clusters(agent, score, hessian, len(w))
        more += [*clusters, asking.counts(agent)]
        own = packed(local.hessian(), *more)
        return Own(own, len(w), move, score, hessian)

    def meaning(self, problem: Problem[Cox]) -> str:
        return MEANINGS[problem.loss.name]

    def events(self, problem: Problem[Cox]) -> int:
        return 1

    def event_of_rows(self, agent: Agent[Problem[Cox]]) -> npt.NDArray[np.intp]:
        return np.where(risk_of(agent).events, 0, 1)
