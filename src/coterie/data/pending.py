"""The digest of a small table, computed when it is first read.

A fit of a few thousand rows takes less time than the SHA-256 of the rows. So the certificate of a
fit keeps the table and a checksum of it. If the checksum has changed when the digest is read, the
numbers are no longer those that were fitted, and the digest is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from coterie.data.on_disk import is_on_disk
from coterie.data.remote_table import AnyTable
from coterie.data.table import Table
from coterie.errors import InvalidData
from coterie.numerics.arrays import FloatArray, is_sparse, is_tensor
from coterie.numerics.kernels.checksum import checksum

MOST = 1 << 22
"""The most numbers in tables of one fit whose digests wait: a certificate keeps these tables in
memory until then.
"""
WORDS = {4: np.uint32, 8: np.uint64}
"""The type as which numbers of this number of bytes enter a checksum."""


class PendingDigest:
    """The digest of a table that must not change until it is computed."""

    def __init__(self, table: Table):
        self.table = table
        self._parts = _parts(table)
        self.checksum = _checksum(self._parts)

    def value(self) -> str:
        """Compute the digest; refuse a table that has changed."""
        if _checksum(self._parts) != self.checksum:
            raise InvalidData(
                f"party {self.table.name!r}: the numbers of its table were changed after the fit, "
                "so the certificate cannot name the data that was fitted. Save or print the "
                "certificate before you change an array, or fit a copy of the array."
            )
        return self.table.digest()


def pending_digests(tables: Sequence[AnyTable]) -> list[PendingDigest] | None:
    """The digests of these tables, if they can wait: if the tables are few numbers in memory."""
    here = [table for table in tables if isinstance(table, Table) and _in_memory(table)]
    if len(here) < len(tables) or sum(table.nonzeros for table in here) > MOST:
        return None
    return [PendingDigest(table) for table in here]


def _in_memory(table: Table) -> bool:
    if is_tensor(table.X) or is_on_disk(table.X):
        return False
    return all(_is_plain(part) for part in _parts(table))


def _is_plain(part: FloatArray) -> bool:
    return type(part) is np.ndarray and part.itemsize in WORDS and part.flags.forc


def _parts(table: Table) -> list[FloatArray]:
    """The arrays of which the digest is."""
    X = table.X
    of_rows = [X]
    if is_sparse(X):
        of_rows = [X.data, X.indices, X.indptr]
    values = (table.y, table.weights, table.offset)
    return of_rows + [part for part in values if part is not None]


def _checksum(parts: Sequence[FloatArray]) -> int:
    found: Any = 0
    for part in parts:
        words = part.ravel(order="K").view(WORDS[part.itemsize])
        words.flags.writeable = False  # one compiled version serves both kinds of arrays
        found = checksum(words, np.uint64(found))
    return int(found)
