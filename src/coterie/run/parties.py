"""Who holds the data, and what they are asked: every operation is written once, on `Parties`.

    Hosted    one process asks, and an engine has the tables: here, or at its workers (`hosted`)
    Among     one organisation among others, all of which run this same text (`peers.among`)

An `Operation` has two parts. `alone` is what a party does with its table before it meets anybody:
what is wrong there is refused before the first message. `together` is the rest, and is the same
text at every party, so it may decide by what all of them know (cards, rules, answers, totals), and
by nothing else.
"""

from __future__ import annotations

import logging
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar, Generic, Self, TypeVar

import msgspec

from coterie.data import Table
from coterie.data import split as split_table
from coterie.data.check import names_told_apart, told_apart
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
from coterie.run.agent import AgentForm, numbers_held, with_data
from coterie.run.bill import Bill
from coterie.run.certificate import Point
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
LOGGER = logging.getLogger("coterie")


class Operation(ABC, Generic[T]):
    """Something that parties do together, once."""

    name: ClassVar[str]
    """What the parties come together for; the name of its command."""
    file: ClassVar[str] = ""
    """What it comes to, as a noun: the name of a file."""
    discloses: ClassVar[tuple[Callable[..., Any], ...]]
    """All its queries and protocols: any other is refused."""
    splits: ClassVar[tuple[str, ...]] = SPLITS
    """How data may be split."""
    matches: ClassVar[bool] = True
    """Split by features, whether rows are matched by their ids first."""
    governed: ClassVar[bool] = True
    """Whether the parties' policies have a say: a party that asks for new rows of its own tells
    nothing of others.
    """
    tabulates: ClassVar[bool] = False
    """Split by samples, whether its sums are about groups of rows: then all of them come from
    `groups.released`.
    """
    needs_rows: ClassVar[bool] = True
    """Whether a policy's least number of rows is meant for a party that comes without any, too."""

    @property
    def classifies(self) -> bool:
        """Whether organisations tell the classes of their labels when they meet."""
        return False

    def alone(self, table: Table) -> Table:
        """What a party does with its table, and refuses, before it meets the others."""
        return table

    @abstractmethod
    def together(self, parties: Any) -> T:
        """All the rest, the same text at every party."""


@dataclass(frozen=True)
class Rounds:
    """The rounds of one fit."""

    setup: Setup
    others: tuple[str | None, ...]
    """Digests of all that decides the rounds besides the set-up: the data, and where agents start.
    """
    warm: Sequence[Point] | None = None
    """Where agents start, if not at the beginning."""
    sent: dict[str, Any] | None = None
    """The state of a bill: the costs before the rounds."""
    called: str = ""
    """Distinguishes the rounds from those of other fits of the same problem; the first ones have no
    name.
    """
    title: str = ""
    """What parties read when they begin."""

    def identity(self, *more: str) -> str:
        """What a checkpoint is known by."""
        named = filter(None, (*more, self.called))
        return self.setup.identity(*self.others, *named)


class Parties(ABC):
    """Those who hold the data, when they have met. The operation declares all that they are
    asked.
    """

    operation: Operation[Any]
    split: str
    cards: Sequence[TableSummary]
    """What everybody told of its table when they met."""
    rules: Rules
    """Those on which all agreed."""
    bill: Bill
    sites: Sequence[SiteForm]
    """Those whose rounds this process starts: all, or its own."""

    @property
    @abstractmethod
    def apart(self) -> bool:
        """Whether they stand for organisations."""

    @property
    @abstractmethod
    def in_memory(self) -> bool:
        """Whether messages cost next to nothing."""

    @abstractmethod
    def ask(self, query: Callable[[Site], T], kind: Any) -> list[T]:
        """Everybody's answer, of that type, in the order of the parties: plain values, never an
        array of rows.
        """

    @abstractmethod
    def look(self, query: Callable[[Site], T]) -> list[T | None]:
        """The same, and nothing is told: of organisations, everybody knows its own answer, and None
        of the others.
        """

    @abstractmethod
    def map(
        self,
        step: Callable[[Site], Table],
        cards: Sequence[TableSummary] | None = None,
        part: str = "",
    ) -> Self:
        """The parties with tables changed where they are.

        cards   what is known of the new tables
        part    a name, if a new table is a part: workers keep it next to the table it was taken of
        """

    @abstractmethod
    def run_protocol(
        self, protocol: Callable[[Site], Protocol[T]], purpose: str = "rounds"
    ) -> T | None:
        """What a protocol came to, as far as it is known here: None if only another party knows
        it.
        """

    @abstractmethod
    def run_rounds(self, agents: Sequence[AgentForm[Any]], rounds: Rounds) -> Outcome:
        """Take the rounds of a fit; `agents` are those of `sites`."""

    @abstractmethod
    def answers(self, questions: Sequence[Callable[[], T]]) -> list[T]:
        """The answers to one question for each of `sites`, where its table is. Nothing is sent."""

    @abstractmethod
    def agree(self, value: str, otherwise: str) -> None:
        """Refuse, in those words, if the parties came with different values: models, settings."""

    @abstractmethod
    def bring(self, brought: Callable[[], T], kind: Any) -> list[T]:
        """What each caller brings, of that type: of one process there is one, of organisations each
        is one.
        """

    def seen(self) -> Self:
        """The same after a step that changed the form of tables: names, shapes, types."""
        return self

    @property
    def names(self) -> tuple[str, ...]:
        """What each party is called."""
        return tuple(card.name for card in self.cards)

    def check(self, *, labels: bool = True) -> None:
        """Refuse tables that do not fit together."""
        check_together(self.cards, self.split, labels=labels)

    def declared(self, asked: Callable[..., Any]) -> Any:
        """The query or protocol itself, without arguments, if the operation declares it."""
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
    """A function without the arguments that were given to it already."""
    while isinstance(function, partial):
        function = function.func
    return function


