"""Engines for tests whose driver has no data: questions, agents and answers are pickled, as on
their way to a cluster.

Agents run in this process, which costs nothing; the driver still sees of their tables only what a
cluster would show.
"""

from __future__ import annotations

import pickle
from dataclasses import replace

from coterie.engines.engine import Engine
from coterie.engines.local import Local
from coterie.engines.replayed import Replayed
from coterie.run.agent import with_data
from coterie.run.bill import Bill


def travelled(thing):
    """What arrives of a thing in another process."""
    return pickle.loads(pickle.dumps(thing))


def visited(questions):
    """The answers to questions that are asked in another process."""
    return [travelled(travelled(question)()) for question in questions]


class Workers(Local):
    """Agents whose tables the driver never sees."""

    name = "workers"

    def hosting(self, data, agents):
        return Engine.hosting(self, data, agents)

    def ask(self, questions):
        return visited(questions)

    def run(self, run):
        outcome = super().run(
            replace(run, agents=[with_data(travelled(agent)) for agent in run.agents])
        )
        return replace(
            outcome, points=travelled(outcome.points), answers=travelled(outcome.answers)
        )


class Visited(Workers):
    """The same, where each word is a job of its own, as with `Spark(barrier=False)`."""

    name = "visited"

    def run(self, run):
        return run.on(Replayed(run.network, Bill(run.network), run.names, visited, run.secure_sums))
