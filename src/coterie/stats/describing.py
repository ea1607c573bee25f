"""Describe the columns of all parties, from sums and counts over their rows.

    Sum  rows; for each column rows with a value, whether it is text, and its number of different
         values
    Sum  of columns of numbers the sums, then the squares about the means
    Sum  of columns of text, and of labels, the categories and their rows
         (`categories.category_counts`)
    Sum  counts in agreed bins, for quantiles (`quantiles`)
    Sum  products of every two columns, for correlations

Each sum is over at least the minimum number of rows of every party that has any (`groups`). Where a
column has few values or few missing values, a party leaves a few more out. Weights are not used.
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
from coterie.run.collectives import Protocol, Sum, combined, observed
from coterie.run.groups import Part, allowed, checked_counts, released, without_few, wrong_counts
from coterie.run.site import Site
from coterie.stats.categories import Category, category_counts
from coterie.stats.moments import packed, unpacked
from coterie.stats.quantiles import Quantiles, quantiles

PROBABILITIES = (0.05, 0.25, 0.5, 0.75, 0.95)
MOST_CATEGORIES = 50
"""Largest number of different values of a text column whose categories are sent. Of a column with
more, only the number of rows with a value is sent.
"""
NAME_BYTES = 40
"""Estimated numbers for the name of a category, to check whether the allowance suffices."""


@dataclass(frozen=True)
class Wish:
    """The wanted parts of a description."""

    target: str | None
    probabilities: tuple[float, ...] = PROBABILITIES
    minimum: int = 1
    correlation: bool = True
    allowance: float = math.inf
    """The most numbers that a party may send; a part that does not fit is left out, with a note."""


@dataclass(frozen=True)
class _Totals:
    """Sums that all parties know: of rows, and of each column."""

    rows: int
    text: list[bool]
    many: list[bool]
    different: list[int]
    present: list[int]


@dataclass
class _Allowance:
    """The numbers that a party may still send, and notes on parts that were left out for that."""

    left: float
    notes: list[str]

    def has(self, numbers: float, note: str) -> bool:
        """Whether that many numbers may be sent; otherwise the note is kept."""
        if numbers <= self.left:
            return True
        self.notes.append(note)
        return False

    def subtract(self, message: Sum) -> None:
        """Subtract the numbers of a message that is sent."""
        self.left -= message.x.size


@dataclass(frozen=True)
class _Numbers:
    """The columns of numbers with enough values: their places among all columns, their moments."""

    places: list[int]
    cells: list[Cells]
    means: FloatArray
    deviations: FloatArray

    @property
    def values(self) -> list[FloatArray]:
        """This party's values of each."""
        return [_present(cells) for cells in self.cells]


def described(wish: Wish, site: Site) -> Protocol[Description]:
    """Describe raw columns; the description is the same at all parties."""
    names = column_names(site.data)
    cells = [_with_enough(own, wish.minimum) for own in cells_of(site.data)]
    site = replace(site, rules=replace(site.rules, minimum=wish.minimum))
    totals = yield from _totals(site.data.n, names, cells, wish)
    numbers_at, categories_at = _sorted_out(names, totals, wish)
    cells_of_numbers = [cells[k] for k in numbers_at]
    numbers = yield from _moments(numbers_at, cells_of_numbers, totals, wish.minimum)
    sent = 1 + 4 * len(names) + 2 * len(numbers_at)
    allowance = _Allowance(wish.allowance - sent, [])
    listed = [(k, names[k], cells[k]) for k in categories_at]
    categories = yield from _categories(listed, totals, wish, site, allowance)
    found = yield from _quantiles(numbers, totals, wish, allowance)
    correlation = yield from _correlation(numbers, totals, wish, allowance)
    columns = []
    for k, name in enumerate(names):
        present = totals.present[k]
        summary = ColumnSummary(
            name,
            present,
            totals.rows - present,
            categories=categories.get(k),
            text=totals.text[k],
            **_of_number(numbers, k, found),
        )
        columns.append(summary)
    probabilities: tuple[float, ...] = ()
    if found is not None:
        probabilities = wish.probabilities
    correlated: tuple[str, ...] = ()
    if correlation is not None:
        correlated = tuple(names[k] for k in numbers_at)
    target = None
    if wish.target in names:
        target = wish.target
    return Description(
        "",
        totals.rows,
        tuple(columns),
        probabilities,
        target,
        correlated,
        correlation,
        tuple(allowance.notes),
    )


def _with_enough(cells: Cells, minimum: int) -> Cells:
    """The column with more values missing, so that neither its values nor its missing values are
    few.
    """
    missing = without_few(cells.missing, minimum)
    values = np.where(missing, np.nan, cells.values)
    return Cells(values, cells.texts)


def _present(cells: Cells) -> FloatArray:
    """The values of a column without the missing ones."""
    return cells.values[~cells.missing]


