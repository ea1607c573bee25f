"""The duality gap of kinds with rows: P(w) − D(v) is a sum of Fenchel–Young terms, each at least 0,
rounding included.

A kind supplies the sums over its own rows (`Terms`). The rest of the proof is the same for all
kinds:

    balance   with intercepts, one Sum with which each agent changes v so that Σ s v = 0 in every
              score
    sum       one Sum of X̃ᵀ(s∘v), losses, gaps, rounding errors, and the rest of Σ s v
    shrink    one Sum more, if −q = −X̃ᵀ(s∘v)/n is not in the domain of g*: the gaps of c v
    conclude  g(w) + g*(−c q) + c ⟨w, q⟩, and from it the bound for all models, or for those of
              bounded norm
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from coterie.numerics.arrays import FloatArray, shared_result
from coterie.numerics.local_loss import side_by_side
from coterie.numerics.penalties import Penalty
from coterie.problems.problem import Problem
from coterie.run.agent import Agent
from coterie.run.certificate.bound import ANY, Bound
from coterie.run.collectives import Protocol, Sum
from coterie.run.disclosure import TOTALS, discloses

EPSILON = 2.0**-53
SAFE = 1.01
"""Factor that covers the rounding of the bounds on rounding themselves."""
FEW = 16
"""Roundings of a term that is computed from its score, its label and its dual."""
ROWS = 2.0**30
"""The most roundings that a sum over rows goes through."""
ROOM = 1e3
"""With an intercept, a bound allows for intercepts within `ROOM` times the scale of the labels."""
RADIUS = 10.0
"""A bound for bounded norms covers norms up to at least `RADIUS` times the norm of the model."""
RADII = RADIUS ** np.arange(7)
"""Multiples of the smallest norm bound among which a proof chooses."""
SPENT_ON_RADIUS = 0.1
"""Share of the target that a larger norm bound may cost."""


class Terms(ABC):
    """The sums over one agent's rows, at its model w and a dual v in the domain of its loss."""

    @property
    @abstractmethod
    def adjoint(self) -> FloatArray:
        """X̃ᵀ(s∘v), intercepts last."""

    @property
    @abstractmethod
    def length(self) -> Any:
        """√(Σ s v²) times the roundings that an entry of `adjoint` goes through."""

    at_zero: Any = 0.0
    """Σ s ℓ*(0)."""
    own_parts: Any = None
    """The parts of the model that only this agent has, if any: see `certificate.OwnParts`."""
    centred: bool = False
    """Whether `adjoint` is of columns about their means, because the means are far from 0."""
    cancels: float = 0.0
    """1 where `at_zero` may cancel the loss, so that their sum loses digits of either."""

    @abstractmethod
    def losses(self) -> tuple[Any, Any]:
        """Σ s ℓ, and a bound of its rounding error."""

    @abstractmethod
    def gaps(self, c: float) -> tuple[Any, Any]:
        """Σ s (ℓ + ℓ* − u v') for v' = c v, and a bound of its rounding error."""

    # -- with intercepts ---------------------------------------------------------------------------

    def balance(self) -> Protocol[None]:
        """Change v so that Σ s v = 0 in every score."""
        yield from ()

    def left(self) -> Sequence[Any]:
        """Σ s v after `balance`, and a bound of its rounding error."""
        return ()

    def imbalance(self, sums: FloatArray) -> FloatArray:
        """Σ s v of every score, from the sums of `left`."""
        return sums

    def left_over(self, sums: FloatArray, c: float) -> float:
        """A bound of |Σ s v|, from the sums of `left`."""
        return 0.0

    def room(self, intercepts: FloatArray) -> float:
        """The distance from these intercepts (about the columns' means) up to which the bound
        holds.
        """
        return 0.0


class NegativeGradient(NamedTuple):
    """−q = −X̃ᵀ(s∘v)/n, where the penalty's conjugate is evaluated."""

    u: FloatArray
    """−q."""
    off: FloatArray
    """The most by which each entry can be off."""
    c: float
    """The factor that shrinks u into the domain of g*."""


