"""Keys and TLS certificates. Each party makes and keeps its key; the coordinator's authority signs
the party's certificate.

    party        make_request    key.pem (never leaves), request.pem  ─→ to the coordinator
    coordinator  make_authority  authority-key.pem (never leaves), authority.pem
                 sign            certificate.pem, authority.pem       ─→ back to the party

A TLS certificate holds the party's name and the fields that TLS needs, and no information about its
data. Only the owner of a key file can read it. Parties also use these keys to sign texts that other
parties pass on (`signature`, `known_key`).
"""

from __future__ import annotations

import datetime as dt
import functools
import hashlib
import os
from pathlib import Path

from coterie.data.archives import write_atomically
from coterie.errors import CorruptFile, InvalidInput, MissingExtra, ProtocolError
from coterie.transport.security import MutualTLS, server_name

try:
    from cryptography import x509
    from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.asymmetric.types import CertificatePublicKeyTypes
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
except ImportError as missing:
    raise MissingExtra("`coterie provision`", "peers") from missing

PublicKey = ec.EllipticCurvePublicKey

KEY = "key.pem"
REQUEST = "request.pem"
CERTIFICATE = "certificate.pem"
AUTHORITY = "authority.pem"
AUTHORITY_KEY = "authority-key.pem"
DAYS = 365
UNREADABLE = (
    ValueError,
    TypeError,
    InvalidSignature,
    UnsupportedAlgorithm,
    x509.DuplicateExtension,
    x509.ExtensionNotFound,
    x509.InvalidVersion,
    x509.UnsupportedGeneralNameType,
)
"""What a TLS certificate that another party made up can end in."""
BACKDATED = dt.timedelta(hours=1, minutes=5)
"""Certificates are valid from this time before their signing, for clocks that differ by up to an
hour.
"""


def make_request(folder: str | Path, party: str) -> Path:
    """At the party: make a key, if none exists yet, and a signing request. The party sends only the
    request.
    """
    folder = Path(folder)
    key = _key(folder / KEY)
    request = (
        x509.CertificateSigningRequestBuilder()
        .subject_name(_name(party))
        .add_extension(
            x509.SubjectAlternativeName([x509.DNSName(server_name(party))]), critical=False
        )
        .sign(key, hashes.SHA256())
    )
    return write_atomically(
        folder / REQUEST, request.public_bytes(serialization.Encoding.PEM), public=True
    )


def make_authority(folder: str | Path, study: str, days: float = DAYS) -> Path:
    """At the coordinator: make the authority that signs for this study, unless it exists."""
    folder = Path(folder)
    if (folder / AUTHORITY).exists() and (folder / AUTHORITY_KEY).exists():
        return folder / AUTHORITY
    key = _key(folder / AUTHORITY_KEY)
    name = _name(f"{study} authority")
    certificate = (
        _builder(name, name, key.public_key(), days)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    return write_atomically(
        folder / AUTHORITY, certificate.public_bytes(serialization.Encoding.PEM), public=True
    )


def sign(
    folder: str | Path, request: bytes, parties: list[str], days: float = DAYS
) -> tuple[str, bytes]:
    """At the coordinator: sign a request. Return the name of its party and the certificate.

    The party must belong to the study. The request may also be a certificate of this authority. The
    authority then signs its key for a longer time.
    """
    folder = Path(folder)
    try:
        asked = _read(request)
        party = str(asked.subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value)
        if isinstance(asked, x509.Certificate):
            asked.verify_directly_issued_by(
                x509.load_pem_x509_certificate((folder / AUTHORITY).read_bytes())
            )
        honest = isinstance(asked, x509.Certificate) or asked.is_signature_valid
    except (ValueError, TypeError, IndexError, InvalidSignature) as error:
        raise CorruptFile(f"this is not a signing request ({error}).") from error
    if not honest:
        raise CorruptFile("the signing request was changed: its signature does not match.")
    if party not in parties:
        raise InvalidInput(
            f"{party!r} asks for a TLS certificate, but the study's parties are "
            f"{', '.join(parties)}."
        )
    issuer = x509.load_pem_x509_certificate((folder / AUTHORITY).read_bytes())
    _check_valid(
        issuer,
        f"the authority in {folder}",
        "move it away, and have all parties' requests signed again",
    )
    key = _key(folder / AUTHORITY_KEY)
    # Only the public key of the request counts. The study determines name and purposes.
    certificate = (
        _builder(_name(party), issuer.subject, asked.public_key(), days, issuer.not_valid_after_utc)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs=False), critical=True)
        .add_extension(
            x509.ExtendedKeyUsage(
                [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
            ),
            critical=False,
        )
        .add_extension(
            x509.SubjectAlternativeName([x509.DNSName(server_name(party))]), critical=False
        )
        .sign(key, hashes.SHA256())
    )
    return party, certificate.public_bytes(serialization.Encoding.PEM)


