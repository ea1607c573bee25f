"""Fit one model to data held by several parties."""

from __future__ import annotations

import inspect
import reprlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, get_overloads, overload

from coterie.api.progress import somebody_looks, stage_watch
from coterie.api.result import Result
from coterie.api.sinks import Sink, live_line
from coterie.data import Table
from coterie.data.preparation.prepared import Prepared
from coterie.data.preparation.recipes import Preparation
from coterie.data.remote import RemoteTable, Rows, Source
from coterie.data.summary import TableSummary
from coterie.engines import Engine
from coterie.engines import engine as find_engine
from coterie.engines.local import Local
from coterie.errors import InvalidProblem
from coterie.methods import Method
from coterie.numerics.arrays import whole_number
from coterie.problems.linear.model import LinearModel
from coterie.problems.low_rank.model import LowRankModel
from coterie.problems.parts.data import Classes
from coterie.problems.personal.model import PersonalModel
from coterie.problems.personal.problem import Personal
from coterie.problems.problem import AnyProblem, Problem
from coterie.problems.shared.model import SharedModel
from coterie.problems.shared.problem import Shared
from coterie.run.bill import Bill
from coterie.run.certificate import participants
from coterie.run.method_choice import AUTO
from coterie.run.network import around_a_server, make_network, wants_secure_sums
from coterie.run.parties import Hosted
from coterie.run.remote import remote_tables
from coterie.run.settings import Algorithm, Limits, Placement, Settings
from coterie.run.site import NO_RULES, Site
from coterie.run.stopping import checked_limits
from coterie.run.tables import SPLITS, attach_offset, prepare_tables, split_and_prepare
from coterie.stats.fitting import Fit, Fitting, Ready
from coterie.stats.preparing import Preparing, check_problem, prepare_here, prepare_remotely

T = TypeVar("T")


