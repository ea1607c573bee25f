"""Run a method: introduce the agents, start, then take rounds and compute certificates until the
history or a limit ends the run.

`run` is the same text on every engine. An engine gives it the agents of this process (all of them
on one machine, one per rank on a cluster) and a transport that computes their collectives. Every
decision depends on numbers that all agents share, so all processes decide alike without another
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
from coterie.problems.problem import AnyProblem
from coterie.run.agent import Agent, AgentForm, SummaryStatistics, changes_rows, form_batches
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
from coterie.run.rescue import Rescuable, Rescue
from coterie.run.settings import Limits
from coterie.run.site import Site, SiteForm
from coterie.run.statuses import Status
from coterie.run.steps import Steps, Transport
from coterie.run.stopping import (
    Record,
    as_array,
    limited_by_rounding,
    next_certificate,
    of_array,
    of_later_rounds,
    verdict,
    worth_a_look,
)

T = TypeVar("T")
F = TypeVar("F", bound=AgentForm[AnyProblem])
Watch = Callable[[int, "Record | None"], object]
"""A function that a run calls with the round and the newest record, after every round and every
certificate. If it returns True, the run stops.
"""
Keep = Callable[["Outcome"], None]
"""A function that a run calls after every certificate, with the outcome that it would have if a
party were lost now.
"""
AnySteps = Steps | Rescuable


def unwatched(round: int, record: Record | None) -> None:
    """Watch nothing."""


def never() -> bool:
    """Ask for no stop."""
    return False


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


@dataclass(frozen=True)
class Start:
    """Where a run starts."""

    checkpoint: Checkpoint | None = None
    """A run continues from its newest snapshot, and writes snapshots to it."""
    warm: Sequence[Point] | None = None
    """The point of each agent, from an earlier result."""
    sent: dict[str, Any] | None = None
    """The state of a bill: the communication cost before the run."""


@dataclass(frozen=True)
class Control:
    """How the caller follows a run, and stops it."""

    stop_wished: Callable[[], bool] = never
    """Returns True if the run should stop after the current round."""
    watch: Watch = unwatched
    keep: Keep | None = None


@dataclass
class Outcome:
    """The end of a run: the best points, their certified bound, and the history."""

    status: Status
    points: list[Point]
    bound: Bound
    statistics: SummaryStatistics
    """The first sums of all agents."""
    bill: Bill
    history: list[Record] = field(default_factory=list)
    error: Exception | None = None
    warnings: tuple[str, ...] = ()
    answers: list[Any] = field(default_factory=list)
    """The value that each agent computed in a `Conversation`."""
    rescue: Rescue | None = None
    """The rescue, if the run was rescued."""


@dataclass(frozen=True)
class Conversation:
    """One protocol that an engine runs instead of rounds. Agents send no first sums, and nothing is
    certified.
    """

    protocol: Callable[[Site], Protocol[Any]]
    """For engines with several processes, a function of a module, or a `partial` of one."""
    purpose: str = "rounds"
    """The purpose that the bill lists it under."""
    asynchronous: ClassVar[bool] = False

    @arithmetic()
    def on(
        self, agents: Sequence[SiteForm], transport: Transport, sent: dict[str, Any] | None = None
    ) -> Outcome:
        """Run the protocol at these agents. The outcome has the answers; the bill counts one round
        if the purpose is "rounds".
        """
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
    agents: Sequence[AgentForm[AnyProblem]],
    steps: AnySteps,
    transport: Transport,
    limits: Limits,
    start: Start | None = None,
    control: Control | None = None,
) -> Outcome:
    """Take rounds until the gap is small enough or a limit is reached, and return the best point
    with its bound.
    """
    start = start or Start()
    if start.sent is not None:
        transport.bill.restore(start.sent)
    loop = RunLoop(agents, steps, transport, limits, control or Control())
    loop.begin(start)
    error: NumericalError | PartyLost | None = None
    status = loop.verdict()
    try:
        status = loop.run_to_end(status)
    except (NumericalError, PartyLost, ArithmeticError, ValueError) as trouble:
        error = trouble if isinstance(trouble, PartyLost) else as_numerical(trouble)
        if error is None or loop.best.bound is None:
            raise
        status = error.status
    return loop.outcome(status, error)


def introduced(agents: Sequence[F], transport: Transport, purpose: str, **more: Any) -> list[F]:
    """The agents after they have exchanged their first sums: each has the summary statistics, and
    these further fields.
    """
    agents = [_evened(agent) for agent in agents]
    form_batches(agents)
    batches = batches_of(_local_agents(agents), ())
    if batches is None:
        statistics = transport.take(introduce, [(agent,) for agent in agents], purpose)
    else:
        statistics = batches.introduce(transport, introduce, purpose)
    agents = [
        replace(agent, statistics=known, **more)
        for agent, known in zip(agents, statistics, strict=True)
    ]
    if batches is not None and changes_rows(_local_agents(agents)[0]):
        form_batches(agents)
    return agents


def _evened(agent: F) -> F:
    """The agent with rows of weight 0 after its own, if its table is here; see `Local.evened`."""
    if not isinstance(agent, Agent):
        return agent
    evened: F = agent.problem.kind.local.evened(agent)
    return evened


def _local_agents(agents: Sequence[AgentForm[AnyProblem]]) -> list[Agent[AnyProblem]]:
    """The agents whose tables are here: none, if each collective is a job of its own."""
    return [agent for agent in agents if isinstance(agent, Agent)]


class RunLoop:
    """The state of a run, and the steps that change it."""

    def __init__(
        self,
        agents: Sequence[AgentForm[AnyProblem]],
        steps: AnySteps,
        transport: Transport,
        limits: Limits,
        control: Control,
    ):
        self.rescuable: Rescuable | None = None
        if isinstance(steps, Rescuable):
            self.rescuable = steps
            steps = steps.steps
        self.steps: Steps = steps
        self.rescue: Rescue | None = None
        self.agents, self.transport, self.limits = agents, transport, limits
        self.control = control
        self.checkpoint: Checkpoint | None = None
        self.bill = transport.bill
        self.asynchronous = (self.rescuable or steps).asynchronous
        self.began = time.monotonic()
        self.history: list[Record] = []
        self.best = Best()
        self.t, self.certified_at, self.next_certificate = 0, -1, 1
        self.sent, self.costliest = 0, 0
        """The bits sent before the current round, and the largest number of bits of one round."""
        self.expected: float | None = None
        """The gap that the method expected at the last certificate."""
        self.enough = False
        """Whether `control.watch` asked for a stop."""
        self.warnings: tuple[str, ...] = ()
        self.states: Sequence[Any] = []
        self.batches: Batches | None = None

    # -- the start ---------------------------------------------------------------------------------

    def begin(self, start: Start) -> None:
        """Introduce the agents to each other, then start, or continue from the newest snapshot."""
        self.checkpoint = start.checkpoint
        self.agents = introduced(self.agents, self.transport, "setup", **self._clock())
        self.unit = self.agents[0].known.gap_unit
        self.target = self.limits.tol * self.unit
        self._go_on_with(self.steps)
        snapshot = self._common_snapshot()
        if snapshot is None:
            self._start(self._lowered(start.warm))
            self._look_again()
        else:
            self._restore(snapshot)
        self._publish()

    def _clock(self) -> dict[str, Any]:
        """Agents that share one clock may end long work early, in the last round of the run."""
        if not self.transport.one_process:
            return {}
        return {"should_stop": lambda: self._stop_reason() > 0}

    def _common_snapshot(self) -> Snapshot | None:
        """The newest snapshot that every process has, if there is one: a process that died may be
        one snapshot behind the others.
        """
        saved = self.checkpoint
        common = self.transport.least(saved.newest() if saved else -1)
        if not saved or common < 0 or not self.transport.least(saved.has(common)):
            return None
        classes = (self.rescuable or self.steps).states
        return saved.load(classes, common)

    def _restore(self, snapshot: Snapshot) -> None:
        """Continue from a snapshot."""
        self.t, self.states = snapshot.round, snapshot.states
        if self.rescuable is not None and snapshot.rescue is not None:
            self.rescue = Rescue(*snapshot.rescue)
            self.agents = [agent.made_careful() for agent in self.agents]
            self._go_on_with(self.rescuable.steps_after)
        self.bill.restore(snapshot.bill)
        self.transport.recall(snapshot.memory)
        self.history = of_array(snapshot.history)
        self.best = Best.restored(snapshot.best, snapshot.points)
        if self.history:
            self.certified_at = self.history[-1].round
            self.began -= self.history[-1].seconds
        self._look_again()
        if snapshot.next_look is not None and self.limits.check_every is None:
            self.next_certificate = snapshot.next_look
            self.expected = snapshot.expected_gap

    def _go_on_with(self, steps: Steps) -> None:
        self.steps = steps
        local = _local_agents(self.agents)
        self.batches = None
        own = None
        if local:
            own = steps.together(local[0])
        if own is not None:
            self.batches = batches_of(local, own)

    def _lowered(self, points: Sequence[Point] | None) -> list[Point] | None:
        """These points with the intercepts that belong to the lowered labels."""
        if points is None:
            return None
        rows = zip(self.agents, points, strict=True)
        return [
            _with_even_dual(agent, replace(point, w=agent.lowered(point.w)))
            for agent, point in rows
        ]

    def _start(self, points: Sequence[Point] | None) -> None:
        """Compute the first States, at these points if there are any."""
        if self.batches is not None:
            self.states = self.batches.start(self.transport, self.steps.start)
        else:
            rows = [(agent,) for agent in self.agents]
            self.states = self.transport.take(self.steps.start, rows, "setup")
        if points is None:
            return
        if self.batches is not None:
            self.states = self.batches.warm(self.transport, self.steps.warm, self.states, points)
        else:
            members = zip(self.agents, self.states, points, strict=True)
            self.states = self.transport.take(self.steps.warm, members, "setup")

    # -- rounds ------------------------------------------------------------------------------------

    def run_to_end(self, status: Status | None) -> Status:
        """Take rounds until the history or a limit ends the run, and certify the last round."""
        while status is None:
            status = self.limit_reached() or self.advance()
        if self.certified_at != self.t:
            # The snapshot is written before this extra certificate, so that a run that continues
            # from it computes the same as a run that never stopped.
            self.save()
            self.certify()
            status = self.verdict() or status
        if not status.success:
            self.end()
            status = self.verdict() or status
        return status

    def advance(self) -> Status | None:
        """Take a round, and certify it if that is due; the status with which the run ends, if it
        ends.
        """
        self.take_round()
        if not self.worth_a_look():
            return None
        self.certify()
        status = self.verdict()
        if status is None or self.checkpoint is not None:
            self._look_again()
        failed = self.is_hopeless() if status is None else not status.success
        if failed and self.rescued():
            status = None
        self.save()
        return status

    def take_round(self) -> None:
        """Take one round of the method, and tune it; in real time, all rounds until the next
        certificate.
        """
        if self.asynchronous and self.transport.free:
            self._roam()
            return
        self.t += 1
        if self.asynchronous:
            self.states = self.transport.gossip(
                _local_agents(self.agents), list(self.states), self.steps, self.t
            )
        else:
            self.states = self._round_taken()
        self.bill.end_round()
        if self.steps.tunes_after(self._own_round):
            self.states = self._step_of_all(self.steps.tune, "tuning")
        if not self.asynchronous:
            self._publish()
        self.control.watch(self.t, self._newest)

    def _roam(self) -> None:
        first = self.t
        span = first, min(self.next_certificate, self.limits.max_rounds, self._affordable_end())
        self.states, self.t = self.transport.roam(
            _local_agents(self.agents), list(self.states), self.steps, span, self._stop_reason
        )
        for _ in range(self.t - first):
            self.bill.end_round()
        self.control.watch(self.t, self._newest)

    def _affordable_end(self) -> int:
        """The round up to which the bits that are left suffice."""
        if self.limits.max_bits is None:
            return self.limits.max_rounds
        sent = self.bill.total.bits
        if not self.t or not sent:
            return self.t + 1
        left = self.limits.max_bits - sent
        return self.t + max(1, int(left * self.t / (TUNING.generous * sent)))

    @property
    def _newest(self) -> Record | None:
        """The newest record of the history."""
        return self.history[-1] if self.history else None

    @property
    def _own_round(self) -> int:
        """The round, counted from the first one of the method."""
        return self.t - self._rounds_before

    @property
    def _rounds_before(self) -> int:
        """The rounds before the rescue."""
        return 0 if self.rescue is None else self.rescue.after

    def _round_taken(self) -> Sequence[Any]:
        if self.batches is None:
            return self._step_of_all(self.steps.round, "rounds")
        states, self.states = self.states, []
        return self.batches.take(self.transport, self.steps.round, states, self._own_round)

    def _step_of_all(
        self, step: Callable[[Agent[AnyProblem], Any, int], Protocol[Any]], purpose: str
    ) -> list[Any]:
        """The States after all agents took this step."""
        # The States are passed on, not kept: a round then needs memory only for the arrays that it
        # computes with.
        members = (
            (agent, state, self._own_round)
            for agent, state in zip(self.agents, self.states, strict=True)
        )
        self.states = []
        return self.transport.take(step, members, purpose)

    def _publish(self) -> None:
        if self.batches is not None:
            return  # a method that computes agents in batches only sums
        for agent, state in zip(self.agents, self.states, strict=True):
            if not isinstance(agent, Agent):
                continue  # no process of its own stays to be asked
            if (message := self.steps.publish(agent, state)) is not None:
                self.transport.publish(agent.index, message)

    # -- certificates ------------------------------------------------------------------------------

    def _look_again(self) -> None:
        """Decide when the next certificate is due."""
        self.next_certificate = next_certificate(
            self.history,
            self.bill,
            self.target,
            self.limits.check_every,
            self.steps.first_look,
            self._rounds_before,
        )

    def worth_a_look(self) -> bool:
        """Whether a certificate is due: by the schedule, unless the method itself knows the gap."""
        gap = self._expected_gap()
        looks = 0
        if gap is not None:
            looks = sum(record.round > self._rounds_before for record in self.history)
        late = self.t - self.next_certificate
        return worth_a_look(late, gap, self.target, looks, self._underestimate())

    def _underestimate(self) -> float:
        """By which factor the method's expected gap was too small, at a certificate of the last
        round.

        It counts for one round only: a proof that was poor by accident must not delay the next one.
        """
        if not self.expected or self.t - self.certified_at > 1:
            return 1.0
        proven = self.history[-1].gap
        return proven / self.expected if math.isfinite(proven) else 1.0

    def _expected_gap(self) -> float | None:
        """The gap that the method expects now, if it knows one."""
        if self.limits.check_every is not None:
            return None
        expected = self.steps.expected_gap(self.agents[0], self.states[0])
        return None if expected is None else float(expected)

    def certify(self) -> None:
        """Compute a certificate at the agents' points, and keep the best one."""
        self.transport.settle()
        bound, points = self._proven()
        self.best.add(bound, points, settled=self.certified_at >= self.steps.settles_after)
        assert self.best.bound is not None
        if self.best.promise <= self.target < self.best.bound.gap:
            self._certify_pair()
        seconds = time.monotonic() - self.began
        self.history.append(
            Record(self.t, seconds, self.bill.total.bits, bound.primal, bound.dual, bound.gap)
        )
        self.certified_at, self.expected = self.t, self._expected_gap()
        self.enough = self.control.watch(self.t, self.history[-1]) is True
        if self.control.keep is not None:
            self.control.keep(self.outcome(Status.PARTY_LOST))

    def _proven(self) -> tuple[Bound, list[Point]]:
        """The points of all agents, and the bound that they prove."""
        prove = partial(_prove, steps=self.steps, target=self.target)
        if self.batches is not None and not self.batches.agents[0].loss.steep:
            return self.batches.prove(self.transport, prove, self.states)
        members = zip(self.agents, self.states, strict=True)
        proofs = self.transport.take(prove, members, "proof")
        return proofs[0][0], [point for _, point in proofs]

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

    # -- a rescue ----------------------------------------------------------------------------------

    def is_hopeless(self) -> bool:
        """Whether the method of an "auto" run would take too many rounds."""
        if self.rescuable is None or self.rescue is not None:
            return False
        return self.rescuable.is_hopeless(self.history, self.unit, self.target)

    def rescued(self) -> bool:
        """Continue with careful agents from the best model and dual, if the run may be rescued;
        return whether it was.

        A run is rescued once. If rounding alone exceeds the tolerance, no method helps.
        """
        bound = self.best.bound
        if self.rescuable is None or self.rescue is not None:
            return False
        if bound is None or limited_by_rounding(bound, self.target):
            return False
        self.agents = [agent.made_careful() for agent in self.agents]
        self.rescue, self.expected = self.rescuable.rescued(self.history, self.unit), None
        self._go_on_with(self.rescuable.steps_after)
        self._start(self._at_data(with_dual, self.best.points))
        self._look_again()
        self._publish()
        return True

    # -- the end -----------------------------------------------------------------------------------

    def verdict(self) -> Status | None:
        """The status with which the history ends the run, if it does."""
        bound = self.best.bound
        if self.t < self.steps.settles_after or bound is None:
            return None
        history = self.history
        # A standstill before a rescue says nothing about the method after it.
        if self.rescue is not None:
            history = of_later_rounds(history, self.rescue.after)
        return verdict(history, bound, self.unit, self.limits.tol)

    def limit_reached(self) -> Status | None:
        """The limit that forbids another round, if one does."""
        limits = self.limits
        if self.t >= limits.max_rounds:
            return Status.ITERATION_LIMIT
        if limits.max_bits is not None and self._bits_of_one_more_round() > limits.max_bits:
            return Status.COMMUNICATION_LIMIT
        # Clocks and Ctrl-C differ between processes: the transport makes all of them stop after the
        # same round.
        reason = self.transport.agreed(self.t, self._stop_reason())
        return (None, Status.TIME_LIMIT, Status.INTERRUPTED)[reason]

    def _stop_reason(self) -> int:
        """Whether to stop: 1, the time is up; 2, the caller asked for it; 0, continue."""
        seconds = self.limits.max_seconds
        if seconds is not None and time.monotonic() - self.began >= seconds:
            return 1
        if self.enough or self.control.stop_wished():
            return 2
        return 0

    def _bits_of_one_more_round(self) -> float:
        """All bits sent so far, and the most that another round and a proof would add."""
        self.transport.settle()
        sent = self.bill.total.bits
        self.costliest = max(self.costliest, sent - self.sent)
        self.sent = sent
        return sent + TUNING.generous * self.costliest

    def end(self) -> None:
        """Before a run ends without success, certify the best pair of all rounds, if it promises
        much more than the best one round.
        """
        bound = self.best.bound
        if bound is not None and self.best.promise < TUNING.worth_a_proof * bound.gap:
            self._certify_pair()

    def outcome(self, status: Status, error: Exception | None = None) -> Outcome:
        """The best point so far with its bound, as the end of the run."""
        bound = self.best.bound
        assert bound is not None
        points = self.best.points
        members = zip(self.agents, points, strict=True)
        if not all(is_as_people_know_it(agent, point) for agent, point in members):
            points = self._as_people_know_them(points)
        members = zip(self.agents, points, strict=True)
        points = [_with_own_dual(agent, point) for agent, point in members]
        warnings = self.warnings
        if status == Status.STALLED and limited_by_rounding(bound, self.target):
            warnings = (*warnings, self._reachable(bound))
        return Outcome(
            status,
            points,
            bound,
            self.agents[0].known,
            self.bill,
            self.history,
            error,
            warnings,
            rescue=self.rescue,
        )

    def _as_people_know_them(self, points: Sequence[Point]) -> list[Point]:
        first = points[0]
        shared = self.agents[0].split == "samples" and all(point is first for point in points)
        if self.batches is not None and shared:
            return self.batches.at_point(as_people_know_it, first)
        return self._at_data(as_people_know_it, points)

    def _reachable(self, bound: Bound) -> str:
        """The warning of a run that rounding keeps above its tolerance."""
        return (
            f"tol={self.limits.tol:g} is below what rounding allows on this data: a relative gap "
            f"of {bound.gap / self.unit:.2g} is reached, and {bound.rounding / self.unit:.2g} of "
            "it allows for rounding. Use a larger tol, or centre and scale the columns."
        )

    def _at_data(self, function: Callable[..., Point], *points: Sequence[Point]) -> list[Point]:
        """The function of every agent and its points, computed at the agent's data."""
        step = partial(_without_messages, function)
        return self.transport.take(step, zip(self.agents, *points, strict=True), "proof")

    def save(self) -> None:
        """Write a snapshot, if there is a checkpoint; a disk that takes none does not end the
        run.
        """
        if self.checkpoint is None:
            return
        self.transport.settle()
        numbers, points = self.best.state()
        snapshot = Snapshot(
            self.t,
            list(self.states),
            self.bill.state(),
            as_array(self.history),
            numbers,
            points,
            self.transport.memory(),
            self.next_certificate,
            self.expected,
        )
        if self.rescuable is not None:
            snapshot.method, snapshot.rescue = self.rescuable.written(self.rescue)
        self.warnings = self.checkpoint.attempt(snapshot)


def _prove(
    agent: Agent[AnyProblem], state: Any, steps: Steps, target: float
) -> Protocol[tuple[Bound, Point]]:
    """The point of an agent, and the certified bound of the points of all agents."""
    point = steps.point(agent, state)
    return (yield from certify(agent, point, target)), point


def _without_messages(
    function: Callable[..., Point], agent: Agent[AnyProblem], *points: Point
) -> Protocol[Point]:
    """A protocol without messages."""
    yield from ()
    return function(agent, *points)


def _with_even_dual(agent: AgentForm[AnyProblem], point: Point) -> Point:
    """A point with dual variables of the agent's own rows, as one with those of all rows in `data`;
    see `Local.evened`.
    """
    if not agent.even or point.v is None:
        return point
    return replace(point, v=np.append(point.v, np.zeros(agent.data.n - agent.rows)))


def _with_own_dual(agent: AgentForm[AnyProblem], point: Point) -> Point:
    """The inverse of `_with_even_dual`."""
    if not agent.even or point.v is None:
        return point
    return replace(point, v=point.v[: agent.rows].copy())
