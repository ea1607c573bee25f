"""Check that rows of several parties belong together, where each party holds some of the columns.

Rows are paired by id, see `align`, or by position. Arrays have positions only. Files and data
frames may list the same people in another order. A fit would then find a wrong model without an
error, so their rows are paired by position only on request.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from coterie.data.check import with_distinct_names
from coterie.data.summary import TableSummary
from coterie.data.table import Table
from coterie.errors import InvalidData

MATCH = "match the rows with co.align([co.read(..., id=...), ...])"


def paired(tables: Sequence[Table], same_order: bool) -> list[Table]:
    """Check which rows of parties with columns of the same rows belong together.

    `same_order` says that all parties list the same rows in the same order.
    """
    cards = [TableSummary.of(table) for table in with_distinct_names(tables)]
    refuse_unpaired(cards, same_order)
    return [replace(table, roles=None) for table in tables]


def refuse_unpaired(cards: Sequence[TableSummary], same_order: bool) -> None:
    """Refuse parties whose rows cannot be paired."""
    held = [card for card in cards if card.rows or card.columns]
    labelled = [card for card in held if card.outputs is not None]
    # Labels at two parties are refused later, by a better message.
    if len(held) > 1 and len(labelled) < 2:
        _refuse_common_columns(held)
        if not same_order:
            _refuse_positions(held)


def _refuse_common_columns(cards: Sequence[TableSummary]) -> None:
    """Refuse a column that two parties have: it names the rows, or a model has it twice."""
    holder: dict[str, str] = {}
    for card in cards:
        for name in (*(card.names or ()), *(card.roles or ())):
            if holder.setdefault(name, card.name) != card.name:
                raise InvalidData(
                    f"column {name!r} is at party {holder[name]!r} and at party {card.name!r}. If "
                    f"it names the rows, {MATCH}. If not, leave it out at one party, or rename it."
                )


def _refuse_positions(cards: Sequence[TableSummary]) -> None:
    """Refuse rows of files and data frames that are paired by position alone."""
    if all(card.has_ids for card in cards):
        return
    files = [card for card in cards if card.roles is not None]
    if not files:
        return
    named, *_ = sorted(files, key=lambda card: card.has_ids)
    other = next(card for card in cards if card is not named)
    raise InvalidData(
        f"no id shows which rows of party {named.name!r} and of party {other.name!r} belong "
        f"together: {MATCH}. If all parties list the same rows in the same order, say so with "
        "same_order=True."
    )
