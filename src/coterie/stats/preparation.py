"""Fits a preparation: what the parties tell each other of raw columns, all of it in `Sum`s.

| step            | told, for each column                                                                        |
|-----------------|----------------------------------------------------------------------------------------------|
| every one       | whether it is text, rows with and without a value, the sum, then the squares about the mean   |
| standardise     | nothing more; after polynomial or spline, sums and squares of the new columns                |
| min-max         | the smallest and the largest value of each party; with secure sums only those of all          |
| spline          | counts of values in agreed bins                                                              |
| one-hot         | hashes of the categories here, rows of each, and then the names of those that are not rare    |

The steps of all columns go side by side: what they have to tell next travels in one message. Labels, weights and
offsets are not looked at. Split by features, every party prepares its own columns, and nothing is told.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from coterie.data.preparation.prepared import (
    FAR,
    Categories,
    Cells,
    Column,
    Filled,
    Powers,
    Prepared,
    Scaled,
    Splines,
    cells_of,
    column_names,
)
from coterie.data.preparation.prepared import Step as Fitted
from coterie.data.preparation.recipes import Preparation, Step
from coterie.errors import InvalidData, ProtocolError
from coterie.numerics.arrays import FloatArray
from coterie.run.collectives import Protocol, Sum
from coterie.run.disclosure import TOTALS, discloses
from coterie.run.groups import pooled, without_few
from coterie.run.site import Rules, Site
from coterie.stats.quantiles import quantiles

T = TypeVar("T")
Messages: TypeAlias = Generator[FloatArray, FloatArray, T]
"""Yields numbers, and is sent their sums over all parties."""
PURPOSE = "preparation"
MOST_HERE, MOST_COLUMNS, LONGEST = 10_000, 1_000, 1_000
"""Categories of a column at one party, columns that they become, and bytes of a category's name, at most."""
PRECISION = 0.01
"""Of knots, beside the numbers that they are: nothing depends on where exactly they lie, and less is told."""
HASH_BYTES = 6
"""Of a category's hash: as a whole number it is then exact in a `Sum`."""


# -- fitting -----------------------------------------------------------------------------------------------------------


@discloses(
    "for each column: whether it is text; and, as part of sums: rows with a value, missing values, sum and squares",
    "the mean and the variance of each of your columns, and how many values are missing",
    TOTALS,
    splits=("samples",),
)
@discloses(
    "the smallest and the largest value of each column",
    "values of your rows: each smallest and largest value belongs to one",
    splits=("samples",),
    applies=lambda case: "min-max" in case.steps and not case.secure_sums,
)
@discloses(
    "the bits of the smallest and the largest value of each column, as parts of sums: only those of all are learned",
    splits=("samples",),
    applies=lambda case: "min-max" in case.steps and case.secure_sums,
)
@discloses(
    "for each column: counts of its values in bins with at least minimum-count rows, as part of sums",
    "quantiles of your columns, to about one percent; exact ones where rows are many",
    TOTALS,
    splits=("samples",),
    applies=lambda case: "spline" in case.steps,
)
@discloses(
    "a hash of each category with at least minimum-count of your rows; how many rows it has, as part of a sum; and the "
    "names of those that are not rare",
    "whether you have a category that the recipient guesses",
    splits=("samples",),
    applies=lambda case: "one-hot" in case.steps,
)
def fitted(preparation: Preparation, rules: Rules, site: Site) -> Protocol[Prepared]:
    """The preparation with its numbers, the same at all parties; the table has been looked at by `check_alone`."""
    table, site = site.data, replace(site, rules=rules)
    cells, names = cells_of(table), column_names(table)
    protocols = [_column(name, own, preparation, site) for name, own in zip(names, cells, strict=True)]
    return Prepared((yield from spoken(side_by_side(protocols))), table.columns is not None)


def spoken(protocol: Messages[T]) -> Protocol[T]:
    """A talk that says these messages in `Sum`s."""
    reply: FloatArray | None = None
    while True:
        try:
            message = next(protocol) if reply is None else protocol.send(reply)
        except StopIteration as end:
            found: T = end.value
            return found
        reply = yield Sum(message)


def side_by_side(protocols: Sequence[Messages[T]]) -> Messages[list[T]]:
    """Several at once: what they have to tell travels in one message."""
    ends: dict[int, T] = {}
    replies: dict[int, FloatArray | None] = dict.fromkeys(range(len(protocols)))
    while True:
        messages: dict[int, FloatArray] = {}
        for k, reply in replies.items():
            try:
                messages[k] = next(protocols[k]) if reply is None else protocols[k].send(reply)
            except StopIteration as end:
                ends[k] = end.value
        if not messages:
            return [ends[k] for k in range(len(protocols))]
        total = yield np.concatenate([message.ravel() for message in messages.values()])
        parts = np.split(total, np.cumsum([message.size for message in messages.values()])[:-1])
        replies = {k: part.reshape(message.shape) for (k, message), part in zip(messages.items(), parts, strict=True)}


