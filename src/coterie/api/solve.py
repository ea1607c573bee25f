"""Fit one model to data held by several parties."""

from __future__ import annotations

import inspect
import reprlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, get_overloads, overload

from coterie.api.progress import shows_lines, stage_watch
from coterie.api.result import Result
from coterie.api.sinks import Sink, live_line
from coterie.data.preparation.prepared import Prepared
from coterie.data.preparation.recipes import Preparation
from coterie.data.remote import Rows, Source
from coterie.data.remote_table import AnyTable, RemoteTable
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
from coterie.run.settings import Algorithm, Limits, Placement, Settings
from coterie.run.site import NO_RULES, local_sites, site_of
from coterie.run.stopping import checked_limits
from coterie.run.tables import SPLITS, attach_offset, prepare_tables, split_and_prepare
from coterie.stats.fitting import Fit, Fitting, Ready
from coterie.stats.preparing import Preparing, check_problem, prepare_locally
from coterie.stats.reading import remote_tables

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

    Parameters
    ----------
    problem : Problem, Shared or Personal
        The objective to minimise, such as `Problem(loss="logistic", penalty="l1", strength=1e-3)`.
    data : one party's data or a list
        `(X, y)` or `(X, y, weights)`, a `Table` (see `read`), or a list of those, one per party. A
        list may also hold callables that return one; each is called where its agent runs. On a
        cluster, `Rows` of its frames.
    offset : array or list of arrays, optional
        A number per row that is added to its score, such as the logarithm of an exposure; for a
        list of data, a list with each party's. A `Table`, `Rows` or a tuple `(X, y, weights,
        offset)` may hold it, too.
    split : {"samples", "features", "users"}, default="samples"
        How parties divide the data: each holds rows ("samples"), or columns, with the labels at one
        party ("features"). With "users", each user gets a model of its own: the data is `(X, y,
        users)` with one label of a user per row, or a list with one entry per user.
    agents : int or list, default=8
        Number of agents that data in one piece is divided between, or a list of their sizes, rows
        or columns. Not allowed if `data` is a list. Data of loss "cox" stays in one piece, unless
        the problem has agent_strata=True.
    network : str, Network, graph or matrix, optional
        The network of the agents: a name, a `Network`, a networkx graph, an adjacency matrix, or an
        edge file. With split "users", the collaboration graph, or "learned". By default a server
        for split "samples", a complete graph for "features", and "learned" for "users".
    method : str or Method, default="auto"
        The method. "auto" chooses the fastest one that it knows for the problem, data and link.
    engine : str or Engine, default="local"
        Where agents run.
    acceleration : {"auto", "anderson", "halpern", "relaxation", "none"}, default="auto"
        Acceleration of the method. "auto" chooses what suits the method and the problem; "none"
        runs the method as it was published.
    tol : float, default=1e-6
        Relative gap at which the run stops. The gap is relative to the null loss (without an
        intercept: to the objective of a model of zeros).
    max_rounds : int, default=10000
        Maximum number of rounds.
    max_seconds : float, optional
        Maximum number of seconds. By default no limit.
    max_bits : float, optional
        Maximum number of bits that all agents send together. By default no limit.
    check_every : int, optional
        Rounds between two certificates. By default, after the first few, certificates cost about
        5 % of the traffic.
    seed : int, default=0
        Random seed.
    checkpoint : str or Path, optional
        A folder. If the run stops for any reason, the same call continues it.
    warm_start : Result, optional
        An earlier result for the same parties. The run starts from its model and dual variables.
    link : tuple of float, optional
        Seconds per hop, and bits per second, which method "auto" assumes. By default, with engine
        "local", the memory of this machine; else a link between organisations (20 ms, 100 Mbit/s).
    progress : bool, optional
        Whether to show a live line. By default only on a terminal.
    callback : callable, optional
        Called with (name, value, round) for every certificate. The run stops if it returns True.
        `coterie.api.sinks` has some.
    secure_sums : bool, optional
        Whether sums are exact sums of whole numbers, of 24 bytes each; between organisations they
        are masked. By default only between organisations, if data is split by samples over three or
        more parties.
    threads : int, optional
        Number of threads of engine "local", where agents hold much data. By default one for each
        core. Results do not depend on it.
    prepare : Preparation, Prepared, str or list of str, optional
        Preparation of raw columns with numbers that all parties agree on: a `Preparation`, recipes
        such as "standardise" or "age: spline(5)", or the `preparation` of a model, for its numbers.
        The new model takes raw columns, too.
    same_order : bool, default=False
        With split "features": whether all parties list the same rows in the same order, so that
        rows of files and data frames are paired by position. Else match them by id, see `align`.
        Arrays need neither.
    **options
        Parameters of the method, such as `rho=1.0`.

    Returns
    -------
    Result
        The best model of the run, with status, certificate, bill and history.

    Raises
    ------
    InvalidProblem
        If the problem, the method and the data do not go together.
    InvalidData
        If a party's data cannot be used. The message names the party and the fix.

    Examples
    --------
    >>> import coterie as co, numpy as np
    >>> X = np.random.default_rng(0).standard_normal((60, 3))
    >>> y = np.where(X[:, 0] > 0, 1, -1)
    >>> north, south = (X[:20], y[:20]), (X[20:], y[20:])
    >>> result = co.solve(co.Problem("logistic", "l2", 0.1), [north, south])
    >>> result.status.value, result.certificate.gap <= 1e-6
    ('optimal', True)
    """
    if more:
        raise InvalidProblem(
            "the data is one argument: solve(problem, (X, y)) or solve(problem, (X, y, weights))."
        )
    return fit(problem, data, Settings.of(**settings), offset=offset, warm_start=warm_start)


# `help` and type checkers show the last overload, which states all keywords and their defaults.
vars(solve)["__signature__"] = inspect.signature(get_overloads(solve)[-1])


def fit(
    problem: AnyProblem,
    data: Any,
    settings: Settings,
    *,
    offset: Any = None,
    warm_start: Result | None = None,
) -> Result[Any]:
    """Fit with settings that are made already; see `solve`."""
    result, parties = fit_together(Fit(problem, settings, warm_start), data, offset)
    return replace(result, parties=parties)


def fit_together(operation: Fitting[T], data: Any, offset: Any = None) -> tuple[T, Hosted]:
    """Run a fitting operation on data in any form that `solve` takes.

    Returns the result of the operation, and the parties. Workers keep the data that they have read
    until the operation ends.
    """
    problem = operation.problem
    settings = _checked(problem, operation.settings)
    split = settings.placement.split
    recipes = settings.prepare
    runner = find_engine(settings.placement.engine, threads=settings.placement.threads)
    settings = settings.but(progress=runner.writes_output and shows_lines(settings.progress))
    if recipes is not None:
        check_problem(problem, split)
        if isinstance(data, Rows):
            data = replace(data, prepare=recipes)
    if offset is not None:
        data = attach_offset(data, offset, split, recipes)
    agents = problem.kind.data.agents(problem, data, settings.placement.agents)
    settings = settings.but(agents=agents)
    operation = replace(operation, settings=settings)
    with given_to(runner, data, agents) as given:
        ready = _ready(operation, _tables(problem, given, settings))
        return operation.together(ready), ready.parties


@dataclass(frozen=True)
class Given:
    """Data in any form that `solve` takes, and the engine that reads it."""

    engine: Engine
    data: Any
    """Tables, or one source for each party."""
    elsewhere: bool
    """Whether workers of the engine call the sources."""


@contextmanager
def given_to(runner: Engine, data: Any, agents: Any) -> Iterator[Given]:
    """Yield the data. Until the context ends, workers keep the tables that they have read."""
    elsewhere = runner.hosting(data, agents)
    host, sources = elsewhere or (runner, data)
    with runner.cores(), host.held():
        yield Given(host, sources, elsewhere is not None)


def _checked(problem: AnyProblem, settings: Settings) -> Settings:
    """Check that the settings suit the problem, and read the recipes of a preparation."""
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
    limits = checked_limits(settings.limits)
    prepare = settings.prepare
    if prepare is not None and not isinstance(prepare, Prepared):
        prepare = Preparation.of(prepare)
    return replace(settings, limits=limits, seed=seed, prepare=prepare)


@dataclass(frozen=True)
class _Tables:
    """The prepared tables of the parties, in this process or on workers."""

    held: Sequence[AnyTable]
    classes: Classes
    engine: Engine
    prepared: Preparing[Hosted] | None


def _tables(problem: AnyProblem, given: Given, settings: Settings) -> _Tables:
    if given.elsewhere:
        return _tables_elsewhere(problem, given.data, settings, given.engine)
    return _local_tables(problem, given.data, settings, given.engine)


def _local_tables(problem: AnyProblem, data: Any, settings: Settings, engine: Engine) -> _Tables:
    placement = settings.placement
    if settings.prepare is not None:
        ready = prepare_locally(data, problem, settings, engine)
        held = [site.data for site in local_sites(ready.parties.sites)]
        tables, classes = prepare_tables(held, problem, placement.split)
        return _Tables(tables, classes, engine, ready)
    with stage_watch(settings.progress):
        tables, classes = split_and_prepare(
            data,
            problem,
            placement.split,
            placement.agents,
            settings.seed,
            tensors=isinstance(engine, Local),
            same_order=placement.same_order,
        )
    return _Tables(tables, classes, engine, None)


def _tables_elsewhere(
    problem: AnyProblem, sources: list[Source], settings: Settings, engine: Engine
) -> _Tables:
    found = remote_tables(sources, engine, problem, settings)
    return _Tables(found.tables, found.classes, engine, found.prepared)


def ready_for(operation: Fitting[Any], given: Given) -> Ready[Hosted]:
    """Check the tables once, for several fits of problems of this kind."""
    settings = _checked(operation.problem, operation.settings)
    tables = _tables(operation.problem, given, settings)
    return _ready(replace(operation, settings=settings), tables)


def _ready(operation: Fitting[Any], given: _Tables) -> Ready[Hosted]:
    """Make the parties that have these prepared tables, and their network."""
    settings = operation.settings
    parties = _parties(operation, given)
    prepared = None
    sent = None
    if given.prepared is not None:
        prepared = given.prepared.prepared
        sent = given.prepared.sent
    graph = make_network(settings.network, parties.split, len(parties.sites), settings.seed)
    with stage_watch(settings.progress):
        people = participants(parties.sites)
    return Ready(parties, graph, given.classes, people, prepared, sent)


def _parties(operation: Fitting[Any], given: _Tables) -> Hosted:
    """Make the parties that have these tables."""
    settings = operation.settings
    engine = given.engine
    split = settings.placement.split
    count = len(given.held)
    family = operation.problem.kind.problems
    secure = wants_secure_sums(settings.secure_sums, split, count, engine.apart, family.only_sums)
    sites = tuple(
        site_of(index, count, table, secure_sums=secure) for index, table in enumerate(given.held)
    )
    asks_first = settings.algorithm.method == AUTO
    cards = [TableSummary.of(table, independence=asks_first) for table in given.held]
    network = make_network(settings.network, split, count, settings.seed)
    if family.graph_is_data or split == "users":
        # The graph links similar users, and need not be connected.
        network = around_a_server(count)
    watching = partial(live_line, settings.progress, settings.callback)
    parties = Hosted(
        operation, split, cards, NO_RULES, Bill(network), engine, sites, network, watching
    )
    if any(isinstance(table, RemoteTable) for table in given.held):
        return parties
    return replace(parties, adds_up=find_engine("local", threads=settings.placement.threads))
