"""A party's agent as a process, with one lie: `python liar.py LIE agent party.toml ...`."""

from __future__ import annotations

import sys

import msgspec
import numpy as np

from coterie.cli import main
from coterie.transport.broadcast import SignedBroadcast
from coterie.transport.grpc_mesh import GrpcMesh

send, sign = GrpcMesh.send, SignedBroadcast._signed


def different_totals(mesh, to, message, tag):
    """Every neighbour hears another total."""
    if (tag.purpose, tag.collective) == ("rounds", "Sum") and message.dtype.kind == "f":
        message = message + (1 + to)
    send(mesh, to, message, tag)


def huge_numbers(mesh, to, message, tag):
    """Numbers that are finite, but whose sum is not."""
    if tag.collective == "Sum" and message.dtype.kind == "f":
        message = np.full_like(message, 1e308)
    send(mesh, to, message, tag)


def columns_without_end(broadcast, mine, about):
    """A card of a table that needs more memory than any machine has."""
    if about == "cards":
        content = {**msgspec.msgpack.decode(mine), "columns": 10**12}
        mine = msgspec.msgpack.encode(content)
    return sign(broadcast, mine, about)


if __name__ == "__main__":
    lie = globals()[sys.argv.pop(1)]
    if lie is columns_without_end:
        SignedBroadcast._signed = lie
    else:
        GrpcMesh.send = lie
    sys.exit(main())
