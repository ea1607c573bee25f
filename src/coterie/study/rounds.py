"""Take the rounds of a fit between organisations, with the agent of this party; then all parties
compare the sums that they received.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from coterie.engines.processes import VERSIONS
from coterie.errors import PartyLost, ProtocolError
from coterie.problems.problem import AnyProblem
from coterie.run.agent import AgentForm
from coterie.run.checkpoint import Checkpoint
from coterie.run.parties import Rounds
from coterie.run.rounds import Control, Outcome, Start, Watch, never, run, unwatched
from coterie.run.statuses import Status
from coterie.study.broadcasts import CHECKPOINTS, DIGESTS_OF_ROUNDS
from coterie.study.nonce import secret
from coterie.study.policy import Account
from coterie.study.session import Say, Session, check_totals, naming_liars, transport_of
from coterie.transport.driver import RECEIVED
from coterie.transport.grpc_mesh import Restarted
from coterie.transport.links import Stop


def _silent(text: str) -> None:
    """Say nothing."""


@dataclass(frozen=True)
class Reports:
    """How a party follows a fit, and stops it."""

    say: Say = _silent
    watch: Watch = unwatched
    stop_wished: Callable[[], bool] = never


def take_rounds(
    session: Session,
    account: Account,
    reports: Reports,
    agents: Sequence[AgentForm[AnyProblem]],
    rounds: Rounds,
) -> Outcome:
    """Take the rounds of a fit with this party's agent."""
    setup = rounds.setup
    if rounds.title:
        reports.say(rounds.title)
    if not rounds.called:
        reports.say(setup.explanation)
    saved = _checkpoint(session, rounds)
    _refuse_other_checkpoints(session, saved, reports.say)
    transport = transport_of(session)
    transport.account = account
    transport.collectives.stop = Stop()
    private = secret(session.own, session.study)
    with naming_liars(session, transport):
        outcome = run(
            [replace(agent, secret=private) for agent in agents],
            setup.running,
            transport,
            setup.limits,
            Start(saved, rounds.warm, rounds.sent),
            Control(reports.stop_wished, reports.watch),
        )
    if outcome.rescue is not None and not rounds.called:
        reports.say(outcome.rescue.because)
    if outcome.error is None:
        return _compared(session, transport, outcome, saved)
    if outcome.status is Status.PROTOCOL_ERROR and saved is not None:
        saved.forget()
    return outcome


def _checkpoint(session: Session, rounds: Rounds) -> Checkpoint | None:
    """The checkpoint of this fit, in a folder for each identity: if the study changes, the fit
    begins again, and if it changes back, the fit continues.
    """
    own = session.own
    if own.checkpoint is None:
        return None
    identity = rounds.identity(own.party)
    return Checkpoint(own.checkpoint / identity[:16], identity, VERSIONS)


def _refuse_other_checkpoints(session: Session, saved: Checkpoint | None, say: Say) -> None:
    """Continue from checkpoints of one run only: parties that received other sums have states of
    other runs.

    If there are no such checkpoints, all parties remove theirs, and begin again.
    """
    mine = {} if saved is None else saved.marks(RECEIVED)
    marks = session.all_gather(mine, CHECKPOINTS, DIGESTS_OF_ROUNDS)
    if not any(marks):
        return
    common = [round for round in marks[0] if all(round in own for own in marks)]
    names = _of_other_runs(session.study.names, marks, common)
    if names:
        listed = " and ".join(names)
        say(f"the checkpoint of {listed} is of another run: all parties begin again")
    if saved is not None and (names or not common):
        saved.forget()


def _of_other_runs(
    names: Sequence[str], marks: Sequence[dict[int, str]], common: Sequence[int]
) -> list[str]:
    """The parties with a mark that differs from that of most parties, in one of these rounds."""
    found = set()
    for round in common:
        usual = _most_common([own[round] for own in marks])
        found |= {name for name, own in zip(names, marks, strict=True) if own[round] != usual}
    return [name for name in names if name in found]


def _most_common(values: Sequence[str]) -> str:
    return max(values, key=list(values).count)


def _compared(
    session: Session, transport: Any, outcome: Outcome, saved: Checkpoint | None
) -> Outcome:
    """The outcome, after all parties have found that they received the same sums. If a party is
    lost now, the result stays.
    """
    try:
        check_totals(session, transport)
    except Restarted:
        raise
    except ProtocolError:
        # Checkpoints of changed sums are of no use to any party.
        if saved is not None:
            saved.forget()
        raise
    except PartyLost as lost:
        return replace(outcome, status=lost.status, error=lost)
    return outcome