@overload
def solve(problem: Personal, data: Any, **settings: Any) -> Result[PersonalModel]: ...
@overload
def solve(problem: Shared, data: Any, **settings: Any) -> Result[SharedModel]: ...
@overload
def solve(
    problem: Problem[Any],
    data: Any,
    *more: Any,
    offset: Any = None,
    split: str = Placement.split,
    agents: int | Sequence[Any] | None = Placement.agents,
    network: Any = Settings.network,
    method: str | Method = Algorithm.method,
    engine: str | Engine = Placement.engine,
    acceleration: str = Algorithm.acceleration,
    tol: float = Limits.tol,
    max_rounds: int = Limits.max_rounds,
    max_seconds: float | None = Limits.max_seconds,
    max_bits: float | None = Limits.max_bits,
    check_every: int | None = Limits.check_every,
    seed: int = Settings.seed,
    checkpoint: str | Path | None = Settings.checkpoint,
    warm_start: Result | None = None,
    link: tuple[float, float] | None = Placement.link,
    progress: bool | None = Settings.progress,
    callback: Sink | None = Settings.callback,
    secure_sums: bool | None = Settings.secure_sums,
    threads: int | None = Placement.threads,
    prepare: Preparation | Prepared | str | Sequence[str] | None = Settings.prepare,
    same_order: bool = Placement.same_order,
    **options: Any,
) -> Result[LinearModel | LowRankModel]: ...
def solve(
    problem: AnyProblem,
    data: Any,
    *more: Any,
    offset: Any = None,
    warm_start: Result | None = None,
    **settings: Any,
) -> Result[Any]:
    """Learn one model from data held by several parties, and prove how good it is.

    problem     what to minimise: `Problem(loss="logistic", penalty="l1", strength=1e-3)`
    data        `(X, y)` or `(X, y, weights)`, a `Table` (see `read`), or a *list* of those, one per
                party; there also callables that give one, called where that agent lives; and on a
                cluster `Rows` of its frames
    offset      a number per row that is added to its score (the logarithm of an exposure, say); for
                a list of data a list with each party's. A `Table`, `Rows` or a tuple `(X, y,
                weights, offset)` may hold it, too
    split       "samples" (each party holds rows), "features" (columns, labels at one party), or
                "users": a model for each, of data `(X, y, users)` with one label per row, or of a
                list with one entry per user
    agents      how many (8), or a list of sizes, row or column lists; a list of data fixes it. Data
                of loss "cox" stays in one piece, unless the problem has agent_strata=True
    network     a name, a `Network`, a networkx graph, an adjacency matrix, or an edge file; split
                by users, the collaboration graph, or "learned"
    method      a name, a `Method`, or "auto"; its parameters may follow as keywords, e.g. `rho=1.0`
    engine      where agents run
    acceleration "auto" (what suits the method and the problem), "anderson", "halpern",
                "relaxation", or "none": as published
    tol         stop when gap ≤ tol · unit: what the best constant loses, or without an intercept a
                model of zeros
    check_every rounds between two certificates; by default, after the first few, they cost about 5
                % of the traffic
    checkpoint  a folder: if the run stops for any reason, the same call continues it
    warm_start  a result for the same parties, from whose model and dual to start
    link        seconds per hop and bits per second that "auto" assumes; by default, with engine
                "local", the memory of this machine, else a link between organisations (20 ms, 100
                Mbit/s)
    progress    a live line on the terminal (default: only if there is one)
    callback    is told (name, value, round) of every certificate on the way; `coterie.api.sinks`
                has some
    secure_sums whether sums are of whole numbers, 24 bytes each, correctly rounded, and between
                organisations masked; by default there, if data is split by samples over three or
                more parties
    threads     how many threads engine "local" uses where agents hold much data, by default one for
                each core; results do not depend on it
    prepare     what to do with raw columns first, with numbers that all parties agree on: a
                `Preparation`, or recipes such as "standardise" or "age: spline(5)"; or the
                `preparation` of a model, for its numbers. The new model takes raw columns, too
    same_order  with split "features": whether all parties list the same rows in the same order, so
                that rows of files and data frames are paired by position. Else match them by id,
                see `align`. Arrays need neither
    """
    if more:
        raise InvalidProblem(
            "the data is one argument: solve(problem, (X, y)) or solve(problem, (X, y, weights))."
        )
    return fit(problem, data, Settings.of(**settings), offset=offset, warm_start=warm_start)


# The last overload states all keywords and their defaults, for people as for type checkers.
vars(solve)["__signature__"] = inspect.signature(get_overloads(solve)[-1])


def fit(
    problem: AnyProblem,
    data: Any,
    settings: Settings,
    *,
    offset: Any = None,
    warm_start: Result | None = None,
) -> Result[Any]:
    """What `solve` does, with settings that are made already."""
    result, parties = fit_together(Fit(problem, settings, warm_start), data, offset)
    return replace(result, parties=parties)


def fit_together(operation: Fitting[T], data: Any, offset: Any = None) -> tuple[T, Hosted]:
    """The result of an operation on data in any form that `solve` takes, and the parties.

    Meanwhile, workers keep what they have read.
    """
    problem, settings = operation.problem, _checked(operation.problem, operation.settings)
    split, recipes = settings.placement.split, settings.prepare
    runner = find_engine(settings.placement.engine, threads=settings.placement.threads)
    settings = settings.but(progress=runner.speaks and somebody_looks(settings.progress))
    if recipes is not None:
        check_problem(problem, split)
        data = replace(data, prepare=recipes) if isinstance(data, Rows) else data
    if offset is not None:
        data = attach_offset(data, offset, split, recipes)
    settings = settings.but(
        agents=problem.kind.data.agents(problem, data, settings.placement.agents)
    )
    operation = replace(operation, settings=settings)
    elsewhere = runner.hosting(data, settings.placement.agents)
    with runner.cores(), (runner if elsewhere is None else elsewhere[0]).held():
        if elsewhere is None:
            tables = _tables_here(problem, data, settings, runner)
        else:
            tables = _tables_elsewhere(problem, elsewhere[1], settings, elsewhere[0])
        ready = _ready(operation, tables)
        return operation.together(ready), ready.parties


