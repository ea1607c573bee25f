"""Fit one model to data held by several parties."""

from __future__ import annotations

import inspect
import reprlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, get_overloads, overload

import numpy as np

from coterie.api.progress import progress_watch, somebody_looks, stage_watch
from coterie.api.result import Result
from coterie.api.sinks import LOGGER, Sink, with_callback
from coterie.data import Table
from coterie.data.preparation.prepared import Prepared
from coterie.data.preparation.recipes import Preparation
from coterie.data.remote import RemoteTable, Rows, Source
from coterie.data.summary import TableSummary
from coterie.engines import Engine, Run
from coterie.engines import engine as find_engine
from coterie.engines.local import Local
from coterie.errors import InvalidProblem
from coterie.methods import METHODS, Method
from coterie.numerics.arrays import is_tensor, whole_number
from coterie.problems.kind import Kind
from coterie.problems.linear.model import LinearModel
from coterie.problems.low_rank.model import LowRankModel
from coterie.problems.parts.data import Classes
from coterie.problems.parts.models import ask_here
from coterie.problems.personal.model import PersonalModel
from coterie.problems.personal.problem import Personal
from coterie.problems.problem import AnyProblem, Problem
from coterie.problems.shared.model import SharedModel
from coterie.problems.shared.problem import Shared
from coterie.run.bill import Bill
from coterie.run.certificate import Certificate, Participant, participants
from coterie.run.checkpoint import Checkpoint
from coterie.run.finish import finish
from coterie.run.method_choice import AUTO, Circumstances
from coterie.run.parties import Hosted, Nothing
from coterie.run.remote import remote_tables, tables_of_ranges
from coterie.run.settings import Algorithm, Limits, Placement, Settings
from coterie.run.setup import (
    Setup,
    checked_limits,
    make_agents,
    make_link,
    make_network,
    set_up,
    sizes_of,
    wants_secure_sums,
    with_offset,
)
from coterie.run.site import NO_RULES
from coterie.run.tables import SPLITS, attach_offset, on_gpu, prepare_tables, split_and_prepare, within_reach
from coterie.stats.preparing import Preparing, check_problem, prepare_here, prepare_remotely


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
    problem: AnyProblem, data: Any, *more: Any, offset: Any = None, warm_start: Result | None = None, **settings: Any
) -> Result[Any]:
    """Learn one model from data held by several parties, and prove how good it is.

    problem     what to minimise: `Problem(loss="logistic", penalty="l1", strength=1e-3)`
    data        `(X, y)` or `(X, y, weights)`, a `Table` (see `read`), or a *list* of those, one per party; there also
                callables that give one, called where that agent lives; and on a cluster `Rows` of its frames
    offset      a number per row that is added to its score (the logarithm of an exposure, say); for a list of data a
                list with each party's. A `Table`, `Rows` or a tuple `(X, y, weights, offset)` may hold it, too
    split       "samples" (each party holds rows), "features" (columns, labels at one party), or "users": a model for
                each, of data `(X, y, users)` with one label per row, or of a list with one entry per user
    agents      how many (8), or a list of sizes, row or column lists; a list of data fixes it. Data of loss "cox" stays
                in one piece, unless the problem has agent_strata=True
    network     a name, a `Network`, a networkx graph, an adjacency matrix, or an edge file; split by users, the
                collaboration graph, or "learned"
    method      a name, a `Method`, or "auto"; its parameters may follow as keywords, e.g. `rho=1.0`
    engine      where agents run
    acceleration "auto" (what suits the method and the problem), "anderson", "halpern", "relaxation", or "none": as
                published
    tol         stop when gap ≤ tol · unit: what the best constant loses, or without an intercept a model of zeros
    check_every rounds between two certificates; by default, after the first few, they cost about 5 % of the traffic
    checkpoint  a folder: if the run stops for any reason, the same call continues it
    warm_start  a result for the same parties, from whose model and dual to start
    link        seconds per hop and bits per second that "auto" assumes; by default, with engine "local", the memory of
                this machine, else a link between organisations (20 ms, 100 Mbit/s)
    progress    a live line on the terminal (default: only if there is one)
    callback    is told (name, value, round) of every certificate on the way; `coterie.api.sinks` has some
    secure_sums whether sums are of whole numbers, 24 bytes each, correctly rounded, and between organisations masked;
                by default there, if data is split by samples over three or more parties
    threads     how many threads engine "local" uses where agents hold much data, by default one for each core; results
                do not depend on it
    prepare     what to do with raw columns first, with numbers that all parties agree on: a `Preparation`, or recipes
                such as "standardise" or "age: spline(5)"; or the `preparation` of a model, for its numbers. The
                new model takes raw columns, too
    same_order  with split "features": whether all parties list the same rows in the same order, so that rows of files
                and data frames are paired by position. Else match them by id, see `align`. Arrays need neither
    """
    if more:
        raise InvalidProblem("the data is one argument: solve(problem, (X, y)) or solve(problem, (X, y, weights)).")
    return fit(problem, data, Settings.of(**settings), offset=offset, warm_start=warm_start)


