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
from coterie.words import Ask, Exchange, Letter, Mix, Sum

__all__ = ["InProcess"]


class InProcess(Driver):
    """Answers the words of all agents of a network, and bills them."""

    def __init__(self, network: Network, bill: Bill, names: Sequence[str] | None = None, gossip: Gossip | None = None):
        super().__init__(network, bill, names)
        self._gossip = gossip or Gossip()
        self._gossip.open(bill, network.agents)
        self._gossips = False
        self._published: dict[int, FloatArray] = {}

    def publish(self, agent: int, letter: FloatArray | Letter) -> None:
        """Put a letter where others can `Ask` for it."""
        if isinstance(letter, Letter):
            self._gossips = True
            self._gossip.publish(agent, letter)
        else:
            self._published[agent] = sealed(np.array(letter))

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
        letters = [word.x for word in words]
        self._same_shape("Sum", letters)
        total = self._total(letters)
        self._finite("Sum", total, letters)
        self.bill.say(purpose, "Sum", total.size, total.itemsize)
        sealed(total)
        return [total] * len(words)

    def _mix(self, words: Sequence[Mix], purpose: str) -> Sequence[FloatArray]:
        self._needs_edges("Mix")
        letters = [word.x for word in words]
        first, rule = letters[0], self._same_rule(words)
        self._same_shape("Mix", letters)
        mixed = self._product(self._matrix(rule, first.dtype, first.size), [letter.reshape(-1) for letter in letters])
        self._finite("Mix", mixed, letters)
        self.bill.say(purpose, "Mix", first.size, first.itemsize)
        sealed(mixed)
        return list(mixed) if first.ndim == 1 else [row.reshape(first.shape) for row in mixed]

    def _exchange(self, words: Sequence[Exchange], purpose: str) -> Sequence[dict[int, FloatArray]]:
        self._needs_edges("Exchange")
        letters = [sealed(np.array(word.x)) for word in words]
        for letter in letters:
            self._finite("Exchange", letter, letters)
        self.bill.exchange(purpose, [(letter.size, letter.itemsize) for letter in letters])
        return [{j: letters[j] for j in self.network.neighbours(agent)} for agent in range(len(words))]

    def _ask(self, words: Sequence[Ask], purpose: str) -> Sequence[dict[int, FloatArray]]:
        if words[0].tell is not None:
            return self._told(words, purpose)
        answers = []
        for word in words:
            answer = {peer: self._published[peer] for peer in word.peers if peer in self._published}
            for peer, letter in answer.items():
                self.bill.send(purpose, "Ask", peer, 1, letter.size, 8 * letter.itemsize * letter.size)
            answers.append(answer)
        return answers

    def _told(self, words: Sequence[Ask], purpose: str) -> Sequence[dict[int, FloatArray]]:
        """What the peers tell in this word; a peer's vector that an agent holds already is not sent again."""
        letters = [word.tell for word in words]
        if any(letter is None for letter in letters):
            raise ProtocolError("some agents told something with their Ask and others did not.")
        told = [sealed(np.array(letter)) for letter in letters]
        answers = []
        for who, word in enumerate(words):
            answers.append({int(peer): told[peer] for peer in word.peers})
            for peer in map(int, word.peers):
                held = self._gossips and self._gossip.holds(who, peer)
                self.bill.entries(purpose, "Ask", peer, 1, 2 if held else told[peer].size, 0, 1, told[peer].itemsize)
        return answers
