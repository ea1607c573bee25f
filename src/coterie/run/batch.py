"""Compute the rounds of small agents of one process together, in batches.

A batch calls numpy once for all its members. Scores, dual variables and messages of a
`BatchedAgent` have an axis for its members in front: scores have the shape (members, rows),
messages (members, numbers). Numbers that all agents share (a model, an aggregate) have no such
axis. A method whose rounds are written for the last axes serves one agent and a batch;
`Steps.together` declares it. A batch does the operations of a single agent in the same order, so
the bits are the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, overload

import numpy as np

from coterie.numerics.arrays import Design, FloatArray
from coterie.numerics.local_loss import Batch, BatchDesign, Together
from coterie.problems.problem import AnyProblem
from coterie.run.agent import NOWHERE, Agent, SummaryStatistics, remembered
from coterie.run.certificate import Bound, Point
from coterie.run.collectives import IndexArray, Protocol
from coterie.run.steps import Transport

OF_AGENTS = tuple(entry.name for entry in fields(Agent))
"""The names of the fields of an agent."""


@dataclass(frozen=True)
class BatchedAgent(Agent[AnyProblem]):
    """Agents with tables of one shape, with the interface of one agent."""

    members: Sequence[Agent[AnyProblem]] = ()
    batch: Batch | None = None

    @classmethod
    def of(cls, agents: Sequence[Agent[AnyProblem]], batch: Batch) -> BatchedAgent:
        """Return the batched agent of these agents, which are in the order of the batch."""
        known = {name: getattr(agents[0], name) for name in OF_AGENTS}
        batch.scratch.setdefault("design", BatchDesign(batch.X, agents[0].design))
        known["scratch"] = batch.scratch
        if batch.weights is not None:
            known["data"] = replace(agents[0].data, weights=batch.weights)
        return cls(**known, members=agents, batch=batch)

    @cached_property
    def centred(self) -> Design:
        first = self.members[0]
        if first.centred is first.design:
            return self.design
        return BatchDesign(self._batch.X, first.centred)

    @property
    def own_rows(self) -> Any:
        """Number of own rows of each member."""
        return np.array([agent.own_rows for agent in self.members])

    @property
    def parts(self) -> Sequence[Agent[AnyProblem]]:
        return self.members

    @property
    @remembered
    def column_squares(self) -> FloatArray:
        X = self._batch.X
        squares: FloatArray
        if self._batch.weights is None:
            squares = np.einsum("kij,kij->kj", X, X)
        else:
            squares = np.einsum("ki,kij,kij->kj", self._batch.weights, X, X)
        return squares

    def at_constant(self, constant: float) -> Together:
        scores = np.full(self._batch.y.shape, constant)
        assert isinstance(self.design, BatchDesign)
        return Together(self._batch, NOWHERE, self.design, scores)

    def at_start(self, constant: float) -> Together:
        return self.at_constant(constant)

    @cached_property
    def weight(self) -> Any:
        """Weight of each member; one number where all members have the same weight."""
        if self._batch.weights is None:
            return float(self.data.n)
        return self._batch.weights.sum(axis=1)

    def summed(self, values: FloatArray) -> FloatArray:
        totals: FloatArray
        if self._batch.weights is None:
            totals = values.sum(axis=1)
        else:
            totals = np.vecdot(values, self._batch.weights)
        return totals

    @cached_property
    def exact_labels(self) -> FloatArray:
        return self._batch.y

    def at(self, w: FloatArray, design: Design | None = None) -> Together:
        design = design or self.design
        assert isinstance(design, BatchDesign)
        place = "here" if design is self.design else "here, centred"
        known: Together | None = self.scratch.get(place)
        if known is None or known.w is not w or w.flags.writeable:
            known = self.scratch[place] = Together(self._batch, w, design)
        return known

    @property
    def _batch(self) -> Batch:
        assert self.batch is not None
        return self.batch


class Batches:
    """All agents of a process: batched agents and single agents."""

    def __init__(self, agents: Sequence[Agent[AnyProblem]], own: tuple[str, ...]):
        """Gather the agents. `own` names the fields of a State that members do not share."""
        self.own = own
        self.agents = list[Agent[AnyProblem]]()
        self.places = list[IndexArray]()
        for places in _by_batch(agents):
            members = [agents[place] for place in places]
            batch = members[0].scratch.get("batch")
            self.agents.append(members[0] if batch is None else BatchedAgent.of(members, batch[0]))
            self.places.append(np.array(places))

    def introduce(
        self,
        transport: Transport,
        protocol: Callable[[Agent[AnyProblem]], Protocol[SummaryStatistics]],
        purpose: str,
    ) -> list[SummaryStatistics]:
        """Compute the summary statistics of each agent."""
        found = transport.confer([protocol(agent) for agent in self.agents], self.places, purpose)
        statistics: list[Any] = [None] * sum(map(len, self.places))
        for known, places in zip(found, self.places, strict=True):
            for place in places.tolist():
                statistics[place] = known
        return statistics

    def start(self, transport: Transport, step: Callable[..., Protocol[Any]]) -> States:
        """Compute the first States."""
        return States(
            transport.confer([step(agent) for agent in self.agents], self.places, "setup"), self
        )

    def warm(
        self,
        transport: Transport,
        step: Callable[..., Protocol[Any]],
        states: Sequence[Any],
        points: Sequence[Point],
    ) -> States:
        """Return the first States, moved to the points of another run (warm start)."""
        moved = []
        members = zip(self.agents, self._all_gathered(states), self.places, strict=True)
        for agent, state, places in members:
            own = [points[place] for place in places.tolist()]
            moved.append(step(agent, state, _one_of(own)))
        return States(transport.confer(moved, self.places, "setup"), self)

    def take(
        self,
        transport: Transport,
        step: Callable[..., Protocol[Any]],
        states: Sequence[Any],
        t: int,
    ) -> States:
        """Compute the States after round t."""
        members = zip(self.agents, self._all_gathered(states), strict=True)
        protocols = [step(agent, state, t) for agent, state in members]
        return States(transport.confer(protocols, self.places, "rounds"), self)

    def prove(
        self,
        transport: Transport,
        proof: Callable[[Agent[AnyProblem], Any], Protocol[tuple[Bound, Point]]],
        states: Sequence[Any],
    ) -> tuple[Bound, list[Point]]:
        """Compute the bound at these States, and the point of each agent."""
        members = zip(self.agents, self._all_gathered(states), strict=True)
        protocols = [proof(agent, state) for agent, state in members]
        proofs = transport.confer(protocols, self.places, "proof")
        points: list[Any] = [None] * sum(map(len, self.places))
        for (_, point), places in zip(proofs, self.places, strict=True):
            own = _points_of_members(point, len(places))
            for place, member in zip(places.tolist(), own, strict=True):
                points[place] = member
        return proofs[0][0], points

    def at_point(
        self, function: Callable[[Agent[AnyProblem], Point], Point], point: Point
    ) -> list[Point]:
        """Compute the function of each agent at a point that all of them share."""
        points: list[Any] = [None] * sum(map(len, self.places))
        for agent, places in zip(self.agents, self.places, strict=True):
            own = _points_of_members(function(agent, point), len(places))
            for place, member in zip(places.tolist(), own, strict=True):
                points[place] = member
        return points

    def _all_gathered(self, states: Sequence[Any]) -> Sequence[Any]:
        if isinstance(states, States):
            return states.gathered
        return [self._gathered([states[k] for k in places]) for places in self.places]

    def _gathered(self, states: Sequence[Any]) -> Any:
        """Return the States of the members of a batch as one State.

        The State of a single agent is returned unchanged.
        """
        if len(states) == 1:
            return states[0]
        parts = {name: [getattr(state, name) for state in states] for name in self.own}
        stacked = {name: np.array(part) for name, part in parts.items() if part[0] is not None}
        return replace(states[0], **stacked)


def _by_batch(agents: Sequence[Agent[AnyProblem]]) -> list[list[int]]:
    """Return the positions of the members of each batch, and of each single agent."""
    places_of: dict[int, list[int]] = {}
    for place, agent in enumerate(agents):
        batch = agent.scratch.get("batch")
        key = -1 - place
        if batch is not None:
            key = id(batch[0])
        places_of.setdefault(key, []).append(place)
    return list(places_of.values())


def _one_of(points: Sequence[Point]) -> Point:
    """Stack the points of several agents; a model that all of them share gets no member axis."""
    if len(points) == 1:
        return points[0]
    w = np.array([point.w for point in points])
    if (w == w[0]).all():
        w = points[0].w
    return Point(w, _stacked_duals(points), kept=points[0].kept)


def _stacked_duals(points: Sequence[Point]) -> FloatArray | None:
    """Stack the dual variables of several agents; those of an agent without rows are 0."""
    known = [point.v for point in points if point.v is not None]
    if not known:
        return None
    stacked: FloatArray = np.zeros((len(points), len(known[0])))
    for place, point in enumerate(points):
        if point.v is not None:
            stacked[place] = point.v
    return stacked


def _points_of_members(point: Point, count: int) -> Sequence[Point]:
    """Return the point of each member: the inverse of `_one_of`."""
    if count == 1 or (point.w.ndim == 1 and point.v is None):
        return [point] * count
    models = _of_each(point.w, count)
    duals = _of_each(point.v, count)
    return [Point(w, v, kept=point.kept) for w, v in zip(models, duals, strict=True)]


def _of_each(part: FloatArray | None, count: int) -> Sequence[Any]:
    """Return the part of each member. Without an axis for members, each gets the whole array."""
    if part is None or part.ndim == 1:
        return [part] * count
    return list(part)


def batches_of(agents: Sequence[Agent[AnyProblem]], own: tuple[str, ...]) -> Batches | None:
    """Return the batches of these agents; None unless more than half of the agents are in one."""
    batched = sum("batch" in agent.scratch for agent in agents)
    if 2 * batched <= len(agents):
        return None
    return Batches(agents, own)


class States(Sequence[Any]):
    """A sequence with one State for each agent. Reading an item makes its State."""

    def __init__(self, gathered: Sequence[Any], batches: Batches):
        self.gathered = gathered
        self._batches = batches
        self._where: dict[int, tuple[int, int]] = {}
        for group, places in enumerate(batches.places):
            for k, place in enumerate(places.tolist()):
                self._where[place] = group, k

    def __len__(self) -> int:
        return len(self._where)

    @overload
    def __getitem__(self, place: int) -> Any: ...
    @overload
    def __getitem__(self, place: slice) -> list[Any]: ...
    def __getitem__(self, place: int | slice) -> Any:
        if isinstance(place, slice):
            return [self[k] for k in range(*place.indices(len(self)))]
        group, k = self._where[place]
        state = self.gathered[group]
        if len(self._batches.places[group]) == 1:
            return state
        own = {}
        for name in self._batches.own:
            part = getattr(state, name)
            # A field that is not used is None, or one empty vector for all.
            if part is not None and part.ndim > 1:
                own[name] = part[k]
        if not own:
            return state
        return replace(state, **own)

    def __iter__(self) -> Iterator[Any]:
        return (self[place] for place in range(len(self)))
