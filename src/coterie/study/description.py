"""Describe the columns of all parties together, before a study is fitted: sums and counts, as far
as policies allow.
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
    """What is asked for, and the party's own columns as they are."""
    asked = Describe(Wish(own.target), own.columns, () if study.id is None else (study.id,))
    return asked, own_columns(own)


def read_raw(own: PartyFile, study: Study) -> Table:
    """The columns that are described, with missing values and text, the labels among them."""
    asked, table = describing(own, study)
    return asked.alone(table)


def as_fitted(table: Table, own: PartyFile) -> Table:
    """These columns as a fit would have them, for the page that a party agrees to: labels stand
    apart.
    """
    names = table.columns or ()
    roles = own.roles()
    beside = {*(roles.pop("labels") or {}).values(), *roles.values()}
    kept = np.array([place for place, name in enumerate(names) if name not in beside], int)
    fitted = Table(table.X[:, kept], columns=tuple(names[place] for place in kept), name=table.name)
    return fitted if own.target is None else replace(fitted, y=np.zeros(table.n))


def describe_together(
    own: PartyFile,
    study: Study,
    *,
    say: Say = lambda text: None,
    consent: Consent = None,
) -> Description:
    """What all parties' rows look like together; split by features or users, only what single
    parties tell.

    consent   True, or a function that is handed the page that says what is sent and returns whether
              this party agrees. Not needed where the party agreed to the same page before.
    """
    asked, raw = describing(own, study)
    table = asked.alone(raw)
    part = Part(own, study, say)
    require(own, study, asked.name, part.page(asked, table, as_fitted(table, own)), consent)
    found = part.take(asked, table)
    if study.split == "samples":
        return found
    return replace(
        found, parties={name: one for name, one in found.parties.items() if name != own.party}
    )
