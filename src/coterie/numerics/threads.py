"""All cores of this machine, and the same bits: `spread` lets threads share a list of pieces of
work.

Where pieces begin and end follows from the data alone, and their results are put together in the
order of the pieces. So does whether linear algebra is held to one thread: within a piece, and from
the first `spread` on that is worth threads until the end of `cores`. The number of threads changes
how long it takes, and nothing else.
"""

from __future__ import annotations

import os
import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar, copy_context
from functools import lru_cache
from threading import Lock
from typing import Any, TypeVar

from threadpoolctl import ThreadpoolController

S = TypeVar("S")
T = TypeVar("T")

WORTH = 1 << 17
"""Numbers that a piece has to work through at least: to hand less to another thread takes longer
than to do it.
"""


class _Crew:
    """The threads of one `cores`: they are started when there is work for them."""

    def __init__(self, count: int):
        self.count = count
        self.lock = Lock()
        self.things = ExitStack()
        self.pool: ThreadPoolExecutor | None = None
        self.working = 1
        """Threads that are at work, the one that began included."""
        self.pinned = False

    def settle_down(self) -> None:
        """Hold linear algebra to one thread from here on."""
        with self.lock:
            if not self.pinned:
                self.things.enter_context(one_blas_thread())
                self.pinned = True

    def helpers(self, pieces: int) -> int:
        """How many threads are free to help with so many pieces; they are at work from now on."""
        with self.lock:
            free = min(self.count - self.working, pieces - 1)
            self.working += free
            if free and self.pool is None:
                self.pool = self.things.enter_context(ThreadPoolExecutor(self.count - 1, "coterie"))
        return free

    def dismiss(self, helpers: int) -> None:
        """That many threads are free again."""
        with self.lock:
            self.working -= helpers


_crew: ContextVar[_Crew | None] = ContextVar("crew", default=None)


def all_cores() -> int:
    """How many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@contextmanager
def cores(count: int | None) -> Iterator[None]:
    """Let `spread` use so many threads, or one for each core; inside of another `cores`, as many as
    that one said.
    """
    if _crew.get() is not None:
        yield
        return
    crew = _Crew(all_cores() if count is None else count)
    token = _crew.set(crew)
    try:
        with crew.things:
            yield
    finally:
        _crew.reset(token)


def spread(function: Callable[[S], T], pieces: Sequence[S], numbers: float) -> list[T]:
    """The values of the function for all pieces, in their order. `numbers` is the amount of numbers
    per piece.

    If several pieces fail, the first one raises, as in a loop. A piece may itself call `spread`:
    threads that wait for others work on pieces, so that there is no deadlock.
    """
    crew = _crew.get()
    if crew is None or numbers < WORTH:
        return [function(piece) for piece in pieces]
    crew.settle_down()
    helpers = 0
    if len(pieces) > 1:
        helpers = crew.helpers(len(pieces))
    if not helpers:
        return [function(piece) for piece in pieces]
    assert crew.pool is not None
    waiting = deque(enumerate(pieces))
    results: dict[int, T] = {}
    failures: dict[int, BaseException] = {}

    def work() -> None:
        # Pieces begin in order: when one fails, all before it have begun, and those after it are
        # not needed.
        while not failures:
            try:
                place, piece = waiting.popleft()
            except IndexError:
                return
            try:
                results[place] = function(piece)
            except BaseException as error:
                failures[place] = error

    # Each works in a copy of this thread's context: numpy's errstate, and which crew this is.
    helping = [crew.pool.submit(copy_context().run, work) for _ in range(helpers)]
    try:
        work()
    finally:
        waiting.clear()
        for task in helping:
            if not task.cancel():
                task.result()
        crew.dismiss(helpers)
    if failures:
        raise failures[min(failures)]
    return [results[place] for place in range(len(pieces))]


_limits: list[Any] = []
"""The limit that is set while anybody wants one, once for each who does."""
_door = Lock()


@lru_cache(maxsize=1)
def _libraries(modules: int) -> ThreadpoolController:
    """The libraries of linear algebra in this process: to look for them takes as long as a small
    fit.

    They come with imports, so they are looked for again once more modules are there than before.
    """
    return ThreadpoolController()


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Hold linear algebra to one thread: with several, the digits of a product depend on how many
    there are.

    The limit is the process's: the first who asks for it sets it, and the last who needs it lifts
    it.
    """
    with _door:
        _limits.append(
            _limits[0] if _limits else _libraries(len(sys.modules)).limit(limits=1, user_api="blas")
        )
    try:
        yield
    finally:
        with _door:
            limit = _limits.pop()
            if not _limits:
                limit.restore_original_limits()
