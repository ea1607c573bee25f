"""Prepares the tables of a run, wherever they are: alone by columns, together by rows, and at workers of a cluster."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp

from coterie.agent import Agent
from coterie.bill import Bill
from coterie.data import Table
from coterie.data.keys import noted
from coterie.data.prepared import Prepared, cells_of, column_names, pooled
from coterie.data.read import read_party
from coterie.data.recipes import Preparation
from coterie.data.remote import RemoteTable, Source
from coterie.data.summary import TableSummary, check_together
from coterie.data.table import Indices, columns_of, in_order, party_error
from coterie.engines import Engine, Run
from coterie.errors import InvalidProblem, UnknownName
from coterie.families import family_of
from coterie.networks import Network
from coterie.problem import Problem
from coterie.rounds import Conversation
from coterie.session.preparation import MOST_HERE, Place, fitted
from coterie.session.setup import make_network, wants_secure_sums
from coterie.session.tables import gather
from coterie.settings import Limits, Settings
from coterie.transport.in_process import InProcess
from coterie.words import Sum, Talk

PURPOSE = "preparation"
"""What a bill calls it."""


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
                f"column {name!r} holds text, e.g. {cells.texts[0]!r}, and {recipe}. Encode it with one-hot, "
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
    """What came of a preparation: its numbers, the prepared tables or sources of them, and what was sent for it."""

    prepared: Prepared
    held: list[Any]
    sent: dict[str, Any]
    """The state of a bill."""


def check_problem(problem: Problem, split: str) -> None:
    """Refuse a preparation for models that cannot hold one."""
    if split == "users" or problem.family not in ("linear", "multiclass", "survival"):
        raise InvalidProblem("prepare is for linear models of data split by samples or by features. Leave it out.")


def prepare_here(data: Any, problem: Problem, settings: Settings, engine: Engine) -> Preparing:
    """Prepare data that is here, for the agents of a run. One that has its numbers already takes no messages."""
    placement, preparation = settings.placement, settings.prepare
    split, pieces = placement.split, family_of(problem).pieces
    tables = gather(data, split, placement.agents, settings.seed, pieces, preparation, placement.same_order)
    carrying = make_network(settings.network, split, len(tables), settings.seed)
    if isinstance(preparation, Prepared):
        if split != "features":
            return Preparing(preparation, [preparation.apply(table) for table in tables], Bill(carrying).state())
        return Preparing(*_pooled(tables, preparation.parts(columns_of(tables))), Bill(carrying).state())
    secure = wants_secure_sums(settings.secure_sums, split, len(tables), engine.apart)
    return _prepare(tables, preparation, split, carrying, secure)


def _prepare(
    tables: Sequence[Table], preparation: Preparation, split: str, network: Network, secure: bool
) -> Preparing:
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
    transport = InProcess(network, bill, [table.name for table in tables], secure_sums=secure)
    found = transport.converse(talks, PURPOSE)[0]
    return Preparing(found, [found.apply(table) for table in tables], bill.state())


def follows_from(prepared: Prepared, recipes: Any, data: Any, split: str) -> bool:
    """Whether these recipes give those numbers for the data, up to rounding."""
    # Whoever calls has paired the rows.
    tables = gather(data, split, None if isinstance(data, list) else 1, prepare=prepared, same_order=True, warn=False)
    tables = [in_order(table, prepared.raw, split) for table in tables]
    network = make_network(None, split, len(tables), 0)
    return _prepare(tables, Preparation.from_settings(recipes), split, network, False).prepared.like(prepared)


def _alone(table: Table, preparation: Preparation) -> Prepared:
    check_alone(table, preparation, "features")
    return prepared_alone(table, preparation)


def _refuse_unknown(tables: Sequence[Table], preparation: Preparation) -> None:
    everything = [name for table in tables for name in column_names(table)]
    for column in preparation.columns:
        if column not in everything:
            raise UnknownName("column", column, everything)


def _pooled(tables: Sequence[Table], parts: Sequence[Prepared]) -> tuple[Prepared, list[Table]]:
    """All parties' columns as one preparation, and the tables with their places in it."""
    whole, places = pooled(tables, parts)
    members = zip(tables, parts, places, strict=True)
    return whole, [replace(part.apply(table), cols=cols) for table, part, cols in members]


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


