"""Describe the columns of all parties together, before a study is fitted: sums and counts, as far as policies allow."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np

from coterie.data import Table
from coterie.data.summary import check_together
from coterie.describe import about, described_alone, raw_table
from coterie.description import Description
from coterie.errors import ProtocolError
from coterie.files import without_nan
from coterie.peers.chaos import Chaos
from coterie.peers.consent import Consent, require
from coterie.peers.disclosure import disclosure
from coterie.peers.policy import Account, agree_on_limits, agree_to_begin
from coterie.peers.session import Say, Session, check_totals, in_session, summaries, transport_of
from coterie.peers.study import PartyFile, Study
from coterie.session.describing import Wish, described
from coterie.session.preparation import Place

FILE = "description.json"


def read_raw(own: PartyFile, study: Study) -> Table:
    """The party's own columns as they are, with missing values and text, the labels among them."""
    leave_out = [] if study.id is None else [study.id]
    columns = None if own.columns is None else list(own.columns)
    table = raw_table(own.data, 0, own.target, columns, leave_out)
    return replace(table, name=own.party)


def as_fitted(table: Table, own: PartyFile) -> Table:
    """These columns as a fit would have them, for the page that a party agrees to: labels stand apart."""
    names = table.columns or ()
    beside = {column for column in own.roles().values() if column is not None}
    kept = np.array([place for place, name in enumerate(names) if name not in beside], int)
    fitted = Table(table.X[:, kept], columns=tuple(names[place] for place in kept), name=table.name)
    return fitted if own.target is None else replace(fitted, y=np.zeros(table.n))


def describe_together(
    own: PartyFile,
    study: Study,
    *,
    chaos: Chaos | None = None,
    say: Say = lambda text: None,
    consent: Consent = None,
) -> Description:
    """What all parties' rows look like together; split by features or users, only what single parties tell.

    consent   True, or a function that is handed the page that says what is sent and returns whether this party agrees.
              Not needed where the party agreed to the same page before.
    """
    table = read_raw(own, study)
    require(own, study, disclosure(study, own.party, as_fitted(table, own)), consent)

    def work(session: Session) -> Description:
        agree_to_begin(session, table.n)
        alone = study.split != "samples"
        found = described_alone(table, Wish(own.target)) if alone else _together(session, table)
        told = _of_parties(session, table)
        found = replace(found, parties={name: one for name, one in told.items() if not alone or name != own.party})
        own.output.mkdir(parents=True, exist_ok=True)
        found.save(own.output / FILE)
        session.all_gather(True, "described", bool)
        return found

    return in_session(own, study, "describe", work, say, chaos, table.digest())


def _together(session: Session, table: Table) -> Description:
    study = session.study
    # The labels are among the columns here.
    parts = summaries(session, replace(table, y=np.zeros(table.n)))
    check_together(parts, "samples")
    minimum, room = agree_on_limits(session, parts)
    transport = transport_of(session)
    transport.account = Account.of(session, parts[session.me])
    wish = Wish(session.own.target, minimum=minimum, room=room)
    place = Place(session.me, len(study.names), study.has_secure_sums)
    found = transport.converse([described(table, wish, place)], "rounds")[0]
    transport.bill.end_round()
    check_totals(session, transport)
    return replace(found, about=about(found, len(study.names)), bill=transport.bill)


def _of_parties(session: Session, table: Table) -> dict[str, Description]:
    """What single parties tell of their rows, where their policy says so."""
    policy = session.own.policy
    mine: Any = None
    if policy.per_party:
        alone = described_alone(table, Wish(session.own.target, minimum=policy.minimum_count))
        mine = json.dumps(without_nan(alone.summary()))
    told = session.all_gather(mine, "descriptions", str | None)  # type: ignore[arg-type]
    try:
        return {
            name: Description.of(json.loads(one))
            for name, one in zip(session.study.names, told, strict=True)
            if one is not None
        }
    except (ValueError, TypeError, KeyError) as error:
        raise ProtocolError(f"a party sent a description that cannot be read ({error}).") from error
