"""Which agent lives in which process, and which processes have something to say to each other.

Processes are numbered from 0; where every agent has one of its own, they have the agents' numbers.
"""

from __future__ import annotations

from collections.abc import Sequence

from coterie.networks import Network


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
        self.leads = process == process_of[0]
        """Whether agent 0 lives here: its process has the last word on when to stop."""
        self.told_by, self.tells = self._relay()
        """From which process a total comes to this one, and to which it goes on from here."""
        talking = self.here if self.others and not network.server else []
        crossing = [(k, int(j)) for k in talking for j in network.neighbours(k) if process_of[j] != process]
        near = sorted({process_of[j] for _, j in crossing})
        self.outgoing = {other: sorted({k for k, j in crossing if process_of[j] == other}) for other in near}
        """Process by process: which agents here have a neighbour there, and"""
        self.incoming = {other: sorted({j for _, j in crossing if process_of[j] == other}) for other in near}
        """which agents there have one here."""
        self.at_hand = sorted({*self.here, *(j for _, j in crossing)})
        """The agents whose messages come together here in a `Mix`."""
        self.reach = 0 if not self.others else 1 if network.server else max(1, network.diameter)
        """After so many rounds every process has heard what the process of agent 0 said."""

    @property
    def partners(self) -> list[int]:
        """The other processes that this one exchanges messages with."""
        found = {*self.tells, *self.outgoing} | ({self.told_by} if self.told_by is not None else set())
        if not self.network.server:
            for child, parent in enumerate(self.network.tree().parents):
                pair = {self.process_of[child], self.process_of[parent]} if parent >= 0 else set()
                found |= pair if self.process in pair else set()
        return sorted(found - {self.process})

    def _relay(self) -> tuple[int | None, list[int]]:
        if self.network.server:
            return (None, self.others) if self.leads else (self.process_of[0], [])
        tree = self.network.tree()
        told_by: dict[int, int | None] = {}
        for agent in map(int, tree.order):
            parent = int(tree.parents[agent])
            # The first agent of a process in the order of the tree has its parent elsewhere, or is the root.
            told_by.setdefault(self.process_of[agent], self.process_of[parent] if parent >= 0 else None)
        return told_by[self.process], [other for other, source in told_by.items() if source == self.process]
