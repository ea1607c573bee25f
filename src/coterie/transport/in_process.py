"""Words among agents that live in one process: lockstep, no threads, one matrix product for everybody's `Mix`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from coterie.agent import Agent
from coterie.arrays import FloatArray, sealed
from coterie.bill import Bill
from coterie.errors import ProtocolError
from coterie.networks import Network
from coterie.steps import Steps
from coterie.transport.driver import Driver
from coterie.transport.gossip import Gossip
from coterie.words import Ask, Exchange, Mix, Publication, Sum

__all__ = ["InProcess"]


class InProcess(Driver):
    """Answers the words of all agents of a network, and bills them."""

    def __init__(self, network: Network, bill: Bill, names: Sequence[str] | None = None, gossip: Gossip | None = None):
        super().__init__(network, bill, names)
        self._gossip = gossip or Gossip()
        self._gossip.open(bill, network.agents)
        self._gossips = False
        self._published: dict[int, FloatArray] = {}

    def publish(self, agent: int, message: FloatArray | Publication) -> None:
        """Put a message where others can `Ask` for it."""
        if isinstance(message, Publication):
            self._gossips = True
            self._gossip.publish(agent, message)
        else:
            self._published[agent] = sealed(np.array(message))

    def gossip(self, agents: Sequence[Agent], states: list[Any], steps: Steps, t: int) -> list[Any]:
        """A round of agents that wake up one by one; returns everybody's State."""
        return self._gossip.run(agents, states, steps, t)

    def memory(self) -> dict[str, Any]:
        """What the agents have read, if they gossip."""
        return self._gossip.memory() if self._gossips else {}

    def recall(self, memory: dict[str, Any]) -> None:
        """Go on from the `memory` of a snapshot."""
        self._gossip.recall(memory)

    def _sum(self, words: Sequence[Sum], purpose: str) -> Sequence[FloatArray]:
        messages = [word.x for word in words]
        self._same_shape("Sum", messages)
        total = self._total(messages)
        self._finite("Sum", total, messages)
        self.bill.say(purpose, "Sum", total.size, total.itemsize)
        sealed(total)
        return [total] * len(words)

    def _mix(self, words: Sequence[Mix], purpose: str) -> Sequence[FloatArray]:
        self._needs_edges("Mix")
        messages = [word.x for word in words]
        first, rule = messages[0], self._same_rule(words)
        self._same_shape("Mix", messages)
        mixed = self._product(
            self._matrix(rule, first.dtype, first.size), [message.reshape(-1) for message in messages]
        )
        self._finite("Mix", mixed, messages)
        self.bill.say(purpose, "Mix", first.size, first.itemsize)
        sealed(mixed)
        return list(mixed) if first.ndim == 1 else [row.reshape(first.shape) for row in mixed]

    def _exchange(self, words: Sequence[Exchange], purpose: str) -> Sequence[dict[int, FloatArray]]:
        self._needs_edges("Exchange")
        messages = [sealed(np.array(word.x)) for word in words]
        for message in messages:
            self._finite("Exchange", message, messages)
        self.bill.exchange(purpose, [(message.size, message.itemsize) for message in messages])
        return [{j: messages[j] for j in self.network.neighbours(agent)} for agent in range(len(words))]

    def _ask(self, words: Sequence[Ask], purpose: str) -> Sequence[dict[int, FloatArray]]:
        if words[0].tell is not None:
            return self._told(words, purpose)
        answers = []
        for word in words:
            answer = {peer: self._published[peer] for peer in word.peers if peer in self._published}
            for peer, message in answer.items():
                self.bill.send(purpose, "Ask", peer, 1, message.size, 8 * message.itemsize * message.size)
            answers.append(answer)
        return answers

    def _told(self, words: Sequence[Ask], purpose: str) -> Sequence[dict[int, FloatArray]]:
        """What the peers tell in this word; a peer's vector that an agent holds already is not sent again."""
        messages = [word.tell for word in words]
        if any(message is None for message in messages):
            raise ProtocolError("some agents told something with their Ask and others did not.")
        told = [sealed(np.array(message)) for message in messages]
        answers = []
        for who, word in enumerate(words):
            answers.append({int(peer): told[peer] for peer in word.peers})
            for peer in map(int, word.peers):
                held = self._gossips and self._gossip.holds(who, peer)
                self.bill.entries(purpose, "Ask", peer, 1, 2 if held else told[peer].size, 0, 1, told[peer].itemsize)
        return answers
