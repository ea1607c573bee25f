"""The bytes of gossip messages between processes: whole numbers of a few bits, then numbers of 64.

    kind      whole numbers                        numbers                  meaning
    STEP      agent, place                         s                        x ← (1 − |s|) x, then
                                                                            x[place] ← x[place] + sβ
    CHANGES   agent, places                        their new values         the other entries stay
    COPY      agent, version, places               the entries              other entries are 0
    HEAD      agent                                some of the head         the vector stays
    ANSWER    agent, version, places               the head, the entries    both
    ASKED     one bit for each agent               none                     the agents asked
    NOTE      sender, receiver                     the note                 a note for one agent

The first bit says whether the message is the last one of a wake-up. Three bits give the kind. An
agent is its place among the agents of its process, so it takes no bit if it is alone there. A place
in a sparse vector of n entries takes ⌈log₂ n⌉ bits. A vector that is not sparse is sent whole,
without places.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from coterie.errors import ProtocolError
from coterie.numerics.arrays import FloatArray

STEP, CHANGES, COPY, HEAD, ANSWER, ASKED, NOTE = range(7)
KIND_BITS = 4
"""Bits before the whole numbers: whether it is the last message, and the kind."""
VERSION_BITS = 24
"""Bits of the version of a vector."""
NUMBER_BITS = 64

Bytes = npt.NDArray[np.uint8]


def bits_for(count: int) -> int:
    """Return the number of bits of a place among `count` places: ⌈log₂ count⌉."""
    return max(count - 1, 0).bit_length()


def encode(
    kind: int,
    fields: Sequence[tuple[int, int]],
    numbers: FloatArray | Sequence[float] = (),
    last: bool = False,
) -> Bytes:
    """Write a message. `fields` are whole numbers, each with its number of bits."""
    whole = 8 * last + kind
    size = KIND_BITS
    for number, bits in fields:
        whole = whole << bits | number
        size += bits
    padding = -size % 8
    head = (whole << padding).to_bytes((size + padding) // 8, "big")
    tail = np.ascontiguousarray(numbers, "<f8").tobytes()
    return np.frombuffer(head + tail, np.uint8)


class Message(NamedTuple):
    """A message that was read in part: whole numbers are taken one by one."""

    kind: int
    last: bool
    content: bytes

    @classmethod
    def of(cls, message: Bytes) -> Message:
        """Read the kind of a message."""
        if not message.size:
            raise ProtocolError("a gossip message is empty.")
        first = int(message[0])
        return cls(first >> 4 & 7, bool(first >> 7), message.tobytes())

    def fields(self, widths: Sequence[int]) -> list[int]:
        """Return the first whole numbers, of these numbers of bits."""
        size = KIND_BITS + sum(widths)
        length = -(-size // 8)
        if length > len(self.content):
            raise ProtocolError("a gossip message is too short.")
        whole = int.from_bytes(self.content[:length], "big") >> (8 * length - size)
        found = []
        for bits in reversed(widths):
            found.append(whole & ((1 << bits) - 1))
            whole >>= bits
        return found[::-1]

    def numbers(self, bits: int) -> FloatArray:
        """Return the numbers that follow `bits` bits of whole numbers."""
        start = -(-(KIND_BITS + bits) // 8)
        rest = self.content[start:]
        if len(self.content) < start or len(rest) % 8:
            raise ProtocolError("a gossip message has a length that does not fit its kind.")
        return np.frombuffer(rest, "<f8").astype(float)

    def entries(self, fixed: int, plain: int, width: int) -> tuple[list[int], FloatArray]:
        """Return the places of entries and the numbers, after `fixed` bits: there are `plain` more
        numbers than places.
        """
        room = 8 * len(self.content) - KIND_BITS - fixed - NUMBER_BITS * plain
        # The padding is shorter than one entry.
        count = max(room, 0) // (NUMBER_BITS + width)
        places: list[int] = []
        if width:
            places = self.fields([fixed, *[width] * count])[1:]
        else:
            places = [0] * count
        numbers = self.numbers(fixed + width * count)
        if numbers.size != plain + count:
            raise ProtocolError("a gossip message has a length that does not fit its kind.")
        return places, numbers
