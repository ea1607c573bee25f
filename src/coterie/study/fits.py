"""The fits of one party in a session: one, or those of a path with its folds; each from data to a result."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy.typing as npt

from coterie.api.result import Result
from coterie.data import Table
from coterie.data.preparation.prepared import Prepared
from coterie.data.summary import TableSummary
from coterie.engines.processes import VERSIONS
from coterie.errors import PartyLost, ProtocolError
from coterie.problems import points_of
from coterie.problems.problem import AnyProblem
from coterie.run.agent import Agent
from coterie.run.certificate import Participant, Point
from coterie.run.checkpoint import Checkpoint
from coterie.run.finish import finish
from coterie.run.method_choice import Circumstances
from coterie.run.rounds import Outcome, Watch, run
from coterie.run.settings import Limits
from coterie.run.setup import set_up, sizes_of, with_offset
from coterie.run.statuses import Status
from coterie.study.broadcasts import CHECKPOINTS, COMMITMENTS
from coterie.study.nonce import commitment
from coterie.study.policy import Account, agree_on_methods
from coterie.study.preparing import prepare_own
from coterie.study.session import (
    Say,
    Session,
    check_totals,
    matched,
    member,
    transport_of,
    with_predictors,
)
from coterie.transport.driver import HEARD, Driver
from coterie.transport.grpc_mesh import Restarted
from coterie.transport.links import Stop


def whole(result: Result) -> Result:
    """The result of a fit that came to its end; a path with gaps is of no use."""
    if result.error is not None:
        raise result.error
    if result.status is Status.INTERRUPTED:
        raise KeyboardInterrupt
    return result


def _most_common(values: Sequence[str]) -> str:
    return max(values, key=list(values).count)


@dataclass(frozen=True)
class Fits:
    """What the fits of one session have in common."""

    session: Session
    table: Table
    """This party's rows, prepared."""
    parts: Sequence[TableSummary]
    classes: npt.NDArray[Any] | None
    people: tuple[Participant, ...]
    allowed: set[str]
    """The methods that all policies allow."""
    account: Account
    """Counts what this party says, over all fits."""
    say: Say
    watch: Watch
    stop_wished: Callable[[], bool]
    prepared: Prepared | None = None
    """What was done with the columns."""
    sent: dict[str, Any] | None = None
    """The state of a bill: what that cost. A path counts it with its folds."""
    allowed_later: frozenset[str] | set[str] = frozenset()
    """The methods that they allow "auto" to change to."""

    @staticmethod
    def begin(session: Session, table: Table, say: Say, watch: Watch, stop_wished: Callable[[], bool]) -> Fits:
        """Match rows, compare what the parties hold, and agree on methods."""
        study, own = session.study, session.own
        common = matched(session, table)
        if common.n < table.n:
            say(f"{table.n - common.n} of {table.n} rows here are not at every party, and take no part")
        ready = prepare_own(session, common)
        table, parts = ready.table, ready.parts
        say(f"{table.n} rows here, {sum(part.columns for part in parts)} columns at all parties")
        allowed, later = agree_on_methods(session, parts, ready.held)
        digests = session.all_gather(commitment(own, study, table), COMMITMENTS, str)
        people = tuple(
            Participant(part.name, part.rows, part.columns, held) for part, held in zip(parts, digests, strict=True)
        )
        known = ready.classes, people, allowed, ready.account
        return Fits(session, table, parts, *known, say, watch, stop_wished, ready.prepared, ready.sent, later)

    def transport(self) -> Driver:
        """What carries one fit, or what is asked beside it: new masks, a new bill, the same account."""
        transport = transport_of(self.session)
        transport.account = self.account
        transport.collectives.stop = Stop()
        return transport

    def member(self, table: Table, problem: AnyProblem) -> Agent:
        """This party as an agent with these rows."""
        problem = with_offset(problem.with_classes(self.classes), self.parts)
        return member(self.session, table, self.parts, problem, self.session.study.make_network())

    def fit(
        self,
        problem: AnyProblem,
        *,
        limits: Limits | None = None,
        table: Table | None = None,
        method: str | None = None,
        before: Result | None = None,
        called: str = "",
    ) -> tuple[Result, Agent]:
        """The result of one fit, and the agent whose it is.

        table   for a fold: the rows to learn from
        method  if it is not the study's
        before  a result for the same rows, from whose model and dual to start
        limits  if they are not the study's
        called  what tells this fit's checkpoint from those of other fits of the same problem
        """
        session, study, own = self.session, self.session.study, self.session.own
        mine = self.table if table is None else table
        settings = study.settings()
        settings = replace(settings, limits=limits or settings.limits).but(method=method or study.method)
        known = Circumstances(
            study.make_network(),
            sizes_of(self.parts, study.split, apart=True),
            self.classes,
            study.has_secure_sums,
            allowed=self.allowed,
            allowed_later=self.allowed_later,
        )
        problem = with_offset(problem, self.parts)
        setup = set_up(problem, settings, known, lambda problem: with_predictors(session, problem, mine))
        if not called:
            self.say(setup.explanation)
        agent = member(session, mine, self.parts, setup.problem, setup.graph)
        identity = setup.identity(*(person.digest for person in self.people), own.party, *filter(None, [called]))
        # A folder for each identity: a study that was changed begins again, and one that is changed back continues.
        saved = None if own.checkpoint is None else Checkpoint(own.checkpoint / identity[:16], identity, VERSIONS)
        self._refuse_other_snapshots(saved)
        transport, limits = self.transport(), setup.limits
        warm = None if before is None else [replace(self.point(agent, before), kept=before.kept)]
        sent = self.sent if not called and study.path is None else None
        how = {"checkpoint": saved, "warm": warm, "watch": self.watch, "stop_wished": self.stop_wished, "sent": sent}
        outcome = run([agent], setup.running, transport, limits, **how)  # type: ignore[arg-type]
        if outcome.change is not None and not called:
            self.say(outcome.change.because)
        if outcome.error is None:
            outcome = self.compared(transport, outcome, saved)
        elif outcome.status is Status.PROTOCOL_ERROR and saved is not None:
            saved.forget()
        # Split by features, the coefficients of its own columns and what they add to the intercept.
        model = problem.kind.models.assemble(outcome, [agent], agent.problem, self.classes)
        if study.split == "features":
            model = replace(model, part=f"{own.party} of {study.name}")
        if self.prepared is not None:
            model = replace(model, preparation=self.prepared)
        return finish(setup, outcome, model, [agent], self.people), agent

    def _refuse_other_snapshots(self, saved: Checkpoint | None) -> None:
        """Go on from snapshots of one run only: parties that heard other sums until then have states of other runs.

        If there are no such snapshots, all parties remove theirs, and begin again.
        """
        names, mine = self.session.study.names, {} if saved is None else saved.marks(HEARD)
        told = self.session.all_gather(mine, CHECKPOINTS, dict[int, str])
        if not any(told):
            return
        common = [round for round in told[0] if all(round in marks for marks in told)]
        others = {
            name
            for round in common
            for name, marks in zip(names, told, strict=True)
            if marks[round] != _most_common([one[round] for one in told])
        }
        if others:
            listed = " and ".join(name for name in names if name in others)
            self.say(f"the checkpoint of {listed} is of another run: all parties begin again")
        if saved is not None and (others or not common):
            saved.forget()

    def point(self, agent: Agent, result: Result) -> Point:
        """Its own model, or part of it, and its own dual vector."""
        witness = result.certificate.witness[self.session.me]
        return points_of(result.model, [agent], [witness] if agent.labelled or len(witness) else None)[0]

    def compared(self, transport: Driver, outcome: Outcome, saved: Checkpoint | None) -> Outcome:
        """The outcome, once all know that they heard the same; who is lost now does not cost the others theirs."""
        try:
            check_totals(self.session, transport)
        except Restarted:
            raise
        except ProtocolError:
            # Snapshots that came of changed sums are of no use to anybody.
            if saved is not None:
                saved.forget()
            raise
        except PartyLost as lost:
            return replace(outcome, status=lost.status, error=lost)
        return outcome
