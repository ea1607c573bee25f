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

from coterie.arrays import FloatArray, Matrix

__all__ = ["Ask", "Exchange", "Mix", "Sum", "Talk", "Word"]

T = TypeVar("T")


class Sum(msgspec.Struct, frozen=True, gc=False):
    """Ask for the sum of everybody's `x`; all must have the same shape and dtype."""

    x: FloatArray


class Mix(msgspec.Struct, frozen=True, gc=False):
    """Ask for the weighted sum of `x` over the neighbours and oneself, by a rule's name or a matrix."""

    x: FloatArray
    rule: str | Matrix = "metropolis"


class Exchange(msgspec.Struct, frozen=True, gc=False):
    """Ask for each neighbour's `x`; shapes may differ between agents."""

    x: FloatArray


class Ask(msgspec.Struct, frozen=True, gc=False):
    """Ask for what those peers last published; nobody has to be waiting for the question."""

    peers: tuple[int, ...]


Word: TypeAlias = Sum | Mix | Exchange | Ask
Talk: TypeAlias = Generator[Word, Any, T]
"""A conversation: yields words, is sent replies, and returns a T."""
