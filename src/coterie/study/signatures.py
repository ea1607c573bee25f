"""Sign certificates: every party signs the numbers that all computed, with the key of its
connections.

The seal of a certificate's file is a digest that any program can compute; it detects accidents.
Only a party's key can make its signature: a reader with the authority's TLS certificate can check
which parties stand by the numbers.
"""

from __future__ import annotations

import base64
from dataclasses import replace
from typing import Annotated

import msgspec

from coterie.errors import ProtocolError
from coterie.run.certificate import Certificate
from coterie.study.broadcasts import SIGNATURES
from coterie.study.session import Session
from coterie.transport.keys import check_signature, known_key, plain_certificate, signature
from coterie.transport.security import MutualTLS

MOST_SIGNATURE = 256
"""Largest number of bytes of a signature."""


class Signed(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A party's signature, and the TLS certificate with the key that checks it."""

    tls: bytes
    signature: Annotated[bytes, msgspec.Meta(max_length=MOST_SIGNATURE)]


def with_signatures(
    session: Session, certificate: Certificate
) -> tuple[Certificate, dict[str, str]]:
    """The certificate with the signatures that arrive and hold; and for each party without one, the
    reason.

    No party can keep the signatures of others back, except from those that it alone connects.
    """
    security = _keys(session)
    mine = Signed(security.certificate, signature(security, certificate.statement()))
    received, reasons = session.collect(mine, SIGNATURES, Signed)
    signed = certificate
    for name, one in received.items():
        try:
            signed = _with_one(security, signed, name, one)
        except (ProtocolError, ValueError):
            reasons[name] = f"the signature of {name} does not hold"
    return signed, reasons


def _with_one(security: MutualTLS, certificate: Certificate, name: str, one: Signed) -> Certificate:
    """The certificate with the signature of this party, if it holds."""
    # Nothing of a message is used before the authority's signature of it holds.
    known_key(security, one.tls, name)
    encoded = base64.b64encode(one.signature).decode()
    written = {"tls": plain_certificate(one.tls), "signature": encoded}
    signed = replace(certificate, signatures={**certificate.signatures, name: written})
    _check(security, signed, name)
    return signed


def check_signatures(
    session: Session, certificate: Certificate
) -> tuple[tuple[str, ...], list[str]]:
    """The parties whose signatures hold, and an objection for each other party."""
    signers, objections = [], []
    for name in session.study.names:
        if name not in certificate.signatures:
            objections.append(f"{name} has not signed its certificate")
            continue
        try:
            _check(_keys(session), certificate, name)
            signers.append(name)
        except (ProtocolError, KeyError, TypeError, ValueError):
            objections.append(f"the signature of {name} under its certificate does not hold")
    return tuple(signers), objections


def _check(security: MutualTLS, certificate: Certificate, name: str) -> None:
    one = certificate.signatures[name]
    key = known_key(security, one["tls"].encode(), name, current=False)
    signed = base64.b64decode(one["signature"], validate=True)
    check_signature(key, certificate.statement(), signed, name)


def _keys(session: Session) -> MutualTLS:
    security = session.links.security
    assert isinstance(security, MutualTLS), "parties have keys"
    return security
