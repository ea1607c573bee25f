"""How parties come together: meet the neighbours, match rows, compare cards.

    read the own file ─→ meet the neighbours ─→ match rows ─→ compare cards ─→ what they came for

Everything after the meeting may have to be done again: if a party is restarted, all begin again together.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from coterie.agent import Agent
from coterie.arrays import digest, is_sparse
from coterie.bill import Bill
from coterie.data import Table
from coterie.engines.processes import pace_of
from coterie.errors import CoterieError, InvalidData, PartyLost, ProtocolError
from coterie.families import family_of
from coterie.networks import Network
from coterie.peers.align import aligned
from coterie.peers.chaos import Chaos
from coterie.peers.study import PartyFile, Study
from coterie.peers.tell import Family
from coterie.problem import Problem
from coterie.session.setup import make_agent
from coterie.statuses import Status
from coterie.transport.driver import Driver
from coterie.transport.grpc_mesh import GrpcMesh, Restarted
from coterie.transport.keys import load_keys
from coterie.transport.layout import Layout
from coterie.transport.point_to_point import PointToPoint

__all__ = [
    "MET",
    "Meeting",
    "Part",
    "Say",
    "carrier_of",
    "check_totals",
    "leave",
    "matched",
    "member",
    "met",
    "prepared",
    "unequal_rows",
    "with_predictors",
]

T = TypeVar("T")
Say = Callable[[str], None]

MET = "all neighbours are here"
MOST_CLASSES = 10_000


class Part(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a party tells all others about its data, once the rows are matched."""

    rows: int
    columns: int
    nonzeros: int
    single: bool
    """Whether it is float32."""
    outputs: int
    """Labels per row; 0 if it has none."""
    classes: list[str | float]
    header: str
    """The digest of the column names, where they have to be the same."""


@dataclass(frozen=True)
class Meeting:
    """A party among the others."""

    own: PartyFile
    study: Study
    links: GrpcMesh
    network: Network
    family: Family

    @property
    def me(self) -> int:
        """Which agent this party is."""
        return self.links.me

    def told(self, mine: object, about: str, kind: type[T]) -> list[T]:
        """What everybody has to tell about something, in the order of the agents."""
        parts = self.family.told(msgspec.msgpack.encode(mine), about)
        try:
            return [msgspec.msgpack.decode(part, type=kind) for part in parts]
        except msgspec.MsgspecError as error:
            raise ProtocolError(f"{about}: a party sent something else ({error}).") from error


# -- meeting -----------------------------------------------------------------------------------------------------------


def met(own: PartyFile, study: Study, purpose: str, work: Callable[[Meeting], T], say: Say, chaos: Chaos | None) -> T:
    """Meet the others and do that work, as often as a party is restarted."""
    network, me = study.carrying(), study.index(own.party)
    everybody = range(network.agents)
    layout = Layout(network, everybody, me)
    neighbours = layout.others if study.split == "users" else layout.partners
    make = GrpcMesh if chaos is None else chaos.streams
    links = make(
        me,
        neighbours,
        study.run_id,
        load_keys(own.keys, own.party),
        study.deadline,
        names=study.names,
        listen=own.listen or study.party[me].address,
        agreement=f"{study.agreement}\npurpose = {purpose}",
        patience=own.patience,
    )
    try:
        links.connect([party.address for party in study.party])
        waiting = [study.names[j] for j in neighbours]
        say(f"waiting for {', '.join(waiting)}")
        while True:
            try:
                links.wait()
                say(MET)
                return work(Meeting(own, study, links, network, Family(links, network)))
            except Restarted as restarted:
                say(str(restarted))
                links.begin_again()
    except BaseException as error:
        leave(links, error)
        raise
    finally:
        links.close()


def carrier_of(meeting: Meeting) -> Driver:
    """What carries the words of this party's agent; it remembers the totals for `check_totals`."""
    network, names = meeting.network, meeting.study.names
    pace = pace_of(meeting.study.clock, meeting.study.pace)
    collectives = PointToPoint(network, meeting.links, range(len(names)), meeting.me, names)
    collectives.transcript = hashlib.sha256()
    return Driver(Bill(network), collectives, pace)


def check_totals(meeting: Meeting, carrier: Driver) -> None:
    """Refuse what came of totals that were not the same at all parties."""
    transcript = carrier.collectives.transcript
    assert transcript is not None
    heard = meeting.told(transcript.hexdigest(), "totals", str)
    others = [name for name, one in zip(meeting.study.names, heard, strict=True) if one != heard[0]]
    if others:
        raise ProtocolError(
            f"{', '.join(others)} heard other sums than {meeting.study.names[0]}: a party on the way changed what it "
            "passed on. Do not use what was computed."
        )


def leave(links: GrpcMesh, error: BaseException) -> None:
    """Leave the others with the reason, whatever it is."""
    protocol = getattr(error, "status", None) is Status.PROTOCOL_ERROR
    lost = error.party if isinstance(error, PartyLost) and not protocol else ""
    by_hand = "it was stopped by hand" if isinstance(error, KeyboardInterrupt) else type(error).__name__
    reason = str(error) if isinstance(error, CoterieError) else by_hand
    links.close(reason, lost, Status.PROTOCOL_ERROR if protocol else "")


# -- data --------------------------------------------------------------------------------------------------------------


