"""Categories of a column at all parties: hashes, rows and names of those that are not rare.

Sum  the number of categories at each party
Sum  the hashes of each party's categories
Sum  the rows of each category, and the rows of categories that are small at a party
Sum  the lengths of the names of frequent categories, then these names, each from one party
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from coterie.data.preparation.prepared import Cells
from coterie.errors import InvalidData, ProtocolError
from coterie.numerics.arrays import FloatArray
from coterie.run.collectives import Protocol, Sum
from coterie.run.groups import pooled
from coterie.run.site import Site

MOST_HERE, MOST_COLUMNS, LONGEST = 10_000, 1_000, 1_000
"""Largest number of categories of a column at one party, of columns that they become, and of bytes
of a name.
"""
HASH_BYTES = 6
"""Bytes of a category's hash: as a whole number it is exact in a `Sum`."""

Category = str | float | None
"""A category as text or as a number; None is a missing value."""


@dataclass(frozen=True)
class _Categories:
    """The categories of a column that this party sends."""

    column: str
    written: list[bytes]
    hashes: FloatArray
    rows: npt.NDArray[np.intp]
    pooled_rows: int
    """Rows of other categories: those that are small at this party."""

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
    hashes, owners = yield from _hashes_of_all(own, site)
    known, first = np.unique(hashes, return_index=True)
    rows, others = yield from _rows_of_all(own, known)
    frequent = rows >= least
    if frequent.sum() > MOST_COLUMNS:
        raise InvalidData(
            f"column {name!r} has {int(frequent.sum())} categories, more than {MOST_COLUMNS}. Pool "
            "rare ones, with one-hot(100), say, or leave it out."
        )
    mine = owners[first][frequent] == site.index
    names = yield from _names_of_all(own, known[frequent], mine)
    rows_of = {}
    for one, count in zip(names, rows[frequent].tolist(), strict=True):
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
    # A party sends nothing about a category that is small in its rows, not even its hash.
    written = [_written(one) for one, rows in zip(local, counts.tolist(), strict=True) if rows]
    for one in written:
        if len(one) > LONGEST:
            start = f"{one[1:40].decode(errors='ignore')}..."
            raise InvalidData(
                f"column {column!r} has a category of {len(one)} bytes, {start!r}. Shorten it, or "
                "leave it out."
            )
    hashes = np.array([_hash(column, one) for one in written], float)
    if len(set(hashes.tolist())) < len(written):
        raise InvalidData(f"two categories of column {column!r} have the same hash. Rename one.")
    return _Categories(column, written, hashes, counts[counts > 0], pooled_rows)


def _hashes_of_all(
    own: _Categories, site: Site
) -> Protocol[tuple[FloatArray, npt.NDArray[np.intp]]]:
    """The hashes of all parties, party by party, and the party of each."""
    count_here = np.zeros(site.count)
    count_here[site.index] = len(own.hashes)
    counts = _whole_numbers((yield Sum(count_here)), MOST_HERE)
    if counts[site.index] != len(own.hashes):
        raise own.disagreement
    owners = np.repeat(np.arange(site.count), counts)
    mine = owners == site.index
    message = np.zeros(len(owners))
    message[mine] = np.sort(own.hashes)
    hashes = yield Sum(message)
    if not np.array_equal(hashes[mine], message[mine]):
        raise own.disagreement
    return hashes, owners


def _rows_of_all(own: _Categories, known: FloatArray) -> Protocol[tuple[FloatArray, int]]:
    """The rows of each known hash at all parties, and the rows of categories that are small at a
    party.
    """
    rows = np.zeros(len(known) + 1)
    rows[np.searchsorted(known, own.hashes)] = own.rows
    rows[-1] = own.pooled_rows
    total = yield Sum(rows)
    return total[:-1], int(total[-1])


def _names_of_all(
    own: _Categories, hashes: FloatArray, mine: npt.NDArray[np.bool_]
) -> Protocol[list[bytes]]:
    """The names with these hashes. The first party that has a category sends its name.

    mine    the categories whose names this party sends
    """
    name_of = dict(zip(own.hashes.tolist(), own.written, strict=True))
    keys = hashes.tolist()
    names_here = [b""] * len(keys)
    for place in np.flatnonzero(mine).tolist():
        names_here[place] = name_of[keys[place]]
    lengths_here = np.array([len(name) for name in names_here], float)
    total = yield Sum(lengths_here)
    lengths = _whole_numbers(total, LONGEST)
    sent = lengths_here > 0
    if (lengths_here[sent] != lengths[sent]).any():
        raise own.disagreement
    packed = yield Sum(_packed(names_here, lengths))
    names = _unpacked(packed, lengths)
    for key, name in zip(keys, names, strict=True):
        if _hash(own.column, name) != key or name_of.get(key, name) != name:
            raise own.disagreement
    return names


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
        if text:
            return content
        return float(content)
    except ValueError as error:
        raise ProtocolError(f"a party sent a category that cannot be read ({error}).") from error


def _hash(column: str, written: bytes) -> float:
    digest = hashlib.sha256(column.encode() + b"\0" + written).digest()
    return float(int.from_bytes(digest[:HASH_BYTES], "big"))


def _whole_numbers(total: FloatArray, most: int) -> npt.NDArray[np.intp]:
    whole = np.isfinite(total) & (total == np.round(total))
    possible = whole & (total >= 0) & (total <= most)
    if not possible.all():
        raise ProtocolError("a party sent impossible sizes of categories.")
    return total.astype(np.intp)


def _packed(names: Sequence[bytes], lengths: npt.NDArray[np.intp]) -> FloatArray:
    """Names as whole numbers of six bytes; the names that other parties send are zeros."""
    numbers: list[float] = []
    for name, length in zip(names, lengths.tolist(), strict=True):
        whole = name.ljust(_chunks(length) * HASH_BYTES, b"\0")
        for start in range(0, len(whole), HASH_BYTES):
            chunk = whole[start : start + HASH_BYTES]
            numbers.append(float(int.from_bytes(chunk, "big")))
    return np.array(numbers)


def _unpacked(total: FloatArray, lengths: npt.NDArray[np.intp]) -> list[bytes]:
    chunks = _whole_numbers(total, 256**HASH_BYTES - 1).tolist()
    names = []
    start = 0
    for length in lengths.tolist():
        end = start + _chunks(length)
        whole = b"".join(chunk.to_bytes(HASH_BYTES, "big") for chunk in chunks[start:end])
        names.append(whole[:length])
        start = end
    return names


def _chunks(length: int) -> int:
    """The whole numbers that a name of that length becomes."""
    return -(-length // HASH_BYTES)