# -- here, and at the workers of an engine ---------------------------------------------------------


Watching = Callable[[str], AbstractContextManager[Watch]]
"""Shows the rounds of the method of that name while they last."""


@contextmanager
def _watching_nothing(title: str) -> Iterator[Watch]:
    yield unwatched


@dataclass(frozen=True)
class Hosted(Parties):
    """Parties whose tables an engine has: in this process, or at its workers."""

    operation: Operation[Any]
    split: str
    cards: Sequence[TableSummary]
    rules: Rules
    bill: Bill
    engine: Engine
    sites: tuple[SiteForm, ...]
    network: Network
    watching: Watching = field(default=_watching_nothing, repr=False, compare=False)
    adds_up: Engine | None = None
    """The engine that runs protocols, if another one does: a few sums are not worth sending tables
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

    def run_rounds(self, agents: Sequence[AgentForm[Any]], rounds: Rounds) -> Outcome:
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
        """There is one caller, who came with one value."""

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

    def again(self, operation: Operation[Any]) -> Hosted:
        """The same tables for another operation, with a bill of its own."""
        sites = tuple(replace(site, scratch={}) for site in self.sites)
        return replace(self, operation=operation, bill=Bill(self.network), sites=sites)


@dataclass(frozen=True)
class Meeting:
    """How parties meet whose tables an engine has."""

    split: str = "samples"
    agents: int | Sequence[Any] | None = None
    """How many hold data that is given in one piece, ..."""
    pieces: int = 1
    """... and if nobody says."""
    seed: int = 0
    network: Any = None
    secure_sums: bool | None = None
    prepare: Preparation | Prepared | None = None
    """With it, missing values and text are read, for the operation to see to."""
    same_order: bool = False
    """Whether all parties list the same rows in the same order, as `solve` is told."""
    warn: bool = False
    """Whether to warn of columns that look like keys."""
    rules: Rules = NO_RULES
    only_sums: bool = False
    """Whether users send nothing but sums, which can then be secure."""

    @staticmethod
    def of(settings: Settings, pieces: int = 1) -> Meeting:
        """The parties of a run meet like this."""
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
    operation: Operation[Any], data: Any, meeting: Meeting, engine: str | Engine = "local"
) -> Iterator[Hosted]:
    """The parties of data in any form that `solve` takes; meanwhile, workers keep what they have
    read.
    """
    runner = find_engine(engine)
    if isinstance(data, Rows) and meeting.prepare is not None:
        data = replace(data, prepare=meeting.prepare)
    elsewhere = runner.hosting(data, meeting.agents)
    if elsewhere is None:
        with runner.held():
            yield meet_here(operation, runner, data, meeting)
    else:
        runner, sources = elsewhere
        with runner.held():
            yield meet_elsewhere(operation, runner, sources, meeting)


def meet_here(operation: Operation[Any], engine: Engine, data: Any, meeting: Meeting) -> Hosted:
    """The parties of data that is here. Data in one piece is looked at in one piece, and then
    split.
    """
    split, prepare = meeting.split, meeting.prepare
    if isinstance(data, list):
        how: dict[str, Any] = {
            "prepare": prepare,
            "same_order": meeting.same_order,
            "warn": meeting.warn,
        }
        given = gather(data, split, meeting.agents, meeting.seed, **how)
        tables = [operation.alone(table) for table in told_apart(given)]
    else:
        whole, parts = in_one_piece(data, split, meeting.agents, meeting.pieces, prepare)
        whole = looked_at([whole], split)[0] if meeting.warn else whole
        tables = split_table(operation.alone(whole), split, parts, seed=meeting.seed)
    return _met(operation, engine, tables, meeting)


def meet_elsewhere(
    operation: Operation[Any], engine: Engine, sources: Sequence[Source], meeting: Meeting
) -> Hosted:
    """The parties of sources, which are called where the agents of that engine live."""
    tables = [
        _unread(partial(_read_there, operation, source, index, meeting), f"party {index}")
        for index, source in enumerate(sources)
    ]
    parties = _met(operation, engine, tables, meeting)
    if meeting.split == "features":
        refuse_unpaired(parties.cards, meeting.same_order)
    return parties


def _met(
    operation: Operation[Any], engine: Engine, tables: Sequence[AnyTable], meeting: Meeting
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
    names = names_told_apart([card.name for card in cards])
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
    """A table that is made where the data is, and is kept there under a key of its own."""
    n, d = shape
    return RemoteTable(name=name, fetch=fetch, n=n, d=d, key=uuid.uuid4().hex, part=part)


def _known(table: AnyTable, card: TableSummary) -> AnyTable:
    """The table, as its card calls it and says how large it is."""
    if isinstance(table, RemoteTable):
        return replace(table, name=card.name, n=card.rows, d=card.columns)
    return replace(table, name=card.name)


def _read_there(operation: Operation[Any], source: Source, index: int, meeting: Meeting) -> Table:
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
    """The names, shapes and types of a table, without its numbers."""
    return RemoteTable.of(site.data)
