"""Refuse invalid data before the first message; the error names party, column, count and fix.

`validated` checks the table of one party (an organisation can check no other), `validated_all`
checks all tables together, and `encode_labels` turns any two labels into −1 and +1.
"""

from __future__ import annotations

import numbers
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from coterie.data.align import refuse_mixed_ids
from coterie.data.summary import TableSummary, check_together, common_shape, in_common_shape
from coterie.data.table import ROW_VALUES, Table, canonical_csr, party_error
from coterie.data.values import are, is_text, plain, plain_ids
from coterie.errors import InvalidData, UnknownName, WrongValue, count
from coterie.numerics.arrays import FloatArray, Matrix, host, is_sparse, is_tensor
from coterie.numerics.kernels import tensors
from coterie.numerics.threads import spread
from coterie.run.stages import counting

SPLITS = ("features", "samples", "users")

MOST = 10
"""Number of classes that an error lists; with more of them, labels may be meant as numbers."""
SHARES = (
    "Labels between 0 and 1 look like shares of rows, and this loss takes one of two classes per "
    "row. Give each row twice: with label 1 and its share times its count as weight, and with "
    "label 0 and the rest as weight. Leave out rows of weight 0."
)
"""The fix for labels that are proportions."""
_BLOCK = 1 << 20
FIRST = 8
"""Number of rows that are enough for most columns to show that they are not too small."""
SAFETY = 10.0
"""Factor between accepted sizes and those whose squares lose precision."""


def validated(table: Table, *, classification: bool | None) -> Table:
    """The table with float X, y, weights and offset, or an `InvalidData`; all but X are in double
    precision.

    `classification=True` leaves the labels as they are, for `encode_labels`; `False` wants one
    number per row; `None` takes any labels, also several per row. A party without rows or without
    columns is allowed.
    """
    if table.texts:
        column = next(iter(table.texts))
        raise party_error(
            table.name, f"column {column!r} holds text. Prepare it with one-hot, or leave it out."
        )
    table = replace(table, X=_float_matrix(table))
    if table.columns is not None and len(table.columns) != table.d:
        raise party_error(
            table.name,
            f"has {table.d} columns but {len(table.columns)} column names. Give each one.",
        )
    _refuse_infinite(table)
    offset = table.offset
    if offset is not None:
        offset = valid_offset(offset, table.name, table.n)
    ids = table.ids
    if ids is not None:
        ids = plain_ids(ids, table.name)
    table = replace(
        table, y=_labels(table, classification), weights=_weights(table), offset=offset, ids=ids
    )
    _refuse_unequal_lengths(table)
    return table


def _refuse_unequal_lengths(table: Table) -> None:
    """Refuse labels, weights, offsets or ids that do not have one value per row, or that need
    labels.
    """
    with_labels = {noun: getattr(table, field) for noun, field in ROW_VALUES.items()}
    for noun, values in {"label": table.y, **with_labels, "id": table.ids}.items():
        if values is None:
            continue
        if len(values) != table.n:
            fix = f"Give one {noun} per row."
            raise party_error(
                table.name, f"has {table.n} rows but the number of {noun}s is {len(values)}. {fix}"
            )
        if noun in ROW_VALUES and table.y is None and table.n:
            fix = f"Give the {noun}s to the party with the labels."
            raise party_error(table.name, f"has {table.n} {noun}s but no labels. {fix}")


def validated_all(
    tables: Sequence[Table], *, split: str, classification: bool | None
) -> list[Table]:
    """The tables of all parties, each `validated`, and checked together for this split."""
    if split not in SPLITS:
        raise UnknownName("split", split, SPLITS)
    if not tables:
        raise InvalidData("there are no parties. Give at least one.")
    checked = [
        validated(table, classification=classification) for table in with_distinct_names(tables)
    ]
    shape = common_shape(checked_together(checked, split))
    return [in_common_shape(table, shape, split) for table in checked]


def checked_together(tables: Sequence[Table], split: str) -> list[TableSummary]:
    """The summaries of tables that are `validated`, once it is clear that they fit together."""
    cards = [TableSummary.of(table) for table in tables]
    check_together(cards, split)
    if split == "features":
        refuse_other_orders([table.name for table in tables], [table.ids for table in tables])
    refuse_sizes(
        cards, [sizes_of(table, cards, index, split) for index, table in enumerate(tables)], split
    )
    return cards


