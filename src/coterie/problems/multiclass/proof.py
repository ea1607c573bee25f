"""Proofs for linear models of several classes, split by samples: the duality gap of softmax, as in
`linear/proof.py`.

The dual of a row is p − e_y for any p in the simplex, and a row's Fenchel–Young term is Σ_c kl(p_c,
softmax(u)_c). Two steps make p feasible, and both stay in the simplex:

1. With intercepts, p' = (1 − τ) p + τ r gives every class the weight that it has in the labels. N_c
   is the weight of class c in the labels, P_c its weight in p:
   r_c = (N_c − (1 − τ) P_c)/(τ n),    τ = max(0, 1 − min_c N_c/P_c)
   Before that, the proof takes a class that no row has out of p, and scales the other classes to
   add up to 1.
2. p'' = c p' + (1 − c) e_y shrinks the dual into the domain of g*, as with one score per row.

Probabilities add up to 1 only up to rounding. The bound uses the dual of p divided by its sum,
which differs by another C roundings.
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
"""Roundings of a sum that numpy adds up in pairs, without one for each doubling of its terms."""


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
        """Send the weight of each class and the scale of each column."""
        classes = agent.problem.outputs
        ones = agent.weighted(np.ones(agent.data.n))
        counts = np.bincount(agent.exact_labels.astype(np.intp), ones, classes)
        if agent.problem.intercept:
            sums = agent.data.X.T @ ones
        else:
            sums = np.empty(0)
        own = np.concatenate([counts, agent.column_squares, sums])
        sums = yield Sum(own)
        return shared_result(sums, _statistics, agent, sums)

    def certify(
        self,
        agent: Agent[Problem[Softmax]],
        point: Point,
        target: float = 0.0,
        radius: float | None = ANY,
    ) -> Protocol[Bound]:
        """P(w), and a bound of its distance from the minimum."""
        w = point.w.astype(float, copy=False)
        terms = SoftmaxTerms(agent, w, agent.at(w), point.v)
        return (yield from certify_rows(agent, w, terms, target, radius))

    def dual_at(self, agent: Agent[Problem[Softmax]], w: FloatArray) -> FloatArray:
        """The dual that a model has where no other is given: its gradients."""
        gradients: FloatArray = agent.at(w.astype(float, copy=False)).gradients
        return gradients.ravel()

    introduces: Protocols = (introduce,)

    @property
    def proves(self) -> Protocols:
        """The weights of classes, and the proof for all kinds with rows."""
        return SoftmaxTerms.balance, certify_rows


def _statistics(agent: Agent[Problem[Softmax]], sums: FloatArray) -> SummaryStatistics:
    classes = agent.problem.outputs
    d = agent.data.d
    counts, squares, column_sums = np.split(sums.astype(float), [classes, classes + d])
    total = float(counts.sum())
    at_zero = math.log(classes)
    centre = None
    unit = 1.0
    spread = float(squares.sum())
    null = at_zero
    if agent.problem.intercept:
        centre = column_sums / total
        about = np.maximum(squares - total * centre**2, 0.0)
        spread = float(about.sum()) or spread
        unit = math.sqrt(spread / (total * max(d, 1))) or 1.0
        shares = counts[counts > 0] / total
        null = -float(shares @ np.log(shares))
    gradient_squares = total * (1.0 - 1.0 / classes)
    known = lengths_of_start(
        agent,
        total,
        total * at_zero,
        gradient_squares,
        gradient_squares * spread,
        sum_of_inverses(squares),
    )
    return replace(
        known,
        gap_unit=null or 1.0,
        primal_at_zero=at_zero,
        centre=centre,
        unit=unit,
        lengths=squares,
        counts=tuple(counts.tolist()),
    )


class SoftmaxTerms(Terms):
    """The terms of rows whose dual is p − e_y, with p in the simplex."""

    def __init__(
        self,
        agent: Agent[Problem[Softmax]],
        w: FloatArray,
        local: SoftmaxLocalLoss,
        dual: FloatArray | None,
    ):
        self.agent = agent
        self.local = local
        self.error = _score_error(agent, local, w)
        if dual is None:
            self.p = local.p
        else:
            self.p = _in_the_simplex(local, dual)

    @discloses(
        (
            "for each class: the weight of your rows, and the sum of the probabilities that the "
            "model gives it"
        ),
        "how many of your rows each class has",
        TOTALS,
        applies=lambda case: case.intercept,
        most=lambda case: (2, 3 * case.outputs),
    )
    def balance(self) -> Protocol[None]:
        """Give every class the weight that it has in the labels."""
        agent = self.agent
        local = self.local
        classes = agent.problem.outputs
        ones = agent.weighted(np.ones(len(local.y)))
        own_counts = np.bincount(local.y, ones, classes)
        own_weights = _sums(local.weighted(self.p))
        sums = yield Sum(np.concatenate([own_weights, own_counts]))
        weights, counts = np.split(sums, 2)
        if not counts.all():
            self.p = _of_present_classes(self.p, local.y, counts > 0)
            weights = yield Sum(_sums(local.weighted(self.p)))
        self.p = _balanced(self.p, weights, counts)

    @cached_property
    def v(self) -> FloatArray:
        """p − e_y."""
        return _less_labels(self.p, self.local)

    @cached_property
    def adjoint(self) -> FloatArray:
        local = self.local
        if self.p is local.p:
            return local.adjoint
        weighted = local.weighted(self.v)
        return self.agent.design.adjoint(weighted)

    @cached_property
    def length(self) -> float:
        agent = self.agent
        normalising = (agent.problem.outputs + FEW) * math.sqrt(agent.weight)
        roundings = agent.data.n + agent.count + 4
        return roundings * _norm(self.local, self.v) + normalising

    def losses(self) -> tuple[float, float]:
        return _losses(self.agent, self.local, self.error)

    def gaps(self, c: float) -> tuple[float, float]:
        if c == 1.0:
            p = self.p
        else:
            labels = self.p - self.v
            p = c * self.p + (1.0 - c) * labels
        return _gaps(self.agent, self.local, p, self.error)

    def left(self) -> list[float]:
        left, error = _left_over(self.agent, self.local, self.v)
        return [error, *left.tolist()]

    def imbalance(self, sums: FloatArray) -> FloatArray:
        return sums[1:]

    def left_over(self, sums: FloatArray, c: float) -> float:
        classes = self.agent.problem.outputs
        left = float(np.abs(sums[1:]).sum())
        error = float(sums[0])
        return left + error + 2.0 * classes * self.agent.cut

    def room(self, intercepts: FloatArray) -> float:
        largest = float(np.abs(intercepts).max())
        return ROOM + RADIUS * largest


def _in_the_simplex(local: SoftmaxLocalLoss, v: FloatArray) -> FloatArray:
    """The probabilities that a dual v is made of, projected into the simplex."""
    p = v.astype(float).reshape(local.scores.shape)
    rows = np.arange(len(p))
    p[rows, local.y] += 1.0
    np.maximum(p, 0.0, out=p)
    sums = p.sum(axis=1, keepdims=True)
    p /= np.maximum(sums, np.finfo(float).tiny)
    return p


def _of_present_classes(
    p: FloatArray, y: npt.NDArray[np.intp], present: npt.NDArray[np.bool_]
) -> FloatArray:
    """p without the classes that no row has; the other classes add up to 1.

    The weight of such a class in the labels is 0, so its weight in p must be 0.
    """
    kept = np.where(present, p, 0.0)
    lost = ~(kept.sum(axis=1) > 0)
    kept[lost, y[lost]] = 1.0
    kept /= kept.sum(axis=1, keepdims=True)
    return kept


def _balanced(p: FloatArray, weights: FloatArray, counts: FloatArray) -> FloatArray:
    """p with the weight of every class that the labels give it."""
    total = float(counts.sum())
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = np.where(weights > 0, counts / weights, np.inf)
        tau = max(0.0, 1.0 - float(np.nanmin(ratios)))
    if tau == 0.0:
        return p
    rest = np.maximum(counts - (1.0 - tau) * weights, 0.0)
    rest_sum = rest.sum()
    if rest_sum > 0:
        shares = rest / rest_sum
    else:
        shares = counts / total
    balanced: FloatArray = (1.0 - tau) * p + tau * shares
    return balanced


def _less_labels(p: FloatArray, local: SoftmaxLocalLoss) -> FloatArray:
    if p is local.p:
        return local.gradients
    v = p.copy()
    rows = np.arange(len(v))
    v[rows, local.y] -= 1.0
    return v


def _losses(
    agent: Agent[Problem[Softmax]], local: SoftmaxLocalLoss, error: float
) -> tuple[float, float]:
    """Σ s ℓ of the agent's own rows, and a bound of its rounding error."""
    curved = error**2
    first_order = _norm(local, local.gradients) * error
    return local.losses, first_order + curved + _summation_error(agent, local.losses)


