"""What columns look like, from sums and counts over the rows of all parties.

    Sum  rows; for each column rows with a value, whether it is text, and how many different values it has
    Sum  of columns of numbers the sums, then the squares about the means
    Sum  of columns of text, and of labels, the categories and their rows (`preparation.category_counts`)
    Sum  counts in agreed bins, for quantiles (`quantiles`)
    Sum  products of every two columns, for correlations

No sum is over fewer rows of a party than a minimum, unless it has none (`groups`): of a column with few values, or few
missing ones, a party leaves a few more out. Weights are not looked at.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import numpy as np
import numpy.typing as npt

from coterie.api.description import OTHER, ColumnSummary, Description, is_wide
from coterie.data.preparation.prepared import Cells, cells_of, column_names
from coterie.numerics.arrays import FloatArray
from coterie.numerics.kernels.bins import first_edges
from coterie.run.collectives import Sum, Talk
from coterie.run.groups import allowed, without_few
from coterie.run.site import Site
from coterie.stats.moments import packed, unpacked
from coterie.stats.preparation import category_counts, side_by_side
from coterie.stats.quantiles import Quantiles, quantiles

PROBABILITIES = (0.05, 0.25, 0.5, 0.75, 0.95)
MOST_CATEGORIES = 50
"""Text with more different values at a party is no category: nothing is told of it but how many rows have a value."""
NAME_BYTES = 40
"""A guess at the length of a category's name, to find out whether there is room to tell it."""


@dataclass(frozen=True)
class Wish:
    """What is asked for."""

    target: str | None
    probabilities: tuple[float, ...] = PROBABILITIES
    minimum: int = 1
    correlation: bool = True
    room: float = math.inf
    """How many numbers may be told; what does not fit is left out, with a note."""


@dataclass(frozen=True)
class _Totals:
    """What all know of the columns."""

    rows: int
    text: list[bool]
    many: list[bool]
    different: list[int]
    present: list[int]


def described(wish: Wish, site: Site) -> Talk[Description]:
    """The description of raw columns, the same at all parties; the table has their names, and those of text."""
    table = site.data
    names = column_names(table)
    cells = [_with_enough(own, wish.minimum) for own in cells_of(table)]
    site = replace(site, rules=replace(site.rules, minimum=wish.minimum))
    values = [own.values[~own.missing] for own in cells]
    totals = yield from _totals(table.n, names, cells, wish)
    room, notes = wish.room - 1 - 4 * len(names), []
    enough = [present >= wish.minimum and present > 0 for present in totals.present]
    classes = [totals.text[k] or (name == wish.target and not totals.many[k]) for k, name in enumerate(names)]
    numbers = [k for k in range(len(names)) if enough[k] and not classes[k]]
    means, deviations = yield from _moments([values[k] for k in numbers], [totals.present[k] for k in numbers])
    room -= 2 * len(numbers)
    listed = [k for k in range(len(names)) if enough[k] and classes[k] and not totals.many[k]]
    guess = sum(site.count + (3 + NAME_BYTES) * totals.different[k] for k in listed)
    if guess > room:
        notes.append(f"Categories were left out: they take about {guess} numbers, more than a policy allows.")
        listed = []
    categories: dict[int, dict[str, int]] = {}
    if listed:
        told, categories = yield from _categories([(k, names[k], cells[k]) for k in listed], totals, wish, site)
        room -= told
    found: Quantiles | None = None
    if numbers and wish.probabilities and len(numbers) * len(first_edges()) <= room:
        # Half of what is left is for correlations.
        spare = room if math.isinf(room) else room - min(room / 2, _size(len(numbers), totals, numbers))
        chosen = [values[k] for k in numbers]
        found = yield from quantiles(chosen, wish.probabilities, minimum=wish.minimum, room=spare)
        room -= spare if not math.isinf(room) else 0
    elif numbers and wish.probabilities:
        notes.append("Quantiles were left out: they take more numbers than a policy allows.")
    correlation = None
    if wish.correlation and len(numbers) > 1:
        if _size(len(numbers), totals, numbers) <= room:
            whole = np.column_stack([cells[k].values for k in numbers])
            correlation = yield from _correlation(whole, means, deviations, totals, numbers, wish.minimum)
        else:
            notes.append("Correlations were left out: they take more numbers than a policy allows.")
    columns = []
    for k, name in enumerate(names):
        at = numbers.index(k) if k in numbers else None
        known: dict[str, Any] = {}
        if at is not None:
            known |= {"mean": float(means[at]), "std": float(deviations[at])}
        if at is not None and found is not None:
            known |= _quantiles(found, at, float(deviations[at]))
        count = totals.present[k]
        missing = totals.rows - count
        columns.append(ColumnSummary(name, count, missing, categories=categories.get(k), text=totals.text[k], **known))
    return Description(
        "",
        totals.rows,
        tuple(columns),
        wish.probabilities if found is not None else (),
        wish.target if wish.target in names else None,
        tuple(names[k] for k in numbers) if correlation is not None else (),
        correlation,
        tuple(notes),
    )


def _with_enough(cells: Cells, minimum: int) -> Cells:
    """A column in which neither the values nor the missing ones are few."""
    return Cells(np.where(without_few(cells.missing, minimum), np.nan, cells.values), cells.texts)


def _quantiles(found: Quantiles, at: int, deviation: float) -> dict[str, tuple[float, ...]]:
    """The quantiles of one column and their bounds; where these are far apart, there is no number between them."""
    low, high = found.low[at].tolist(), found.high[at].tolist()
    values = [
        math.nan if is_wide(least, most, deviation) else value
        for value, least, most in zip(found.values[at].tolist(), low, high, strict=True)
    ]
    return {"quantiles": tuple(values), "low": tuple(low), "high": tuple(high)}