# The last overload states all keywords and their defaults, for people as for type checkers.
solve.__signature__ = inspect.signature(get_overloads(solve)[-1])  # type: ignore[attr-defined]


def fit(
    problem: AnyProblem, data: Any, settings: Settings, *, offset: Any = None, warm_start: Result | None = None
) -> Result[Any]:
    """What `solve` does, with settings that are made already."""
    settings = _checked(problem, settings)
    split, recipes = settings.placement.split, settings.prepare
    runner = find_engine(settings.placement.engine, threads=settings.placement.threads)
    settings = settings.but(progress=runner.speaks and somebody_looks(settings.progress))
    if recipes is not None:
        check_problem(problem, split)
        data = replace(data, prepare=recipes) if isinstance(data, Rows) else data
    data = attach_offset(data, offset, split, recipes)
    settings = settings.but(agents=problem.kind.data.agents(problem, data, settings.placement.agents))
    elsewhere = runner.hosting(data, settings.placement.agents)
    with runner.cores(), (runner if elsewhere is None else elsewhere[0]).held():
        if elsewhere is None:
            return _fit_tables(problem, _tables_here(problem, data, settings, runner), settings, warm_start)
        tables = _tables_elsewhere(problem, elsewhere[1], settings, elsewhere[0])
        return _fit_tables(problem, tables, settings, warm_start)


