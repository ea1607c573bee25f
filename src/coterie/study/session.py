"""A party with connections to the others: it matches rows, and compares table summaries.

read its own file ─→ connect to the neighbours ─→ match rows ─→ compare summaries ─→ the operation
"""

from __future__ import annotations

import hashlib
import hmac
import itertools
import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

from coterie.data import Table
from coterie.data.summary import TableSummary, check_together
from coterie.data.table import party_error
from coterie.data.values import has_control_characters
from coterie.engines.processes import pace_of
from coterie.errors import InvalidData, PartyLost, ProtocolError, Refused, shortened
from coterie.networks import Network
from coterie.problems.problem import AnyProblem
from coterie.run.bill import DIGESTS, Bill
from coterie.run.disclosure import Undeclared
from coterie.run.tables import classes_of, encoded
from coterie.study.align import HASH_BYTES, aligned
from coterie.study.broadcasts import CARDS, DIGEST, NAME_KEYS, NAMES, TOTALS, Broadcast
from coterie.study.disclosure import guard_of
from coterie.study.study import PartyFile, Study
from coterie.transport.broadcast import SignedBroadcast, decoded
from coterie.transport.driver import Driver
from coterie.transport.grpc_mesh import GrpcMesh
from coterie.transport.point_to_point import PointToPoint
from coterie.transport.secure_sums import MasksApart, meet

T = TypeVar("T")
Say = Callable[[str], None]

MOST_CLASSES = 10_000
DIGEST_BYTES = 32 + 72
"""Bytes of a digest of aggregates with its signature."""
PLAIN_CLASSES = (-1.0, 0.0, 1.0)
"""Names of two classes that have no meaning."""


@dataclass(frozen=True)
class Session:
    """A party with connections to the others."""

    own: PartyFile
    study: Study
    links: GrpcMesh
    network: Network
    broadcast: SignedBroadcast
    purpose: str = "fit"
    """The name of the operation."""

    @property
    def me(self) -> int:
        """The index of this party's agent."""
        return self.links.me

    def all_gather(self, mine: object, message: Broadcast, kind: type[T]) -> list[T]:
        """Send this message to all parties, and receive theirs, in the order of the agents. A
        message that is not declared for this operation is refused.
        """
        self._check_declared(message)
        content = msgspec.msgpack.encode(mine)
        parts = self.broadcast.all_gather(content, message.about, message.most)
        received = self.broadcast.read_all(parts, kind, message.about)
        for name, one in zip(self.study.names, received, strict=True):
            for text in _texts(one):
                if has_control_characters(text):
                    shown = shortened(repr(text), 60)
                    raise ProtocolError(
                        f"{message.about}: {name} sent text with control characters ({shown})."
                    )
            if isinstance(one, tuple) and any(number != number for number in one):
                raise ProtocolError(f"{message.about}: {name} sent a number that is none (NaN).")
        return received

    def collect(
        self, mine: object, message: Broadcast, kind: type[T]
    ) -> tuple[dict[str, T], dict[str, str]]:
        """Send this message to all parties, and receive those that arrive, by party; and for each
        other party, the reason.

        In contrast to `all_gather`, it ends without an error if a party has left.
        """
        self._check_declared(message)
        parts, lost = self.broadcast.collect(msgspec.msgpack.encode(mine), message.about)
        found, reasons = {}, {}
        for index, name in enumerate(self.study.names):
            if index in lost:
                reasons[name] = f"{name} left before signing"
            elif index not in parts:
                reasons[name] = f"no signature of {name} arrived"
            else:
                try:
                    found[name] = decoded(parts[index], kind, name, message.about)
                except ProtocolError:
                    reasons[name] = f"the signature of {name} cannot be read"
        return found, reasons

    def _check_declared(self, message: Broadcast) -> None:
        if not message.is_sent(self.study, self.purpose):
            raise Undeclared(
                f"{self.purpose}: {message.about!r} is not on the page that the parties agreed to"
            )


