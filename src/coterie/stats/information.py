"""Add up the sums for standard errors, at a fitted model: information, scores, residuals.

    J  upper triangle of Σ s ℓ'' x xᵀ      g  Σ s ℓ' x      Σ s ℓ'²          in centred coordinates
       (see `SummaryStatistics.centre`)
    G  upper triangle of Σ s ℓ'² x xᵀ ("robust"), or of Σ_c g_c g_cᵀ over the clusters at one party
       ("clustered")
    g_c of each cluster at several parties ("clustered")
    rows, rows with a weight other than 1, rows with a weight that is not a whole number, and rows
    with an event

For weights that are not counts ("sampling", "precision"), G is Σ s² ℓ'² x xᵀ.

Then two numbers about one direction d of the model: the null vector of J if it has one, else the
Newton step −J⁻¹g:

    Σ (x·d)²      0 where columns are collinear; more where the Hessian vanishes instead, as for
                  separable classes
    rows with |x·d| > FAR      none near a minimum; where the minimum is at infinity, a Newton step
                               never gets shorter

With several classes all of these are matrices of blocks, one for each class but the first, which is
the reference.

CR2 (Bell and McCaffrey 2002; Pustejovsky and Tipton 2018) uses, where a cluster is, its score g_c
and its part J_c of J. With J⁻¹ = L Lᵀ, H = Lᵀ J_c L and f = (1 − H)^(−1/2), which is 0 where H is
1:

    Σ_c ĝ ĝᵀ      for ĝ = f Lᵀ g_c; the covariance is L (Σ_c ĝ ĝᵀ) Lᵀ
    for each coefficient with contrast a = Lᵀc of length 1, b = f a, u = H b, e = bᵀu:
    Σ_c e,  Σ_c e² − 2 e uᵀu,  U = Σ_c u uᵀ      degrees of freedom (Σe − tr U)² / (Σ(e² − 2 e uᵀu)
            + tr U²)

These are sums over clusters: where each cluster is at one party, a party adds up its own. For a
cluster at several agents, all agents add up J_c as they add up g_c.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from coterie.errors import InvalidData
from coterie.numerics.arrays import Design, FloatArray, sealed, shared_result
from coterie.problems.problem import AnyProblem
from coterie.run.agent import Agent, SummaryStatistics
from coterie.run.collectives import Protocol, Sum
from coterie.stats.moments import packed, second_moment, symmetric, unpacked

Move: TypeAlias = Callable[[FloatArray], FloatArray]
OfRows: TypeAlias = Callable[[npt.NDArray[np.bool_]], FloatArray]
"""The sum of something over some rows."""

SINGULAR = 1e-12
"""Smaller eigenvalues of the information, with a diagonal of 1, count as 0."""
FAR = 0.5
"""Largest change of a score by a Newton step near a minimum. Where classes are separable, it is 1
in every step.
"""
EXHAUSTED = 1e-9
"""Smaller eigenvalues of 1 − H count as 0: there a cluster alone determines a coefficient."""
COUNTS = 3
"""Number of counts that come before those of events."""


@dataclass(frozen=True)
class Own:
    """The numbers that one agent sends, and functions of its rows."""

    message: FloatArray
    width: int
    """Number of coefficients with standard errors."""
    move: Move
    """Computes how far a direction of the model moves the scores of the agent's rows."""
    score: OfRows
    hessian: OfRows


