"""Proofs for a common model and deviations of every user: the duality gap of a linear model on the
columns [X, a block for each user], without making them.

    P − P* ≤ (1/N) Σ_i s_i FY_i  +  FY_g(w, −q)  +  Σ_u (μ/2) ‖δ_u + q_u/μ‖²  +  Σ_u (ν/2) (β_u +
             p_u/ν)²
             +  (b − b*) Σ_i s_i v_i / N                  q_u = X_uᵀ(s∘v)_u/N,  p_u = Σ (s∘v)_u/N,
             q = Σ_u q_u

A user computes its terms alone and adds them to those of its rows, so that a proof sends what it
sends for one model (`linear.py`). A point is the user's deviation followed by the common model,
each with its intercept last.
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
        """P, and how far it can be above the least; a bounded claim is about the norm of the common
        coefficients.
        """
        own, common = np.split(point.w.astype(float, copy=False), 2, axis=-1)
        beside = Deviation(agent, own, common)
        # Of several users, all rows have the common model.
        common = common if common.ndim == 1 else common[0]
        terms = RowTerms(agent, common, _here(agent, point.w), point.v, beside)
        return (yield from certify_rows(agent, common, terms, target, radius))

    def dual_at(self, agent: Agent[Shared], w: FloatArray) -> FloatArray:
        """The slopes at the user's own model."""
        gradients: FloatArray = _here(agent, w).gradients
        return gradients

    introduces: Protocols = OF_ROWS
    proves: Protocols = (RowTerms.balance, certify_rows)


def _here(agent: Agent[Shared], w: FloatArray) -> Any:
    own, common = np.split(w.astype(float, copy=False), 2, axis=-1)
    if w.ndim == 2:
        return agent.at(own + common)
    return LocalLoss(own + common, agent.design, agent.loss, agent.exact_labels, agent.data.weights)


class Deviation:
    """One user's own coefficients δ and intercept β, beside the common ones."""

    def __init__(self, agent: Agent[Shared], own: FloatArray, common: FloatArray):
        assert isinstance(agent.problem, Shared)
        self.agent, self.sizes = agent, np.abs(own) + np.abs(common)
        parts = list(
            zip(np.split(own, [agent.data.d], axis=-1), agent.problem.deviations, strict=True)
        )
        if any(part.any() for part, penalty in parts if penalty is None):
            raise NumericalError(
                f"the model of {agent.data.name!r} deviates from the common one where it must not."
            )
        self._parts = parts

    def value(self) -> tuple[Any, Any]:
        """N times its own penalties, and how far that may be off."""
        kept = [
            (lengths(part), penalty.strength)
            for part, penalty in self._parts
            if penalty is not None
        ]
        held = self.agent.total * sum(0.5 * strength * size * size for size, strength in kept)
        return held, FEW * EPSILON * held

    def gaps(self, adjoint: FloatArray, length: Any, c: float) -> tuple[Any, Any]:
        """N times (μ/2) ‖δ + c q/μ‖² + (ν/2) (β + c p/ν)², and how far that may be off."""
        agent, gaps, error = self.agent, 0.0, 0.0
        norms = np.empty(adjoint.shape)
        norms[..., : agent.data.d] = agent.column_norms
        norms[..., agent.data.d :] = np.sqrt(agent.weight)[..., None]
        off = norms * (SAFE * EPSILON * np.asarray(length)[..., None] / agent.total)
        gradients = agent.problem.negative_gradient(adjoint, agent.total)
        places = slice(agent.data.d), slice(agent.data.d, None)
        for (part, penalty), local in zip(self._parts, places, strict=True):
            if penalty is not None:
                exact = half_square(part, c * gradients[..., local], penalty.strength, 0.0)
                gaps += agent.total * exact
                rounded = half_square(
                    part, c * gradients[..., local], penalty.strength, c * off[..., local]
                )
                error += agent.total * (rounded - exact)
        return gaps, error + FEW * EPSILON * gaps