def _texts(value: object) -> Iterator[str]:
    """All texts in a decoded message."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, msgspec.Struct):
        yield from _texts(msgspec.structs.astuple(value))
    elif isinstance(value, dict):
        yield from _texts([*value, *value.values()])
    elif isinstance(value, (list, tuple)):
        for one in value:
            yield from _texts(one)


def transport_of(session: Session, bill: Bill | None = None) -> Driver:
    """The transport of this party's agent, with a digest of all aggregates for `check_totals`."""
    network, names = session.network, session.study.names
    pace = pace_of(session.study.clock, session.study.pace)
    collectives = PointToPoint(network, session.links, range(len(names)), session.me, names)
    collectives.transcript = hashlib.sha256()
    driver = Driver(bill or Bill(network), collectives, pace)
    if session.study.has_secure_sums:
        collectives.sums = meet(session.broadcast)
    else:
        collectives.compare = partial(_compare_totals, session, driver)
    driver.guard = guard_of(session.study, session.purpose)
    session.links.check = driver.guard.check_tag
    return driver


def _compare_totals(session: Session, transport: Driver) -> None:
    """Compare the aggregates that the parties received so far, before any party computes with the
    last one. Masks depend on them; sums without masks need this exchange.
    """
    check_totals(session, transport)
    for agent, (messages, digests) in enumerate(session.broadcast.relayed):
        transport.bill.send(DIGESTS, "Sum", agent, messages, 0, 8 * DIGEST_BYTES * digests)


def check_totals(session: Session, transport: Driver) -> None:
    """Refuse aggregates that differ between parties. The error names the pairs between which they
    changed.
    """
    transcript = transport.collectives.transcript
    assert transcript is not None
    received = session.all_gather(transcript.hexdigest(), TOTALS, DIGEST)
    names = session.study.names
    others = [name for name, one in zip(names, received, strict=True) if one != received[0]]
    if not others:
        return
    pairs = [
        f"{names[parent]} changed what it passed on to {name}, or {name} says so falsely"
        for name, one, parent in zip(names, received, session.broadcast.parents, strict=True)
        if parent >= 0 and one != received[parent]
    ]
    raise ProtocolError(
        f"{', '.join(others)} received other sums than {names[0]}: {'; '.join(pairs)}. Do not use "
        "the result."
    )


@contextmanager
def naming_liars(session: Session, transport: Driver) -> Iterator[None]:
    """If masks do not cancel, compare the aggregates that the parties received before, and name the
    pair between which they changed.
    """
    try:
        yield
    except MasksApart as apart:
        try:
            check_totals(session, transport)
        except PartyLost:
            raise apart from None
        raise


# -- data ------------------------------------------------------------------------------------------


def matched(session: Session, table: Table) -> Table:
    study = session.study
    if study.same_order:
        refuse_equal_names(session, table)
    if study.id is None or study.split != "features":
        return table
    return aligned(
        table, study.names, session.broadcast, secrets.token_bytes(32), study.duplicates, study.psi
    )


def refuse_equal_names(session: Session, table: Table) -> None:
    """Refuse a column name that two parties have: it may be an id, and the rows may be in another
    order.

    The parties send keyed hashes of the names, with a key that is new for every session: parties
    can test guesses, outsiders cannot.
    """
    nonces = session.all_gather(secrets.token_bytes(32), NAME_KEYS, bytes)
    key = hashlib.sha256(b"".join(hashlib.sha256(nonce).digest() for nonce in nonces)).digest()
    own = {
        hmac.digest(key, name.encode(), "sha256")[:HASH_BYTES]: name for name in table.columns or ()
    }
    held = [set(hashes) for hashes in session.all_gather(sorted(own), NAMES, list[bytes])]
    for (first, one), (second, other) in itertools.combinations(
        zip(session.study.names, held, strict=True), 2
    ):
        if both := one & other:
            mine = ", ".join(repr(own[name]) for name in sorted(both) if name in own)
            shown = mine or "the same name"
            raise InvalidData(
                f"a column ({shown}) is at {first} and at {second}. If it names the rows, write "
                "it into the study as id in place of same-order. If not, leave it out at one "
                "party, or rename it."
            )


