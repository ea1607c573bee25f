"""Signed reasons of parties that leave.

A party that leaves early signs the reason. A neighbour that ends because of it passes the same
bytes on, so every party reads whose words they are: nobody can put words into another party's
mouth. A party can still say what is not true, for example that it lost another one; the error names
the party that says so.

    body        run, meeting, the party that leaves, the party that it lost (if one), status, text
    signature   ECDSA of the body, with the key of the party that leaves
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import msgspec

from coterie.errors import PartyLost, ProtocolError
from coterie.run.statuses import Status
from coterie.transport.security import MutualTLS

LONGEST = 1000
"""Characters of a reason that are sent."""
SHOWN = 300
"""Characters of another party's text that are shown."""
MOST_BYTES = 16_384
"""Bytes of a signed reason, with a TLS certificate."""

Name = Annotated[str, msgspec.Meta(max_length=80)]


class Farewell(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The reason why a party leaves."""

    run: str
    meeting: bytes
    """A digest of the introductions: reasons of earlier meetings do not count. Empty before."""
    party: Name
    lost: Name
    """The party that it lost, if that is the reason."""
    status: Name
    text: Annotated[str, msgspec.Meta(max_length=LONGEST)]


class SignedFarewell(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A reason, as it travels."""

    body: bytes
    signature: bytes
    certificate: bytes


def signed(security: MutualTLS, farewell: Farewell) -> bytes:
    """Sign a reason of this party."""
    from coterie.transport.keys import signature

    body = msgspec.msgpack.encode(farewell)
    return msgspec.msgpack.encode(
        SignedFarewell(body, signature(security, body), security.certificate)
    )


def read(security: MutualTLS, content: bytes, names: Sequence[str]) -> Farewell:
    """Read a signed reason of one of these parties; refuse one whose signature does not match."""
    from coterie.transport.keys import check_signature, known_key

    if len(content) > MOST_BYTES:
        raise ProtocolError(f"a reason of {len(content)} bytes.")
    try:
        one = msgspec.msgpack.decode(content, type=SignedFarewell)
        found = msgspec.msgpack.decode(one.body, type=Farewell)
    except (msgspec.MsgspecError, ValueError) as error:
        raise ProtocolError(f"a reason that cannot be read: {error}") from error
    if found.party not in names or found.lost not in ("", *names):
        raise ProtocolError("a reason that names no party of the study.")
    key = known_key(security, one.certificate, found.party)
    check_signature(key, one.body, one.signature, found.party)
    return found


def error_of(farewell: Farewell, content: bytes) -> PartyLost:
    """The error that a reason means for a recipient; it carries the signed bytes, to be passed
    on.
    """
    party, text = farewell.party, quoted(farewell.text)
    error = PartyLost(f"{party} left the run: {text}", party)
    if farewell.lost not in ("", party):
        error = PartyLost(f"{party} reports that it lost {farewell.lost}: {text}", farewell.lost)
    elif farewell.status == Status.PROTOCOL_ERROR:
        error.status = Status.PROTOCOL_ERROR
    error.farewell = content
    return error


def quoted(text: str) -> str:
    """Another party's text in quotation marks: on one line, without control characters, and
    shortened.
    """
    plain = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    if len(plain) > SHOWN:
        plain = f"{plain[: SHOWN - 4]} ..."
    return '"' + plain.replace('"', "'") + '"'
