"""Fits a preparation: what the parties tell each other of raw columns, all of it in `Sum`s.

| step            | told, for each column                                                                        |
|-----------------|----------------------------------------------------------------------------------------------|
| every one       | whether it is text, rows with and without a value, the sum, then the squares about the mean   |
| standardise     | nothing more; after polynomial or spline, sums and squares of the new columns                |
| min-max         | the smallest and the largest value of each party; with secure sums, only those of all (`extremes`) |
| spline          | counts of values in agreed bins                                                              |
| one-hot         | hashes of the categories here, rows of each over all parties, and then the names of those that are not rare |

The steps of all columns go side by side: what they have to tell next travels in one message. Labels, weights and
offsets are not looked at. Split by features, every party prepares its own columns, and nothing is told.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from coterie.arrays import FloatArray
from coterie.bill import Bill
from coterie.data import Table
from coterie.data.prepared import FAR, Categories, Cells, Column, Filled, Powers, Prepared, Scaled, Splines, cells_of
from coterie.data.prepared import Step as Fitted
from coterie.data.prepared import column_names
from coterie.data.recipes import Preparation, Step
from coterie.data.summary import TableSummary, check_together
from coterie.data.table import columns_of, party_error
from coterie.errors import InvalidData, InvalidProblem, ProtocolError, UnknownName
from coterie.networks import Network
from coterie.problem import Problem
from coterie.session.quantiles import quantiles
from coterie.transport.in_process import InProcess
from coterie.words import Sum, Talk

T = TypeVar("T")
Messages: TypeAlias = Generator[FloatArray, FloatArray, T]
"""Yields numbers, and is sent their sums over all parties."""
PURPOSE = "preparation"
MOST_HERE, MOST_COLUMNS, LONGEST = 10_000, 1_000, 1_000
"""Categories of a column at one party, columns that they become, and bytes of a category's name, at most."""
HASH_BYTES = 6
"""Of a category's hash: as a whole number it is then exact in a `Sum`."""


@dataclass(frozen=True)
class Place:
    """Who says it: which of how many parties, and whether sums are secure."""

    index: int
    count: int
    secure: bool


# -- fitting -----------------------------------------------------------------------------------------------------------


def fitted(table: Table, preparation: Preparation, place: Place) -> Talk[Prepared]:
    """The preparation with its numbers, the same at all parties; `table` has been looked at by `check_alone`."""
    cells, names = cells_of(table), column_names(table)
    talks = [_column(name, own, preparation, place) for name, own in zip(names, cells, strict=True)]
    talk, reply = side_by_side(talks), None
    while True:
        try:
            message = next(talk) if reply is None else talk.send(reply)
        except StopIteration as end:
            return Prepared(end.value, table.columns is not None)
        reply = yield Sum(message)


def side_by_side(talks: Sequence[Messages[T]]) -> Messages[list[T]]:
    """Several at once: what they have to tell travels in one message."""
    ends: dict[int, T] = {}
    replies: dict[int, FloatArray | None] = dict.fromkeys(range(len(talks)))
    while True:
        messages: dict[int, FloatArray] = {}
        for k, reply in replies.items():
            try:
                messages[k] = next(talks[k]) if reply is None else talks[k].send(reply)
            except StopIteration as end:
                ends[k] = end.value
        if not messages:
            return [ends[k] for k in range(len(talks))]
        total = yield np.concatenate([message.ravel() for message in messages.values()])
        parts = np.split(total, np.cumsum([message.size for message in messages.values()])[:-1])
        replies = {
            k: part.reshape(message.shape) for (k, message), part in zip(messages.items(), parts, strict=True)
        }


def _column(name: str, cells: Cells, preparation: Preparation, place: Place) -> Messages[Column]:
    values = cells.values[~cells.missing]
    here = np.array([bool(cells.texts), len(values), len(cells.values) - len(values), 0.0])
    if not cells.texts:
        here[3] = values.sum()
    texts, present, missing, total = (yield here).tolist()
    if not present:
        raise InvalidData(f"column {name!r} has no value at any party. Leave it out.")
    steps = preparation.recipe(name, bool(texts))
    if not steps:
        raise InvalidData(f"column {name!r} holds text at some party, and no recipe is for it. {_ENCODE}")
    recipe = ", ".join(map(str, steps))
    if steps[0].name == "one-hot":
        categories = yield from _categories(name, cells, steps[0], bool(texts), place)
        return Column(name, recipe, categories=categories)
    if texts:
        raise InvalidData(f"column {name!r} holds text at some party, and {recipe} is for numbers. {_ENCODE}")
    if missing and steps[0].name != "impute":
        raise InvalidData(
            f"column {name!r} has {missing:.0f} missing value{'s' * (missing > 1)} at all parties together, and its recipe is "
            f"{recipe!r}. Begin it with impute, or leave those rows or the column out."
        )
    mean = total / present
    squares = float((yield np.array([((values - mean) ** 2).sum()]))[0])
    deviation = math.sqrt(squares / present)
    current = cells.values[:, None]
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
            fit, known = (yield from _spline(name, current[:, 0], step)), None
        else:
            if known is None and step.name == "standardise":
                known = yield from _moments(current)
            fit = known.scaled() if step.name == "standardise" and known else (yield from _min_max(current, place))
            known = None
        done.append(fit)
        current = fit.apply(current)
    reach = FAR * deviation
    return Column(name, recipe, done, low=mean - reach, high=mean + reach)


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