def summaries(
    session: Session, table: Table, *, classification: bool = False
) -> list[TableSummary]:
    """The summaries of the tables of all parties."""
    mine = TableSummary.of(table, classification=classification, names=False)
    mine = msgspec.structs.replace(
        mine, name="", header="" if session.study.split == "features" else mine.header
    )
    if len(mine.classes) > MOST_CLASSES:
        raise InvalidData(
            f"party {table.name!r}: {len(mine.classes)} different labels are too many for classes."
        )
    named = [] if table.y is None else _classes_to_name(session, mine.classes, table.y)
    for one in named:
        if has_control_characters(str(one)):
            raise party_error(
                table.name, f"class {one!r} has control characters. Remove them from the labels."
            )
    parts = session.all_gather(msgspec.structs.replace(mine, classes=named), CARDS, TableSummary)
    parts = [
        msgspec.structs.replace(part, name=name)
        for part, name in zip(parts, session.study.names, strict=True)
    ]
    for part in parts:
        _refuse_impossible(part)
    _refuse_unnamed(session, mine.classes, parts)
    return parts


def _refuse_impossible(card: TableSummary) -> None:
    """Refuse a card that describes no table, or that says more than it may."""
    floats = [one for one in card.classes if isinstance(one, float)]
    wrong = ""
    if card.nonzeros > card.rows * card.columns:
        wrong = f"{card.nonzeros} non-zeros in {card.rows} rows of {card.columns} columns"
    elif not np.isfinite(floats).all():
        wrong = "a class that is not a finite number"
    elif card.names is not None or card.roles is not None:
        wrong = "names of columns"
    if wrong:
        raise ProtocolError(f"cards: {card.name} sent {wrong}.")


def _classes_to_name(
    session: Session, classes: Sequence[str | float], labels: npt.NDArray[Any]
) -> list[str | float]:
    """The classes that this party may name: those with enough rows, those that the study lists, and
    those whose names say nothing.
    """
    if session.study.labels_shared:
        return [*classes]
    known = {*PLAIN_CLASSES, *_listed_classes(session.study)}
    minimum = session.own.policy.minimum_count
    return [one for one in classes if one in known or (labels == one).sum() >= minimum]


def _listed_classes(study: Study) -> tuple[str | float, ...]:
    loss = getattr(study.make_problem(), "loss", None)
    return tuple(getattr(loss, "classes", None) or ())


def _refuse_unnamed(
    session: Session, classes: Sequence[str | float], parts: Sequence[TableSummary]
) -> None:
    """Refuse a class that is rare here, and that no party names."""
    named = {one for part in parts for one in part.classes}
    named |= {*_listed_classes(session.study)}
    own = session.own
    for one in classes:
        if one not in named:
            raise Refused(
                f"class {one!r} has fewer of your rows than minimum-count = "
                f"{own.policy.minimum_count}, and no other party names it. List the classes in "
                "the study, where its loss has some, or leave these rows out.",
                f"{own.party} has a class with fewer rows than its minimum-count",
            )


def prepare_table(
    session: Session, table: Table, problem: AnyProblem
) -> tuple[Table, list[TableSummary], npt.NDArray[Any] | None]:
    """Its own table as the others need it, the summaries of all tables, and the classes."""
    split = session.study.split
    parts = summaries(
        session, table, classification=bool(problem.kind.data.classification(problem))
    )
    check_together(parts, split)
    told = [(np.array(part.classes), None) for part in parts]
    classes = classes_of(problem, [part.name for part in parts], lambda: told)
    return encoded(problem, classes, parts, split, table), parts, classes
