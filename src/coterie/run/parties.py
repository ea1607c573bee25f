"""Define the interface between operations and parties: an operation is written once, on `Parties`.

    Hosted    one process asks all parties; an engine has the tables, in this process or at its
              workers (`hosted`)
    Among     one organisation; each of the other organisations runs the same code (`study.among`)

An `Operation` has two parts. In `alone`, a party checks and changes its table before it meets the
others: it refuses a bad table before the first message. `together` is the rest. Every party runs
the same code of `together`, so its decisions may depend only on values that all parties have:
cards, rules, answers and aggregates.
"""

from __future__ import annotations

import logging
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar, Generic, Never, Self, TypeAlias, TypeVar

import msgspec

from coterie.data import Table
from coterie.data import split as split_table
from coterie.data.check import distinct_names, with_distinct_names
from coterie.data.keys import noted
from coterie.data.pairing import refuse_unpaired
from coterie.data.preparation.prepared import Prepared
from coterie.data.preparation.recipes import Preparation
from coterie.data.read import read_party
from coterie.data.remote import Rows, Source
from coterie.data.remote_table import AnyTable, RemoteTable
from coterie.data.summary import TableSummary, check_together
from coterie.engines import Engine, Run
from coterie.engines import engine as find_engine
from coterie.errors import InvalidData
from coterie.networks import Network
from coterie.numerics.threads import spread
from coterie.problems.problem import AnyProblem
from coterie.run.agent import AgentForm, numbers_held, with_data
from coterie.run.bill import Bill
from coterie.run.certificate import Participant, Point
from coterie.run.checkpoint import Checkpoint
from coterie.run.collectives import Protocol
from coterie.run.disclosure import SPLITS, Undeclared, declared_by
from coterie.run.network import around_a_server, make_network, wants_secure_sums
from coterie.run.rounds import Conversation, Outcome, Watch, unwatched
from coterie.run.settings import Limits, Settings
from coterie.run.setup import Setup
from coterie.run.site import NO_RULES, Rules, Site, SiteForm, site_of
from coterie.run.tables import gather, in_one_piece, looked_at

T = TypeVar("T")
R = TypeVar("R", covariant=True)
On = TypeVar("On", contravariant=True)
LOGGER = logging.getLogger("coterie")


class OperationOn(ABC, Generic[R, On]):
    """A computation that the parties run together, once: fit, describe, evaluate, ...

    It runs on `On`: parties of one class, or parties whose tables are ready for a fit. The class
    `Operation` is for operations on parties of any class.
    """

    name: ClassVar[str]
    """Name of the operation, and of its command."""
    file: ClassVar[str] = ""
    """Noun for its result: the name of the result file."""
    discloses: ClassVar[tuple[Callable[..., Any], ...]]
    """All queries and protocols of the operation. `Parties` refuse any other."""
    splits: ClassVar[tuple[str, ...]] = SPLITS
    """Splits of the data that the operation supports."""
    matches: ClassVar[bool] = True
    """Whether organisations with data split by features first match rows by their ids."""
    governed: ClassVar[bool] = True
    """Whether the policies of the parties apply. A party that asks about new rows of its own
    discloses nothing about other rows.
    """
    tabulates: ClassVar[bool] = False
    """Whether, split by samples, its sums are about groups of rows. `groups.released` then makes
    all of them.
    """
    needs_rows: ClassVar[bool] = True
    """Whether a policy's minimum number of rows also applies to a party without rows."""

    @property
    def classifies(self) -> bool:
        """Whether organisations send the classes of their labels in their cards."""
        return False

    def alone(self, table: Table) -> Table:
        """Check and change the table of one party, before the party meets the others."""
        return table

    @abstractmethod
    def together(self, parties: On) -> R:
        """Run the rest of the operation: every party runs the same code."""


class Operation(OperationOn[R, "Parties"]):
    """An operation on parties of any class."""