def matched(meeting: Meeting, table: Table) -> Table:
    study = meeting.study
    if study.id is None or study.split != "features":
        return table
    return aligned(table, study.names, meeting.family, secrets.token_bytes(32), study.duplicates, study.psi)


def prepared(meeting: Meeting, table: Table, problem: Problem) -> tuple[Table, list[Part], npt.NDArray[Any] | None]:
    """The own table as the others need it, everybody's cards, and the classes."""
    study = meeting.study
    by_rows = study.split != "features"
    if by_rows and table.n == 0 and table.y is None:
        table = replace(table, y=np.empty(0, table.X.dtype))
    y = table.y
    mine = Part(
        rows=table.n,
        columns=table.d,
        nonzeros=int(table.X.nnz) if is_sparse(table.X) else int(table.X.size),
        single=table.X.dtype == np.float32,
        outputs=0 if y is None else 1 if y.ndim == 1 else y.shape[1],
        classes=[] if y is None or not family_of(problem).classification(problem) else np.unique(y).tolist(),
        header=digest(json.dumps(table.columns)) if by_rows and table.columns is not None else "",
    )
    if len(mine.classes) > MOST_CLASSES:
        raise InvalidData(f"party {table.name!r}: {len(mine.classes)} different labels are too many for classes.")
    parts = meeting.told(mine, "cards", Part)
    _check_cards(study, parts)
    if by_rows and is_sparse(table.X) and (widest := max(p.columns for p in parts)) > table.d:
        X = table.X
        table = replace(table, X=sp.csr_array((X.data, X.indices, X.indptr), shape=(table.n, widest)))
    classes = _classes(parts, problem)
    table = family_of(problem).encode(table, problem, classes)
    finest = np.float32 if all(part.single for part in parts) else np.float64
    X, y = table.X.astype(finest, copy=False), table.y
    if y is not None and y.dtype.kind == "f":
        y = y.astype(finest, copy=False)
    return replace(table, X=X, y=y), parts, classes


def _check_cards(study: Study, parts: Sequence[Part]) -> None:
    names = study.names
    if study.split == "features":
        rows = [part.rows for part in parts]
        if len(set(rows)) > 1:
            raise unequal_rows(study, rows)
        holders = [name for name, part in zip(names, parts, strict=True) if part.outputs]
        if len(holders) != 1:
            where = f"at {len(holders)} parties: {', '.join(holders)}" if holders else "at no party"
            raise InvalidData(f"labels {where}. Split by features, exactly one party names a target.")
    else:
        unlabelled = [name for name, part in zip(names, parts, strict=True) if part.rows and not part.outputs]
        if unlabelled:
            raise InvalidData(f"there are no labels at {', '.join(unlabelled)}; name their column with target.")
        if len({part.outputs for part in parts if part.outputs}) > 1:
            told = ", ".join(f"{name} {part.outputs}" for name, part in zip(names, parts, strict=True))
            raise InvalidData(f"the numbers of labels per row differ: {told}. Give every party the same ones.")
        headers = {part.header for part in parts if part.header}
        if len(headers) > 1:
            told = ", ".join(f"{name} {part.columns}" for name, part in zip(names, parts, strict=True))
            raise InvalidData(
                f"the parties have different columns, or in another order ({told}). Give all the same with columns."
            )
    if not any(part.rows and part.columns for part in parts):
        raise InvalidData("no party has any data.")


def unequal_rows(study: Study, rows: Sequence[int]) -> InvalidData:
    told = ", ".join(f"{name} has {count}" for name, count in zip(study.names, rows, strict=True))
    return InvalidData(f"the numbers of rows differ: {told}. Match them: name the id column with id in the study.")


def _classes(parts: Sequence[Part], problem: Problem) -> npt.NDArray[Any] | None:
    """The classes of all parties together, sorted; None where labels are numbers."""
    if not family_of(problem).classification(problem):
        return None
    found = {label for part in parts for label in part.classes}
    if len({isinstance(label, str) for label in found}) > 1:
        raise InvalidData("the labels are text at one party and numbers at another. Convert them to one type.")
    if problem.family != "low-rank" and len(found) != 2:
        shown = ", ".join(map(repr, sorted(found)[:10]))
        raise InvalidData(f"the labels have {len(found)} classes ({shown}); a classification loss needs two.")
    fixed = getattr(problem.loss, "classes", None)
    return np.unique(np.array(list(found))) if fixed is None else np.array(fixed)


def with_predictors(meeting: Meeting, problem: Problem, table: Table) -> Problem:
    """The problem for everybody's data: where it needs them, all tell the least and the largest of each column."""
    family = family_of(problem)
    if table.weights is not None or not family.wants_ranges(problem):
        return family.for_tables(problem, [table])  # which refuses weights where there can be none
    X = table.X.toarray() if is_sparse(table.X) else table.X
    mine = [X.min(axis=0).tolist(), X.max(axis=0).tolist()] if table.n else []
    ranges = [np.array(part).reshape(-1, table.d) for part in meeting.told(mine, "ranges", list[list[float]])]
    return family.for_tables(problem, [Table(part, name="range") for part in ranges])


def member(meeting: Meeting, table: Table, parts: Sequence[Part], problem: Problem, graph: Network) -> Agent:
    """This party as an agent."""
    start = sum(part.columns for part in parts[: meeting.me])
    columns = np.arange(start, start + table.d)
    return make_agent(meeting.me, table, columns, problem, meeting.study.split, graph, meeting.study.seed)
