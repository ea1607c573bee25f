"""Proofs for linear models of several classes, split by samples: the duality gap of softmax, as in
`linear.py`.

The dual of a row is p − e_y for any p in the simplex, and a row's Fenchel–Young term is Σ_c kl(p_c,
softmax(u)_c). Two
steps make p feasible, and both stay in the simplex:

1. with intercepts, p' = (1 − τ) p + τ r weighs every class as the labels do; N_c and P_c are the
   weights of a class
   in the labels and in p,    r_c = (N_c − (1 − τ) P_c)/(τ n),    τ = max(0, 1 − min_c N_c/P_c)
   Before that, a class that no row has is taken out of p, and the other classes are scaled to add
   up to 1.
2. p'' = c p' + (1 − c) e_y shrinks the dual into the domain of g*, as for one score a row.

Probabilities add up to 1 only up to rounding; the dual that a bound speaks of is that of p over its
sum, which is another C roundings away.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from coterie.numerics.arrays import FloatArray, shared_result
from coterie.numerics.kernels.entropy import divergences
from coterie.problems.multiclass.loss import Softmax
from coterie.problems.multiclass.view import SoftmaxLocalLoss
from coterie.problems.parts.proof import Proof
from coterie.problems.problem import Problem
from coterie.problems.proof import EPSILON, FEW, RADIUS, ROOM, SAFE, Terms, certify_rows
from coterie.run.agent import Agent, SummaryStatistics
from coterie.run.certificate.bound import ANY, Bound, Point
from coterie.run.certificate.introduction import lengths_of_start, sum_of_inverses
from coterie.run.collectives import Protocol, Sum
from coterie.run.disclosure import TOTALS, Protocols, discloses

PAIRWISE = 32
"""Roundings of a sum that numpy adds up in pairs, beside one for each doubling of its terms."""


class MulticlassProof(Proof[Problem[Softmax]]):
    """Introduces agents and certifies points by the duality gap of softmax."""

    @discloses(
        "for each class: the weight of your rows; for each column: the sum of its squares",
        "how many of your rows each class has, and the scale of each column",
        TOTALS,
        most=lambda case: (1, case.outputs + case.columns),
    )
    @discloses(
        "for each column: its sum",
        "the mean of each of your columns",
        TOTALS,
        applies=lambda case: case.intercept,
        most=lambda case: (0, case.columns),
    )
    def introduce(self, agent: Agent[Problem[Softmax]]) -> Protocol[SummaryStatistics]:
        """How much data there is, of which classes, and how large its columns are."""
        classes = agent.problem.outputs
        ones = agent.weighted(np.ones(agent.data.n))
        counts = np.bincount(agent.exact_labels.astype(np.intp), ones, classes)
        if agent.problem.intercept:
            sums = agent.data.X.T @ ones
        else:
            sums = np.empty(0)
        said = yield Sum(np.concatenate([counts, agent.column_squares, sums]))
        return shared_result(said, _facts, agent, said)

    def certify(
        self,
        agent: Agent[Problem[Softmax]],
        point: Point,
        target: float = 0.0,
        radius: float | None = ANY,
    ) -> Protocol[Bound]:
        """P(W), and how far it can be above the least."""
        w = point.w.astype(float, copy=False)
        return (
            yield from certify_rows(
                agent, w, SoftmaxTerms(agent, w, agent.at(w), point.v), target, radius
            )
        )

    def dual_at(self, agent: Agent[Problem[Softmax]], w: FloatArray) -> FloatArray:
        """The dual that a model has where no other is given: the slopes at it."""
        gradients: FloatArray = agent.at(w.astype(float, copy=False)).gradients
        return gradients.ravel()

    introduces: Protocols = (introduce,)

    @property
    def proves(self) -> Protocols:
        """The weights of classes, and the proof that all kinds of rows share."""
        return SoftmaxTerms.balance, certify_rows


def _facts(agent: Agent[Problem[Softmax]], said: FloatArray) -> SummaryStatistics:
    classes = agent.problem.outputs
    d = agent.data.d
    counts, lengths, sums = np.split(said.astype(float), [classes, classes + d])
    total = float(counts.sum())
    at_zero = math.log(classes)
    centre = None
    unit = 1.0
    spread = float(lengths.sum())
    if agent.problem.intercept:
        centre = sums / total
        about = np.maximum(lengths - total * centre**2, 0.0)
        spread = float(about.sum()) or spread
        unit = math.sqrt(spread / (total * max(d, 1))) or 1.0
    squares = total * (1.0 - 1.0 / classes)
    shares = counts[counts > 0] / total
    if agent.problem.intercept:
        null = -float(shares @ np.log(shares))
    else:
        null = at_zero
    known = lengths_of_start(
        agent, total, total * at_zero, squares, squares * spread, sum_of_inverses(lengths)
    )
    return replace(
        known,
        gap_unit=null or 1.0,
        primal_at_zero=at_zero,
        centre=centre,
        unit=unit,
        lengths=lengths,
        counts=tuple(counts.tolist()),
    )


class SoftmaxTerms(Terms):
    """What rows add whose dual is p − e_y, with p in the simplex."""

    def __init__(
        self,
        agent: Agent[Problem[Softmax]],
        w: FloatArray,
        local: SoftmaxLocalLoss,
        dual: FloatArray | None,
    ):
        self.agent = agent
        self.here = local
        self.error = _score_error(agent, local, w)
        if dual is None:
            self.p = local.p
        else:
            self.p = _in_the_simplex(local, dual)

    @discloses(
        (
            "for each class: the weight of your rows, and the sum of the probabilities that the "
            "model "
            "gives it"
        ),
        "how many of your rows each class has",
        TOTALS,
        applies=lambda case: case.intercept,
        most=lambda case: (2, 3 * case.outputs),
    )
    def balance(self) -> Protocol[None]:
        """Every class gets the weight that it has in the labels; a class that no row has gets
        none.
        """
        agent = self.agent
        local = self.here
        own = np.bincount(local.y, agent.weighted(np.ones(len(local.y))), agent.problem.outputs)
        weights, counts = np.split(
            (yield Sum(np.concatenate([_sums(local.weighted(self.p)), own]))), 2
        )
        if not counts.all():
            self.p = _of_present_classes(self.p, local.y, counts > 0)
            weights = yield Sum(_sums(local.weighted(self.p)))
        self.p = _balanced(self.p, weights, counts)

    @cached_property
    def v(self) -> FloatArray:
        """p − e_y."""
        return _less_labels(self.p, self.here)

    @cached_property
    def adjoint(self) -> FloatArray:
        local = self.here
        if self.p is local.p:
            return local.adjoint
        return self.agent.design.adjoint(local.weighted(self.v))

    @cached_property
    def length(self) -> float:
        agent = self.agent
        normalising = (agent.problem.outputs + FEW) * math.sqrt(agent.weight)
        return (agent.data.n + agent.count + 4) * _norm(self.here, self.v) + normalising

    def losses(self) -> tuple[float, float]:
        return _losses(self.agent, self.here, self.error)

    def gaps(self, c: float) -> tuple[float, float]:
        if c == 1.0:
            p = self.p
        else:
            p = c * self.p + (1.0 - c) * (self.p - self.v)
        return _gaps(self.agent, self.here, p, self.error)

    def left(self) -> list[float]:
        left, error = _left_over(self.agent, self.here, self.v)
        return [error, *left.tolist()]

    def imbalance(self, told: FloatArray) -> FloatArray:
        return told[1:]

    def left_over(self, told: FloatArray, c: float) -> float:
        classes = self.agent.problem.outputs
        return float(np.abs(told[1:]).sum()) + float(told[0]) + 2.0 * classes * self.agent.cut

    def room(self, intercepts: FloatArray) -> float:
        return ROOM + RADIUS * float(np.abs(intercepts).max())


def _in_the_simplex(local: SoftmaxLocalLoss, v: FloatArray) -> FloatArray:
    """The probabilities that a dual stands for, or near ones."""
    p = v.astype(float).reshape(local.scores.shape)
    p[np.arange(len(p)), local.y] += 1.0
    np.maximum(p, 0.0, out=p)
    p /= np.maximum(p.sum(axis=1, keepdims=True), np.finfo(float).tiny)
    return p


def _of_present_classes(
    p: FloatArray, y: npt.NDArray[np.intp], present: npt.NDArray[np.bool_]
) -> FloatArray:
    """p without the classes that no row has, where only 0 weighs as much as the labels; the others
    add up to 1.
    """
    kept = np.where(present, p, 0.0)
    lost = ~(kept.sum(axis=1) > 0)
    kept[lost, y[lost]] = 1.0
    kept /= kept.sum(axis=1, keepdims=True)
    return kept


def _balanced(p: FloatArray, weights: FloatArray, counts: FloatArray) -> FloatArray:
    """p with as much of every class as the labels have."""
    total = float(counts.sum())
    with np.errstate(divide="ignore", invalid="ignore"):
        tau = max(0.0, 1.0 - float(np.nanmin(np.where(weights > 0, counts / weights, np.inf))))
    if tau == 0.0:
        return p
    rest = np.maximum(counts - (1.0 - tau) * weights, 0.0)
    return (1.0 - tau) * p + tau * (rest / rest.sum() if rest.sum() > 0 else counts / total)


def _less_labels(p: FloatArray, local: SoftmaxLocalLoss) -> FloatArray:
    if p is local.p:
        return local.gradients
    v = p.copy()
    v[np.arange(len(v)), local.y] -= 1.0
    return v


def _losses(
    agent: Agent[Problem[Softmax]], local: SoftmaxLocalLoss, error: float
) -> tuple[float, float]:
    """Σ s ℓ of its own rows, and how far it may be off."""
    return local.losses, _norm(local, local.gradients) * error + error**2 + _summed(
        agent, local.losses
    )


def _gaps(
    agent: Agent[Problem[Softmax]], local: SoftmaxLocalLoss, p: FloatArray, error: float
) -> tuple[float, float]:
    """Σ s Σ_c kl(p_c, softmax_c) of its own rows, and how far it may be off."""
    farthest = 1.0 - float(local.logs.min(initial=0.0))
    normalising = (agent.problem.outputs + FEW) * EPSILON * agent.weight * farthest
    if p is local.p:
        return 0.0, error**2 + normalising
    terms = np.empty(p.size)
    compute: Any = divergences
    compute(p.ravel(), local.logs.ravel(), terms)
    gaps = float(local.weighted(terms.reshape(p.shape)).sum())
    return gaps, _norm(local, p - local.p) * error + error**2 + _summed(agent, gaps) + normalising


def _left_over(
    agent: Agent[Problem[Softmax]], local: SoftmaxLocalLoss, v: FloatArray
) -> tuple[FloatArray, float]:
    """Σ s v of every class over its own rows, and how far all of them together may be off."""
    weighted = local.weighted(v)
    roundings = PAIRWISE + agent.count + math.log2(agent.data.n + 1)
    lost = roundings * float(np.abs(weighted).sum()) + (agent.problem.outputs + FEW) * agent.weight
    return _sums(weighted), EPSILON * lost


def _sums(v: FloatArray) -> FloatArray:
    """The sums of all columns, added up in pairs."""
    sums: FloatArray = np.ascontiguousarray(v.T).sum(axis=1)
    return sums


def _score_error(agent: Agent[Problem[Softmax]], local: SoftmaxLocalLoss, w: FloatArray) -> float:
    """‖δu‖: products, intercepts, and what softmax loses."""
    W = agent.problem.coefficients(w).reshape(-1, agent.problem.outputs)
    root = math.sqrt(agent.weight)
    columns = float(agent.column_norms @ np.abs(W).sum(axis=1))
    if agent.problem.intercept:
        intercept = float(np.abs(w[-agent.problem.outputs :]).max())
    else:
        intercept = 0.0
    lengths = _norm(local, local.scores) + root * (1.0 + math.sqrt(agent.problem.outputs))
    return (
        SAFE * EPSILON * (2 * (agent.data.d + 3) * columns + FEW * lengths + 2.0 * root * intercept)
    )


def _summed(agent: Agent[Problem[Softmax]], total: float) -> float:
    return (agent.data.n * agent.problem.outputs + agent.count + FEW) * EPSILON * total


def _norm(local: SoftmaxLocalLoss, values: FloatArray) -> float:
    """√(Σ s x²)."""
    return math.sqrt(float(np.vdot(values, local.weighted(values))))
