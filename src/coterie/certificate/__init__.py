"""The certificate: the only room that proves. Gaps are computed from the data and the iterates, never from running
values. One file per family of problems holds its two conversations, `introduce` and `certify`; the sums travel as words
like any other, so a certificate costs messages, and the bill shows them under `proof`.
"""

from __future__ import annotations

from types import ModuleType

from coterie.agent import Agent, Facts
from coterie.certificate import linear, low_rank, personal
from coterie.certificate.bound import Bound, Point
from coterie.certificate.document import Certificate, Participant, participants
from coterie.errors import NumericalError
from coterie.words import Talk

__all__ = ["Bound", "Certificate", "Participant", "Point", "certify", "introduce", "participants"]

FAMILIES: dict[str, ModuleType] = {"linear": linear, "low-rank": low_rank, "personal": personal}


def introduce(agent: Agent) -> Talk[Facts]:
    """The first conversation: how much data there is, and the objective and its slope at w = 0."""
    facts: Facts = yield from FAMILIES[agent.family].introduce(agent)
    return facts


def certify(agent: Agent, point: Point) -> Talk[Bound]:
    """Compute the objective and a lower bound together with the others. Every agent gets the same `Bound`."""
    bound: Bound = yield from FAMILIES[agent.family].certify(agent, point)
    if bound.gap == 0.0 and bound.primal < bound.dual - 1e-6 * max(1.0, abs(bound.primal)):
        raise NumericalError(f"the dual {bound.dual} is above the primal {bound.primal}; please report this.")
    return bound
