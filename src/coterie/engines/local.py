"""The embedded engine: all agents in this process, in lockstep, without threads."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from types import FrameType
from typing import Any, ClassVar

from coterie.bill import Bill
from coterie.data.remote import Rows
from coterie.engines.engine import Engine, Run
from coterie.rounds import Outcome
from coterie.transport.gossip import Gossip
from coterie.transport.in_process import InProcess


class Local(Engine):
    """All agents in this process."""

    name: ClassVar[str] = "local"
    summary: ClassVar[str] = "all agents in this process, in lockstep"

    def __init__(self, gossip: Gossip | None = None, secrets: Sequence[bytes] = ()):
        """`gossip`: lost and late messages, records and replays, for methods whose agents wake up one by one.

        `secrets`: one per agent, what the parties of a study drew their private randomness from (`peers.nonce`).
        """
        self.gossip, self.secrets = gossip, secrets

    def hosting(self, data: Any, agents: Any) -> None:
        """Nothing is elsewhere: `solve` calls what is callable."""
        if isinstance(data, Rows):
            super().hosting(data, agents)

    def run(self, run: Run) -> Outcome:
        transport = InProcess(run.network, Bill(run.network), run.names, self.gossip, run.secure_sums)
        if self.secrets:
            agents = [replace(agent, secret=one) for agent, one in zip(run.agents, self.secrets, strict=True)]
            run = replace(run, agents=agents)
        with ctrl_c() as pressed:
            return run.on(transport, pressed.is_set)


@contextmanager
def ctrl_c() -> Iterator[threading.Event]:
    """The first Ctrl-C asks for a stop after the current round; the second one is Python's own."""
    pressed = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield pressed
        return
    previous = signal.getsignal(signal.SIGINT)

    def first(number: int, frame: FrameType | None) -> None:
        pressed.set()
        signal.signal(signal.SIGINT, previous)

    signal.signal(signal.SIGINT, first)
    try:
        yield pressed
    finally:
        signal.signal(signal.SIGINT, previous)