def _checked(problem: AnyProblem, settings: Settings) -> Settings:
    """The settings, if they make sense for the problem, with the recipes of a preparation read."""
    if not isinstance(problem, AnyProblem):
        raise InvalidProblem(
            "the first argument is a Problem, e.g. co.Problem('logistic', 'l2', 1e-3), not "
            f"{reprlib.repr(problem)}."
        )
    seed = whole_number("seed", settings.seed, least=0)
    family = problem.kind
    if settings.placement.split in SPLITS:
        family.data.check_split(problem, settings.placement.split)
    family.problems.check_network(settings.network)
    limits, prepare = checked_limits(settings.limits), settings.prepare
    if prepare is not None and not isinstance(prepare, Prepared):
        prepare = Preparation.of(prepare)
    return replace(settings, limits=limits, seed=seed, prepare=prepare)


@dataclass(frozen=True)
class _Tables:
    """The parties' tables, prepared, wherever they are."""

    held: list[Table]
    classes: Classes
    engine: Engine
    prepared: Preparing[Any] | None


def _tables_here(problem: AnyProblem, data: Any, settings: Settings, engine: Engine) -> _Tables:
    placement, seed = settings.placement, settings.seed
    if settings.prepare is not None:
        ready = prepare_here(data, problem, settings, engine)
        tables, classes = prepare_tables(ready.held, problem, placement.split)
        return _Tables(tables, classes, engine, ready)
    how: dict[str, Any] = {"tensors": isinstance(engine, Local), "same_order": placement.same_order}
    with stage_watch(settings.progress):
        tables, classes = split_and_prepare(
            data, problem, placement.split, placement.agents, seed, **how
        )
    return _Tables(tables, classes, engine, None)


def _tables_elsewhere(
    problem: AnyProblem, sources: list[Source], settings: Settings, engine: Engine
) -> _Tables:
    split, ready = settings.placement.split, None
    if settings.prepare is not None:
        ready = prepare_remotely(sources, settings, engine)
        sources = ready.held
    check = partial(prepare_tables, problem=problem, split=split)
    tables, classes = remote_tables(
        sources, engine, check, split, problem, settings.placement.same_order
    )
    return _Tables(tables, classes, engine, ready)


def _ready(operation: Fitting[Any], given: _Tables) -> Ready[Hosted]:
    """The parties that have these prepared tables."""
    settings, parties = operation.settings, _parties(operation, given)
    prepared, sent = None, None
    if given.prepared is not None:
        prepared, sent = given.prepared.prepared, given.prepared.sent
    graph = make_network(settings.network, parties.split, len(parties.sites), settings.seed)
    with stage_watch(settings.progress):
        people = participants(parties.sites)
    return Ready(parties, graph, given.classes, people, prepared, sent)


def _parties(operation: Fitting[Any], given: _Tables) -> Hosted:
    """The parties that have these tables."""
    problem, settings, engine = operation.problem, operation.settings, given.engine
    split, count = settings.placement.split, len(given.held)
    family = problem.kind.problems
    secure = wants_secure_sums(settings.secure_sums, split, count, engine.apart, family.only_sums)
    sites = tuple(
        Site(index, count, table, secure_sums=secure) for index, table in enumerate(given.held)
    )
    asks_first = settings.algorithm.method == AUTO
    cards = [TableSummary.of(table, independence=asks_first) for table in given.held]
    network = make_network(settings.network, split, count, settings.seed)
    if family.graph_is_data or split == "users":
        # The graph says who is alike, and need not be connected.
        network = around_a_server(count)
    watching = partial(live_line, settings.progress, settings.callback)
    parties = Hosted(
        operation, split, cards, NO_RULES, Bill(network), engine, sites, network, watching
    )
    if any(isinstance(table, RemoteTable) for table in given.held):
        return parties
    return replace(parties, adds_up=find_engine("local", threads=settings.placement.threads))
