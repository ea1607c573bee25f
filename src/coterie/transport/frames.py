"""Format of messages on a link: a header with a closed schema, and the numbers as a raw
little-endian buffer.

    0        4               8                12      16         16 + header     multiple of 64
    ├ magic ─┼ header bytes ─┼ payload bytes ─┼ crc32 ┼ header … ┼ zeros … ──────┼ payload … ┤

The header is msgpack of a `Header` and nothing else. The receiver checks sizes before it allocates
memory, and types against a list. It checks the checksum before it reads any number. Nothing is ever
unpickled. A frame states its sender, run, epoch and message number. The receiver compares all of
them with the values that it expects.
"""

from __future__ import annotations

import math
import struct
import zlib
from enum import IntEnum
from typing import Annotated, Any, Literal, TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt

from coterie.errors import ProtocolError
from coterie.numerics.arrays import sealed

MAGIC = b"COT2"
PREFIX = struct.Struct("<4sIII")
ALIGNMENT = 64
LARGEST_HEADER = 4096
LARGEST = 256 * 2**20
"""Default for the largest accepted message, in bytes: 32 million numbers."""
MOST_BYTES = 2**16
"""Default for the longest text of one party in a broadcast, in bytes."""

Text: TypeAlias = Annotated[str, msgspec.Meta(max_length=80)]
Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0, lt=2**62)]


class Kind(IntEnum):
    """The kind of a frame."""

    HELLO = 0
    """Opens a connection. States the sender, its run, and the last message that the sender
    received.
    """
    MESSAGE = 1
    QUESTION = 2
    ANSWER = 3
    LEAVE = 4
    """The last message, with the reason in `note`."""
    BEAT = 5
    """A heartbeat. It also acknowledges the messages received."""


class Header(msgspec.Struct, frozen=True, gc=False, array_like=True, forbid_unknown_fields=True):
    """All fields of a frame except its numbers."""

    kind: Kind
    run: Text
    epoch: Count
    sender: Count
    sequence: Count
    """Messages, questions, answers and leaves are numbered from 1 on each link. A beat has the
    number of the last message sent before it.
    """
    received: Count
    """Number of the last message of the receiver that the sender of this frame has received."""
    purpose: Text = ""
    step: Count = 0
    collective: Text = ""
    note: Annotated[str, msgspec.Meta(max_length=1000)] = ""
    dtype: Literal["<f8", "<f4", "<u8", "|u1"] = "|u1"
    shape: Annotated[tuple[Count, ...], msgspec.Meta(max_length=3)] = (0,)
    stop_at: Count = 0
    """The round after which the run ends."""
    stop_reason: Annotated[int, msgspec.Meta(ge=0, le=2)] = 0
    """The reason of the stop (see `links.Stop`); 0 while no process wants to stop."""


_pack = msgspec.msgpack.Encoder().encode
_unpack = msgspec.msgpack.Decoder(Header).decode
_ITEMSIZE = {"<f8": 8, "<f4": 4, "<u8": 8, "|u1": 1}
_EMPTY = np.empty(0, np.uint8)


def encode(header: Header, payload: npt.NDArray[Any] = _EMPTY) -> bytes:
    """Return a frame as bytes. The type and shape in its header are those of the payload."""
    little = np.asarray(payload, payload.dtype.newbyteorder("<"), order="C")
    if little.dtype.str not in _ITEMSIZE:
        raise ProtocolError(f"messages are float64 or float32, not {payload.dtype}.")
    packed = _pack(msgspec.structs.replace(header, dtype=little.dtype.str, shape=little.shape))
    padding = bytes(-(PREFIX.size + len(packed)) % ALIGNMENT)
    raw = little.reshape(-1).view(np.uint8).data if little.size else b""
    checksum = zlib.crc32(raw, zlib.crc32(packed))
    return b"".join((PREFIX.pack(MAGIC, len(packed), len(raw), checksum), packed, padding, raw))


def decode(frame: bytes, largest: int = LARGEST) -> tuple[Header, npt.NDArray[Any]]:
    """Return the header and numbers of a frame, as a read-only view. Bytes that are not a valid
    frame raise a `ProtocolError`.
    """
    if len(frame) < PREFIX.size:
        raise ProtocolError(f"a frame of {len(frame)} bytes is too short to be one.")
    magic, header_bytes, payload_bytes, checksum = PREFIX.unpack_from(frame)
    start = PREFIX.size + header_bytes
    start += -start % ALIGNMENT
    if magic != MAGIC:
        raise ProtocolError("a frame of another protocol, or of another version of this one.")
    if header_bytes > LARGEST_HEADER or payload_bytes > largest:
        raise ProtocolError(
            f"a frame announces {payload_bytes} bytes; at most {largest} are accepted."
        )
    if len(frame) != start + payload_bytes:
        raise ProtocolError(
            f"a frame announces {start + payload_bytes} bytes and has {len(frame)}."
        )
    view = memoryview(frame)
    packed = view[PREFIX.size : PREFIX.size + header_bytes]
    if zlib.crc32(view[start:], zlib.crc32(packed)) != checksum or any(
        view[PREFIX.size + header_bytes : start]
    ):
        raise ProtocolError("a frame was changed on its way: its checksum does not match.")
    try:
        header = _unpack(packed)
    except (msgspec.MsgspecError, ValueError) as error:
        raise ProtocolError(f"a frame with a malformed header: {error}") from error
    if math.prod(header.shape) * _ITEMSIZE[header.dtype] != payload_bytes:
        raise ProtocolError(
            f"a frame of shape {header.shape} and type {header.dtype} has {payload_bytes} bytes."
        )
    payload = (
        np.frombuffer(frame, header.dtype, offset=start)
        if payload_bytes
        else np.empty(0, header.dtype)
    )
    try:
        return header, sealed(payload.reshape(header.shape))
    except ValueError as error:  # (2**61, 0) has no numbers, but numpy cannot hold this shape
        raise ProtocolError(f"a frame of shape {header.shape}: {error}") from error