AnyOperation: TypeAlias = OperationOn[object, Never]
"""An operation, for code that does not run it."""


@dataclass(frozen=True)
class Rounds:
    """The rounds of one fit: set-up, starting points and name."""

    setup: Setup
    participants: Sequence[Participant]
    """The parties with the digests of their tables."""
    origin: str | None = None
    """The digest of the model with which a warm start begins."""
    warm: Sequence[Point] | None = None
    """Starting points of a warm start, one for each agent."""
    sent: dict[str, Any] | None = None
    """State of a bill: the communication cost before the rounds."""
    called: str = ""
    """Name that distinguishes the rounds from those of other fits of the same problem. The first
    rounds have no name.
    """
    title: str = ""
    """Line shown to the parties when the rounds begin."""

    def identity(self, *more: str) -> str:
        """Return the text that identifies a checkpoint of these rounds."""
        digests = [participant.digest for participant in self.participants]
        named = filter(None, (*more, self.called))
        return self.setup.identity(self.origin, *digests, *named)


class Parties(ABC):
    """The parties that hold the data, after they have met. The operation declares every query and
    protocol that it runs on them.
    """

    operation: AnyOperation
    split: str
    cards: Sequence[TableSummary]
    """Summary of each party's table, which the party sends when the parties meet."""
    rules: Rules
    """Limits on which all parties agreed."""
    bill: Bill
    sites: Sequence[SiteForm]
    """Sites whose rounds this process starts: all sites, or its own."""

    @property
    @abstractmethod
    def apart(self) -> bool:
        """Whether parties stand for organisations."""

    @property
    @abstractmethod
    def in_memory(self) -> bool:
        """Whether all agents share one machine, so that messages cost almost nothing."""

    @abstractmethod
    def ask(self, query: Callable[[Site], T], kind: Any) -> list[T]:
        """Ask every party one query, and return the answers in the order of the parties.

        Answers have type `kind`. They are plain values, never an array of rows.
        """

    @abstractmethod
    def look(self, query: Callable[[Site], T]) -> list[T | None]:
        """Evaluate a query at every party, without sending the answers to other parties.

        An organisation receives its own answer, and None in place of all others.
        """

    @abstractmethod
    def map(
        self,
        step: Callable[[Site], Table],
        cards: Sequence[TableSummary] | None = None,
        part: str = "",
    ) -> Self:
        """Return parties whose tables `step` has changed; no table leaves its process.

        cards   summaries of the new tables; by default those of the old ones
        part    name of the new tables, if each is a part of the old one: workers keep it next to
                the old table
        """

    @abstractmethod
    def run_protocol(
        self, protocol: Callable[[Site], Protocol[T]], purpose: str = "rounds"
    ) -> T | None:
        """Run a protocol, and return its result: None if only another party knows the result."""

    @abstractmethod
    def run_rounds(self, agents: Sequence[AgentForm[AnyProblem]], rounds: Rounds) -> Outcome:
        """Run the rounds of a fit; `agents` are those of `sites`."""

    @abstractmethod
    def answers(self, questions: Sequence[Callable[[], T]]) -> list[T]:
        """Answer one question for each of `sites`, in the process that has its table.

        No party sends an answer to another party.
        """

    @abstractmethod
    def agree(self, value: str, otherwise: str) -> None:
        """Raise an error with the text `otherwise` if parties have different values.

        Values are, for example, models or settings.
        """

    @abstractmethod
    def bring(self, brought: Callable[[], T], kind: Any) -> list[T]:
        """Return the value of each caller, of type `kind`.

        One process is one caller. Of several organisations, each is a caller.
        """

    def seen(self) -> Self:
        """Return parties with new cards, after a step changed names, shapes or types of tables."""
        return self

    @property
    def names(self) -> tuple[str, ...]:
        """Name of each party."""
        return tuple(card.name for card in self.cards)

    def check(self, *, labels: bool = True) -> None:
        """Refuse tables that do not fit together."""
        check_together(self.cards, self.split, labels=labels)

    def declared(self, asked: Callable[..., Any]) -> Any:
        """Return the query or protocol without arguments; refuse one that the operation does not
        declare.
        """
        known = bare(asked)
        if known not in self.operation.discloses or not any(
            self.split in one.splits for one in declared_by(known)
        ):
            raise Undeclared(
                f"{self.operation.name}: {known.__name__} is not among what it discloses, split "
                f"by {self.split}"
            )
        return known