def provide_all(
    folder: str | Path, study: str, parties: list[str], days: float = DAYS
) -> dict[str, Path]:
    """For a test on one machine: make an authority and, in a folder for each party, the party's key
    and TLS certificate.
    """
    folder = Path(folder)
    authority = make_authority(folder / "coordinator", study, days)
    made = {}
    for party in parties:
        own = folder / party
        request = make_request(own, party)
        _, certificate = sign(folder / "coordinator", request.read_bytes(), parties, days)
        write_atomically(own / CERTIFICATE, certificate, public=True)
        write_atomically(own / AUTHORITY, authority.read_bytes(), public=True)
        made[party] = own
    return made


def valid_until(certificate: bytes) -> dt.datetime:
    """Return the time at which a TLS certificate expires."""
    return x509.load_pem_x509_certificate(certificate).not_valid_after_utc


def load_keys(folder: str | Path, party: str, pins: dict[str, str] | None = None) -> MutualTLS:
    """Load a party's key, TLS certificate and authority, checked as far as possible without the
    other parties.

    Every run with mutual TLS needs them.
    """
    folder = Path(folder)
    _check_private(folder / KEY)
    content = {}
    for file in (KEY, CERTIFICATE, AUTHORITY):
        try:
            content[file] = (folder / file).read_bytes()
        except OSError as error:
            raise InvalidInput(
                f"{folder / file} cannot be read ({error.strerror}). Without it there is no "
                "mutual TLS, and without "
                "mutual TLS no run: make it with `coterie provision`."
            ) from error
    try:
        key = serialization.load_pem_private_key(content[KEY], None)
        certificate = x509.load_pem_x509_certificate(content[CERTIFICATE])
        authority = x509.load_pem_x509_certificate(content[AUTHORITY])
    except (ValueError, TypeError) as error:
        raise CorruptFile(f"a key or TLS certificate in {folder} is damaged ({error}).") from error
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise InvalidInput(
            f"the key in {folder} is not of the kind that `coterie provision` makes: make another."
        )
    if key.public_key() != certificate.public_key():
        raise InvalidInput(
            f"the TLS certificate in {folder} belongs to another key; ask the coordinator to sign "
            "again."
        )
    try:
        certificate.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature) as error:
        raise InvalidInput(
            f"the TLS certificate in {folder} was not signed by the authority next to it."
        ) from error
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    if server_name(party) not in names.get_values_for_type(x509.DNSName):
        raise InvalidInput(f"the TLS certificate in {folder} is not that of {party!r}.")
    for what, checked in (("TLS certificate", certificate), ("authority", authority)):
        _check_valid(checked, f"the {what} in {folder}", "ask the coordinator to sign again")
    return MutualTLS(content[KEY], content[CERTIFICATE], content[AUTHORITY], pins or {})


def signature(keys: MutualTLS, content: bytes) -> bytes:
    """Return the party's signature of `content`."""
    return _private_key(keys.key).sign(content, ec.ECDSA(hashes.SHA256()))


@functools.lru_cache(maxsize=16)
def _private_key(content: bytes) -> ec.EllipticCurvePrivateKey:
    """Return the key of a file. To parse it takes longer than to sign."""
    key = serialization.load_pem_private_key(content, None)
    assert isinstance(key, ec.EllipticCurvePrivateKey), "`load_keys` has seen it"
    return key


