"""The embedded engine: all agents in this process, in lockstep, on all cores."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from types import FrameType
from typing import Any, ClassVar

from coterie.data import Table
from coterie.data.remote import Rows
from coterie.engines.engine import Engine, Run
from coterie.numerics.arrays import is_tensor, whole_number
from coterie.numerics.threads import cores, one_blas_thread
from coterie.run.agent import AgentForm, numbers_held
from coterie.run.bill import Bill
from coterie.run.rounds import Outcome
from coterie.run.site import SiteForm
from coterie.transport.gossip import Gossip
from coterie.transport.in_process import InProcess


class Local(Engine):
    """All agents in this process."""

    name: ClassVar[str] = "local"
    summary: ClassVar[str] = "all agents in this process, in lockstep"
    in_memory: ClassVar[bool] = True

    def __init__(
        self,
        gossip: Gossip | None = None,
        secrets: Sequence[bytes] = (),
        threads: int | None = None,
    ):
        """`gossip`: lost and late messages, records and replays, for methods whose agents wake up
        one by one.

        `secrets`: one per agent, the seeds of the private random numbers of a study's parties
        (`study.nonce`). `threads`: how many agents with much data compute at a time, by default one
        for each core; results do not depend on it.
        """
        self.gossip = gossip
        self.secrets = secrets
        self.threads = None if threads is None else whole_number("threads", threads)

    def cores(self) -> AbstractContextManager[None]:
        return cores(self.threads)

    def hosting(self, data: Any, agents: Any) -> None:
        """Nothing is elsewhere: `solve` calls what is callable."""
        if isinstance(data, Rows):
            super().hosting(data, agents)

    def run(self, run: Run) -> Outcome:
        numbers = numbers_held(run.agents)
        transport = InProcess(
            run.network, Bill(run.network), run.names, self.gossip, run.secure_sums, numbers
        )
        if self.secrets:
            sites = zip(run.agents, self.secrets, strict=True)
            run = replace(run, agents=[_with_secret(site, one) for site, one in sites])
        with self.cores(), self._blas(run), ctrl_c() as pressed:
            return run.on(transport, pressed.is_set)

    def _blas(self, run: Run) -> AbstractContextManager[None]:
        """With a GPU, one thread factors matrices that are small enough for the host: to wake
        others takes longer.
        """
        if all(_is_on_gpu(site) for site in run.agents):
            return one_blas_thread()
        return nullcontext()


def _with_secret(site: SiteForm, secret: bytes) -> SiteForm:
    """The agent with the seed of its private random numbers; a site draws none."""
    if isinstance(site, AgentForm):
        return replace(site, secret=secret)
    return site


def _is_on_gpu(site: SiteForm) -> bool:
    table = site.data
    return isinstance(table, Table) and is_tensor(table.X) and bool(table.X.is_cuda)


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