Counted = tuple[npt.NDArray[Any], npt.NDArray[np.intp] | None]
"""The different labels of a party, sorted, and the rows of each, if these are known."""


class ClassCounts(NamedTuple):
    """The classes of all parties together."""

    names: list[str]
    """The parties with labels."""
    labels: npt.NDArray[Any]
    """The different labels, sorted."""
    counts: npt.NDArray[np.intp] | None
    """The rows of each, if they are known."""

    @staticmethod
    def of(names: Sequence[str], own: Sequence[Counted]) -> ClassCounts:
        """From the labels of each party."""
        held = {name: one for name, one in zip(names, own, strict=True) if len(one[0])}
        if not held:
            raise InvalidData(
                "there are no labels at any party. Give labels with two different values."
            )
        _refuse_mixed_labels({name: labels for name, (labels, _) in held.items()})
        labels, places = np.unique(
            np.concatenate([labels for labels, _ in held.values()]), return_inverse=True
        )
        counts = [count for _, count in held.values() if count is not None]
        if len(counts) < len(held):
            return ClassCounts([*held], labels, None)
        rows = np.bincount(places, np.concatenate(counts), len(labels))
        return ClassCounts([*held], labels, rows.astype(np.intp))

    def two(self) -> npt.NDArray[Any]:
        """The two classes; refuses any other number of them."""
        if len(self.labels) == 2:
            return self.labels
        shown = [repr(label) for label in self.labels.tolist()]
        if self.counts is not None:
            pairs = zip(shown, self.counts, strict=True)
            shown = [f"{label} ({rows} rows)" for label, rows in pairs]
        listed = ", ".join(shown[:MOST])
        if len(shown) > MOST:
            listed += f", and {len(shown) - MOST} more"
        if len(shown) == 1:
            fix = "A classifier needs two classes: add rows of the other one."
        elif are_shares(self.labels):
            fix = SHARES
        else:
            fix = "This loss takes two: use loss multinomial, which takes several, or merge some."
            if len(shown) > MOST and not is_text(self.labels):
                fix += " To predict numbers, use a regression loss such as squared."
        names = ", ".join(map(repr, self.names))
        noun = "classes"
        if len(shown) == 1:
            noun = "class"
        raise InvalidData(f"the labels ({names}) have {len(shown)} {noun}: {listed}. {fix}")


def counted_labels(table: Table) -> Counted:
    """The different labels of a table, and how many rows have each."""
    if table.y is None or not len(table.y):
        return np.empty(0), None
    return _classes_of(plain(table.y, table.name, "label"))


def encode_labels(
    tables: Sequence[Table], classification: bool
) -> tuple[list[Table], npt.NDArray[Any] | None]:
    """Labels as −1.0 and +1.0, and the two classes they stand for, sorted; (−1, +1) stay
    themselves.

    The two classes are those of all parties together; one party may know only one of them. For a
    regression the tables are returned as they are, with None.
    """
    if not classification:
        return list(tables), None
    classes = ClassCounts.of(
        [table.name for table in tables], [counted_labels(table) for table in tables]
    ).two()
    return [encoded_as_signs(table, classes) for table in tables], classes


def encoded_as_signs(table: Table, classes: npt.NDArray[Any]) -> Table:
    """One party's labels as −1.0 and +1.0."""
    if table.y is None:
        return table
    if classes.tolist() == [-1.0, 1.0] and table.y.dtype == np.float64:
        return table
    y = np.empty(0)
    if len(table.y):
        y = np.where(plain(table.y, table.name, "label") == classes[1], 1.0, -1.0)
    return replace(table, y=y)


def are_shares(classes: npt.NDArray[Any]) -> bool:
    """Whether these labels are numbers from 0 to 1, and some are neither 0 nor 1."""
    if is_text(classes):
        return False
    between = (classes > 0) & (classes < 1)
    return bool(classes.min() >= 0 and classes.max() <= 1 and between.any())


def _classes_of(labels: npt.NDArray[Any]) -> tuple[npt.NDArray[Any], npt.NDArray[np.intp]]:
    """The distinct labels, sorted, and their counts; two distinct numbers need no sorting."""
    if not is_text(labels):
        ends = np.array([labels.min(), labels.max()])
        counts = np.array([np.count_nonzero(labels == end) for end in ends])
        if ends[0] != ends[1] and counts.sum() == labels.size:
            return ends, counts
    return np.unique(labels, return_counts=True)


