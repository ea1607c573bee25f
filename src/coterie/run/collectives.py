"""The four collectives of agents. A round is a generator that yields them and is sent the replies.

    total  = yield Sum(x)                 the sum of x over all agents
    mixed  = yield Mix(x, "laplacian")    the weighted sum of the neighbours' x: (L x)_j, or (A x)_j
    theirs = yield Exchange(x)            {j: x_j} for each neighbour j
    public = yield Ask(peers)             {j: the numbers that j last published} for each agent j in
           peers

All agents yield the same collective at the same step. Replies are read-only.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Any, Generic, TypeAlias, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

from coterie.numerics.arrays import FloatArray, Matrix

T = TypeVar("T")
IndexArray: TypeAlias = npt.NDArray[np.intp]


class Sum(msgspec.Struct, frozen=True, gc=False):
    """Ask for the sum of `x` over all agents; all must have the same shape and dtype.

    With `to`, only that agent receives it; the others are sent None. With `of`, it is the `x` of
    that agent alone, and the others send nothing.
    """

    x: FloatArray
    to: int | None = None
    of: int | None = None
    released: bool = False
    """Whether `run.groups.released` made it: no part of it is about few rows of this agent."""


class Mix(msgspec.Struct, frozen=True, gc=False):
    """Ask for the weighted sum of `x` over the neighbours and the agent itself, by a rule's name or
    a matrix.
    """

    x: FloatArray
    rule: str | Matrix = "metropolis"


class Exchange(msgspec.Struct, frozen=True, gc=False):
    """Ask for each neighbour's `x`; shapes may differ between agents."""

    x: FloatArray


class Ask(msgspec.Struct, frozen=True, gc=False):
    """Ask for the numbers that other agents last published; they need not wait for the question.

    With `weights`, one for each agent in `peers`, the reply is the weighted sum of the numbers that
    these agents sent unasked. With `tell`, all agents send at once, and each receives the `tell` of
    its peers in the same step.
    """

    peers: tuple[int, ...] | IndexArray
    weights: FloatArray | None = None
    tell: FloatArray | None = None
    again: bool = False
    """Whether the reply repeats numbers that were read before."""


class Publication(msgspec.Struct, frozen=True, gc=False):
    """The numbers that an agent publishes between two wake-ups, where agents wake up at their own
    times.

    `x` is the reply to an `Ask`: `head` plain numbers, then a vector. With `sparse`, most of the
    vector is zero. The agents in `to` are sent its changes at once. `notes` are a few numbers each
    for single agents; the `new` ones among them have no copy of the vector yet and are sent one.

    With a `step` (j, s), the vector became (1 − |s|) times the last one, plus s `radius` at entry
    j. It is then enough to send j and s to agents that have the last vector.
    """

    x: FloatArray
    head: int = 0
    sparse: bool = True
    changed: int = 0
    to: tuple[int, ...] | IndexArray = ()
    notes: dict[int, tuple[float, ...]] = {}
    new: tuple[int, ...] = ()
    step: tuple[int, float] | None = None
    radius: float = 0.0


Collective: TypeAlias = Sum | Mix | Exchange | Ask
Protocol: TypeAlias = Generator[Collective, Any, T]
"""A protocol: it yields collectives, is sent the replies, and returns a T."""


class _Result(msgspec.Struct, Generic[T], frozen=True, gc=False):
    """What a protocol returned."""

    value: T


def _advanced(protocol: Protocol[T], reply: FloatArray | None) -> Sum | _Result[T]:
    """Send a protocol of sums this reply; return its next sum, or its result at its end."""
    try:
        collective = protocol.send(reply)
    except StopIteration as end:
        return _Result(end.value)
    assert isinstance(collective, Sum), "only sums can be answered alone, observed or combined"
    return collective


def alone(protocol: Protocol[T]) -> T:
    """The result of a protocol with one party: every sum is its own message."""
    step = _advanced(protocol, None)
    while isinstance(step, Sum):
        step = _advanced(protocol, step.x)
    return step.value


def observed(protocol: Protocol[T], observe: Callable[[Sum], None]) -> Protocol[T]:
    """Run a protocol of sums; `observe` is called with each of them before it is sent."""
    step = _advanced(protocol, None)
    while isinstance(step, Sum):
        observe(step)
        reply = yield step
        step = _advanced(protocol, reply)
    return step.value


def limited(protocol: Protocol[T], allowance: float, refusal: Exception) -> Protocol[T]:
    """Run a protocol of sums; raise the refusal before an agent sends more than that many numbers.

    All agents send sums of the same sizes, so all of them refuse the same one.
    """
    left = allowance

    def subtract(message: Sum) -> None:
        nonlocal left
        left -= message.x.size
        if left < 0:
            raise refusal

    return observed(protocol, subtract)


def combined(protocols: Sequence[Protocol[T]]) -> Protocol[list[T]]:
    """Run several protocols of sums at the same time: their next numbers travel in one message."""
    results: dict[int, T] = {}
    replies: dict[int, FloatArray | None] = dict.fromkeys(range(len(protocols)))
    while True:
        messages: dict[int, FloatArray] = {}
        released = True
        for k, reply in replies.items():
            step = _advanced(protocols[k], reply)
            if isinstance(step, Sum):
                messages[k] = step.x
                released &= step.released
            else:
                results[k] = step.value
        if not messages:
            return [results[k] for k in range(len(protocols))]
        together = np.concatenate([message.ravel() for message in messages.values()])
        total = yield Sum(together, released=released)
        replies = {}
        start = 0
        for k, message in messages.items():
            end = start + message.size
            replies[k] = total[start:end].reshape(message.shape)
            start = end