def _gaps(
    agent: Agent[Problem[Softmax]], local: SoftmaxLocalLoss, p: FloatArray, error: float
) -> tuple[float, float]:
    """Σ s Σ_c kl(p_c, softmax_c) of the agent's own rows, and a bound of its rounding error."""
    farthest = 1.0 - float(local.logs.min(initial=0.0))
    roundings = (agent.problem.outputs + FEW) * EPSILON
    normalising = roundings * agent.weight * farthest
    curved = error**2
    if p is local.p:
        return 0.0, curved + normalising
    terms = np.empty(p.size)
    compute: Any = divergences
    compute(p.ravel(), local.logs.ravel(), terms)
    weighted = local.weighted(terms.reshape(p.shape))
    gaps = float(weighted.sum())
    first_order = _norm(local, p - local.p) * error
    return gaps, first_order + curved + _summation_error(agent, gaps) + normalising


def _left_over(
    agent: Agent[Problem[Softmax]], local: SoftmaxLocalLoss, v: FloatArray
) -> tuple[FloatArray, float]:
    """Σ s v of every class over the agent's own rows, and a bound of the rounding error of all."""
    weighted = local.weighted(v)
    sum_roundings = PAIRWISE + agent.count + math.log2(agent.data.n + 1)
    normalising_roundings = agent.problem.outputs + FEW
    size = float(np.abs(weighted).sum())
    lost = sum_roundings * size + normalising_roundings * agent.weight
    return _sums(weighted), EPSILON * lost


