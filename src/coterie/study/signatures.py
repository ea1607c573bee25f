"""Sign certificates: every party signs the numbers that all computed, with the key of its
connections.

The seal of a certificate's file is a digest that any program can compute; it detects accidents.
Only a party's key can make its signature: a reader with the authority's TLS certificate can check
which parties stand by the numbers.
"""

from __future__ import annotations

import base64
from dataclasses import replace

import msgspec

from coterie.errors import ProtocolError
from coterie.run.certificate import Certificate
from coterie.study.broadcasts import SIGNATURES
from coterie.study.session import Session
from coterie.transport.keys import check_signature, known_key, signature
from coterie.transport.security import MutualTLS


class Signed(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A party's signature, and the TLS certificate with the key that checks it."""

    tls: bytes
    signature: bytes


def signed_by_all(session: Session, certificate: Certificate) -> Certificate:
    """The certificate with the signatures of all parties. If a signature does not fit these
    numbers, the error names its party.
    """
    security = _keys(session)
    mine = Signed(security.certificate, signature(security, certificate.statement()))
    of_all = session.all_gather(mine, SIGNATURES, Signed)
    written = {}
    for name, one in zip(session.study.names, of_all, strict=True):
        encoded = base64.b64encode(one.signature).decode()
        written[name] = {"tls": one.tls.decode(), "signature": encoded}
    signed = replace(certificate, signatures=written)
    for name in session.study.names:
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
