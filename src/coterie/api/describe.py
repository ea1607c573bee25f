"""What the columns of several parties look like together."""

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
"""What a page spares for values of other parties, for each column."""
_TOO_MANY = (
    "a description takes more numbers than the page of a party allows to send. "
    "Describe fewer columns."
)
LABEL = "label"
"""What labels are called that come without a name."""


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
    """What columns look like over the rows of all parties: counts, means, deviations, quantiles,
    categories.

    data        one party's data or a list: frames, files, `(X, y)`, Tables, or on a cluster
                callables and `Rows`; missing values and text may be in them
    target      the column of labels: its values are counted as classes, if there are not too many
    columns     those to describe (all)
    leave_out   columns that are not described, such as ids
    quantiles   probabilities
    correlation whether to tell correlations of columns of numbers
    minimum     a column with fewer values, a category with fewer rows, and a bin with fewer rows,
                of one of the parties together, are not looked into
    per_party   whether to describe every party, too
    """
    for probability in quantiles:
        if not 0 <= as_number(probability) <= 1:
            raise InvalidInput(
                f"quantiles are probabilities from 0 to 1, e.g. 0.5, not {probability!r}."
            )
    wish = Wish(target, tuple(map(float, quantiles)), correlation=correlation)
    asked = Describe(wish, None if columns is None else tuple(columns), tuple(leave_out))
    rules = Rules(whole_number("minimum", minimum), per_party=per_party)
    meeting = Meeting(network="star", secure_sums=secure_sums, prepare=RAW, rules=rules)
    data = data if isinstance(data, list | Rows) else [data]
    with hosted(asked, data, meeting, engine) as parties:
        return asked.together(parties)


# -- what parties are asked ------------------------------------------------------------------------


@discloses(
    (
        "for each column: how many values you have, their sum and squares, and counts in agreed "
        "bins, "
        "as part of sums"
    ),
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
    (
        "for groups with fewer of your rows than minimum-count: only that you object to them, as "
        "part "
        "of a sum"
    ),
    splits=("samples",),
)
def described_together(wish: Wish, rules: Rules, site: Site) -> Protocol[Description]:
    """What columns look like over all parties' rows."""
    limits = replace(wish, minimum=rules.minimum, room=rules.room)
    return (yield from limited(described(limits, site), rules.page, InvalidData(_TOO_MANY)))


@discloses("if your policy says per-party: the whole description of your own rows")
def described_alone(wish: Wish, site: Site) -> str | None:
    """The description of one party, if it tells it."""
    if not site.rules.tells_alone(site.data.n):
        return None
    found = own_description(replace(wish, minimum=site.rules.minimum), site)
    return json.dumps(without_nan(found.summary()))


def own_description(wish: Wish, site: Site) -> Description:
    """The description of this party's rows; nothing is told."""
    found = alone(described(wish, Site(0, 1, site.data)))
    return replace(found, about=about(found, 1))


# -- the operation ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Describe(Operation[Description]):
    """What columns look like over the rows of all parties; split by features or users, those of
    this party.
    """

    name: ClassVar[str] = "describe"
    file: ClassVar[str] = "description"
    matches: ClassVar[bool] = False
    discloses: ClassVar = (described_together, described_alone)

    wish: Wish
    columns: tuple[str, ...] | None = None
    leave_out: tuple[str, ...] = ()

    def alone(self, table: Table) -> Table:
        return raw_columns(table, self.wish.target, self.columns, self.leave_out)

    def together(self, parties: Parties) -> Description:
        by_rows = parties.split == "samples"
        if by_rows:
            parties = in_common(parties)
            found = parties.run_protocol(partial(described_together, self.wish, parties.rules))
            assert found is not None
            if not found.rows:
                raise InvalidData("no party has any rows. Give at least one party data.")
            found = replace(found, about=about(found, len(parties.cards)), bill=parties.bill)
        else:
            found = next(
                one for one in parties.look(partial(own_description, self.wish)) if one is not None
            )
        return replace(found, parties=self._single_parties(parties))

    def _single_parties(self, parties: Parties) -> dict[str, Description]:
        """What single parties tell of their rows."""
        told = parties.ask(partial(described_alone, self.wish), str | None)
        try:
            return {
                name: Description.of(json.loads(one))
                for name, one in zip(parties.names, told, strict=True)
                if one
            }
        except (ValueError, TypeError, KeyError) as error:
            raise ProtocolError(
                f"a party sent a description that cannot be read ({error})."
            ) from error


def about(found: Description, parties: int) -> str:
    """What was described, in words."""
    return f"{found.rows:,} rows of {'1 party' if parties == 1 else f'{parties} parties'}"


def raw_columns(
    table: Table, target: str | None, columns: Sequence[str] | None, leave_out: Sequence[str] = ()
) -> Table:
    """A party's columns as they are, the labels among them."""
    X = table.X.toarray() if is_sparse(table.X) else np.asarray(table.X)
    table = replace(table, X=X, columns=column_names(replace(table, X=X)))
    if table.y is not None:
        table = _with_labels(table, target or LABEL)
    chosen = table.take_columns(_chosen(table, target, columns, leave_out))
    texts = {
        name: held for name, held in (table.texts or {}).items() if name in (chosen.columns or ())
    }
    return Table(chosen.X, columns=chosen.columns, name=table.name, texts=texts or None)


def _chosen(
    table: Table, target: str | None, columns: Sequence[str] | None, leave_out: Sequence[str]
) -> npt.NDArray[np.intp]:
    """The places of the columns that are described."""
    names = table.columns or ()
    if not table.d:
        return np.empty(0, np.intp)
    targets = [] if target is None else [target]
    wanted = (
        [*names]
        if columns is None
        else [*columns, *(name for name in targets if name not in columns)]
    )
    for name in [*wanted, *leave_out, *targets]:
        if name not in names:
            raise party_error(table.name, str(UnknownName("column", name, names)))
    return np.array([names.index(name) for name in wanted if name not in leave_out], np.intp)


def _with_labels(table: Table, name: str) -> Table:
    """The labels as one more column."""
    assert table.y is not None
    if table.y.ndim != 1:
        raise party_error(
            table.name, f"the labels have shape {table.y.shape}. Give one label per row."
        )
    values, texts = raw_objects(np.asarray(table.y).astype(object), table.name, f"column {name!r}")
    known = {**(table.texts or {}), **({} if texts is None else {name: texts})}
    X = np.column_stack([table.X, values])
    return replace(
        table,
        X=X,
        y=None,
        weights=None,
        columns=(*(table.columns or ()), name),
        texts=known or None,
    )


def in_common(parties: Parties) -> Parties:
    """The parties with the same columns in the same order; where names are not told, they must be
    so already.
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
    names, held = first.names or (), card.names or ()
    for name in [*names, *held]:
        if name not in held or name not in names:
            whose, other = (card, first) if name in held else (first, card)
            raise party_error(
                other.name,
                f"has no column {name!r}, which party {whose.name!r} has. Choose with columns.",
            )


def _in_order(names: tuple[str, ...], site: Site) -> Table:
    table = site.data
    if not table.d and not table.n:
        return replace(table, X=np.empty((0, len(names))), columns=names)
    if table.columns == names:
        return table
    order = np.array([(table.columns or ()).index(name) for name in names], int)
    return replace(table, X=table.X[:, order], columns=names)