def _min_max(values: FloatArray, place: Place) -> Messages[Scaled]:
    low, high = yield from extremes(values, place)
    return Scaled(low.tolist(), np.where(high > low, high - low, 1.0).tolist())


def _spline(name: str, values: FloatArray, step: Step) -> Messages[Splines]:
    levels = np.linspace(0, 1, int(step.number or 0))
    talk, reply = quantiles([values], levels.tolist()), None
    while True:
        try:
            word = next(talk) if reply is None else talk.send(reply)
        except StopIteration as end:
            found = end.value
            break
        assert isinstance(word, Sum)
        reply = yield word.x
    # The first and the last knot enclose all values.
    inner = [found.low[0, 0], *found.values[0, 1:-1], found.high[0, -1]]
    width = inner[-1] - inner[0]
    knots = [inner[0]]
    for knot in inner[1:]:
        if knot - knots[-1] > 1e-9 * width and (knot == inner[-1] or inner[-1] - knot > 1e-9 * width):
            knots.append(knot)
    if not width > 0 or len(knots) < 2:
        raise InvalidData(f"column {name!r} has one value at all parties, which has no spline. Leave it out.")
    return Splines([float(knot) for knot in knots], step.degree)


# -- the smallest and the largest value --------------------------------------------------------------------------------


def extremes(values: FloatArray, place: Place) -> Messages[tuple[FloatArray, FloatArray]]:
    """The smallest and the largest value of every column over all parties.

    Each party tells its own in a place of its own. With secure sums nobody learns whose they are: the parties look for
    the smallest bit by bit, each telling whether its own begins with the bits found so far and a 0.
    """
    both = np.hstack([values, -values])
    here = both.min(axis=0) if len(both) else np.zeros(both.shape[1])
    if place.secure:
        found = yield from _smallest(here, bool(len(both)))
    else:
        told = np.zeros((place.count, 1 + len(here)))
        if len(both):
            told[place.index] = [1.0, *here]
        total = yield told
        found = total[total[:, 0] > 0, 1:].min(axis=0)
    width = values.shape[1]
    return found[:width], -found[width:]


def _smallest(here: FloatArray, present: bool) -> Messages[FloatArray]:
    sign = np.uint64(1 << 63)
    bits = (here + 0.0).view(np.uint64)
    # Whole numbers in the order of the numbers that they stand for.
    keys = np.where(bits & sign, ~bits, bits | sign)
    found = np.zeros(len(here), np.uint64)
    for place in reversed(range(64)):
        shift = np.uint64(place)
        told = yield ((keys >> shift == found >> shift) & present).astype(float)
        found |= np.where(told > 0, np.uint64(0), np.uint64(1) << shift)
    smallest: FloatArray = np.where(found & sign, found & ~sign, ~found).view(np.float64)
    if not np.isfinite(smallest).all():
        raise ProtocolError("the smallest and largest values do not agree between the parties.")
    return smallest


# -- categories --------------------------------------------------------------------------------------------------------