def _column(name: str, cells: Cells, preparation: Preparation, site: Site) -> Messages[Column]:
    # What is told of missing values, too, is about enough rows.
    some = Cells(np.where(without_few(cells.missing, site.rules.minimum), np.nan, cells.values), cells.texts)
    values = some.values[~some.missing]
    local = np.array([bool(cells.texts), len(values), len(cells.values) - len(values), 0.0])
    if not cells.texts:
        local[3] = values.sum()
    texts, present, missing, total = (yield local).tolist()
    if not present:
        raise InvalidData(f"column {name!r} has no value at any party. Leave it out.")
    steps = preparation.recipe(name, bool(texts))
    if not steps:
        raise InvalidData(f"column {name!r} holds text at some party, and no recipe is for it. {_ENCODE}")
    recipe = ", ".join(map(str, steps))
    if steps[0].name == "one-hot":
        categories = yield from _categories(name, cells, steps[0], bool(texts), site)
        return Column(name, recipe, categories=categories)
    if texts:
        raise InvalidData(f"column {name!r} holds text at some party, and {recipe} is for numbers. {_ENCODE}")
    if missing and steps[0].name != "impute":
        raise InvalidData(
            f"column {name!r} has {_about(missing, site)} missing value{'s' * (missing > 1)} at all parties together, "
            f"and its recipe is {recipe!r}. Begin it with impute, or leave those rows or the column out."
        )
    mean = total / present
    squares = float((yield np.array([((values - mean) ** 2).sum()]))[0])
    deviation = math.sqrt(squares / present)
    known: _Moments | None = _Moments(np.array([mean]), np.array([squares / present]), present + missing)
    done: list[Fitted] = []
    for step in steps:
        if step.name == "keep":
            continue
        if step.name == "impute":
            assert known is not None
            filled = Filled(mean if step.number is None else step.number, bool(step.flag and missing))
            fit: Fitted = filled
            known = known.filled(filled, present, missing)
        elif step.name == "polynomial":
            fit, known = Powers(int(step.number or 0)), None
        elif step.name == "spline":
            fit, known = (yield from _spline(name, _after(done, cells)[:, 0], step, site.rules.minimum)), None
        else:
            if known is None and step.name == "standardise":
                known = yield from _moments(_after(done, cells))
            told = step.name == "standardise" and known
            fit = told.scaled() if told else (yield from _min_max(_after(done, cells), site))
            known = None
        done.append(fit)
    reach = FAR * deviation
    return Column(name, recipe, done, low=mean - reach, high=mean + reach)


def _after(steps: Sequence[Fitted], cells: Cells) -> FloatArray:
    """The columns that these steps make of the cells."""
    return reduce(lambda values, step: step.apply(values), steps, cells.values[:, None])


_ENCODE = "Use one-hot for it, or leave it out."


@dataclass(frozen=True)
class _Moments:
    """Means and variances of columns over n rows."""

    mean: FloatArray
    variance: FloatArray
    n: float

    def filled(self, step: Filled, present: float, missing: float) -> _Moments:
        """With missing values filled in: these are known without a word."""
        share = missing / self.n
        mean = (1 - share) * self.mean[0] + share * step.value
        # Σ (x − m')² = Σ (x − m)² + present (m − m')² + missing (value − m')²
        spread = self.variance[0] + (self.mean[0] - mean) ** 2
        variance = (1 - share) * spread + share * (step.value - mean) ** 2
        if not step.indicator:
            return _Moments(np.array([mean]), np.array([variance]), self.n)
        return _Moments(np.array([mean, share]), np.array([variance, share * (1 - share)]), self.n)

    def scaled(self) -> Scaled:
        """Standardised, as scikit-learn does it: what is constant up to rounding is only shifted."""
        eps = float(np.finfo(float).eps)
        constant = self.variance <= self.n * eps * self.variance + (self.n * self.mean * eps) ** 2
        return Scaled(self.mean.tolist(), np.where(constant, 1.0, np.sqrt(self.variance)).tolist())


def _moments(values: FloatArray) -> Messages[_Moments]:
    told = yield np.append(values.sum(axis=0), len(values))
    n = float(told[-1])
    mean = told[:-1] / n
    squares = yield ((values - mean) ** 2).sum(axis=0)
    return _Moments(mean, squares / n, n)


