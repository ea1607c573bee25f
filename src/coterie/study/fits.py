"""The fits of one party in a session: what happens before the first one."""

from __future__ import annotations

from dataclasses import dataclass, replace

from coterie.api.result import Result
from coterie.data import Table
from coterie.problems.problem import AnyProblem
from coterie.run.bill import Bill
from coterie.run.certificate import Participant
from coterie.run.parties import AnyOperation
from coterie.run.site import NO_RULES
from coterie.stats.fitting import Fit, Ready, fit
from coterie.study.among import Among
from coterie.study.broadcasts import COMMITMENTS, DIGEST
from coterie.study.nonce import commitment
from coterie.study.policy import agree_on_methods
from coterie.study.preparing import prepare_own
from coterie.study.rounds import Reports
from coterie.study.session import Session, matched


def ready_to_fit(session: Session, table: Table, reports: Reports) -> Ready[Among]:
    """Match rows, compare what the parties hold, and agree on methods."""
    study, own = session.study, session.own
    common = matched(session, table)
    if common.n < table.n:
        reports.say(
            f"{table.n - common.n} of your {table.n} rows are not at every party, and take no part"
        )
    held = prepare_own(session, common)
    table, cards = held.table, held.parts
    reports.say(
        f"{table.n} rows in your table, {sum(card.columns for card in cards)} columns at all "
        "parties"
    )
    allowed, later = agree_on_methods(session, cards, held.held)
    digests = session.all_gather(commitment(own, study, table), COMMITMENTS, DIGEST)
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

    def ready_for(self, operation: AnyOperation) -> Ready[Among]:
        """The parties for an operation, with a bill of its own."""
        parties = replace(self.parties, operation=operation, bill=Bill(self.session.network))
        return replace(self.ready, parties=parties)

    def say(self, text: str) -> None:
        """Tell this party how it goes."""
        self.parties.reports.say(text)

    def fit(self, problem: AnyProblem, *, method: str | None = None) -> Result:
        """Fit one model; `method`: another one than the study's."""
        study = self.session.study
        settings = study.settings().but(method=method or study.method)
        return fit(self.ready, problem, settings)
