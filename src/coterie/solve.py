"""The hall: one function, read top to bottom."""

from __future__ import annotations

import inspect
import reprlib
from collections.abc import Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any, overload

import numpy as np

from coterie.arrays import is_tensor, whole_number
from coterie.certificate import Certificate, Participant, participants
from coterie.checkpoint import Checkpoint
from coterie.data import Table
from coterie.data.prepared import Prepared
from coterie.data.recipes import Preparation
from coterie.data.remote import RemoteTable, Rows
from coterie.data.summary import TableSummary
from coterie.engines import Engine, Run
from coterie.engines import engine as find_engine
from coterie.engines.local import Local
from coterie.errors import InvalidProblem
from coterie.families import Family, family_of
from coterie.families.family import ask_here
from coterie.methods import METHODS, Method
from coterie.models import LinearModel, LowRankModel, PersonalModel, SharedModel
from coterie.personal import Personal, Shared
from coterie.problem import Problem
from coterie.progress import progress_watch, somebody_looks, stage_watch
from coterie.result import Result
from coterie.session.finish import finish
from coterie.session.preparing import check_problem, prepare_here, prepare_remotely
from coterie.session.remote import remote_tables, tables_of_ranges
from coterie.session.setup import (
    AUTO,
    make_agents,
    make_limits,
    make_link,
    make_network,
    set_up,
    sizes_of,
    wants_secure_sums,
    with_offset,
)
from coterie.session.tables import SPLITS, attach_offset, on_gpu, prepare_tables, split_and_prepare, within_reach
from coterie.sinks import LOGGER, Sink, with_callback


