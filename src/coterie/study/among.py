"""One organisation among the others: `Parties` over signed messages and sums, as far as every
policy allows.
"""

from __future__ import annotations

import math
import typing
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar, runtime_checkable

from coterie.api.describe import RAW
from coterie.data import Table, read
from coterie.data.summary import TableSummary
from coterie.errors import InvalidInput
from coterie.problems.problem import AnyProblem
from coterie.run.agent import AgentForm
from coterie.run.bill import Bill
from coterie.run.collectives import Protocol
from coterie.run.disclosure import declared_by
from coterie.run.parties import AnyOperation, OperationOn, Parties, Rounds
from coterie.run.rounds import Outcome
from coterie.run.site import NO_RULES, Rules, Site
from coterie.study.broadcasts import AGREEMENT, DONE, LONGEST, Broadcast
from coterie.study.disclosure import disclosure
from coterie.study.dry_run import Asked, dry_run
from coterie.study.folder import check_folder, claim
from coterie.study.meeting import end_together, in_session
from coterie.study.policy import Account, agree_on_limits, agree_to_begin
from coterie.study.rounds import Reports, take_rounds
from coterie.study.session import (
    Say,
    Session,
    check_totals,
    matched,
    naming_liars,
    summaries,
    transport_of,
)
from coterie.study.study import PartyFile, Study

T = TypeVar("T")


@runtime_checkable
class _Saved(typing.Protocol):
    """A result that can be written to a file."""

    def save(self, path: Path) -> Path:
        """Write it."""


@dataclass(frozen=True)
class Among(Parties):
    """All parties, seen from one of them."""

    operation: AnyOperation
    split: str
    cards: Sequence[TableSummary]
    rules: Rules
    bill: Bill
    session: Session
    sites: tuple[Site, ...]
    """One: this party."""
    account: Account
    """Counts the numbers that this party sends, and stops it before they exceed its budget."""
    reports: Reports = field(default_factory=Reports)

    @property
    def apart(self) -> bool:
        return True

    @property
    def in_memory(self) -> bool:
        return False

    @property
    def site(self) -> Site:
        """This party."""
        return self.sites[0]

    @staticmethod
    def begin(
        session: Session,
        operation: AnyOperation,
        table: Table,
        held: Table | None = None,
        page: float = math.inf,
    ) -> Among:
        """Begin if all policies allow it: match rows, compare cards, agree on the strictest rules.

        held    all that this party holds, for its budget, if the operation is about a part of it
        page    how many numbers the page allows that this party agreed to
        """
        study = session.study
        if operation.governed:
            agree_to_begin(
                session, table.n, empty=not operation.needs_rows and study.split == "samples"
            )
        table = matched(session, table) if operation.matches else table
        cards = summaries(session, table, classification=operation.classifies)
        if not operation.governed:
            return Among.of(
                session, operation, table, cards, Account(session.own.party, math.inf), NO_RULES
            )
        own = cards[session.me] if held is None else TableSummary.of(held, names=False)
        account = Account.of(session, own)
        minimum, allowance, pages = agree_on_limits(session, cards, own, page)
        rules = Rules(minimum, allowance, page=pages)
        return Among.of(session, operation, table, cards, account, rules)

    @staticmethod
    def of(
        session: Session,
        operation: AnyOperation,
        table: Table,
        cards: Sequence[TableSummary],
        account: Account,
        rules: Rules,
    ) -> Among:
        """Parties that have begun already, know of each other's tables, and agree on rules."""
        study, policy = session.study, session.own.policy
        own = Rules(
            policy.minimum_count,
            account.allowance - account.sent,
            policy.per_party,
            policy.minimum_rows,
        )
        site = Site(
            session.me, len(study.names), table, secure_sums=study.has_secure_sums, rules=own
        )
        return Among(
            operation, study.split, cards, rules, Bill(session.network), session, (site,), account
        )

    def ask(self, query: Callable[[Site], T], kind: Any) -> list[T]:
        return self.session.all_gather(query(self.site), self._message(query), kind)

    def _message(self, asked: Callable[..., Any]) -> Broadcast:
        declared = self.declared(asked)
        sent = "; ".join(one.sent for one in declared_by(declared))
        return Broadcast(declared.__name__, sent, (self.session.purpose,), most=LONGEST)

    def look(self, query: Callable[[Site], T]) -> list[T | None]:
        own = query(self.site)
        return [own if index == self.site.index else None for index in range(self.site.count)]

    def map(
        self,
        step: Callable[[Site], Table],
        cards: Sequence[TableSummary] | None = None,
        part: str = "",
    ) -> Among:
        site = replace(self.site, data=step(self.site), scratch={})
        return replace(self, sites=(site,), cards=self.cards if cards is None else cards)

    def run_protocol(
        self, protocol: Callable[[Site], Protocol[T]], purpose: str = "rounds"
    ) -> T | None:
        self.declared(protocol)
        transport = transport_of(self.session, self.bill)
        transport.account = self.account
        with naming_liars(self.session, transport):
            found = transport.converse([protocol(self.site)], purpose)[0]
        if purpose == "rounds":
            self.bill.end_round()
        check_totals(self.session, transport)
        return found

    def run_rounds(self, agents: Sequence[AgentForm[AnyProblem]], rounds: Rounds) -> Outcome:
        return take_rounds(self.session, self.account, self.reports, agents, rounds)

    def answers(self, questions: Sequence[Callable[[], T]]) -> list[T]:
        return [question() for question in questions]

    def agree(self, value: str, otherwise: str) -> None:
        if len({*self.session.all_gather(value, AGREEMENT, str)}) > 1:
            raise InvalidInput(otherwise)

    def bring(self, brought: Callable[[], T], kind: Any) -> list[T]:
        return self.session.all_gather(brought(), self._message(brought), kind)


