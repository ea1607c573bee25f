"""Count the messages, numbers and bits of a run. All communication cost is counted here.

The cost of a collective depends on the network:

| collective        | with a server                    | on a graph with m agents and E edges     |
|-------------------|----------------------------------|------------------------------------------|
| `Sum` of s        | s up and s down per agent: 2 m s | up and down a spanning tree: 2 (m − 1) s |
| `Sum(to=)`        | s up from others, s down: m s    | up the spanning tree: (m − 1) s          |
| `Sum(of=)`        | s up, and down to others: m s    | down the spanning tree: (m − 1) s        |
| `Mix`, `Exchange` | not possible                     | s in both directions of every edge: 2 E s|
| `Ask` of p agents | p published messages             | p published messages                     |

A secure `Sum` costs as much as a `Sum` of numbers with 24 bytes.

The messages of a preparation, of the set-up, of the rounds, of self-tuning and of the certificates
(`proof`) are counted separately: `scalars`, `bits` and `messages` are those of the rounds, which
the papers count; `total` is all that was sent, and `max_bits` limits it. Organisations without
secure sums compare a signed digest after each `Sum` (`digests`); it contains no numbers.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from coterie.networks import Network

DIGESTS = "digests"
PURPOSES = ("preparation", "setup", "rounds", "tuning", "proof", DIGESTS)


@dataclass(frozen=True)
class Cost:
    """A communication cost: numbers of messages, scalars and bits."""

    messages: int = 0
    scalars: int = 0
    bits: int = 0

    def __add__(self, other: Cost) -> Cost:
        return Cost(
            self.messages + other.messages, self.scalars + other.scalars, self.bits + other.bits
        )

    def seconds(self, latency: float, bandwidth: float, turns: int) -> float:
        """Time on a link of that latency (seconds per turn) and bandwidth (bits per second), if one
        agent sends it.
        """
        return turns * latency + self.bits / bandwidth


class Bill:
    """All bits that agents sent: in total, per agent, per collective, per purpose, per round."""

    def __init__(self, network: Network):
        self._network = network
        self._links = _links(network)
        self._copies = {collective: int(links.sum()) for collective, links in self._links.items()}
        """Of a `Sum` to or of one agent, too: they are added when the first one is counted."""
        # (purpose, collective) -> [number, scalars, bits] of one agent, if all agents send messages
        # of equal size
        self._alike: dict[tuple[str, str], list[int]] = {}
        # (purpose, collective) -> per agent [messages, scalars, bits], if they do not
        self._apart: dict[tuple[str, str], list[list[int]]] = {}
        self._lengths = array("q")
        self._sizes = array("q")
        """Runs of rounds with equal traffic: the number of rounds, and the numbers sent by each.
        Arrays: in some runs every round differs from the one before.
        """
        self._scalars = 0
        self._bits = 0
        self._before = 0
        """Numbers and bits of the rounds so far, and the numbers of completed rounds."""

    # -- counting, called by transports ------------------------------------------------------------

    def say(self, purpose: str, collective: str, size: int, itemsize: int) -> None:
        """Count a collective in which each agent sent `size` numbers of `itemsize` bytes each."""
        entry = self._alike.get((purpose, collective))
        if entry is None:
            self._know(collective)
            entry = self._alike[purpose, collective] = [0, 0, 0]
        entry[0] += 1
        entry[1] += size
        entry[2] += 8 * itemsize * size
        if purpose == "rounds":
            sent = self._copies[collective] * size
            self._scalars += sent
            self._bits += 8 * itemsize * sent

    def _know(self, collective: str) -> None:
        """Count the copies of a `Sum` to or of one agent."""
        if collective not in self._links:
            _, way, agent = collective.split()
            links = _links_of_one(self._network, int(agent), upwards=way == "to")
            self._links[collective] = links
            self._copies[collective] = int(links.sum())

    def send(
        self, purpose: str, collective: str, agent: int, messages: int, scalars: int, bits: int
    ) -> None:
        """Count the messages that one agent sent in a collective."""
        table = self._apart.get((purpose, collective))
        if table is None:
            # Plain numbers: gossip counts every message, and an array takes five times as long to
            # add to.
            table = self._apart[purpose, collective] = [
                [0, 0, 0] for _ in range(self._network.agents)
            ]
        row = table[agent]
        row[0] += messages
        row[1] += scalars
        row[2] += bits
        if purpose == "rounds":
            self._scalars += scalars
            self._bits += bits

    def entries(
        self,
        purpose: str,
        collective: str,
        agent: int,
        copies: int,
        plain: int,
        entries: int,
        length: int,
        itemsize: int = 8,
    ) -> None:
        """Count copies of a message of one agent, with `plain` numbers and `entries` entries of a
        vector of that length.

        An entry is a number and its place: Z + ⌈log₂ length⌉ bits.
        """
        each = 8 * itemsize * (plain + entries) + entries * (length - 1).bit_length()
        self.send(purpose, collective, agent, copies, copies * (plain + entries), copies * each)

    def exchange(self, purpose: str, messages: Sequence[tuple[int, int]]) -> None:
        """Count an exchange; `messages` has the size of each agent's message and its bytes per
        number.
        """
        if len(set(messages)) == 1:
            self.say(purpose, "Exchange", *messages[0])
            return
        for agent, (size, itemsize) in enumerate(messages):
            links = int(self._links["Exchange"][agent])
            self.send(purpose, "Exchange", agent, links, links * size, links * 8 * itemsize * size)

    def end_round(self) -> None:
        """Count the end of a round."""
        sent = self._scalars - self._before
        self._before = self._scalars
        self._add_round(sent)

    def _add_round(self, sent: int) -> None:
        if self._sizes and self._sizes[-1] == sent:
            self._lengths[-1] += 1
        else:
            self._lengths.append(1)
            self._sizes.append(sent)

    def amend(self, sent: Sequence[int]) -> None:
        """Replace the numbers that the last rounds sent, which were not known at their ends."""
        for _ in sent:
            self._lengths[-1] -= 1
            if not self._lengths[-1]:
                self._lengths.pop()
                self._sizes.pop()
        for scalars in sent:
            self._add_round(scalars)
        self._before = self._scalars

    # -- reading -----------------------------------------------------------------------------------

    @property
    def network(self) -> Network:
        """The network of the messages; for personal models this is not the collaboration graph."""
        return self._network

    @property
    def rounds(self) -> int:
        """The number of rounds."""
        return sum(self._lengths)

    @property
    def messages(self) -> int:
        """Messages that the rounds sent."""
        return self._cost("rounds").messages

    @property
    def scalars(self) -> int:
        """Numbers that the rounds sent."""
        return self._cost("rounds").scalars

    @property
    def bits(self) -> int:
        """Bits that the rounds sent, headers not counted."""
        return self._cost("rounds").bits

    @property
    def total(self) -> Cost:
        """Everything that was sent: preparation, set-up, rounds, tuning and proofs."""
        return self._cost(*PURPOSES)

    @property
    def per_purpose(self) -> dict[str, Cost]:
        """The cost of each purpose with messages."""
        costs = {purpose: self._cost(purpose) for purpose in PURPOSES}
        return {purpose: cost for purpose, cost in costs.items() if cost.messages}

    @property
    def per_word(self) -> dict[str, Cost]:
        """The cost of each collective, over all purposes."""
        names = sorted({_word(collective) for _, collective in (*self._alike, *self._apart)})
        return {collective: self._cost(*PURPOSES, collective=collective) for collective in names}

    @property
    def per_agent(self) -> list[Cost]:
        """The cost of each agent; with a server, its cost is the last."""
        accounts = self._network.agents + self._network.server
        sent = np.zeros((accounts, 3), np.int64)
        for (_, collective), entry in self._alike.items():
            sent += self._links[collective][:, None] * np.array(entry)
        for table in self._apart.values():
            sent[: len(table)] += np.array(table, np.int64)
        return [Cost(*map(int, row)) for row in sent]

    @property
    def per_round(self) -> list[int]:
        """The numbers that each round sent."""
        runs = zip(self._lengths, self._sizes, strict=True)
        return [sent for count, sent in runs for _ in range(count)]

    @property
    def per_edge(self) -> dict[tuple[int, int], int]:
        """The bits that each link carried, both directions together; agent −1 is the server."""
        carried: dict[tuple[int, int], int] = {}
        for (i, j), bits in self.per_direction.items():
            edge = (min(i, j), max(i, j))
            carried[edge] = carried.get(edge, 0) + bits
        return carried

    @property
    def per_direction(self) -> dict[tuple[int, int], int]:
        """The bits that each link (i, j) carried from i to j; agent −1 is the server.

        Replies to an `Ask` are in `per_agent` only: they need not travel along an edge.
        """
        carried: dict[tuple[int, int], int] = {}

        def carry(i: int, j: int, bits: int) -> None:
            carried[i, j] = carried.get((i, j), 0) + bits

        sums = mixes = 0
        for (_, collective), (_, _, bits) in self._alike.items():
            if collective == "Sum":
                sums += bits
            elif _word(collective) == "Sum":
                for i, j in self._ways(collective):
                    carry(i, j, bits)
            else:
                mixes += bits
        if self._network.server:
            for agent in range(self._network.agents):
                carry(agent, -1, sums)
                carry(-1, agent, sums)
            return carried
        for child, parent in enumerate(self._network.tree().parents):
            if parent >= 0:
                carry(child, int(parent), sums)
                carry(int(parent), child, sums)
        each = self._exchanged_bits()
        for i, j in self._network.edges.tolist():
            carry(i, j, mixes + each[i])
            carry(j, i, mixes + each[j])
        return carried

    def _ways(self, collective: str) -> list[tuple[int, int]]:
        """The links of a `Sum` to or of one agent, in its direction; agent −1 is the server."""
        _, way, name = collective.split()
        agent = int(name)
        others = [other for other in range(self._network.agents) if other != agent]
        if self._network.server:
            if way == "to":
                return [*((other, -1) for other in others), (-1, agent)]
            return [(agent, -1), *((-1, other) for other in others)]
        parents = self._network.tree(agent).parents
        if way == "to":
            return [(other, int(parents[other])) for other in others]
        return [(int(parents[other]), other) for other in others]

    def _exchanged_bits(self) -> list[int]:
        """The bits that each agent sent to each neighbour in exchanges of unequal messages."""
        links = np.maximum(self._links["Exchange"], 1)
        bits = np.zeros(self._network.agents, np.int64)
        for (_, collective), table in self._apart.items():
            if collective == "Exchange":
                bits += np.array(table, np.int64)[:, 2] // links
        return [int(own) for own in bits]

    def seconds(self, latency: float, bandwidth: float) -> float:
        """The time that all messages would take: `latency` seconds per hop, `bandwidth` bits per
        second on each agent's link.

        Sums climb and descend the tree (or go to the server and back), an exchange is one hop for
        all neighbours at once; all wait for the busiest sender.
        """
        hops = 2 * self._network.tree().depth
        turns = 0
        for (_, collective), (number, _, _) in self._alike.items():
            each = 1
            if collective == "Sum":
                each = hops
            elif _word(collective) == "Sum":
                each = hops // 2
            turns += number * each
        for (_, collective), table in self._apart.items():
            sent = np.array(table, np.int64)[:, 0]
            if collective == "Exchange":
                sent = sent // np.maximum(self._links.get(collective, 1), 1)
            turns += int(sent.max())
        busiest = max(self.per_agent, key=lambda cost: cost.bits, default=Cost())
        return busiest.seconds(latency, bandwidth, turns)

    def money(self, per_gigabyte: float) -> float:
        """The price of all messages, at that price per gigabyte sent."""
        return per_gigabyte * self.total.bits / 8e9

    def table(self) -> list[dict[str, Any]]:
        """One row per purpose and collective, for printing and for JSON."""
        rows = []
        for purpose in PURPOSES:
            for collective in ("Sum", "Mix", "Exchange", "Ask"):
                cost = self._cost(purpose, collective=collective)
                if cost.messages:
                    row = {"messages": cost.messages, "scalars": cost.scalars, "bits": cost.bits}
                    rows.append({"purpose": purpose, "word": collective, **row})
        return rows

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Bill) and self.state() == other.state()

    def __repr__(self) -> str:
        total = self.total
        return (
            f"Bill(rounds={self.rounds}, scalars={self.scalars}, total bits={total.bits}, "
            f"messages={total.messages})"
        )

    # -- checkpoints -------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """All that was counted so far, as plain values."""
        alike = [[*key, *entry] for key, entry in sorted(self._alike.items())]
        apart = [[*key, [list(row) for row in rows]] for key, rows in sorted(self._apart.items())]
        rows = [list(row) for row in zip(self._lengths, self._sizes, strict=True)]
        return {"alike": alike, "apart": apart, "rows": rows}

    def restore(self, state: dict[str, Any]) -> None:
        """Continue counting from an earlier `state()`."""
        self._alike = {}
        for purpose, collective, *entry in state["alike"]:
            self._know(collective)
            self._alike[purpose, collective] = list(entry)
        self._apart = {}
        for purpose, collective, table in state["apart"]:
            self._apart[purpose, collective] = [list(map(int, row)) for row in table]
        self._lengths = array("q", [count for count, _ in state["rows"]])
        self._sizes = array("q", [sent for _, sent in state["rows"]])
        self._scalars = self.scalars
        self._bits = self.bits
        self._before = self.scalars

    def _cost(self, *purposes: str, collective: str | None = None) -> Cost:
        messages = scalars = bits = 0
        for (purpose, name), (number, size, bits_each) in self._alike.items():
            if purpose in purposes and collective in (None, _word(name)):
                links = self._copies[name]
                messages += links * number
                scalars += links * size
                bits += links * bits_each
        for (purpose, name), table in self._apart.items():
            if purpose in purposes and collective in (None, name):
                sent = np.array(table, np.int64).sum(axis=0)
                messages += int(sent[0])
                scalars += int(sent[1])
                bits += int(sent[2])
        return Cost(messages, scalars, bits)


def _links(network: Network) -> dict[str, npt.NDArray[np.int64]]:
    """For each collective, the number of copies of its message that each agent and the server
    send.
    """
    m = network.agents
    if network.server:
        up_and_down = np.ones(m + 1, np.int64)
        up_and_down[m] = m
        return {"Sum": up_and_down}
    sums = np.zeros(m, np.int64)
    for child, parent in enumerate(network.tree().parents):
        if parent >= 0:
            sums[child] += 1
            sums[parent] += 1
    neighbours = np.asarray(network.neighbour_counts, np.int64)
    return {"Sum": sums, "Mix": neighbours, "Exchange": neighbours}


def _links_of_one(network: Network, agent: int, *, upwards: bool) -> npt.NDArray[np.int64]:
    """The copies that each agent and the server send of a `Sum` to that agent, or of that agent."""
    m = network.agents
    sent = np.zeros(m + network.server, np.int64)
    if upwards:
        sent[:] = 1
        sent[agent] = 0
    elif network.server:
        sent[agent] = 1
        sent[m] = m - 1
    else:
        for parent in network.tree(agent).parents:
            if parent >= 0:
                sent[parent] += 1
    return sent


def _word(collective: str) -> str:
    """The name of the collective, without the agent that it is to or of."""
    return collective.partition(" ")[0]


def format_bits(bits: float) -> str:
    """Write a number of bits as bytes, in a unit that reads well."""
    size = bits / 8
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000 or unit == "GB":
            break
        size /= 1000
    return f"{size:.3g} {unit}"
