"""Words among agents that live in one process: in lockstep, on as many threads as `cores`
allows.
"""

from __future__ import annotations

from collections.abc import Sequence

from coterie.networks import Network
from coterie.run.bill import Bill
from coterie.transport.collectives import OneProcess
from coterie.transport.driver import Driver
from coterie.transport.gossip import Gossip


class InProcess(Driver):
    """Answers the words of all agents of a network, and bills them."""

    def __init__(
        self,
        network: Network,
        bill: Bill,
        names: Sequence[str] | None = None,
        gossip: Gossip | None = None,
        secure_sums: bool = False,
        numbers: int = 0,
    ):
        """`gossip`: lost and late messages, records and replays, for agents that wake up one by
        one.

        `numbers`: how many an agent holds, on average; if they are many, agents work on several
        threads.
        """
        super().__init__(bill, OneProcess(network, names), secure_sums=secure_sums)
        self._given = gossip or Gossip()
        self.numbers = numbers

    def _new_gossip(self) -> Gossip:
        self._given.open(self.bill, self.network.agents)
        return self._given
