"""Map agents to processes, and list the processes that exchange messages.

Processes are numbered from 0. If each agent has its own process, each process has its agent's
number.
"""

from __future__ import annotations

from collections.abc import Sequence

from coterie.networks import Network


class Layout:
    """The process of each agent, seen from one process: `process_of[j]` is the process of agent
    j.
    """

    def __init__(self, network: Network, process_of: Sequence[int], process: int):
        self.network = network
        self.process_of = list(process_of)
        self.process = process
        self.agents_of: dict[int, list[int]] = {}
        for agent, owner in enumerate(process_of):
            self.agents_of.setdefault(owner, []).append(agent)
        self.local = self.agents_of[process]
        """The agents of this process, in the order of their protocols."""
        self.others = sorted(self.agents_of.keys() - {process})
        self.leads = process == process_of[0]
        """Whether agent 0 runs in this process. Its process decides when to stop."""
        self._relays: dict[int, tuple[int | None, list[int]]] = {}
        self.receives_from, self.sends_to = self.relay(0)
        """The process that sends an aggregate to this one (None at the root), and the processes to
        which this process sends it.
        """
        crossing = self._crossing_edges()
        near = sorted({self.process_of[j] for _, j in crossing})
        self.outgoing: dict[int, list[int]] = {}
        """For each neighbouring process: the agents of this process that have a neighbour there."""
        self.incoming: dict[int, list[int]] = {}
        """For each neighbouring process: its agents that have a neighbour in this process."""
        for other in near:
            edges = [(k, j) for k, j in crossing if self.process_of[j] == other]
            self.outgoing[other] = sorted({k for k, _ in edges})
            self.incoming[other] = sorted({j for _, j in edges})
        self.at_hand = sorted({*self.local, *(j for _, j in crossing)})
        """The agents whose messages this process needs for a `Mix`."""
        self.reach = self._rounds_to_reach_all()
        """Number of rounds after which every process knows a decision of the process of agent 0."""

    @property
    def partners(self) -> list[int]:
        """The other processes with which this process exchanges messages."""
        found = {*self.sends_to, *self.outgoing}
        if self.receives_from is not None:
            found.add(self.receives_from)
        if not self.network.server:
            for child, parent in enumerate(self.network.tree().parents):
                if parent < 0:
                    continue
                pair = {self.process_of[child], self.process_of[parent]}
                if self.process in pair:
                    found |= pair
        return sorted(found - {self.process})

    def _crossing_edges(self) -> list[tuple[int, int]]:
        """Return the edges from an agent of this process to an agent of another process; none with
        a server.
        """
        if not self.others or self.network.server:
            return []
        edges = [(k, int(j)) for k in self.local for j in self.network.neighbours(k)]
        return [(k, j) for k, j in edges if self.process_of[j] != self.process]

    def _rounds_to_reach_all(self) -> int:
        if not self.others:
            return 0
        if self.network.server:
            return 1
        return max(1, self.network.diameter)

    def relay(self, root: int) -> tuple[int | None, list[int]]:
        """Return the process that sends a message of that agent to this process (None at the
        agent's own process), and the processes to which this process sends it.
        """
        if root not in self._relays:
            self._relays[root] = self._relay(root)
        return self._relays[root]

    def _relay(self, root: int) -> tuple[int | None, list[int]]:
        if self.network.server:
            return self._relay_by_server(root)
        tree = self.network.tree(root)
        receives_from: dict[int, int | None] = {}
        for agent in map(int, tree.order):
            parent = int(tree.parents[agent])
            # In the order of the tree, the parent of a process's first agent is in another process,
            # or this agent is the root.
            source = self.process_of[parent] if parent >= 0 else None
            receives_from.setdefault(self.process_of[agent], source)
        return receives_from[self.process], [
            other for other, source in receives_from.items() if source == self.process
        ]

    def _relay_by_server(self, root: int) -> tuple[int | None, list[int]]:
        """The process of agent 0 does the work of the server."""
        server = self.process_of[0]
        holder = self.process_of[root]
        if self.process == server:
            source = None if holder == server else holder
            return source, [other for other in self.others if other != holder]
        if self.process == holder:
            return None, [server]
        return server, []
