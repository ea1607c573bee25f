"""Fit a preparation: parties send sums over the values of their raw columns, with `Sum` alone.

For each column they send

    every step      whether it is text, rows with and without a value, the sum, then the squares
                    about the mean
    standardise     nothing more; after polynomial or spline, sums and squares of the new columns
    min-max         the smallest and the largest value of each party; with secure sums those of all
                    parties only
    spline          counts of values in agreed bins
    one-hot         the names of this party's categories that are not small here, and rows of each

The columns are prepared at the same time: the next numbers of all columns travel in one message.
Labels, weights and offsets are not used. Split by features, every party prepares its own columns
and sends nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

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
from coterie.run.collectives import Protocol, Sum, combined, limited
from coterie.run.disclosure import TOTALS, discloses
from coterie.run.groups import without_few
from coterie.run.site import Rules, Site
from coterie.stats.categories import category_counts
from coterie.stats.quantiles import quantiles

NUMBERS_OF_A_COLUMN = 2_000
"""Numbers that a page reserves for the values of other parties, for each column."""
PRECISION = 0.01
"""Relative precision of knots: their exact place does not matter, and coarse knots need fewer
messages.
"""
LEAST_DISTANCE = 1e-9
"""Smallest distance of two knots, as a share of the distance of the first and the last."""


_TOO_MANY = (
    "the parties have more categories or values than their pages allow to send. Pool rare "
    "categories, for example with one-hot(100), or leave columns out."
)


# -- fitting ---------------------------------------------------------------------------------------


@discloses(
    "for each column: whether it is text; and, as part of sums: rows with a value, missing values, "
    "sum and squares",
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
    "the bits of the smallest and the largest value of each column, as parts of sums: only those "
    "of all are learned",
    splits=("samples",),
    applies=lambda case: "min-max" in case.steps and case.secure_sums,
)
@discloses(
    "for each column: counts of its values in bins with at least minimum-count rows, as part of "
    "sums",
    "quantiles of your columns, to about one percent; exact ones where rows are many",
    TOTALS,
    splits=("samples",),
    applies=lambda case: "spline" in case.steps,
    spare=lambda case: NUMBERS_OF_A_COLUMN * case.columns,
)
@discloses(
    "the name of each category with at least minimum-count of your rows; and how many rows it has, "
    "as part of a sum",
    "which categories you have that are not rare",
    splits=("samples",),
    applies=lambda case: "one-hot" in case.steps,
    spare=lambda case: NUMBERS_OF_A_COLUMN * case.columns,
)
def fitted(preparation: Preparation, rules: Rules, site: Site) -> Protocol[Prepared]:
    """Fit the preparation to a table that `check_alone` accepted; the result is the same at all
    parties.
    """
    table = site.data
    site = replace(site, rules=rules)
    raw = zip(column_names(table), cells_of(table), strict=True)
    protocols = [_column(name, cells, preparation, site) for name, cells in raw]
    columns = yield from limited(combined(protocols), rules.page, InvalidData(_TOO_MANY))
    return Prepared(columns, table.columns is not None)


@dataclass(frozen=True)
class _Summary:
    """Sums over all parties of one raw column."""

    text: bool
    """Whether a party has text in it."""
    present: float
    missing: float
    total: float

    @property
    def mean(self) -> float:
        """The mean of the values."""
        return self.total / self.present


def _column(name: str, cells: Cells, preparation: Preparation, site: Site) -> Protocol[Column]:
    # Counts of missing values, too, must cover enough rows.
    missing = without_few(cells.missing, site.rules.minimum)
    values = cells.values[~missing]
    summary = yield from _summary(values, int(missing.sum()), text=bool(cells.texts))
    if not summary.present:
        raise InvalidData(f"column {name!r} has no value at any party. Leave it out.")
    steps = preparation.recipe(name, summary.text)
    recipe = ", ".join(map(str, steps))
    _check_recipe(name, steps, recipe, summary, site)
    if steps[0].name == "one-hot":
        categories = yield from _categories(name, cells, steps[0], summary.text, site)
        return Column(name, recipe, categories=categories)
    mean = summary.mean
    own_squares = ((values - mean) ** 2).sum()
    squares = yield Sum(np.array([own_squares]))
    variance = float(squares[0]) / summary.present
    done = yield from _fitted_steps(name, cells, steps, summary, variance, site)
    reach = FAR * math.sqrt(variance)
    return Column(name, recipe, done, low=mean - reach, high=mean + reach)


def _summary(values: FloatArray, missing: int, text: bool) -> Protocol[_Summary]:
    if text:
        own_total = 0.0
    else:
        own_total = values.sum()
    sums = yield Sum(np.array([text, len(values), missing, own_total]))
    texts, present, missing_rows, total = sums.tolist()
    return _Summary(bool(texts), present, missing_rows, total)


_ENCODE = "Use one-hot for it, or leave it out."


def _check_recipe(
    name: str, steps: Sequence[Step], recipe: str, summary: _Summary, site: Site
) -> None:
    """Refuse a recipe that does not suit the column at all parties."""
    if not steps:
        raise InvalidData(
            f"column {name!r} holds text at some party, and no recipe is for it. {_ENCODE}"
        )
    if steps[0].name == "one-hot":
        return
    if summary.text:
        raise InvalidData(
            f"column {name!r} holds text at some party, and {recipe} is for numbers. {_ENCODE}"
        )
    if summary.missing and steps[0].name != "impute":
        # With a minimum, the number of missing values is not exact.
        count = f"{summary.missing:.0f} missing value"
        if site.rules.minimum > 1:
            count = f"about {count}"
        if summary.missing > 1:
            count += "s"
        raise InvalidData(
            f"column {name!r} has {count} at all parties together, and its recipe is {recipe!r}. "
            "Begin it with impute, or leave those rows or the column out."
        )


def _fitted_steps(
    name: str, cells: Cells, steps: Sequence[Step], summary: _Summary, variance: float, site: Site
) -> Protocol[list[Fitted]]:
    done: list[Fitted] = []
    fit: Fitted
    # The moments of the columns after the steps so far; None where they are not known.
    n = summary.present + summary.missing
    mean = np.array([summary.mean])
    moments: _Moments | None = _Moments(mean, np.array([variance]), n)
    for step in steps:
        if step.name == "keep":
            continue
        before = moments
        moments = None
        if step.name == "impute":
            assert before is not None
            fit = _filled(step, summary)
            moments = before.filled(fit, summary)
        elif step.name == "polynomial":
            fit = Powers(int(step.number or 0))
        elif step.name == "spline":
            values = _after(done, cells)[:, 0]
            fit = yield from _spline(name, values, step, site.rules.minimum)
        elif step.name == "standardise":
            if before is None:
                before = yield from _moments(_after(done, cells))
            fit = before.scaled()
        else:
            fit = yield from _min_max(_after(done, cells), site)
        done.append(fit)
    return done


def _filled(step: Step, summary: _Summary) -> Filled:
    value = summary.mean
    if step.number is not None:
        value = step.number
    return Filled(value, bool(step.flag and summary.missing))


def _after(steps: Sequence[Fitted], cells: Cells) -> FloatArray:
    """The columns after these steps."""
    values = cells.values[:, None]
    for step in steps:
        values = step.apply(values)
    return values


@dataclass(frozen=True)
class _Moments:
    """Means and variances of columns over n rows."""

    mean: FloatArray
    variance: FloatArray
    n: float

    def filled(self, step: Filled, summary: _Summary) -> _Moments:
        """The moments with missing values filled in; they follow from known sums."""
        share = summary.missing / self.n
        mean = (1 - share) * self.mean[0] + share * step.value
        # Σ (x − m')² = Σ (x − m)² + present (m − m')² + missing (value − m')²
        spread = self.variance[0] + (self.mean[0] - mean) ** 2
        variance = (1 - share) * spread + share * (step.value - mean) ** 2
        if not step.indicator:
            return _Moments(np.array([mean]), np.array([variance]), self.n)
        means = np.array([mean, share])
        variances = np.array([variance, share * (1 - share)])
        return _Moments(means, variances, self.n)

    def scaled(self) -> Scaled:
        """Standardisation as in scikit-learn: a column that is constant up to rounding is only
        shifted.
        """
        eps = float(np.finfo(float).eps)
        rounding_of_mean = (self.n * self.mean * eps) ** 2
        rounding = self.n * eps * self.variance + rounding_of_mean
        constant = self.variance <= rounding
        scale = np.where(constant, 1.0, np.sqrt(self.variance))
        return Scaled(self.mean.tolist(), scale.tolist())


def _moments(values: FloatArray) -> Protocol[_Moments]:
    total = yield Sum(np.append(values.sum(axis=0), len(values)))
    n = float(total[-1])
    mean = total[:-1] / n
    own_squares = ((values - mean) ** 2).sum(axis=0)
    squares = yield Sum(own_squares)
    return _Moments(mean, squares / n, n)


def _min_max(values: FloatArray, site: Site) -> Protocol[Scaled]:
    low, high = yield from extremes(values, site)
    scale = np.where(high > low, high - low, 1.0)
    return Scaled(low.tolist(), scale.tolist())


def _spline(name: str, values: FloatArray, step: Step, minimum: int) -> Protocol[Splines]:
    levels = np.linspace(0, 1, int(step.number or 0)).tolist()
    found = yield from quantiles([values], levels, precision=PRECISION, minimum=minimum)
    # The first and the last knot enclose all values.
    first = float(found.low[0, 0])
    last = float(found.high[0, -1])
    inner = found.values[0, 1:-1].tolist()
    knots = [first, *inner, last]
    if not np.isfinite(knots).all():
        raise InvalidData(
            f"column {name!r}: its smallest or largest values lie in a bin with too few rows of a "
            "party. Scale it with standardise before spline, or leave it out."
        )
    apart = _knots_apart(knots)
    if len(apart) < 2:
        raise InvalidData(
            f"column {name!r} has one value at all parties, which has no spline. Leave it out."
        )
    return Splines(apart, step.degree)


def _knots_apart(knots: Sequence[float]) -> list[float]:
    """The first and the last knot, and those between them that are not too close to another one."""
    last = knots[-1]
    least = LEAST_DISTANCE * (last - knots[0])
    apart = [knots[0]]
    for knot in knots[1:]:
        far_from_last = knot == last or last - knot > least
        if knot - apart[-1] > least and far_from_last:
            apart.append(knot)
    return apart


# -- the smallest and the largest value ------------------------------------------------------------


def extremes(values: FloatArray, site: Site) -> Protocol[tuple[FloatArray, FloatArray]]:
    """The smallest and the largest value of every column over all parties.

    Each party sends its own values in its own place of a `Sum`. With secure sums the party that has
    a value stays unknown. The parties then search the smallest value bit by bit: each sends whether
    its own value begins with the bits found so far and a 0.
    """
    both = np.hstack([values, -values])
    present = len(both) > 0
    local = np.zeros(both.shape[1])
    if present:
        local = both.min(axis=0)
    if site.secure_sums:
        found = yield from _smallest(local, present)
    else:
        message = np.zeros((site.count, 1 + len(local)))
        if present:
            message[site.index, 0] = 1.0
            message[site.index, 1:] = local
        total = yield Sum(message)
        found = total[total[:, 0] > 0, 1:].min(axis=0)
    width = values.shape[1]
    return found[:width], -found[width:]


def _smallest(local: FloatArray, present: bool) -> Protocol[FloatArray]:
    sign = np.uint64(1 << 63)
    bits = (local + 0.0).view(np.uint64)
    # Whole numbers in the order of the floating-point numbers with these bits.
    keys = np.where(bits & sign, ~bits, bits | sign)
    found = np.zeros(len(local), np.uint64)
    for place in reversed(range(64)):
        shift = np.uint64(place)
        begins_so = (keys >> shift == found >> shift) & present
        parties = yield Sum(begins_so.astype(float))
        bit = np.uint64(1) << shift
        found |= np.where(parties > 0, np.uint64(0), bit)
    smallest_bits = np.where(found & sign, found & ~sign, ~found)
    smallest: FloatArray = smallest_bits.view(np.float64)
    if not np.isfinite(smallest).all():
        raise ProtocolError("the smallest and largest values do not agree between the parties.")
    return smallest


# -- categories ------------------------------------------------------------------------------------


def _categories(
    name: str, cells: Cells, step: Step, text: bool, site: Site
) -> Protocol[Categories]:
    if step.number is None:
        least: float = 1
    else:
        least = step.number
    counted, rare = yield from category_counts(name, cells, least, text, site)
    others = rare > 0
    several = len(counted) + others > 1
    return Categories(text, list(counted), others, step.flag and several)