@discloses(
    (
        "for each column (and class): your rows, weighted by dual variables and added up; and "
        "eight sums of losses"
    ),
    "a weighted sum of your rows, another one for each certificate, and your total loss",
    TOTALS,
    most=lambda case: (2, case.columns * case.outputs + 8 + case.intercept * (case.outputs + 1)),
)
def certify_rows(
    agent: Agent[Problem[Any]],
    w: FloatArray,
    terms: Terms,
    target: float = 0.0,
    radius: float | None = ANY,
) -> Protocol[Bound]:
    """The bound for a model w that all agents share."""
    problem = agent.problem
    if problem.intercept:
        yield from terms.balance()
    adjoint = terms.adjoint
    length = terms.length
    many = adjoint.ndim > 1
    own = [*terms.losses(), terms.at_zero, *terms.gaps(1.0), length * length]
    if problem.intercept:
        own += terms.left()
    d = adjoint.shape[-1] - problem.free()
    columns = adjoint[..., :d]
    numbers = side_by_side(own, many)
    sums = yield Sum(np.concatenate([columns, numbers], axis=-1))
    # Where all agents of this process have the same array w, one of them computes what follows
    # from the sums.
    if terms.own_parts is None:
        place = id(w)
    else:
        place = None
    gradient = shared_result(sums, _negative_gradient, agent, terms, sums, d, key=place)
    shrunk = sums[d + 3 : d + 5]
    if gradient.c < 1.0:
        own_shrunk = side_by_side(terms.gaps(gradient.c), many)
        shrunk = yield Sum(own_shrunk)
    return shared_result(
        sums, _concluded, agent, w, terms, sums, gradient, shrunk, target, radius, key=place
    )


def _negative_gradient(
    agent: Agent[Problem[Any]], terms: Terms, sums: FloatArray, d: int
) -> NegativeGradient:
    """−q about the columns' means, from the sums."""
    known = agent.known
    u = agent.problem.negative_gradient(sums[:d], known.total)
    if known.centre is not None and not terms.centred:
        imbalance = terms.imbalance(sums[d + 6 :])
        u = u + np.outer(known.centre, imbalance / known.total).ravel()
    length_squared = float(sums[d + 5])
    return gradient_with_error(agent, u, length_squared, terms.centred)


def _concluded(
    agent: Agent[Problem[Any]],
    w: FloatArray,
    terms: Terms,
    sums: FloatArray,
    gradient: NegativeGradient,
    shrunk: FloatArray,
    target: float,
    radius: float | None,
) -> Bound:
    problem = agent.problem
    penalty = problem.penalty
    u, off, c = gradient
    coefficients = problem.coefficients(w)
    d = len(coefficients)
    losses, losses_error, at_zero, gaps, gaps_error = map(float, sums[d : d + 5])
    room = None
    imbalance = 0.0
    if problem.intercept:
        room = _room(agent, w, terms)
        imbalance = room * terms.left_over(sums[d + 6 :], c)
    radii: tuple[float, ...] = ()
    bounded: tuple[float, ...] = ()
    if not penalty.coercive:
        norm = float(np.linalg.norm(coefficients))
        radii = radii_for(agent, norm, radius)
        bounded = tuple(bounded_parts(penalty, coefficients, u, off, radii))
    error_norm = float(np.linalg.norm(off))
    # `at_zero` and the losses may cancel: their sum loses digits of either.
    cancelled = FEW * EPSILON * terms.cancels * abs(at_zero)
    shrunk_gaps, shrunk_error = map(float, shrunk[:2])
    totals = Totals(
        losses=losses,
        losses_error=losses_error + cancelled,
        at_zero=at_zero,
        gaps=gaps,
        gaps_error=gaps_error,
        shrunk=shrunk_gaps,
        shrunk_error=shrunk_error,
        imbalance=imbalance,
        penalty=penalty.value(coefficients),
        penalty_gap=penalty.fenchel_young(coefficients, c * u),
        penalty_gap_and_error=penalty.fenchel_young(coefficients, c * u, c * off),
        nothing=penalty.conjugate(0.0 * u),
        bounded=bounded,
        bounded_errors=tuple(most * error_norm for most in radii),
        radii=radii,
        room=room,
    )
    return bound_of(agent, totals, target, radius)


def _room(agent: Agent[Problem[Any]], w: FloatArray, terms: Terms) -> float:
    """The distance of intercepts, about the means of columns, up to which the bound holds."""
    centre = agent.known.centre
    outputs = agent.problem.outputs
    if centre is None:
        return terms.room(np.zeros(outputs))
    coefficients = agent.problem.coefficients(w)
    about = centre @ coefficients.reshape(-1, outputs)
    return terms.room(w[len(coefficients) :] + about)


@dataclass(frozen=True)
class Totals:
    """The sums over all rows and columns that a bound consists of. Each `_error` is a bound of the
    rounding error.
    """

    losses: float
    losses_error: float
    at_zero: float
    """Σ s ℓ*(0)."""
    gaps: float
    """Σ s (ℓ + ℓ* − u v) for v as it is; `shrunk`: for v shrunk into the domain of g*."""
    gaps_error: float
    shrunk: float
    shrunk_error: float
    imbalance: float
    """A bound of (b − b*) Σ s v."""
    penalty: float
    """g(w)."""
    penalty_gap: float
    """g(w) + g*(−c q) + c ⟨w, q⟩, without and with rounding."""
    penalty_gap_and_error: float
    nothing: float
    """g*(0)."""
    bounded: tuple[float, ...] = ()
    """g(w) + g*(−q) + ⟨w, q⟩ with the conjugate of each norm bound, where g is not coercive."""
    bounded_errors: tuple[float, ...] = ()
    radii: tuple[float, ...] = ()
    room: float | None = None
    """The distance of other intercepts from the model's up to which the bound holds."""


