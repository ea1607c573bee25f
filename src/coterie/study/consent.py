"""Consent: before its first message in a version of a study a party agrees to the page that says
what is sent.

The answer is kept next to the party's key, with the digest of the page: another study, or another
page, is asked again.
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


def ask_once(own: PartyFile, study: Study, page: str, agrees: Callable[[], bool]) -> None:
    """Go on if somebody here agreed to this page, now or before."""
    known = _known(own)
    if known.get(study.run_id, {}).get("page") == digest(page):
        return
    if not agrees():
        raise Refused(
            f"{own.party} does not agree to what is sent in this version of the study. Nothing "
            "was sent."
        )
    now = dt.datetime.now(dt.UTC).isoformat(timespec="seconds")
    known[study.run_id] = {"study": study.name, "page": digest(page), "agreed": now}
    write_atomically(own.keys / FILE, json.dumps(known, indent=1).encode())


def require(own: PartyFile, study: Study, page: str, consent: Consent) -> None:
    """Go on if this party agreed to the page before, or does so by `consent`; for who calls it from
    Python.
    """
    ask_once(own, study, page, lambda: _answer(own, page, consent))


def require_for_study(
    own: PartyFile, study: Study, page: Callable[[], str], consent: Consent
) -> None:
    """The same for what every page of a study lists, such as predictions: who agreed to one of them
    agreed to that.
    """
    if study.run_id not in _known(own) and consent is not True:
        require(own, study, page(), consent)


def _answer(own: PartyFile, page: str, consent: Consent) -> bool:
    if consent is None:
        raise InvalidInput(
            f"{own.party} has not agreed to what is sent in this version of the study. Read the "
            "page, with `coterie agent party.toml --show`, and give consent=True; or give consent= "
            "a function that is handed the page and returns True or False. Nothing was sent."
        )
    return bool(consent(page)) if callable(consent) else consent


def _known(own: PartyFile) -> dict[str, Any]:
    """What was agreed to before, by the version of the study."""
    path = own.keys / FILE
    try:
        found = json.loads(path.read_text("utf-8")) if path.exists() else {}
    except ValueError as error:
        raise CorruptFile(f"{path} was changed: delete it to be asked again.") from error
    if not (isinstance(found, dict) and all(isinstance(one, dict) for one in found.values())):
        raise CorruptFile(f"{path} was changed: delete it to be asked again.")
    return found