def _categories(name: str, cells: Cells, step: Step, text: bool, place: Place) -> Messages[Categories]:
    here, which = cells.counted(text)
    counts = np.bincount(which, minlength=len(here))[: len(here)]
    written = [_written(one) for one in here]
    hashes = np.array([_hash(name, one) for one in written], float)
    if len(set(hashes.tolist())) < len(here):
        raise InvalidData(f"two categories of column {name!r} have the same hash. Rename one.")
    # Who has how many, and then which.
    sizes = _whole_numbers((yield _slot(place.index, place.count, len(here))), MOST_HERE)
    owners = np.repeat(np.arange(place.count), sizes)
    mine = np.zeros(len(owners))
    mine[owners == place.index] = np.sort(hashes)
    told = yield mine
    known, first = np.unique(told, return_index=True)
    rows = np.zeros(len(known))
    rows[np.searchsorted(known, hashes)] = counts
    total = yield rows
    frequent = total >= (1 if step.number is None else step.number)
    if frequent.sum() > MOST_COLUMNS:
        raise InvalidData(
            f"column {name!r} has {int(frequent.sum())} categories, more than {MOST_COLUMNS}. Pool rare ones, with "
            "one-hot(100), say, or leave it out."
        )
    # Of those that are not rare, the first party that has one tells its name.
    own = dict(zip(hashes.tolist(), written, strict=True))
    tells = [
        own[key] if owner == place.index else b""
        for key, owner in zip(known[frequent].tolist(), owners[first][frequent].tolist(), strict=True)
    ]
    lengths = _whole_numbers((yield np.array([len(one) for one in tells], float)), LONGEST)
    packed = yield _packed(tells, lengths)
    names = _unpacked(packed, lengths)
    for key, told_name in zip(known[frequent].tolist(), names, strict=True):
        if _hash(name, told_name) != key or own.get(key, told_name) != told_name:
            raise ProtocolError(f"the parties do not agree on the categories of column {name!r}.")
    found = sorted((_read(one, text) for one in names), key=lambda one: (one is None, one if one is not None else 0))
    pooled = bool((~frequent).any())
    return Categories(text, found, pooled, step.flag and len(found) + pooled > 1)


def _written(category: str | float | None) -> bytes:
    """A category as bytes: text, number or missing."""
    return b"m" if category is None else b"t" + category.encode() if isinstance(category, str) else b"n" + repr(category).encode()


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


# -- one party alone ---------------------------------------------------------------------------------------------------


def check_alone(table: Table, preparation: Preparation, split: str = "samples") -> None:
    """Refuse, before anything is told, what one party sees alone."""
    names = column_names(table)
    if split == "samples" and table.d:
        for column in preparation.columns:
            if column not in names:
                raise party_error(table.name, f"prepare: {UnknownName('column', column, names)}")
    for name, cells in zip(names, cells_of(table), strict=True):
        steps = preparation.recipe(name, bool(cells.texts))
        if cells.texts and (not steps or steps[0].name != "one-hot"):
            recipe = f"its recipe is {', '.join(map(str, steps))!r}" if steps else "there is no recipe for it"
            raise party_error(
                table.name,
                f"column {name!r} holds text, e.g. {cells.texts[0]!r}, and {recipe}. Encode it, with the recipe one-hot, "
                "or leave it out.",
            )
        if steps and steps[0].name == "one-hot":
            many = len(cells.texts) if cells.texts is not None else len(np.unique(cells.values))
            if many > MOST_HERE:
                raise party_error(
                    table.name, f"column {name!r} has {many} different values, too many for one-hot. Leave it out."
                )


def prepared_alone(table: Table, preparation: Preparation) -> Prepared:
    """The preparation of columns that only this party has: nothing is told."""
    talk = fitted(table, preparation, Place(0, 1, False))
    try:
        word = next(talk)
        while True:
            assert isinstance(word, Sum)
            word = talk.send(word.x)
    except StopIteration as end:
        found: Prepared = end.value
        return found


# -- all parties -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Preparing:
    """What came of a preparation: its numbers, the prepared tables, and what was sent for it."""

    prepared: Prepared
    tables: list[Table]
    sent: dict[str, Any]
    """The state of a bill."""


def check_problem(problem: Problem, split: str) -> None:
    """Refuse a preparation for models that cannot hold one."""
    if split == "users" or problem.family not in ("linear", "multiclass"):
        raise InvalidProblem("prepare is for linear models of data split by samples or by features. Leave it out.")


def prepare_together(
    tables: Sequence[Table], preparation: Preparation, split: str, network: Network, secure: bool
) -> Preparing:
    """Prepare tables that are all here."""
    bill = Bill(network)
    if split == "features":
        _refuse_unknown(tables, preparation)
        parts = [_alone(table, preparation) for table in tables]
        return Preparing(*_pooled(tables, parts), bill.state())
    tables = with_common_columns(tables)
    for table in tables:
        check_alone(table, preparation)
    places = [Place(k, len(tables), secure) for k in range(len(tables))]
    talks = [fitted(table, preparation, place) for table, place in zip(tables, places, strict=True)]
    found = InProcess(network, bill, [table.name for table in tables], secure_sums=secure).converse(talks, PURPOSE)[0]
    return Preparing(found, [found.apply(table) for table in tables], bill.state())


def _alone(table: Table, preparation: Preparation) -> Prepared:
    check_alone(table, preparation, "features")
    return prepared_alone(table, preparation)


def _refuse_unknown(tables: Sequence[Table], preparation: Preparation) -> None:
    everything = [name for table in tables for name in column_names(table)]
    for column in preparation.columns:
        if column not in everything:
            raise UnknownName("column", column, everything)


