"""Keep a random number of a party next to its key. The party's commitment to its data, and its
private random numbers, depend on it.

    commitment   HMAC-SHA256(nonce, digest of the data): only a party with the nonce can test a
                 guess of the data
    secret       HMAC-SHA256(nonce, run): the source of random vectors that multiply private data

It is made once and kept, so a party that was killed draws the same numbers again, and can verify
its commitment.
"""

from __future__ import annotations

import hmac
import os
import secrets
from pathlib import Path

from coterie.data import Table
from coterie.errors import CorruptFile
from coterie.study.study import PartyFile, Study

FILE = "nonce.txt"


def commitment(own: PartyFile, study: Study, table: Table) -> str:
    """The digest of this party's data in certificates."""
    return _keyed(own.keys, f"data of {study.name}: {table.digest()}").hex()


def secret(own: PartyFile, study: Study) -> bytes:
    """The seed of the private random numbers of this party's agent; `engines.local.Local` can take
    it.
    """
    return _keyed(own.keys, f"randomness of {study.run_id}")


def _keyed(folder: Path, text: str) -> bytes:
    return hmac.digest(_nonce(folder / FILE), text.encode(), "sha256")


def _nonce(path: Path) -> bytes:
    """The party's nonce. If there is none, it is drawn and written; a crash leaves no incomplete
    file.
    """
    if not path.exists():
        mine = path.with_name(f".{path.name}-{secrets.token_hex(8)}")
        with os.fdopen(os.open(mine, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(secrets.token_hex(32))
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(mine, path)  # another process of this party may have been faster
        except FileExistsError:
            pass
        finally:
            mine.unlink()
    try:
        nonce = bytes.fromhex(path.read_text("ascii"))
    except ValueError as error:
        raise CorruptFile(
            f"{path} was changed: it holds 64 digits that `coterie agent` drew."
        ) from error
    if len(nonce) != 32:
        raise CorruptFile(f"{path} was changed: it holds 64 digits that `coterie agent` drew.")
    return nonce
