"""Collectives among agents in one process: in lockstep, on at most `cores` threads."""

from __future__ import annotations

from collections.abc import Sequence

from coterie.networks import Network
from coterie.run.bill import Bill
from coterie.transport.collectives import OneProcess
from coterie.transport.driver import Driver
from coterie.transport.gossip import Gossip


class InProcess(Driver):
    """Answers the collectives of all agents of a network, and counts their messages in the bill."""

    def __init__(
        self,
        network: Network,
        bill: Bill,
        names: Sequence[str] | None = None,
        gossip: Gossip | None = None,
        secure_sums: bool = False,
        numbers: int = 0,
    ):
        """Create the driver.

        gossip       lost and delayed messages, records and replays, for agents that wake up one by
                     one
        numbers      average count of numbers that an agent holds; if it is large, the agents run on
                     several threads
        """
        super().__init__(bill, OneProcess(network, names), secure_sums=secure_sums)
        self._given = gossip or Gossip()
        self.numbers = numbers

    def _new_gossip(self) -> Gossip:
        self._given.open(self.bill, self.network.agents)
        return self._given
