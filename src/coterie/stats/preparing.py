"""Prepare the columns of all parties: split by features, each party alone; split by samples, all
together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, Generic, TypeVar

import msgspec
import numpy as np

from coterie.data import Table
from coterie.data.preparation.prepared import Cells, Prepared, cells_of, column_names, pooled
from coterie.data.preparation.recipes import Preparation
from coterie.data.summary import TableSummary
from coterie.data.table import Indices, columns_in_turn, in_order, party_error
from coterie.engines import Engine
from coterie.engines import engine as find_engine
from coterie.errors import InvalidProblem, UnknownName
from coterie.problems.problem import AnyProblem
from coterie.run.collectives import alone
from coterie.run.parties import (
    Hosted,
    Meeting,
    Operation,
    Parties,
    hosted,
    meet_locally,
)
from coterie.run.settings import Settings
from coterie.run.site import NO_RULES, Site
from coterie.stats.categories import MOST_OWN
from coterie.stats.preparation import fitted

P = TypeVar("P", bound=Parties)
PURPOSE = "preparation"
"""The name of these messages in a bill."""


@dataclass(frozen=True)
class Preparing(Generic[P]):
    """The result of a preparation: its numbers, if this process knows them, and the parties with
    prepared columns.
    """

    prepared: Prepared
    parties: P

    @property
    def sent(self) -> dict[str, Any]:
        """The state of a bill."""
        return self.parties.bill.state()


@dataclass(frozen=True)
class Prepare(Operation[Preparing[Parties]]):
    """Apply recipes, or a fitted preparation, which takes no messages."""

    name: ClassVar[str] = "prepare"
    discloses: ClassVar = (fitted,)

    recipes: Preparation | Prepared
    split: str

    def alone(self, table: Table) -> Table:
        if isinstance(self.recipes, Preparation):
            check_alone(table, self.recipes, self.split)
        return table

    def together(self, parties: P) -> Preparing[P]:
        if parties.split == "features":
            return self._by_columns(parties)
        if isinstance(self.recipes, Prepared):
            return _with_prepared(self.recipes, parties)
        parties.check()
        widest = max(parties.cards, key=lambda card: card.columns)
        parties = parties.map(partial(_with_columns, widest.names, widest.columns))
        found = parties.run_protocol(partial(fitted, self.recipes, parties.rules), PURPOSE)
        assert found is not None
        return _with_prepared(found, parties)

    def _by_columns(self, parties: P) -> Preparing[P]:
        """Every party prepares its own columns; the caller combines the parts that it knows."""
        dealt = parties.look(dealt_columns)
        parts: Sequence[Prepared | None]
        if isinstance(self.recipes, Prepared):
            widths = [card.columns for card in parties.cards]
            parts = self.recipes.parts(columns_in_turn(widths, dealt))
        else:
            _refuse_unknown(parties.look(own_names), self.recipes)
            parts = parties.look(partial(_prepared_alone, self.recipes))
        known = {index: part for index, part in enumerate(parts) if part is not None}
        dealt_of_known = [dealt[index] for index in known]
        whole, places = pooled(dealt_of_known, list(known.values()))
        cols = dict(zip(known, places, strict=True))
        cards = _prepared_cards(parties, known)
        prepared = parties.map(partial(_applied_part, known, cols), cards)
        return Preparing(whole, prepared)


def _with_prepared(prepared: Prepared, parties: P) -> Preparing[P]:
    """The parties, with columns to which that preparation is applied."""
    return Preparing(prepared, parties.map(partial(_applied, prepared)))


@dataclass(frozen=True)
class PrepareAgain(Prepare):
    """Apply the same recipes to tables that may have their columns in another order."""

    order: tuple[str, ...] | None

    def alone(self, table: Table) -> Table:
        ordered = in_order(table, self.order, self.split)
        return super().alone(ordered)


def prepare_locally(
    data: Any, problem: AnyProblem, settings: Settings, engine: Engine
) -> Preparing[Hosted]:
    """Prepare data in this process for a run on that engine; a few sums are not worth the transfer
    to workers.
    """
    asked = Prepare(settings.prepare, settings.placement.split)
    meeting = Meeting.of(settings, problem.kind.data.pieces)
    parties = meet_locally(asked, engine, data, meeting)
    return asked.together(replace(parties, engine=find_engine("local")))


def follows_from(
    prepared: Prepared, recipes: Any, data: Any, split: str, engine: str | Engine
) -> bool:
    """Whether these recipes give those numbers for the data, up to rounding."""
    asked = PrepareAgain(Preparation.from_settings(recipes), split, prepared.raw)
    # The caller has paired the rows.
    meeting = Meeting(split=split, secure_sums=False, prepare=prepared, same_order=True)
    with hosted(asked, data, meeting, engine) as parties:
        return asked.together(parties).prepared.like(prepared)


# -- one party alone -------------------------------------------------------------------------------


def check_alone(table: Table, preparation: Preparation, split: str = "samples") -> None:
    """Refuse mistakes that one party can find alone, before anything is sent."""
    names = column_names(table)
    if split == "samples" and table.d:
        for column in preparation.columns:
            if column not in names:
                unknown = UnknownName("column", column, names)
                raise party_error(table.name, f"prepare: {unknown}")
    for name, cells in zip(names, cells_of(table), strict=True):
        steps = preparation.recipe(name, bool(cells.texts))
        if steps and steps[0].name == "one-hot":
            _check_categories(table.name, name, cells)
        elif cells.texts:
            recipe = "there is no recipe for it"
            if steps:
                spelt = ", ".join(map(str, steps))
                recipe = f"its recipe is {spelt!r}"
            raise party_error(
                table.name,
                f"column {name!r} holds text, e.g. {cells.texts[0]!r}, and {recipe}. Encode it "
                "with one-hot, or leave it out.",
            )


def _check_categories(party: str, column: str, cells: Cells) -> None:
    if cells.texts is None:
        different = len(np.unique(cells.values))
    else:
        different = len(cells.texts)
    if different > MOST_OWN:
        raise party_error(
            party,
            f"column {column!r} has {different} different values, too many for one-hot. Leave it "
            "out.",
        )


def check_problem(problem: AnyProblem, split: str) -> None:
    """Refuse a preparation for models that cannot hold one."""
    if split == "users" or not problem.kind.models.prepares:
        raise InvalidProblem(
            "prepare is for linear models of data split by samples or by features. Leave it out."
        )


def dealt_columns(site: Site) -> Indices | None:
    """The places of this party's columns among all columns, if they were dealt."""
    return site.data.cols