def _totals(rows: int, names: Sequence[str], cells: Sequence[Cells], wish: Wish) -> Talk[_Totals]:
    here: FloatArray = np.zeros((len(names), 4))
    for k, (name, own) in enumerate(zip(names, cells, strict=True)):
        here[k, :2] = (~own.missing).sum(), bool(own.texts)
        if own.texts or name == wish.target:
            different = len(own.texts or np.unique(own.values[~own.missing]))
            here[k, 2:] = min(different, MOST_CATEGORIES + 1), different > MOST_CATEGORIES
    told = yield Sum(np.append(here.ravel(), rows))
    present, text, different, many = told[:-1].reshape(-1, 4).astype(int).T.tolist() if names else ([], [], [], [])
    return _Totals(int(told[-1]), [bool(x) for x in text], [bool(x) for x in many], different, present)


def _moments(values: Sequence[FloatArray], present: Sequence[int]) -> Talk[tuple[FloatArray, FloatArray]]:
    if not values:
        return np.empty(0), np.empty(0)
    counts = np.array(present, float)
    total = yield Sum(np.array([float(x.sum()) for x in values]))
    means = total / counts
    squares = yield Sum(np.array([float(((x - mean) ** 2).sum()) for x, mean in zip(values, means, strict=True)]))
    with np.errstate(invalid="ignore", divide="ignore"):
        deviations: FloatArray = np.where(counts > 1, np.sqrt(squares / (counts - 1)), np.nan)
    return means, deviations


def _categories(
    columns: Sequence[tuple[int, str, Cells]], totals: _Totals, wish: Wish, site: Site
) -> Talk[tuple[int, dict[int, dict[str, int]]]]:
    """How many numbers were told, and the categories of each of these columns."""
    talks = [
        category_counts(name, Cells(own.values[~own.missing], own.texts), wish.minimum, totals.text[k], site)
        for k, name, own in columns
    ]
    talk, told = side_by_side(talks), 0
    reply: FloatArray | None = None
    while True:
        try:
            message = next(talk) if reply is None else talk.send(reply)
        except StopIteration as end:
            return told, {k: _written(*counted) for (k, *_), counted in zip(columns, end.value, strict=True)}
        told += message.size
        reply = yield Sum(message)


def _written(counted: dict[str | float | None, int], rare: int) -> dict[str, int]:
    names = {f"{one:g}" if isinstance(one, float) else str(one): rows for one, rows in counted.items()}
    return names | ({OTHER: rare} if rare else {})


# -- correlations ------------------------------------------------------------------------------------------------------


def _size(columns: int, totals: _Totals, numbers: Sequence[int]) -> int:
    """How many numbers correlations take."""
    triangle = columns * (columns + 1) // 2
    return triangle if _whole(totals, numbers) else 3 * triangle + 2 * columns**2


def _whole(totals: _Totals, numbers: Sequence[int]) -> bool:
    return all(totals.present[k] == totals.rows for k in numbers)


def _correlation(
    X: FloatArray, means: FloatArray, deviations: FloatArray, totals: _Totals, numbers: Sequence[int], minimum: int
) -> Talk[FloatArray]:
    """Pearson's correlation of every two columns, over the rows that have both."""
    d = X.shape[1]
    scale = np.where(deviations > 0, deviations, 1.0)
    there = ~np.isnan(X)
    Z = np.where(there, (X - means) / scale, 0.0)
    if _whole(totals, numbers):
        S = _symmetric((yield Sum(packed(Z.T @ Z))), d)
        lengths = np.sqrt(S.diagonal())
    else:
        M = there.astype(float)
        triangle = d * (d + 1) // 2
        pairs = list(combinations(range(d), 2))
        both = yield from allowed([_cells(there[:, i], there[:, j]) for i, j in pairs], minimum)
        told_pairs = np.eye(d)
        for (i, j), yes in zip(pairs, both, strict=True):
            told_pairs[i, j] = told_pairs[j, i] = yes
        sums = (Z.T @ Z, M.T @ M, Z.T @ M, (Z**2).T @ M)
        products, numbers_of_both, *more = (one * told_pairs for one in sums)
        told = yield Sum(packed(products, packed(numbers_of_both), *(one.ravel() for one in more)))
        S, N = _symmetric(told[:triangle], d), _symmetric(told[triangle : 2 * triangle], d)
        A, Q = told[2 * triangle :].reshape(2, d, d)
        # Over the rows that have both: Σ zᵢzⱼ − Σzᵢ Σzⱼ / n, and Σ zᵢ² − (Σ zᵢ)² / n.
        with np.errstate(invalid="ignore", divide="ignore"):
            S = np.where(max(minimum, 2) <= N, S - A * A.T / N, np.nan)
            spread = np.sqrt(np.maximum(Q - A**2 / N, 0.0))
            result: FloatArray = S / (spread * spread.T)
        return np.clip(result, -1, 1)
    with np.errstate(invalid="ignore", divide="ignore"):
        whole: FloatArray = S / np.outer(lengths, lengths)
    return np.clip(whole, -1, 1)


def _cells(one: npt.NDArray[np.bool_], other: npt.NDArray[np.bool_]) -> npt.NDArray[np.intp]:
    """How many rows have values in both columns, in one of them, and in none."""
    return np.bincount(2 * one.astype(np.intp) + other, minlength=4)


def _symmetric(told: FloatArray, d: int) -> FloatArray:
    return unpacked(told, d)
