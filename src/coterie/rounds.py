"""The life of a run: introduce, start, then round after round with a certificate now and then, until something says
stop.

`run` is the same text on every engine. It is handed the agents that live in this process (all of them on one machine,
one per rank on a cluster) and a carrier that answers their words. Every decision rests on numbers that all agents
share, so all processes decide alike without another message.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeVar

from coterie.agent import Agent
from coterie.arrays import FloatArray
from coterie.bill import Bill
from coterie.certificate import Bound, Point, certify, introduce
from coterie.checkpoint import Checkpoint, Snapshot
from coterie.errors import NumericalError
from coterie.statuses import Status
from coterie.steps import Steps
from coterie.words import Talk

__all__ = ["Carrier", "Limits", "Outcome", "Record", "Watch", "introduced", "run"]

T = TypeVar("T")
Watch = Callable[[int, "Record | None"], None]

GENEROUS = 1.5
"""By how much a round may cost more than the average one, as accelerations' letters grow with their memory."""
PROOF_SHARE_INVERSE = 20
FREE_PROOFS = 8
"""Certificates may cost one twentieth of the rounds' traffic, after the first eight."""


class Carrier(Protocol):
    """Moves words between agents."""

    bill: Bill

    def converse(self, talks: Sequence[Talk[T]], purpose: str) -> list[T]:
        """Run the conversations of the agents of this process to their end."""
        ...

    def publish(self, agent: int, letter: FloatArray) -> None:
        """Put a letter where others can `Ask` for it."""
        ...


@dataclass(frozen=True)
class Limits:
    """When to stop."""

    tol: float = 1e-6
    max_rounds: int = 10_000
    max_seconds: float | None = None
    max_bits: float | None = None
    check_every: int | None = None
    """Rounds between two certificates; None: as the trend suggests, for about 5 % of the traffic."""


@dataclass(frozen=True)
class Record:
    """One line of the history: what was proven after that round, and what had been spent until then."""

    round: int
    seconds: float
    bits: int
    primal: float
    dual: float
    gap: float


@dataclass
class Outcome:
    """What a run came to: the best points seen, what is proven of them, and how it went."""

    status: Status
    points: list[Point]
    bound: Bound
    primal_at_zero: float
    bill: Bill
    history: list[Record] = field(default_factory=list)
    error: Exception | None = None


def run(
    agents: Sequence[Agent],
    steps: Steps,
    carrier: Carrier,
    limits: Limits,
    *,
    checkpoint: Checkpoint | None = None,
    warm: Sequence[Point] | None = None,
    stop_wished: Callable[[], bool] = lambda: False,
    watch: Watch = lambda t, record: None,
) -> Outcome:
    """Take rounds until the gap is small enough or a limit is reached, and return the best point with its bound."""
    journey = _Journey(agents, steps, carrier, limits, watch)
    journey.begin(checkpoint, warm)
    error: NumericalError | None = None
    status = journey.verdict()
    try:
        while status is None:
            status = journey.limit_reached(stop_wished)
            if status is None:
                journey.take_round()
                if journey.t >= journey.next_look:
                    journey.look()
                    status = journey.verdict()
                    journey.save(checkpoint)
        if journey.looked_at != journey.t:
            # Saved before this extra look, so that a run that goes on from here is the run that never stopped.
            journey.save(checkpoint)
            journey.look()
            status = journey.verdict() or status
    except NumericalError as numerical:
        if journey.best is None:
            raise
        error, status = numerical, Status.NUMERICAL_ERROR
    assert journey.best is not None
    bound, points = journey.best
    return Outcome(status, points, bound, journey.unit, carrier.bill, journey.history, error)


def introduced(agents: Sequence[Agent], carrier: Carrier, purpose: str) -> list[Agent]:
    """The agents after their first conversation: each knows the facts on which all agreed."""
    facts = carrier.converse([introduce(agent) for agent in agents], purpose)
    return [replace(agent, facts=known) for agent, known in zip(agents, facts, strict=True)]


