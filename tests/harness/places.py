"""Processes as threads of this one, for tests: links that are queues, and an engine on such
links.
"""

from __future__ import annotations

import queue
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from coterie.engines import Engine
from coterie.engines.processes import RunSpec, driver_on, put_together, work
from coterie.errors import PartyLost, ProtocolError
from coterie.numerics.arrays import sealed
from coterie.transport.layout import Layout
from coterie.transport.links import Stop

GONE = None
"""What the others hear from a process that failed."""


class Queues:
    """Links of one process: a queue for each direction of each pair of processes."""

    deadline = 120.0
    """Seconds of silence after which a process counts as lost."""

    def __init__(self, process, lines, published, partners):
        self.process, self.lines, self.published, self.partners = (
            process,
            lines,
            published,
            partners,
        )
        self.stop = Stop()

    @staticmethod
    def mesh(network, process_of):
        processes = range(max(process_of) + 1)
        lines = {(a, b): queue.Queue() for a in processes for b in processes}
        published = {}
        return [
            Queues(process, lines, published, Layout(network, process_of, process).partners)
            for process in processes
        ]

    def send(self, to, message, tag):
        assert to in self.partners
        self.lines[self.process, to].put((tag, message.copy(), self.stop))

    def poll(self, source, tag):
        return None if self.lines[source, self.process].empty() else self.receive(source, tag)

    def receive(self, source, tag):
        assert source in self.partners
        line = self.lines[source, self.process]
        try:
            received = line.get(timeout=self.deadline)
        except queue.Empty:
            received = GONE
        if received is GONE:
            line.put(GONE)
            raise PartyLost(f"process {source} fell silent")
        found, message, stop = received
        if found != tag:
            raise ProtocolError(f"expected {tag}, and process {source} sent {found}")
        self.stop = self.stop if self.stop.reason else stop
        message.flags.writeable = False
        return message

    def publish(self, agent, message):
        self.published[agent] = sealed(message.copy())

    def ask(self, process, agent, patience=None):
        return self.published.get(agent)

    def fail(self):
        """Let nobody wait for what will not come."""
        for (source, _), line in self.lines.items():
            if source == self.process:
                line.put(GONE)

    def close(self):
        pass


def at_each(links, job):
    """What `job(process, links)` comes to in a thread for each process; if some fail, the error
    that came first.
    """

    def one(own):
        try:
            return job(own.process, own)
        except Exception:
            own.fail()
            raise

    with ThreadPoolExecutor(len(links)) as pool:
        futures = [pool.submit(one, own) for own in links]
        errors = [error for future in futures if (error := future.exception())]
    if errors:
        raise min(errors, key=lambda error: isinstance(error, PartyLost))
    return [future.result() for future in futures]


@dataclass(frozen=True)
class Places(Engine):
    """Agents at several places, each a thread of this process; with a `pace`, agents have clocks of
    their own.
    """

    places: int
    dealt: bool = False
    stops: tuple[int, ...] = ()
    """The processes that ask to stop at once."""
    pace: float | None = None

    def run(self, run):
        spec = RunSpec.of(run, self.places, self.pace)
        if self.dealt:
            spec = replace(
                spec, process_of=tuple(agent % self.places for agent in range(len(run.agents)))
            )
        shares = spec.shared_out(run)

        def one(process, links):
            links.partners = range(spec.processes)
            transport = driver_on(spec, process, links)
            return work(spec, shares[process], transport, stop_wished=lambda: process in self.stops)

        outcomes = at_each(Queues.mesh(run.network, spec.process_of), one)
        assert all(outcome.status == outcomes[0].status for outcome in outcomes)
        assert all(outcome.bill == outcomes[0].bill for outcome in outcomes)
        return put_together(outcomes, spec)
