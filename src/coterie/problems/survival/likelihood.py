"""Survival: who was at risk when, and Cox's partial likelihood, which is a sum over the strata of
every party.

A row's label is (time, event), or (time, event, entry), or (time, event, entry, stratum). A row is
at risk at the times t with entry < t ≤ time, beside the rows of its stratum at its own party; event
is 1 where its time is that of an event, and 0 where it is only known that there was none until then
(censored). With Breslow's treatment of ties, scores u and weights s

    f(u) = Σ_e s_e (log Σ_{i ∈ R_e} s_i e^{u_i} − u_e)               over the events e, R_e the rows
    at risk at its time
    ∂f/∂u_i = Σ_k D_k p_ki − s_i event_i                               over the event times k, D_k
    the weight of events
    p_ki = s_i e^{u_i} / Σ_{R_k} s e^u                                  the probabilities of the
    rows at risk

Offsets are part of the scores. A weight counts as that many rows. Whoever leaves before the first
event, or enters after the last, says nothing.
"""

from __future__ import annotations

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
"""Losses of steps so long that the weights of those at risk are no longer numbers: no line search
takes them.
"""
LEAST = 1e-280
"""Sums over risk sets that are smaller, beside the largest score's 1, have lost their digits."""


class RiskSets:
    """Who is at risk at which of a party's event times, numbered by stratum and by time."""

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
        pairs = np.unique(
            np.column_stack([self.stratum[self.events], self.time[self.events]]), axis=0
        )
        self.times = pairs[:, 1]
        owner = pairs[:, 0].astype(np.intp)
        self.count = len(pairs)
        starts = np.searchsorted(owner, np.arange(len(self.strata) + 1))
        self.opening = starts[owner]
        self.first = np.zeros(n, np.intp)
        self.end = np.zeros(n, np.intp)
        for k in range(len(self.strata)):
            rows = self.stratum == k
            known = self.times[starts[k] : starts[k + 1]]
            self.first[rows] = starts[k] + np.searchsorted(known, self.entry[rows], side="right")
            self.end[rows] = starts[k] + np.searchsorted(known, self.time[rows], side="right")
        present = np.flatnonzero(self.first < self.end)
        self.order = present[np.argsort(-self.end[present], kind="stable")]
        self.truncated = bool((self.first[present] > self.opening[self.end[present] - 1]).any())
        self.at_event = self.end[self.events] - 1
        self.deaths = np.bincount(self.at_event, self.weights[self.events], self.count).astype(
            float
        )

    @property
    def roundings(self) -> int:
        """How many roundings a sum over a risk set goes through; in order, what they take off is
        carried along.
        """
        if self.truncated:
            return len(self.order) + 64
        return 4

    @cached_property
    def saturated(self) -> float:
        """Σ D_k log D_k: the least that f can be, where every risk set has its events' rows
        alone.
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
        else:
            sums = at_risk_in_order
        if self.truncated:
            sums(values, self.order, self.first, self.end, np.empty(2 * self.count), out)
        else:
            sums(values, self.order, self.end, self.opening, out)
        return out

    def exposed(self, values: FloatArray) -> FloatArray:
        """Sums of the event times at which a row is at risk, one for each row."""
        out = np.zeros(len(self.end))
        sums: Any
        if self.truncated:
            sums = exposed_by_tree
        else:
            sums = exposed_in_order
        if self.truncated:
            sums(values, self.order, self.first, self.end, np.empty(2 * self.count), out)
        else:
            sums(values, self.order, self.end, self.opening, out)
        return out

    def largest(self, values: FloatArray) -> FloatArray:
        """The largest value of each row's stratum, of the rows that are ever at risk."""
        most = np.full(len(self.strata), -np.inf)
        np.maximum.at(most, self.stratum[self.order], values[self.order])
        return np.where(np.isfinite(most), most, 0.0)[self.stratum]

    def about_mean(self, values: FloatArray) -> FloatArray:
        """The values, or columns of them, less the mean of each stratum: constants of a stratum say
        nothing.
        """
        sizes = np.maximum(np.bincount(self.stratum, minlength=len(self.strata)), 1)
        if values.ndim == 1:
            return (
                values - (np.bincount(self.stratum, values, len(self.strata)) / sizes)[self.stratum]
            )
        means = np.zeros((len(self.strata), values.shape[1]))
        for k in range(len(self.strata)):
            rows = values[self.stratum == k]
            means[k] = rows.sum(axis=0, dtype=float) / sizes[k]
            # A mean that was rounded would leave a constant column of rounding errors, with a
            # coefficient of its own.
            constant = (rows == rows[:1]).all(axis=0) & (len(rows) > 0)
            means[k, constant] = rows[:1, constant].ravel()
        about: FloatArray = values.astype(float)
        about -= means[0] if len(means) == 1 else means[self.stratum]
        return about


