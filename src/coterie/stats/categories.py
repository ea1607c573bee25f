"""Categories of a column at all parties: names and rows of those that are not rare.

Sum  how many numbers the names of each party take
Sum  these names, party by party: six bytes a number
Sum  the rows of each category, and the rows of categories that are small at a party

A party names a category only if it has at least the minimum of rows of it itself. It sends nothing
about any other category, whatever other parties send: not even a hash, which a dictionary of codes
would reveal.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from coterie.data.preparation.prepared import Cells
from coterie.data.values import has_control_characters
from coterie.errors import InvalidData, ProtocolError
from coterie.numerics.arrays import FloatArray
from coterie.run.collectives import Protocol
from coterie.run.groups import Part, checked_counts, pooled, released
from coterie.run.site import Site

MOST_OWN, MOST_COLUMNS, LONGEST = 10_000, 1_000, 1_000
"""Largest number of categories of a column at one party, of columns that they become, and of bytes
of a name.
"""
CHUNK, LENGTH = 6, 2
"""Bytes in one number, which is exact in a `Sum` as a whole number; and bytes of a length."""
MOST_NUMBERS = MOST_OWN * (LONGEST + LENGTH) // CHUNK
"""Largest number of numbers that the names of one party take."""

Category = str | float | None
"""A category as text or as a number; None is a missing value."""


@dataclass(frozen=True)
class _Categories:
    """The categories of a column that this party sends."""

    column: str
    written: list[bytes]
    """Their names, in ascending order."""
    rows: npt.NDArray[np.intp]
    pooled_rows: int
    """Rows of other categories: those that are small at this party."""

    @property
    def whole(self) -> int:
        """All rows with a category."""
        return int(self.rows.sum()) + self.pooled_rows

    @property
    def disagreement(self) -> ProtocolError:
        """The error when a reply contradicts what this party sent."""
        return ProtocolError(
            f"the parties do not agree on the categories of column {self.column!r}."
        )


def category_counts(
    name: str, cells: Cells, least: float, text: bool, site: Site
) -> Protocol[tuple[dict[Category, int], int]]:
    """Count the rows of each category of a column over all parties.

    Parameters
    ----------
    name : str
        The column.
    cells : Cells
        This party's values of it.
    least : float
        Categories with fewer rows at all parties together are pooled.
    text : bool
        Whether categories are text at some party; otherwise they are numbers.
    site : Site
        This party. A category that is small at a party (`groups.pooled`) is pooled there.

    Returns
    -------
    tuple of dict and int
        The rows of each category, in ascending order of the categories; and the rows of pooled
        categories.
    """
    own = _own_categories(name, cells, text, site.rules.minimum)
    names = yield from _names_of_all(own, site)
    known = sorted(set(names))
    rows, others = yield from _rows_of_all(own, known, site.rules.minimum)
    frequent = rows >= least
    if frequent.sum() > MOST_COLUMNS:
        raise InvalidData(
            f"column {name!r} has {int(frequent.sum())} categories, more than {MOST_COLUMNS}. Pool "
            "rare ones, for example with one-hot(100), or leave it out."
        )
    rows_of = {}
    for one, count, is_frequent in zip(known, rows.tolist(), frequent.tolist(), strict=True):
        if is_frequent:
            rows_of[_read(one, text)] = int(count)
    ascending = sorted(rows_of, key=_order)
    rare = int(rows[~frequent].sum()) + others
    return {one: rows_of[one] for one in ascending}, rare


def _order(category: Category) -> tuple[bool, str | float]:
    """Categories in ascending order, a missing value last."""
    if category is None:
        return True, 0
    return False, category


def _own_categories(column: str, cells: Cells, text: bool, minimum: float) -> _Categories:
    local, which = cells.counted(text)
    counts = np.bincount(which, minlength=len(local))[: len(local)]
    counts, pooled_rows = pooled(counts, minimum)
    # A party sends nothing about a category that is small in its rows.
    rows_of = {
        _written(one): rows for one, rows in zip(local, counts.tolist(), strict=True) if rows
    }
    written = sorted(rows_of)
    for one in written:
        if len(one) > LONGEST:
            raise InvalidData(
                f"column {column!r} has a category of {len(one)} bytes, more than {LONGEST}. "
                "Shorten it, or leave the column out."
            )
        if has_control_characters(one.decode()):
            raise InvalidData(
                f"column {column!r} has the category {one[1:].decode()!r}, with control "
                "characters. Remove them, or leave the column out."
            )
    rows = np.array([rows_of[one] for one in written], np.intp)
    return _Categories(column, written, rows, pooled_rows)


def _names_of_all(own: _Categories, site: Site) -> Protocol[list[bytes]]:
    """The names of all parties, party by party."""
    mine = _packed(own.written)
    own_sizes = np.zeros(site.count)
    own_sizes[site.index] = len(mine)
    # Sizes and names say of a category that it has enough rows.
    named = own.rows
    minimum = site.rules.minimum
    first_total = yield released(minimum, own.whole, Part(own_sizes, named))
    sizes = _whole_numbers(first_total, MOST_NUMBERS)
    if sizes[site.index] != len(mine):
        raise own.disagreement
    ends = np.cumsum([0, *sizes.tolist()]).tolist()
    first, last = ends[site.index : site.index + 2]
    message = np.zeros(ends[-1])
    message[first:last] = mine
    total = yield released(minimum, own.whole, Part(message, named))
    if not np.array_equal(total[first:last], mine):
        raise own.disagreement
    names = []
    for start, end in pairwise(ends):
        of_party = _unpacked(total[start:end])
        if len(set(of_party)) < len(of_party):
            raise own.disagreement
        names += of_party
    return names


def _rows_of_all(
    own: _Categories, known: Sequence[bytes], minimum: float
) -> Protocol[tuple[FloatArray, int]]:
    """The rows of each category at all parties, and the rows of categories that are small at a
    party.
    """
    place_of = {one: place for place, one in enumerate(known)}
    rows = np.zeros(len(known) + 1)
    for one, count in zip(own.written, own.rows.tolist(), strict=True):
        rows[place_of[one]] = count
    rows[-1] = own.pooled_rows
    total = yield released(minimum, own.whole, Part(rows, rows))
    total = checked_counts(total, rows, f"categories of column {own.column!r}")
    return total[:-1], int(total[-1])


def _written(category: Category) -> bytes:
    """A category as bytes: text, number or missing."""
    if category is None:
        return b"m"
    if isinstance(category, str):
        return b"t" + category.encode()
    return b"n" + repr(category).encode()


def _read(written: bytes, text: bool) -> Category:
    if written == b"m":
        return None
    try:
        content = written[1:].decode()
        if has_control_characters(content):
            raise ProtocolError(f"a party sent a category with control characters ({content!r}).")
        if text:
            return content
        return float(content)
    except ValueError as error:
        raise ProtocolError(f"a party sent a category that cannot be read ({error}).") from error


def _whole_numbers(total: FloatArray, most: int) -> npt.NDArray[np.intp]:
    whole = np.isfinite(total) & (total == np.round(total))
    possible = whole & (total >= 0) & (total <= most)
    if not possible.all():
        raise ProtocolError("a party sent impossible sizes of categories.")
    return total.astype(np.intp)


def _packed(names: Sequence[bytes]) -> FloatArray:
    """Names as whole numbers of six bytes; the length of a name, two bytes, comes before it."""
    content = b"".join(len(name).to_bytes(LENGTH, "big") + name for name in names)
    content = content.ljust(-(-len(content) // CHUNK) * CHUNK, b"\0")
    chunks = [content[start : start + CHUNK] for start in range(0, len(content), CHUNK)]
    return np.array([float(int.from_bytes(chunk, "big")) for chunk in chunks])


def _unpacked(numbers: FloatArray) -> list[bytes]:
    """The names that one party sent; the last one is followed by less than a number of zeros."""
    whole = _whole_numbers(numbers, 256**CHUNK - 1).tolist()
    content = b"".join(chunk.to_bytes(CHUNK, "big") for chunk in whole)
    names = []
    start = 0
    while any(content[start : start + LENGTH]):
        end = start + LENGTH + int.from_bytes(content[start : start + LENGTH], "big")
        names.append(content[start + LENGTH : end])
        start = end
    if start > len(content) or len(content) - start >= CHUNK or any(content[start:]):
        raise ProtocolError("a party sent impossible sizes of categories.")
    if any(len(name) > LONGEST for name in names) or len(names) > MOST_OWN:
        raise ProtocolError("a party sent impossible sizes of categories.")
    return names