def _sorted_out(names: Sequence[str], totals: _Totals, wish: Wish) -> tuple[list[int], list[int]]:
    """The places of columns of numbers, and of columns of categories, with enough values."""
    numbers = []
    categories = []
    for k, name in enumerate(names):
        if totals.present[k] < max(wish.minimum, 1):
            continue
        is_target = name == wish.target and not totals.many[k]
        if not totals.text[k] and not is_target:
            numbers.append(k)
        elif not totals.many[k]:
            categories.append(k)
    return numbers, categories


def _of_number(numbers: _Numbers, place: int, found: Quantiles | None) -> dict[str, Any]:
    """Mean, deviation and quantiles of a column of numbers."""
    if place not in numbers.places:
        return {}
    at = numbers.places.index(place)
    deviation = float(numbers.deviations[at])
    known: dict[str, Any] = {"mean": float(numbers.means[at]), "std": deviation}
    if found is not None:
        known |= _of_quantiles(found, at, deviation)
    return known


def _of_quantiles(found: Quantiles, at: int, deviation: float) -> dict[str, tuple[float, ...]]:
    """The quantiles of one column and their bounds; a quantile with bounds far apart is NaN."""
    low = found.low[at].tolist()
    high = found.high[at].tolist()
    values = found.values[at].tolist()
    for k, (least, most) in enumerate(zip(low, high, strict=True)):
        if is_wide(least, most, deviation):
            values[k] = math.nan
    return {"quantiles": tuple(values), "low": tuple(low), "high": tuple(high)}


def _totals(
    rows: int, names: Sequence[str], cells: Sequence[Cells], wish: Wish
) -> Protocol[_Totals]:
    local: FloatArray = np.zeros((len(names), 4))
    for k, (name, own) in enumerate(zip(names, cells, strict=True)):
        present = (~own.missing).sum()
        different = 0
        if own.texts or name == wish.target:
            categories = own.texts or np.unique(_present(own))
            different = len(categories)
        many = different > MOST_CATEGORIES
        shown = min(different, MOST_CATEGORIES + 1)
        local[k] = present, bool(own.texts), shown, many
    # A column's values, and its missing values: neither are few.
    present = local[:, 0]
    groups = np.concatenate([present, rows - present])
    parts = Part(local, groups), Part(rows, rows)
    total = yield released(wish.minimum, rows, *parts)
    total = checked_counts(total, np.append(local.ravel(), rows), "rows and values")
    if (total[:-1:4] > total[-1]).any():
        raise wrong_counts("rows and values")
    by_column = total[:-1].reshape(len(names), 4).T.astype(int)
    present_of, text_of, different_of, many_of = by_column.tolist()
    return _Totals(
        rows=int(total[-1]),
        text=[bool(parties) for parties in text_of],
        many=[bool(parties) for parties in many_of],
        different=different_of,
        present=present_of,
    )


def _moments(
    places: list[int], cells: list[Cells], totals: _Totals, minimum: int
) -> Protocol[_Numbers]:
    """Means and deviations of columns of numbers."""
    if not places:
        return _Numbers([], [], np.empty(0), np.empty(0))
    values = [_present(own) for own in cells]
    counts = np.array([totals.present[k] for k in places], float)
    whole = len(cells[0].values)
    rows = [len(x) for x in values]
    own_sums = [float(x.sum()) for x in values]
    total = yield released(minimum, whole, Part(own_sums, rows))
    means = total / counts
    from_means = [x - mean for x, mean in zip(values, means, strict=True)]
    own_squares = [float((x**2).sum()) for x in from_means]
    squares = yield released(minimum, whole, Part(own_squares, rows))
    with np.errstate(invalid="ignore", divide="ignore"):
        roots = np.sqrt(squares / (counts - 1))
    deviations: FloatArray = np.where(counts > 1, roots, np.nan)
    return _Numbers(places, cells, means, deviations)


def _quantiles(
    numbers: _Numbers, totals: _Totals, wish: Wish, allowance: _Allowance
) -> Protocol[Quantiles | None]:
    """Return quantiles. With a limited allowance, correlations may use half of it."""
    count = len(numbers.places)
    if not count or not wish.probabilities:
        return None
    size = count * len(first_edges())
    if not allowance.has(
        size, "Quantiles were left out: they take more numbers than a policy allows."
    ):
        return None
    spare = allowance.left
    if math.isfinite(allowance.left):
        for_correlations = _size(count, totals, numbers.places)
        spare -= min(allowance.left / 2, for_correlations)
        allowance.left -= spare
    found = yield from quantiles(
        numbers.values, wish.probabilities, minimum=wish.minimum, allowance=spare
    )
    return found


