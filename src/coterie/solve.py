"""The hall: one function, read top to bottom."""

from __future__ import annotations

import inspect
import json
import math
import reprlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, fields, replace
from functools import cache, partial
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from coterie.acceleration import accelerated
from coterie.agent import Agent
from coterie.arrays import FloatArray, as_number, digest, host, is_sparse, is_tensor, whole_number
from coterie.certificate import Certificate, Participant, Point, participants
from coterie.checkpoint import Checkpoint
from coterie.data import Table, encode_labels, read, validated_all
from coterie.data import split as split_table
from coterie.engines import Engine, Run
from coterie.engines import engine as find_engine
from coterie.errors import InvalidData, InvalidInput, InvalidProblem, UnknownName, did_you_mean
from coterie.factors import apart, stacked
from coterie.hosted import hosted
from coterie.kernels.boosting import log_sum
from coterie.methods import METHODS, Method
from coterie.methods import method as find_method
from coterie.methods.costs import LINK, Link, Sizes
from coterie.models import LinearModel, LowRankModel, PersonalModel
from coterie.networks import Network, star
from coterie.networks import network as find_network
from coterie.personal import Personal, margins
from coterie.problem import Problem
from coterie.progress import progress_watch
from coterie.result import History, Result
from coterie.rounds import Limits, Outcome
from coterie.sinks import LOGGER, Sink, followed

__all__ = [
    "check_fit",
    "choose_method",
    "dealt",
    "gather",
    "make_agents",
    "make_limits",
    "make_model",
    "make_network",
    "no_network",
    "points_of",
    "prepared",
    "solve",
    "ties_of",
]

SPLITS = ("samples", "features", "users")
DEFAULT_AGENTS = 8
LEARNED = "learned"


