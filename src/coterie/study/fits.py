"""The fits of one party in a session: what happens before the first one."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from coterie.api.result import Result
from coterie.data import Table
from coterie.problems.problem import AnyProblem
from coterie.run.agent import Agent
from coterie.run.bill import Bill
from coterie.run.certificate import Participant
from coterie.run.parties import Operation
from coterie.run.settings import Limits
from coterie.run.setup import with_offset
from coterie.run.site import NO_RULES
from coterie.stats.fitting import Fit, Ready, fit
from coterie.study.among import Among
from coterie.study.broadcasts import COMMITMENTS
from coterie.study.nonce import commitment
from coterie.study.policy import agree_on_methods
from coterie.study.preparing import prepare_own
from coterie.study.rounds import Reports
from coterie.study.session import Session, matched, member, transport_of
from coterie.transport.driver import Driver
from coterie.transport.links import Stop


def ready_to_fit(session: Session, table: Table, reports: Reports) -> Ready[Among]:
    """Match rows, compare what the parties hold, and agree on methods."""
    study, own = session.study, session.own
    common = matched(session, table)
    if common.n < table.n:
        reports.say(
            f"{table.n - common.n} of {table.n} rows here are not at every party, and take no part"
        )
    held = prepare_own(session, common)
    table, cards = held.table, held.parts
    reports.say(
        f"{table.n} rows here, {sum(card.columns for card in cards)} columns at all parties"
    )
    allowed, later = agree_on_methods(session, cards, held.held)
    digests = session.all_gather(commitment(own, study, table), COMMITMENTS, str)
    participants = tuple(
        Participant(card.name, card.rows, card.columns, digest)
        for card, digest in zip(cards, digests, strict=True)
    )
    operation = Fit(study.make_problem(), study.settings())
    parties = replace(
        Among.of(session, operation, table, cards, held.account, NO_RULES), reports=reports
    )
    part = f"{own.party} of {study.name}" if study.split == "features" else None
    return Ready(
        parties,
        study.make_network(),
        held.classes,
        participants,
        held.prepared,
        held.sent,
        allowed,
        later,
        part,
    )


@dataclass(frozen=True)
class Fits:
    """What the fits of one session have in common."""

    session: Session
    ready: Ready[Among]

    @property
    def parties(self) -> Among:
        """The parties, seen from this one."""
        return self.ready.parties

    def ready_for(self, operation: Operation[Any]) -> Ready[Among]:
        """The parties for an operation, with a bill of its own."""
        parties = replace(self.parties, operation=operation, bill=Bill(self.session.network))
        return replace(self.ready, parties=parties)

    @property
    def table(self) -> Table:
        """This party's rows, prepared."""
        return self.parties.site.data

    def say(self, text: str) -> None:
        """Tell this party how it goes."""
        self.parties.reports.say(text)

    def transport(self) -> Driver:
        """What carries one fit, or what is asked beside it: new masks, a new bill, the same
        account.
        """
        transport = transport_of(self.session)
        transport.account = self.parties.account
        transport.collectives.stop = Stop()
        return transport

    def member(self, table: Table, problem: AnyProblem) -> Agent:
        """This party as an agent with these rows."""
        cards = self.parties.cards
        problem = with_offset(problem.with_classes(self.ready.classes), cards)
        return member(self.session, table, cards, problem, self.session.study.make_network())

    def fit(
        self,
        problem: AnyProblem,
        *,
        limits: Limits | None = None,
        table: Table | None = None,
        method: str | None = None,
        before: Result | None = None,
        called: str = "",
    ) -> Result:
        """The result of one fit.

        table   for a fold: the rows to learn from
        method  if it is not the study's
        before  a result for the same rows, from whose model and dual to start
        limits  if they are not the study's
        called  what tells this fit's checkpoint from those of other fits of the same problem
        """
        study, ready = self.session.study, self.ready
        settings = study.settings()
        settings = replace(settings, limits=limits or settings.limits).but(
            method=method or study.method
        )
        if called or study.path is not None:
            ready = replace(ready, sent=None)
        if table is not None:
            kept = table
            ready = ready.map(lambda site: kept)
        return fit(ready, problem, settings, before=before, called=called)