def gradient_with_error(
    agent: Agent[Problem[Any]], u: FloatArray, length_squared: float, centred: bool = False
) -> NegativeGradient:
    """−q = u, with the error of its entries for duals of squared length `length_squared`."""
    known = agent.known
    cut = agent.cut
    assert known.lengths is not None
    centre: FloatArray | float
    if known.centre is None or centred:
        centre = 0.0
    else:
        centre = np.abs(known.centre)
    squares = known.lengths
    if centred:
        squares = _about_means(agent, squares)
    lengths = (squares + cut) * (length_squared + cut)
    lost_in_sums = cut * (1.0 + 2.0 * centre) / known.total
    off = np.sqrt(lengths) * (SAFE * EPSILON / known.total) + lost_in_sums
    off = np.repeat(off, agent.problem.outputs)
    c = agent.problem.penalty.scale_into_domain(u, off)
    return NegativeGradient(u, off, c)


def _about_means(agent: Agent[Problem[Any]], squares: FloatArray) -> FloatArray:
    """A bound of Σ s (x − c)² of every column from Σ s x²: it includes the rounding of the sums."""
    known = agent.known
    assert known.centre is not None
    means = known.total * known.centre**2
    lost = 2.0 * ROWS * EPSILON * (squares + means)
    within = np.maximum(squares - means, 0.0)
    cut = 2.0 * agent.cut * (1.0 + np.abs(known.centre))
    return within + lost + cut


def bounded_parts(
    penalty: Penalty, w: FloatArray, u: FloatArray, off: FloatArray, radii: Sequence[float]
) -> list[float]:
    """The part of an agent's own columns in a bound, for each norm bound in `radii`; a coercive
    penalty needs the largest only.
    """
    if penalty.coercive:
        part = penalty.bounded_fenchel_young(w, u, radii[-1], off)
        return [part] * len(radii)
    return [penalty.bounded_fenchel_young(w, u, most, off) for most in radii]


def bound_of(agent: Agent[Problem[Any]], t: Totals, target: float, radius: float | None) -> Bound:
    """The smallest gap that these totals prove, for all models where that is possible."""
    total = agent.total
    # At most four of the totals below are added, and secure sums may have cut digits off each.
    cut = 4.0 * agent.cut * (1.0 + 1.0 / total)
    primal = t.losses / total + t.penalty
    primal_error = t.losses_error / total + FEW * EPSILON * t.penalty + cut
    imbalance = t.imbalance / total + cut
    shrunk_terms = (t.shrunk + t.shrunk_error) / total
    shrunk = shrunk_terms + t.penalty_gap_and_error + imbalance
    rounding = t.shrunk_error / total + imbalance
    if math.isfinite(t.penalty_gap_and_error):
        rounding += t.penalty_gap_and_error - t.penalty_gap
    nothing = primal + primal_error + t.at_zero / total + t.nothing + cut
    if shrunk <= nothing:
        gap = shrunk
        gap_rounding = rounding
    else:
        gap = nothing
        gap_rounding = primal_error
    unbounded = Bound.of(primal, gap, gap_rounding, None, t.room, primal_error)
    terms = (t.gaps + t.gaps_error) / total
    bounded = [terms + part + imbalance for part in t.bounded]
    if not bounded or radius is None or gap <= target:
        return unbounded
    affordable = target * SPENT_ON_RADIUS
    fits = [k for k, bounded_gap in enumerate(bounded) if bounded_gap <= affordable]
    if fits:
        k = fits[-1]
    else:
        k = 0
    if radius == ANY and bounded[k] > target and gap <= bounded[k]:
        return unbounded
    rounding = t.gaps_error / total + imbalance + t.bounded_errors[k]
    return Bound.of(primal, bounded[k], rounding, t.radii[k], t.room, primal_error)


def radii_for(agent: Agent[Problem[Any]], norm: float, given: float | None) -> tuple[float, ...]:
    """The norm bounds among which a proof chooses; the given one alone, if it is one of them."""
    least = max(RADIUS * norm, agent.known.span)
    if not given or not least:
        return tuple((least * RADII).tolist())
    if given > 0:
        times = round(math.log10(given / least))
    else:
        times = 0
    last = len(RADII) - 1
    power = min(max(times, 0), last)
    return (least * RADIUS**power,)