def _checked(problem: AnyProblem, settings: Settings) -> Settings:
    """The settings, if they make sense for the problem, with the recipes of a preparation read."""
    if not isinstance(problem, AnyProblem):
        raise InvalidProblem(
            f"the first argument is a Problem, e.g. co.Problem('logistic', 'l2', 1e-3), not {reprlib.repr(problem)}."
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
    elsewhere: bool
    prepared: Preparing[Any] | None


def _tables_here(problem: AnyProblem, data: Any, settings: Settings, engine: Engine) -> _Tables:
    placement, seed = settings.placement, settings.seed
    if settings.prepare is not None:
        ready = prepare_here(data, problem, settings, engine)
        tables, classes = prepare_tables(ready.held, problem, placement.split)
        return _Tables(tables, classes, engine, False, ready)
    how: dict[str, Any] = {"tensors": isinstance(engine, Local), "same_order": placement.same_order}
    with stage_watch(settings.progress):
        tables, classes = split_and_prepare(data, problem, placement.split, placement.agents, seed, **how)
    return _Tables(tables, classes, engine, False, None)


def _tables_elsewhere(problem: AnyProblem, sources: list[Source], settings: Settings, engine: Engine) -> _Tables:
    split, ready = settings.placement.split, None
    if settings.prepare is not None:
        ready = prepare_remotely(sources, settings, engine)
        sources = ready.held
    check = partial(prepare_tables, problem=problem, split=split)
    tables, classes = remote_tables(sources, engine, check, split, problem, settings.placement.same_order)
    return _Tables(tables, classes, engine, True, ready)


def _fit_tables(problem: AnyProblem, given: _Tables, settings: Settings, warm_start: Result | None) -> Result[Any]:
    """Set up the run, take its rounds, and put the model together."""
    family, tables, runner = problem.kind, given.held, given.engine
    asks_first = settings.algorithm.method == AUTO
    summaries = [TableSummary.of(table, independence=asks_first) for table in tables]
    setup = _set_up(problem, given, summaries, settings)
    tables = within_reach(tables, setup.method, setup.problem)
    secure = setup.known.secure_sums
    members = make_agents(tables, setup.problem, settings.placement.split, setup.graph, settings.seed, secure)
    with stage_watch(settings.progress):
        people = participants(members)
    warm, origin = None, None
    if warm_start is not None:
        origin = warm_start.certificate.model_digest
        ask = runner.ask if given.elsewhere else ask_here
        warm = family.models.points(warm_start.model, members, warm_start.certificate.witness, ask)
        if _same_data(warm_start.certificate, people, setup.problem):
            warm = [replace(point, kept=warm_start.kept) for point in warm]
    saved = None
    if settings.checkpoint is not None:
        saved = Checkpoint(settings.checkpoint, setup.identity(origin, *(person.digest for person in people)))
    sent = None if given.prepared is None else given.prepared.sent
    with progress_watch(settings.progress, setup.method.name) as watch:
        LOGGER.info("%s on %s, %d parties", setup.method.name, setup.network, len(members))
        told = with_callback(watch, settings.callback)
        run = Run(members, setup.running, setup.carrying, settings.limits, saved, warm, told, secure, sent)
        outcome = runner.run(run)
    LOGGER.info("%s after %d rounds, gap %.3g", outcome.status, outcome.bill.rounds, outcome.bound.gap)
    model = family.models.assemble(outcome, members, setup.problem, given.classes)
    for agent in members:
        agent.release()
    if given.prepared is not None:
        model = replace(model, preparation=given.prepared.prepared)
    split, carrying = settings.placement.split, setup.carrying
    parties = Hosted(Nothing(), split, summaries, NO_RULES, Bill(carrying), runner, tuple(members), carrying)
    return replace(finish(setup, outcome, model, members, people), parties=parties)


def _set_up(problem: AnyProblem, given: _Tables, summaries: Sequence[TableSummary], settings: Settings) -> Setup:
    family, tables, runner = problem.kind, given.held, given.engine
    split = settings.placement.split
    sizes = sizes_of(summaries, split, make_link(settings.placement.link, runner.in_memory), runner.apart)
    known = Circumstances(
        make_network(settings.network, split, len(tables), settings.seed),
        replace(sizes, on_gpu=on_gpu(tables)),
        given.classes,
        wants_secure_sums(settings.secure_sums, split, len(tables), runner.apart, family.problems.only_sums),
        partition=_partition(tables, split),
        allowed_later=_on_tensors(tables),
    )
    return set_up(with_offset(problem, summaries), settings, known, partial(_for_tables, family, tables, runner))


def _for_tables(family: Kind[Any, Any], tables: Sequence[Table], engine: Engine, problem: AnyProblem) -> Any:
    """The problem, once the data is known; of tables that are elsewhere, what it needs is asked there."""
    if family.problems.wants_ranges(problem) and any(isinstance(table, RemoteTable) for table in tables):
        tables = tables_of_ranges(tables, engine)
    return family.problems.for_tables(problem, tables)


def _partition(tables: Sequence[Table], split: str) -> list[list[int]] | None:
    """Which rows or columns of the pooled data each agent has, or None if they are consecutive blocks."""
    held = [table.cols if split == "features" else table.rows for table in tables]
    known = [part for part in held if part is not None]
    if len(known) < len(held) or np.array_equal(np.concatenate(known), np.arange(sum(map(len, known)))):
        return None
    return [part.tolist() for part in known]


def _on_tensors(tables: Sequence[Table]) -> set[str] | None:
    """The methods that take rows as they are, where some are tensors."""
    return {name for name, one in METHODS.items() if one.tensors} if any(is_tensor(t.X) for t in tables) else None


def _same_data(before: Certificate, people: Sequence[Participant], problem: AnyProblem) -> bool:
    """Whether that certificate is about the same rows, the same loss and the same columns."""
    then, now = before.settings["problem"], problem.settings()
    alike = then.get("loss") == now.get("loss") and then["intercept"] == now["intercept"]
    return alike and [p.digest for p in before.participants] == [p.digest for p in people]
