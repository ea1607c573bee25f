"""Folds of tables that stay at the workers of a cluster: rows are kept back, and scored, where they
are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from coterie.data import Table, validated
from coterie.data.read import read_party
from coterie.data.remote import Elsewhere, RemoteTable, Source
from coterie.data.table import Indices
from coterie.engines import Engine, Run
from coterie.networks import Network
from coterie.problems import points_of
from coterie.problems.parts.data import Classes
from coterie.problems.problem import AnyProblem
from coterie.run.agent import Agent
from coterie.run.bill import Cost
from coterie.run.certificate import introduce
from coterie.run.collectives import Protocol
from coterie.run.remote import source_table
from coterie.run.rounds import Conversation
from coterie.run.settings import Limits
from coterie.run.setup import make_agents
from coterie.stats.folds import (
    counts_by_fold,
    deal,
    first_usable,
    is_usable,
    mean_loss,
    refuse_lonely,
)
from coterie.stats.strengths import gradient_at_constant, grid


@dataclass(frozen=True)
class Part:
    """Those rows of a source, read where the source is."""

    source: Source
    index: int
    rows: Indices

    def __call__(self) -> Table:
        return read_party(self.source(), self.index).take_rows(self.rows)


def deal_there(
    sources: Sequence[Source],
    engine: Engine,
    rows: Sequence[int],
    cv: int,
    seed: int,
    classes: Classes,
) -> list[Indices]:
    """The fold of every row at every worker; workers tell how many rows of each class a fold
    has.
    """
    if classes is None:
        return deal(rows, "samples", cv, seed)
    known = np.asarray(classes)

    def usable(attempt: int) -> list[Indices] | None:
        folds = deal(rows, "samples", cv, seed, attempt)
        asked = enumerate(zip(sources, folds, strict=True))
        told = engine.ask(
            [partial(_counts, source, index, own, cv, known) for index, (source, own) in asked]
        )
        counts = np.sum(told, axis=0)
        refuse_lonely(counts, known)
        return folds if is_usable(counts) else None

    return first_usable(usable, cv)


def _counts(
    source: Source, index: int, fold: Indices, cv: int, classes: npt.NDArray[Any]
) -> npt.NDArray[np.float64]:
    return counts_by_fold(source_table(source, index, "samples", True).y, fold, cv, classes)


def score_there(
    parts: Sequence[Part], engine: Engine, result: Any, secure: bool
) -> tuple[float, Cost]:
    """The mean loss of a result's model over these rows, and what it cost to know."""
    model, network = result.model, result.network
    agents = _agents(parts, model.problem, model.classes_, model.coef_.shape[-1], network, secure)
    said = Conversation(partial(_mean_loss_of, model), "proof")
    outcome = engine.run(Run(agents, said, network, Limits(), secure_sums=secure))
    if outcome.error is not None:
        raise outcome.error
    return float(outcome.answers[0]), outcome.bill.total


def _agents(
    parts: Sequence[Part],
    problem: AnyProblem,
    classes: Classes,
    columns: int,
    network: Network,
    secure: bool,
) -> list[Agent[Any]]:
    tables = [
        RemoteTable(
            Elsewhere((len(part.rows), columns)),
            # An `Elsewhere` refuses whoever reads a number of it.
            y=Elsewhere((len(part.rows),)),  # type: ignore[arg-type]
            name=f"party {part.index}",
            fetch=partial(_encoded, part, problem, classes),
        )
        for part in parts
    ]
    return make_agents(tables, problem, "samples", network, 0, secure)


def _encoded(part: Part, problem: AnyProblem, classes: Classes) -> Table:
    family = problem.kind
    return family.data.encode(
        validated(part(), classification=family.data.classification(problem)), problem, classes
    )


def _mean_loss_of(model: Any, agent: Agent) -> Protocol[float]:
    return mean_loss(agent, points_of(model, [agent])[0].w, model)


def grid_there(
    tables: Sequence[Table],
    engine: Engine,
    problem: AnyProblem,
    network: Network,
    count: int,
    seed: int,
    secure: bool,
) -> tuple[tuple[float, ...], Cost]:
    """The strengths that tables at workers give, and what it cost to find them."""
    agents = make_agents(tables, problem, "samples", network, seed, secure)
    outcome = engine.run(
        Run(
            agents,
            Conversation(partial(_grid_of, count), "setup"),
            network,
            Limits(),
            secure_sums=secure,
        )
    )
    if outcome.error is not None:
        raise outcome.error
    found: tuple[float, ...] = outcome.answers[0]
    return found, outcome.bill.total


def _grid_of(count: int, agent: Agent) -> Protocol[tuple[float, ...]]:
    known = replace(agent, statistics=(yield from introduce(agent)))
    slope = yield from gradient_at_constant(known)
    return grid(known, slope, count)
