"""Proofs for proportional hazards, split by samples: the duality gap of the partial likelihood, as
in `linear/proof.py`.

A party's loss is f(u) = Σ_k (D_k log Σ_{R_k} s e^u − Σ_e s_e u_e) over its event times k. For any
p_k in the simplex of the rows at risk, v = Σ_k D_k p_k − s∘event is a dual of f. The gap is a sum
of terms that are at least 0:

    f(u) − ⟨u, v⟩ + (a bound of f*(v)) = Σ_k D_k KL(p_k ‖ p_k(u))      p_k(u) the probabilities that
    u gives

A point holds its dual as scores z with p_k = p_k(z), because v does not determine p_k. To enter the
domain of g*, the proof shrinks v by c: p'_k = c p_k + (1 − c) e_k, where e_k has the events' shares
s_e / D_k:

    KL(p'_k ‖ p_k(u)) = KL(p'_k ‖ p_k) + c KL(p_k ‖ p_k(u)) + (1 − c) Σ_e (s_e / D_k) log (p_ke /
    p_ke(u))

All terms are sums over risk sets. At u = z the last two are 0.

**Rounding.** With |δu| ≤ h for all scores, KL(p(z) ‖ p(u)) changes by at most h √(2 KL) + h²
(Pinsker, Hoeffding), a loss by 2h. Entries of v are sums of positive numbers: their relative errors
are the roundings of the sums, plus the size of the scores for their exponentials. Columns are about
the means of strata, which changes neither p nor Xᵀv.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from coterie.errors import InvalidData
from coterie.numerics.arrays import FloatArray, is_sparse, shared_result
from coterie.numerics.kernels.entropy import divergence, divergences
from coterie.problems.parts.proof import Proof
from coterie.problems.problem import Problem
from coterie.problems.proof import EPSILON, FEW, SAFE, Terms, certify_rows
from coterie.problems.survival.likelihood import CoxLocalLoss, risk_of
from coterie.problems.survival.loss import Cox
from coterie.run.agent import Agent, SummaryStatistics, remembered
from coterie.run.certificate.bound import ANY, Bound, Point
from coterie.run.certificate.introduction import SAME, lengths_of_start, sum_of_inverses
from coterie.run.collectives import Protocol, Sum
from coterie.run.disclosure import TOTALS, Protocols, discloses

NEAR = 0.5
"""Scores that differ by less are compared through expm1, whose errors shrink with the difference.
"""


class SurvivalProof(Proof[Problem[Cox]]):
    """Introduces strata and certifies points by the duality gap of the partial likelihood."""

    @discloses(
        (
            "the number of your rows and of your events, and the loss of a model of zeros and its "
            "squared gradients"
        ),
        "how many events you have",
        TOTALS,
        most=lambda case: (1, 5),
    )
    @discloses(
        (
            "for each column: the sum of its squares, and its sum weighted by the gradient of a "
            "model of zeros"
        ),
        (
            "how the columns of rows with an event differ from those of rows at risk, added up "
            "over your rows"
        ),
        TOTALS,
        most=lambda case: (0, 2 * case.columns),
    )
    def introduce(self, agent: Agent[Problem[Cox]]) -> Protocol[SummaryStatistics]:
        """Send the number of rows and of events, the scale of the columns, and the loss of a model
        of zeros.
        """
        risk = risk_of(agent)
        local = CoxLocalLoss(np.zeros(agent.data.d), agent.design, risk)
        own = [
            agent.weight,
            float(risk.deaths.sum()),
            local.losses,
            risk.saturated,
            _squares(local),
        ]
        sums = yield Sum(np.concatenate([own, agent.column_squares, local.adjoint]))
        return shared_result(sums, _statistics, agent, sums)

    def certify(
        self,
        agent: Agent[Problem[Cox]],
        point: Point,
        target: float = 0.0,
        radius: float | None = ANY,
    ) -> Protocol[Bound]:
        """P(w), and a bound of its distance from the minimum."""
        w = point.w.astype(float, copy=False)
        local: CoxLocalLoss = agent.at(w)
        if point.v is None:
            dual = local
        else:
            scores = point.v.astype(float)
            dual = CoxLocalLoss(w, agent.design, risk_of(agent), scores)
        terms = StrataTerms(agent, w, local, dual)
        return (yield from certify_rows(agent, w, terms, target, radius))

    def dual_at(self, agent: Agent[Problem[Cox]], w: FloatArray) -> FloatArray:
        """The dual that a model has where no other is given: its scores."""
        scores: FloatArray = agent.at(w.astype(float, copy=False)).scores
        return scores

    introduces: Protocols = (introduce,)
    proves: Protocols = (certify_rows,)


def _squares(local: CoxLocalLoss) -> float:
    """Σ v² / s: of gradients without weights, weighted."""
    return float((local.gradients**2 / local.risk.weights).sum())


def _statistics(agent: Agent[Problem[Cox]], sums: FloatArray) -> SummaryStatistics:
    total, events, losses, saturated, squares = map(float, sums[:5])
    if not events > 0:
        raise InvalidData(
            "no row of any party has an event: all are censored, so no hazard can be estimated. "
            "Check the column of events (1 for an event, 0 for none), or wait for events."
        )
    lengths, gradient = np.split(sums[5:].astype(float), 2)
    least_squares = 1e-4 * float(lengths.sum()) * squares
    gradient_squared = max(float(gradient @ gradient), least_squares)
    inverses = sum_of_inverses(lengths)
    null_losses = losses - saturated
    known = lengths_of_start(agent, total, null_losses, squares, gradient_squared, inverses)
    null_loss = null_losses / total
    if null_loss <= SAME * (abs(losses) + abs(saturated)) / total:
        # At every event no other row is at risk: the difference is rounding.
        null_loss = 1.0
    at_zero = losses / total
    counts = (total - events, events)
    return replace(
        known, gap_unit=null_loss, primal_at_zero=at_zero, lengths=lengths, counts=counts
    )


class StrataTerms(Terms):
    """The terms of one party's strata; a party holds whole risk sets."""

    # Where every risk set consists of its events, at_zero cancels the loss.
    cancels = 1.0

    def __init__(
        self, agent: Agent[Problem[Cox]], w: FloatArray, local: CoxLocalLoss, dual: CoxLocalLoss
    ):
        risk = local.risk
        error = _score_error(agent, w)
        events = float(risk.deaths.sum())
        self._losses = _losses(local, error, events)
        self._dual = dual
        self.at_zero = -risk.saturated
        self._gaps = _Gaps(local, dual, error, events)
        # The roundings of the numbers that v consists of, and those of the adjoint.
        dual_roundings = 2.0 * (_span(dual) + risk.roundings + FEW)
        roundings = dual_roundings + agent.design.roundings[1] + agent.count + FEW
        sizes = dual.expected + risk.weights * risk.events
        squares = (sizes**2 / risk.weights).sum()
        self._length: float = roundings * math.sqrt(squares)

    @property
    def adjoint(self) -> FloatArray:
        return self._dual.adjoint

    @property
    def length(self) -> float:
        return self._length

    def losses(self) -> tuple[float, float]:
        return self._losses

    def gaps(self, c: float) -> tuple[float, float]:
        return self._gaps.at(c)


