"""Entries of a matrix whose rows and columns have names, as of users and films: names, and their
places.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from coterie.errors import InvalidData

Names = npt.NDArray[Any]


def pairs_of(X: Any, party: str = "data") -> tuple[Names, Names]:
    """The names of row and column of every entry, from a frame of two columns, an array of shape
    (n, 2) or a list.
    """
    titles = getattr(X, "column_names", None) or getattr(X, "columns", None)
    if titles is not None:
        columns = [np.asarray(X[title]) for title in titles]
    else:
        array = np.asarray(X)
        columns = [array]
        if array.ndim == 2:
            columns = list(array.T)
    if len(columns) != 2:
        raise InvalidData(
            f"party {party!r}: entries are pairs (row, column), as two columns, but X has "
            f"{len(columns)}. Give an array of shape (n, 2) or a frame of two columns; the values "
            "are y."
        )
    rows, others = columns
    return _names(rows, party, "row"), _names(others, party, "column")


def _names(values: Names, party: str, side: str) -> Names:
    """Names of rows or of columns, as texts or numbers; none may be missing."""
    missing = np.array([value is None or value != value for value in values.tolist()], bool)
    if missing.any():
        raise InvalidData(
            f"party {party!r}: entry {missing.argmax()} has no {side}. Leave it out, or name its "
            f"{side}."
        )
    if values.dtype.kind in "biufU":
        return values
    cells = values.tolist()
    if any(isinstance(cell, str) for cell in cells):
        return np.array([str(cell) for cell in cells])
    return np.array(cells)


def places_of(names: Names, known: Names) -> npt.NDArray[np.intp]:
    """Find the place of every name among the known ones; −1 for unknown names. Numbers and texts
    are compared as texts.
    """
    if (known.dtype.kind == "U") != (names.dtype.kind == "U"):
        names = names.astype(str)
        known = known.astype(str)
    order = np.argsort(known, kind="stable")
    at = np.minimum(np.searchsorted(known, names, sorter=order), len(known) - 1)
    places = order[at]
    return np.where(known[places] == names, places, -1)


def distinct(parts: Sequence[Names]) -> Names:
    """All names, each once, in order."""
    return np.unique(np.concatenate(parts))
