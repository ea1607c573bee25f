"""What a run would take, before it is run: rounds, bytes per party, and seconds for a link and an
engine.

A part of the rows is fitted in this process. Its rounds are those of the whole, because the
objective is a mean; what a
round sends and computes is measured on that part and on half of it, and continued in a straight
line to all rows:

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
from coterie.methods.auto.costs import Sizes
from coterie.methods.columns.column_costs import numbers_sent
from coterie.numerics.arrays import is_sparse, whole_number
from coterie.problems.problem import AnyProblem
from coterie.run.settings import Algorithm, Limits, Placement, Settings
from coterie.run.setup import make_link
from coterie.run.tables import attach_offset, count_rows, gather

PART = 4000
"""Rows that are fitted, of all parties together."""
PATIENCE_SECONDS = 20.0
"""For one fit of them; a run that is longer is continued by its trend."""


@dataclass(frozen=True)
class Plan:
    """A prediction, and what it rests on."""

    method: str
    explanation: str
    rounds: int
    bits_per_party: tuple[int, ...]
    """What each party would send; with a server, its own account is the last."""
    turns: int
    """Hops that follow each other."""
    wire_seconds: float
    computing_seconds: float
    engine_seconds: float
    basis: str
    about: str = ""
    """Which problem it is about: loss, penalty, and whether there is an intercept."""
    intercept: bool = False
    numbers_per_row: dict[str, float] = field(default_factory=dict)
    """Split by features, what methods are expected to send, by name: `blocks` is to move the
    columns.
    """

    @property
    def bits(self) -> int:
        """Everything that would be sent."""
        return sum(self.bits_per_party)

    @property
    def seconds(self) -> float:
        """How long it would take."""
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
    """Predict what `solve` with these arguments would take.

    data    what `solve` takes, or two whole numbers: rows and columns of made-up data, of which no
            more rows are made than are fitted
    link    seconds per hop and bits per second; by default as in `solve`
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
    """What `plan` does, with settings that are made already."""
    placement, method = settings.placement, settings.algorithm.method
    split, agents = placement.split, placement.agents
    runner = find_engine(placement.engine)
    known = make_link(placement.link, runner.in_memory)
    seed = whole_number("seed", settings.seed, least=0)
    prepare = None if settings.prepare is None else Preparation.of(settings.prepare)
    imagined = _imagined_rows(data)
    given = attach_offset(
        data if imagined is None else _made_up(problem, data, seed), offset, split, prepare
    )
    if imagined is None:
        agents = problem.kind.data.agents(problem, given, agents)
    tables = gather(
        given, split, agents, seed, problem.kind.data.pieces, prepare, placement.same_order
    )
    held = count_rows(tables, split)
    rows = imagined or held
    part_settings = _for_parts(settings, None if known.memory else (known.latency, known.bandwidth))
    fits: list[tuple[int, Result, float]] = []
    for share in (1.0, 0.5) if rows > PART else (1.0,):
        part = _part(tables, split, share * min(1.0, PART / held), seed)
        began = time.process_time()
        result = fit(problem, part, part_settings)
        spent = time.process_time() - began
        if isinstance(method, str):
            part_settings = part_settings.but(method=result.certificate.settings["method"]["name"])
        fits.append((count_rows(part, split), result, spent))
    fitted, first, spent = fits[0]
    rounds = _rounds(first, settings.limits.tol)

    def whole(of_a_fit: Any) -> Any:
        """What all rows need, on a straight line through what the parts would need in as many
        rounds.
        """
        at_part = of_a_fit(first, spent)
        if len(fits) == 1:
            return at_part
        half, second, half_spent = fits[1]
        slope = (at_part - of_a_fit(second, half_spent)) / (fitted - half)
        return at_part + np.maximum(slope, 0.0) * (rows - fitted)

    def longer(fit: Result) -> float:
        """How many times as many rounds are predicted as this fit had: exactly 1 if as many."""
        return rounds / max(1, fit.rounds)

    def bits_of(fit: Result, _: float) -> Any:
        return np.array([cost.bits for cost in fit.bill.per_agent]) * longer(fit)

    # Only where columns are apart do messages grow with the rows.
    bits = whole(bits_of) if split == "features" else bits_of(first, spent)
    turns = first.bill.seconds(latency=1.0, bandwidth=math.inf) * longer(first)
    machines = 1 if known.memory else len(tables)
    computing = whole(lambda fit, cpu: cpu * longer(fit) / machines)
    sent = tuple(int(each) for each in np.ceil(bits))
    return Plan(
        method=first.certificate.settings["method"]["name"],
        explanation=first.explanation,
        rounds=rounds,
        bits_per_party=sent,
        turns=round(turns),
        wire_seconds=turns * known.latency + max(sent) / known.bandwidth,
        computing_seconds=float(computing),
        engine_seconds=turns * runner.turn_seconds + runner.start_seconds,
        basis=(
            f"{fitted:,} of {rows:,} rows fitted here: {count(first.rounds, 'round')}, "
            f"{first.status}"
        ),
        about=first.about,
        intercept=first.has_intercept,
        numbers_per_row=_numbers_per_row(problem, first, tables) if split == "features" else {},
    )


