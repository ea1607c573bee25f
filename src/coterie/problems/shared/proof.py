"""Proofs for a common model and deviations of every user. The bound is the duality gap of a linear
model on the columns [X, one block per user], which are not built.

    P − P* ≤ (1/N) Σ_i s_i FY_i  +  FY_g(w, −q)  +  Σ_u (μ/2) ‖δ_u + q_u/μ‖²  +  Σ_u (ν/2) (β_u +
             p_u/ν)²
             +  (b − b*) Σ_i s_i v_i / N                  q_u = X_uᵀ(s∘v)_u/N,  p_u = Σ (s∘v)_u/N,
             q = Σ_u q_u

A user computes the terms of its deviation alone and adds them to the terms of its rows. A proof
therefore sends the same numbers as a proof for one model (`linear/proof.py`). A point is the user's
deviation followed by the common model, each with its intercept last.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from coterie.errors import NumericalError
from coterie.numerics.arrays import FloatArray
from coterie.numerics.local_loss import LocalLoss
from coterie.numerics.penalties.l2 import half_square
from coterie.numerics.penalties.penalty import lengths
from coterie.problems.linear.proof import RowTerms
from coterie.problems.parts.proof import Proof
from coterie.problems.proof import EPSILON, FEW, SAFE, certify_rows
from coterie.problems.shared.problem import Shared
from coterie.run.agent import Agent, SummaryStatistics
from coterie.run.certificate.bound import ANY, Bound, Point
from coterie.run.certificate.introduction import OF_ROWS, introduce
from coterie.run.collectives import Protocol
from coterie.run.disclosure import Protocols


class SharedProof(Proof[Shared]):
    """Introduces users and certifies the common model and the deviations by the duality gap."""

    def introduce(self, agent: Agent[Shared]) -> Protocol[SummaryStatistics]:
        return introduce(agent)

    def certify(
        self, agent: Agent[Shared], point: Point, target: float = 0.0, radius: float | None = ANY
    ) -> Protocol[Bound]:
        """Compute the bound at a point. A norm bound covers the norm of the common coefficients."""
        own, common = np.split(point.w.astype(float, copy=False), 2, axis=-1)
        deviation = Deviation(agent, own, common)
        if common.ndim == 2:
            common = common[0]  # the same for all users
        terms = RowTerms(agent, common, _local_loss(agent, point.w), point.v, deviation)
        return (yield from certify_rows(agent, common, terms, target, radius))

    def dual_at(self, agent: Agent[Shared], w: FloatArray) -> FloatArray:
        """The gradients of the rows' losses at the user's own model."""
        gradients: FloatArray = _local_loss(agent, w).gradients
        return gradients

    introduces: Protocols = OF_ROWS
    proves: Protocols = (RowTerms.balance, certify_rows)


def _local_loss(agent: Agent[Shared], w: FloatArray) -> Any:
    """The local loss at the user's own model, which is the common model plus the deviation."""
    own, common = np.split(w.astype(float, copy=False), 2, axis=-1)
    whole = own + common
    if w.ndim == 2:
        return agent.at(whole)
    return LocalLoss(whole, agent.design, agent.loss, agent.exact_labels, agent.data.weights)


class Deviation:
    """One user's deviation: δ, added to the common coefficients, and β, added to the common
    intercept.
    """

    def __init__(self, agent: Agent[Shared], own: FloatArray, common: FloatArray):
        assert isinstance(agent.problem, Shared)
        self.agent = agent
        self.sizes = np.abs(own) + np.abs(common)
        d = agent.data.d
        both = zip((slice(d), slice(d, None)), agent.problem.deviations, strict=True)
        self._parts = []
        for places, penalty in both:
            part = own[..., places]
            if penalty is not None:
                self._parts.append((places, part, penalty))
            elif part.any():
                raise NumericalError(
                    f"the model of {agent.data.name!r} deviates from the common one in "
                    "coefficients whose mu or nu is infinite."
                )

    def value(self) -> tuple[Any, Any]:
        """N times the penalties of the deviation, and a bound of the rounding error."""
        penalties: Any = 0
        for _, part, penalty in self._parts:
            size = lengths(part)
            penalties = penalties + 0.5 * penalty.strength * size * size
        value = self.agent.total * penalties
        return value, FEW * EPSILON * value

    def gaps(self, adjoint: FloatArray, length: Any, c: float) -> tuple[Any, Any]:
        """N times (μ/2) ‖δ + c q/μ‖² + (ν/2) (β + c p/ν)², and a bound of the rounding error."""
        agent = self.agent
        d = agent.data.d
        norms = np.empty(adjoint.shape)
        norms[..., :d] = agent.column_norms
        norms[..., d:] = np.sqrt(agent.weight)[..., None]
        lost = SAFE * EPSILON * np.asarray(length)[..., None] / agent.total
        off = norms * lost
        gradients = agent.problem.negative_gradient(adjoint, agent.total)
        gaps: Any = 0.0
        error: Any = 0.0
        for places, part, penalty in self._parts:
            shrunk = c * gradients[..., places]
            exact = half_square(part, shrunk, penalty.strength, 0.0)
            rounded = half_square(part, shrunk, penalty.strength, c * off[..., places])
            gaps += agent.total * exact
            error += agent.total * (rounded - exact)
        return gaps, error + FEW * EPSILON * gaps