def own_names(site: Site) -> tuple[str, ...]:
    """The names of this party's columns."""
    return column_names(site.data)


def _prepared_alone(preparation: Preparation, site: Site) -> Prepared:
    """The preparation of columns that only this party has; it sends nothing."""
    return alone(fitted(preparation, NO_RULES, Site(0, 1, site.data)))


def _applied(prepared: Prepared, site: Site) -> Table:
    return prepared.apply(site.data)


def _applied_part(parts: dict[int, Prepared], cols: dict[int, Indices | None], site: Site) -> Table:
    table = parts[site.index].apply(site.data)
    return replace(table, cols=cols[site.index])


def _prepared_cards(parties: Parties, parts: dict[int, Prepared]) -> list[TableSummary]:
    """The summaries of tables whose columns were prepared."""
    cards = []
    for index, card in enumerate(parties.cards):
        cards.append(_prepared_card(card, parts.get(index)))
    return cards


def _prepared_card(card: TableSummary, part: Prepared | None) -> TableSummary:
    if part is None:
        return card
    names = part.names()
    return msgspec.structs.replace(card, columns=len(names), names=names)


def _with_columns(columns: tuple[str, ...] | None, width: int, site: Site) -> Table:
    """The raw table; a table without rows gets the columns of the others."""
    table = site.data
    if table.n or table.d:
        return table
    return replace(table, X=np.empty((0, width)), columns=columns)


def _refuse_unknown(names: Sequence[Sequence[str] | None], preparation: Preparation) -> None:
    """Refuse a recipe for a column that no party has, where all columns are known."""
    if None in names:
        return
    everything = [name for own in names if own is not None for name in own]
    for column in preparation.columns:
        if column not in everything:
            raise UnknownName("column", column, everything)