def prepare_remotely(sources: Sequence[Source], problem: Problem, settings: Settings, engine: Engine) -> Preparing:
    """Prepare tables that stay where they are."""
    split, preparation = settings.placement.split, settings.prepare
    carrying = make_network(settings.network, split, len(sources), settings.seed)
    secure = wants_secure_sums(settings.secure_sums, split, len(sources), engine.apart)
    raw = [partial(_raw, source, index, preparation) for index, source in enumerate(sources)]
    if split == "features":
        forms = engine.ask([partial(_form_of, source) for source in raw])
        if isinstance(preparation, Prepared):
            parts = preparation.parts(columns_of(forms))
        else:
            _refuse_unknown(forms, preparation)
            parts = engine.ask([partial(_alone_there, source, preparation) for source in raw])
        whole, places = pooled(forms, parts)
        applied = [partial(_applied, *member) for member in zip(raw, parts, places, strict=True)]
        return Preparing(whole, applied, Bill(carrying).state())
    if isinstance(preparation, Prepared):
        return Preparing(
            preparation, [partial(_applied, source, preparation) for source in raw], Bill(carrying).state()
        )
    looks = engine.ask([partial(_looked_at, source, preparation) for source in raw])
    common = with_common_columns(looks)
    agents = [
        Agent(
            index,
            len(sources),
            RemoteTable.of(look, partial(_with_columns, source, look.columns, look.d)),
            problem,
            split,
            (),
            0,
            secure_sums=secure,
        )
        for index, (source, look) in enumerate(zip(raw, common, strict=True))
    ]
    talk = Conversation(partial(_fitted_there, preparation), PURPOSE)
    outcome = engine.run(Run(agents, talk, carrying, Limits(), secure_sums=secure))
    if outcome.error is not None:
        raise outcome.error
    found: Prepared = outcome.answers[0]
    fetches = [agent.data.fetch for agent in agents if isinstance(agent.data, RemoteTable)]
    return Preparing(found, [partial(_applied, fetch, found) for fetch in fetches], outcome.bill.state())


def _form_of(source: Source) -> Table:
    """Names and places of the columns: a table without rows."""
    table: Table = source()
    return Table(np.empty((0, table.d)), columns=table.columns, name=table.name, cols=table.cols)


def _raw(source: Source, index: int, preparation: Preparation | Prepared) -> Table:
    return noted(read_party(source(), index, prepare=preparation))


def _with_columns(source: Source, columns: tuple[str, ...] | None, width: int) -> Table:
    """The raw table; one without rows has the columns of the others."""
    table: Table = source()
    return table if table.n or table.d else replace(table, X=np.empty((0, width)), columns=columns)


def _looked_at(source: Source, preparation: Preparation) -> Table:
    """Names and sizes, for `with_common_columns`: a table without content."""
    table: Table = source()
    check_alone(table, preparation)
    labels = None if table.y is None else np.zeros((table.n, *table.y.shape[1:]))
    return Table(sp.csr_array(table.X.shape), y=labels, columns=table.columns, name=table.name)


def _fitted_there(preparation: Preparation, agent: Agent) -> Talk[Prepared]:
    return fitted(agent.data, preparation, Place(agent.index, agent.count, agent.secure_sums))


def _alone_there(source: Source, preparation: Preparation) -> Prepared:
    return _alone(source(), preparation)


def _applied(source: Source, prepared: Prepared, cols: Indices | None = None) -> Table:
    return replace(prepared.apply(source()), cols=cols)