def _min_max(values: FloatArray, site: Site) -> Messages[Scaled]:
    low, high = yield from extremes(values, site)
    return Scaled(low.tolist(), np.where(high > low, high - low, 1.0).tolist())


def _about(rows: float, site: Site) -> str:
    """A number of rows, which is exact unless few rows are hidden."""
    return f"{rows:.0f}" if site.rules.minimum <= 1 else f"about {rows:.0f}"


def _spline(name: str, values: FloatArray, step: Step, minimum: int) -> Messages[Splines]:
    levels = np.linspace(0, 1, int(step.number or 0))
    protocol, reply = quantiles([values], levels.tolist(), precision=PRECISION, minimum=minimum), None
    while True:
        try:
            word = next(protocol) if reply is None else protocol.send(reply)
        except StopIteration as end:
            found = end.value
            break
        assert isinstance(word, Sum)
        reply = yield word.x
    # The first and the last knot enclose all values.
    inner = [found.low[0, 0], *found.values[0, 1:-1], found.high[0, -1]]
    if not np.isfinite(inner).all():
        raise InvalidData(
            f"column {name!r}: its smallest or largest values lie in a bin of too few rows of a party to be told. "
            "Scale it with standardise before spline, or leave it out."
        )
    width = inner[-1] - inner[0]
    knots = [inner[0]]
    for knot in inner[1:]:
        if knot - knots[-1] > 1e-9 * width and (knot == inner[-1] or inner[-1] - knot > 1e-9 * width):
            knots.append(knot)
    if not width > 0 or len(knots) < 2:
        raise InvalidData(f"column {name!r} has one value at all parties, which has no spline. Leave it out.")
    return Splines([float(knot) for knot in knots], step.degree)


# -- the smallest and the largest value --------------------------------------------------------------------------------


def extremes(values: FloatArray, site: Site) -> Messages[tuple[FloatArray, FloatArray]]:
    """The smallest and the largest value of every column over all parties.

    Each party tells its own in a place of its own. With secure sums nobody learns whose they are: the parties look for
    the smallest bit by bit, each telling whether its own begins with the bits found so far and a 0.
    """
    both = np.hstack([values, -values])
    local = both.min(axis=0) if len(both) else np.zeros(both.shape[1])
    if site.secure_sums:
        found = yield from _smallest(local, bool(len(both)))
    else:
        told = np.zeros((site.count, 1 + len(local)))
        if len(both):
            told[site.index] = [1.0, *local]
        total = yield told
        found = total[total[:, 0] > 0, 1:].min(axis=0)
    width = values.shape[1]
    return found[:width], -found[width:]


def _smallest(local: FloatArray, present: bool) -> Messages[FloatArray]:
    sign = np.uint64(1 << 63)
    bits = (local + 0.0).view(np.uint64)
    # Whole numbers in the order of the numbers that they stand for.
    keys = np.where(bits & sign, ~bits, bits | sign)
    found = np.zeros(len(local), np.uint64)
    for place in reversed(range(64)):
        shift = np.uint64(place)
        told = yield ((keys >> shift == found >> shift) & present).astype(float)
        found |= np.where(told > 0, np.uint64(0), np.uint64(1) << shift)
    smallest: FloatArray = np.where(found & sign, found & ~sign, ~found).view(np.float64)
    if not np.isfinite(smallest).all():
        raise ProtocolError("the smallest and largest values do not agree between the parties.")
    return smallest


# -- categories --------------------------------------------------------------------------------------------------------


def _categories(name: str, cells: Cells, step: Step, text: bool, site: Site) -> Messages[Categories]:
    least = 1 if step.number is None else step.number
    counted, rare = yield from category_counts(name, cells, least, text, site)
    others = rare > 0
    return Categories(text, list(counted), others, step.flag and len(counted) + others > 1)


