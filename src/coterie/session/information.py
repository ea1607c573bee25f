"""What the agents add up for standard errors, in one round at a fitted model: information, scores, residuals.

    J  upper triangle of Σ s ℓ'' x xᵀ      g  Σ s ℓ' x      Σ s ℓ'²          in centred coordinates (see `facts.centre`)
    G  upper triangle of Σ s ℓ'² x xᵀ ("robust"), or of Σ_c g_c g_cᵀ over the clusters at one party ("clustered")
    g_c of each cluster at several parties ("clustered")

Then two numbers about one direction d of the model: the null vector of J if it has one, else the Newton step −J⁻¹g:

    Σ (x·d)²      0 where columns are collinear; more where the curvature vanishes instead, as for separable classes
    rows with |x·d| > FAR      none near a minimum; where the minimum is at infinity, a Newton step never gets shorter

With several classes all of these are matrices of blocks, one for each class but the first, from which they differ.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar, TypeAlias

import numpy as np
import numpy.typing as npt

from coterie.agent import Agent, Facts
from coterie.arrays import Design, FloatArray, sealed, shared_result
from coterie.certificate import Point
from coterie.errors import InvalidData
from coterie.methods import Disclosure, Method
from coterie.methods.cox_newton import CoxNewton
from coterie.methods.disclosure import TOTALS
from coterie.methods.moments import packed, second_moment, symmetric, unpacked
from coterie.stacked_design import StackedDesign
from coterie.survival import CoxHere
from coterie.words import Sum, Talk

Move: TypeAlias = Callable[[FloatArray], FloatArray]
Sums: TypeAlias = Callable[[npt.NDArray[np.bool_]], FloatArray]
"""The sum of the scores of some rows."""

SINGULAR = 1e-12
"""The least eigenvalue of the information, with a diagonal of 1, that is not taken for 0."""
FAR = 0.5
"""A Newton step that changes a score by more than this has no end in sight: where classes are separable, it is 1."""


@dataclass(frozen=True)
class State:
    """The model, and the totals once they are known."""

    w: FloatArray
    total: FloatArray


@dataclass(frozen=True)
class Information(Method[State]):
    """One round: the sums that standard errors are made of. It is no method to choose: its model stays where it is."""

    name: ClassVar[str] = "information"
    split: ClassVar[str] = "samples"
    summary: ClassVar[str] = "information and scores at a fitted model"
    first_look: ClassVar[int] = 1
    tells_labels: ClassVar[bool] = False
    disclosure: ClassVar[Disclosure] = Disclosure(
        sent="the Hessian of its rows, the products of their scores, and the scores of clusters at several parties",
        learned="weighted sums of products of its rows; with few rows, the rows and labels themselves",
        secure=TOTALS,
    )

    kind: str
    clusters: tuple[npt.NDArray[np.intp], ...] | None
    """The cluster of each row of every agent, as numbers from 0."""
    shared: tuple[int, ...]
    """The clusters with rows at several agents."""

    def start(self, agent: Agent) -> Talk[State]:
        yield from ()
        return State(agent.first_model(), np.empty(0))

    def warmed(self, agent: Agent, state: State, point: Point) -> State:
        return replace(state, w=sealed(point.w.astype(float)))

    def point(self, agent: Agent, state: State) -> Point:
        return Point(state.w, kept=state.total)

    def round(self, agent: Agent, state: State, t: int) -> Talk[State]:
        said, move = (self._of_survival if agent.problem.family == "survival" else self._of_rows)(agent, state.w)
        total = yield Sum(said)
        moved = move(shared_result(total, lambda: direction(total, len(state.w) - self._tied(agent))[0]))
        about = np.array([float(np.sum(moved**2)), float((np.abs(moved) > FAR).any(axis=1).sum())])
        told = yield Sum(about)
        return replace(state, total=sealed(np.concatenate([total, told])))

    @staticmethod
    def _tied(agent: Agent) -> int:
        """How many coefficients follow from the others: those of the first class."""
        return agent.centred.base.shape[1] if isinstance(agent.centred, StackedDesign) else 0

    def _of_rows(self, agent: Agent, w: FloatArray) -> tuple[FloatArray, Move]:
        """What an agent says, and how far a direction of the model moves its scores, a row for each of its rows."""
        design = agent.centred.base if isinstance(agent.centred, StackedDesign) else agent.centred
        here = agent.at(agent.centred.inner(w), agent.centred)
        several = isinstance(agent.centred, StackedDesign)
        slopes = here.slopes[:, 1:] if several else here.slopes[:, None]
        width = design.shape[1] * slopes.shape[1]
        if several:
            J = _moment(design, lambda a, b: agent.weighted(here.p[:, a + 1] * ((a == b) - here.p[:, b + 1])), slopes)
        else:
            loss = agent.loss
            curvature = (loss.expected_curvature if self.kind == "model" else loss.curvature)(here.scores, here.y)
            J = _moment(design, lambda a, b: agent.weighted(curvature), slopes)
        scores = slopes if agent.data.weights is None else slopes * agent.data.weights[:, None]
        more = [_scores(design, scores), np.array([float(np.sum(scores * slopes))])]
        if self.kind == "robust":
            more.append(packed(_moment(design, lambda a, b: scores[:, a] * slopes[:, b], slopes)))
        if self.clusters is not None:
            sums = lambda rows: _scores(design, np.where(rows[:, None], scores, 0.0))  # noqa: E731
            more += _clustered(sums, self.clusters[agent.index], self.shared, width)
        count = slopes.shape[1]
        return packed(J, *more), lambda d: np.column_stack([design.forward(part) for part in d.reshape(count, -1)])

    def _of_survival(self, agent: Agent, w: FloatArray) -> tuple[FloatArray, Move]:
        """The same for proportional hazards: rows have scores of their own where the risk sets are taken for known."""
        here: CoxHere = agent.at(w)
        more = [here.adjoint, np.zeros(1)]
        if self.kind != "model":
            scores = here.row_scores()
            if self.clusters is None:
                more.append(packed(scores.T @ (scores / agent.risk.weights[:, None])))
            else:
                more += _clustered(_sums_of(scores), self.clusters[agent.index], self.shared, len(w))
        return packed(CoxNewton.hessian(here), *more), lambda d: agent.risk.about_mean(here.design.forward(d))[:, None]


def _moment(design: Design, weights: Any, slopes: FloatArray) -> FloatArray:
    """The blocks Σ weights(a, b) x xᵀ for every pair of classes."""
    D, classes = design.shape[1], slopes.shape[1]
    result = np.zeros((D * classes, D * classes))
    for a in range(classes):
        for b in range(a, classes):
            block = symmetric(second_moment(design, weights(a, b)))
            result[a * D : (a + 1) * D, b * D : (b + 1) * D] = block
            result[b * D : (b + 1) * D, a * D : (a + 1) * D] = block
    return result


def _scores(design: Design, scores: FloatArray) -> FloatArray:
    return np.concatenate([design.adjoint(scores[:, a]).astype(float) for a in range(scores.shape[1])])


def _sums_of(scores: FloatArray) -> Sums:
    return lambda rows: scores[rows].sum(axis=0)


def _clustered(sums: Sums, clusters: npt.NDArray[np.intp], shared: tuple[int, ...], width: int) -> Iterator[FloatArray]:
    """Σ_c g_c g_cᵀ over the clusters that are only here, and the scores of the others."""
    own, apart = np.zeros((width, width)), np.zeros((len(shared), width))
    place = {cluster: k for k, cluster in enumerate(shared)}
    for cluster in np.unique(clusters).tolist():
        g = sums(clusters == cluster)
        if cluster in place:
            apart[place[cluster]] = g
        else:
            own += np.outer(g, g)
    yield packed(own)
    yield apart.ravel()


def direction(total: FloatArray, width: int) -> tuple[FloatArray, FloatArray | None]:
    """The Newton step and J⁻¹; where J is singular, its null vector and None."""
    J = unpacked(total, width)
    lengths = np.sqrt(np.maximum(J.diagonal(), 0.0))
    lengths[lengths == 0] = 1.0
    values, vectors = np.linalg.eigh(J / np.outer(lengths, lengths))
    if values[0] <= SINGULAR * values[-1] or not values[-1] > 0:
        return vectors[:, 0] / lengths, None
    halves = vectors / np.sqrt(values) / lengths[:, None]
    inverse = halves @ halves.T
    triangle = width * (width + 1) // 2
    return -inverse @ total[triangle : triangle + width], inverse


@dataclass(frozen=True)
class Totals:
    """What the agents found together, for k coefficients of n rows."""

    heard: FloatArray
    k: int
    facts: Facts
    kind: str
    shared: int

    @property
    def plain(self) -> FloatArray:
        """The matrix that leads from centred coordinates to those that people know."""
        if self.facts.centre is None:
            return np.eye(self.k)
        d = len(self.facts.centre)
        one = np.eye(d + 1)
        one[d, :d], one[d, d] = -self.facts.centre, self.facts.unit
        return np.kron(np.eye(self.k // (d + 1)), one)

    @property
    def residuals(self) -> float:
        """Σ s ℓ'²."""
        return float(self.heard[self._triangle + self.k])

    @property
    def _triangle(self) -> int:
        return self.k * (self.k + 1) // 2

    def step(self) -> FloatArray:
        """How far a Newton step would move the coefficients."""
        return self.plain @ direction(self.heard, self.k)[0]

    def inverse(self, names: tuple[str, ...], steep: bool) -> FloatArray:
        """J⁻¹; refused in words if there is none. `steep`: whether the loss can have its minimum at infinity."""
        d, inverse = direction(self.heard, self.k)
        spread, far = self.heard[-2:]
        if inverse is None and (not steep or spread <= SINGULAR * self.k):
            shares = np.abs(d * np.sqrt(np.maximum(unpacked(self.heard, self.k).diagonal(), 0.0)))
            if not shares.any():
                shares = np.abs(d)
            involved = [name for name, share in zip(names, shares, strict=True) if share > 1e-3 * shares.max()]
            raise InvalidData(
                f"the information is singular: {', '.join(involved[:6])}{' ...' if len(involved) > 6 else ''} cannot "
                f"be told apart (collinear or constant columns). {_fix(involved)}"
            )
        if steep and (inverse is None or far):
            raise InvalidData(
                "the best coefficients are infinite: some columns separate the labels (for counts, rows that are all "
                "0; for survival, a monotone likelihood), so there are no standard errors. Leave those columns out, or "
                "fit with a penalty. If the data is not separable, fit with a smaller tol."
            )
        assert inverse is not None
        return inverse

    def middle(self) -> FloatArray:
        """G of the sandwich."""
        start = self._triangle + self.k + 1
        G = unpacked(self.heard[start : start + self._triangle], self.k)
        start += self._triangle
        apart = self.heard[start : start + self.shared * self.k].reshape(self.shared, self.k)
        return G + apart.T @ apart


def _fix(involved: list[str]) -> str:
    """What to do about columns that cannot be told apart: those of one-hot add up to 1."""
    one_hot = [name.partition("=")[0] for name in involved if "=" in name]
    if len(one_hot) > 1 and len(set(one_hot)) < len(one_hot):
        column = max(one_hot, key=one_hot.count)
        return f"The categories of {column!r} add up to 1: encode it with one-hot(10, drop-first)."
    return "Leave one of them out; of columns for the categories of one variable, drop the first (one-hot: drop-first)."