def _categories(
    columns: Sequence[tuple[int, str, Cells]],
    totals: _Totals,
    wish: Wish,
    site: Site,
    allowance: _Allowance,
) -> Protocol[dict[int, dict[str, int]]]:
    """The rows of each category, by the places of the columns."""
    different = sum(totals.different[k] for k, _, _ in columns)
    guess = site.count * len(columns) + (3 + NAME_BYTES) * different
    note = f"Categories were left out: they take about {guess} numbers, more than a policy allows."
    if not columns or not allowance.has(guess, note):
        return {}
    protocols = []
    for k, name, own in columns:
        present = Cells(_present(own), own.texts)
        protocols.append(category_counts(name, present, wish.minimum, totals.text[k], site))
    counted = yield from observed(combined(protocols), allowance.subtract)
    found = {}
    for (k, name, _), (rows_of, rare) in zip(columns, counted, strict=True):
        if sum(rows_of.values()) + rare != totals.present[k]:
            raise wrong_counts(f"categories of column {name!r}")
        found[k] = _written(rows_of, rare)
    return found


def _written(counted: dict[Category, int], rare: int) -> dict[str, int]:
    """Categories as text; the rare ones together are the last."""
    names = {}
    for category, rows in counted.items():
        if isinstance(category, float):
            name = f"{category:g}"
        else:
            name = str(category)
        names[name] = rows
    if rare:
        names[OTHER] = rare
    return names


# -- correlations ----------------------------------------------------------------------------------


def _size(columns: int, totals: _Totals, places: Sequence[int]) -> int:
    """The numbers that correlations take."""
    triangle = columns * (columns + 1) // 2
    if _whole(totals, places):
        return triangle
    return 3 * triangle + 2 * columns**2


def _whole(totals: _Totals, places: Sequence[int]) -> bool:
    """Whether no value of these columns is missing."""
    return all(totals.present[k] == totals.rows for k in places)


def _correlation(
    numbers: _Numbers, totals: _Totals, wish: Wish, allowance: _Allowance
) -> Protocol[FloatArray | None]:
    """Pearson's correlation of every two columns, over the rows that have values in both."""
    if not wish.correlation or len(numbers.places) < 2:
        return None
    size = _size(len(numbers.places), totals, numbers.places)
    note = "Correlations were left out: they take more numbers than a policy allows."
    if not allowance.has(size, note):
        return None
    X = np.column_stack([cells.values for cells in numbers.cells])
    missing = np.isnan(X)
    scale = np.where(numbers.deviations > 0, numbers.deviations, 1.0)
    scaled = (X - numbers.means) / scale
    Z = np.where(missing, 0.0, scaled)
    found: FloatArray
    if _whole(totals, numbers.places):
        found = yield from _of_whole_columns(Z, wish.minimum)
    else:
        found = yield from _of_pairs(Z, ~missing, wish.minimum)
    return np.clip(found, -1, 1)


def _of_whole_columns(Z: FloatArray, minimum: int) -> Protocol[FloatArray]:
    """Correlations of columns without missing values."""
    total = yield released(minimum, len(Z), Part(packed(Z.T @ Z), len(Z)))
    S = unpacked(total, Z.shape[1])
    lengths = np.sqrt(S.diagonal())
    with np.errstate(invalid="ignore", divide="ignore"):
        found: FloatArray = S / np.outer(lengths, lengths)
    return found


def _of_pairs(Z: FloatArray, present: npt.NDArray[np.bool_], minimum: int) -> Protocol[FloatArray]:
    """Correlations of columns, each over the rows that have values in both.

    Missing values of Z are 0.
    """
    d = Z.shape[1]
    triangle = d * (d + 1) // 2
    M = present.astype(float)
    pairs = list(combinations(range(d), 2))
    groupings = [_cells(present[:, i], present[:, j]) for i, j in pairs]
    agreed = yield from allowed(groupings, minimum)
    sent = np.eye(d)
    for (i, j), may_send in zip(pairs, agreed, strict=True):
        sent[i, j] = may_send
        sent[j, i] = may_send
    products = Z.T @ Z * sent
    rows_of_both = M.T @ M * sent
    sums = Z.T @ M * sent
    squares = (Z**2).T @ M * sent
    own = packed(products, packed(rows_of_both), sums.ravel(), squares.ravel())
    groups = [present.sum(axis=0)]
    for grouping, may_send in zip(groupings, agreed, strict=True):
        if may_send:
            groups.append(grouping)
    total = yield released(minimum, len(Z), Part(own, np.concatenate(groups)))
    S = unpacked(total[:triangle], d)
    N = unpacked(total[triangle : 2 * triangle], d)
    A, Q = total[2 * triangle :].reshape(2, d, d)
    # Over the rows that have both: Σ zᵢzⱼ − Σzᵢ Σzⱼ / n, and Σ zᵢ² − (Σ zᵢ)² / n.
    with np.errstate(invalid="ignore", divide="ignore"):
        centred = S - A * A.T / N
        S = np.where(max(minimum, 2) <= N, centred, np.nan)
        spread = np.sqrt(np.maximum(Q - A**2 / N, 0.0))
        found: FloatArray = S / (spread * spread.T)
    return found


def _cells(one: npt.NDArray[np.bool_], other: npt.NDArray[np.bool_]) -> npt.NDArray[np.intp]:
    """The numbers of rows that have values in neither of two columns, in one of them, in both."""
    places = 2 * one.astype(np.intp) + other
    return np.bincount(places, minlength=4)
