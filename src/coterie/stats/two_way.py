"""Count rows by the values of two columns, without small cells.

    Sum  of both columns the names and rows of the values (`categories.category_counts`): the totals
    Sum  for every cell the rows that a party sends, and whether it withholds rows
         (`suppression.withheld`)

A party withholds cells of its own table before it sends anything. So no message contains a small
cell, or shows one together with the totals. The same holds for sums of messages.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt

from coterie.data.preparation.prepared import Cells, cells_of, column_names
from coterie.errors import InvalidData
from coterie.numerics.arrays import FloatArray
from coterie.run.collectives import Protocol, combined, limited
from coterie.run.disclosure import discloses
from coterie.run.groups import (
    Bools,
    Part,
    checked_counts,
    left_over,
    pooled,
    released,
    wrong_counts,
)
from coterie.run.site import Rules, Site
from coterie.stats.categories import Category, category_counts
from coterie.stats.suppression import withheld

NUMBERS_OF_A_TABLE = 1_000
"""What a page spares for values that other parties have."""
_TOO_MANY = (
    "the two columns have more values than the page of a party allows to send. "
    "Put values into classes first."
)
Value = str | None
"""A value of a column as text; None is a missing value."""


@dataclass(frozen=True)
class Margin:
    """The values of one column that are not rare at all parties."""

    values: tuple[Value, ...]
    totals: tuple[int, ...]
    """The rows of each value."""
    others: int
    """The rows with another value."""

    @property
    def size(self) -> int:
        """Number of values in the table; the last one stands for all others, if there are any."""
        return len(self.values) + bool(self.others)

    @property
    def all_totals(self) -> tuple[int, ...]:
        """The rows of each value, and of all others, if there are any."""
        if self.others:
            return (*self.totals, self.others)
        return self.totals


@dataclass(frozen=True)
class TwoWay:
    """The table that all parties know."""

    rows: Margin
    columns: Margin
    shown: FloatArray
    """The rows of each cell that parties do not withhold."""
    withheld: Bools
    """Whether a party withholds rows of a cell."""


@discloses(
    "the name of each value of the two columns that at least minimum-count of your rows have, and "
    "how many rows have it, as part of a sum; for every two values, how many rows have both, as "
    "part of a sum, without small cells and those that totals need to hide them; and which cells "
    "you withhold",
    splits=("samples",),
    spare=lambda case: NUMBERS_OF_A_TABLE,
)
def two_way(rules: Rules, site: Site) -> Protocol[TwoWay]:
    """Count the rows by the values of the two columns that the table has."""
    return (yield from limited(_two_way(rules, site), rules.page, InvalidData(_TOO_MANY)))


def _two_way(rules: Rules, site: Site) -> Protocol[TwoWay]:
    site = Site(site.index, site.count, site.data, secure_sums=site.secure_sums, rules=rules)
    cells = cells_of(site.data)
    names = column_names(site.data)
    protocols = [
        category_counts(name, own, rules.minimum, True, site)
        for name, own in zip(names, cells, strict=True)
    ]
    counted = yield from combined(protocols)
    rows, columns = [_margin(rows_of, others) for rows_of, others in counted]
    table = np.zeros((rows.size, columns.size), np.intp)
    margins = zip(cells, (rows, columns), strict=True)
    places = [_places(own, margin, rules.minimum) for own, margin in margins]
    np.add.at(table, tuple(places), 1)
    hidden = withheld(table, rules.minimum)
    shown = np.where(hidden, 0, table)
    parts = Part(shown, shown), Part(hidden, ())
    total = yield released(rules.minimum, site.data.n, *parts)
    total = checked_counts(total, np.concatenate([shown.ravel(), hidden.ravel()]), "cells")
    shown_rows, hiding_parties = total.reshape(2, *table.shape)
    found = TwoWay(rows, columns, shown_rows, hiding_parties > 0)
    _check_totals(found)
    return found


def _check_totals(found: TwoWay) -> None:
    """Refuse cells that contradict the totals of their row or column."""
    if sum(found.rows.all_totals) != sum(found.columns.all_totals):
        raise wrong_counts("values of the two columns")
    for margin, axis in ((found.rows, 1), (found.columns, 0)):
        rest = np.array(margin.all_totals) - found.shown.sum(axis=axis)
        shown_whole = ~found.withheld.any(axis=axis)
        if (rest < 0).any() or rest[shown_whole].any():
            raise wrong_counts("cells")


def _margin(rows_of: dict[Category, int], others: int) -> Margin:
    """A margin; values that are all numbers are in the order of numbers, and a missing value is the
    last.
    """
    totals = {_as_text(value): rows for value, rows in rows_of.items()}
    order = partial(_order, numbers=_are_numbers(list(totals)))
    values = tuple(sorted(totals, key=order))
    return Margin(values, tuple(totals[value] for value in values), others)


def _as_text(value: Category) -> Value:
    if value is None:
        return None
    return str(value)


def _order(value: Value, *, numbers: bool) -> tuple[bool, float, str]:
    if value is None:
        return True, 0.0, ""
    if numbers:
        return False, float(value), value
    return False, 0.0, value


def _are_numbers(values: Sequence[Value]) -> bool:
    try:
        return all(value is None or np.isfinite(float(value)) for value in values)
    except ValueError:
        return False


def _places(cells: Cells, margin: Margin, minimum: int) -> npt.NDArray[np.intp]:
    """The place of every row's value in a margin: the last, if the row counts among the others."""
    values, which = cells.counted(text=True)
    rows = np.bincount(which, minlength=len(values))
    sent_rows, _ = pooled(rows, minimum)
    known: dict[Category, int] = {value: place for place, value in enumerate(margin.values)}
    others = len(known)
    place_of = np.array([known.get(value, others) for value in values], np.intp)
    places = place_of[which]
    places[left_over(which, sent_rows)] = others
    return places