class _Gaps:
    """Σ_k D_k KL(p'_k ‖ p_k(u)) over the agent's own event times, for p' between the dual's p and
    the events' shares.
    """

    def __init__(self, local: CoxLocalLoss, dual: CoxLocalLoss, error: float, events: float):
        self.local = local
        self.dual = dual
        self.error = error
        self.events = events
        spans = _span(local) + _span(dual)
        self.roundings = 2.0 * (spans + local.risk.roundings + FEW)
        self.between = 0.0
        self.lost = 0.0
        self.shift: FloatArray = np.zeros(local.risk.count)
        self.difference: FloatArray = np.zeros(len(local.scores))
        if dual is not local:
            self._compare()

    def _compare(self) -> None:
        """KL(p(z) ‖ p(u)) = log E e^δ − E δ with δ = u − z, E under p(z); `shift` is log E e^δ."""
        local = self.local
        dual = self.dual
        risk = local.risk
        self.difference = risk.about_mean(local.scores - dual.scores)
        most = float(np.abs(self.difference).max(initial=0.0))
        size = most
        if most <= NEAR:
            self.shift = np.log1p(dual.mean(np.expm1(self.difference)))
        else:
            self.difference = local.lowered - dual.lowered
            self.shift = local.logs - dual.logs
            size = most + _span(local) + _span(dual)
        terms = self.shift - dual.mean(self.difference)
        self.between = float(risk.deaths @ np.maximum(terms, 0.0))
        self.lost = 8.0 * self.roundings * EPSILON * self.events * size

    def at(self, c: float) -> tuple[float, float]:
        """The sum for that c, and a bound of its rounding error."""
        risk = self.local.risk
        rest = 1.0 - c
        distance = c * math.sqrt(2.0 * self.events * (self.between + self.lost))
        distance += rest * 2.0 * self.events
        lost = self.error * distance + self.events * self.error**2 + self.lost
        gaps = self.between
        lean = 0.0
        if rest > 0.0:
            moved, lean = self._moved_and_lean(c)
            gaps = max(moved + c * self.between + rest * lean, 0.0)
            lost += self.roundings * EPSILON * (4.0 * rest * self.events + 2.0 * moved)
        sum_roundings = (risk.count + len(risk.at_event) + FEW) * EPSILON
        return gaps, lost + sum_roundings * (gaps + rest * abs(lean))

    def _moved_and_lean(self, c: float) -> tuple[float, float]:
        """Σ_k D_k KL(p'_k ‖ p_k), and Σ_e s_e log (p_ke / p_ke(u))."""
        risk = self.local.risk
        dual = self.dual
        rest = 1.0 - c
        places = risk.at_event
        weights = risk.weights[risk.events]
        logs = np.log(weights) + dual.lowered[risk.events] - dual.logs[places]
        p = np.exp(logs)
        deaths = risk.deaths[places]
        shrunk = c * p + rest * weights / deaths
        terms = np.empty(len(p))
        compute: Any = divergences
        compute(shrunk, logs, terms)
        # The rows at risk without an event have c times their probabilities.
        with_event = np.bincount(places, p, risk.count)
        others = np.maximum(1.0 - with_event, 0.0)
        of_events = float(deaths @ terms)
        of_others = float(risk.deaths @ others) * divergence(c, 1.0, 0.0)
        lean = float(weights @ (self.shift[places] - self.difference[risk.events]))
        return of_events + of_others, lean


