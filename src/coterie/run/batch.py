"""Many small agents of one process that take a round as one: numpy is called once for all, not once
for each.

The rows of a `BatchedAgent`, and all that follows from them, have an axis for its members in front:
scores of shape (members, rows), messages of shape (members, numbers). What agents share (a model, a
total) has no such axis. A method whose rounds are written for the last axes serves both; it says so
in `Steps.together`. Its members compute what they would compute alone, with the same operations in
the same order, so the bits are the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, overload

import numpy as np

from coterie.numerics.arrays import Design, FloatArray
from coterie.numerics.local_loss import Batch, BatchDesign, Together
from coterie.run.agent import NOWHERE, Agent, SummaryStatistics, remembered
from coterie.run.certificate import Bound, Point
from coterie.run.collectives import IndexArray, Protocol
from coterie.run.steps import Transport


@dataclass(frozen=True)
class BatchedAgent(Agent):
    """Agents that are alike, as if they were one."""

    members: Sequence[Agent] = ()
    batch: Batch | None = None

    @classmethod
    def of(cls, agents: Sequence[Agent], batch: Batch) -> BatchedAgent:
        """The members of a batch, in its order."""
        known = {field.name: getattr(agents[0], field.name) for field in fields(Agent)}
        batch.scratch.setdefault("design", BatchDesign(batch.X, agents[0].design))
        known["scratch"] = batch.scratch
        if batch.weights is not None:
            known["data"] = replace(agents[0].data, weights=batch.weights)
        return cls(**known, members=agents, batch=batch)

    @cached_property
    def centred(self) -> Design:
        design = self.members[0].centred
        return (
            self.design if design is self.members[0].design else BatchDesign(self._batch.X, design)
        )

    @property
    def own_rows(self) -> Any:
        """The number of own rows of each member."""
        return np.array([agent.own_rows for agent in self.members])

    @property
    def parts(self) -> Sequence[Agent]:
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
        """The weight of each member, or the one that all members have."""
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
    """All agents of a process: crowds, and those who are alone."""

    def __init__(self, agents: Sequence[Agent], own: tuple[str, ...]):
        """`own`: the fields of a State that members do not share."""
        by_batch: dict[int, list[int]] = {}
        for place, agent in enumerate(agents):
            batch = agent.scratch.get("batch")
            by_batch.setdefault(-1 - place if batch is None else id(batch[0]), []).append(place)
        self.own, self.agents, self.places = own, list[Agent](), list[IndexArray]()
        for key, places in by_batch.items():
            batch = None if key < 0 else agents[places[0]].scratch["batch"][0]
            members = [agents[place] for place in places]
            self.agents.append(members[0] if batch is None else BatchedAgent.of(members, batch))
            self.places.append(np.array(places))

    def introduce(
        self,
        transport: Transport,
        protocol: Callable[[Agent], Protocol[SummaryStatistics]],
        purpose: str,
    ) -> list[SummaryStatistics]:
        """The summary statistics of each agent."""
        found = transport.confer([protocol(agent) for agent in self.agents], self.places, purpose)
        statistics: list[Any] = [None] * sum(map(len, self.places))
        for known, places in zip(found, self.places, strict=True):
            for place in places.tolist():
                statistics[place] = known
        return statistics

    def start(self, transport: Transport, step: Callable[..., Protocol[Any]]) -> States:
        """The first States."""
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
        """The first States, moved to the points of another run."""
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
        """The States after round t."""
        members = zip(self.agents, self._all_gathered(states), strict=True)
        return States(
            transport.confer(
                [step(agent, state, t) for agent, state in members], self.places, "rounds"
            ),
            self,
        )

    def prove(
        self,
        transport: Transport,
        proof: Callable[[Agent, Any], Protocol[tuple[Bound, Point]]],
        states: Sequence[Any],
    ) -> tuple[Bound, list[Point]]:
        """What is proven of where everybody stands, and everybody's point."""
        members = zip(self.agents, self._all_gathered(states), strict=True)
        proofs = transport.confer(
            [proof(agent, state) for agent, state in members], self.places, "proof"
        )
        points: list[Any] = [None] * sum(map(len, self.places))
        for (_, point), places in zip(proofs, self.places, strict=True):
            own = zip(_of_each(point.w, len(places)), _of_each(point.v, len(places)), strict=True)
            alike = len(places) == 1 or (point.w.ndim == 1 and point.v is None)
            for place, (w, v) in zip(places.tolist(), own, strict=True):
                points[place] = point if alike else Point(w, v)
        return proofs[0][0], points

    def _all_gathered(self, states: Sequence[Any]) -> Sequence[Any]:
        if isinstance(states, States):
            return states.gathered
        return [self._gathered([states[k] for k in places]) for places in self.places]

    def _gathered(self, states: Sequence[Any]) -> Any:
        """The States of some agents as one; that of an agent who is alone stays as it is."""
        if len(states) == 1:
            return states[0]
        parts = {name: [getattr(state, name) for state in states] for name in self.own}
        return replace(
            states[0],
            **{name: np.array(part) for name, part in parts.items() if part[0] is not None},
        )


def _one_of(points: Sequence[Point]) -> Point:
    """The points of some agents as one; a model that all of them share has no axis for them."""
    if len(points) == 1:
        return points[0]
    w = np.array([point.w for point in points])
    if (w == w[0]).all():
        w = points[0].w
    v = None
    if points[0].v is not None:
        v = np.array([point.v for point in points])
    return Point(w, v)


def _of_each(part: FloatArray | None, count: int) -> Sequence[Any]:
    """What each of so many agents has of that; of what they share, all of it."""
    return [part] * count if part is None or part.ndim == 1 else list(part)


def batches_of(agents: Sequence[Agent], own: tuple[str, ...]) -> Batches | None:
    """The crowds among these agents, if most of them are in one."""
    if 2 * sum("batch" in agent.scratch for agent in agents) <= len(agents):
        return None
    return Batches(agents, own)


class States(Sequence[Any]):
    """A State for every agent, which is made when it is asked for."""

    def __init__(self, gathered: Sequence[Any], batches: Batches):
        self.gathered, self._batches = gathered, batches
        self._where = {
            place: (group, k)
            for group, places in enumerate(batches.places)
            for k, place in enumerate(places.tolist())
        }

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
        own = {name: getattr(state, name) for name in self._batches.own}
        # What nobody has is None, or one and the same empty vector.
        own = {name: part[k] for name, part in own.items() if part is not None and part.ndim > 1}
        return replace(state, **own) if own else state

    def __iter__(self) -> Iterator[Any]:
        return (self[place] for place in range(len(self)))