def _plain_labels(tables: Sequence[Table]) -> dict[int, npt.NDArray[Any]]:
    """The labels of each party that has some, by the place of the party."""
    return {
        k: plain(table.y, table.name, "label")
        for k, table in enumerate(tables)
        if table.y is not None
    }


def encode_classes(
    tables: Sequence[Table], classes: npt.NDArray[Any] | None = None
) -> tuple[list[Table], npt.NDArray[Any]]:
    """Labels of any number of classes as 0, 1, ..., and the classes that they stand for.

    These are all labels of all parties, sorted, unless they are given: then a label outside them is
    refused.
    """
    labels = _plain_labels(tables)
    for k, values in labels.items():
        if values.ndim != 1:
            fix = "Give one class per row, not a row of them."
            raise party_error(tables[k].name, f"the labels have shape {values.shape}. {fix}")
    _refuse_mixed_labels({tables[k].name: values for k, values in labels.items() if values.size})
    if classes is None:
        classes = np.empty(0)
        if labels:
            classes = np.unique(np.concatenate(list(labels.values())))
    if len(classes) < 2:
        raise InvalidData(
            f"the labels have {len(classes)} class(es). A classifier needs two or more."
        )
    order = np.argsort(classes, kind="stable")
    encoded = list(tables)
    for k, values in labels.items():
        found = np.searchsorted(classes[order], values)
        place = order[np.minimum(found, len(classes) - 1)]
        outside = np.flatnonzero(classes[place] != values)
        if outside.size:
            row = int(outside[0])
            wrong = are(outside.size, "label")
            raise WrongValue(
                tables[k].name,
                row,
                before=f"{wrong} outside the {len(classes)} classes (first at ",
                after=f": {values[row].item()!r}). Drop those rows, or add the class.",
                noun="label",
            ).error()
        encoded[k] = replace(tables[k], y=place.astype(np.float64))
    return encoded, classes


# -- one party -------------------------------------------------------------------------------------


def _float_matrix(table: Table) -> Matrix:
    X = table.X
    if is_tensor(X):
        return _float_tensor(table)
    if isinstance(X, np.ma.MaskedArray) and np.ma.is_masked(X):
        counts = np.ma.getmaskarray(X).reshape(len(X), -1).sum(axis=0)
        j = int(np.argmax(counts > 0))
        raise party_error(
            table.name,
            f"{table.column_name(j)} has {counts[j]} masked values. Drop or impute them.",
        )
    if not is_sparse(X):
        X = np.asarray(X)
    if X.ndim == 1:
        raise party_error(
            table.name, "X has 1 dimension, not 2. For a single column use X.reshape(-1, 1)."
        )
    if X.ndim != 2:
        raise party_error(table.name, f"X has {X.ndim} dimensions, not 2. Give one row per sample.")
    if X.dtype.kind not in "biuf":
        raise _not_numbers(replace(table, X=X))
    if is_sparse(X):
        X = canonical_csr(X)
    precision = np.float32 if X.dtype.newbyteorder("=") == np.float32 else np.float64
    with np.errstate(over="ignore"):
        return X.astype(precision, copy=False)


def _float_tensor(table: Table) -> Any:
    X = table.X
    if X.ndim != 2 or not X.is_floating_point() or str(X.layout) != "torch.strided":
        found = f"shape {tuple(X.shape)} and type {X.dtype}"
        raise party_error(
            table.name, f"X is a tensor of {found}. Give two dimensions of floats, dense."
        )
    return X.detach()


def _not_numbers(table: Table) -> InvalidData:
    X = table.X
    kind = table.X.dtype.kind
    if kind == "c":
        return party_error(
            table.name,
            f"{table.column_name(0)} and all others hold complex numbers ({X.shape[0]} rows). Use "
            "X.real, or give X.real and X.imag as separate columns.",
        )
    if kind not in "OUST" or is_sparse(X):
        return party_error(
            table.name,
            f"{table.column_name(0)} and all others have type {X.dtype} ({X.shape[0]} rows). "
            "Convert with X.astype(float).",
        )
    for j in range(X.shape[1]):
        values = X[:, j].tolist()
        odd = [row for row, value in enumerate(values) if not _is_number(value)]
        if odd:
            held = f"{count(len(odd), 'value')} of {len(values)} that are not numbers"
            return WrongValue(
                table.name,
                odd[0],
                before=f"{table.column_name(j)} has {held} (first at ",
                after=f": {values[odd[0]]!r}). Encode or drop them; text that spells numbers "
                "becomes numbers with X.astype(float).",
                column=_name_of(table, j),
            ).error()
    first = "no column"
    if X.shape[1]:
        first = table.column_name(0)
    return party_error(
        table.name,
        f"X holds {X.size} numbers as objects, from {first} on. Convert with X.astype(float).",
    )


