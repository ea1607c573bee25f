"""Read the tables of a fit once more, with the parts, the columns and the labels of the fit.

data ─→ columns in the order of the model, prepared, checked alone ─→ labels as numbers, in one
shape
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, Generic, TypeVar

import msgspec
import numpy as np

from coterie.data import Table
from coterie.data.check import Counted, counted_labels
from coterie.data.remote import Rows
from coterie.data.summary import TableSummary, common_shape, in_common_shape
from coterie.data.table import in_order
from coterie.errors import InvalidData
from coterie.problems.parts.data import Classes, can_stay
from coterie.problems.problem import AnyProblem
from coterie.run.certificate import Certificate, Participant
from coterie.run.parties import Meeting, Operation, Parties
from coterie.run.site import Site
from coterie.run.tables import checked_alone, classes_of, encoded
from coterie.stats.preparing import Prepare

P = TypeVar("P", bound=Parties)


@dataclass(frozen=True)
class Reread(Generic[P]):
    """Parties with tables in the form in which the fit had them."""

    parties: P
    classes: Classes


@dataclass(frozen=True)
class ReadAgain(Operation[Reread[Parties]]):
    """Read the tables of a fit once more. Parties send only their summaries, when they meet."""

    name: ClassVar[str] = "read again"
    discloses: ClassVar = ()

    problem: AnyProblem
    model: Any
    """The model of the fit, or a party's part of it; None if it cannot be read."""
    split: str
    whole: int | None = None
    """For data in one piece, its number of rows, or of columns."""
    has_part: bool = False
    """Whether the model is a party's part of one."""

    @property
    def classifies(self) -> bool:
        return bool(self.problem.kind.data.classification(self.problem))

    @property
    def prepared(self) -> Any:
        """The preparation of the model, if it has one."""
        return getattr(self.model, "preparation", None)

    @property
    def prepares_together(self) -> bool:
        """Whether columns are prepared after the parties have met. Then the places of each party's
        columns are known, and raw columns were compared.
        """
        in_one_place = self.whole is not None or self.has_part
        by_columns = self.split == "features" and in_one_place
        return self.prepared is not None and not by_columns

    def alone(self, table: Table) -> Table:
        if self.model is None:
            return table
        if self.prepared is None:
            split = self.split
            if self.whole is not None or self.has_part:
                split = "samples"
            table = in_order(table, self.model.columns, split)
        elif self.prepares_together:
            table = in_order(table, self.prepared.raw, self.split)
        else:
            table = self.prepared.apply(table)
        if self.whole is not None:
            self._refuse_other_size(table)
        if self.prepares_together:
            return table
        return self.checked(table)

    def _refuse_other_size(self, table: Table) -> None:
        if self.split == "users":
            return
        if self.split == "features":
            noun = "columns"
            found = table.d
        else:
            noun = "rows"
            found = table.n
        if found != self.whole:
            raise InvalidData(
                f"the certificate covers {self.whole:,} {noun}, and this data has {found:,}. "
                "Give all data that was fitted, of every party."
            )

    def checked(self, table: Table) -> Table:
        """A table with the columns of the model, checked alone."""
        on_device = self.problem.kind.data.on_device(self.split, True)
        return checked_alone(table, self.problem, on_device and can_stay([table]))

    def together(self, parties: P) -> Reread[P]:
        self.problem.kind.data.check_split(self.problem, parties.split)
        parties.check()
        if self.prepares_together:
            parties = self._with_prepared_columns(parties)
        known = parties.look(own_labels)
        labels = []
        for own, card in zip(known, parties.cards, strict=True):
            labels.append(_labels(own, card))
        classes = classes_of(self.problem, parties.names, lambda: labels)
        step = partial(_encoded, self.problem, classes, parties.cards, parties.split)
        return Reread(parties.map(step).seen(), classes)

    def _with_prepared_columns(self, parties: P) -> P:
        shape = common_shape(parties.cards)
        parties = parties.map(partial(_shaped, shape, self.split))
        parties = Prepare(self.prepared, self.split).together(parties).parties
        cards = parties.cards
        if self.split != "features":
            width = len(self.prepared.names())
            cards = [_prepared_card(card, width) for card in cards]
        return parties.map(partial(_checked, self), cards).seen()


def reading_again(
    certificate: Certificate, model: Any, problem: AnyProblem, data: Any
) -> tuple[ReadAgain, Meeting]:
    """The operation that reads the data of a certificate, and the way its parties meet."""
    settings = certificate.settings
    participants = certificate.participants
    kind = problem.kind
    split = settings["split"]
    if split == "features":
        sizes = [one.columns for one in participants]
    else:
        sizes = [one.rows for one in participants]
    agents: Any = settings["partition"] or sizes
    whole: int | None = sum(sizes)
    if isinstance(data, list):
        agents = None
        whole = None
    elif isinstance(data, Rows):
        agents = len(participants)
        whole = None
    meeting = Meeting(
        split,
        agents,
        kind.data.pieces,
        secure_sums=settings.get("secure_sums") is True,
        only_sums=kind.problems.only_sums,
        prepare=model.preparation,
        same_order=True,
    )
    return ReadAgain(problem, model, split, whole), meeting


def participants_of(parties: Parties) -> list[Participant | None]:
    """The participants with the digests of their tables; None where this process has no table."""
    found = []
    for participant, name in zip(parties.look(_participant), parties.names, strict=True):
        if participant is not None:
            participant = replace(participant, name=name)
        found.append(participant)
    return found


def own_labels(site: Site) -> Counted:
    """The different labels of this party, and the number of rows with each."""
    return counted_labels(site.data)


def _labels(known: Counted | None, card: TableSummary) -> Counted:
    if known is None:
        return np.array(card.classes), None
    return known


def _participant(site: Site) -> Participant:
    table = site.data
    return Participant(table.name, table.n, table.d, table.digest())


def _prepared_card(card: TableSummary, width: int) -> TableSummary:
    """Prepared columns are dense, and all parties have the same."""
    return msgspec.structs.replace(
        card, columns=width, nonzeros=card.rows * width, single=False, names=None, header=""
    )


def _shaped(shape: tuple[int, int], split: str, site: Site) -> Table:
    return in_common_shape(site.data, shape, split)


def _checked(asked: ReadAgain, site: Site) -> Table:
    return asked.checked(site.data)


def _encoded(
    problem: AnyProblem, classes: Classes, cards: Sequence[TableSummary], split: str, site: Site
) -> Table:
    return encoded(problem, classes, cards, split, site.data)
