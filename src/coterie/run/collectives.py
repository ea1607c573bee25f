"""The four words an agent may say to the network. A round is a generator that yields them and is sent the replies.

    total  = yield Sum(x)                 the sum of everybody's x
    mixed  = yield Mix(x, "laplacian")    the weighted sum of the neighbours' x: (L x)_j, or (A x)_j
    theirs = yield Exchange(x)            {j: x_j} for each neighbour j
    public = yield Ask(peers)             {j: what j last published} for each peer j

All agents say the same word at the same step. Replies are read-only.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, TypeAlias, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

from coterie.numerics.arrays import FloatArray, Matrix

T = TypeVar("T")
IndexArray: TypeAlias = npt.NDArray[np.intp]


class Sum(msgspec.Struct, frozen=True, gc=False):
    """Ask for the sum of everybody's `x`; all must have the same shape and dtype.

    With `to`, only that agent hears it; the others are sent None.
    """

    x: FloatArray
    to: int | None = None


class Mix(msgspec.Struct, frozen=True, gc=False):
    """Ask for the weighted sum of `x` over the neighbours and oneself, by a rule's name or a matrix."""

    x: FloatArray
    rule: str | Matrix = "metropolis"


class Exchange(msgspec.Struct, frozen=True, gc=False):
    """Ask for each neighbour's `x`; shapes may differ between agents."""

    x: FloatArray


class Ask(msgspec.Struct, frozen=True, gc=False):
    """Ask for what those peers last published; nobody has to be waiting for the question.

    With `weights`, one per peer, the reply is the weighted sum of what these peers sent of their own accord. With
    `tell`, all agents speak at once, and each is answered with what its peers tell in this very word.
    """

    peers: tuple[int, ...] | IndexArray
    weights: FloatArray | None = None
    tell: FloatArray | None = None
    again: bool = False
    """Whether to be sent what one has read before, too."""


class Publication(msgspec.Struct, frozen=True, gc=False):
    """What an agent publishes between two wake-ups, where agents wake up at times of their own.

    `x` is the whole: `head` plain numbers, then a vector that is mostly zeros (or, if not `sparse`, is not). It is what
    an `Ask` is answered with, and those in `to` are sent what changed in it at once. `notes` are a few numbers each for
    single peers; who is `new` among these has no copy of the vector yet and is handed one.
    """

    x: FloatArray
    head: int = 0
    sparse: bool = True
    changed: int = 0
    to: tuple[int, ...] | IndexArray = ()
    notes: dict[int, tuple[float, ...]] = {}
    new: tuple[int, ...] = ()


Collective: TypeAlias = Sum | Mix | Exchange | Ask
Protocol: TypeAlias = Generator[Collective, Any, T]
"""A conversation: yields words, is sent replies, and returns a T."""


def alone(protocol: Protocol[T]) -> T:
    """What a party comes to that speaks with nobody: every sum is what it says itself."""
    reply: Any = None
    while True:
        try:
            collective = protocol.send(reply)
        except StopIteration as end:
            found: T = end.value
            return found
        assert isinstance(collective, Sum), "only sums have a meaning for one party"
        reply = collective.x
