"""Set up a run, on any engine: fit the problem to the data, choose the network and the method, and
make the agents.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from coterie.data import Table
from coterie.data.remote_table import AnyTable
from coterie.data.summary import TableSummary
from coterie.data.table import Indices, columns_of
from coterie.errors import InvalidData, InvalidProblem
from coterie.methods import Method
from coterie.methods.auto.costs import LINK, MEMORY, Link, Sizes
from coterie.networks import Network
from coterie.numerics.acceleration import accelerated
from coterie.numerics.arrays import as_number, digest
from coterie.problems.problem import AnyProblem, K
from coterie.run.agent import Agent, AgentForm, with_data
from coterie.run.method_choice import AUTO, Auto, Circumstances, MethodChoice
from coterie.run.network import around_a_server, no_network
from coterie.run.rescue import Rescuable, Rescue
from coterie.run.settings import Limits, Settings
from coterie.run.steps import Steps


@dataclass(frozen=True)
class Setup:
    """The decisions before the first message of a run."""

    problem: AnyProblem
    wanted: Settings
    known: Circumstances
    method: Method[Any, Any]
    steps: Steps
    """The method in its acceleration."""
    explanation: str
    auto: Auto | None = None
    """If "auto" chose the method: the one with which the run continues if it stalls."""

    @property
    def graph(self) -> Network:
        """The edges along which agents send messages; split by users, who is alike."""
        return self.known.graph

    @property
    def limits(self) -> Limits:
        """The limits at which the run ends."""
        return self.wanted.limits

    @property
    def running(self) -> Steps | Rescuable:
        """The method for `rounds.run`, with its rescue if "auto" chose it."""
        return self.steps if self.auto is None else self.auto.running

    def rescued(self, rescue: Rescue | None) -> Setup:
        """The set-up after the run was rescued."""
        if self.auto is None or rescue is None:
            return self
        after = {"from": self.method.settings(), "after": rescue.after, "asked": self.auto.asked}
        return replace(
            self,
            method=self.auto.rescue,
            steps=self.auto.running.steps_after,
            explanation=f"{self.explanation} {rescue.because}",
            auto=replace(self.auto, changed=after),
        )

    @property
    def carrying(self) -> Network:
        """The network along which messages travel."""
        if self.problem.kind.problems.graph_is_data:
            return around_a_server(self.graph.agents)
        return self.graph

    @property
    def network(self) -> str:
        """The graph in words."""
        if self.problem.kind.problems.graph_is_data:
            return repr(self.graph)
        return self.graph.describe()

    @property
    def acceleration(self) -> str:
        """The name of the acceleration."""
        if self.steps is self.method:
            return "none"
        return type(self.steps).__name__.lower()

    def settings(self) -> dict[str, Any]:
        """The settings of the run, as certificates list them."""
        known, wanted = self.known, self.wanted
        listed: dict[str, Any] = {
            "problem": self.problem.settings(),
            "method": self.method.settings(),
            "acceleration": self.acceleration,
            "split": wanted.placement.split,
            "partition": known.partition,
            "network": self.network,
            "network_digest": self.graph.digest,
            "seed": wanted.seed,
            "limits": asdict(self.limits),
            "classes": None if known.classes is None else known.classes.tolist(),
        }
        if self.method.moves_columns:
            listed["proved_by"] = "the party with the labels, alone"
        if known.secure_sums:
            listed["secure_sums"] = True
        if wanted.prepare is not None:
            listed["prepare"] = wanted.prepare.settings()
        if self.auto is not None and self.auto.changed is not None:
            listed["changed"] = self.auto.changed
        return listed

    def identity(self, *others: str | None) -> str:
        """The digest that a checkpoint belongs to: of the settings without the limits, and of these
        other digests.

        If the run may be rescued, the digest is of both methods.
        """
        settings = {**self.settings(), "limits": None}
        if self.auto is not None:
            settings["method"] = {
                "name": AUTO,
                "candidates": [self.method.settings(), self.auto.rescue.settings()],
            }
        return digest(json.dumps(settings, sort_keys=True), *others)


def set_up(
    problem: AnyProblem,
    settings: Settings,
    known: Circumstances,
    for_data: Callable[[AnyProblem], AnyProblem],
) -> Setup:
    """Choose and check the method, and fit problem and network to it and to the data.

    `for_data` fits a problem to this data (see `Kind.for_tables`).
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
            " With two parties, secure sums hide nothing: each party can subtract its own message "
            "from the sum."
        )
    if note := family.report.note(problem, graph.agents):
        explanation += f" {note}"
    known = replace(known, graph=graph)
    auto = replace(choice, problem=problem, known=known).rescue(chosen, steps, liked)
    return Setup(problem, settings, known, chosen, steps, explanation, auto)


def with_offset(problem: K, parties: Sequence[TableSummary]) -> K:
    """The problem, with an offset if the data has one."""
    found = any("offset" in party.row_values for party in parties)
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
    """The size of the data of all parties together."""
    rows, columns = [party.rows for party in parties], [party.columns for party in parties]
    if split == "features":
        size = rows[0], sum(columns)
    else:
        size = sum(rows), max(columns)
    known = [party.independence for party in parties if party.independence is not None]
    independence = None
    if known:
        independence = sum(known) / len(known)
    nonzeros = sum(party.nonzeros for party in parties)
    return Sizes(*size, nonzeros, len(parties), link, apart, independence=independence)


def make_link(link: tuple[float, float] | None, in_memory: bool = False) -> Link:
    """Seconds per hop and bits per second, if these numbers are valid; None: those of the
    engine.
    """
    if link is None:
        return MEMORY if in_memory else LINK
    positive = len(link) == 2 and all(as_number(part) > 0 for part in link)
    if not positive or as_number(link[0]) == np.inf:
        raise InvalidProblem(
            f"link takes two positive numbers, (seconds per hop, bits per second), not {link!r}."
        )
    return Link(float(link[0]), float(link[1]))


def make_agents(
    tables: Sequence[Table],
    problem: K,
    split: str,
    graph: Network,
    seed: int,
    secure_sums: bool = False,
) -> list[Agent[K]]:
    """An agent for each table."""
    places = zip(tables, columns_of(tables), strict=True)
    return [
        with_data(make_agent(k, table, columns, problem, split, graph, seed, secure_sums))
        for k, (table, columns) in enumerate(places)
    ]


def make_agent(
    index: int,
    table: AnyTable,
    columns: Indices,
    problem: K,
    split: str,
    graph: Network,
    seed: int,
    secure_sums: bool = False,
) -> AgentForm[K]:
    """One agent; split by features, its problem has the part of the penalty on its columns."""
    own = problem.restrict(columns) if split == "features" else problem.flattened(table.d)
    neighbours = () if graph.server else graph.neighbours(index)
    ties: tuple[float, ...] = ()
    if split == "users" and not graph.server:
        # The weights of its neighbours in the collaboration graph.
        ties = tuple(graph.weights.data[slice(*graph.weights.indptr[index : index + 2])].tolist())
    if isinstance(table, Table):
        return Agent(
            index,
            graph.agents,
            table,
            own,
            split,
            neighbours,
            seed,
            ties=ties,
            secure_sums=secure_sums,
        )
    return AgentForm(
        index, graph.agents, table, own, split, neighbours, seed, ties=ties, secure_sums=secure_sums
    )
