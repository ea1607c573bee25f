"""Raw columns of a preparation: numbers with NaN for missing cells, or text as places in a list."""

from __future__ import annotations

import numbers
from collections.abc import Sequence
from typing import Any, TypeAlias

import narwhals as nw
import numpy as np
import numpy.typing as npt

from coterie.data.table import party_error
from coterie.numerics.arrays import FloatArray

Series: TypeAlias = "nw.Series[Any]"
Raw: TypeAlias = tuple[FloatArray, tuple[str, ...] | None]


def spelt(number: float) -> str:
    """A number as a text that a file would have."""
    if float(number).is_integer():
        return str(int(number))
    return repr(float(number))


def raw_series(series: Series, party: str, column: str) -> Raw:
    """The cells of a column of a frame, and the different texts where it has text."""
    kind = series.dtype
    if kind.is_numeric() or kind == nw.Boolean:
        gone = series.is_null().to_numpy()
        if not gone.any():
            return series.cast(nw.Float64).to_numpy().astype(np.float64), None
        values = np.full(len(series), np.nan)
        values[~gone] = series.drop_nulls().cast(nw.Float64).to_numpy()
        return values, None
    if isinstance(kind, nw.Categorical | nw.Enum):
        series = series.cast(nw.String)
    if isinstance(series.dtype, nw.String):
        return raw_texts(series.to_list())
    if isinstance(series.dtype, nw.Object | nw.Unknown):
        return raw_objects(np.array(series.to_list(), object), party, column)
    raise party_error(
        party,
        f"{column} holds {len(series)} values of type {kind}, neither numbers nor text. Convert "
        "it, or leave it out with columns=...",
    )


def raw_objects(values: npt.NDArray[Any], party: str, column: str) -> Raw:
    """The cells of an array of objects: text, numbers, and None or NaN for missing cells.

    If some cells are text, numbers become text, too.
    """
    gone = np.array([value is None or value != value for value in values.tolist()], bool)
    known = values[~gone].tolist()
    cells = np.full(len(values), np.nan)
    odd = [value for value in known if not isinstance(value, str | numbers.Real | np.bool_)]
    if odd:
        raise party_error(
            party,
            f"{column} has a value of type {type(odd[0]).__name__}, neither a number nor text. "
            "Convert it.",
        )
    if not any(isinstance(value, str) for value in known):
        cells[~gone] = np.array(known, float)
        return cells, None
    cells[~gone], texts = raw_texts([_text(value) for value in known])
    return cells, texts


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    return spelt(value)


def raw_texts(values: Sequence[Any]) -> Raw:
    """Texts as places in the sorted list of them; other values count as missing."""
    if not len(values):
        return np.empty(0), None
    first: dict[Any, int] = {}
    codes = np.array([first.setdefault(value, len(first)) for value in values], np.intp)
    texts = sorted(text for text in first if isinstance(text, str))
    place = np.full(len(first), np.nan)
    place[[first[text] for text in texts]] = np.arange(len(texts))
    return place[codes], tuple(texts) or None