@overload
def solve(problem: Personal, data: Any, **settings: Any) -> Result[PersonalModel]: ...
@overload
def solve(problem: Shared, data: Any, **settings: Any) -> Result[SharedModel]: ...
@overload
def solve(
    problem: Problem,
    data: Any,
    *more: Any,
    offset: Any = ...,
    split: str = ...,
    agents: int | Sequence[Any] | None = ...,
    network: Any = ...,
    method: str | Method = ...,
    engine: str | Engine = ...,
    acceleration: str = ...,
    tol: float = ...,
    max_rounds: int = ...,
    max_seconds: float | None = ...,
    max_bits: float | None = ...,
    check_every: int | None = ...,
    seed: int = ...,
    checkpoint: str | Path | None = ...,
    warm_start: Result | None = ...,
    link: tuple[float, float] | None = ...,
    progress: bool | None = ...,
    callback: Sink | None = ...,
    secure_sums: bool | None = ...,
    threads: int | None = ...,
    prepare: Preparation | Prepared | str | Sequence[str] | None = ...,
    same_order: bool = ...,
    **options: Any,
) -> Result[LinearModel | LowRankModel]: ...
def solve(
    problem: Problem,
    data: Any,
    *more: Any,
    offset: Any = None,
    split: str = "samples",
    agents: int | Sequence[Any] | None = None,
    network: Any = None,
    method: str | Method = "auto",
    engine: str | Engine = "local",
    acceleration: str = "auto",
    tol: float = 1e-6,
    max_rounds: int = 10_000,
    max_seconds: float | None = None,
    max_bits: float | None = None,
    check_every: int | None = None,
    seed: int = 0,
    checkpoint: str | Path | None = None,
    warm_start: Result | None = None,
    link: tuple[float, float] | None = None,
    progress: bool | None = None,
    callback: Sink | None = None,
    secure_sums: bool | None = None,
    threads: int | None = None,
    prepare: Preparation | Prepared | str | Sequence[str] | None = None,
    same_order: bool = False,
    **options: Any,
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
    callback    is told (name, value, round) of every certificate on the way; `coterie.sinks` has some
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
    if not isinstance(problem, Problem):
        raise InvalidProblem(
            f"the first argument is a Problem, e.g. co.Problem('logistic', 'l2', 1e-3), not {reprlib.repr(problem)}."
        )
    if more:
        raise InvalidProblem("the data is one argument: solve(problem, (X, y)) or solve(problem, (X, y, weights)).")
    seed = whole_number("seed", seed, least=0)
    family = family_of(problem)
    if split in SPLITS:
        family.check_split(problem, split)
    family.check_network(network)
    limits = make_limits(tol, max_rounds, max_seconds, max_bits, check_every)
    runner = find_engine(engine, threads=threads)
    progress = runner.speaks and somebody_looks(progress)
    recipes = prepare if prepare is None or isinstance(prepare, Prepared) else Preparation.of(prepare)
    ready = None
    if recipes is not None:
        check_problem(problem, split)
        data = replace(data, prepare=recipes) if isinstance(data, Rows) else data
    data = attach_offset(data, offset, split, recipes)
    agents = family.agents(problem, data, agents)
    elsewhere = runner.hosting(data, agents)
    with runner.cores(), (runner if elsewhere is None else elsewhere[0]).held():
        if elsewhere is None:
            if recipes is None:
                with stage_watch(progress):
                    here = isinstance(runner, Local)
                    how: dict[str, Any] = {"tensors": here, "same_order": same_order}
                    tables, classes = split_and_prepare(data, problem, split, agents, seed, **how)
            else:
                given = (problem, split, agents, seed, network, secure_sums, runner, same_order)
                ready = prepare_here(data, recipes, *given)
                tables, classes = prepare_tables(ready.held, problem, split)
        else:
            runner, sources = elsewhere
            if recipes is not None:
                ready = prepare_remotely(sources, recipes, problem, split, seed, network, secure_sums, runner)
                sources = ready.held
            check = partial(prepare_tables, problem=problem, split=split)
            tables, classes = remote_tables(sources, runner, check, split, family.classification(problem), same_order)
        secure = wants_secure_sums(secure_sums, split, len(tables), runner.apart, family.only_sums)
        parties = [TableSummary.of(table, independence=method == AUTO) for table in tables]
        setup = set_up(
            with_offset(problem, parties),
            make_network(network, split, len(tables), seed),
            replace(sizes_of(parties, split, make_link(link, runner.in_memory), runner.apart), on_gpu=on_gpu(tables)),
            partial(_for_tables, family, tables, runner),
            split=split,
            method=method,
            options=options,
            acceleration=acceleration,
            limits=limits,
            seed=seed,
            classes=classes,
            partition=_partition(tables, split),
            allowed_later=_on_tensors(tables),
            known=_keywords(),
            secure_sums=secure,
            prepare=None if recipes is None else recipes.settings(),
        )
        tables = within_reach(tables, setup.method, setup.problem)
        members = make_agents(tables, setup.problem, split, setup.graph, seed, secure)
        with stage_watch(progress):
            people = participants(members)
        warm, origin = None, None
        if warm_start is not None:
            before, origin = warm_start.certificate, warm_start.certificate.model_digest
            ask = ask_here if elsewhere is None else runner.ask
            warm = family.points(warm_start.model, members, before.witness, ask)
            if _same_data(before, people, setup.problem):
                warm = [replace(point, kept=warm_start.kept) for point in warm]
        saved = None
        if checkpoint is not None:
            saved = Checkpoint(checkpoint, setup.identity(origin, *(person.digest for person in people)))
        with progress_watch(progress, setup.method.name) as watch:
            LOGGER.info("%s on %s, %d parties", setup.method.name, setup.network, len(members))
            told = with_callback(watch, callback)
            sent = None if ready is None else ready.sent
            run = Run(members, setup.running, setup.carrying, limits, saved, warm, told, secure, sent)
            outcome = runner.run(run)
        LOGGER.info("%s after %d rounds, gap %.3g", outcome.status, outcome.bill.rounds, outcome.bound.gap)
        model = family.model(outcome, members, setup.problem, classes)
        for agent in members:
            agent.release()
        if ready is not None:
            model = replace(model, preparation=ready.prepared)
        asked_again = replace(run, checkpoint=None, warm=None, watch=Run.watch, sent=None)
        return replace(finish(setup, outcome, model, members, people), rerun=(runner, asked_again))


@cache
def _keywords() -> list[str]:
    """The names of what `solve` takes beside a method's parameters."""
    return inspect.getfullargspec(solve).kwonlyargs


def _for_tables(family: Family, tables: Sequence[Table], engine: Engine, problem: Problem) -> Problem:
    """The problem, once the data is known; of tables that are elsewhere, what it needs is asked there."""
    if family.wants_ranges(problem) and any(isinstance(table, RemoteTable) for table in tables):
        tables = tables_of_ranges(tables, engine)
    return family.for_tables(problem, tables)


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


def _same_data(before: Certificate, people: Sequence[Participant], problem: Problem) -> bool:
    """Whether that certificate is about the same rows, the same loss and the same columns."""
    then, now = before.settings["problem"], problem.settings()
    alike = then["loss"] == now["loss"] and then["intercept"] == now["intercept"]
    return alike and [p.digest for p in before.participants] == [p.digest for p in people]