class _Journey:
    """Where a run stands, and the few things that can happen to it."""

    def __init__(self, agents: Sequence[Agent], steps: Steps, carrier: Carrier, limits: Limits, watch: Watch):
        self.agents, self.steps, self.carrier, self.limits, self.watch = agents, steps, carrier, limits, watch
        self.bill = carrier.bill
        self.began = time.monotonic()
        self.history: list[Record] = []
        self.best: tuple[Bound, list[Point]] | None = None
        self.t, self.looked_at, self.next_look = 0, -1, 1

    def begin(self, checkpoint: Checkpoint | None, warm: Sequence[Point] | None) -> None:
        """Introduce the agents to each other, then start, or continue from the newest snapshot."""
        self.agents = introduced(self.agents, self.carrier, "setup")
        self.unit = self.agents[0].primal_at_zero
        snapshot = checkpoint.load(self.steps.states) if checkpoint else None
        if snapshot is None:
            self.states = self.carrier.converse([self.steps.start(agent) for agent in self.agents], "setup")
            if warm is not None:
                members = zip(self.agents, self.states, warm, strict=True)
                self.states = [self.steps.warmed(agent, state, point) for agent, state, point in members]
        else:
            self.t, self.states = snapshot.round, snapshot.states
            self.bill.restore(snapshot.bill)
            self.history = [Record(*row) for row in snapshot.history]
            if snapshot.best is not None:
                self.best, self.looked_at = (Bound(*snapshot.bound), snapshot.best), self.history[-1].round
                self.began -= self.history[-1].seconds
        self.next_look = _next_look(self.history, self.bill, self.unit, self.limits)
        self._publish()

    def take_round(self) -> None:
        """One turn of the method's loop, and its tuning."""
        self.t += 1
        self.states = self._everybody(self.steps.round, "rounds")
        self.bill.end_round()
        if self.steps.tunes_after(self.t):
            self.states = self._everybody(self.steps.tune, "tuning")
        self._publish()
        self.watch(self.t, self.history[-1] if self.history else None)

    def _everybody(self, step: Callable[[Agent, Any, int], Talk[Any]], purpose: str) -> list[Any]:
        # The States are handed over, not kept: a round then needs no more memory than the arrays it is working on.
        states, self.states = self.states, []
        talks = [step(agent, state, self.t) for agent, state in zip(self.agents, states, strict=True)]
        del states
        return self.carrier.converse(talks, purpose)

    def _publish(self) -> None:
        for agent, state in zip(self.agents, self.states, strict=True):
            if (letter := self.steps.publish(agent, state)) is not None:
                self.carrier.publish(agent.index, letter)

    def look(self) -> None:
        """Compute a certificate of where the agents stand, and keep the best."""
        members = list(zip(self.agents, self.states, strict=True))
        points = [self.steps.point(agent, state) for agent, state in members]
        talks = [certify(agent, point) for agent, point in zip(self.agents, points, strict=True)]
        bound = self.carrier.converse(talks, "proof")[0]
        if self.best is None or bound.gap <= self.best[0].gap:
            self.best = bound, points
        seconds = time.monotonic() - self.began
        self.history.append(Record(self.t, seconds, self.bill.total.bits, bound.primal, bound.dual, bound.gap))
        self.looked_at = self.t
        self.next_look = _next_look(self.history, self.bill, self.unit, self.limits)
        self.watch(self.t, self.history[-1])

    def verdict(self) -> Status | None:
        """What the history says, if it says that this is the end."""
        return _verdict(self.history, self.best[0], self.unit, self.limits.tol) if self.best else None

    def limit_reached(self, stop_wished: Callable[[], bool]) -> Status | None:
        """Which limit forbids another round, if one does."""
        limits = self.limits
        if self.t >= limits.max_rounds:
            return Status.ITERATION_LIMIT
        if limits.max_bits is not None and self._bits_of_one_more_round() > limits.max_bits:
            return Status.COMMUNICATION_LIMIT
        if limits.max_seconds is not None and time.monotonic() - self.began >= limits.max_seconds:
            return Status.TIME_LIMIT
        return Status.INTERRUPTED if stop_wished() else None

    def _bits_of_one_more_round(self) -> float:
        """Everything sent so far, and what another round and a proof would probably add."""
        if not self.t:
            return float(self.bill.total.bits)
        costs = self.bill.per_purpose
        a_round = sum(costs[purpose].bits for purpose in ("rounds", "tuning") if purpose in costs) / self.t
        a_proof = costs["proof"].bits / len(self.history) if self.history else 2 * a_round
        return self.bill.total.bits + GENEROUS * a_round + a_proof

    def save(self, checkpoint: Checkpoint | None) -> None:
        """Write a snapshot, if there is a folder for it."""
        if checkpoint:
            rows = [list(vars(record).values()) for record in self.history]
            bound, best = (list(vars(self.best[0]).values()), self.best[1]) if self.best else ([], None)
            checkpoint.save(Snapshot(self.t, self.states, self.bill.state(), rows, bound, best))


def _verdict(history: Sequence[Record], best: Bound, unit: float, tol: float) -> Status | None:
    last = history[-1]
    if best.gap <= tol * unit:
        return Status.OPTIMAL
    if not math.isfinite(last.gap) or last.gap > 1e6 * max(unit, best.gap):
        return Status.DIVERGED
    earlier = [record.gap for record in history if record.round <= last.round / 10]
    if last.round >= 2000 and earlier and min(earlier) <= 1.01 * best.gap:
        return Status.STALLED
    return None


def _next_look(history: Sequence[Record], bill: Bill, unit: float, limits: Limits) -> int:
    """When to look again: where the trend says the target is reached, but neither too often nor too late.

    After a few free looks, all of them together may cost one twentieth of what the rounds cost.
    """
    if not history:
        return 2 if limits.check_every is None else limits.check_every
    last, target = history[-1], limits.tol * unit
    if limits.check_every is not None:
        return last.round + limits.check_every - last.round % limits.check_every
    soonest = last.round + max(1, min(last.round // 3, 10 + last.round // 50))
    latest = max(soonest, last.round + last.round // 5)
    proofs, rounds = bill.per_purpose.get("proof"), bill.bits
    if proofs is not None and rounds:
        spent, each = proofs.bits, proofs.bits / len(history)
        affordable = PROOF_SHARE_INVERSE * (spent + each - FREE_PROOFS * each) * bill.rounds / rounds
        soonest = max(soonest, math.ceil(affordable))
    ahead = math.inf
    if len(history) > 1 and 0 < last.gap < history[-2].gap and target > 0:
        rate = math.log(history[-2].gap / last.gap) / (last.round - history[-2].round)
        ahead = math.log(last.gap / target) / rate
    return max(soonest, min(latest, last.round + math.ceil(min(ahead, 1e9))))
