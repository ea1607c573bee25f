"""What all proofs from rows share: P(w) − D(v) as a sum of Fenchel–Young terms, each not negative,
rounding included.

A kind of problem says what its own rows add (`Terms`); here the rest is done, the same for all of
them:

    balance   with intercepts, a Sum that tells what v must weigh, so that Σ s v = 0 in every score
    tell      one Sum of X̃ᵀ(s∘v) and of losses, gaps, what rounding can have taken, and what is
              left of Σ s v
    shrink    one Sum more, if −q = −X̃ᵀ(s∘v)/n is not in the domain of g*: the gaps of c v
    conclude  g(w) + g*(−c q) + c ⟨w, q⟩, the claim about all models, or about those of bounded norm
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

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
"""Covers what is lost in computing a bound on rounding."""
FEW = 16
"""Roundings of a term that is computed from its score, its label and its dual."""
ROWS = 2.0**30
"""No sum over rows goes through more roundings."""
ROOM = 1e3
"""Claims beside an intercept allow for every other within so many times the scale of the labels."""
RADIUS = 10.0
"""Bounded claims speak of norms up to at least so many times that of the model,"""
RADII = RADIUS ** np.arange(7)
"""and up to as many times more as this share of the target leaves room for:"""
SPENT_ON_RADIUS = 0.1


class Terms(ABC):
    """What one agent's own rows add to a proof, at its model and at a dual v in the domain of its
    loss.
    """

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
    beside: Any = None
    """Parts of the model that are this agent's own, if there are any: see `certificate.Beside`."""
    centred: bool = False
    """Whether `adjoint` is that of columns about their means, which are far from 0."""
    cancels: float = 0.0
    """1 where `at_zero` may cancel the loss, so that adding up either loses digits of the other."""

    @abstractmethod
    def losses(self) -> tuple[Any, Any]:
        """Σ s ℓ, and how far it may be off."""

    @abstractmethod
    def gaps(self, c: float) -> tuple[Any, Any]:
        """Σ s (ℓ + ℓ* − u v') for v shrunk by c, and how far it may be off."""

    # -- beside intercepts -------------------------------------------------------------------------

    def balance(self) -> Protocol[None]:
        """Move v so that Σ s v = 0 in every score."""
        yield from ()

    def left(self) -> Sequence[Any]:
        """What is left of Σ s v, and what its rounding may be."""
        return ()

    def imbalance(self, told: FloatArray) -> FloatArray:
        """Σ s v of every score, from the totals of `left`."""
        return told

    def left_over(self, told: FloatArray, c: float) -> float:
        """The most that |Σ s v| can be, from the same."""
        return 0.0

    def room(self, intercepts: FloatArray) -> float:
        """How far from these, about the columns' means, intercepts may be that the claim is
        about.
        """
        return 0.0


