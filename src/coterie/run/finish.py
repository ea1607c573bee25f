"""End a run, on any engine, with a certificate and a result; and compute its proof again."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from coterie.api.result import History, Result
from coterie.data.keys import shortened
from coterie.data.table import Indices
from coterie.networks import Network
from coterie.numerics.arrays import FloatArray
from coterie.problems.problem import AnyProblem, K
from coterie.run.agent import Agent, AgentForm, SummaryStatistics, with_data
from coterie.run.certificate import Bound, Certificate, Participant, Point, certify, introduce
from coterie.run.collectives import Protocol
from coterie.run.disclosure import (
    NO_MESSAGES,
    Case,
    Counts,
    added,
    applying,
    discloses,
    most_of,
)
from coterie.run.network import around_a_server
from coterie.run.rounds import Outcome
from coterie.run.setup import Setup, make_agent
from coterie.run.site import Site, SiteForm


def finish(
    setup: Setup,
    outcome: Outcome,
    model: Any,
    members: Sequence[AgentForm[AnyProblem]],
    participants: tuple[Participant, ...],
) -> Result:
    """The result of a run for the agents of this process, whose dual variables are in the
    certificate.
    """
    setup = setup.rescued(outcome.rescue)
    duals: list[FloatArray] = [np.empty(0)] * len(participants)
    for agent, point in zip(members, outcome.points, strict=True):
        if point.v is not None:
            duals[agent.index] = point.v
    certificate = Certificate.of(
        outcome.bound,
        outcome.statistics,
        tolerance=setup.limits.tol,
        participants=participants,
        settings=setup.settings(),
        model_digest=model.digest(),
        witness=tuple(duals),
    )
    notes = shortened(note for agent in members for note in agent.data.notes or ())
    return Result(
        outcome.status,
        model,
        certificate,
        outcome.bill,
        History(outcome.history),
        setup.problem.kind.models.network(model, setup.graph),
        setup.explanation,
        outcome.error,
        outcome.points[0].kept if outcome.points else None,
        (*notes, *outcome.warnings),
    )


def agent_at(
    site: Site,
    problem: K,
    split: str,
    *,
    columns: Indices | None = None,
    statistics: SummaryStatistics | None = None,
    network: Network | None = None,
) -> Agent[K]:
    """A party as an agent of that problem, where its table is; see `agent_form_at`."""
    form = agent_form_at(
        site, problem, split, columns=columns, statistics=statistics, network=network
    )
    return with_data(form)


def agent_form_at(
    site: SiteForm,
    problem: K,
    split: str,
    *,
    columns: Indices | None = None,
    statistics: SummaryStatistics | None = None,
    network: Network | None = None,
) -> AgentForm[K]:
    """A party as an agent of that problem.

    columns     the places of its columns among those of all parties
    statistics  the first sums of all parties, if they are known
    network     if problem and proof depend on who is alike
    """
    network = network or around_a_server(site.count)
    places = np.arange(site.data.d) if columns is None else columns
    agent = make_agent(site.index, site.data, places, problem, split, network, 0, site.secure_sums)
    return replace(agent, statistics=statistics, scratch=site.scratch)


def most_of_introduction(case: Case) -> Counts | None:
    """What the kind of the problem declares for its introduction."""
    introduces = case.problem.kind.proof.introduces
    return added(most_of(one, case) for one in introduces if applying([one], case))


@discloses("the first sums of a fit, once more", most=most_of_introduction)
def introduced_again(problem: AnyProblem, split: str, site: Site) -> Protocol[SummaryStatistics]:
    """Compute the first sums of a fit again, from the data as it is now."""
    return (yield from introduce(agent_at(site, problem, split)))


@discloses(
    "the first sums of a fit and those of a certificate, once more",
    # The page lists and counts them one by one.
    most=lambda case: NO_MESSAGES,
)
def proven_again(
    as_agent: Callable[[Site], Agent[AnyProblem]],
    points: Mapping[int, Point],
    radius: float | None,
    site: Site,
) -> Protocol[tuple[Bound, SummaryStatistics]]:
    """Compute the bound that these points prove, and the first sums, with the protocols of a run,
    from the data as it is now.
    """
    agent = as_agent(site)
    statistics = yield from introduce(agent)
    agent = replace(agent, statistics=statistics)
    point = points[site.index]
    known = replace(point, w=agent.lowered(point.w))
    return (yield from certify(agent, known, radius=radius)), statistics