def bare(function: Callable[..., Any]) -> Any:
    """Return the function below all `functools.partial`: without bound arguments."""
    while isinstance(function, partial):
        function = function.func
    return function


# -- tables in this process, and at the workers of an engine ---------------------------------------


Watching = Callable[[str], AbstractContextManager[Watch]]
"""Show the rounds of a method while they run; the argument is the name of the method."""


@contextmanager
def _watching_nothing(title: str) -> Iterator[Watch]:
    yield unwatched


@dataclass(frozen=True)
class Hosted(Parties):
    """Parties whose tables an engine has, in this process or at its workers."""

    operation: AnyOperation
    split: str
    cards: Sequence[TableSummary]
    rules: Rules
    bill: Bill
    engine: Engine
    sites: tuple[SiteForm, ...]
    network: Network
    watching: Watching = field(default=_watching_nothing, repr=False, compare=False)
    adds_up: Engine | None = None
    """Engine that runs protocols, if it is not `engine`. A few sums do not justify sending tables
    to workers.
    """

    @property
    def apart(self) -> bool:
        return self.engine.apart

    @property
    def in_memory(self) -> bool:
        return self.engine.in_memory

    def ask(self, query: Callable[[Site], T], kind: Any) -> list[T]:
        self.declared(query)
        return _asked(self.engine, self.sites, query)

    def look(self, query: Callable[[Site], T]) -> list[T | None]:
        return [*_asked(self.engine, self.sites, query)]

    def map(
        self,
        step: Callable[[Site], Table],
        cards: Sequence[TableSummary] | None = None,
        part: str = "",
    ) -> Hosted:
        sites = tuple(_mapped(site, step, part) for site in self.sites)
        return replace(self, sites=sites, cards=self.cards if cards is None else cards)

    def run_protocol(
        self, protocol: Callable[[Site], Protocol[T]], purpose: str = "rounds"
    ) -> T | None:
        self.declared(protocol)
        secure = self.sites[0].secure_sums
        conversation = Conversation(protocol, purpose)
        run = Run(
            self.sites,
            conversation,
            self.network,
            Limits(),
            secure_sums=secure,
            sent=self.bill.state(),
        )
        outcome = (self.adds_up or self.engine).run(run)
        if outcome.error is not None:
            raise outcome.error
        self.bill.restore(outcome.bill.state())
        return next((answer for answer in outcome.answers if answer is not None), None)

    def run_rounds(self, agents: Sequence[AgentForm[AnyProblem]], rounds: Rounds) -> Outcome:
        setup = rounds.setup
        folder = setup.wanted.checkpoint
        saved = None if folder is None else Checkpoint(folder, rounds.identity())
        secure = setup.known.secure_sums
        if rounds.title:
            LOGGER.info(rounds.title)
        with self.watching(setup.method.name) as watch:
            LOGGER.info("%s on %s, %d parties", setup.method.name, setup.network, len(agents))
            told = saved, rounds.warm, watch, secure, rounds.sent
            outcome = self.engine.run(
                Run(agents, setup.running, setup.carrying, setup.limits, *told)
            )
        LOGGER.info(
            "%s after %d rounds, gap %.3g", outcome.status, outcome.bill.rounds, outcome.bound.gap
        )
        return outcome

    def answers(self, questions: Sequence[Callable[[], T]]) -> list[T]:
        if any(isinstance(site.data, RemoteTable) for site in self.sites):
            return self.engine.ask(questions)
        return [question() for question in questions]

    def agree(self, value: str, otherwise: str) -> None:
        """Do nothing: one caller has one value."""

    def bring(self, brought: Callable[[], T], kind: Any) -> list[T]:
        self.declared(brought)
        return [brought()]

    def seen(self) -> Hosted:
        cards = [
            msgspec.structs.replace(card, name=name)
            for card, name in zip(_asked(self.engine, self.sites, _card), self.names, strict=True)
        ]
        if not any(isinstance(site.data, RemoteTable) for site in self.sites):
            return replace(self, cards=cards)
        forms = self.engine.ask([partial(_answer, _form, site) for site in self.sites])
        sites = []
        for site, form, name in zip(self.sites, forms, self.names, strict=True):
            known = site.data
            if isinstance(known, RemoteTable):
                table = known.seen_as(replace(form, name=name))
                site = replace(site, data=table)
            sites.append(site)
        return replace(self, cards=cards, sites=tuple(sites))

    def again(self, operation: AnyOperation) -> Hosted:
        """Return parties with the same tables for another operation, with a new bill."""
        sites = tuple(replace(site, scratch={}) for site in self.sites)
        return replace(self, operation=operation, bill=Bill(self.network), sites=sites)


