"""Add the messages of a `Sum`: as floating-point numbers in a fixed order, or as integers in any
order.

With secure sums a message consists of integers of 192 bits (`numerics/kernels/fixed_point`), 24
bytes each. The aggregate is the correctly rounded sum of the messages. Between organisations each
party adds masks (`secure_sums`), which cancel in the aggregate. The arithmetic, and so every bit of
the result, is the same without masks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from coterie.numerics.arrays import FloatArray
from coterie.numerics.kernels import fixed_point
from coterie.transport.links import Tag

LIMIT = 2.0**95
"""Upper bound of the absolute value of an aggregate."""
LARGEST = 2.0**1000
"""Upper bound of the absolute value of a number in a message. Sums over all agents stay finite."""


def is_in_range(message: FloatArray) -> bool:
    """Return whether all numbers are finite and at most `LARGEST` in absolute value."""
    if not message.size:
        return True
    # A NaN is not at most anything, and numpy passes it on.
    return max(float(message.max()), -float(message.min())) <= LARGEST


class PlainSums:
    """Sums of floating-point numbers, added in the order of the network."""

    exact: ClassVar[bool] = False
    root: int | None = None
    """The process that adds last, if the other processes check the aggregate that it passes on.
    Otherwise None.
    """
    helper: int = 0
    """The process that adds the message of the root process."""

    def bytes_of(self, dtype: Any) -> int:
        """Return the number of bytes of one number in a message."""
        return int(np.dtype(dtype).itemsize)

    def misfit(self, message: FloatArray) -> int:
        """Return the index of the first number that cannot be encoded, or −1 if all numbers can."""
        return -1

    def encoded(self, message: FloatArray, tag: Tag, heard: bytes = b"") -> npt.NDArray[Any]:
        """Return the message in the form in which it is sent, as a flat array.

        `heard` is a digest of all aggregates that this process received. Masks depend on it.
        """
        return message.reshape(-1)

    def alone(self, message: FloatArray) -> FloatArray:
        """Return the sum of this message and of zeros, in a new array."""
        # The sum of −0 and 0 is 0.
        total: FloatArray = message + message.dtype.type(0.0)
        return total

    def add(self, total: npt.NDArray[Any], message: npt.NDArray[Any]) -> None:
        """Add a message to a partial sum, in place."""
        total += message

    def absorb(self, mine: npt.NDArray[Any], root: npt.NDArray[Any]) -> None:
        """Add the message of the root process to the helper's own message, in place."""
        self.add(mine, root)

    def decoded(self, total: npt.NDArray[Any], dtype: Any) -> FloatArray:
        """Convert the encoded sum of all messages back to numbers."""
        return total


class ExactSums(PlainSums):
    """Sums of integers of 192 bits, added in any order: the aggregate is correctly rounded."""

    exact: ClassVar[bool] = True

    def __init__(self, parties: int):
        self.limit = LIMIT / parties
        """Bound for each party's numbers. While all numbers stay below it, their sum does not
        overflow.
        """

    def bytes_of(self, dtype: Any) -> int:
        return 8 * fixed_point.WORDS

    def misfit(self, message: FloatArray) -> int:
        return fixed_point.misfit(message, self.limit)

    def encoded(self, message: FloatArray, tag: Tag, heard: bytes = b"") -> fixed_point.Integers:
        integers = fixed_point.zeros(message.size)
        fixed_point.accumulate(integers, message)
        return integers

    def add(self, total: npt.NDArray[Any], message: npt.NDArray[Any]) -> None:
        fixed_point.add(total, message)

    def decoded(self, total: npt.NDArray[Any], dtype: Any) -> FloatArray:
        return fixed_point.rounded(total, dtype)

    def alone(self, message: FloatArray) -> FloatArray:
        return self.at_once([message])

    def at_once(self, messages: Sequence[FloatArray]) -> FloatArray:
        """Return the sum of messages that are all in this process."""
        total = fixed_point.zeros(messages[0].size)
        for message in messages:
            fixed_point.accumulate(total, message)
        return fixed_point.rounded(total, messages[0].dtype).reshape(messages[0].shape)


def sums_of(secure: bool, parties: int) -> PlainSums:
    """Return the method that adds the parties' messages, without masks: exactly if `secure`."""
    if secure:
        return ExactSums(parties)
    return PlainSums()