@discloses(
    (
        "for each column (and class): your rows, weighted by dual variables and added up; and "
        "eight "
        "sums of losses"
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
    own = [*terms.losses(), terms.at_zero, *terms.gaps(1.0), length * length]
    own += terms.left() if problem.intercept else ()
    d = adjoint.shape[-1] - problem.free()
    sums = yield Sum(
        np.concatenate([adjoint[..., :d], side_by_side(own, adjoint.ndim > 1)], axis=-1)
    )
    # Where all agents of this process stand at one and the same w, one of them computes what
    # follows from the sums.
    if terms.beside is None:
        place = id(w)
    else:
        place = None
    slope = shared_result(sums, _slope, agent, terms, sums, d, key=place)
    shrunk = sums[d + 3 : d + 5]
    if slope[2] < 1.0:
        shrunk = yield Sum(side_by_side(terms.gaps(slope[2]), adjoint.ndim > 1))
    return shared_result(
        sums, _concluded, agent, w, terms, sums, slope, shrunk, target, radius, key=place
    )


def _slope(
    agent: Agent[Problem[Any]], terms: Terms, sums: FloatArray, d: int
) -> tuple[FloatArray, FloatArray, float]:
    """−q about the columns' means, how far its entries may be off, and what must shrink it into the
    domain of g*.
    """
    known = agent.known
    u = agent.problem.slope(sums[:d], known.total)
    if known.centre is not None and not terms.centred:
        u = u + np.outer(known.centre, terms.imbalance(sums[d + 6 :]) / known.total).ravel()
    return slope_with_error(agent, u, float(sums[d + 5]), terms.centred)


def _concluded(
    agent: Agent[Problem[Any]],
    w: FloatArray,
    terms: Terms,
    sums: FloatArray,
    slope: tuple[FloatArray, FloatArray, float],
    shrunk: FloatArray,
    target: float,
    radius: float | None,
) -> Bound:
    problem, penalty, (u, off, c) = agent.problem, agent.problem.penalty, slope
    coefficients = problem.coefficients(w)
    d = len(coefficients)
    losses, losses_error, at_zero, gaps, gaps_error = map(float, sums[d : d + 5])
    room = left = 0.0
    if problem.intercept:
        room = _room(agent, w, terms)
        left = terms.left_over(sums[d + 6 :], c)
    radii: tuple[float, ...] = ()
    bounded: tuple[float, ...] = ()
    if not penalty.coercive:
        radii = radii_for(agent, float(np.linalg.norm(coefficients)), radius)
        bounded = tuple(bounded_parts(penalty, coefficients, u, off, radii))
    totals = Totals(
        losses=losses,
        losses_error=losses_error + FEW * EPSILON * terms.cancels * abs(at_zero),
        at_zero=at_zero,
        gaps=gaps,
        gaps_error=gaps_error,
        shrunk=float(shrunk[0]),
        shrunk_error=float(shrunk[1]),
        imbalance=room * left,
        penalty=penalty.value(coefficients),
        penalty_gap=penalty.fenchel_young(coefficients, c * u),
        penalty_gap_and_error=penalty.fenchel_young(coefficients, c * u, c * off),
        nothing=penalty.conjugate(0.0 * u),
        bounded=bounded,
        bounded_errors=tuple(most * float(np.linalg.norm(off)) for most in radii),
        radii=radii,
        room=room if problem.intercept else None,
    )
    return bound_of(agent, totals, target, radius)


def _room(agent: Agent[Problem[Any]], w: FloatArray, terms: Terms) -> float:
    """How far the intercepts may be, from those about the means of columns, that the claim is
    about.
    """
    centre = agent.known.centre
    outputs = agent.problem.outputs
    if centre is None:
        return terms.room(np.zeros(outputs))
    coefficients = agent.problem.coefficients(w)
    about = centre @ coefficients.reshape(-1, outputs)
    return terms.room(w[len(coefficients) :] + about)


@dataclass(frozen=True)
class Totals:
    """What a bound is made of: sums over all samples and columns. An `_error` is what rounding can
    have taken away.
    """

    losses: float
    losses_error: float
    at_zero: float
    """Σ s ℓ*(0)."""
    gaps: float
    """Σ s (ℓ + ℓ* − u v) for v as it is, and the same for v shrunk into the domain of g*."""
    gaps_error: float
    shrunk: float
    shrunk_error: float
    imbalance: float
    """The most that (b − b*) Σ s v can be."""
    penalty: float
    """g(w)."""
    penalty_gap: float
    """g(w) + g*(−c q) + c ⟨w, q⟩, without and with rounding."""
    penalty_gap_and_error: float
    nothing: float
    """g*(0)."""
    bounded: tuple[float, ...] = ()
    """g(w) + g*(−q) + ⟨w, q⟩ with the conjugate of each radius, where the penalty has no growth."""
    bounded_errors: tuple[float, ...] = ()
    radii: tuple[float, ...] = ()
    room: float | None = None
    """How far from this one the intercepts may be that the claim is about."""


def slope_with_error(
    agent: Agent[Problem[Any]], u: FloatArray, length_squared: float, centred: bool = False
) -> tuple[FloatArray, FloatArray, float]:
    """−q, how far its entries may be off for duals of that length, and what must shrink it into the
    domain of g*.
    """
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
    off = (
        np.sqrt(lengths) * (SAFE * EPSILON / known.total) + cut * (1.0 + 2.0 * centre) / known.total
    )
    off = np.repeat(off, agent.problem.outputs)
    return u, off, agent.problem.penalty.scale_into_domain(u, off)


def _about_means(agent: Agent[Problem[Any]], squares: FloatArray) -> FloatArray:
    """At least Σ s (x − c)² of every column, from these Σ s x²: what adding them up can have lost
    stays in it.
    """
    known = agent.known
    assert known.centre is not None
    means = known.total * known.centre**2
    lost = 2.0 * ROWS * EPSILON * (squares + means)
    return np.maximum(squares - means, 0.0) + lost + 2.0 * agent.cut * (1.0 + np.abs(known.centre))


def bounded_parts(
    penalty: Penalty, w: FloatArray, u: FloatArray, off: FloatArray, radii: Sequence[float]
) -> list[float]:
    """Its own columns' part of a bounded claim; what holds for the largest radius holds for the
    others.
    """
    if penalty.coercive:
        return [penalty.bounded_fenchel_young(w, u, radii[-1], off)] * len(radii)
    return [penalty.bounded_fenchel_young(w, u, most, off) for most in radii]


def bound_of(agent: Agent[Problem[Any]], t: Totals, target: float, radius: float | None) -> Bound:
    """The smallest gap that these numbers prove, of all models if that can be."""
    total = agent.total
    # Of the numbers below, at most four at a time are sums of which something can have been cut
    # off.
    cut = 4.0 * agent.cut * (1.0 + 1.0 / total)
    primal = t.losses / total + t.penalty
    primal_error = t.losses_error / total + FEW * EPSILON * t.penalty + cut
    beside = t.imbalance / total + cut
    shrunk = (t.shrunk + t.shrunk_error) / total + t.penalty_gap_and_error + beside
    rounding = t.shrunk_error / total + beside
    if math.isfinite(t.penalty_gap_and_error):
        rounding += t.penalty_gap_and_error - t.penalty_gap
    nothing = primal + primal_error + t.at_zero / total + t.nothing + cut
    if shrunk <= nothing:
        whole = (shrunk, rounding)
    else:
        whole = (nothing, primal_error)
    bounded = [(t.gaps + t.gaps_error) / total + part + beside for part in t.bounded]
    if not bounded or radius is None or whole[0] <= target:
        return Bound.of(primal, *whole, None, t.room, primal_error)
    fits = [k for k, gap in enumerate(bounded) if gap <= target * SPENT_ON_RADIUS]
    if fits:
        k = fits[-1]
    else:
        k = 0
    if radius == ANY and bounded[k] > target and whole[0] <= bounded[k]:
        return Bound.of(primal, *whole, None, t.room, primal_error)
    rounding = t.gaps_error / total + beside + t.bounded_errors[k]
    return Bound.of(primal, bounded[k], rounding, t.radii[k], t.room, primal_error)


def radii_for(agent: Agent[Problem[Any]], norm: float, given: float | None) -> tuple[float, ...]:
    """The norms up to which a claim may speak; the one that is given, if it is one of them."""
    least = max(RADIUS * norm, agent.known.span)
    if not given or not least:
        return tuple((least * RADII).tolist())
    if given > 0:
        times = round(math.log10(given / least))
    else:
        times = 0
    return (least * RADIUS ** min(max(times, 0), len(RADII) - 1),)