@dataclass(frozen=True)
class Meeting:
    """Settings for the meeting of parties whose tables an engine has."""

    split: str = "samples"
    agents: int | Sequence[Any] | None = None
    """Number of parts to split the data into, or the size or rows of each part; for data in one
    piece.
    """
    pieces: int = 1
    """Number of parts, where the caller does not set `agents`."""
    seed: int = 0
    network: Any = None
    secure_sums: bool | None = None
    prepare: Preparation | Prepared | None = None
    """Recipes of the operation. With them, reading keeps missing values and text."""
    same_order: bool = False
    """Whether all parties list the same rows in the same order, an argument of `solve`."""
    warn: bool = False
    """Whether to warn of columns that look like keys."""
    rules: Rules = NO_RULES
    only_sums: bool = False
    """Whether users send only sums. Secure sums are then possible."""

    @staticmethod
    def of(settings: Settings, pieces: int = 1) -> Meeting:
        """Return the settings for the parties of a run."""
        placement = settings.placement
        return Meeting(
            placement.split,
            placement.agents,
            pieces,
            settings.seed,
            settings.network,
            settings.secure_sums,
            settings.prepare,
            placement.same_order,
            warn=True,
        )


@contextmanager
def hosted(
    operation: AnyOperation, data: Any, meeting: Meeting, engine: str | Engine = "local"
) -> Iterator[Hosted]:
    """Yield the parties of data in any form that `solve` takes.

    Until the context ends, workers keep the tables that they have read.
    """
    runner = find_engine(engine)
    if isinstance(data, Rows) and meeting.prepare is not None:
        data = replace(data, prepare=meeting.prepare)
    elsewhere = runner.hosting(data, meeting.agents)
    if elsewhere is None:
        with runner.held():
            yield meet_locally(operation, runner, data, meeting)
    else:
        runner, sources = elsewhere
        with runner.held():
            yield meet_elsewhere(operation, runner, sources, meeting)


def meet_locally(operation: AnyOperation, engine: Engine, data: Any, meeting: Meeting) -> Hosted:
    """Return the parties of data in this process.

    Data in one piece is checked in one piece, and then split.
    """
    split, prepare = meeting.split, meeting.prepare
    if isinstance(data, list):
        how: dict[str, Any] = {
            "prepare": prepare,
            "same_order": meeting.same_order,
            "warn": meeting.warn,
        }
        given = gather(data, split, meeting.agents, meeting.seed, **how)
        tables = [operation.alone(table) for table in with_distinct_names(given)]
    else:
        whole, parts = in_one_piece(data, split, meeting.agents, meeting.pieces, prepare)
        whole = looked_at([whole], split)[0] if meeting.warn else whole
        tables = split_table(operation.alone(whole), split, parts, seed=meeting.seed)
    return _met(operation, engine, tables, meeting)


