"""Predict the cost of a run: rounds, bytes per party, and seconds for a link and an engine.

A part of the rows is fitted in this process. The whole data needs as many rounds as the part,
because the objective is a mean. The messages and the computation of a round are measured on the
part and on half of it, and extrapolated linearly to all rows:

    seconds = turns · (latency + engine's time a turn) + bits of the busiest party / bandwidth +
    computing + start
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from coterie.api.result import Result
from coterie.api.solve import fit
from coterie.data import Table
from coterie.data.preparation.recipes import Preparation
from coterie.engines import engine as find_engine
from coterie.errors import count
from coterie.methods import METHODS
from coterie.methods.auto.costs import Link, Sizes
from coterie.methods.columns.column_costs import numbers_sent
from coterie.numerics.arrays import FloatArray, is_sparse, whole_number
from coterie.problems.problem import AnyProblem
from coterie.run.settings import Algorithm, Limits, Placement, Settings
from coterie.run.setup import make_link
from coterie.run.tables import attach_offset, count_rows, gather

PART = 4000
"""The maximum number of rows that are fitted, of all parties together."""
PATIENCE_SECONDS = 20.0
"""The time limit of one fit of a part; a longer run is extrapolated by its trend."""


@dataclass(frozen=True)
class Plan:
    """The predicted cost of a run, and the basis of the prediction."""

    method: str
    explanation: str
    rounds: int
    bits_per_party: tuple[int, ...]
    """The bits that each party would send; with a server, the server is the last entry."""
    turns: int
    """The number of hops that follow each other."""
    wire_seconds: float
    computing_seconds: float
    engine_seconds: float
    basis: str
    about: str = ""
    """Description of the problem: loss, penalty, and whether there is an intercept."""
    intercept: bool = False
    numbers_per_row: dict[str, float] = field(default_factory=dict)
    """Split by features: the expected numbers that methods send per row, by the names of the
    methods. `blocks` moves the columns.
    """

    @property
    def bits(self) -> int:
        """The bits that all parties would send together."""
        return sum(self.bits_per_party)

    @property
    def seconds(self) -> float:
        """The duration of the run."""
        return self.wire_seconds + self.computing_seconds + self.engine_seconds


def plan(
    problem: AnyProblem,
    data: Any,
    *,
    offset: Any = None,
    split: str = Placement.split,
    agents: int | Sequence[Any] | None = Placement.agents,
    network: Any = Settings.network,
    method: Any = Algorithm.method,
    engine: Any = Placement.engine,
    tol: float = Limits.tol,
    seed: int = Settings.seed,
    link: tuple[float, float] | None = Placement.link,
    **settings: Any,
) -> Plan:
    """Predict the cost of `solve` with these arguments.

    Parameters
    ----------
    problem : Problem
        The problem to fit.
    data : one party's data, a list, or a pair of int
        Data as `solve` takes it; or two whole numbers: the rows and columns of made-up data, of
        which only as many rows are made as are fitted.
    offset : array or list of arrays, optional
        A number per row that is added to its score, as in `solve`.
    split : {"samples", "features", "users"}, default="samples"
        Whether each party holds rows, columns, or the rows of one user.
    agents : int or list, optional
        Number of agents that hold data which is given in one piece, as in `solve`.
    network : str, Network or None, optional
        The network of the agents, as in `solve`.
    method : str or Method, default="auto"
        The method, as in `solve`.
    engine : str or Engine, default="local"
        The engine that would run the agents. The plan starts no engine.
    tol : float, default=1e-6
        Relative duality gap at which the run would stop.
    seed : int, default=0
        Random seed.
    link : tuple of float, optional
        Seconds per hop, and bits per second. By default as in `solve`.
    **settings
        Other keywords of `solve`.

    Returns
    -------
    Plan

    Examples
    --------
    >>> import coterie as co
    >>> planned = co.plan(co.Problem("squared", "l2", 0.1), (200, 5), agents=2)
    >>> planned.method, planned.rounds
    ('gram', 1)
    """
    asked = Settings.of(
        split=split,
        agents=agents,
        network=network,
        method=method,
        engine=engine,
        tol=tol,
        **settings,
    )
    return plan_of(problem, data, asked.but(seed=seed, link=link), offset)


def plan_of(problem: AnyProblem, data: Any, settings: Settings, offset: Any = None) -> Plan:
    """Predict the cost of a run with settings that are made already; see `plan`."""
    placement = settings.placement
    split = placement.split
    runner = find_engine(placement.engine)
    link = make_link(placement.link, runner.in_memory)
    tables, rows = _rows_to_fit(problem, data, settings, offset)
    fits = _fits_of_parts(problem, tables, rows, settings, link)
    first = fits[0].result
    rounds = _rounds(first, settings.limits.tol)

    def bits_of(fit: _PartFit) -> FloatArray:
        bits = np.array([cost.bits for cost in fit.result.bill.per_agent], float)
        return bits * _longer(fit.result, rounds)

    def computing_of(fit: _PartFit) -> float:
        return fit.cpu_seconds * _longer(fit.result, rounds) / machines

    machines = len(tables)
    if link.memory:
        machines = 1
    numbers_per_row = {}
    bits = bits_of(fits[0])
    if split == "features":  # only then do messages grow with the rows
        bits = _for_all_rows([bits_of(fit) for fit in fits], fits, rows)
        numbers_per_row = _numbers_per_row(problem, first, tables)
    computing = _for_all_rows([computing_of(fit) for fit in fits], fits, rows)
    turns = first.bill.seconds(latency=1.0, bandwidth=math.inf) * _longer(first, rounds)
    sent = tuple(int(each) for each in np.ceil(bits))
    fitted = f"{fits[0].rows:,} of {rows:,} rows fitted here"
    return Plan(
        method=first.certificate.settings["method"]["name"],
        explanation=first.explanation,
        rounds=rounds,
        bits_per_party=sent,
        turns=round(turns),
        wire_seconds=turns * link.latency + max(sent) / link.bandwidth,
        computing_seconds=float(computing),
        engine_seconds=turns * runner.turn_seconds + runner.start_seconds,
        basis=f"{fitted}: {count(first.rounds, 'round')}, {first.status}",
        about=first.about,
        intercept=first.has_intercept,
        numbers_per_row=numbers_per_row,
    )


@dataclass(frozen=True)
class _PartFit:
    """A fit of a part of the rows."""

    rows: int
    result: Result
    cpu_seconds: float


def _rows_to_fit(
    problem: AnyProblem, data: Any, settings: Settings, offset: Any
) -> tuple[list[Table], int]:
    """Read or make up the tables; with the number of rows that the plan is about."""
    placement = settings.placement
    split = placement.split
    agents = placement.agents
    seed = whole_number("seed", settings.seed, least=0)
    prepare = None
    if settings.prepare is not None:
        prepare = Preparation.of(settings.prepare)
    imagined = _imagined_rows(data)
    if imagined is None:
        data = attach_offset(data, offset, split, prepare)
        agents = problem.kind.data.agents(problem, data, agents)
    else:
        data = attach_offset(_made_up(problem, data, seed), offset, split, prepare)
    pieces = problem.kind.data.pieces
    tables = gather(data, split, agents, seed, pieces, prepare, placement.same_order)
    return tables, imagined or count_rows(tables, split)


def _fits_of_parts(
    problem: AnyProblem, tables: list[Table], rows: int, settings: Settings, link: Link
) -> list[_PartFit]:
    """Fit at most `PART` rows; and half of these, if the data has more rows than that."""
    split = settings.placement.split
    seed = whole_number("seed", settings.seed, least=0)
    part_settings = _for_parts(settings, link)
    largest = min(1.0, PART / count_rows(tables, split))
    shares = [largest]
    if rows > PART:
        shares.append(largest / 2)
    fits = []
    for share in shares:
        part = _part(tables, split, share, seed)
        began = time.process_time()
        result = fit(problem, part, part_settings)
        spent = time.process_time() - began
        if isinstance(settings.algorithm.method, str):
            method = result.certificate.settings["method"]["name"]
            part_settings = part_settings.but(method=method)
        fits.append(_PartFit(count_rows(part, split), result, spent))
    return fits


def _for_all_rows(values: list[Any], fits: list[_PartFit], rows: int) -> Any:
    """Extrapolate linearly, from the values for two parts, to all rows; never downwards."""
    if len(fits) == 1:
        return values[0]
    at_part, at_half = values
    part, half = fits
    per_row = (at_part - at_half) / (part.rows - half.rows)
    return at_part + np.maximum(per_row, 0.0) * (rows - part.rows)


def _longer(fit: Result, rounds: int) -> float:
    """The number of predicted rounds, relative to the rounds of this fit."""
    return rounds / max(1, fit.rounds)


def _for_parts(settings: Settings, link: Link) -> Settings:
    """Settings to fit parts of the rows in this process, with a time limit and the plan's link."""
    if settings.limits.max_seconds is None:
        settings = settings.but(max_seconds=PATIENCE_SECONDS)
    speeds = None
    if not link.memory:
        speeds = (link.latency, link.bandwidth)
    progress = bool(settings.progress)
    return settings.but(engine=Placement.engine, agents=None, link=speeds, progress=progress)


