"""Describe columns over the rows of several parties: counts, means, quantiles, categories."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from coterie.api.description import Description
from coterie.data import Table
from coterie.data.archives import without_nan
from coterie.data.preparation.prepared import column_names
from coterie.data.preparation.raw import raw_objects
from coterie.data.preparation.recipes import Preparation
from coterie.data.remote import Rows
from coterie.data.summary import TableSummary
from coterie.data.table import party_error
from coterie.engines import Engine
from coterie.errors import InvalidData, InvalidInput, ProtocolError, UnknownName
from coterie.numerics.arrays import as_number, is_sparse, whole_number
from coterie.run.collectives import Protocol, alone, limited
from coterie.run.disclosure import TOTALS, discloses, triangle
from coterie.run.parties import Meeting, Operation, Parties, hosted
from coterie.run.settings import Placement, Settings
from coterie.run.site import Rules, Site
from coterie.stats.describing import PROBABILITIES, Wish, described

RAW = Preparation()
NUMBERS_OF_A_COLUMN = 2_000
"""The numbers that a page reserves for values of other parties, for each column."""
_TOO_MANY = (
    "a description takes more numbers than the page of a party allows to send. "
    "Describe fewer columns."
)
LABEL = "label"
"""The name of labels that come without a name."""


def describe(
    data: Any,
    *,
    target: str | None = None,
    columns: Sequence[str] | None = None,
    leave_out: Sequence[str] = (),
    quantiles: Sequence[float] = PROBABILITIES,
    correlation: bool = True,
    minimum: int = 1,
    per_party: bool = False,
    engine: str | Engine = Placement.engine,
    secure_sums: bool | None = Settings.secure_sums,
) -> Description:
    """Describe columns over the rows of all parties: counts, means, standard deviations, quantiles,
    categories and correlations.

    Parameters
    ----------
    data : one party's data or a list
        Frames, files, `(X, y)`, Tables, or on a cluster callables and `Rows`. Values may be
        missing, or text.
    target : str, optional
        Column with the labels. Its values are counted as classes, if there are not too many.
    columns : list of str, optional
        Columns to describe. By default all.
    leave_out : list of str, default=()
        Columns that are not described, such as ids.
    quantiles : list of float, default=(0.05, 0.25, 0.5, 0.75, 0.95)
        Probabilities of the quantiles.
    correlation : bool, default=True
        Whether to compute correlations of columns of numbers.
    minimum : int, default=1
        Smallest group of a party's rows that the description may show: rarer categories are
        pooled, and bins with fewer rows are not divided.
    per_party : bool, default=False
        Whether to describe every party, too.
    engine : str or Engine, default="local"
        Where the data is read and described.
    secure_sums : bool, optional
        Whether parties see sums over all parties only.

    Returns
    -------
    Description

    Raises
    ------
    InvalidInput
        If a quantile is not between 0 and 1.
    InvalidData
        If parties have different columns, or no party has any rows.

    Examples
    --------
    >>> import coterie as co, pandas as pd
    >>> north = pd.DataFrame({"age": [61.0, 48.0, 55.0]})
    >>> south = pd.DataFrame({"age": [70.0, 46.0]})
    >>> found = co.describe([north, south])
    >>> found.rows, found["age"].mean
    (5, 56.0)
    """
    for probability in quantiles:
        if not 0 <= as_number(probability) <= 1:
            raise InvalidInput(
                f"quantiles are probabilities from 0 to 1, e.g. 0.5, not {probability!r}."
            )
    chosen = None
    if columns is not None:
        chosen = tuple(columns)
    wish = Wish(target, tuple(map(float, quantiles)), correlation=correlation)
    asked = Describe(wish, chosen, tuple(leave_out))
    rules = Rules(whole_number("minimum", minimum), per_party=per_party)
    meeting = Meeting(network="star", secure_sums=secure_sums, prepare=RAW, rules=rules)
    with hosted(asked, in_a_list(data), meeting, engine) as parties:
        return asked.together(parties)


def in_a_list(data: Any) -> Any:
    """Put the data of one party into a list; lists and `Rows` are of several parties already."""
    if isinstance(data, list | Rows):
        return data
    return [data]


# -- queries and protocols -------------------------------------------------------------------------


@discloses(
    "for each column: how many values you have, their sum and squares, and counts in agreed bins, "
    "as part of sums",
    "means, variances and quantiles of your columns",
    TOTALS,
    splits=("samples",),
    spare=lambda case: NUMBERS_OF_A_COLUMN * case.columns,
)
@discloses(
    "for each pair of columns: the sum of their products, as part of a sum",
    "correlations of your columns",
    TOTALS,
    splits=("samples",),
    spare=lambda case: 3 * triangle(case.columns) + 2 * case.columns**2,
)
@discloses(
    "for text and labels with few different values: the name of each value with at least "
    "minimum-count of your rows; and how many rows have it, as part of a sum",
    "which values you have that are not rare",
    splits=("samples",),
)
@discloses(
    "for groups with fewer of your rows than minimum-count: only that you object to them, as "
    "part of a sum",
    splits=("samples",),
)
def described_together(wish: Wish, rules: Rules, site: Site) -> Protocol[Description]:
    """Describe the columns over all parties' rows."""
    limits = replace(wish, minimum=rules.minimum, allowance=rules.allowance)
    return (yield from limited(described(limits, site), rules.page, InvalidData(_TOO_MANY)))


@discloses("if your policy says per-party: the whole description of your own rows")
def described_alone(wish: Wish, site: Site) -> str | None:
    """Describe the rows of one party, if it allows that."""
    if not site.rules.may_answer_alone(site.data.n):
        return None
    found = own_description(replace(wish, minimum=site.rules.minimum), site)
    return json.dumps(without_nan(found.summary()))


