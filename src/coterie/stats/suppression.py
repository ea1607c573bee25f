"""Choose the cells of a table of counts that a party withholds, so that the totals of rows and
columns reveal no small cell.

A cell is small if it has some rows, but fewer than `minimum`. If only small cells were withheld, a
total minus the other cells could give the count of a small cell. So for every small cell, the
function finds another table of whole numbers that

    has the same totals of all rows and columns,
    is equal in all cells that are sent, and
    has at least `minimum` rows in the small cell.

The party also withholds all cells in which that table differs. A recipient of the totals and the
other cells cannot distinguish the two tables. So every withheld cell can have at least two values,
and one value of a small cell is not small.

Such a table comes from paths. To have more rows in (i, j), lower a cell of row i, raise another one
of the same column, lower one of that row, and so on, until a cell of column j is lowered. A path
costs the rows of the cells that it withholds and that were sent so far; the cheapest is taken. A
cell without rows costs more than all others together.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from coterie.numerics.arrays import FloatArray
from coterie.run.groups import Bools, small

Counts = npt.NDArray[np.intp]
Cell = tuple[int, int]


def withheld(counts: Counts, minimum: int) -> Bools:
    """Which cells of a table are withheld: small ones, and those that the totals need to hide them.

    Every total of a row or column is 0 or at least the minimum. A table with fewer rows is withheld
    as a whole.
    """
    hidden = small(counts, minimum)
    if small(counts.sum(), minimum):
        return np.ones_like(hidden)
    for row, column in np.argwhere(hidden).tolist():
        _hide(counts, hidden, (row, column), minimum)
    return hidden


def _hide(counts: Counts, hidden: Bools, cell: Cell, minimum: int) -> None:
    """Withhold more cells, until the small cell may have as many rows as the minimum."""
    other = counts.copy()
    never = counts.sum() + 1
    while other[cell] < minimum:
        price = np.where(hidden, 0, np.where(counts > 0, counts, never)).astype(float)
        lowered, raised = _cheapest_path(other, price, cell)
        change = min(minimum - other[cell], *(other[one] for one in lowered))
        for one in lowered:
            other[one] -= change
            hidden[one] = True
        for one in raised:
            other[one] += change
            hidden[one] = True
        other[cell] += change


def _cheapest_path(other: Counts, price: FloatArray, cell: Cell) -> tuple[list[Cell], list[Cell]]:
    """The cells that have fewer rows, and those that have more, if the given cell has more; Bellman
    and Ford's path.
    """
    first, last = cell
    lowering = np.where(other > 0, price, np.inf)
    lowering[cell] = np.inf
    to_row = np.full(len(other), np.inf)
    to_column = np.full(other.shape[1], np.inf)
    to_row[first] = 0.0
    row_before = np.zeros(other.shape[1], np.intp)
    column_before = np.zeros(len(other), np.intp)
    changed = True
    while changed:
        changed = _shorten(to_column, row_before, to_row[:, None] + lowering)
        changed |= _shorten(to_row, column_before, to_column[:, None] + price.T)
    if np.isinf(to_column[last]):
        raise ValueError(
            "the total of a row or column is small: pool its category with others first."
        )
    lowered: list[Cell] = []
    raised: list[Cell] = []
    column = last
    while True:
        row = int(row_before[column])
        lowered.append((row, column))
        if row == first:
            return lowered, raised
        column = int(column_before[row])
        raised.append((row, column))


def _shorten(lengths: FloatArray, before: Counts, ways: FloatArray) -> bool:
    """Take ways that are shorter than those known so far; `ways`: from each place before, to each
    place.
    """
    best = ways.min(axis=0)
    shorter = best < lengths
    lengths[shorter] = best[shorter]
    before[shorter] = ways.argmin(axis=0)[shorter]
    return bool(shorter.any())
