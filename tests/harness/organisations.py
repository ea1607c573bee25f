"""Organisations without links: a thread each, all running the same operation, as between
organisations.

Whatever one of them asks or says, all must: a text that decides by what only one party knows is
found out at once.
"""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import msgspec

from coterie.data.summary import TableSummary
from coterie.networks import star
from coterie.run.bill import Bill
from coterie.run.disclosure import Guard
from coterie.run.parties import Parties
from coterie.run.site import NO_RULES, Rules, Site
from coterie.transport.in_process import InProcess


class MeetingPoint:
    """Where all meet: what each lays down is seen by all when the last one has."""

    def __init__(self, count):
        self.count, self.slots, self.found = count, [None] * count, None
        self.barrier = threading.Barrier(count, timeout=5)

    def lay_down(self, index, about, thing, together=lambda things: things):
        """What `together` makes of everybody's things, once all have come for the same."""
        self.slots[index] = (about, thing)
        if self.barrier.wait() == 0:
            abouts = {one for one, _ in self.slots}
            try:
                assert len(abouts) == 1, f"parties came to different steps: {sorted(abouts)}"
                self.found = together([thing for _, thing in self.slots])
            except BaseException as error:
                self.found = error
        self.barrier.wait()
        found = self.found
        self.barrier.wait()
        if isinstance(found, BaseException):
            raise found
        return found


@dataclass(frozen=True)
class Organisation(Parties):
    """Seen from one of the threads."""

    operation: object
    split: str
    cards: list
    rules: Rules
    bill: Bill
    site: Site
    point: MeetingPoint
    transport: InProcess
    apart = True
    in_memory = False

    def ask(self, query, kind):
        name = self.declared(query).__name__
        mine = msgspec.msgpack.encode(query(self.site))
        told = self.point.lay_down(self.site.index, f"ask {name}", mine)
        return [msgspec.msgpack.decode(one, type=kind) for one in told]

    def look(self, query):
        own = query(self.site)
        return [own if index == self.site.index else None for index in range(self.site.count)]

    def map(self, step, cards=None, part=""):
        site = replace(self.site, data=step(self.site), scratch={})
        return replace(self, site=site, cards=self.cards if cards is None else cards)

    def run_protocol(self, protocol, purpose="rounds"):
        name = self.declared(protocol).__name__

        def converse(protocols):
            found = self.transport.converse(protocols, purpose)
            if purpose == "rounds":
                self.transport.bill.end_round()
            return found

        return self.point.lay_down(
            self.site.index, f"protocol {name}", protocol(self.site), converse
        )[self.site.index]

    def run_rounds(self, agents, rounds):
        raise NotImplementedError("rounds are tested with links")

    def answers(self, questions):
        return [question() for question in questions]

    def agree(self, value, otherwise):
        if len({*self.point.lay_down(self.site.index, "agree", value)}) > 1:
            raise ValueError(otherwise)

    def bring(self, brought, kind):
        name = self.declared(brought).__name__
        mine = msgspec.msgpack.encode(brought())
        told = self.point.lay_down(self.site.index, f"bring {name}", mine)
        return [msgspec.msgpack.decode(one, type=kind) for one in told]


def among(operation, tables, *, rules=NO_RULES, split="samples", secure_sums=False):
    """What each party comes to."""
    tables = [operation.alone(table) for table in tables]
    cards = [TableSummary.of(table, names=False) for table in tables]
    network, meeting = star(len(tables), server=True), MeetingPoint(len(tables))
    transport = InProcess(network, Bill(network), secure_sums=secure_sums)
    transport.guard = Guard(operation.name, operation.discloses)

    def one(index):
        site = Site(index, len(tables), tables[index], secure_sums=secure_sums, rules=rules)
        return operation.together(
            Organisation(operation, split, cards, rules, transport.bill, site, meeting, transport)
        )

    with ThreadPoolExecutor(len(tables)) as pool:
        return [
            future.result() for future in [pool.submit(one, index) for index in range(len(tables))]
        ]
