"""Consent: before its first message in a version of a study a party agrees to the page that says what is sent.

The answer is kept next to the party's key, with the digest of the page: another study, or another page, is asked again.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable
from typing import Any

from coterie.arrays import digest
from coterie.errors import CorruptFile, Refused
from coterie.files import write_atomically
from coterie.peers.study import PartyFile, Study

FILE = "consent.json"


def ask_once(own: PartyFile, study: Study, page: str, agrees: Callable[[], bool]) -> None:
    """Go on if somebody here agreed to this page, now or before."""
    path = own.keys / FILE
    try:
        known: dict[str, Any] = json.loads(path.read_text("utf-8")) if path.exists() else {}
    except ValueError as error:
        raise CorruptFile(f"{path} was changed: delete it to be asked again.") from error
    if known.get(study.run_id, {}).get("page") == digest(page):
        return
    if not agrees():
        raise Refused(f"{own.party} does not agree to what is sent in this version of the study. Nothing was sent.")
    now = dt.datetime.now(dt.UTC).isoformat(timespec="seconds")
    known[study.run_id] = {"study": study.name, "page": digest(page), "agreed": now}
    write_atomically(path, json.dumps(known, indent=1).encode())
