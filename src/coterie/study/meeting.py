"""Connect a party to its neighbours, run an operation with them, and close the connections.

All steps after the connection may be repeated: if a party restarts, all parties begin again
together.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from coterie.errors import CoterieError, PartyLost, ProtocolError
from coterie.run.statuses import Status
from coterie.study.broadcasts import Broadcast
from coterie.study.disclosure import guard_of
from coterie.study.session import Say, Session
from coterie.study.study import PartyFile, Study
from coterie.transport.broadcast import SignedBroadcast
from coterie.transport.grpc_mesh import GrpcMesh, Restarted
from coterie.transport.keys import load_keys

T = TypeVar("T")

MET = "all neighbours are connected"
LINGER_SECONDS = 10.0
"""A party that leaves with a reason waits this long, at most a deadline, for neighbours that have
not connected yet.
"""


def in_session(
    own: PartyFile,
    study: Study,
    purpose: str,
    work: Callable[[Session], T],
    say: Say,
) -> T:
    """Connect to the neighbours and do this work; repeat it whenever a party restarts."""
    network, me, pins = study.carrying(), study.index(own.party), study.pins()
    neighbours = study.neighbours(me)
    links = GrpcMesh(
        me,
        neighbours,
        study.run_id,
        load_keys(own.keys, own.party, pins),
        study.deadline,
        names=study.names,
        listen=own.listen or study.party[me].address or "127.0.0.1:0",
        agreement=f"{study.agreement}\npurpose = {purpose}",
        patience=own.patience,
        dials=study.dialled_by(me, neighbours),
    )
    links.check = guard_of(study, purpose).check_tag
    try:
        links.connect([party.address or "" for party in study.party])
        waiting = ", ".join(study.names[j] for j in neighbours)
        say(f"waiting for {waiting}, for up to {own.patience:g} seconds (patience in party.toml)")
        while True:
            try:
                links.wait()
                say(MET)
                broadcast = SignedBroadcast(links, network)
                broadcast.introduce()
                say(f"keys: {'; '.join(f'{name} {key}' for name, key in pins.items())}")
                return work(Session(own, study, links, network, broadcast, purpose))
            except Restarted as restarted:
                say(str(restarted))
                links.begin_again()
    except BaseException as error:
        leave(links, error)
        raise
    finally:
        links.close()


def end_together(session: Session, written: bool, message: Broadcast, say: Say) -> None:
    """Wait until all parties have their results, so that a restarted party finds all others.

    This party has its own result, and needs nothing more: a party that leaves now, or sends
    nonsense, costs a warning.
    """
    try:
        session.all_gather(written, message, bool)
    except Restarted:
        raise
    except (PartyLost, ProtocolError) as error:
        say(f"warning: your result is complete, but not all parties confirmed theirs: {error}")
        leave(session.links, error)


def leave(links: GrpcMesh, error: BaseException) -> None:
    """Close the connections, and send the neighbours the reason, whatever the error is."""
    linger = 0.0
    if isinstance(error, CoterieError):
        reason = str(getattr(error, "told", error))
        linger = LINGER_SECONDS
    elif isinstance(error, KeyboardInterrupt):
        reason = "it was stopped by hand"
    else:
        reason = type(error).__name__
    if getattr(error, "status", None) is Status.PROTOCOL_ERROR:
        farewell = getattr(error, "farewell", b"")
        links.close(reason, "", Status.PROTOCOL_ERROR, linger, farewell)
    else:
        lost, farewell = "", b""
        if isinstance(error, PartyLost):
            lost, farewell = error.party, error.farewell
        links.close(reason, lost, "", linger, farewell)
