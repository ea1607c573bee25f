"""The set-up of a run, the same wherever it runs: which problem exactly, which network, which
method, which limits.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from coterie.data import Table
from coterie.data.summary import TableSummary
from coterie.data.table import Indices, columns_of
from coterie.errors import InvalidData, InvalidProblem
from coterie.methods import Method
from coterie.methods.auto.costs import LINK, MEMORY, Link, Sizes
from coterie.networks import Network
from coterie.numerics.acceleration import accelerated
from coterie.numerics.arrays import as_number, digest
from coterie.problems.problem import AnyProblem, K
from coterie.run.agent import Agent
from coterie.run.method_choice import AUTO, Auto, Circumstances, MethodChoice
from coterie.run.network import around_a_server, no_network
from coterie.run.settings import Limits, Settings
from coterie.run.steps import Steps
from coterie.run.switching import Change, Switching


@dataclass(frozen=True)
class Setup:
    """All that is decided before the agents meet."""

    problem: AnyProblem
    wanted: Settings
    known: Circumstances
    method: Method[Any, Any]
    steps: Steps
    """The method in its acceleration."""
    explanation: str
    auto: Auto | None = None
    """If "auto" chose the method, and may change it."""

    @property
    def graph(self) -> Network:
        """Who talks to whom; split by users, who is alike."""
        return self.known.graph

    @property
    def limits(self) -> Limits:
        """When to stop."""
        return self.wanted.limits

    @property
    def running(self) -> Steps | Switching:
        """What a run is told."""
        return self.steps if self.auto is None else self.auto.switching

    def changed(self, change: Change | None) -> Setup:
        """What became of it: the same with the method that it was changed to."""
        if self.auto is None or change is None:
            return self
        after = {"from": self.method.settings(), "after": change.after, "asked": self.auto.asked}
        explanation = f"{self.explanation} {change.because}"
        other, steps = (
            self.auto.rescue if change.rescue else self.auto.other,
            self.auto.switching.steps_after(change),
        )
        assert other is not None
        return replace(
            self,
            method=other,
            steps=steps,
            explanation=explanation,
            auto=replace(self.auto, changed=after),
        )

    @property
    def carrying(self) -> Network:
        """What the messages travel on."""
        return (
            around_a_server(self.graph.agents)
            if self.problem.kind.problems.graph_is_data
            else self.graph
        )

    @property
    def network(self) -> str:
        """The graph in words."""
        return (
            repr(self.graph) if self.problem.kind.problems.graph_is_data else self.graph.describe()
        )

    def settings(self) -> dict[str, Any]:
        """What certificates say of the run."""
        known, wanted = self.known, self.wanted
        told: dict[str, Any] = {
            "problem": self.problem.settings(),
            "method": self.method.settings(),
            "acceleration": "none"
            if self.steps is self.method
            else type(self.steps).__name__.lower(),
            "split": wanted.placement.split,
            "partition": known.partition,
            "network": self.network,
            "network_digest": self.graph.digest,
            "seed": wanted.seed,
            "limits": asdict(self.limits),
            "classes": None if known.classes is None else known.classes.tolist(),
        }
        if self.method.moves_columns:
            told["proved_by"] = "the party with the labels, alone"
        if known.secure_sums:
            told["secure_sums"] = True
        if wanted.prepare is not None:
            told["prepare"] = wanted.prepare.settings()
        if self.auto is not None and self.auto.changed is not None:
            told["changed"] = self.auto.changed
        return told

    def identity(self, *others: str | None) -> str:
        """What a checkpoint is known by: the settings without the limits, and digests of all else.

        The method is the one that was asked for: where "auto" may change it, all that it may
        become.
        """
        settings = {**self.settings(), "limits": None}
        if self.auto is not None and self.auto.other is not None:
            settings["method"] = {
                "name": AUTO,
                "candidates": [self.method.settings(), self.auto.other.settings()],
            }
        return digest(json.dumps(settings, sort_keys=True), *others)


def set_up(
    problem: AnyProblem,
    settings: Settings,
    known: Circumstances,
    for_data: Callable[[AnyProblem], AnyProblem],
) -> Setup:
    """Choose and check the method, and fit problem and network to it and to the data.

    `for_data` makes of a problem one for this data (see `Kind.for_tables`).
    """
    family, graph = problem.kind, known.graph
    problem = problem.with_classes(known.classes)
    family.problems.check_columns(problem, known.sizes.columns)
    problem = family.problems.for_graph(problem, graph)
    choice = MethodChoice(problem, settings.placement.split, known, settings.algorithm)
    liked = choice.candidates()
    chosen, explanation = choice.choose(liked)
    chosen, problem = chosen.adapted(problem)
    problem = for_data(problem)
    if family.problems.graph_is_data and not chosen.uses_network:
        graph = no_network(graph.agents, "none")
    chosen.check(problem, graph)
    steps = accelerated(chosen, settings.algorithm.acceleration, chosen.accelerated(problem))
    if known.secure_sums and graph.agents == 2:
        explanation += (
            " With two parties, secure sums hide nothing: the total less its own message is the "
            "other's."
        )
    if note := family.report.note(problem, graph.agents):
        explanation += f" {note}"
    known = replace(known, graph=graph)
    auto = replace(choice, problem=problem, known=known).changes(chosen, steps, liked)
    return Setup(problem, settings, known, chosen, steps, explanation, auto)


def with_offset(problem: K, parties: Sequence[TableSummary]) -> K:
    """The problem, saying whether there is an offset: that is, whether the data has one."""
    found = any("offset" in party.beside for party in parties)
    if problem.offset:
        check_offset(problem, found)
    if found and not problem.offset:
        return problem.with_offset()
    return problem


def check_offset(problem: AnyProblem, found: bool) -> None:
    """Refuse data without an offset for a model that has one, and the other way round."""
    if problem.offset and not found:
        raise InvalidData(
            "the model has an offset, but the data has none. Name its column, or give its numbers."
        )
    if found and not problem.offset:
        raise InvalidData("the data has an offset, but the model has none. Leave it out.")


def sizes_of(
    parties: Sequence[TableSummary], split: str, link: Link = LINK, apart: bool = False
) -> Sizes:
    """How large the data of all parties is together."""
    rows, columns = [party.rows for party in parties], [party.columns for party in parties]
    whole = (rows[0], sum(columns)) if split == "features" else (sum(rows), max(columns))
    told = [party.independence for party in parties if party.independence is not None]
    independence = sum(told) / len(told) if told else None
    return Sizes(
        *whole,
        sum(party.nonzeros for party in parties),
        len(parties),
        link,
        apart,
        independence=independence,
    )


def make_link(link: tuple[float, float] | None, in_memory: bool = False) -> Link:
    """Seconds per hop and bits per second, if these numbers make sense; None: what suits the
    engine.
    """
    if link is None:
        return MEMORY if in_memory else LINK
    if not (
        len(link) == 2 and all(as_number(part) > 0 for part in link) and as_number(link[0]) < np.inf
    ):
        raise InvalidProblem(
            f"link takes two positive numbers, (seconds per hop, bits per second), not {link!r}."
        )
    return Link(float(link[0]), float(link[1]))


def make_agents(
    tables: Sequence[Table],
    problem: AnyProblem,
    split: str,
    graph: Network,
    seed: int,
    secure_sums: bool = False,
) -> list[Agent[Any]]:
    """What each agent may see."""
    places = zip(tables, columns_of(tables), strict=True)
    return [
        make_agent(k, table, columns, problem, split, graph, seed, secure_sums)
        for k, (table, columns) in enumerate(places)
    ]


def make_agent(
    index: int,
    table: Table,
    columns: Indices,
    problem: AnyProblem,
    split: str,
    graph: Network,
    seed: int,
    secure_sums: bool = False,
) -> Agent[Any]:
    """What one agent may see; split by features, with the part of the penalty that acts on its
    columns.
    """
    own = problem.restrict(columns) if split == "features" else problem.flattened(table.d)
    neighbours = () if graph.server else graph.neighbours(index)
    ties: tuple[float, ...] = ()
    if split == "users" and not graph.server:
        # The weights of its neighbours in the collaboration graph.
        ties = tuple(graph.weights.data[slice(*graph.weights.indptr[index : index + 2])].tolist())
    return Agent(
        index, graph.agents, table, own, split, neighbours, seed, ties=ties, secure_sums=secure_sums
    )
