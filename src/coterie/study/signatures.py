"""Signatures under a certificate: every party signs what all of them found, with the key it meets
the others with.

The seal of a certificate's file is a digest that anybody can compute; it finds accidents. A
signature can only be made with a party's key: whoever has the authority's TLS certificate can check
who stands by the numbers.
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
    """The certificate with everybody's signature; one that does not fit these numbers is refused by
    name.
    """
    security = _keys(session)
    mine = Signed(security.certificate, signature(security, certificate.statement()))
    of_all = session.all_gather(mine, SIGNATURES, Signed)
    written = {
        name: {"tls": one.tls.decode(), "signature": base64.b64encode(one.signature).decode()}
        for name, one in zip(session.study.names, of_all, strict=True)
    }
    signed = replace(certificate, signatures=written)
    for name in session.study.names:
        _check(security, signed, name)
    return signed


def check_signatures(
    session: Session, certificate: Certificate
) -> tuple[tuple[str, ...], list[str]]:
    """Who signed, and an objection for everybody else."""
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
    check_signature(
        key, certificate.statement(), base64.b64decode(one["signature"], validate=True), name
    )


def _keys(session: Session) -> MutualTLS:
    security = session.links.security
    assert isinstance(security, MutualTLS), "parties have keys"
    return security