def own_description(wish: Wish, site: Site) -> Description:
    """Describe this party's rows; nothing is sent."""
    found = alone(described(wish, Site(0, 1, site.data)))
    return replace(found, about=about(found.rows, 1))


# -- the operation ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Describe(Operation[Description]):
    """Describe columns over the rows of all parties; split by features or users, over those of this
    party.
    """

    name: ClassVar[str] = "describe"
    file: ClassVar[str] = "description"
    tabulates: ClassVar[bool] = True
    matches: ClassVar[bool] = False
    discloses: ClassVar = (described_together, described_alone)

    wish: Wish
    columns: tuple[str, ...] | None = None
    leave_out: tuple[str, ...] = ()

    def alone(self, table: Table) -> Table:
        return raw_columns(table, self.wish.target, self.columns, self.leave_out)

    def together(self, parties: Parties) -> Description:
        if parties.split == "samples":
            parties = in_common(parties)
            found = self._over_all(parties)
        else:
            own = parties.look(partial(own_description, self.wish))
            found = next(one for one in own if one is not None)
        return replace(found, parties=self._single_parties(parties))

    def _over_all(self, parties: Parties) -> Description:
        """Describe the rows of all parties together."""
        found = parties.run_protocol(partial(described_together, self.wish, parties.rules))
        assert found is not None
        if not found.rows:
            raise InvalidData("no party has any rows. Give at least one party data.")
        rows = about(found.rows, len(parties.cards))
        return replace(found, about=rows, bill=parties.bill)

    def _single_parties(self, parties: Parties) -> dict[str, Description]:
        """Ask every party to describe its own rows, if it allows that."""
        answers = parties.ask(partial(described_alone, self.wish), str | None)
        found = {}
        for name, answer in zip(parties.names, answers, strict=True):
            if not answer:
                continue
            try:
                found[name] = Description.of(json.loads(answer))
            except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
                raise ProtocolError(
                    f"{name} sent a description that cannot be read ({type(error).__name__})."
                ) from error
        return found


def about(rows: int, parties: int) -> str:
    """Write how many rows of how many parties were described."""
    if parties == 1:
        return f"{rows:,} rows of 1 party"
    return f"{rows:,} rows of {parties} parties"


def raw_columns(
    table: Table, target: str | None, columns: Sequence[str] | None, leave_out: Sequence[str] = ()
) -> Table:
    """Take a party's columns as they are, with the labels as one of them."""
    if is_sparse(table.X):
        X = table.X.toarray()
    else:
        X = np.asarray(table.X)
    table = replace(table, X=X)
    table = replace(table, columns=column_names(table))
    if table.y is not None:
        table = _with_labels(table, target or LABEL)
    chosen = table.take_columns(_chosen(table, target, columns, leave_out))
    kept = chosen.columns or ()
    texts = {name: held for name, held in (table.texts or {}).items() if name in kept}
    return Table(chosen.X, columns=chosen.columns, name=table.name, texts=texts or None)


def _chosen(
    table: Table, target: str | None, columns: Sequence[str] | None, leave_out: Sequence[str]
) -> npt.NDArray[np.intp]:
    """Find the places of the columns that are described."""
    names = table.columns or ()
    if not table.d:
        return np.empty(0, np.intp)
    wanted = list(names)
    if columns is not None:
        wanted = list(columns)
    required = [*wanted, *leave_out]
    if target is not None:
        required.append(target)
        if target not in wanted:
            wanted.append(target)
    for name in required:
        if name not in names:
            raise party_error(table.name, str(UnknownName("column", name, names)))
    return np.array([names.index(name) for name in wanted if name not in leave_out], np.intp)


def _with_labels(table: Table, name: str) -> Table:
    """Add the labels as one more column."""
    assert table.y is not None
    if table.y.ndim != 1:
        raise party_error(
            table.name, f"the labels have shape {table.y.shape}. Give one label per row."
        )
    values, texts = raw_objects(np.asarray(table.y).astype(object), table.name, f"column {name!r}")
    known = dict(table.texts or {})
    if texts is not None:
        known[name] = texts
    X = np.column_stack([table.X, values])
    columns = (*(table.columns or ()), name)
    return replace(table, X=X, y=None, weights=None, columns=columns, texts=known or None)


def in_common(parties: Parties) -> Parties:
    """Put the columns of all parties into the same order.

    Where parties do not send names, the columns must be in the same order already.
    """
    first = next((card for card in parties.cards if card.columns), parties.cards[0])
    for card in parties.cards:
        if card.columns or card.rows:
            _refuse_other_columns(first, card)
    if first.names is None:
        parties.check(labels=False)
        return parties
    return parties.map(partial(_in_order, first.names))


def _refuse_other_columns(first: TableSummary, card: TableSummary) -> None:
    _refuse_missing_columns(card, first)
    _refuse_missing_columns(first, card)


def _refuse_missing_columns(card: TableSummary, other: TableSummary) -> None:
    """Refuse a party that lacks a column of another party."""
    for name in other.names or ():
        if name not in (card.names or ()):
            raise party_error(
                card.name,
                f"has no column {name!r}, which party {other.name!r} has. Choose with columns.",
            )


def _in_order(names: tuple[str, ...], site: Site) -> Table:
    table = site.data
    if not table.d and not table.n:
        return replace(table, X=np.empty((0, len(names))), columns=names)
    if table.columns == names:
        return table
    held = table.columns or ()
    order = np.array([held.index(name) for name in names], int)
    return replace(table, X=table.X[:, order], columns=names)