def _pooled(tables: Sequence[Table], parts: Sequence[Prepared]) -> tuple[Prepared, list[Table]]:
    """All parties' columns as one preparation, in their pooled order, and the tables with their places in it."""
    places = columns_of(tables)
    order = np.argsort(np.concatenate(places), kind="stable")
    columns = [column for part in parts for column in part.columns]
    widths = np.array([len(column.names()) for column in columns], np.intp)
    starts = np.empty(len(columns), np.intp)
    starts[order] = np.concatenate([[0], np.cumsum(widths[order])[:-1]]) if len(columns) else 0
    blocks = [np.arange(start, start + width) for start, width in zip(starts, widths, strict=True)]
    ends = np.cumsum([len(part.columns) for part in parts]).tolist()
    ready = []
    for table, part, end in zip(tables, parts, ends, strict=True):
        own = blocks[end - len(part.columns) : end]
        cols = None if table.cols is None else np.concatenate([*own, np.empty(0, np.intp)])
        ready.append(replace(part.apply(table), cols=cols))
    return Prepared([columns[k] for k in order], all(part.named for part in parts)), ready


def with_common_columns(tables: Sequence[Table]) -> list[Table]:
    """Raw tables of the same columns; those without rows get the columns of the others."""
    summaries = [TableSummary.of(table) for table in tables]
    check_together(summaries, "samples")
    widest = max(tables, key=lambda table: table.d)
    return [
        table if table.n or table.d else replace(table, X=np.empty((0, widest.d)), columns=widest.columns)
        for table in tables
    ]


# -- tables at the workers of a cluster --------------------------------------------------------------------------------

Ask: TypeAlias = Callable[[Sequence[Callable[[], Any]]], list[Any]]


def prepare_remotely(
    sources: Sequence[Callable[[], Table]],
    ask: Ask,
    preparation: Preparation,
    split: str,
    network: Network,
    secure: bool,
) -> tuple[Prepared, list[Callable[[], Table]], dict[str, Any]]:
    """Prepare tables that stay where they are: sources of prepared ones, with the numbers and what was sent.

    A worker keeps nothing between two messages: it is told all replies so far, and goes through them again.
    """
    bill = Bill(network)
    if split == "features":
        parts = ask([partial(_alone_there, source, preparation) for source in sources])
        merged = Prepared([column for part in parts for column in part.columns], all(part.named for part in parts))
        return merged, [partial(_applied, s, part, None) for s, part in zip(sources, parts, strict=True)], bill.state()
    looks = ask([partial(_looked_at, source, preparation) for source in sources])
    empty = with_common_columns(looks)[0]
    shape = replace(empty, X=np.empty((0, empty.d)), y=None, name="data")
    transport = InProcess(network, bill, [look.name for look in looks], secure_sums=secure)
    replies: list[FloatArray] = []
    while True:
        places = [Place(k, len(sources), secure) for k in range(len(sources))]
        said = ask(
            [
                partial(_next_message, source, shape, preparation, place, tuple(replies))
                for source, place in zip(sources, places, strict=True)
            ]
        )
        if isinstance(found := said[0], Prepared):
            return found, [partial(_applied, source, found, shape) for source in sources], bill.state()
        replies.append(transport.converse([_told(message) for message in said], PURPOSE)[0])


def _told(message: FloatArray) -> Talk[FloatArray]:
    total: FloatArray = yield Sum(message)
    return total


def _alone_there(source: Callable[[], Table], preparation: Preparation) -> Prepared:
    return _alone(source(), preparation)


def _looked_at(source: Callable[[], Table], preparation: Preparation) -> Table:
    """Names and sizes, for `with_common_columns`: a table without content."""
    table = source()
    check_alone(table, preparation) if table.d else None
    labels = None if table.y is None else np.zeros((table.n, *table.y.shape[1:]))
    return Table(np.broadcast_to(0.0, table.X.shape), y=labels, columns=table.columns, name=table.name)


def _next_message(
    source: Callable[[], Table], shape: Table, preparation: Preparation, place: Place, replies: Sequence[FloatArray]
) -> FloatArray | Prepared:
    table = source()
    talk = fitted(table if table.d else shape, preparation, place)
    try:
        word = next(talk)
        for reply in replies:
            word = talk.send(reply)
    except StopIteration as end:
        found: Prepared = end.value
        return found
    assert isinstance(word, Sum)
    return word.x


def _applied(source: Callable[[], Table], prepared: Prepared, shape: Table | None) -> Table:
    table = source()
    if shape is not None and not table.d:
        table = replace(shape, name=table.name)
    return prepared.apply(table)