class CoxLocalLoss:
    """The loss at one model, as an agent sees it on its own rows. Slopes have the weights of the
    rows in them.
    """

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
        """Σ s e^u over each risk set; as those below, beside the largest score of the stratum."""

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
                "the scores of rows at risk differ by several hundred, and hazards by more than "
                "numbers can hold. "
                "Scale the columns, or add a penalty."
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
        """D / Σ s e^u of every event time: how much the cumulative hazard grows there, Breslow's
        estimate.
        """
        return self.risk.deaths / self._usable()

    @cached_property
    def expected(self) -> FloatArray:
        """Σ_k D_k p_ki of every row: how many events its history lets expect."""
        return self.shares * self.risk.exposed(self.hazards)

    @cached_property
    def gradients(self) -> FloatArray:
        """The derivative of f in every score."""
        return self.expected - self.risk.weights * self.risk.events

    @cached_property
    def adjoint(self) -> FloatArray:
        """X̃ᵀ slopes."""
        return self.design.adjoint(self.gradients)

    def losses_at(self, scores: FloatArray) -> float:
        """f at other scores."""
        return CoxLocalLoss(self.w, self.design, self.risk, scores).losses

    def losses_along(self, image: FloatArray, steps: FloatArray) -> FloatArray:
        """f where the scores have changed by these multiples of that."""
        return np.array([self.losses_at(self.scores + float(t) * image) for t in steps])

    def mean(self, values: FloatArray) -> FloatArray:
        """Σ_i p_ki values_i of every event time."""
        return self.risk.at_risk(self.shares * values) / self.sums

    def hessian_product(self, image: FloatArray) -> FloatArray:
        """The second derivative of f times a change of the scores."""
        return self.expected * image - self.shares * self.risk.exposed(
            self.hazards * self.mean(image)
        )

    def hessian(self) -> FloatArray:
        """Of both sums, the upper triangle: Σ_i a_i x_i x_iᵀ − Σ_k D_k m_k m_kᵀ, m_k the mean of
        those at risk.
        """
        H = second_moment(self.design, self.expected)
        means = self.means() * np.sqrt(self.risk.deaths)[:, None]
        H -= means.T @ means
        return H

    def diagonal(self) -> FloatArray:
        """Of the first sum alone: columns are about their means, so that the second is small beside
        it.
        """
        return diagonal(self.design, self.expected)

    def means(self) -> FloatArray:
        """Σ_i p_ki x_i: a row for each event time."""
        return np.column_stack([self.mean(column) for column in self._columns()])

    def row_scores(self) -> FloatArray:
        """What each row adds to −X̃ᵀ slopes where the risk sets are taken for known (Lin and Wei's
        score residuals).

        s event (x − mean) − s e^u Σ_k (D_k / Σ s e^u) (x − mean_k)
        """
        risk = self.risk
        parts = []
        for column in self._columns():
            mean = self.mean(column)
            own = np.zeros(len(column))
            own[risk.events] = risk.weights[risk.events] * (
                column[risk.events] - mean[risk.at_event]
            )
            parts.append(
                own - self.expected * column + self.shares * risk.exposed(self.hazards * mean)
            )
        return np.column_stack(parts)

    def _columns(self) -> Any:
        if is_sparse(self.design.X):
            X = self.design.X.tocsc()
        else:
            X = self.design.X
        for j in range(X.shape[1]):
            yield (
                X[:, [j]].toarray().ravel().astype(float)
                if is_sparse(X)
                else np.ascontiguousarray(X[:, j], float)
            )


def concordance_counts(
    labels: FloatArray, scores: FloatArray, weights: FloatArray | None = None
) -> FloatArray:
    """Of pairs of an event and a row of its stratum at risk then and later: how many are in order,
    tied, and there.

    In order is a pair if the event has the larger score; the rows of a pair count with their
    weights.
    """
    risk = RiskSets(labels, weights)
    found = np.zeros(3)
    for k in range(len(risk.strata)):
        rows = np.flatnonzero(risk.stratum == k)
        time = risk.time[rows]
        event = risk.events[rows]
        entry = risk.entry[rows]
        rank = np.unique(scores[rows], return_inverse=True)[1]
        count: Any = ordered_pairs
        found += count(
            time, event, entry, rank, risk.weights[rows], np.argsort(-time), np.argsort(-entry)
        )
    return found


def stratified(X: Any, risk: RiskSets) -> Design:
    """The columns about the mean of each stratum, where they are dense: it changes no likelihood,
    and saves digits.
    """
    return Design(X.astype(float) if is_sparse(X) else risk.about_mean(X))


@remembered
def risk_of(agent: Agent[Problem[Cox]]) -> RiskSets:
    """Which of an agent's own rows are at risk when."""
    return RiskSets(agent.exact_labels, agent.data.weights, agent.offset)
