"""Risk sets, and Cox's partial likelihood, which is a sum over the strata of every party.

A row's label is (time, event), or (time, event, entry), or (time, event, entry, stratum). A row is
at risk at the times t with entry < t ≤ time, together with the other rows of its stratum at its own
party. event is 1 if the event happened at that time, and 0 if the row was observed without an event
until then (censored). With Breslow's treatment of ties, scores u and weights s

    f(u) = Σ_e s_e (log Σ_{i ∈ R_e} s_i e^{u_i} − u_e)               over the events e, R_e the rows
    at risk at its time
    ∂f/∂u_i = Σ_k D_k p_ki − s_i event_i                               over the event times k, D_k
    the weight of events
    p_ki = s_i e^{u_i} / Σ_{R_k} s e^u                                  the probabilities of the
    rows at risk

Offsets are part of the scores. A weight counts as that many rows. A row that leaves before the
first event, or enters after the last, adds nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any

import numpy as np

from coterie.errors import NumericalError
from coterie.numerics.arrays import Design, FloatArray, is_sparse
from coterie.problems.problem import Problem
from coterie.problems.survival.concordance import ordered_pairs
from coterie.problems.survival.labels import ENTRY, EVENT, STRATUM, TIME
from coterie.problems.survival.loss import Cox
from coterie.problems.survival.risk_sets import (
    at_risk_by_tree,
    at_risk_in_order,
    exposed_by_tree,
    exposed_in_order,
)
from coterie.run.agent import Agent, remembered
from coterie.stats.moments import diagonal, second_moment

HOPELESS = 1e20
"""The loss of steps for which the weights of rows at risk overflow: no line search takes them."""
LEAST = 1e-280
"""Sums over risk sets below this, relative to the largest score's 1, have lost their digits."""


class RiskSets:
    """The rows at risk at each of a party's event times, which are numbered by stratum and time."""

    def __init__(
        self,
        labels: FloatArray,
        weights: FloatArray | None = None,
        offset: FloatArray | None = None,
    ):
        n = len(labels)
        self.offset = offset
        self.time = labels[:, TIME]
        self.events = labels[:, EVENT] > 0
        if labels.shape[1] > ENTRY:
            self.entry = labels[:, ENTRY]
        else:
            self.entry = np.full(n, -np.inf)
        if labels.shape[1] > STRATUM:
            stratum = labels[:, STRATUM]
        else:
            stratum = np.zeros(n)
        self.strata, self.stratum = np.unique(stratum, return_inverse=True)
        if weights is None:
            self.weights = np.ones(n)
        else:
            self.weights = weights.astype(float, copy=False)
        # The event times of all strata, and the interval of them at which each row is at risk.
        strata_of_events = self.stratum[self.events]
        times_of_events = self.time[self.events]
        pairs = np.unique(np.column_stack([strata_of_events, times_of_events]), axis=0)
        self.times = pairs[:, 1]
        owner = pairs[:, 0].astype(np.intp)
        self.count = len(pairs)
        starts = np.searchsorted(owner, np.arange(len(self.strata) + 1))
        self.opening = starts[owner]
        self.first = np.zeros(n, np.intp)
        self.end = np.zeros(n, np.intp)
        for k in range(len(self.strata)):
            rows = self.stratum == k
            start = starts[k]
            known = self.times[start : starts[k + 1]]
            self.first[rows] = start + np.searchsorted(known, self.entry[rows], side="right")
            self.end[rows] = start + np.searchsorted(known, self.time[rows], side="right")
        present = np.flatnonzero(self.first < self.end)
        self.order = present[np.argsort(-self.end[present], kind="stable")]
        openings = self.opening[self.end[present] - 1]
        self.truncated = bool((self.first[present] > openings).any())
        self.at_event = self.end[self.events] - 1
        deaths = np.bincount(self.at_event, self.weights[self.events], self.count)
        self.deaths = deaths.astype(float)

    @property
    def roundings(self) -> int:
        """The roundings of a sum over a risk set; sums in order carry their rounding errors
        along.
        """
        if self.truncated:
            return len(self.order) + 64
        return 4

    @cached_property
    def saturated(self) -> float:
        """Σ D_k log D_k: the least possible f, where every risk set consists of its events'
        rows.
        """
        if self.count:
            return float((self.deaths * np.log(self.deaths)).sum())
        return 0.0

    def at_risk(self, values: FloatArray) -> FloatArray:
        """Sums of the rows at risk, one for each event time."""
        out = np.zeros(self.count)
        sums: Any
        if self.truncated:
            sums = at_risk_by_tree
            sums(values, self.order, self.first, self.end, np.empty(2 * self.count), out)
        else:
            sums = at_risk_in_order
            sums(values, self.order, self.end, self.opening, out)
        return out

    def exposed(self, values: FloatArray) -> FloatArray:
        """Sums of the event times at which a row is at risk, one for each row."""
        out = np.zeros(len(self.end))
        sums: Any
        if self.truncated:
            sums = exposed_by_tree
            sums(values, self.order, self.first, self.end, np.empty(2 * self.count), out)
        else:
            sums = exposed_in_order
            sums(values, self.order, self.end, self.opening, out)
        return out

    def largest(self, values: FloatArray) -> FloatArray:
        """The largest value of each row's stratum, of the rows that are ever at risk."""
        most = np.full(len(self.strata), -np.inf)
        np.maximum.at(most, self.stratum[self.order], values[self.order])
        finite = np.where(np.isfinite(most), most, 0.0)
        return finite[self.stratum]

    def about_mean(self, values: FloatArray) -> FloatArray:
        """The values, or columns of them, less the mean of each stratum, which changes no
        likelihood.
        """
        count = len(self.strata)
        sizes = np.maximum(np.bincount(self.stratum, minlength=count), 1)
        if values.ndim == 1:
            sums = np.bincount(self.stratum, values, count)
            return values - (sums / sizes)[self.stratum]
        means = np.zeros((count, values.shape[1]))
        for k in range(count):
            rows = values[self.stratum == k]
            means[k] = rows.sum(axis=0, dtype=float) / sizes[k]
            # A rounded mean would leave a constant column of rounding errors, with a coefficient of
            # its own.
            constant = (rows == rows[:1]).all(axis=0) & (len(rows) > 0)
            means[k, constant] = rows[:1, constant].ravel()
        about: FloatArray = values.astype(float)
        if count == 1:
            about -= means[0]
        else:
            about -= means[self.stratum]
        return about


