"""Report the progress of the stages before the rounds: the number of rows that were read or
checked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from threading import Lock
from typing import TypeVar

S = TypeVar("S")
T = TypeVar("T")
Listener = Callable[[str, int, int], None]
_listener: ContextVar[Listener | None] = ContextVar("listener", default=None)


def tell(stage: str, done: int, total: int) -> None:
    """Send the number of finished rows, and of all rows, to the listener, if there is one."""
    if (listener := _listener.get()) is not None:
        listener(stage, done, total)


def counting(function: Callable[[S], T], stage: str, pieces: int, rows: int) -> Callable[[S], T]:
    """The function of one of these pieces of rows, which also reports the finished rows; threads
    may share it.
    """
    if _listener.get() is None:
        return function
    lock, done = Lock(), 0

    def counted(piece: S) -> T:
        nonlocal done
        result = function(piece)
        with lock:
            done += 1
            tell(stage, done * rows // pieces, rows)
        return result

    return counted


@contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """Call this function with the progress, until the end of the block."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)