def category_counts(
    name: str, cells: Cells, least: float, text: bool, site: Site
) -> Messages[tuple[dict[str | float | None, int], int]]:
    """The categories of a column with at least so many rows at all parties, in order, and how many rows are of others.

    None is a missing value. Rows of a category that is small at a party (`groups.pooled`) are among the others.
    """
    local, which = cells.counted(text)
    counts = np.bincount(which, minlength=len(local))[: len(local)]
    # Of a category that is rare here nothing is told by this party, not even its hash.
    counts, few = pooled(counts, site.rules.minimum)
    local, counts = [one for one, rows in zip(local, counts.tolist(), strict=True) if rows], counts[counts > 0]
    written = [_written(one) for one in local]
    if long := next((one for one in written if len(one) > LONGEST), None):
        start = f"{long[1:40].decode(errors='ignore')}..."
        raise InvalidData(
            f"column {name!r} has a category of {len(long)} bytes, {start!r}. Shorten it, or leave it out."
        )
    hashes = np.array([_hash(name, one) for one in written], float)
    if len(set(hashes.tolist())) < len(local):
        raise InvalidData(f"two categories of column {name!r} have the same hash. Rename one.")
    # Who has how many, and then which.
    sizes = _whole_numbers((yield _slot(site.index, site.count, len(local))), MOST_HERE)
    disagreement = ProtocolError(f"the parties do not agree on the categories of column {name!r}.")
    if sizes[site.index] != len(local):
        raise disagreement
    owners = np.repeat(np.arange(site.count), sizes)
    mine = np.zeros(len(owners))
    mine[owners == site.index] = np.sort(hashes)
    told = yield mine
    if not np.array_equal(told[owners == site.index], np.sort(hashes)):
        raise disagreement
    known, first = np.unique(told, return_index=True)
    rows = np.zeros(len(known) + 1)
    rows[np.searchsorted(known, hashes)] = counts
    rows[-1] = few
    total = yield rows
    few, total = int(total[-1]), total[:-1]
    frequent = total >= least
    if frequent.sum() > MOST_COLUMNS:
        raise InvalidData(
            f"column {name!r} has {int(frequent.sum())} categories, more than {MOST_COLUMNS}. Pool rare ones, with "
            "one-hot(100), say, or leave it out."
        )
    # Of those that are not rare, the first party that has one tells its name.
    own = dict(zip(hashes.tolist(), written, strict=True))
    tells = [
        own[key] if owner == site.index else b""
        for key, owner in zip(known[frequent].tolist(), owners[first][frequent].tolist(), strict=True)
    ]
    lengths = _whole_numbers((yield np.array([len(one) for one in tells], float)), LONGEST)
    if any(one and len(one) != length for one, length in zip(tells, lengths.tolist(), strict=True)):
        raise disagreement
    packed = yield _packed(tells, lengths)
    names = _unpacked(packed, lengths)
    for key, told_name in zip(known[frequent].tolist(), names, strict=True):
        if _hash(name, told_name) != key or own.get(key, told_name) != told_name:
            raise disagreement
    found = {_read(one, text): int(rows) for one, rows in zip(names, total[frequent].tolist(), strict=True)}
    order = sorted(found, key=lambda one: (one is None, one if one is not None else 0))
    return {one: found[one] for one in order}, int(total[~frequent].sum()) + few


def _written(category: str | float | None) -> bytes:
    """A category as bytes: text, number or missing."""
    return (
        b"m"
        if category is None
        else b"t" + category.encode()
        if isinstance(category, str)
        else b"n" + repr(category).encode()
    )


def _read(written: bytes, text: bool) -> str | float | None:
    try:
        content = written[1:].decode()
        return None if written == b"m" else content if text else float(content)
    except ValueError as error:
        raise ProtocolError(f"a party told a category that cannot be read ({error}).") from error


def _hash(column: str, written: bytes) -> float:
    found = hashlib.sha256(column.encode() + b"\0" + written).digest()[:HASH_BYTES]
    return float(int.from_bytes(found, "big"))


def _slot(index: int, count: int, number: float) -> FloatArray:
    slots = np.zeros(count)
    slots[index] = number
    return slots


def _whole_numbers(told: FloatArray, most: int) -> npt.NDArray[np.intp]:
    if not (np.isfinite(told).all() and (told == np.round(told)).all() and (told >= 0).all() and (told <= most).all()):
        raise ProtocolError("a party told sizes of categories that cannot be.")
    return told.astype(np.intp)


def _packed(names: Sequence[bytes], lengths: npt.NDArray[np.intp]) -> FloatArray:
    """Names as whole numbers of six bytes; those that others tell are zeros."""
    numbers: list[float] = []
    for name, length in zip(names, lengths.tolist(), strict=True):
        whole = name.ljust(-(-length // HASH_BYTES) * HASH_BYTES, b"\0")
        numbers += [float(int.from_bytes(whole[k : k + HASH_BYTES], "big")) for k in range(0, len(whole), HASH_BYTES)]
    return np.array(numbers)


def _unpacked(told: FloatArray, lengths: npt.NDArray[np.intp]) -> list[bytes]:
    chunks = _whole_numbers(told, 256**HASH_BYTES - 1).tolist()
    names, start = [], 0
    for length in lengths.tolist():
        end = start + -(-length // HASH_BYTES)
        names.append(b"".join(chunk.to_bytes(HASH_BYTES, "big") for chunk in chunks[start:end])[:length])
        start = end
    return names
