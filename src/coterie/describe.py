"""What the columns of several parties look like together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from coterie.agent import Agent
from coterie.arrays import as_number, is_sparse, whole_number
from coterie.data import Table
from coterie.data.prepared import column_names
from coterie.data.raw import raw_objects
from coterie.data.read import read_party
from coterie.data.recipes import Preparation
from coterie.data.remote import Elsewhere, RemoteTable, Rows, Source
from coterie.data.table import party_error
from coterie.description import Description
from coterie.engines import Engine, Run
from coterie.engines import engine as find_engine
from coterie.errors import InvalidData, InvalidInput, UnknownName
from coterie.networks import star
from coterie.problem import Problem
from coterie.rounds import Conversation
from coterie.session.describing import PROBABILITIES, Wish, described
from coterie.session.preparation import Place
from coterie.session.scoring import alone
from coterie.session.setup import make_agents, wants_secure_sums
from coterie.settings import Limits, Placement, Settings
from coterie.words import Talk

RAW = Preparation()
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
    """What columns look like over the rows of all parties: counts, means, deviations, quantiles, categories.

    data        one party's data or a list: frames, files, `(X, y)`, Tables, or on a cluster callables and `Rows`;
                missing values and text may be in them
    target      the column of labels: its values are counted as classes, if there are not too many
    columns     those to describe (all)
    leave_out   columns that are not described, such as ids
    quantiles   probabilities
    correlation whether to tell correlations of columns of numbers
    minimum     a column with fewer values, a category with fewer rows, and a bin with fewer rows, of one of the parties
                together, are not looked into
    per_party   whether to describe every party, too
    """
    wish = make_wish(target, quantiles, minimum, correlation)
    raw = partial(raw_table, target=target, columns=columns, leave_out=tuple(leave_out))
    runner = find_engine(engine)
    data = replace(data, prepare=RAW) if isinstance(data, Rows) else data
    elsewhere = runner.hosting(data, None)
    with (runner if elsewhere is None else elsewhere[0]).held():
        if elsewhere is None:
            parts = data if isinstance(data, list) else [data]
            tables = in_common([raw(part() if callable(part) else part, index) for index, part in enumerate(parts)])
        else:
            runner, sources = elsewhere
            known = runner.ask([partial(_looked_at, source, index, raw) for index, source in enumerate(sources)])
            forms = [Table(np.empty((0, len(names))), columns=names, name=name) for name, names, _ in known]
            order = in_common(forms)[0]
            tables = []
            for index, (source, (name, _, rows)) in enumerate(zip(sources, known, strict=True)):
                form = replace(order, X=Elsewhere((rows, order.d)), name=name)
                tables.append(RemoteTable.of(form, partial(_fetched, source, index, raw, order)))
        secure = wants_secure_sums(secure_sums, "samples", len(tables), runner.apart)
        network = star(len(tables), server=True)
        members = make_agents(tables, Problem("squared", intercept=False), "samples", network, 0, secure)
        talk = partial(_described, wish, per_party)
        outcome = runner.run(Run(members, Conversation(talk), network, Limits(), secure_sums=secure))
    found: Description = outcome.answers[0][0]
    if not found.rows:
        raise InvalidData("no party has any rows. Give at least one party data.")
    own = zip(tables, outcome.answers, strict=True)
    parties = {table.name: replace(one, about=about(one, 1)) for table, (_, one) in own if one is not None}
    return replace(found, about=about(found, len(tables)), parties=parties, bill=outcome.bill)


def make_wish(target: str | None, quantiles: Sequence[float], minimum: int, correlation: bool) -> Wish:
    """What is asked for, if it makes sense."""
    for probability in quantiles:
        if not 0 <= as_number(probability) <= 1:
            raise InvalidInput(f"quantiles are probabilities from 0 to 1, e.g. 0.5, not {probability!r}.")
    return Wish(target, tuple(map(float, quantiles)), whole_number("minimum", minimum), correlation)


def about(found: Description, parties: int) -> str:
    """What was described, in words."""
    return f"{found.rows:,} rows of {'1 party' if parties == 1 else f'{parties} parties'}"


def described_alone(table: Table, wish: Wish) -> Description:
    """One party's rows, without a word to the others."""
    found = alone(described(table, wish, Place(0, 1, False)))
    return replace(found, about=about(found, 1))


def _described(wish: Wish, per_party: bool, agent: Agent) -> Talk[tuple[Description, Description | None]]:
    own = described_alone(agent.data, wish) if per_party and agent.data.n else None
    found = yield from described(agent.data, wish, Place(agent.index, agent.count, agent.secure_sums))
    return found, own


def raw_table(
    part: Any, index: int, target: str | None, columns: Sequence[str] | None, leave_out: Sequence[str] = ()
) -> Table:
    """A party's columns as they are, the labels among them."""
    table = read_party(part, index, prepare=RAW)
    X = table.X.toarray() if is_sparse(table.X) else np.asarray(table.X)
    table = replace(table, X=X, columns=column_names(replace(table, X=X)))
    if table.y is not None:
        table = _with_labels(table, target or LABEL)
    names = table.columns or ()
    wanted = [*columns, *([target] if target and target not in columns else [])] if columns is not None else names
    for name in [*wanted, *leave_out, *([] if target is None else [target])]:
        if name not in names and table.d:
            raise party_error(table.name, str(UnknownName("column", name, names)))
    kept = [names.index(name) for name in wanted if name not in leave_out] if table.d else []
    chosen = table.take_columns(np.array(kept, int))
    texts = {name: held for name, held in (table.texts or {}).items() if name in (chosen.columns or ())}
    return Table(chosen.X, columns=chosen.columns, name=table.name, texts=texts or None)


def _with_labels(table: Table, name: str) -> Table:
    """The labels as one more column."""
    assert table.y is not None
    if table.y.ndim != 1:
        raise party_error(table.name, f"the labels have shape {table.y.shape}. Give one label per row.")
    values, texts = raw_objects(np.asarray(table.y).astype(object), table.name, f"column {name!r}")
    known = {**(table.texts or {}), **({} if texts is None else {name: texts})}
    X = np.column_stack([table.X, values])
    return replace(table, X=X, y=None, weights=None, columns=(*(table.columns or ()), name), texts=known or None)


def in_common(tables: Sequence[Table]) -> list[Table]:
    """The tables with the same columns in the same order; a party without columns gets those of the others."""
    first = next((table for table in tables if table.d), tables[0])
    names = first.columns or ()
    found = []
    for table in tables:
        if not table.d and not table.n:
            found.append(replace(table, X=np.empty((0, len(names))), columns=names))
            continue
        held = table.columns or ()
        for name in [*names, *held]:
            if name not in held or name not in names:
                whose, other = (table, first) if name in held else (first, table)
                raise party_error(
                    other.name, f"has no column {name!r}, which party {whose.name!r} has. Choose with columns."
                )
        order = np.array([held.index(name) for name in names], int)
        found.append(table if held == names else replace(table, X=table.X[:, order], columns=names))
    return found


def _looked_at(source: Source, index: int, raw: Any) -> tuple[str, tuple[str, ...], int]:
    """Name, names of columns, and number of rows."""
    table = raw(source(), index)
    return table.name, table.columns or (), table.n


def _fetched(source: Source, index: int, raw: Any, order: Table) -> Table:
    return in_common([order, raw(source(), index)])[1]
