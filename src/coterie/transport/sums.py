"""How the messages of a `Sum` are added: plainly, in a fixed order, or as whole numbers, in any
order.

With secure sums a message is whole numbers of 192 bits (`numerics/kernels/fixed_point`), 24 bytes
each, and the total is the correctly rounded sum of what was said. Between organisations masks are
added on top (`secure_sums`), which cancel in the total; the arithmetic, and so every bit of the
result, is the same without them.
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
"""Upper bound of the absolute value of a total."""


class PlainSums:
    """Floating-point numbers, added in the order of the network."""

    exact: ClassVar[bool] = False
    root: int | None = None
    """The process that adds last, if the others check the total that it passes on."""
    helper: int = 0
    """The process that adds the message of the root."""

    def bytes_of(self, dtype: Any) -> int:
        """Number of bytes of a number in a message."""
        return int(np.dtype(dtype).itemsize)

    def misfit(self, message: FloatArray) -> int:
        """The place of the first number that cannot be said, −1 if all can."""
        return -1

    def encoded(self, message: FloatArray, tag: Tag) -> npt.NDArray[Any]:
        """A message as it travels, flat."""
        return message.reshape(-1)

    def add(self, total: npt.NDArray[Any], message: npt.NDArray[Any]) -> None:
        """Add a message to a partial sum, in place."""
        total += message

    def absorb(self, mine: npt.NDArray[Any], root: npt.NDArray[Any]) -> None:
        """At the helper: add the message of the root to its own, in place."""
        self.add(mine, root)

    def decoded(self, total: npt.NDArray[Any], dtype: Any) -> FloatArray:
        """The sum of all messages as numbers again."""
        return total


class ExactSums(PlainSums):
    """Whole numbers of 192 bits, in any order: the total is correctly rounded."""

    exact: ClassVar[bool] = True

    def __init__(self, parties: int):
        self.limit = LIMIT / parties
        """If the numbers of all parties are below it, their total does not wrap around."""

    def bytes_of(self, dtype: Any) -> int:
        return 8 * fixed_point.WORDS

    def misfit(self, message: FloatArray) -> int:
        return fixed_point.misfit(message, self.limit)

    def encoded(self, message: FloatArray, tag: Tag) -> fixed_point.Integers:
        integers = fixed_point.zeros(message.size)
        fixed_point.accumulate(integers, message)
        return integers

    def add(self, total: npt.NDArray[Any], message: npt.NDArray[Any]) -> None:
        fixed_point.add(total, message)

    def decoded(self, total: npt.NDArray[Any], dtype: Any) -> FloatArray:
        return fixed_point.rounded(total, dtype)

    def at_once(self, messages: Sequence[FloatArray]) -> FloatArray:
        """The sum of messages that are all here."""
        total = fixed_point.zeros(messages[0].size)
        for message in messages:
            fixed_point.accumulate(total, message)
        return fixed_point.rounded(total, messages[0].dtype).reshape(messages[0].shape)


def sums_of(secure: bool, parties: int) -> PlainSums:
    """How to add the messages of the parties, without masks: exactly if `secure`."""
    if secure:
        return ExactSums(parties)
    return PlainSums()
