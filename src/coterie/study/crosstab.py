"""Count the rows of all parties in two-way tables, between organisations, as far as policies
allow.
"""

from __future__ import annotations

from coterie.api.crosstab import Crosstab, CrossTabulate
from coterie.errors import InvalidInput
from coterie.study.among import Part
from coterie.study.consent import Consent, require
from coterie.study.description import as_fitted, read_raw
from coterie.study.session import Say
from coterie.study.study import PartyFile, Study


def crosstab_together(
    own: PartyFile,
    study: Study,
    rows: str,
    columns: str,
    *,
    say: Say = lambda text: None,
    consent: Consent = None,
) -> Crosstab:
    """Count the rows of all parties by the values of two columns; every party names the same two.

    consent   True, or a function that gets the page of messages and returns whether this party
              agrees. Not needed if the party agreed to the same page before.
    """
    if study.split not in CrossTabulate.splits:
        raise InvalidInput(
            "a two-way table counts rows of parties that have both columns, and this study is "
            f"split by {study.split}. Count the rows of one file: coterie crosstab data.csv "
            "--rows A --columns B."
        )
    asked = CrossTabulate(rows, columns)
    held = read_raw(own, study)
    table = asked.alone(held)
    part = Part(own, study, say)
    page = part.page(asked, table, as_fitted(held, own), held)
    require(own, study, asked.name, page, consent)
    return part.take(asked, table, held=held)