def _for_parts(settings: Settings, link: tuple[float, float] | None) -> Settings:
    """Settings to fit parts of the rows in this process, with limited patience and the link of the
    plan.
    """
    if settings.limits.max_seconds is None:
        settings = settings.but(max_seconds=PATIENCE_SECONDS)
    return settings.but(
        engine=Placement.engine, agents=None, link=link, progress=bool(settings.progress)
    )


def _numbers_per_row(problem: Any, fit: Result, tables: Sequence[Table]) -> dict[str, float]:
    """What methods for columns are expected to send; those that are not for this penalty are not in
    it.
    """
    nonzeros = sum(
        int(np.count_nonzero(table.X)) if not is_sparse(table.X) else table.X.nnz
        for table in tables
    )
    sizes = Sizes(tables[0].n, sum(table.d for table in tables), nonzeros, len(tables))
    able = {
        name for name in ("lbfgs", "blocks") if METHODS[name].score(problem, fit.network, sizes)
    } | {"tree"}
    sent = numbers_sent(problem, fit.network, sizes)
    return {name: sent[name] / sizes.rows for name in sorted(able, key=lambda name: sent[name])}


def _rounds(fit: Result, tol: float) -> int:
    """How many rounds it takes, or, if the fit was not patient enough, would take by its trend."""
    last, target = fit.history[-1], tol * fit.certificate.unit
    if fit.certificate.gap <= target or len(fit.history) < 3:
        return max(1, fit.rounds)
    earlier = fit.history[len(fit.history) // 2]
    rate = (
        math.log(earlier.gap / last.gap) / (last.round - earlier.round)
        if last.gap < earlier.gap
        else 0.0
    )
    return (
        last.round + math.ceil(math.log(last.gap / target) / rate) if rate > 0 else 10 * last.round
    )


def _part(tables: Sequence[Table], split: str, share: float, seed: int) -> list[Table]:
    """That share of the rows: of every party's own, or, if split by features, the same rows of
    all.
    """
    if share >= 1.0:
        return list(tables)
    rng = np.random.default_rng(seed)
    common = np.sort(rng.choice(tables[0].n, max(2, round(share * tables[0].n)), replace=False))
    parts = []
    for table in tables:
        count = min(table.n, max(2, round(share * table.n)))
        rows = common if split == "features" else np.sort(rng.choice(table.n, count, replace=False))
        parts.append(replace(table.take_rows(rows), rows=None))
    return parts


def _imagined_rows(data: Any) -> int | None:
    """How many rows are asked for, where data is to be made up."""
    if not (
        isinstance(data, tuple) and len(data) == 2 and all(isinstance(part, int) for part in data)
    ):
        return None
    return whole_number("rows", data[0])


def _made_up(problem: AnyProblem, data: Any, seed: int) -> Any:
    """Gaussian data of that shape, or its first rows, with labels that follow a model and some
    noise.
    """
    n, d = min(data[0], PART), whole_number("columns", data[1])
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    scores = X @ rng.standard_normal(d) / math.sqrt(d) + 0.5 * rng.standard_normal(n)
    return X, problem.kind.data.made_up(problem, scores)