def own_columns(own: PartyFile) -> Table:
    """The party's own columns as they are, with missing values and text."""
    return replace(read(own.data, prepare=RAW), name=own.party)


@dataclass(frozen=True)
class Part:
    """A party's side of operations: its file, its study, and the function for its progress."""

    own: PartyFile
    study: Study
    say: Say = lambda text: None

    def asked(self, operation: AnyOperation, table: Table, held: Table | None = None) -> Asked:
        """The operation on that table, with the party's own policy."""
        policy = self.own.policy
        card = TableSummary.of(table if held is None else held, names=False)
        allowance = policy.allowance(self.study, card)
        return Asked(operation, table, Rules(policy.minimum_count, allowance))

    def page(
        self,
        operation: AnyOperation,
        table: Table,
        fitted: Table,
        held: Table | None = None,
    ) -> str:
        """The page of that operation; `fitted`: this party's rows as a fit takes them."""
        asked = self.asked(operation, table, held)
        return disclosure(self.study, self.own.party, fitted, operation.name, asked)

    def numbers_on_page(
        self, operation: AnyOperation, table: Table, held: Table | None = None
    ) -> float:
        """How many numbers the page of that operation allows."""
        if not operation.governed or self.study.split != "samples":
            return math.inf
        return dry_run(self.asked(operation, table, held), self.study).most

    def take(
        self,
        operation: OperationOn[T, Among],
        table: Table,
        before: Callable[[Session], None] = lambda session: None,
        held: Table | None = None,
    ) -> T:
        """Take part with what `alone` made of its table; a result with a file is written to the
        party's folder.

        before    what else all parties do first, when they have met
        held      all that this party holds, for its budget, if the operation is about a part of it
        """
        own = self.own
        if operation.file:
            check_folder(own)
        page = self.numbers_on_page(operation, table, held)

        def work(session: Session) -> T:
            before(session)
            found = operation.together(Among.begin(session, operation, table, held, page))
            if operation.file and found is not None:
                assert isinstance(found, _Saved), "what has a file can be saved"
                found.save(claim(own.output) / f"{operation.file}.json")
            end_together(session, True, DONE, self.say)
            return found

        return in_session(own, self.study, operation.name, work, self.say)
