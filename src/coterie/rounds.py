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
from typing import Protocol, TypeVar

from coterie.agent import Agent
from coterie.bill import Bill
from coterie.certificate import Bound, Point, certify, introduce
from coterie.checkpoint import Checkpoint, Snapshot
from coterie.errors import NumericalError
from coterie.statuses import Status
from coterie.steps import Steps
from coterie.words import Talk

__all__ = ["Carrier", "Limits", "Outcome", "Record", "run"]

T = TypeVar("T")

PROOF_SHARE_INVERSE = 20
FREE_PROOFS = 12
"""Certificates may cost one twentieth of the rounds' traffic, after the first twelve."""


class Carrier(Protocol):
    """Moves words between agents."""

    bill: Bill

    def converse(self, talks: Sequence[Talk[T]], purpose: str) -> list[T]:
        """Run the conversations of the agents of this process to their end."""
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
    rounds: int
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
    stop_wished: Callable[[], bool] = lambda: False,
    watch: Callable[[int, Record | None], None] = lambda t, record: None,
) -> Outcome:
    """Take rounds until the gap is small enough or a limit is reached, and return the best point with its bound."""
    began = time.monotonic()
    bill, converse = carrier.bill, carrier.converse
    facts = converse([introduce(agent) for agent in agents], "setup")
    agents = [replace(agent, facts=known) for agent, known in zip(agents, facts, strict=True)]
    unit = facts[0].primal_at_zero

    snapshot = checkpoint.load(steps.states) if checkpoint else None
    if snapshot is None:
        snapshot = Snapshot(0, converse([steps.start(agent) for agent in agents], "setup"))
    else:
        bill.restore(snapshot.bill)
    t, states, history = snapshot.round, snapshot.states, [Record(*row) for row in snapshot.history]
    best: tuple[Bound, list[Point]] | None = None if snapshot.best is None else (Bound(*snapshot.bound), snapshot.best)
    began -= history[-1].seconds if history else 0.0

    error: Exception | None = None
    status = _verdict(history, best[0], unit, limits.tol) if best else None
    checked = t if history else -1
    next_check = _next_check(history, bill, unit, limits)
    while True:
        try:
            if (
                status is None
                and t < limits.max_rounds
                and not _spent(bill, len(history), began, limits)
                and not stop_wished()
            ):
                states = converse([steps.round(a, s, t + 1) for a, s in zip(agents, states, strict=True)], "rounds")
                t += 1
                bill.end_round()
                if steps.tunes_after(t):
                    states = converse([steps.tune(a, s, t) for a, s in zip(agents, states, strict=True)], "tuning")
                watch(t, history[-1] if history else None)
                if t < next_check:
                    continue
            else:
                status = status or _limit(t, bill, len(history), began, limits)
            if checked < t or best is None:
                points = [steps.point(a, s) for a, s in zip(agents, states, strict=True)]
                bound = converse([certify(a, p) for a, p in zip(agents, points, strict=True)], "proof")[0]
                seconds = time.monotonic() - began
                history.append(Record(t, seconds, bill.total.bits, bound.primal, bound.dual, bound.gap))
                if best is None or bound.gap <= best[0].gap:
                    best = bound, points
                checked, next_check = t, _next_check(history, bill, unit, limits)
                watch(t, history[-1])
                # Reaching the tolerance counts, even in the round in which a limit was reached too.
                status = _verdict(history, best[0], unit, limits.tol) or status
                if checkpoint:
                    rows = [list(vars(record).values()) for record in history]
                    checkpoint.save(Snapshot(t, states, bill.state(), rows, list(vars(best[0]).values()), best[1]))
        except NumericalError as numerical:
            error, status = numerical, Status.NUMERICAL_ERROR
            if best is None:
                raise
        if status is not None and best is not None:
            return Outcome(status, best[1], best[0], t, unit, bill, history, error)


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


def _spent(bill: Bill, looks: int, began: float, limits: Limits) -> bool:
    seconds_spent = limits.max_seconds is not None and time.monotonic() - began >= limits.max_seconds
    return seconds_spent or _bits_spent(bill, looks, limits)


def _bits_spent(bill: Bill, looks: int, limits: Limits) -> bool:
    """Whether one more round and its proof would break the budget."""
    if limits.max_bits is None or not bill.rounds:
        return False
    proofs, each_round = bill.per_purpose.get("proof"), bill.bits / bill.rounds
    proof = 2 * each_round if proofs is None else proofs.bits / looks
    return bill.total.bits + each_round + proof > limits.max_bits


def _limit(t: int, bill: Bill, looks: int, began: float, limits: Limits) -> Status:
    if t >= limits.max_rounds:
        return Status.ITERATION_LIMIT
    if _bits_spent(bill, looks, limits):
        return Status.COMMUNICATION_LIMIT
    return Status.TIME_LIMIT if _spent(bill, looks, began, limits) else Status.INTERRUPTED


def _next_check(history: Sequence[Record], bill: Bill, unit: float, limits: Limits) -> int:
    """When to look again: where the trend says the target is reached, but neither too often nor too late.

    After a few free looks, all of them together may cost one twentieth of what the rounds cost.
    """
    if not history:
        return 1 if limits.check_every is None else limits.check_every
    last, target = history[-1], limits.tol * unit
    if limits.check_every is not None:
        return last.round + limits.check_every - last.round % limits.check_every
    soonest = last.round + max(1, min(last.round // 4, 10 + last.round // 50))
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
