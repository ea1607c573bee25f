"""Identity of the other end of a connection: keys and names, differences between studies, and
gRPC's options.
"""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass, field
from typing import Any

from coterie.numerics.arrays import digest
from coterie.transport.gate import MOST, PATIENCE

BEATS_PER_DEADLINE = 8
PLAIN_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?")


@dataclass(frozen=True)
class TrustedCluster:
    """No encryption and no names. For processes of one owner on one machine or in one closed
    cluster.
    """


@dataclass(frozen=True)
class MutualTLS:
    """Both sides show a certificate of the same authority. The name in the certificate identifies
    each side.
    """

    key: bytes = field(repr=False)
    certificate: bytes = field(repr=False)
    authority: bytes = field(repr=False)
    pins: dict[str, str] = field(default_factory=dict)
    """The fingerprint of each party's key, where the parties agreed on one. Any other key is
    refused, even with a valid certificate.
    """


def server_name(party: str) -> str:
    """Return the name in a party's certificate: the party's name, or a digest of it if TLS cannot
    use the name.
    """
    label = party if PLAIN_NAME.fullmatch(party) else f"x{digest(party)[:40]}"
    return f"{label}.coterie"


def grpc_options(largest: int, deadline: float) -> list[tuple[str, Any]]:
    """Return gRPC's options for message sizes, pauses and heartbeats, for both ends of a
    connection.
    """
    limit = largest + 2**16
    beat = max(1000, int(1000 * min(deadline, 3600) / BEATS_PER_DEADLINE))
    return [
        ("grpc.max_send_message_length", limit),
        ("grpc.max_receive_message_length", limit),
        ("grpc.so_reuseport", 0),
        ("grpc.use_local_subchannel_pool", 1),
        ("grpc.initial_reconnect_backoff_ms", 100),
        ("grpc.min_reconnect_backoff_ms", 1000),
        ("grpc.max_reconnect_backoff_ms", 1000),
        ("grpc.enable_http_proxy", 0),
        ("grpc.keepalive_time_ms", 2 * beat),
        ("grpc.keepalive_timeout_ms", 2 * beat),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.max_pings_without_data", 0),
        ("grpc.http2.max_ping_strikes", 0),
        ("grpc.server_handshake_timeout_ms", int(1000 * PATIENCE)),
        ("grpc.max_allowed_incoming_connections", MOST),
    ]


def stranger(name: str, address: str, details: str) -> str:
    """Return the error message for a party whose TLS certificate is not valid."""
    return (
        f"the party at {address} cannot prove that it is {name}: its TLS certificate is refused. "
        "Compare "
        f"authority.pem and the certificates' dates at both parties ({details})."
    )


def difference(ours: str, theirs: str, us: str, them: str) -> str:
    """Return the lines in which two parties' agreements differ."""
    lines = difflib.unified_diff(ours.splitlines(), theirs.splitlines(), us, them, lineterm="", n=0)
    shown = [line for line in lines if not line.startswith("@@")]
    return "\n".join([f"{us} and {them} do not agree on the study:", *shown[:60]])