def known_key(
    keys: MutualTLS, certificate: bytes, party: str, *, current: bool = True
) -> PublicKey:
    """Return the public key in another party's TLS certificate, if the same authority signed it for
    that party.

    An old signature stays valid. To check one, the certificate need not be `current` any more.
    """
    try:
        shown = x509.load_pem_x509_certificate(certificate)
        shown.verify_directly_issued_by(x509.load_pem_x509_certificate(keys.authority))
        names = shown.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        key = shown.public_key()
        now = dt.datetime.now(dt.UTC)
        genuine = server_name(party) in names.get_values_for_type(x509.DNSName)
        valid_now = shown.not_valid_before_utc <= now <= shown.not_valid_after_utc
        if not genuine or (current and not valid_now):
            raise ValueError("it is another party's, or out of date")
        if not isinstance(key, PublicKey):
            raise ValueError("its key is of another kind")
    except UNREADABLE as error:
        raise ProtocolError(
            f"the TLS certificate that was passed on for {party} is not valid ({error})."
        ) from error
    check_pin(keys, certificate, party)
    return key


def plain_certificate(certificate: bytes) -> str:
    """Return a TLS certificate as text, without anything that the file has before or after it."""
    shown = x509.load_pem_x509_certificate(certificate)
    return shown.public_bytes(serialization.Encoding.PEM).decode("ascii")


def check_pin(keys: MutualTLS, certificate: bytes, party: str) -> None:
    """Refuse a key other than the one on which the parties agreed, even if the authority signed
    it.
    """
    pinned = keys.pins.get(party)
    if pinned is not None and (shown := fingerprint(certificate)) != pinned:
        raise ProtocolError(
            f"{party} shows another key than the study holds for it: SHA-256 {shown} instead of "
            f"{pinned}. Ask {party} "
            "by phone which key is theirs."
        )


def check_signature(key: PublicKey, content: bytes, signed: bytes, party: str) -> None:
    """Refuse content without a valid signature of that party."""
    try:
        key.verify(signed, content, ec.ECDSA(hashes.SHA256()))
    except InvalidSignature as error:
        raise ProtocolError(
            f"the message of {party} was changed on its way: its signature does not match."
        ) from error


def fingerprint(content: bytes) -> str:
    """Return the SHA-256 of the public key in a request or a TLS certificate, in groups of four
    digits for reading aloud.
    """
    try:
        key = _read(content).public_key()
    except ValueError as error:
        raise CorruptFile(
            f"this is neither a signing request nor a TLS certificate ({error})."
        ) from error
    plain = key.public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    digits = hashlib.sha256(plain).hexdigest()
    return " ".join(digits[k : k + 4] for k in range(0, len(digits), 4))


def _read(content: bytes) -> x509.CertificateSigningRequest | x509.Certificate:
    if b"CERTIFICATE REQUEST" in content:
        return x509.load_pem_x509_csr(content)
    return x509.load_pem_x509_certificate(content)


def _check_valid(certificate: x509.Certificate, what: str, fix: str) -> None:
    first = certificate.not_valid_before_utc
    last = certificate.not_valid_after_utc
    if not first <= dt.datetime.now(dt.UTC) <= last:
        raise InvalidInput(f"{what} is valid from {first:%Y-%m-%d} to {last:%Y-%m-%d} only; {fix}.")


def _check_private(key: Path) -> None:
    """Refuse a key that other users of this machine can read or change."""
    if key.exists() and (mode := key.stat().st_mode & 0o077):
        raise InvalidInput(
            f"{key} can be read or changed by others (mode …{mode:02o}): type `chmod 600 {key}`."
        )


def _key(path: Path) -> ec.EllipticCurvePrivateKey:
    """Return the private key in that file. If the file does not exist, make it."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        made = ec.generate_private_key(ec.SECP256R1())
        private = made.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(private)
    _check_private(path)
    key = serialization.load_pem_private_key(path.read_bytes(), None)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise InvalidInput(f"{path} is not a key that `coterie provision` makes; move it away.")
    return key


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common[:64])])


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: CertificatePublicKeyTypes,
    days: float,
    latest: dt.datetime | None = None,
) -> x509.CertificateBuilder:
    now = dt.datetime.now(dt.UTC)
    last = now + dt.timedelta(days=days)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BACKDATED if days > 0 else now + dt.timedelta(days=days - 1))
        .not_valid_after(last if latest is None else min(last, latest))
    )


def _usage(signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs,
        crl_sign=signs,
        encipher_only=False,
        decipher_only=False,
    )