def _is_number(value: object) -> bool:
    return isinstance(value, numbers.Real | np.bool_)


def _refuse_infinite(table: Table) -> None:
    """Refuse a table in which not all x are finite."""
    X = table.X
    if is_tensor(X):
        if all(bool(block.isfinite().all()) for _, block in tensors.blocks(X)):
            return
        X = host(X)
    if not np.isnan(_squares(_numbers_of(X))):
        return
    counts = _infinite_in_columns(X)
    j = int(np.argmax(counts > 0))
    if is_sparse(X):
        where = np.flatnonzero(~np.isfinite(X.data))
        first = np.searchsorted(X.indptr, where[X.indices[where] == j][0], side="right") - 1
    else:
        first = np.argmin(np.isfinite(X[:, j]))
    others = np.count_nonzero(counts) - 1
    values = "values that are"
    if counts[j] == 1:
        values = "value that is"
    more = ""
    if others == 1:
        more = ", and 1 other column has some too"
    elif others:
        more = f", and {others} other columns have some too"
    raise WrongValue(
        table.name,
        int(first),
        before=f"{table.column_name(j)} has {counts[j]} {values} not finite (first at ",
        after=f"){more}. Drop or impute them (prepare).",
        column=_name_of(table, j),
        shows_cell=True,
    ).error()


def _infinite_in_columns(X: Matrix) -> npt.NDArray[np.intp]:
    """Count the numbers of every column that are not finite."""
    if is_sparse(X):
        wrong = ~np.isfinite(X.data)
        return np.bincount(X.indices[wrong], minlength=X.shape[1])
    counts = [np.count_nonzero(~np.isfinite(X[:, j])) for j in range(X.shape[1])]
    return np.array(counts, np.intp)


def _numbers_of(X: Matrix) -> FloatArray:
    """The stored numbers of a matrix."""
    if is_sparse(X):
        X = X.data
    stored: FloatArray = X
    return stored


def _name_of(table: Table, j: int) -> str | None:
    if table.columns is None:
        return None
    return table.columns[j]


def _squares(x: FloatArray) -> float:
    """The sum of all x², or NaN if not all of them are finite, without a mask of x's size.

    NaN and ±∞ make every sum of squares NaN or ∞, so a block with a finite one is clean. Squares of
    finite values may overflow: only then every value of the block is checked.
    """
    blocks = list(_blocks(x))
    counted = counting(_squares_of, "checking", len(blocks), len(x))
    return float(sum(spread(counted, blocks, min(x.size, _BLOCK))))


def _squares_of(block: FloatArray) -> float:
    squares = float(np.vdot(block, block))
    if np.isfinite(squares) or np.isfinite(block).all():
        return squares
    return np.nan


