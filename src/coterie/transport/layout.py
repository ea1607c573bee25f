"""Which agent lives in which process, and which processes have something to say to each other.

Processes are numbered from 0; where every agent has one of its own, they have the agents' numbers.
"""

from __future__ import annotations

from collections.abc import Sequence

from coterie.networks import Network

__all__ = ["Layout", "partners"]


class Layout:
    """One process's view of where everybody lives: `process_of[j]` is the process of agent j."""

    def __init__(self, network: Network, process_of: Sequence[int], process: int):
        self.network, self.process_of, self.process = network, list(process_of), process
        self.agents_of: dict[int, list[int]] = {}
        for agent, owner in enumerate(process_of):
            self.agents_of.setdefault(owner, []).append(agent)
        self.here = self.agents_of[process]
        """The agents of this process, in the order of their talks."""
        self.others = sorted(self.agents_of.keys() - {process})
        self.told_by, self.tells = _relay(network, self.process_of, process)
        """From which process a total comes to this one, and to which it goes on from here."""
        self.outgoing, self.incoming = _crossings(network, self.process_of, process)
        """Process by process: which agents here have a neighbour there, and which agents there have one here."""
        self.at_hand = sorted({*self.here, *(agent for agents in self.incoming.values() for agent in agents)})
        """The agents whose messages come together here in a `Mix`."""
        self.reach = 0 if not self.others else 1 if network.server else max(1, network.diameter)
        """After so many rounds every process has heard what the process of agent 0 said."""

    @property
    def leads(self) -> bool:
        """Whether agent 0 lives here: its process has the last word on when to stop."""
        return self.process == self.process_of[0]


def partners(network: Network, process_of: Sequence[int], process: int) -> list[int]:
    """The other processes that a process exchanges messages with."""
    told_by, tells = _relay(network, process_of, process)
    outgoing, _ = _crossings(network, process_of, process)
    found = {*tells, *outgoing} | ({told_by} if told_by is not None else set())
    if not network.server:
        parents = network.tree().parents
        crossing = [(process_of[child], process_of[parent]) for child, parent in enumerate(parents) if parent >= 0]
        found |= {other for pair in crossing if process in pair for other in pair}
    return sorted(found - {process})


def _relay(network: Network, process_of: Sequence[int], process: int) -> tuple[int | None, list[int]]:
    if network.server:
        server = process_of[0]
        return (None, sorted(set(process_of) - {server})) if process == server else (server, [])
    tree = network.tree()
    told_by: dict[int, int | None] = {}
    for agent in map(int, tree.order):
        parent = int(tree.parents[agent])
        # The first agent of a process in the order of the tree has its parent elsewhere, or is the root.
        told_by.setdefault(process_of[agent], process_of[parent] if parent >= 0 else None)
    return told_by[process], [other for other, source in told_by.items() if source == process]


def _crossings(
    network: Network, process_of: Sequence[int], process: int
) -> tuple[dict[int, list[int]], dict[int, list[int]]]:
    if network.server:
        return {}, {}
    outgoing: dict[int, set[int]] = {}
    incoming: dict[int, set[int]] = {}
    for agent, owner in enumerate(process_of):
        if owner == process:
            for other in network.neighbours(agent):
                if process_of[other] != process:
                    outgoing.setdefault(process_of[other], set()).add(agent)
                    incoming.setdefault(process_of[other], set()).add(other)
    return _sorted(outgoing), _sorted(incoming)


def _sorted(sets: dict[int, set[int]]) -> dict[int, list[int]]:
    return {process: sorted(sets[process]) for process in sorted(sets)}