def solve(
    problem: Problem,
    data: Any,
    *more: Any,
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
    link: tuple[float, float] = (LINK.latency, LINK.bandwidth),
    progress: bool | None = None,
    callback: Sink | None = None,
    **options: Any,
) -> Result:
    """Learn one model from data that is apart, and prove how good it is.

    problem     what to minimise: `Problem(loss="logistic", penalty="l1", strength=1e-3)`
    data        `(X, y)` or `(X, y, weights)`, a `Table` (see `read`), or a *list* of those, one per party; there also
                callables that give one, called where that agent lives; and on a cluster `Rows` of its frames
    split       "samples" (rows are apart), "features" (columns are apart, labels at one party), or "users": a model for
                each, of data `(X, y, users)` with one label per row, or of a list with one entry per user
    agents      how many (8), or a list of sizes, row or column lists; a list of data fixes it
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
    link        seconds a hop and bits a second, with which "auto" reckons
    progress    a live line on the terminal (default: only if there is one)
    callback    is told (name, value, round) of every certificate on the way; `coterie.sinks` has some
    """
    if not isinstance(problem, Problem):
        raise InvalidProblem(
            f"the first argument is a Problem, e.g. co.Problem('logistic', 'l2', 1e-3), not {reprlib.repr(problem)}."
        )
    if more:
        raise InvalidProblem("the data is one argument: solve(problem, (X, y)) or solve(problem, (X, y, weights)).")
    seed = whole_number("seed", seed, least=0)
    if isinstance(problem, Personal) and split in SPLITS and split != "users":
        raise InvalidProblem(
            f"a personal problem has a model for every user, but the data is split by {split}. Use split='users' with "
            "(X, y, users), or a list with one entry per user."
        )
    limits = make_limits(tol, max_rounds, max_seconds, max_bits, check_every)
    runner = find_engine(engine)
    if (elsewhere := runner.hosting(data, agents)) is None:
        tables, classes = dealt(data, problem, split, agents, seed)
    else:
        runner, sources = elsewhere
        prepare = partial(prepared, problem=problem, split=split)
        tables, classes = hosted(sources, runner, prepare, split, problem.loss.kind in ("classes", "classification"))
    problem = problem.knowing(classes)
    check_fit(problem, sum(t.d for t in tables) if split == "features" else tables[0].d)
    graph = make_network(network, split, len(tables), seed)
    sizes = _sizes(tables, split, link)
    if isinstance(problem, Personal):
        problem = problem.but(learned=graph.name == LEARNED)
    chosen, explanation = choose_method(method, options, problem, split, graph, sizes, acceleration)
    chosen, problem = chosen.adapted(problem)
    if isinstance(problem, Personal):
        problem = problem.on(tables)
        graph = graph if chosen.uses_network else no_network(len(tables), "none")
    chosen.check(problem, graph)
    members = make_agents(tables, problem, split, graph, seed)
    steps = accelerated(chosen, acceleration, chosen.accelerated(problem))

    # The users' graph says who is alike, not who can reach whom: that is everybody, as if through a server.
    carrying = _around_a_server(len(tables)) if split == "users" else graph
    described = repr(graph) if split == "users" else graph.describe()
    settings = {
        "problem": problem.settings(),
        "method": chosen.settings(),
        "acceleration": "none" if steps is chosen else type(steps).__name__.lower(),
        "split": split,
        "partition": _partition(tables, split),
        "network": described,
        "network_digest": digest(graph.weights),
        "seed": seed,
        "limits": asdict(limits),
        "classes": None if classes is None else classes.tolist(),
    }
    people = participants(members)
    warm = None if warm_start is None else points_of(warm_start.model, members, warm_start.certificate.witness)
    if warm is not None and warm_start is not None and _same_data(warm_start.certificate, people, problem):
        warm = [replace(point, kept=warm_start.kept) for point in warm]
    origin = None if warm_start is None else warm_start.certificate.model_digest
    identity = digest(json.dumps({**settings, "limits": None}, sort_keys=True), origin, *(p.digest for p in people))
    saved = None if checkpoint is None else Checkpoint(checkpoint, identity)
    with progress_watch(progress if runner.speaks else False, chosen.name) as watch:
        LOGGER.info("%s on %s, %d parties", chosen.name, described, len(members))
        outcome = runner.run(Run(members, steps, carrying, limits, saved, warm, followed(watch, callback)))
    LOGGER.info("%s after %d rounds, gap %.3g", outcome.status, outcome.bill.rounds, outcome.bound.gap)

    model = make_model(outcome, members, problem, classes)
    certificate = Certificate.of(
        outcome.bound,
        outcome.facts,
        tolerance=tol,
        participants=people,
        settings=settings,
        model_digest=model.digest(),
        witness=tuple(np.empty(0) if point.v is None else point.v for point in outcome.points),
    )
    if isinstance(model, PersonalModel):
        graph = model.network
    history = History(outcome.history)
    kept = outcome.points[0].kept if outcome.points else None
    return Result(outcome.status, model, certificate, outcome.bill, history, graph, explanation, outcome.error, kept)


def gather(data: Any, split: str, agents: int | Sequence[Any] | None, seed: int = 0) -> list[Table]:
    """One table per agent: read what is given, and split it if it is in one piece."""
    if split not in SPLITS:
        raise UnknownName("split", split, SPLITS)
    if isinstance(data, list):
        if agents is not None and (isinstance(agents, bool) or agents != len(data)):
            raise InvalidData(f"the data comes from {len(data)} parties, so agents={agents!r} cannot be; leave it out.")
        # Already named while they are read, so that an error can name them.
        names = [None if isinstance(part, Table | str | Path) else f"party {index}" for index, part in enumerate(data)]
        given = [part() if callable(part) else part for part in data]
        tables = [read(part, name=name) for part, name in zip(given, names, strict=True)]
        if split == "users":
            _refuse_two_entries_of_one(tables)
        return [
            table if table.name != "data" else replace(table, name=f"party {index}")
            for index, table in enumerate(tables)
        ]
    whole, parts = _in_one_piece(data, split, agents)
    return split_table(whole, split, parts, seed=seed)


def _in_one_piece(data: Any, split: str, agents: int | Sequence[Any] | None) -> tuple[Table, Any]:
    """The whole, and who has what of it."""
    if split == "users" and isinstance(data, tuple) and len(data) == 3:
        return read(data[:2]), data[2]
    if isinstance(data, tuple) and data and all(isinstance(part, tuple | Table) for part in data):
        raise InvalidData("a tuple is one party's (X, y); give several parties as a list: [(X1, y1), (X2, y2)].")
    if data is None or isinstance(data, dict | Iterator):
        raise InvalidData(
            f"data is (X, y), a Table, or a list of those, not {type(data).__name__}; read files with co.read."
        )
    return read(data), DEFAULT_AGENTS if agents is None else agents


