"""The hall: one function, read top to bottom."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from importlib.metadata import version
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from coterie.acceleration import accelerated
from coterie.agent import Agent
from coterie.arrays import FloatArray, digest
from coterie.certificate import Certificate, Point, participants
from coterie.checkpoint import Checkpoint
from coterie.data import Table, encode_labels, read, validated_all
from coterie.data import split as split_table
from coterie.engines import Engine
from coterie.engines import engine as find_engine
from coterie.errors import InvalidData, InvalidInput, InvalidProblem, UnknownName
from coterie.methods import METHODS, Method
from coterie.methods import method as find_method
from coterie.models import LinearModel
from coterie.networks import Network, star
from coterie.networks import network as find_network
from coterie.problem import Problem
from coterie.progress import progress_watch
from coterie.result import History, Result
from coterie.rounds import Limits, Outcome

__all__ = ["gather", "make_agents", "points_of", "prepared", "solve"]

SPLITS = ("samples", "features")
DEFAULT_AGENTS = 8


def solve(
    problem: Problem,
    data: Any,
    *,
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
    progress: bool | None = None,
    **options: Any,
) -> Result:
    """Learn one model from data that is apart, and prove how good it is.

    problem     what to minimise: `Problem(loss="logistic", penalty="l1", strength=1e-3)`
    data        `(X, y)` or `(X, y, weights)`, a `Table` (see `read`), or a *list* of those, one per party
    split       "samples" (rows are apart) or "features" (columns are apart, labels at one party)
    agents      how many (8), or a list of sizes, row or column lists; a list of data fixes it
    network     a name, a `Network`, a networkx graph, an adjacency matrix, or an edge file
    method      a name, a `Method`, or "auto"; its parameters may follow as keywords, e.g. `rho=1.0`
    engine      where agents run
    acceleration "auto" (what suits the method and the problem), "anderson", "relaxation", or "none": as published
    tol         stop when gap ≤ tol · P(0)
    check_every rounds between two certificates; by default, after the first few, they cost about 5 % of the traffic
    checkpoint  a folder: if the run stops for any reason, the same call continues it
    warm_start  a result for the same parties, from whose model and dual to start
    progress    a live line on the terminal (default: only if there is one)
    """
    if not isinstance(problem, Problem):
        raise InvalidProblem(
            f"the first argument is a Problem, e.g. co.Problem('logistic', 'l2', 1e-3), not {problem!r}."
        )
    if not (isinstance(seed, int | np.integer) and seed >= 0):
        raise InvalidProblem(f"seed must be a whole number from 0, not {seed!r}.")
    seed = int(seed)
    limits = _limits(tol, max_rounds, max_seconds, max_bits, check_every)
    tables = gather(data, split, agents, seed)
    tables, classes = prepared(tables, problem, split)
    _check_fit(problem, sum(t.d for t in tables) if split == "features" else tables[0].d)
    graph = _network(network, split, len(tables), seed)
    chosen, explanation = _choose(method, options, problem, split, graph)
    chosen.check(problem, graph)
    members = make_agents(tables, problem, split, graph, seed)
    steps = accelerated(chosen, acceleration, chosen.accelerated(problem))

    settings = {
        "problem": problem.settings(),
        "method": chosen.settings(),
        "acceleration": "none" if steps is chosen else type(steps).__name__.lower(),
        "split": split,
        "partition": _partition(tables, split),
        "network": graph.describe(),
        "network_digest": digest(graph.weights),
        "seed": seed,
        "limits": asdict(limits),
        "classes": None if classes is None else classes.tolist(),
    }
    people = participants(members)
    warm = None if warm_start is None else points_of(warm_start.model, members, warm_start.certificate.witness)
    origin = None if warm_start is None else warm_start.certificate.model_digest
    identity = digest(json.dumps({**settings, "limits": None}, sort_keys=True), origin, *(p.digest for p in people))
    saved = None if checkpoint is None else Checkpoint(checkpoint, identity)
    with progress_watch(progress, chosen.name) as watch:
        outcome = find_engine(engine).run(members, steps, graph, limits, saved, warm, watch)

    model = _model(outcome, members, problem, classes)
    certificate = Certificate(
        primal=outcome.bound.primal,
        dual=outcome.bound.dual,
        gap=outcome.bound.gap,
        relative_gap=outcome.bound.gap / outcome.primal_at_zero if outcome.primal_at_zero else outcome.bound.gap,
        tolerance=tol,
        radius=outcome.bound.radius,
        primal_at_zero=outcome.primal_at_zero,
        participants=people,
        settings=settings,
        model_digest=model.digest(),
        witness=tuple(np.empty(0) if point.v is None else point.v for point in outcome.points),
        version=version("coterie"),
    )
    history = History(outcome.history)
    return Result(outcome.status, model, certificate, outcome.bill, history, graph, explanation, outcome.error)


def gather(data: Any, split: str, agents: int | Sequence[Any] | None, seed: int = 0) -> list[Table]:
    """One table per agent: read what is given, and split it if it is in one piece."""
    if split not in SPLITS:
        raise UnknownName("split", split, SPLITS)
    if isinstance(data, list):
        if agents is not None and agents != len(data):
            raise InvalidData(f"the data comes from {len(data)} parties, so agents={agents!r} cannot be; leave it out.")
        tables = [read(part) for part in data]
        return [
            table if table.name != "data" else replace(table, name=f"party {index}")
            for index, table in enumerate(tables)
        ]
    if isinstance(data, tuple) and data and all(isinstance(part, tuple | Table) for part in data):
        raise InvalidData("a tuple is one party's (X, y); give several parties as a list: [(X1, y1), (X2, y2)].")
    if data is None or isinstance(data, dict | Iterator):
        raise InvalidData(
            f"data is (X, y), a Table, or a list of those, not {type(data).__name__}; read files with co.read."
        )
    return split_table(read(data), split, DEFAULT_AGENTS if agents is None else agents, seed=seed)


def prepared(tables: Sequence[Table], problem: Problem, split: str) -> tuple[list[Table], npt.NDArray[Any] | None]:
    """The tables checked, with labels −1 and +1 for a classification loss, in one precision; and the two classes."""
    classification = problem.loss.kind == "classification"
    valid, classes = encode_labels(validated_all(tables, split=split, classification=classification), classification)
    return _in_one_precision(valid), classes


def points_of(model: LinearModel, members: Sequence[Agent], witness: Sequence[FloatArray] | None = None) -> list[Point]:
    """What each agent would put on the table for that model and those dual vectors, which must be of these parties."""
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
            w = np.append(w, np.asarray(model.intercept_, w.dtype))
        v = None if witness is None or len(witness[index]) == 0 else witness[index]
        points.append(Point(w, v))
    return points


def _in_one_precision(tables: list[Table]) -> list[Table]:
    """Float32 where all parties have it, float64 as soon as one has that: letters of both kinds cannot be added."""
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
        members.append(Agent(index, len(tables), table, own, split, neighbours, seed))
    return members


def _check_fit(problem: Problem, columns: int) -> None:
    """Refuse a penalty with bounds or groups for another number of columns, or one for matrices."""
    try:
        problem.penalty.value(problem.penalty.prox(np.zeros(columns), 1.0))
    except (ValueError, IndexError) as error:
        raise InvalidProblem(f"the {problem.penalty.name} penalty does not fit {columns} columns: {error}") from error


def _limits(
    tol: float, max_rounds: int, max_seconds: float | None, max_bits: float | None, check_every: int | None
) -> Limits:
    numbers = {"tol": tol, "max_rounds": max_rounds, "max_seconds": max_seconds, "max_bits": max_bits}
    for name, value in numbers.items():
        optional = name in ("max_seconds", "max_bits")
        if not (isinstance(value, Real) or (optional and value is None)):
            raise InvalidProblem(f"{name} must be a number{' or None' if optional else ''}, not {value!r}.")
    if not 0 < tol < 1:
        raise InvalidProblem(
            f"tol is a relative duality gap between 0 and 1, not {tol!r}; 1e-6 is usual, 0 is never reached."
        )
    for name, value in numbers.items():
        if value is not None and not value >= 0:
            raise InvalidProblem(f"{name} must not be negative, not {value!r}.")
    if check_every is not None and check_every < 1:
        raise InvalidProblem(f"check_every counts rounds between two certificates: at least 1, not {check_every!r}.")
    seconds, bits = (None if value is None else float(value) for value in (max_seconds, max_bits))
    return Limits(float(tol), int(max_rounds), seconds, bits, check_every)


def _network(spec: Any, split: str, agents: int, seed: int) -> Network:
    if spec is None:
        spec = "star" if split == "samples" else "complete"
    if split == "samples" and isinstance(spec, str) and spec == "star":
        return star(agents, server=True)
    return find_network(spec, agents, seed=seed)


def _choose(
    name: str | Method, options: dict[str, Any], problem: Problem, split: str, graph: Network
) -> tuple[Method, str]:
    fitting = {known: entry for known, entry in METHODS.items() if entry.split == split}
    explanation = "as asked for"
    if name == "auto":
        appeals = {known: entry.appeal(problem, graph) for known, entry in fitting.items()}
        liked = {known: appeal for known, appeal in appeals.items() if appeal is not None}
        if not liked:
            raise InvalidProblem(f"there is no method yet for this problem on data split by {split}.")
        name = max(liked, key=lambda known: liked[known][0])
        explanation = f"chosen for its {liked[name][1]}"
    if isinstance(name, Method) and options:
        raise InvalidProblem(
            f"{', '.join(options)}: give the parameters to the Method itself, e.g. replace(method, ...)."
        )
    try:
        chosen = find_method(name, **options)
    except TypeError as error:
        raise InvalidProblem(f"method {name!r}: {error}.") from error
    if chosen.split != split:
        raise InvalidProblem(
            f"method {chosen.name!r} needs data split by {chosen.split}, but it is split by {split}. "
            f"For {split}: {', '.join(fitting) or 'none yet'}."
        )
    return chosen, f"Method {chosen.name} ({chosen.summary}), {explanation}."


def _model(outcome: Outcome, members: Sequence[Agent], problem: Problem, classes: Any) -> LinearModel:
    if members[0].split != "features":
        w: FloatArray = outcome.points[0].w
        coef, intercept = problem.coefficients(w), float(w[-1]) if problem.intercept else 0.0
        return LinearModel(np.array(coef), intercept, problem, classes, members[0].data.columns)
    coef = np.concatenate(
        [problem.coefficients(p.w, a.design.intercept) for a, p in zip(members, outcome.points, strict=True)]
    )
    placed = np.empty_like(coef)
    placed[np.concatenate(_columns_of([a.data for a in members]))] = coef
    intercept = next((float(p.w[-1]) for a, p in zip(members, outcome.points, strict=True) if a.design.intercept), 0.0)
    return LinearModel(placed, intercept, problem, classes, _column_names(members))


def _column_names(members: Sequence[Agent]) -> tuple[str, ...] | None:
    names = [a.data.columns for a in members]
    if any(own is None for own in names):
        return None
    order = np.argsort(np.concatenate(_columns_of([a.data for a in members])))
    flat = [name for own in names if own is not None for name in own]
    return tuple(flat[j] for j in order)