def meet_elsewhere(
    operation: AnyOperation, engine: Engine, sources: Sequence[Source], meeting: Meeting
) -> Hosted:
    """Return the parties of sources. The workers of the engine call the sources."""
    tables = [
        _unread(partial(_read_there, operation, source, index, meeting), f"party {index}")
        for index, source in enumerate(sources)
    ]
    parties = _met(operation, engine, tables, meeting)
    if meeting.split == "features":
        refuse_unpaired(parties.cards, meeting.same_order)
    return parties


def _met(
    operation: AnyOperation, engine: Engine, tables: Sequence[AnyTable], meeting: Meeting
) -> Hosted:
    if not tables:
        raise InvalidData("there are no parties. Give at least one.")
    count, split = len(tables), meeting.split
    secure = wants_secure_sums(meeting.secure_sums, split, count, engine.apart, meeting.only_sums)
    network = make_network(meeting.network, split, count, meeting.seed)
    if split == "users":
        network = around_a_server(count)
    sites = [
        site_of(index, count, table, secure_sums=secure, rules=meeting.rules)
        for index, table in enumerate(tables)
    ]
    cards = _asked(engine, sites, _card)
    names = distinct_names([card.name for card in cards])
    cards = [
        msgspec.structs.replace(card, name=name) for card, name in zip(cards, names, strict=True)
    ]
    known = tuple(
        replace(site, data=_known(site.data, card)) for site, card in zip(sites, cards, strict=True)
    )
    return Hosted(operation, split, cards, meeting.rules, Bill(network), engine, known, network)


def _unread(
    fetch: Callable[[], Table], name: str, shape: tuple[int, int] = (0, 0), part: str = ""
) -> RemoteTable:
    """Return a table that a worker makes next to the data, and keeps under a unique key."""
    n, d = shape
    return RemoteTable(name=name, fetch=fetch, n=n, d=d, key=uuid.uuid4().hex, part=part)


def _known(table: AnyTable, card: TableSummary) -> AnyTable:
    """Return the table with the name of its card and, if it is remote, the size on the card."""
    if isinstance(table, RemoteTable):
        return replace(table, name=card.name, n=card.rows, d=card.columns)
    return replace(table, name=card.name)


def _read_there(operation: AnyOperation, source: Source, index: int, meeting: Meeting) -> Table:
    table = read_party(
        source(), index, prepare=meeting.prepare, by_columns=meeting.split == "features"
    )
    return operation.alone(noted(table) if meeting.warn else table)


def _asked(engine: Engine, sites: Sequence[SiteForm], query: Callable[[Site], T]) -> list[T]:
    queries = [partial(_answer, query, site) for site in sites]
    if any(isinstance(site.data, RemoteTable) for site in sites):
        return engine.ask(queries)
    with engine.cores():
        return list(spread(_call, queries, numbers_held(sites)))


def _call(query: Callable[[], T]) -> T:
    return query()


def _answer(query: Callable[[Site], T], site: SiteForm) -> T:
    return query(with_data(site))


def _mapped(site: SiteForm, step: Callable[[Site], Table], part: str = "") -> SiteForm:
    if isinstance(site, Site):
        return replace(site, data=step(site), scratch={})
    known = site.data
    table = _unread(partial(_answer, step, site), known.name, (known.n, known.d), part)
    return replace(site, data=table, scratch={})


def _card(site: Site) -> TableSummary:
    return TableSummary.of(site.data)


def _form(site: Site) -> RemoteTable:
    """Return the names, shapes and types of a table, without its numbers."""
    return RemoteTable.of(site.data)