class CoxLocalLoss:
    """The loss of one agent's own rows at one model. Gradients include the weights of the rows."""

    def __init__(
        self, w: FloatArray, design: Design, risk: RiskSets, scores: FloatArray | None = None
    ):
        self.w = w
        self.design = design
        self.risk = risk
        if scores is None:
            if risk.offset is None:
                scores = design.forward(w)
            else:
                scores = design.forward(w) + risk.offset
        self.scores = scores
        self.lowered = self.scores - risk.largest(self.scores)
        with np.errstate(over="ignore"):
            self.shares = risk.weights * np.exp(np.minimum(self.lowered, 0.0))
        self.sums = risk.at_risk(self.shares)
        """Σ s e^u over each risk set, relative to the largest score of the stratum."""

    @property
    def hopeless(self) -> bool:
        """Whether scores of rows at risk are so far apart that sums over risk sets vanish."""
        return not self.sums.min(initial=1.0) > LEAST

    @cached_property
    def logs(self) -> FloatArray:
        """log Σ s e^u over each risk set."""
        return np.log(self._usable())

    def _usable(self) -> FloatArray:
        if self.hopeless:
            raise NumericalError(
                "the scores of rows at risk differ by several hundred, and their hazards by more "
                "than a number can hold. Scale the columns, or add a penalty."
            )
        return self.sums

    @cached_property
    def losses(self) -> float:
        """f."""
        if self.hopeless:
            return HOPELESS
        return float(self.risk.weights[self.risk.events] @ self.each)

    @property
    def each(self) -> FloatArray:
        """log Σ s e^u − u of every event."""
        found: FloatArray = self.logs[self.risk.at_event] - self.lowered[self.risk.events]
        return found

    @cached_property
    def hazards(self) -> FloatArray:
        """D / Σ s e^u of every event time: the growth of the cumulative hazard in Breslow's
        estimate.
        """
        return self.risk.deaths / self._usable()

    @cached_property
    def expected(self) -> FloatArray:
        """Σ_k D_k p_ki of every row: its expected number of events."""
        exposures = self.risk.exposed(self.hazards)
        return self.shares * exposures

    @cached_property
    def gradients(self) -> FloatArray:
        """The derivative of f in every score."""
        return self.expected - self.risk.weights * self.risk.events

    @cached_property
    def adjoint(self) -> FloatArray:
        """X̃ᵀ times the gradients."""
        return self.design.adjoint(self.gradients)

    def losses_at(self, scores: FloatArray) -> float:
        """f at other scores."""
        return CoxLocalLoss(self.w, self.design, self.risk, scores).losses

    def losses_along(self, change: FloatArray, steps: FloatArray) -> FloatArray:
        """f at the scores plus each of these multiples of a change."""
        return np.array([self.losses_at(self.scores + float(t) * change) for t in steps])

    def mean(self, values: FloatArray) -> FloatArray:
        """Σ_i p_ki values_i of every event time."""
        return self.risk.at_risk(self.shares * values) / self.sums

    def hessian_product(self, change: FloatArray) -> FloatArray:
        """The second derivative of f times a change of the scores."""
        mean_growth = self.hazards * self.mean(change)
        of_means = self.shares * self.risk.exposed(mean_growth)
        return self.expected * change - of_means

    def hessian(self) -> FloatArray:
        """The upper triangle of Σ_i a_i x_i x_iᵀ − Σ_k D_k m_k m_kᵀ, m_k the mean of the rows at
        risk.
        """
        H = second_moment(self.design, self.expected)
        roots = np.sqrt(self.risk.deaths)[:, None]
        means = self.means() * roots
        H -= means.T @ means
        return H

    def diagonal(self) -> FloatArray:
        """The diagonal of the first sum: columns are about their means, so the second is small."""
        return diagonal(self.design, self.expected)

    def means(self) -> FloatArray:
        """Σ_i p_ki x_i: a row for each event time."""
        return np.column_stack([self.mean(column) for column in self._columns()])

    def row_scores(self) -> FloatArray:
        """The terms of each row in −X̃ᵀ gradients, given the risk sets (Lin and Wei's score
        residuals).

        s event (x − mean) − s e^u Σ_k (D_k / Σ s e^u) (x − mean_k)
        """
        risk = self.risk
        parts = []
        for column in self._columns():
            mean = self.mean(column)
            about = column[risk.events] - mean[risk.at_event]
            own = np.zeros(len(column))
            own[risk.events] = risk.weights[risk.events] * about
            of_means = self.shares * risk.exposed(self.hazards * mean)
            parts.append(own - self.expected * column + of_means)
        return np.column_stack(parts)

    def _columns(self) -> Iterator[FloatArray]:
        X = self.design.X
        if is_sparse(X):
            by_columns = X.tocsc()
            for j in range(X.shape[1]):
                yield by_columns[:, [j]].toarray().ravel().astype(float)
        else:
            for j in range(X.shape[1]):
                yield np.ascontiguousarray(X[:, j], float)


