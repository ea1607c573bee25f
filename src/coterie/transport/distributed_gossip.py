"""Gossip of agents that live in several places: the wake-ups, the letters and the bill of the embedded clock.

Who wakes up when is drawn from (seed, round), so every place knows it without a message, and all walk through the same
wake-ups. The place of the agent that wakes up leads, the others follow:

| message   | from, to                     | content                                                                  |
|-----------|------------------------------|--------------------------------------------------------------------------|
| questions | leader to where peers live   | ASKED, and who is asked                                                  |
| answers   | back                         | for each: body, head, sparse, how many numbers of x changed since this   |
|           |                              | place was told, where (unless all did), and to what                      |
| the end   | leader to all other places   | DONE, and for each note: sender, receiver, how many numbers, the numbers |
|           |                              | (or FAILED: the new letter is not finite, and all places stop)           |

A place answers what its agents published before this wake-up: it has heard the end of all earlier ones. Each place
bills what it leads; after a round the accounts are added up, so that all hold the same bill.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from coterie.agent import Agent
from coterie.arrays import FloatArray, sealed
from coterie.bill import Bill
from coterie.errors import NumericalError, ProtocolError
from coterie.networks import Network
from coterie.steps import Steps
from coterie.transport.gossip import Gossip, unfit, wake_ups
from coterie.transport.links import Tag
from coterie.words import Ask, Letter

__all__ = ["DistributedGossip"]

ASKED, DONE, FAILED = 0.0, 1.0, 2.0
CARD = 4
"""An answer begins with so many numbers."""
LONGEST_NOTE = 8
WORDS = ("Ask", "Exchange")
"""What gossip is billed under."""


class DistributedGossip(Gossip):
    """One place's part of the gossip."""

    def __init__(
        self,
        network: Network,
        homes: Sequence[int],
        place: int,
        send: Callable[[int, FloatArray, Tag], None],
        receive: Callable[[int, Tag], FloatArray],
    ):
        super().__init__()
        self.network, self.homes, self.place = network, homes, place
        self._others = sorted(set(homes) - {place})
        self._post, self._await = send, receive
        self._tag = Tag("rounds", 0, "wake-up")
        self._outbox: dict[int, list[float]] = {}
        self._told: dict[tuple[int, int], FloatArray] = {}
        """What x of an agent of this place another place knows."""
        self.open(Bill(network), network.agents)

    def run(self, agents: Sequence[Agent], states: list[Any], steps: Steps, t: int) -> list[Any]:
        """K wake-ups, here and elsewhere; returns the States of the agents of this place."""
        here = [agent.index for agent in agents]
        self._agents, self._states = dict(zip(here, agents, strict=True)), dict(zip(here, states, strict=True))
        self._steps = steps
        for tick, who in wake_ups(agents[0].seed, self.count, t):
            self._tag = Tag("rounds", tick, "wake-up")
            if self.homes[who] == self.place:
                self._lead(who, tick)
            else:
                self._follow(who)
        return [self._states[agent] for agent in here]

    def _lead(self, who: int, tick: int) -> None:
        self._outbox = {place: [DONE] for place in self._others}
        try:
            self._wake(who, tick)
        except NumericalError:
            self._end({place: [FAILED] for place in self._others})
            raise
        self._end(self._outbox)

    def _end(self, words: dict[int, list[float]]) -> None:
        for place, numbers in words.items():
            self._post(place, np.array(numbers), self._tag)

    def _follow(self, who: int) -> None:
        leader = self.homes[who]
        while (message := self._heard(leader))[0] == ASKED:
            peers = _whole(message[1:])
            if not (peers and all(self._lives(peer, self.place) for peer in peers)):
                raise ProtocolError(f"{self._called(leader)} asked here for agents that live elsewhere.")
            self._post(leader, np.concatenate([self._news(leader, peer) for peer in peers]), self._tag)
        if message[0] == FAILED:
            raise unfit(who)
        self._hand_on(leader, message.tolist())

    def _heard(self, place: int) -> FloatArray:
        message = self._await(place, self._tag)
        if not (message.ndim == 1 and message.size and np.isfinite(message[0])):
            raise ProtocolError(f"{self._called(place)} sent a message of no kind.")
        return message

    def _hand_on(self, place: int, numbers: list[float]) -> None:
        """Deliver the notes of a message of that place, which begin behind its first number."""
        start = 1
        while start < len(numbers):
            head = np.array(numbers[start : start + 3])
            sender, receiver, length = _whole(head) if head.size == 3 else (-1, -1, 0)
            start += 3 + length
            whole = 0 < length <= LONGEST_NOTE and start <= len(numbers)
            if not (whole and self._lives(sender, place) and self._lives(receiver, self.place)):
                raise ProtocolError(f"{self._called(place)} sent a note in the name of others, or to others.")
            note = tuple(numbers[start - length : start])
            if not np.isfinite(note).all():
                raise unfit(sender)
            super()._send(sender, receiver, note)

    def _lives(self, agent: int, place: int) -> bool:
        return 0 <= agent < self.count and self.homes[agent] == place

    def _called(self, place: int) -> str:
        return "the process of agent " + " and ".join(str(k) for k, home in enumerate(self.homes) if home == place)

    # -- asking and answering -----------------------------------------------------------------------------------------

    def _answer(self, who: int, word: Ask, tick: int) -> tuple[Any, list[tuple[int, int]]]:
        self._fetch(int(peer) for peer in word.peers)
        return super()._answer(who, word, tick)

    def _fetch(self, peers: Iterable[int]) -> None:
        """Ask the places of those peers for what is new, all at once, and keep it where `Gossip` looks for it."""
        by_place: dict[int, list[int]] = {}
        for peer in peers:
            if self.homes[peer] != self.place:
                by_place.setdefault(self.homes[peer], []).append(peer)
        for place, asked in by_place.items():
            self._post(place, np.array([ASKED, *asked]), self._tag)
        for place, asked in by_place.items():
            answer, start = self._await(place, self._tag), 0
            for peer in asked:
                start = self._learn(peer, answer, start)

    def _news(self, place: int, peer: int) -> FloatArray:
        """What that place does not know yet of the letter of an agent that lives here."""
        letter = self._letters[peer]
        known = self._told.get((place, peer))
        changed = np.flatnonzero(letter.x if known is None else letter.x != known)
        self._told[place, peer] = letter.x.copy()
        card = [self._bodies[peer], letter.head, letter.sparse, changed.size]
        return np.concatenate([card, changed if changed.size < letter.x.size else [], letter.x[changed]])

    def _learn(self, peer: int, answer: FloatArray, start: int) -> int:
        """Take in one peer's part of an answer; returns where the next one begins."""
        body, head, sparse, changes = _whole(answer[start : start + CARD])
        start += CARD
        row = self._board[peer]
        if changes == row.size:
            row[:] = answer[start : start + changes]
            start += changes
        else:
            row[_whole(answer[start : start + changes])] = answer[start + changes : start + 2 * changes]
            start += 2 * changes
        self._bodies[peer] = body
        self._letters[peer] = Letter(sealed(row.copy()), head, bool(sparse))
        return start

    def _send(self, sender: int, receiver: int, note: tuple[float, ...]) -> None:
        if self.homes[receiver] == self.place:
            super()._send(sender, receiver, note)
        else:
            self._outbox[self.homes[receiver]] += [sender, receiver, len(note), *note]

    # -- the bill -----------------------------------------------------------------------------------------------------

    def settle(self, bill: Bill) -> None:
        """Add to every place's bill what all places spent since they last settled."""
        account = np.zeros((len(WORDS), 3 * self.count + 1))
        for _, word, table in self.bill.state()["apart"]:
            account[WORDS.index(word)] = [*np.ravel(table), 1]
        self.bill = Bill(self.network)
        for word, (*spent, said) in zip(WORDS, self._pooled(account).tolist(), strict=True):
            if said:
                for agent in range(self.count):
                    bill.send("rounds", word, agent, *map(int, spent[3 * agent : 3 * agent + 3]))

    def _pooled(self, account: FloatArray) -> FloatArray:
        """The sum of the places' accounts, by way of the place of agent 0."""
        tag, hub = Tag("engine", self._tag.step, "account"), self.homes[0]
        if self.place != hub:
            self._post(hub, account, tag)
            return self._await(hub, tag).reshape(account.shape)
        for place in self._others:
            account += self._await(place, tag).reshape(account.shape)
        for place in self._others:
            self._post(place, account, tag)
        return account


def _whole(numbers: FloatArray) -> list[int]:
    if not np.isfinite(numbers).all():
        raise ProtocolError("a message has something that is not finite where whole numbers belong.")
    return [int(number) for number in numbers.tolist()]