def dealt(
    data: Any, problem: Problem, split: str, agents: int | Sequence[Any] | None, seed: int = 0
) -> tuple[list[Table], npt.NDArray[Any] | None]:
    """What `gather` gives, `prepared`: data in one piece is checked in one piece, and then split."""
    if isinstance(data, list) or split not in SPLITS or problem.family != "linear":
        return prepared(gather(data, split, agents, seed), problem, split)
    whole, parts = _in_one_piece(data, split, agents)
    valid, classes = prepared([whole], problem, split)
    return split_table(valid[0], split, parts, seed=seed), classes


def _refuse_two_entries_of_one(tables: Sequence[Table]) -> None:
    times = Counter(table.name for table in tables if table.name != "data")
    if twice := [name for name, count in times.items() if count > 1]:
        raise InvalidData(
            f"user {str(twice[0])!r} has {times[twice[0]]} entries in the list. Give each user one, with all its rows."
        )


def prepared(tables: Sequence[Table], problem: Problem, split: str) -> tuple[list[Table], npt.NDArray[Any] | None]:
    """The tables checked, with labels −1 and +1 for a classification loss, in one precision; and the two classes."""
    if problem.family != "low-rank" or problem.task.kind == "entries":
        # Only the low-rank tasks compute with tensors where they are.
        tables = [replace(table, X=host(table.X)) if is_tensor(table.X) else table for table in tables]
    if problem.family == "low-rank":
        if split != "samples":
            raise InvalidProblem(f"low-rank models need data split by samples, but it is split by {split}.")
        known = validated_all(tables, split=split, classification=True if problem.task.kind == "classes" else None)
        valid, classes = problem.task.prepared(known)
        return _in_one_precision(valid), classes
    classification = problem.loss.kind == "classification"
    valid, classes = encode_labels(validated_all(tables, split=split, classification=classification), classification)
    if split != "features":
        valid = [_by_rows(table) for table in valid]
    return _in_one_precision(valid), classes


def points_of(
    model: LinearModel | LowRankModel | PersonalModel,
    members: Sequence[Agent],
    witness: Sequence[FloatArray] | None = None,
) -> list[Point]:
    """What each agent would put on the table for that model and those dual vectors, which must be of these parties."""
    _refuse_another_shape(model, members)
    if isinstance(model, PersonalModel):
        return _personal_points(model, members)
    if isinstance(model, LowRankModel):
        return [Point(stacked(model.U * model.s, model.V))] * len(members)
    sizes = [len(agent.labels) for agent in members]
    if witness is not None and (
        len(witness) != len(sizes) or any(len(v) not in (0, n) for v, n in zip(witness, sizes, strict=True))
    ):
        raise InvalidInput("the dual vectors do not belong to these parties; use those of a run on the same data.")
    if members[0].split == "features":
        blocks = _columns_of([agent.data for agent in members])
    else:
        blocks = [np.arange(len(model.coef_))] * len(members)
    points = []
    for index, (agent, block) in enumerate(zip(members, blocks, strict=True)):
        w = model.coef_[block]
        if agent.design.intercept:
            w = np.append(w, model.intercept_)
        v = None if witness is None or len(witness[index]) == 0 else witness[index]
        points.append(Point(w, v))
    if members[0].split == "features":
        # Each agent may have centred its columns; the one with the intercept makes good for all.
        debt = model.intercept_ - sum(agent.design.offset(p.w) for agent, p in zip(members, points, strict=True))
        for agent, point in zip(members, points, strict=True):
            if agent.design.intercept:
                point.w[-1] += debt
    return points