@dataclass(frozen=True)
class Asking:
    """The sums that the agents compute."""

    kind: str
    shared: tuple[int, ...] = ()
    """The clusters with rows at several agents."""
    counted: bool = True
    """Whether a weight counts as that many rows."""
    adjusted: bool = False
    """Whether the scores of clusters are adjusted (CR2)."""
    units: FloatArray | None = None
    """The matrix from the coefficients of the fit to the reported ones; None: they are equal."""
    clusters: npt.NDArray[np.intp] | None = None
    """At an agent: the cluster of each of its rows, as numbers from 0."""

    def of_clusters(
        self, agent: Agent[AnyProblem], score: OfRows, hessian: OfRows, width: int
    ) -> list[FloatArray]:
        """Σ_c g_c g_cᵀ over the clusters of this agent alone, and the parts of shared clusters."""
        if self.clusters is None:
            return []
        own = self.clusters
        count = len(self.shared)
        apart = np.zeros((count, width))
        hessians = np.zeros((count, _triangle(width)))
        for k, cluster in enumerate(self.shared):
            rows = own == cluster
            if not rows.any():
                continue
            apart[k] = score(rows)
            if self.adjusted:
                hessians[k] = packed(hessian(rows))
        if self.adjusted:
            return [apart.ravel(), hessians.ravel()]
        products = np.zeros((width, width))
        for cluster in self._unshared(own):
            g = score(own == cluster)
            products += np.outer(g, g)
        return [packed(products), apart.ravel()]

    def _unshared(self, own: npt.NDArray[np.intp]) -> list[int]:
        """The clusters of an agent that no other agent has."""
        present = set(np.unique(own).tolist())
        return sorted(present - set(self.shared))

    def adjustment(
        self, agent: Agent[AnyProblem], own: Own, half: FloatArray | None, width: int
    ) -> FloatArray:
        """The sums of CR2 over the clusters of this agent alone."""
        sums = Adjustment.nothing(width)
        if half is None or self.clusters is None:
            return sums.packed()
        contrasts = coordinates(agent.known, width, self.units)
        whitened = whitened_contrasts(half, contrasts)
        for cluster in self._unshared(self.clusters):
            rows = self.clusters == cluster
            sums.add(own.score(rows), own.hessian(rows), half, whitened)
        return sums.packed()

    def counts(self, agent: Agent[AnyProblem]) -> FloatArray:
        """The numbers of rows, of rows with a weight other than 1, of rows with a weight that is
        not a whole number, and of rows with each event.
        """
        n = agent.data.n
        weights = np.ones(n)
        if agent.data.weights is not None:
            weights = agent.data.weights.astype(float)
        other = float((weights != 1.0).sum())
        fractional = float((weights != np.round(weights)).sum())
        if self.counted:
            counted = weights
        else:
            counted = np.ones(n)
        stats_of = agent.problem.kind.stats
        events: FloatArray = np.zeros(stats_of.events(agent.problem))
        if events.size and n:
            events = stats_of.count_events(agent, counted)
        return np.concatenate([[float(n), other, fractional], events])


def add_information(
    agent: Agent[AnyProblem], w: FloatArray, asking: Asking
) -> Protocol[FloatArray]:
    """Add up information, scores and residuals at this model, then two numbers about a Newton
    step.
    """
    own: Own = agent.problem.kind.stats.information(agent, w, asking)
    width = own.width
    total = yield Sum(own.message)
    step, half = shared_result(total, lambda: direction(total, width))
    moved = own.move(step)
    far = (np.abs(moved) > FAR).any(axis=1)
    square = float(np.sum(moved**2))
    of_step = np.array([square, float(far.sum())])
    if asking.adjusted:
        adjustment = asking.adjustment(agent, own, half, width)
        of_step = np.concatenate([of_step, adjustment])
    total_of_step = yield Sum(of_step)
    return sealed(np.concatenate([total, total_of_step]))


