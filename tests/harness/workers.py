"""Engines for tests whose driver has no data: questions, agents and answers are pickled, as on
their way to a cluster.

Agents run in this process, which costs nothing; the driver still sees of their tables only what a
cluster would show.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, ClassVar, TypeVar

from coterie.engines.engine import Engine, Run
from coterie.engines.local import Local
from coterie.engines.replayed import Replayed
from coterie.run.agent import with_data
from coterie.run.bill import Bill
from coterie.run.rounds import Outcome

T = TypeVar("T")


def travelled(thing: T) -> T:
    """What arrives of a thing in another process."""
    arrived: T = pickle.loads(pickle.dumps(thing))
    return arrived


def visited(questions: Sequence[Callable[[], T]]) -> list[T]:
    """The answers to questions that are asked in another process."""
    return [travelled(travelled(question)()) for question in questions]


class Workers(Local):
    """Agents whose tables the driver never sees."""

    name: ClassVar[str] = "workers"

    def hosting(self, data: Any, agents: Any) -> Any:
        return Engine.hosting(self, data, agents)

    def ask(self, questions: Sequence[Callable[[], T]]) -> list[T]:
        return visited(questions)

    def run(self, run: Run) -> Outcome:
        outcome = super().run(
            replace(run, agents=[with_data(travelled(agent)) for agent in run.agents])
        )
        return replace(
            outcome, points=travelled(outcome.points), answers=travelled(outcome.answers)
        )


class Visited(Workers):
    """The same, where each word is a job of its own, as with `Spark(barrier=False)`."""

    name: ClassVar[str] = "visited"

    def run(self, run: Run) -> Outcome:
        return run.on(Replayed(run.network, Bill(run.network), run.names, visited, run.secure_sums))