def _refuse_another_shape(model: LinearModel | LowRankModel | PersonalModel, members: Sequence[Agent]) -> None:
    """A model to start from, or to verify, is one of the same kind and for the same columns."""
    problem = members[0].problem
    if model.problem.family != problem.family:
        raise InvalidInput(f"that model is a {model.problem.family} one, but the problem asks for {problem.family}.")
    if isinstance(model, LowRankModel):
        known: tuple[int, ...] = (len(model.U), len(model.V))
        asked: tuple[int, ...] = problem.task.size(members[0].data)
    elif isinstance(problem, Personal):
        known, asked = (model.coef_.shape[1],), (problem.base.count,)
    else:
        width = sum(a.data.d for a in members) if members[0].split == "features" else members[0].data.d
        known, asked = (len(model.coef_),), (width,)
    if known != asked:
        raise InvalidInput(
            f"that model has {' x '.join(map(str, known))} coefficients, but this data and problem ask for "
            f"{' x '.join(map(str, asked))}; use a model of the same columns."
        )


def _by_rows(table: Table) -> Table:
    """Dense rows one after the other in memory, as methods for samples read them; data frames come by columns."""
    dense = isinstance(table.X, np.ndarray)
    return replace(table, X=np.ascontiguousarray(table.X)) if dense and not table.X.flags.c_contiguous else table


def _in_one_precision(tables: list[Table]) -> list[Table]:
    """Float32 where all parties have it, float64 as soon as one has that: letters of both kinds cannot be added."""
    if any(is_tensor(table.X) for table in tables):
        return tables
    finest = np.result_type(*(table.X.dtype for table in tables))
    return [
        table
        if table.X.dtype == finest
        else replace(table, X=table.X.astype(finest), y=None if table.y is None else table.y.astype(finest))
        for table in tables
    ]


def _partition(tables: Sequence[Table], split: str) -> list[list[int]] | None:
    """Which rows or columns of the pooled data each agent has, or None if they are consecutive blocks."""
    held = [table.cols if split == "features" else table.rows for table in tables]
    known = [part for part in held if part is not None]
    if len(known) < len(held) or np.array_equal(np.concatenate(known), np.arange(sum(map(len, known)))):
        return None
    return [part.tolist() for part in known]


def _columns_of(tables: Sequence[Table]) -> list[npt.NDArray[np.intp]]:
    """Which columns of the whole each table has, split by features: as they were dealt, or one after the other."""
    ends = np.cumsum([table.d for table in tables])
    return [
        np.arange(end - table.d, end) if table.cols is None else table.cols
        for table, end in zip(tables, ends, strict=True)
    ]


def make_agents(tables: Sequence[Table], problem: Problem, split: str, graph: Network, seed: int) -> list[Agent]:
    """What each agent may see."""
    blocks = _columns_of(tables)
    members = []
    for index, table in enumerate(tables):
        own = problem.restrict(blocks[index]) if split == "features" else problem
        neighbours = () if graph.server else graph.neighbours(index)
        ties = ties_of(graph, index, split)
        members.append(Agent(index, len(tables), table, own, split, neighbours, seed, ties=ties))
    return members


def ties_of(graph: Network, index: int, split: str) -> tuple[float, ...]:
    """The weights of an agent's neighbours in the collaboration graph."""
    if split != "users" or graph.server:
        return ()
    return tuple(graph.weights.data[slice(*graph.weights.indptr[index : index + 2])].tolist())


def check_fit(problem: Problem, columns: int) -> None:
    """Refuse a penalty with bounds or groups for another number of columns."""
    if problem.family == "low-rank":
        return
    try:
        problem.penalty.value(problem.penalty.prox(np.zeros(columns), 1.0))
    except (ValueError, IndexError) as error:
        raise InvalidProblem(f"the {problem.penalty.name} penalty does not fit {columns} columns: {error}") from error


def make_limits(
    tol: float, max_rounds: int, max_seconds: float | None, max_bits: float | None, check_every: int | None
) -> Limits:
    """When to stop, if these numbers make sense."""
    max_rounds = whole_number("max_rounds", max_rounds, least=0)
    if check_every is not None:
        check_every = whole_number("check_every", check_every)
    numbers = {"tol": tol, "max_seconds": max_seconds, "max_bits": max_bits}
    for name, value in numbers.items():
        optional = name != "tol"
        if not (isinstance(value, Real) or (optional and value is None)):
            raise InvalidProblem(f"{name} must be a number{' or None' if optional else ''}, not {value!r}.")
    if not 0 < tol < 1:
        raise InvalidProblem(
            f"tol is a relative duality gap between 0 and 1, not {tol!r}; 1e-6 is usual, 0 is never reached."
        )
    for name, value in numbers.items():
        if value is not None and not value >= 0:
            raise InvalidProblem(f"{name} must not be negative, not {value!r}.")
    seconds, bits = (None if value is None else float(value) for value in (max_seconds, max_bits))
    return Limits(float(tol), max_rounds, seconds, bits, check_every)


