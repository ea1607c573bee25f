"""Run protocols if no process outlives a collective: each collective is a job, which repeats the
protocol up to there.

    job 0:  State ─→ collective 1        the driver adds up the messages of all agents, in the order
            of `in_process`
    job k:  State, replies 1 … k ─→ collective k + 1, or the new State

A protocol is a function of the State and the replies alone, so any free task can repeat a lost job.
Each collective costs reading the data again, and sending all replies again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, TypeVar

from coterie.errors import InvalidProblem
from coterie.networks import Network
from coterie.numerics.threads import one_blas_thread
from coterie.problems.problem import AnyProblem
from coterie.run.agent import Agent, with_data
from coterie.run.bill import Bill
from coterie.run.collectives import Collective, Protocol
from coterie.run.steps import Steps
from coterie.transport.in_process import InProcess

T = TypeVar("T")
Errands = Callable[[Sequence[Callable[[], Any]]], list[Any]]
"""Computes one function per agent, where the agent's data is."""


class Replayed(InProcess):
    """Computes collectives of agents that run in a new job for each collective."""

    def __init__(
        self,
        network: Network,
        bill: Bill,
        names: Sequence[str],
        ask: Errands,
        secure_sums: bool = False,
    ):
        super().__init__(network, bill, names, secure_sums=secure_sums)
        self._visit = ask

    @property
    def one_process(self) -> bool:
        """False: agents run where their data is."""
        return False

    def take(
        self, step: Callable[..., Protocol[T]], rows: Iterable[Sequence[Any]], purpose: str
    ) -> list[T]:
        """Run all agents again and again until their protocols have ended."""
        errands = [(row, list[Any]()) for row in rows]
        while True:
            found = self._visit([partial(_next, step, row, replies) for row, replies in errands])
            collectives: list[Collective] = [yielded for ended, yielded in found if not ended]
            if not collectives:
                return [end for _, end in found]
            silent = [k for k, (ended, _) in enumerate(found) if ended]
            kind = type(collectives[0])
            if silent or any(type(collective) is not kind for collective in collectives):
                raise self._disagreement(collectives, silent)
            answers = self._answers[kind](collectives, purpose)
            for (_, replies), reply in zip(errands, answers, strict=True):
                replies.append(reply)

    def gossip(
        self, agents: Sequence[Agent[AnyProblem]], states: list[Any], steps: Steps, t: int
    ) -> list[Any]:
        """Refuse: between collectives no agent runs that could wake up."""
        raise InvalidProblem(
            "agents that wake up at times of their own cannot be replayed; use Spark(barrier=True)."
        )


def _next(
    step: Callable[..., Protocol[T]], row: Sequence[Any], replies: Sequence[Any]
) -> tuple[bool, Collective | T]:
    """Repeat an agent's protocol with these replies; return its next collective, or True and its
    value.
    """
    agent, *others = row
    with one_blas_thread():
        protocol = step(with_data(agent), *others)
        try:
            collective = next(protocol)
            for reply in replies:
                collective = protocol.send(reply)
        except StopIteration as end:
            return True, end.value
        return False, collective
