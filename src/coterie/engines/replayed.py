"""Words where no process outlives a word: each word of a conversation is a job, and what was said
before is replayed.

    job 0:  State ─→ word 1            the driver adds up the words of all agents, in the order of
            `in_process`,
    job k:  State, replies 1 … k ─→ word k + 1, or the new State

A conversation is a function of the State and the replies alone, so a job that is lost is simply
done again, by whoever is free. The price is the data read again, and the replies heard again, for
each word.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, TypeVar

from coterie.errors import InvalidProblem
from coterie.networks import Network
from coterie.numerics.threads import one_blas_thread
from coterie.run.agent import Agent, with_data
from coterie.run.bill import Bill
from coterie.run.collectives import Collective, Protocol
from coterie.run.steps import Steps
from coterie.transport.in_process import InProcess

T = TypeVar("T")
Errands = Callable[[Sequence[Callable[[], Any]]], list[Any]]
"""One question per agent, answered where its data is."""


class Replayed(InProcess):
    """Answers the words of agents that are visited once for every word."""

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
        """Agents are visited where their data is."""
        return False

    def take(
        self, step: Callable[..., Protocol[T]], rows: Iterable[Sequence[Any]], purpose: str
    ) -> list[T]:
        """Visit all agents again and again until their conversations have come to an end."""
        errands = [(row, list[Any]()) for row in rows]
        while True:
            said = self._visit([partial(_said, step, row, replies) for row, replies in errands])
            words: list[Collective] = [collective for ended, collective in said if not ended]
            if not words:
                return [end for _, end in said]
            silent = [k for k, (ended, _) in enumerate(said) if ended]
            if silent or any(type(collective) is not type(words[0]) for collective in words):
                raise self._disagreement(words, silent)
            answers = self._answers[type(words[0])](words, purpose)
            for (_, replies), reply in zip(errands, answers, strict=True):
                replies.append(reply)

    def gossip(self, agents: Sequence[Agent], states: list[Any], steps: Steps, t: int) -> list[Any]:
        """Refused: no agent keeps running that could wake up."""
        raise InvalidProblem(
            "agents that wake up at times of their own cannot be replayed; use Spark(barrier=True)."
        )


def _said(
    step: Callable[..., Protocol[T]], row: Sequence[Any], replies: Sequence[Any]
) -> tuple[bool, Collective | T]:
    """What that agent says after those replies: a word, or, with True, what it came to."""
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