def concordance_counts(
    labels: FloatArray, scores: FloatArray, weights: FloatArray | None = None
) -> FloatArray:
    """Counts of pairs of an event and a row of its stratum that is at risk then and later: pairs in
    order, tied pairs, and all pairs.

    A pair is in order if the event has the larger score. Pairs count with the weights of their
    rows.
    """
    risk = RiskSets(labels, weights)
    found = np.zeros(3)
    for k in range(len(risk.strata)):
        rows = np.flatnonzero(risk.stratum == k)
        time = risk.time[rows]
        event = risk.events[rows]
        entry = risk.entry[rows]
        rank = np.unique(scores[rows], return_inverse=True)[1]
        by_time = np.argsort(-time)
        by_entry = np.argsort(-entry)
        count: Any = ordered_pairs
        found += count(time, event, entry, rank, risk.weights[rows], by_time, by_entry)
    return found


def stratified(X: Any, risk: RiskSets) -> Design:
    """Dense columns about the mean of each stratum: the likelihood stays the same, with more
    digits.
    """
    if is_sparse(X):
        return Design(X.astype(float))
    return Design(risk.about_mean(X))


@remembered
def risk_of(agent: Agent[Problem[Cox]]) -> RiskSets:
    """The risk sets of an agent's own rows."""
    return RiskSets(agent.exact_labels, agent.data.weights, agent.offset)
