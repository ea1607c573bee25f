"""Consent: before its first message for an operation, a party agrees to the page that says what is
sent for it.

The answer is kept next to the party's key, with the digest of the page, for each version of the
study and each operation: another page is asked about again.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable
from typing import Any, TypeAlias

from coterie.data.archives import write_atomically
from coterie.errors import CorruptFile, InvalidInput, Refused
from coterie.numerics.arrays import digest
from coterie.study.study import PartyFile, Study

FILE = "consent.json"


Consent: TypeAlias = bool | Callable[[str], bool] | None
"""Whether a party agrees to what is sent: True, or a function that is handed the page; None: it
agreed before.
"""


def require(own: PartyFile, study: Study, operation: str, page: str, consent: Consent) -> None:
    """Go on if this party agrees to the page of an operation, or agreed to the same page before.

    Parameters
    ----------
    own : PartyFile
        The party.
    study : Study
        What the parties agreed to run.
    operation : str
        What they come together for.
    page : str
        What this party sends for it.
    consent : bool, callable or None
        The answer, or a function that is handed the page.

    Raises
    ------
    Refused
        If the party does not agree.
    InvalidInput
        If there is no answer.
    """
    known = _known(own)
    agreed = known.get(study.run_id, {})
    if agreed.get(operation, {}).get("page") == digest(page):
        return
    if not _answer(own, operation, page, consent):
        raise Refused(
            f"{own.party} does not agree to what `{operation}` sends in this version of the study. "
            "Nothing was sent."
        )
    now = dt.datetime.now(dt.UTC).isoformat(timespec="seconds")
    agreed[operation] = {"study": study.name, "page": digest(page), "agreed": now}
    known[study.run_id] = agreed
    write_atomically(own.keys / FILE, json.dumps(known, indent=1).encode())


def _answer(own: PartyFile, operation: str, page: str, consent: Consent) -> bool:
    if consent is None:
        raise InvalidInput(
            f"{own.party} has not approved what `{operation}` sends in this version of the study. "
            "Give consent=True, or consent= a function that is handed the page and returns True "
            "or False. Nothing was sent."
        )
    return bool(consent(page)) if callable(consent) else consent


def _known(own: PartyFile) -> dict[str, Any]:
    """The pages agreed to before, by the version of the study and the operation."""
    path = own.keys / FILE
    changed = CorruptFile(f"{path} was changed: delete it to be asked again.")
    try:
        found = json.loads(path.read_text("utf-8")) if path.exists() else {}
    except (ValueError, RecursionError) as error:
        raise changed from error
    if not isinstance(found, dict):
        raise changed
    for agreed in found.values():
        if not (isinstance(agreed, dict) and all(isinstance(one, dict) for one in agreed.values())):
            raise changed
    return found
