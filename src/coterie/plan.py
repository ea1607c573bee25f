"""What a run would take, before it is run: rounds, bytes per party, and seconds for a link and an engine.

A part of the rows is fitted in this process. Its rounds are those of the whole, because the objective is a mean; what a
round sends and computes is measured on that part and on half of it, and continued in a straight line to all rows:

    seconds = turns · (latency + engine's time a turn) + bits of the busiest party / bandwidth + computing + start
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from coterie.arrays import whole_number
from coterie.data import Table
from coterie.engines import engine as find_engine
from coterie.errors import InvalidProblem
from coterie.families import family_of
from coterie.methods.costs import LINK
from coterie.problem import Problem
from coterie.result import Result
from coterie.session.tables import gather
from coterie.solve import solve

__all__ = ["Plan", "plan"]

PART = 4000
"""Rows that are fitted, of all parties together."""
PATIENCE_SECONDS = 20.0
"""For one fit of them; a run that is longer is continued by its trend."""
ENGINE_TURN = {"local": 0.0, "mpi": 1e-4, "ray": 2e-3, "spark": 1e-3, "peers": 1e-3}
"""Seconds that an engine adds to a hop: half of what a round of one `Sum` (two hops) of 500 numbers takes for 8 agents
on an idle machine with two cores. `benchmarks/engines.py` prints this line; on a busy machine, many times as much."""
ENGINE_START = {"local": 0.0, "mpi": 6.6, "ray": 8.4, "spark": 14.0, "peers": 5.0}
"""Seconds until a tiny fit is done where nothing runs yet, printed there, too. A session or a cluster that is up
already takes a second or two."""


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

    @property
    def bits(self) -> int:
        """Everything that would be sent."""
        return sum(self.bits_per_party)

    @property
    def seconds(self) -> float:
        """How long it would take."""
        return self.wire_seconds + self.computing_seconds + self.engine_seconds


def plan(
    problem: Problem,
    data: Any,
    *,
    split: str = "samples",
    agents: int | Sequence[Any] | None = None,
    network: Any = None,
    method: Any = "auto",
    engine: Any = "local",
    tol: float = 1e-6,
    seed: int = 0,
    link: tuple[float, float] = (LINK.latency, LINK.bandwidth),
    **settings: Any,
) -> Plan:
    """Predict what `solve` with these arguments would take.

    data    what `solve` takes, or two whole numbers: so many rows and columns of made-up data
    link    seconds per hop and bits per second
    """
    latency, bandwidth = link
    if not (latency >= 0 and bandwidth > 0):
        raise InvalidProblem(f"link takes two positive numbers, (seconds per hop, bits per second), not {link!r}.")
    seed = whole_number("seed", seed, least=0)
    tables = gather(_made_up(problem, data, seed), split, agents, seed)
    rows = tables[0].n if split == "features" else sum(table.n for table in tables)
    common = {"split": split, "network": network, "tol": tol, "seed": seed, "link": link, "progress": False, **settings}
    chosen = method
    fits: list[tuple[int, Result, float]] = []
    for share in (1.0, 0.5) if rows > PART else (1.0,):
        part = _part(tables, split, share * min(1.0, PART / rows), seed)
        began = time.process_time()
        fit = solve(problem, part, method=chosen, engine="local", **{"max_seconds": PATIENCE_SECONDS, **common})
        spent = time.process_time() - began
        chosen = fit.certificate.settings["method"]["name"] if isinstance(method, str) else method
        fits.append((part[0].n if split == "features" else sum(table.n for table in part), fit, spent))
    fitted, first, spent = fits[0]
    rounds = _rounds(first, tol)

    def whole(of_a_fit: Any) -> Any:
        """What a round of all rows needs, on a straight line through what rounds of the parts needed."""
        at_part = of_a_fit(first, spent)
        if len(fits) == 1:
            return at_part
        half, second, half_spent = fits[1]
        slope = (at_part - of_a_fit(second, half_spent)) / (fitted - half)
        return at_part + np.maximum(slope, 0.0) * (rows - fitted)

    bits = whole(lambda fit, _: np.array([cost.bits for cost in fit.bill.per_agent]) / max(1, fit.rounds))
    turns = first.bill.seconds(latency=1.0, bandwidth=math.inf) / max(1, first.rounds) * rounds
    computing = whole(lambda fit, cpu: cpu / max(1, fit.rounds) / len(tables)) * rounds
    name = find_engine(engine).name
    sent = tuple(int(each) for each in np.ceil(bits * rounds))
    return Plan(
        method=first.certificate.settings["method"]["name"],
        explanation=first.explanation,
        rounds=rounds,
        bits_per_party=sent,
        turns=round(turns),
        wire_seconds=turns * latency + max(sent) / bandwidth,
        computing_seconds=float(computing),
        engine_seconds=turns * ENGINE_TURN.get(name, 0.0) + ENGINE_START.get(name, 0.0),
        basis=f"{fitted:,} of {rows:,} rows fitted here: {first.rounds} rounds, {first.status}",
    )


def _rounds(fit: Result, tol: float) -> int:
    """How many rounds it takes, or, if the fit was not patient enough, would take by its trend."""
    last, target = fit.history[-1], tol * fit.certificate.unit
    if fit.certificate.gap <= target or len(fit.history) < 3:
        return max(1, fit.rounds)
    earlier = fit.history[len(fit.history) // 2]
    rate = math.log(earlier.gap / last.gap) / (last.round - earlier.round) if last.gap < earlier.gap else 0.0
    return last.round + math.ceil(math.log(last.gap / target) / rate) if rate > 0 else 10 * last.round


def _part(tables: Sequence[Table], split: str, share: float, seed: int) -> list[Table]:
    """That share of the rows: of every party's own, or, if split by features, the same rows of all."""
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


def _made_up(problem: Problem, data: Any, seed: int) -> Any:
    """Gaussian data of that shape with labels that follow a model and some noise; other data as it is."""
    if not (isinstance(data, tuple) and len(data) == 2 and all(isinstance(part, int) for part in data)):
        return data
    if problem.family == "low-rank":
        raise InvalidProblem(
            f"sizes alone describe data with one label per row, but {problem.task.name} needs other labels. Give data; "
            "random numbers of the right shape will do."
        )
    n, d = (whole_number(noun, part) for noun, part in zip(("rows", "columns"), data, strict=True))
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    scores = X @ rng.standard_normal(d) / math.sqrt(d) + 0.5 * rng.standard_normal(n)
    return X, np.where(scores > 0, 1.0, -1.0) if family_of(problem).classification(problem) else scores
