"""Read the tables of a fit where they are: at the workers of a cluster.

    sources ─→ prepared columns ─→ checked alone ─→ checked together ─→ labels as numbers, in one
    shape

Only what is known of the tables comes back: names, shapes, digests, the different labels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np

from coterie.data import Table
from coterie.data.check import (
    Counted,
    Sizes,
    counted_labels,
    refuse_other_orders,
    refuse_sizes,
    sizes_of,
)
from coterie.data.keys import warn_caller
from coterie.data.preparation.prepared import Prepared
from coterie.data.preparation.recipes import Preparation
from coterie.data.remote import Source
from coterie.data.remote_table import RemoteTable
from coterie.data.summary import TableSummary
from coterie.engines import Engine
from coterie.numerics.arrays import digest
from coterie.problems.parts.data import Classes
from coterie.problems.problem import AnyProblem
from coterie.run.parties import Hosted, Meeting, OperationOn, meet_elsewhere
from coterie.run.settings import Settings
from coterie.run.site import Site
from coterie.run.tables import checked_alone, classes_of, encoded
from coterie.stats.preparation import fitted
from coterie.stats.preparing import Prepare, Preparing


@dataclass(frozen=True)
class Tables:
    """Tables that agents can take, and the classes of all parties."""

    tables: list[RemoteTable]
    classes: Classes
    prepared: Preparing[Hosted] | None = None


@dataclass(frozen=True)
class ReadTables(OperationOn[Tables, Hosted]):
    """Read the tables of all parties for a fit."""

    name: ClassVar[str] = "read"
    discloses: ClassVar[tuple[Callable[..., Any], ...]] = (fitted,)

    problem: AnyProblem
    split: str
    recipes: Preparation | Prepared | None = None

    def alone(self, table: Table) -> Table:
        if self.recipes is not None:
            return Prepare(self.recipes, self.split).alone(table)
        return checked_alone(table, self.problem)

    def together(self, parties: Hosted) -> Tables:
        problem, split = self.problem, self.split
        problem.kind.data.check_split(problem, split)
        prepared = None
        if self.recipes is not None:
            prepared = Prepare(self.recipes, split).together(parties)
            parties = prepared.parties.map(partial(_checked, problem)).seen()
        parties.check()
        cards = parties.cards
        known = _all(parties.look(partial(known_of_table, problem, cards, split)))
        if split == "features":
            ids = [_ids(card, own) for card, own in zip(cards, known, strict=True)]
            refuse_other_orders(parties.names, ids)
        refuse_sizes(cards, [own.sizes for own in known], split)
        classes = classes_of(problem, parties.names, lambda: [own.labels for own in known])
        parties = parties.map(partial(_encoded, problem, classes, cards, split))
        return Tables(_tables(parties), classes, prepared)


@dataclass(frozen=True)
class KnownOfTable:
    """What parties compare of their tables."""

    labels: Counted
    """The different labels, if they are classes."""
    sizes: Sizes
    ids: str | None
    """The digest of the ids of its rows."""


def remote_tables(
    sources: Sequence[Source], engine: Engine, problem: AnyProblem, settings: Settings
) -> Tables:
    """What stands for the table of each source; the tables are read where agents live."""
    placement = settings.placement
    operation = ReadTables(problem, placement.split, settings.prepare)
    meeting = replace(Meeting.of(settings), only_sums=problem.kind.problems.only_sums)
    parties = meet_elsewhere(operation, engine, sources, meeting)
    found = operation.together(parties)
    warn_caller(note for table in found.tables for note in table.notes or ())
    return found


def known_of_table(
    problem: AnyProblem, cards: Sequence[TableSummary], split: str, site: Site
) -> KnownOfTable:
    """What is compared of the table of one party."""
    table = site.data
    labels: Counted = np.empty(0), None
    if problem.kind.data.classification(problem):
        labels = counted_labels(table)
    ids = None if table.ids is None else digest(table.ids)
    return KnownOfTable(labels, sizes_of(table, cards, site.index, split), ids)


def _all(found: Sequence[KnownOfTable | None]) -> list[KnownOfTable]:
    return [one for one in found if one is not None]


def _ids(card: TableSummary, known: KnownOfTable) -> Any:
    """What stands for the ids of all rows."""
    return None if known.ids is None else np.full(card.rows, known.ids)


def _checked(problem: AnyProblem, site: Site) -> Table:
    return checked_alone(site.data, problem)


def _encoded(
    problem: AnyProblem, classes: Classes, cards: Sequence[TableSummary], split: str, site: Site
) -> Table:
    table = encoded(problem, classes, cards, split, site.data)
    return replace(table, name=cards[site.index].name)


def _tables(parties: Hosted) -> list[RemoteTable]:
    """What stands for each table."""
    found = []
    for site, form in zip(parties.sites, parties.look(form_of_table), strict=True):
        assert isinstance(site.data, RemoteTable), "workers have the tables"
        assert form is not None
        found.append(replace(form, fetch=site.data.fetch, key=site.data.key))
    return found


def form_of_table(site: Site) -> RemoteTable:
    """The names, shapes and types of a table, its digest, and how full it is."""
    table = site.data
    return RemoteTable.of(
        table,
        known_digest=table.digest(),
        nonzeros=table.nonzeros,
        independence=table.independence,
    )