def make_network(spec: Any, split: str, agents: int, seed: int) -> Network:
    """The network that is meant; where nothing is said, what suits the split."""
    if split == "users":
        if spec is None or (isinstance(spec, str) and spec == LEARNED):
            return no_network(agents, LEARNED)
        return find_network(spec, agents, seed=seed, connected=False)
    if spec is None:
        spec = "star" if split == "samples" else "complete"
    if split == "samples" and isinstance(spec, str) and spec == "star":
        return _around_a_server(agents)
    return find_network(spec, agents, seed=seed)


@cache
def _around_a_server(agents: int) -> Network:
    return star(agents, server=True)


def no_network(agents: int, name: str) -> Network:
    """Nobody knows of anybody, at first or at all."""
    return Network(sp.csr_array((agents, agents)), name=name)


def _sizes(tables: Sequence[Table], split: str, link: tuple[float, float]) -> Sizes:
    rows = [table.n for table in tables]
    columns = [table.d for table in tables]
    nonzeros = sum(int(table.X.nnz) if is_sparse(table.X) else math.prod(table.X.shape) for table in tables)
    if not (len(link) == 2 and all(as_number(part) > 0 for part in link) and as_number(link[0]) < np.inf):
        raise InvalidProblem(f"link is (seconds a hop, bits a second), two positive numbers, not {link!r}.")
    whole = (rows[0], sum(columns)) if split == "features" else (sum(rows), columns[0])
    return Sizes(*whole, nonzeros, len(tables), Link(float(link[0]), float(link[1])))


def _same_data(before: Certificate, people: Sequence[Participant], problem: Problem) -> bool:
    """Whether that certificate is about the same rows, the same loss and the same columns."""
    then, now = before.settings["problem"], problem.settings()
    alike = then["loss"] == now["loss"] and then["intercept"] == now["intercept"]
    return alike and [p.digest for p in before.participants] == [p.digest for p in people]


def choose_method(
    name: str | Method,
    options: dict[str, Any],
    problem: Problem,
    split: str,
    graph: Network,
    sizes: Sizes,
    acceleration: str = "auto",
) -> tuple[Method, str]:
    """The method, and a sentence that says which one and why."""
    fitting = {
        known: entry for known, entry in METHODS.items() if entry.split == split and entry.family == problem.family
    }
    explanation = "as asked for"
    if name == "auto":
        able = {known: entry for known, entry in fitting.items() if _accepts(entry, options, acceleration)} or fitting
        appeals = {known: entry.appeal(problem, graph, sizes) for known, entry in able.items()}
        liked = {known: appeal for known, appeal in appeals.items() if appeal is not None}
        if not liked:
            raise InvalidProblem(f"there is no method yet for this problem on data split by {split}.")
        name = max(liked, key=lambda known: liked[known][0])
        explanation = f"chosen for its {liked[name][1]}"
    if isinstance(name, Method) and options:
        raise InvalidProblem(
            f"{', '.join(options)}: give the parameters to the Method itself, e.g. replace(method, ...)."
        )
    parameters = [field.name for field in fields(METHODS[name])] if isinstance(name, str) else []
    for option in options.keys() - parameters:
        settings = inspect.getfullargspec(solve).kwonlyargs
        hint = did_you_mean(option, [*parameters, *settings]) or f"It takes {', '.join(parameters) or 'none'}."
        raise InvalidProblem(f"{option} is neither a setting of solve nor a parameter of method {name!r}. {hint}")
    chosen = find_method(name, **options)
    if chosen.split != split:
        raise InvalidProblem(
            f"method {chosen.name!r} needs data split by {chosen.split}, but it is split by {split}. "
            f"For {split}: {', '.join(fitting) or 'none yet'}."
        )
    if chosen.family != problem.family:
        raise InvalidProblem(
            f"method {chosen.name!r} learns {chosen.family} models, but {problem.loss.name} with "
            f"{problem.penalty.name} asks for a {problem.family} one. For it: {', '.join(fitting) or 'none yet'}."
        )
    return chosen, f"Method {chosen.name} ({chosen.summary}), {explanation}."


