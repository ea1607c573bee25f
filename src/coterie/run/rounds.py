"""The life of a run: introduce, start, then round after round with a certificate now and then,
until something says stop.

`run` is the same text on every engine. It is handed the agents that live in this process (all of
them on one machine, one per rank on a cluster) and a transport that answers their words. Every
decision rests on numbers that all agents share, so all processes decide alike without another
message.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar, TypeVar

import numpy as np

from coterie.errors import NumericalError, PartyLost, arithmetic, as_numerical
from coterie.numerics.tuning import Tuning, tuned
from coterie.run.agent import Agent, SummaryStatistics, form_batches
from coterie.run.batch import Batches, batches_of
from coterie.run.bill import Bill
from coterie.run.certificate import (
    Best,
    Bound,
    Point,
    as_people_know_it,
    certify,
    introduce,
    is_as_people_know_it,
    paired,
    with_dual,
)
from coterie.run.checkpoint import Checkpoint, Snapshot
from coterie.run.collectives import Protocol
from coterie.run.settings import Limits
from coterie.run.site import Site
from coterie.run.statuses import Status
from coterie.run.steps import Steps, Transport
from coterie.run.stopping import (
    Record,
    limited_by_rounding,
    next_certificate,
    verdict,
    worth_a_look,
)
from coterie.run.switching import Change, Switching

T = TypeVar("T")
Watch = Callable[[int, "Record | None"], object]
"""Is told the round and the newest record after every round and every certificate; True asks to
stop.
"""
Keep = Callable[["Outcome"], None]
AnySteps = Steps | Switching


def unwatched(round: int, record: Record | None) -> None:
    """Watch nothing."""


@dataclass(frozen=True)
class _Tuning(Tuning):
    generous: float = tuned(
        1.5,
        "By how much a round and a proof may cost more than the costliest so far.",
        "theorem: a memory of m grows a message by less than 1 + 1/m",
    )
    worth_a_proof: float = tuned(
        0.5,
        "A pair of different rounds is certified if it promises this share of the best gap.",
        below=1,
    )


TUNING = _Tuning()


@dataclass
class Outcome:
    """What a run came to: the best points seen, what is proven of them, and how it went."""

    status: Status
    points: list[Point]
    bound: Bound
    statistics: SummaryStatistics
    """What the agents agreed on at the beginning."""
    bill: Bill
    history: list[Record] = field(default_factory=list)
    error: Exception | None = None
    warnings: tuple[str, ...] = ()
    answers: list[Any] = field(default_factory=list)
    """Of a `Conversation`: what each agent came to."""
    change: Change | None = None
    """If "auto" changed the method on the way."""


@dataclass(frozen=True)
class Conversation:
    """What an engine runs instead of rounds: every agent has one talk. Nobody is introduced and
    nothing is proven.
    """

    protocol: Callable[[Any], Protocol[Any]]
    """Of a `Site` or an `Agent`; for engines with several processes, a function of a module, or a
    `partial` of one.
    """
    purpose: str = "rounds"
    """What the bill says it is for."""
    asynchronous: ClassVar[bool] = False

    @arithmetic()
    def on(
        self, agents: Sequence[Site], transport: Transport, sent: dict[str, Any] | None = None
    ) -> Outcome:
        """Have it; the answers are in the outcome, and the bill says one round, if it is one."""
        if sent is not None:
            transport.bill.restore(sent)
        answers = transport.take(self.protocol, [(agent,) for agent in agents], self.purpose)
        if self.purpose == "rounds":
            transport.bill.end_round()
        nothing, nan = Bound(math.nan, math.nan), math.nan
        statistics = SummaryStatistics(nan, nan, nan, nan, nan, nan)
        points = [Point(np.empty(0)) for _ in agents]
        return Outcome(Status.OPTIMAL, points, nothing, statistics, transport.bill, answers=answers)


@arithmetic()
def run(
    agents: Sequence[Agent[Any]],
    steps: AnySteps,
    transport: Transport,
    limits: Limits,
    *,
    checkpoint: Checkpoint | None = None,
    warm: Sequence[Point] | None = None,
    stop_wished: Callable[[], bool] = lambda: False,
    watch: Watch = unwatched,
    keep: Keep | None = None,
    sent: dict[str, Any] | None = None,
) -> Outcome:
    """Take rounds until the gap is small enough or a limit is reached, and return the best point
    with its bound.

    `keep` is handed what a run would have come to if a party were lost right now, whenever a
    certificate was computed. `sent` is the state of a bill: what the run has cost before it begins.
    """
    if sent is not None:
        transport.bill.restore(sent)
    loop = RunLoop(agents, steps, transport, limits, watch, keep)
    loop.begin(checkpoint, warm, stop_wished)
    error: NumericalError | PartyLost | None = None
    status = loop.verdict()
    try:
        while status is None:
            status = loop.limit_reached(stop_wished)
            if status is None:
                loop.take_round(stop_wished)
                if loop.worth_a_look():
                    loop.certify()
                    status = loop.verdict()
                    if status is None:
                        loop.reconsider()
                    elif not status.success and loop.rescue():
                        status = None
                    loop.save(checkpoint)
        if loop.certified_at != loop.t:
            # Saved before this extra certificate, so that a run that goes on from here is the run
            # that never stopped.
            loop.save(checkpoint)
            loop.certify()
            status = loop.verdict() or status
        if not status.success:
            loop.end()
            status = loop.verdict() or status
    except (NumericalError, PartyLost, ArithmeticError, ValueError) as trouble:
        error = trouble if isinstance(trouble, PartyLost) else as_numerical(trouble)
        if error is None or loop.best.bound is None:
            raise
        status = error.status
    return loop.outcome(status, error)


def introduced(
    agents: Sequence[Agent[Any]], transport: Transport, purpose: str, **more: Any
) -> list[Agent[Any]]:
    """The agents after their first conversation: each knows the facts on which all agreed, and
    those further fields.
    """
    statistics = transport.take(introduce, [(agent,) for agent in agents], purpose)
    agents = [
        replace(agent, statistics=known, **more)
        for agent, known in zip(agents, statistics, strict=True)
    ]
    if agents:
        form_batches(agents)
    return agents


class RunLoop:
    """Where a run stands, and the few things that can happen to it."""

    def __init__(
        self,
        agents: Sequence[Agent[Any]],
        steps: AnySteps,
        transport: Transport,
        limits: Limits,
        watch: Watch,
        keep: Keep | None = None,
    ):
        self.switching = steps if isinstance(steps, Switching) else None
        self.steps: Steps = steps.first.steps if isinstance(steps, Switching) else steps
        self.change: Change | None = None
        self.agents, self.transport, self.limits = agents, transport, limits
        self.watch, self.keep = watch, keep
        self.bill, self.asynchronous = transport.bill, steps.asynchronous
        self.began = time.monotonic()
        self.history: list[Record] = []
        self.best = Best()
        self.t, self.certified_at, self.next_certificate = 0, -1, 1
        self.sent, self.costliest = 0, 0
        """All bits sent until a turn began, and the most that one turn has added to them."""
        self.said_gap: float | None = None
        """What the method expected of the gap at the last certificate."""
        self.enough = False
        self.warnings: tuple[str, ...] = ()
        self.states: Sequence[Any] = []
        self.batches: Batches | None = None

    def begin(
        self,
        checkpoint: Checkpoint | None,
        warm: Sequence[Point] | None,
        stop_wished: Callable[[], bool],
    ) -> None:
        """Introduce the agents to each other, then start, or continue from the newest snapshot.

        Agents that go by one clock may cut long work short, in the last round of the run.
        """
        clock = (
            {"should_stop": lambda: self._stop_reason(stop_wished) > 0}
            if self.transport.one_process
            else {}
        )
        self.agents = introduced(self.agents, self.transport, "setup", **clock)
        self.unit = self.agents[0].known.gap_unit
        self.target = self.limits.tol * self.unit
        self._go_on_with(self.steps)
        # A process that died may be one snapshot behind the others: all continue from the newest
        # that each has, if any.
        common = self.transport.least(checkpoint.newest() if checkpoint else -1)
        found = checkpoint and common >= 0 and self.transport.least(checkpoint.has(common))
        snapshot = (
            checkpoint.load((self.switching or self.steps).states, common)
            if checkpoint and found
            else None
        )
        if snapshot is None:
            if warm is not None:
                warm = [
                    replace(p, w=agent.lowered(p.w))
                    for agent, p in zip(self.agents, warm, strict=True)
                ]
            self._start(warm)
        else:
            self.t, self.states = snapshot.round, snapshot.states
            if self.switching is not None and snapshot.change is not None:
                self.change = Change(*snapshot.change)
                if self.change.rescue:
                    self.agents = [agent.made_careful() for agent in self.agents]
                self._go_on_with(self.switching.steps_after(self.change))
            self.bill.restore(snapshot.bill)
            self.transport.recall(snapshot.memory)
            self.history = [Record(*row) for row in snapshot.history]
            self.best = Best.restored(snapshot.best, snapshot.points)
            if self.history:
                self.certified_at = self.history[-1].round
                self.began -= self.history[-1].seconds
        self._look_again()
        if (
            snapshot is not None
            and snapshot.next_look is not None
            and self.limits.check_every is None
        ):
            self.next_certificate, self.said_gap = snapshot.next_look, snapshot.said_gap
        self._publish()

    def _go_on_with(self, steps: Steps) -> None:
        self.steps, own = steps, steps.together(self.agents[0])
        self.batches = None if own is None else batches_of(self.agents, own)

    def _start(self, points: Sequence[Point] | None) -> None:
        states: Sequence[Any]
        if self.batches is not None:
            states = self.batches.start(self.transport, self.steps.start)
        else:
            states = self.transport.take(
                self.steps.start, [(agent,) for agent in self.agents], "setup"
            )
        self.states = states
        if points is not None:
            self.states = self.transport.take(
                self.steps.warm, zip(self.agents, states, points, strict=True), "setup"
            )

    def take_round(self, stop_wished: Callable[[], bool]) -> None:
        """One turn of the method's loop, and its tuning; in real time, as many as there are until
        the next look.
        """
        if self.asynchronous and self.transport.free:
            self._roam(stop_wished)
            return
        self.t += 1
        if self.asynchronous:
            self.states = self.transport.gossip(self.agents, list(self.states), self.steps, self.t)
        else:
            self.states = self._round_taken()
        self.bill.end_round()
        if self.steps.tunes_after(self._own_round):
            self.states = self._everybody(self.steps.tune, "tuning")
        if not self.asynchronous:
            self._publish()
        self.watch(self.t, self.history[-1] if self.history else None)

    def _roam(self, stop_wished: Callable[[], bool]) -> None:
        end = min(self.next_certificate, self.limits.max_rounds)
        if self.limits.max_bits is not None:
            # A stretch is as long as what is left will pay for.
            sent = self.bill.total.bits
            left = self.limits.max_bits - sent
            end = min(
                end,
                self.t
                + max(1, int(left * self.t / (TUNING.generous * sent)) if self.t and sent else 1),
            )
        span = self.t, end
        stop_reason = partial(self._stop_reason, stop_wished)
        self.states, self.t = self.transport.roam(
            self.agents, list(self.states), self.steps, span, stop_reason
        )
        for _ in range(self.t - span[0]):
            self.bill.end_round()
        self.watch(self.t, self.history[-1] if self.history else None)

    @property
    def _own_round(self) -> int:
        """The round as the method counts: from its own first one."""
        return self.t if self.change is None else self.t - self.change.after

    def _round_taken(self) -> Sequence[Any]:
        if self.batches is None:
            return self._everybody(self.steps.round, "rounds")
        states, self.states = self.states, []
        return self.batches.take(self.transport, self.steps.round, states, self._own_round)

    def _everybody(
        self, step: Callable[[Agent[Any], Any, int], Protocol[Any]], purpose: str
    ) -> list[Any]:
        # The States are handed over, not kept: a round then needs no more memory than the arrays it
        # is working on.
        members = (
            (agent, state, self._own_round)
            for agent, state in zip(self.agents, self.states, strict=True)
        )
        self.states = []
        return self.transport.take(step, members, purpose)

    def _look_again(self) -> None:
        known = self.history, self.bill, self.target, self.limits.check_every, self.steps.first_look
        self.next_certificate = next_certificate(
            *known, 0 if self.change is None else self.change.after
        )

    def _publish(self) -> None:
        for agent, state in zip(self.agents, self.states, strict=True):
            if (message := self.steps.publish(agent, state)) is not None:
                self.transport.publish(agent.index, message)

    def worth_a_look(self) -> bool:
        """Whether it is time for a certificate: by the schedule, unless the method itself knows the
        gap.
        """
        gap = self._expected_gap()
        looks = (
            0
            if gap is None
            else sum(record.round > self.t - self._own_round for record in self.history)
        )
        too_small = 1.0
        # For one round only: a proof that was poor by accident must not keep the run from the next
        # one.
        if (
            self.said_gap
            and self.t - self.certified_at <= 1
            and math.isfinite(self.history[-1].gap)
        ):
            too_small = self.history[-1].gap / self.said_gap
        return worth_a_look(self.t - self.next_certificate, gap, self.target, looks, too_small)

    def _expected_gap(self) -> float | None:
        if self.limits.check_every is not None:
            return None
        said = self.steps.expected_gap(self.agents[0], self.states[0])
        return None if said is None else float(said)

    def certify(self) -> None:
        """Compute a certificate of where the agents stand, and keep the best."""
        prove = partial(_prove, steps=self.steps, target=self.target)
        if self.batches is not None and not self.agents[0].problem.loss.steep:
            bound, points = self.batches.prove(self.transport, prove, self.states)
        else:
            proofs = self.transport.take(prove, zip(self.agents, self.states, strict=True), "proof")
            bound, points = proofs[0][0], [point for _, point in proofs]
        self.best.add(bound, points, settled=self.certified_at >= self.steps.settles_after)
        assert self.best.bound is not None
        if self.best.promise <= self.target < self.best.bound.gap:
            self._certify_pair()
        seconds = time.monotonic() - self.began
        self.history.append(
            Record(self.t, seconds, self.bill.total.bits, bound.primal, bound.dual, bound.gap)
        )
        self.certified_at, self.said_gap = self.t, self._expected_gap()
        self._look_again()
        self.enough = self.watch(self.t, self.history[-1]) is True
        if self.keep is not None:
            self.keep(self.outcome(Status.PARTY_LOST))

    def reconsider(self) -> None:
        """Go on with the other method of an "auto" run, from the best model and dual so far, if
        that is cheaper now.
        """
        if self.switching is None:
            return
        change = None
        if self.change is None:
            change = self.switching.change(self.history, self.bill, self.unit, self.target)
        known = self.history, self.unit, self.target, self.change
        lost = change is not None and self.switching.slower_rounds
        if (lost or self.switching.hopeless(*known)) and self.rescue():
            return
        if change is not None:
            self._change_to(change)

    def rescue(self) -> bool:
        """Go on with careful agents from the best model and dual, if the run may be rescued, and
        whether it was.

        Where rounding alone is too much for the tolerance, no method helps.
        """
        bound = self.best.bound
        if self.switching is None or bound is None or limited_by_rounding(bound, self.target):
            return False
        change = self.switching.rescued(self.history, self.unit, self.change)
        if change is None:
            return False
        self.agents = [agent.made_careful() for agent in self.agents]
        self._change_to(change)
        return True

    def _change_to(self, change: Change) -> None:
        assert self.switching is not None
        self.change, self.said_gap = change, None
        self._go_on_with(self.switching.steps_after(change))
        self._start(self._at_data(with_dual, self.best.points))
        self._look_again()
        self._publish()

    def _certify_pair(self) -> None:
        """Certify the lowest primal and the highest dual together, if they come from different
        rounds.
        """
        if self.best.lowest is self.best.highest or self.steps.settles_after:
            return
        points = self._at_data(paired, self.best.lowest, self.best.highest)
        members = [
            (agent, point, self.target) for agent, point in zip(self.agents, points, strict=True)
        ]
        bounds = self.transport.take(certify, members, "proof")
        self.best.add(bounds[0], points)

    def end(self) -> None:
        """Before a run ends without success: is the best pair of all rounds better than the best of
        one?
        """
        if (
            self.best.bound is not None
            and self.best.promise < TUNING.worth_a_proof * self.best.bound.gap
        ):
            self._certify_pair()

    def outcome(self, status: Status, error: Exception | None = None) -> Outcome:
        """The best point so far and what is known of it, as the end of the run."""
        bound = self.best.bound
        assert bound is not None
        points = self.best.points
        if not all(
            is_as_people_know_it(agent, p) for agent, p in zip(self.agents, points, strict=True)
        ):
            points = self._at_data(as_people_know_it, points)
        warnings = self.warnings
        if status == Status.STALLED and limited_by_rounding(bound, self.target):
            warnings = (*warnings, self._reachable(bound))
        told = self.bill, self.history, error, warnings
        return Outcome(status, points, bound, self.agents[0].known, *told, change=self.change)

    def _at_data(self, function: Callable[..., Point], *points: Sequence[Point]) -> list[Point]:
        """What the function makes of every agent and its points, computed where the agent's data
        is.
        """
        step = partial(_without_words, function)
        return self.transport.take(step, zip(self.agents, *points, strict=True), "proof")

    def _reachable(self, bound: Bound) -> str:
        """What a user is told where rounding keeps the gap above the tolerance."""
        return (
            f"tol={self.limits.tol:g} is below what rounding allows on this data: a relative gap "
            "of "
            f"{bound.gap / self.unit:.2g} is reached, and {bound.rounding / self.unit:.2g} of it "
            "allows for rounding. "
            "Use a larger tol, or centre and scale the columns."
        )

    def verdict(self) -> Status | None:
        """What the history says, if it says that this is the end."""
        if self.t < self.steps.settles_after:
            return None
        bound = self.best.bound
        if bound is None:
            return None
        # What stood still before a rescue says nothing of the method that came to it.
        after = self.change.after if self.change is not None and self.change.rescue else 0
        own = [
            replace(record, round=record.round - after)
            for record in self.history
            if record.round > after
        ]
        return verdict(own if after else self.history, bound, self.unit, self.limits.tol)

    def limit_reached(self, stop_wished: Callable[[], bool]) -> Status | None:
        """Which limit forbids another round, if one does."""
        limits = self.limits
        if self.t >= limits.max_rounds:
            return Status.ITERATION_LIMIT
        if limits.max_bits is not None and self._bits_of_one_more_round() > limits.max_bits:
            return Status.COMMUNICATION_LIMIT
        # Clocks and Ctrl-C differ between processes, so the transport sees to it that all stop
        # after the same round.
        return (None, Status.TIME_LIMIT, Status.INTERRUPTED)[
            self.transport.agreed(self.t, self._stop_reason(stop_wished))
        ]

    def _stop_reason(self, stop_wished: Callable[[], bool]) -> int:
        """Whether to stop: 1, because the time is up; 2, because somebody said so; 0, go on."""
        seconds = self.limits.max_seconds
        time_is_up = seconds is not None and time.monotonic() - self.began >= seconds
        return 1 if time_is_up else 2 if self.enough or stop_wished() else 0

    def _bits_of_one_more_round(self) -> float:
        """Everything sent so far, and what another round and a proof would add at most."""
        sent = self.bill.total.bits
        self.costliest = max(self.costliest, sent - self.sent)
        self.sent = sent
        return sent + TUNING.generous * self.costliest

    def save(self, checkpoint: Checkpoint | None) -> None:
        """Write a snapshot, if there is a folder for it; a disk that takes none is no reason to end
        the run.
        """
        if checkpoint:
            rows = [list(vars(record).values()) for record in self.history]
            kept = self.bill.state(), rows, *self.best.state(), self.transport.memory()
            look = self.next_certificate, self.said_gap
            named = () if self.switching is None else self.switching.written(self.change)
            self.warnings = checkpoint.attempt(
                Snapshot(self.t, list(self.states), *kept, *look, *named)
            )


def _prove(
    agent: Agent[Any], state: Any, steps: Steps, target: float
) -> Protocol[tuple[Bound, Point]]:
    """The point of an agent, and what is certified of everybody's."""
    point = steps.point(agent, state)
    return (yield from certify(agent, point, target)), point


def _without_words(
    function: Callable[..., Point], agent: Agent[Any], *points: Point
) -> Protocol[Point]:
    """A conversation in which nothing is said."""
    yield from ()
    return function(agent, *points)
