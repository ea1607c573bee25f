"""Certificates: gaps are computed from the data and the iterates, never from running values.

A kind of problem has two protocols, `introduce` and `certify`, and `dual_at`, see
`problems/<kind>/proof.py`. The sums are collectives like any other, so a certificate costs
messages, and the bill shows them under `proof`.
"""

from __future__ import annotations

import math

from coterie.errors import NumericalError
from coterie.problems.problem import AnyProblem
from coterie.run.agent import Agent, SummaryStatistics
from coterie.run.certificate.best import (
    Best,
    as_people_know_it,
    is_as_people_know_it,
    paired,
    with_dual,
)
from coterie.run.certificate.bound import ANY, Bound, Point
from coterie.run.certificate.document import Certificate, Participant, participants, sentence
from coterie.run.collectives import Protocol

__all__ = [
    "ANY",
    "Best",
    "Bound",
    "Certificate",
    "Participant",
    "Point",
    "as_people_know_it",
    "certify",
    "introduce",
    "is_as_people_know_it",
    "paired",
    "participants",
    "sentence",
    "with_dual",
]


def introduce(agent: Agent[AnyProblem]) -> Protocol[SummaryStatistics]:
    """Compute the first sums: the amount of data, and the objective and its gradient at w = 0."""
    statistics: SummaryStatistics = yield from agent.problem.kind.proof.introduce(agent)
    return statistics


def certify(
    agent: Agent[AnyProblem], point: Point, target: float = 0.0, radius: float | None = ANY
) -> Protocol[Bound]:
    """Compute the objective and a lower bound together with the others. Every agent gets the same
    `Bound`.

    `target` is the gap to reach. If a claim can only be about models of bounded norm, `radius` is
    that norm bound: by default the largest that the target allows; None asks for a claim about all
    models.
    """
    bound: Bound = yield from agent.problem.kind.proof.certify(agent, point, target, radius)
    if math.isnan(bound.gap):
        raise NumericalError("the gap is not a number. Scale the columns, or use float64.")
    return bound
