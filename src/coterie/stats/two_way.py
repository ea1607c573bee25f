"""Rows by the values of two columns: the parties agree on the values, suppress small cells at home, then add up.

    Sum  of both columns the hashes, rows and names of the values (`preparation.category_counts`): the totals
    Sum  for every cell the rows that a party tells, and whether it withholds them (`suppression.withheld`)

A party withholds cells of its own table before it sends anything. So no message has a small cell in it, or tells one
together with the totals, and neither do sums of such messages.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt

from coterie.data.preparation.prepared import Cells, cells_of, column_names
from coterie.numerics.arrays import FloatArray
from coterie.run.collectives import Protocol, Sum
from coterie.run.disclosure import discloses
from coterie.run.groups import Bools, left_over, pooled
from coterie.run.site import Rules, Site
from coterie.stats.preparation import category_counts, side_by_side, spoken
from coterie.stats.suppression import withheld

Value = str | None
"""A value of a column as text, or None: it is missing."""


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
        """How many values the table has; the last stands for all others, if there are any."""
        return len(self.values) + bool(self.others)


@dataclass(frozen=True)
class TwoWay:
    """What all parties know of the table."""

    rows: Margin
    columns: Margin
    told: FloatArray
    """The rows of each cell, of the parties that tell them."""
    withheld: Bools
    """Whether a party withholds rows of a cell."""


@discloses(
    "of each value of the two columns with at least minimum-count rows here a hash, by which a guess can be confirmed, "
    "its rows, added up, and its name; for every two values, the rows that have both, added up, without those that it "
    "withholds: fewer than minimum-count, or what totals need to hide these; and which ones it withholds, added up",
    splits=("samples",),
)
def two_way(rules: Rules, site: Site) -> Protocol[TwoWay]:
    """Rows by the values of the two columns that the table has."""
    site = Site(site.index, site.count, site.data, secure_sums=site.secure_sums, rules=rules)
    cells = cells_of(site.data)
    names = column_names(site.data)
    protocols = [category_counts(name, own, rules.minimum, True, site) for name, own in zip(names, cells, strict=True)]
    rows, columns = [_margin(*counted) for counted in (yield from spoken(side_by_side(protocols)))]
    table = np.zeros((rows.size, columns.size), np.intp)
    places = [_places(own, margin, rules.minimum) for own, margin in zip(cells, (rows, columns), strict=True)]
    np.add.at(table, tuple(places), 1)
    gone = withheld(table, rules.minimum)
    local = np.where(gone, 0, table)
    total = yield Sum(np.concatenate([local.ravel(), gone.ravel()]).astype(float))
    told, objections = total.reshape(2, *table.shape)
    return TwoWay(rows, columns, told, objections > 0)


def _margin(counted: dict[str | float | None, int], others: int) -> Margin:
    """Values that are all numbers are in the order of numbers; a missing one is the last."""
    known: list[Value] = [None if one is None else str(one) for one in counted]
    order = sorted(range(len(known)), key=partial(_order, known, numbers=_are_numbers(known)))
    totals = [*counted.values()]
    return Margin(tuple(known[k] for k in order), tuple(totals[k] for k in order), others)


def _order(values: Sequence[Value], place: int, *, numbers: bool) -> tuple[bool, float, str]:
    value = values[place]
    if value is None:
        return True, 0.0, ""
    return False, float(value) if numbers else 0.0, value


def _are_numbers(values: Sequence[Value]) -> bool:
    try:
        return all(value is None or np.isfinite(float(value)) for value in values)
    except ValueError:
        return False


def _places(cells: Cells, margin: Margin, minimum: int) -> npt.NDArray[np.intp]:
    """The place of every row's value in a margin: the last, if it counts among the others."""
    values, which = cells.counted(text=True)
    told, _ = pooled(np.bincount(which, minlength=len(values)), minimum)
    known: dict[str | float | None, int] = {value: place for place, value in enumerate(margin.values)}
    others = len(known)
    place_of = np.array([known.get(value, others) for value in values], np.intp)
    places = place_of[which]
    places[left_over(which, told)] = others
    return places