def of_rows(
    agent: Agent[AnyProblem],
    asking: Asking,
    design: Design,
    gradients: FloatArray,
    curvature: Callable[[int, int], FloatArray],
) -> Own:
    """The numbers that an agent sends where the loss is a sum over rows, of one or several scores
    each.

    Parameters
    ----------
    agent : Agent
        The agent.
    asking : Asking
        The sums that the agents compute.
    design : Design
        The centred columns.
    gradients : array
        The derivative of the loss by each score: a row for each row, a column for each score.
    curvature : callable
        Computes, for two scores, the second derivatives of all rows.
    """
    count = gradients.shape[1]

    def curved(a: int, b: int) -> FloatArray:
        return agent.weighted(curvature(a, b))

    def score(rows: npt.NDArray[np.bool_]) -> FloatArray:
        return _scores(design, np.where(rows[:, None], scores, 0.0))

    def hessian(rows: npt.NDArray[np.bool_]) -> FloatArray:
        def of_these(a: int, b: int) -> FloatArray:
            return np.where(rows, curved(a, b), 0.0)

        return _moment(design, of_these, count)

    def move(d: FloatArray) -> FloatArray:
        return np.column_stack([design.forward(part) for part in d.reshape(count, -1)])

    J = _moment(design, curved, count)
    scores = gradients
    if agent.data.weights is not None:
        scores = gradients * agent.data.weights[:, None]
    score_of_all = _scores(design, scores)
    residuals = np.array([float(np.sum(scores * gradients))])
    more = [score_of_all, residuals]
    if asking.kind == "robust":
        if asking.counted:
            squares = gradients
        else:
            squares = scores

        def product(a: int, b: int) -> FloatArray:
            found: FloatArray = scores[:, a] * squares[:, b]
            return found

        more.append(packed(_moment(design, product, count)))
    width = design.shape[1] * count
    more += asking.of_clusters(agent, score, hessian, width)
    more.append(asking.counts(agent))
    return Own(packed(J, *more), width, move, score, hessian)


def numbers_of_adjustment(k: int) -> int:
    """The numbers that CR2 takes for k coefficients, in place of the products of the scores of
    clusters.
    """
    return (k + 1) * _triangle(k) + 2 * k


def _triangle(width: int) -> int:
    return width * (width + 1) // 2


def _moment(design: Design, weights: Any, classes: int) -> FloatArray:
    """The blocks Σ weights(a, b) x xᵀ for every pair of classes."""
    d = design.shape[1]
    result = np.zeros((d * classes, d * classes))
    places = [slice(k * d, (k + 1) * d) for k in range(classes)]
    for a in range(classes):
        for b in range(a, classes):
            block = symmetric(second_moment(design, weights(a, b)))
            result[places[a], places[b]] = block
            result[places[b], places[a]] = block
    return result


def _scores(design: Design, scores: FloatArray) -> FloatArray:
    parts = [design.adjoint(column).astype(float) for column in scores.T]
    return np.concatenate(parts)


# -- CR2 -------------------------------------------------------------------------------------------


@dataclass
class Adjustment:
    """Sums over clusters for CR2 and its degrees of freedom; see the module's docstring."""

    middle: FloatArray
    """Σ ĝ ĝᵀ."""
    lengths: FloatArray
    """Σ e, for each coefficient."""
    squares: FloatArray
    """Σ e² − 2 e uᵀu, for each coefficient."""
    products: FloatArray
    """Σ u uᵀ, a matrix for each coefficient."""

    @staticmethod
    def nothing(k: int) -> Adjustment:
        return Adjustment(
            middle=np.zeros((k, k)),
            lengths=np.zeros(k),
            squares=np.zeros(k),
            products=np.zeros((k, k, k)),
        )

    def add(
        self, score: FloatArray, hessian: FloatArray, half: FloatArray, contrasts: FloatArray
    ) -> None:
        """Add one cluster; contrasts are whitened, a column for each coefficient."""
        H = half.T @ hessian @ half
        H = (H + H.T) / 2
        values, vectors = np.linalg.eigh(H)
        left = 1.0 - values
        roots = np.sqrt(np.maximum(left, EXHAUSTED))
        powers = np.where(left > EXHAUSTED, 1.0 / roots, 0.0)
        f = (vectors * powers) @ vectors.T
        adjusted = f @ (half.T @ score)
        self.middle += np.outer(adjusted, adjusted)
        b = f @ contrasts
        u = H @ b
        lengths = (b * u).sum(axis=0)
        squared_norms = (u**2).sum(axis=0)
        self.lengths += lengths
        self.squares += lengths**2 - 2 * lengths * squared_norms
        self.products += np.einsum("ij,kj->jik", u, u)

    def degrees_of_freedom(self) -> FloatArray:
        """Satterthwaite's, for each coefficient."""
        mean = self.lengths - np.trace(self.products, axis1=1, axis2=2)
        spread = self.squares + (self.products**2).sum(axis=(1, 2))
        degrees: FloatArray = mean**2 / np.maximum(spread, np.finfo(float).tiny)
        return degrees

    def packed(self) -> FloatArray:
        """The sums as a message."""
        products = [packed(one) for one in self.products]
        return np.concatenate([packed(self.middle), self.lengths, self.squares, *products])

    @staticmethod
    def unpacked(message: FloatArray, k: int) -> Adjustment:
        triangle = _triangle(k)
        ends = [triangle, triangle + k, triangle + 2 * k]
        middle, lengths, squares, rest = np.split(message, ends)
        products = np.stack([unpacked(one, k) for one in rest.reshape(k, triangle)])
        return Adjustment(unpacked(middle, k), lengths.copy(), squares.copy(), products)