def _accepts(entry: type[Method], options: dict[str, Any], acceleration: str) -> bool:
    """Whether those parameters are that method's: who asks for rho, or to accelerate, asks for a method that can."""
    able = acceleration in ("auto", "none") or entry.coordinates is not Method.coordinates
    return able and options.keys() <= {field.name for field in fields(entry)}


def make_model(
    outcome: Outcome, members: Sequence[Agent], problem: Problem, classes: Any
) -> LinearModel | LowRankModel | PersonalModel:
    """What those agents, all or some, know of the model."""
    if isinstance(problem, Personal):
        return _personal_model(outcome, members, problem, classes)
    if problem.family == "low-rank":
        first = members[0].data
        factors = apart(outcome.points[0].w, problem.task.size(first)[0])
        return LowRankModel.from_factors(*factors, problem, classes, first.columns)
    if members[0].split != "features":
        w: FloatArray = outcome.points[0].w
        coef, intercept = problem.coefficients(w), float(w[-1]) if problem.intercept else 0.0
        return LinearModel(coef.astype(members[0].design.dtype), intercept, problem, classes, members[0].data.columns)
    coef = np.concatenate(
        [problem.coefficients(p.w, a.design.intercept) for a, p in zip(members, outcome.points, strict=True)]
    )
    placed = np.empty_like(coef, members[0].design.dtype)
    placed[np.concatenate(_columns_of([a.data for a in members]))] = coef
    intercept = sum(a.design.offset(p.w) for a, p in zip(members, outcome.points, strict=True))
    return LinearModel(placed, intercept, problem, classes, _column_names(members))


def _personal_model(
    outcome: Outcome, members: Sequence[Agent], problem: Personal, classes: npt.NDArray[Any]
) -> PersonalModel:
    """Everybody's model, and the graph: an edge has the smaller of the two weights that its ends hold."""
    K = len(members)
    rows = [np.empty(0) if point.v is None else point.v for point in outcome.points]
    ends = np.concatenate([[0], np.cumsum([row.size // 2 for row in rows])])
    peers, held = (np.concatenate([np.split(row, 2)[part] for row in rows]) for part in (0, 1))
    directed = sp.csr_array((held, peers.astype(np.intp), ends), shape=(K, K))
    weights = sp.csr_array(directed.minimum(directed.T))
    weights.eliminate_zeros()
    coef = sp.csr_array(np.array([point.w for point in outcome.points]))
    largest = max(agent.data.n for agent in members)
    confidence = np.array([agent.data.n / largest for agent in members])
    losses = np.array([log_sum(margins(a), p.w) for a, p in zip(members, outcome.points, strict=True)])
    users = tuple(agent.data.name for agent in members)
    first = members[0].data
    return PersonalModel(coef, users, weights, confidence, losses, problem, classes, first.columns, first.d)


def _personal_points(model: PersonalModel, members: Sequence[Agent]) -> list[Point]:
    if len(model.users) != len(members):
        raise InvalidInput(f"the model is of {len(model.users)} users, but there are {len(members)} here.")
    points = []
    for index in range(len(members)):
        edges = slice(*model.weights.indptr[index : index + 2])
        row = np.concatenate([model.weights.indices[edges].astype(float), model.weights.data[edges]])
        points.append(Point(model.coef_[[index]].toarray()[0], row))
    return points


def _column_names(members: Sequence[Agent]) -> tuple[str, ...] | None:
    names = [a.data.columns for a in members]
    if any(own is None for own in names):
        return None
    order = np.argsort(np.concatenate(_columns_of([a.data for a in members])))
    flat = [name for own in names if own is not None for name in own]
    return tuple(flat[j] for j in order)