def _losses(local: CoxLocalLoss, error: float, events: float) -> tuple[float, float]:
    """f of the agent's own rows, and a bound of its rounding error."""
    risk = local.risk
    logs = np.abs(local.logs[risk.at_event])
    scores = np.abs(local.lowered[risk.events])
    sizes = float(risk.weights[risk.events] @ (logs + scores))
    sum_roundings = len(risk.at_event) + FEW
    log_roundings = local.risk.roundings + 2.0 * _span(local) + FEW
    rounding = EPSILON * (sum_roundings * sizes + log_roundings * events)
    return local.losses, 2.0 * events * error + rounding


def _score_error(agent: Agent[Problem[Cox]], w: FloatArray) -> float:
    """A bound of a score's rounding error, without a part that all scores of a stratum share."""
    scores = float(_largest(agent) @ np.abs(w))
    if agent.offset is not None:
        scores += float(np.abs(agent.offset).max(initial=0.0))
    roundings = 2 * agent.design.roundings[0] + FEW
    return SAFE * EPSILON * roundings * scores


@remembered
def _largest(agent: Agent[Problem[Cox]]) -> FloatArray:
    """The largest |x| of every column."""
    X = agent.design.X
    if not X.shape[0]:
        return np.zeros(X.shape[1])
    largest: FloatArray
    if is_sparse(X):
        largest = abs(X).max(axis=0).toarray().ravel()
    else:
        largest = np.abs(X).max(axis=0)
    return largest


def _span(local: CoxLocalLoss) -> float:
    """The most that a score lies below the largest of its stratum: roundings of its exponential."""
    at_risk = local.lowered[local.risk.order]
    return float(np.abs(at_risk).max(initial=0.0))