def whitened_contrasts(half: FloatArray, coefficients: FloatArray) -> FloatArray:
    """Lᵀc of every reported coefficient, as columns of length 1."""
    columns = half.T @ coefficients.T
    found: FloatArray = columns / np.linalg.norm(columns, axis=0)
    return found


def coordinates(
    statistics: SummaryStatistics, k: int, units: FloatArray | None = None
) -> FloatArray:
    """The matrix from centred coordinates to the reported coefficients."""
    plain: FloatArray = np.eye(k)
    if statistics.centre is not None:
        d = len(statistics.centre)
        block = np.eye(d + 1)
        block[d, :d] = -statistics.centre
        block[d, d] = statistics.unit
        plain = np.kron(np.eye(k // (d + 1)), block)
    if units is None:
        return plain
    return units @ plain


def direction(total: FloatArray, width: int) -> tuple[FloatArray, FloatArray | None]:
    """The Newton step, and an L with J⁻¹ = L Lᵀ; where J is singular, its null vector and None."""
    J = unpacked(total, width)
    lengths = np.sqrt(np.maximum(J.diagonal(), 0.0))
    lengths[lengths == 0] = 1.0
    scaled = J / np.outer(lengths, lengths)
    values, vectors = np.linalg.eigh(scaled)
    if values[0] <= SINGULAR * values[-1] or not values[-1] > 0:
        return vectors[:, 0] / lengths, None
    half = vectors / np.sqrt(values) / lengths[:, None]
    triangle = _triangle(width)
    score = total[triangle : triangle + width]
    step = -half @ (half.T @ score)
    return step, half


class Totals:
    """The sums of all agents, for k coefficients."""

    def __init__(
        self,
        received: FloatArray,
        k: int,
        statistics: SummaryStatistics,
        asking: Asking,
        events: int,
    ):
        self.k = k
        self.statistics = statistics
        self.asking = asking
        self._received = received
        triangle = _triangle(k)
        shared = len(asking.shared)
        sizes = {
            "information": triangle,
            "score": k,
            "residuals": 1,
            "middle": triangle,
            "apart": shared * k,
            "hessians": shared * triangle,
            "counts": COUNTS + events,
            "direction": 2,
            "adjustment": numbers_of_adjustment(k),
        }
        if asking.kind == "model" or asking.adjusted:
            sizes["middle"] = 0
        if not asking.adjusted:
            sizes["hessians"] = 0
            sizes["adjustment"] = 0
        ends = np.cumsum(list(sizes.values()))
        assert ends[-1] == len(received)
        parts = np.split(received, ends[:-1])
        self._parts = dict(zip(sizes, parts, strict=True))

    @property
    def plain(self) -> FloatArray:
        """The matrix from centred coordinates to the reported coefficients."""
        return coordinates(self.statistics, self.k, self.asking.units)

    @property
    def residuals(self) -> float:
        """Σ s ℓ'²."""
        return float(self._parts["residuals"][0])

    @property
    def rows(self) -> float:
        """The number of rows."""
        return float(self._parts["counts"][0])

    @property
    def weighted(self) -> bool:
        """Whether some row has a weight other than 1."""
        return bool(self._parts["counts"][1])

    @property
    def fractional(self) -> int:
        """The number of rows with a weight that is not a whole number."""
        return int(self._parts["counts"][2])

    @property
    def events(self) -> FloatArray:
        """The number of rows with each kind of event."""
        return self._parts["counts"][COUNTS:]

    def step(self) -> FloatArray:
        """The change of the coefficients by a Newton step."""
        step, _ = direction(self._received, self.k)
        return self.plain @ step

    def half(self, names: tuple[str, ...], steep: bool, curved: str = "") -> FloatArray:
        """L with J⁻¹ = L Lᵀ. If there is none, the error gives the reason.

        steep   whether the loss can have its minimum at infinity
        curved  where the loss has a second derivative, if not everywhere
        """
        d, half = direction(self._received, self.k)
        spread, far = self._parts["direction"]
        if half is None and (not steep or spread <= SINGULAR * self.k):
            raise self._singular(names, d, curved)
        if steep and (half is None or far):
            raise InvalidData(
                "the best coefficients are infinite: some columns separate the labels (for "
                "counts, rows that are all 0; for survival, a monotone likelihood), so there are "
                "no standard errors. Leave those columns out, or fit with a penalty. If the data "
                "is not separable, fit with a smaller tol."
            )
        assert half is not None
        return half

    def _singular(self, names: tuple[str, ...], null: FloatArray, curved: str) -> InvalidData:
        """The error that names the columns in a null vector of the information."""
        lengths = np.maximum(unpacked(self._received, self.k).diagonal(), 0.0)
        shares = np.abs(null * np.sqrt(lengths))
        if not shares.any():
            shares = np.abs(null)
        least = 1e-3 * shares.max()
        involved = [name for name, share in zip(names, shares, strict=True) if share > least]
        listed = ", ".join(involved[:6])
        if len(involved) > 6:
            listed += " ..."
        few = ""
        if curved:
            few = f", or too few rows are {curved}"
        return InvalidData(
            f"the information is singular: {listed} cannot be distinguished (collinear or constant "
            f"columns{few}). {_fix(involved)}"
        )

    def usual_errors(self) -> FloatArray:
        """Standard errors of independent rows with equal variance: the scale to which others are
        compared.
        """
        _, half = direction(self._received, self.k)
        assert half is not None
        spread = self.residuals / self.statistics.total or 1.0
        lengths = np.linalg.norm(self.plain @ half, axis=1)
        errors: FloatArray = np.sqrt(spread) * lengths
        return errors

    def sandwich(self, half: FloatArray) -> FloatArray:
        """J⁻¹ G J⁻¹, without a correction."""
        apart = self._parts["apart"].reshape(-1, self.k)
        G = unpacked(self._parts["middle"], self.k) + apart.T @ apart
        inverse = half @ half.T
        found: FloatArray = inverse @ G @ inverse
        return found

    def adjusted(self, half: FloatArray) -> tuple[FloatArray, FloatArray]:
        """CR2, and the degrees of freedom of every coefficient."""
        sums = Adjustment.unpacked(self._parts["adjustment"], self.k)
        contrasts = whitened_contrasts(half, self.plain)
        scores = self._parts["apart"].reshape(-1, self.k)
        hessians = self._parts["hessians"].reshape(len(scores), _triangle(self.k))
        for score, hessian in zip(scores, hessians, strict=True):
            sums.add(score, unpacked(hessian, self.k), half, contrasts)
        covariance = half @ sums.middle @ half.T
        return covariance, sums.degrees_of_freedom()


def _fix(involved: list[str]) -> str:
    """Return advice for linearly dependent columns: one-hot columns add up to 1."""
    one_hot = [name.partition("=")[0] for name in involved if "=" in name]
    if len(one_hot) > 1 and len(set(one_hot)) < len(one_hot):
        column = max(one_hot, key=one_hot.count)
        return f"The categories of {column!r} add up to 1: encode it with one-hot(10, drop-first)."
    return (
        "Leave one of them out; of columns for the categories of one variable, drop the first "
        "(one-hot: drop-first)."
    )