def _sums(v: FloatArray) -> FloatArray:
    """The sums of all columns, added up in pairs."""
    columns = np.ascontiguousarray(v.T)
    sums: FloatArray = columns.sum(axis=1)
    return sums


def _score_error(agent: Agent[Problem[Softmax]], local: SoftmaxLocalLoss, w: FloatArray) -> float:
    """‖δu‖ from products, intercepts, and the rounding in softmax."""
    classes = agent.problem.outputs
    W = agent.problem.coefficients(w).reshape(-1, classes)
    root = math.sqrt(agent.weight)
    columns = float(agent.column_norms @ np.abs(W).sum(axis=1))
    if agent.problem.intercept:
        intercepts = w[-classes:]
        intercept = float(np.abs(intercepts).max())
    else:
        intercept = 0.0
    lengths = _norm(local, local.scores) + root * (1.0 + math.sqrt(classes))
    products = 2 * (agent.data.d + 3) * columns
    return SAFE * EPSILON * (products + FEW * lengths + 2.0 * root * intercept)


def _summation_error(agent: Agent[Problem[Softmax]], total: float) -> float:
    """The rounding error of a sum over rows, classes and agents, of terms that are at least 0."""
    terms = agent.data.n * agent.problem.outputs
    return (terms + agent.count + FEW) * EPSILON * total


def _norm(local: SoftmaxLocalLoss, values: FloatArray) -> float:
    """√(Σ s x²)."""
    squares = float(np.vdot(values, local.weighted(values)))
    return math.sqrt(squares)
