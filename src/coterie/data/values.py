"""One value per row (labels, weights, ids, users) as a plain array: numbers or text, never
objects.
"""

from __future__ import annotations

import numbers
import unicodedata
from typing import Any

import numpy as np
import numpy.typing as npt

from coterie.data.table import party_error
from coterie.errors import WrongValue


def are(count: int, noun: str) -> str:
    """Write a count with its verb: "1 label is", "3 labels are"."""
    if count == 1:
        return f"{count} {noun} is"
    return f"{count} {noun}s are"


REORDERING = "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
"""Characters that change the order in which text is shown."""


def has_control_characters(text: str) -> bool:
    """Whether a text can move the cursor of a terminal, begin a line, or change the order of what
    is shown. Spaces of all widths are allowed.
    """
    if text.isprintable():
        return False
    return any(
        one in REORDERING or unicodedata.category(one) in ("Cc", "Cs", "Zl", "Zp") for one in text
    )


def is_text(values: npt.NDArray[Any]) -> bool:
    """Whether the values are text."""
    return values.dtype.kind in "US"


def plain(values: object, party: str, noun: str) -> npt.NDArray[Any]:
    """The values as an array of numbers or of text; refuses missing and infinite ones, other
    objects, and mixtures.
    """
    if isinstance(values, np.ma.MaskedArray) and np.ma.is_masked(values):
        raise party_error(
            party, f"{are(int(np.ma.getmaskarray(values).sum()), noun)} masked. Drop those rows."
        )
    array = np.asarray(values)
    if array.dtype.kind == "T":
        array = array.astype(object)
    if array.dtype.kind == "O":
        array = _from_objects(array, party, noun)
    if array.dtype.kind not in "biufUS":
        raise party_error(
            party,
            f"{are(array.size, noun)} of type {array.dtype}. Convert with .astype(float) or "
            ".astype(str).",
        )
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        bad = np.argwhere(~np.isfinite(array))
        found = f"{are(len(bad), noun)} not finite"
        fix = "Drop or impute those rows before fitting."
        if not array.ndim:
            raise party_error(party, f"{found}. {fix}")
        row = int(bad[0][0])
        raise WrongValue(
            party, row, f"{found} (first at ", f"). {fix}", noun=noun, shows_cell=True
        ).error()
    return array


def logarithms(exposure: npt.NDArray[Any], party: str, column: str) -> npt.NDArray[np.float64]:
    """Turn exposures, above 0, into offsets: a policy that ran for half a year has log ½."""
    if is_text(exposure):
        wrong = np.arange(len(exposure))
    else:
        wrong = np.flatnonzero(~(exposure > 0))
    if wrong.size:
        raise WrongValue(
            party,
            int(wrong[0]),
            before=f"{are(wrong.size, 'exposure')} not above 0 (first at ",
            after=f", column {column!r}: {exposure[wrong[0]]}). Drop those rows, or correct them.",
            column=column,
        ).error()
    logs: npt.NDArray[np.float64] = np.log(exposure.astype(float))
    return logs


def plain_ids(ids: object, party: str) -> npt.NDArray[Any]:
    """Row ids as int64 or text."""
    array = plain(ids, party, "id")
    if array.ndim != 1:
        raise party_error(party, f"the ids have shape {array.shape}. Give one id per row.")
    if array.dtype.kind == "S":
        array = np.char.decode(array, "utf-8")
    if is_text(array):
        return array
    if array.dtype.kind in "bf" and array.size:
        raise party_error(
            party,
            f"{are(array.size, 'id')} of type {array.dtype}. Convert them to integers or to text.",
        )
    if array.dtype.kind == "u" and array.size and array.max() > np.iinfo(np.int64).max:
        raise party_error(
            party, f"the ids go up to {array.max()}, more than int64 holds. Convert them to text."
        )
    return array.astype(np.int64, copy=False)


def _from_objects(array: npt.NDArray[Any], party: str, noun: str) -> npt.NDArray[Any]:
    values = array.ravel().tolist()
    types = set(map(type, values))
    known = (str, numbers.Real, np.bool_)
    if not all(issubclass(t, known) for t in types):
        odd = [i for i, value in enumerate(values) if not isinstance(value, known)]
        found = f"{are(len(odd), noun)} neither a number nor text"
        fix = "Drop or impute those rows."
        if not array.ndim:
            raise party_error(party, f"{found}. {fix}")
        row = odd[0] // (array.size // len(array))
        raise WrongValue(
            party, row, f"{found} (first at ", f": {values[odd[0]]!r}). {fix}", noun=noun
        ).error()
    texts = sum(isinstance(value, str) for value in values)
    if 0 < texts < len(values):
        rest = len(values) - texts
        raise party_error(
            party,
            f"{are(texts, noun)} text and {are(rest, noun)} a number. Convert them to one type.",
        )
    kind = None
    if texts:
        kind = str
    return np.array(values, dtype=kind).reshape(array.shape)
