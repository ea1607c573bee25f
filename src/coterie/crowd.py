"""Many small agents of one process that take a round as one: numpy is called once for all, not once for each.

A `Crowd` is an agent whose rows, and all that follows from them, have an axis for its members in front: scores of shape
(members, rows), messages of shape (members, numbers). What agents share (a model, a total) has no such axis. A method
whose rounds are written for the last axes serves both; it says so in `Steps.together`. Its members compute what they
would compute alone, with the same operations in the same order, so the bits are the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, Protocol, overload

import numpy as np
import numpy.typing as npt

from coterie.agent import Agent
from coterie.arrays import Design, FloatArray
from coterie.here import Cohort, CohortDesign, Together
from coterie.words import Talk

Places = npt.NDArray[np.intp]


@dataclass(frozen=True)
class Crowd(Agent):
    """Agents that are alike, as if they were one."""

    cohort: Cohort | None = None

    @classmethod
    def of(cls, agents: Sequence[Agent], cohort: Cohort) -> Crowd:
        """These agents, who are the members of that cohort in its order."""
        known = {field.name: getattr(agents[0], field.name) for field in fields(Agent)}
        return cls(**known | {"scratch": {}}, cohort=cohort)

    @cached_property
    def centred(self) -> Design:
        return CohortDesign(self._cohort.X, super().centred)

    @cached_property
    def exact_labels(self) -> FloatArray:
        return self._cohort.y

    def at(self, w: FloatArray, design: Design | None = None) -> Together:
        assert isinstance(design, CohortDesign), "crowds look in centred coordinates"
        known: Together | None = self.scratch.get("here")
        if known is None or known.w is not w or w.flags.writeable:
            known = self.scratch["here"] = Together(self._cohort, w, design)
        return known

    @property
    def _cohort(self) -> Cohort:
        assert self.cohort is not None
        return self.cohort


class Conference(Protocol):
    """What crowds need of a transport."""

    def confer(self, talks: Sequence[Talk[Any]], places: Sequence[Places], purpose: str) -> list[Any]:
        """Run conversations of sums to their end, each of which speaks for the agents at these places."""


class Crowds:
    """All agents of a process: crowds, and those who are alone."""

    def __init__(self, agents: Sequence[Agent], own: tuple[str, ...]):
        """`own`: the fields of a State that members do not share."""
        by_cohort: dict[int, list[int]] = {}
        for place, agent in enumerate(agents):
            cohort = agent.scratch.get("cohort")
            by_cohort.setdefault(-1 - place if cohort is None else id(cohort[0]), []).append(place)
        self.own, self.agents, self.places = own, list[Agent](), list[Places]()
        for key, places in by_cohort.items():
            cohort = None if key < 0 else agents[places[0]].scratch["cohort"][0]
            members = [agents[place] for place in places]
            self.agents.append(members[0] if cohort is None else Crowd.of(members, cohort))
            self.places.append(np.array(places))

    def take(self, transport: Conference, step: Callable[..., Talk[Any]], states: Sequence[Any], t: int) -> States:
        """The States after round t."""
        if isinstance(states, States):
            gathered = states.gathered
        else:
            gathered = [self._gathered([states[k] for k in places]) for places in self.places]
        talks = [step(agent, state, t) for agent, state in zip(self.agents, gathered, strict=True)]
        return States(transport.confer(talks, self.places, "rounds"), self)

    def _gathered(self, states: Sequence[Any]) -> Any:
        """The States of some agents as one; that of an agent who is alone stays as it is."""
        if len(states) == 1:
            return states[0]
        parts = {name: [getattr(state, name) for state in states] for name in self.own}
        return replace(states[0], **{name: np.array(part) for name, part in parts.items() if part[0] is not None})


def crowds_of(agents: Sequence[Agent], own: tuple[str, ...]) -> Crowds | None:
    """The crowds among these agents, if most of them are in one."""
    if 2 * sum("cohort" in agent.scratch for agent in agents) <= len(agents):
        return None
    return Crowds(agents, own)


class States(Sequence[Any]):
    """A State for every agent, which is made when it is asked for."""

    def __init__(self, gathered: Sequence[Any], crowds: Crowds):
        self.gathered, self._crowds = gathered, crowds
        self._where = {
            place: (group, k) for group, places in enumerate(crowds.places) for k, place in enumerate(places.tolist())
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
        if len(self._crowds.places[group]) == 1:
            return state
        own = {name: getattr(state, name) for name in self._crowds.own}
        # What nobody has is None, or one and the same empty vector.
        own = {name: part[k] for name, part in own.items() if part is not None and part.ndim > 1}
        return replace(state, **own) if own else state

    def __iter__(self) -> Iterator[Any]:
        return (self[place] for place in range(len(self)))