def _blocks(x: FloatArray) -> Iterator[FloatArray]:
    along = x
    if x.flags.f_contiguous:
        along = x.T
    step = max(1, _BLOCK // max(1, along[:1].size))
    for start in range(0, len(along), step):
        yield along[start : start + step]


def _labels(table: Table, classification: bool | None) -> FloatArray | None:
    if table.y is None:
        return None
    y = plain(table.y, table.name, "label")
    if y.ndim != 1 and not (classification is None and y.ndim == 2):
        raise party_error(
            table.name, f"the labels have shape {y.shape}. Give one per row, e.g. with y.ravel()."
        )
    if classification is False and is_text(y):
        fix = "Convert with y.astype(float), or use a classification loss."
        raise party_error(
            table.name, f"{are(y.size, 'label')} text, e.g. {str(y[:1].squeeze())!r}. {fix}"
        )
    if classification or is_text(y):
        return y
    return _in_double_precision(table, y, "label")


def _weights(table: Table) -> FloatArray | None:
    if table.weights is None:
        return None
    weights = plain(table.weights, table.name, "weight")
    if weights.ndim != 1 or is_text(weights):
        raise party_error(
            table.name,
            f"the weights have shape {weights.shape} and type {weights.dtype}. Give numbers.",
        )
    weights = _in_double_precision(table, weights, "weight")
    bad = np.flatnonzero(weights <= 0)
    if bad.size:
        raise WrongValue(
            table.name,
            int(bad[0]),
            before=f"{are(bad.size, 'weight')} zero or negative (first at ",
            after=f": {weights[bad[0]]}). Drop those rows, or give them a positive weight.",
            noun="weight",
        ).error()
    return weights


def valid_offset(offset: object, party: str, rows: int) -> FloatArray:
    """Finite numbers, one per row, in double precision: proofs add them to scores of double
    precision.
    """
    numbers = plain(offset, party, "offset")
    if numbers.ndim != 1 or is_text(numbers):
        raise party_error(
            party, f"the offsets have shape {numbers.shape} and type {numbers.dtype}. Give numbers."
        )
    if len(numbers) != rows:
        fix = "Give one offset per row."
        raise party_error(
            party, f"has {rows} rows but the number of offsets is {len(numbers)}. {fix}"
        )
    return numbers.astype(float, copy=False)


def _in_double_precision(table: Table, values: npt.NDArray[Any], noun: str) -> FloatArray:
    """The numbers in double precision. Refuses numbers that are too large for the precision of X,
    which methods use.
    """
    precision = np.dtype(np.float64)
    if not is_tensor(table.X):
        precision = table.X.dtype
    with np.errstate(over="ignore"):
        too_large = int(np.count_nonzero(~np.isfinite(values.astype(precision, copy=False))))
    if too_large:
        raise party_error(
            table.name, f"{are(too_large, noun)} too large for {table.X.dtype}. Give X as float64."
        )
    return values.astype(np.float64, copy=False)


# -- all parties -----------------------------------------------------------------------------------


def with_distinct_names(tables: Sequence[Table]) -> list[Table]:
    """Add a number to the names of parties with the same name, so that errors can tell them
    apart.
    """
    names = distinct_names([table.name for table in tables])
    renamed = []
    for table, name in zip(tables, names, strict=True):
        if table.name != name:
            table = replace(table, name=name)
        renamed.append(table)
    return renamed


def distinct_names(names: Sequence[str]) -> list[str]:
    """Add its number to each name that occurs several times."""
    times = Counter(names)
    found = []
    for k, name in enumerate(names):
        if times[name] > 1:
            name = f"{name} {k}"
        found.append(name)
    return found


class Sizes(NamedTuple):
    """The sizes of the numbers of a party."""

    columns: FloatArray
    """The largest |x| of every column, or 0 where no number is extreme; see `_column_sizes`."""
    labels: float
    """The largest label."""


def sizes_of(table: Table, cards: Sequence[TableSummary], index: int, split: str) -> Sizes:
    """The sizes of the numbers of one party among these, for `refuse_sizes`."""
    least, most = _range(_summed(cards, index, split))
    X = table.X
    small = is_tensor(X) or _squares(_numbers_of(X)) <= most**2
    labels = 0.0
    if table.y is not None and table.y.dtype.kind == "f":
        labels = float(np.abs(table.y).max(initial=0.0))
    return Sizes(_column_sizes(X, least, small), labels)


def refuse_sizes(cards: Sequence[TableSummary], sizes: Sequence[Sizes], split: str) -> None:
    """Refuse a column, or labels, so small that all squares vanish, or so large that their sum is
    infinite.

    All methods and certificates sum squares. Numbers may be tiny at one party if they are not at
    another. A column of zeros is accepted.
    """
    held = [index for index, card in enumerate(cards) if card.rows]
    groups = [held]
    if split == "features":
        groups = [[index] for index in held]
    for group in filter(None, groups):
        summed = _summed(cards, group[0], split)
        least, most = _range(summed)
        precision = str(_precision(summed).dtype)
        wrong = _wrong_sizes(_of_one_width([sizes[index].columns for index in group]), least, most)
        if wrong is not None:
            holder = cards[group[wrong.party]]
            raise party_error(
                holder.name,
                f"{holder.column_name(wrong.column)} has {wrong.describe(least, precision)}",
            )
        wrong = _wrong_sizes(np.array([[sizes[index].labels] for index in group]), least, most)
        if wrong is not None:
            holder = cards[group[wrong.party]]
            raise party_error(holder.name, f"the labels have {wrong.describe(least, precision)}")


def _of_one_width(rows: Sequence[FloatArray]) -> FloatArray:
    """These rows as a matrix; columns that an open-ended table leaves out are zero."""
    matrix = np.zeros((len(rows), max(len(row) for row in rows)))
    for place, row in enumerate(rows):
        matrix[place, : len(row)] = row
    return matrix


def _summed(cards: Sequence[TableSummary], index: int, split: str) -> list[TableSummary]:
    """The parties over whose rows the squares of that party are summed: split by features,
    itself.
    """
    if split == "features":
        return [cards[index]]
    return [card for card in cards if card.rows] or [cards[index]]


def _precision(cards: Sequence[TableSummary]) -> Any:
    if all(card.single for card in cards):
        return np.finfo(np.float32)
    return np.finfo(np.float64)


def _range(cards: Sequence[TableSummary]) -> tuple[float, float]:
    """The least and the largest size of numbers that parties can sum the squares of."""
    precision = _precision(cards)
    rows = max(sum(card.rows for card in cards), 1)
    least = SAFETY * float(precision.tiny) ** 0.5
    most = (float(precision.max) / rows) ** 0.5 / SAFETY
    return least, most


class _WrongSize(NamedTuple):
    """The first column whose largest number is out of range."""

    column: int
    party: int
    """The place of the party with the largest number."""
    size: float
    columns: int
    """The number of columns out of range."""

    def describe(self, least: float, precision: str) -> str:
        others = ""
        if self.columns > 1:
            others = f" ({are(self.columns - 1, 'other column')} like it)"
        effect = "the sum of their squares is too large"
        fix = "Divide"
        if self.size < least:
            effect = "the squares of these vanish"
            fix = "Multiply"
        factor = 10.0 ** abs(round(np.log10(self.size)))
        size = f"{self.size:.0e}"
        return (
            f"numbers of size {size} at most{others}: {effect} in {precision}. {fix} them by "
            f"{factor:.0e}."
        )


def _wrong_sizes(sizes: FloatArray, least: float, most: float) -> _WrongSize | None:
    """The first column of `sizes` (a row per party) whose largest entry is above `most`, or below
    `least` but not 0.
    """
    largest = sizes.max(axis=0, initial=0.0)
    too_small = (largest > 0) & (largest < least)
    wrong = np.flatnonzero(too_small | (largest > most))
    if not wrong.size:
        return None
    j = int(wrong[0])
    return _WrongSize(j, int(sizes[:, j].argmax()), float(largest[j]), wrong.size)


def _column_sizes(X: Matrix, least: float, small: bool) -> FloatArray:
    """The largest |x| of every column; if no number is extreme, which is faster to find out, the
    largest |x| of its first rows, or 0.
    """
    if is_tensor(X):
        return tensors.largest(X)
    sizes = np.zeros(X.shape[1])
    if is_sparse(X):
        if not small or any(_smallest(block) < least for block in _blocks(X.data)):
            np.maximum.at(sizes, X.indices, np.abs(X.data))
        return sizes
    np.abs(X[:FIRST]).max(axis=0, initial=0, out=sizes)
    if not small or (sizes < least).any():
        np.maximum(X.max(axis=0, initial=0), -X.min(axis=0, initial=0), out=sizes)
    return sizes


def _smallest(block: FloatArray) -> float:
    return float(np.abs(block).min(initial=np.inf))


def refuse_other_orders(names: Sequence[str], ids: Sequence[npt.NDArray[Any] | None]) -> None:
    """Refuse ids that name different rows at two parties."""
    refuse_mixed_ids(names, ids)
    named = [(name, own) for name, own in zip(names, ids, strict=True) if own is not None]
    for other, own in named:
        first, known = named[0]
        different = np.flatnonzero(known != own)
        if different.size:
            i = int(different[0])
            raise WrongValue(
                other,
                i,
                before=(
                    f"{are(different.size, 'id')} not that of party {first!r} in the same row "
                    "(first at "
                ),
                after=(
                    f": {own[i]} here and {known[i]} there). Match the rows with "
                    "coterie.data.align(tables)."
                ),
                noun="id",
            ).error()


def _refuse_mixed_labels(labels: dict[str, npt.NDArray[Any]]) -> None:
    text = [name for name, values in labels.items() if is_text(values)]
    if 0 < len(text) < len(labels):
        number = next(name for name in labels if name not in text)
        raise InvalidData(
            f"the labels are text at party {text[0]!r} and numbers at party {number!r}. Convert "
            "them to one type."
        )