def _numbers_per_row(problem: Any, fit: Result, tables: Sequence[Table]) -> dict[str, float]:
    """Estimate what methods for columns send per row, without methods that refuse this penalty."""
    columns = sum(table.d for table in tables)
    nonzeros = sum(map(_nonzeros, tables))
    sizes = Sizes(tables[0].n, columns, nonzeros, len(tables))
    able = ["tree"]
    for name in ("lbfgs", "blocks"):
        if METHODS[name].score(problem, fit.network, sizes):
            able.append(name)
    sent = numbers_sent(problem, fit.network, sizes)
    return {name: sent[name] / sizes.rows for name in sorted(able, key=lambda name: sent[name])}


def _nonzeros(table: Table) -> int:
    if is_sparse(table.X):
        return int(table.X.nnz)
    return int(np.count_nonzero(table.X))


def _rounds(fit: Result, tol: float) -> int:
    """The rounds of a fit; if it ran out of time, the rounds that follow from its trend."""
    last = fit.history[-1]
    target = tol * fit.certificate.unit
    if fit.certificate.gap <= target or len(fit.history) < 3:
        return max(1, fit.rounds)
    earlier = fit.history[len(fit.history) // 2]
    if not last.gap < earlier.gap:
        return 10 * last.round
    rate = math.log(earlier.gap / last.gap) / (last.round - earlier.round)
    return last.round + math.ceil(math.log(last.gap / target) / rate)


def _part(tables: Sequence[Table], split: str, share: float, seed: int) -> list[Table]:
    """Draw that share of the rows: of every party's own, or, split by features, the same rows of
    all.
    """
    if share >= 1.0:
        return list(tables)
    rng = np.random.default_rng(seed)
    common = np.sort(rng.choice(tables[0].n, max(2, round(share * tables[0].n)), replace=False))
    parts = []
    for table in tables:
        rows = common
        if split != "features":
            count = min(table.n, max(2, round(share * table.n)))
            rows = np.sort(rng.choice(table.n, count, replace=False))
        parts.append(replace(table.take_rows(rows), rows=None))
    return parts


def _imagined_rows(data: Any) -> int | None:
    """The number of rows of made-up data; None for real data."""
    if not isinstance(data, tuple) or len(data) != 2:
        return None
    if not all(isinstance(part, int) for part in data):
        return None
    return whole_number("rows", data[0])


def _made_up(problem: AnyProblem, data: Any, seed: int) -> Any:
    """Make Gaussian data of that shape, or its first rows, with labels from a model and noise."""
    n = min(data[0], PART)
    d = whole_number("columns", data[1])
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    scores = X @ rng.standard_normal(d) / math.sqrt(d) + 0.5 * rng.standard_normal(n)
    return X, problem.kind.data.made_up(problem, scores)
