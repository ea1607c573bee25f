"""Describe the columns of all parties together, before a fit, with sums and counts that all
policies allow.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from coterie.api.describe import Describe
from coterie.api.description import Description
from coterie.data import Table
from coterie.stats.describing import Wish
from coterie.study.among import Part, own_columns
from coterie.study.consent import Consent, require
from coterie.study.session import Say
from coterie.study.study import PartyFile, Study


def describing(own: PartyFile, study: Study) -> tuple[Describe, Table]:
    """The operation, and the party's own columns as they are."""
    asked = Describe(Wish(own.target), own.columns, () if study.id is None else (study.id,))
    return asked, own_columns(own)


def read_raw(own: PartyFile, study: Study) -> Table:
    """The columns to describe, with missing values and text, and with the labels."""
    asked, table = describing(own, study)
    return asked.alone(table)


def as_fitted(table: Table, own: PartyFile) -> Table:
    """These columns as a fit would have them, without labels among them, for the page that a party
    agrees to.
    """
    names = table.columns or ()
    roles = own.roles()
    others = {*(roles.pop("labels") or {}).values(), *roles.values()}
    kept = np.array([place for place, name in enumerate(names) if name not in others], int)
    fitted = Table(table.X[:, kept], columns=tuple(names[place] for place in kept), name=table.name)
    if own.target is None:
        return fitted
    return replace(fitted, y=np.zeros(table.n))


def describe_together(
    own: PartyFile,
    study: Study,
    *,
    say: Say = lambda text: None,
    consent: Consent = None,
) -> Description:
    """Describe the rows of all parties together; split by features or users, only the summaries
    that each party sends of its rows.

    consent   True, or a function that gets the page of messages and returns whether this party
              agrees. Not needed if the party agreed to the same page before.
    """
    asked, raw = describing(own, study)
    table = asked.alone(raw)
    part = Part(own, study, say)
    require(own, study, asked.name, part.page(asked, table, as_fitted(table, own)), consent)
    found = part.take(asked, table)
    if study.split == "samples":
        return found
    others = {name: one for name, one in found.parties.items() if name != own.party}
    return replace(found, parties=others)
