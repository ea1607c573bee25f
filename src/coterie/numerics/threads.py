"""All cores of this machine, with equal bits: threads share the pieces of a computation.

The data alone determine where pieces begin and end, and results are put together in the order of
the pieces. The data also determine whether linear algebra is held to one thread: within a piece,
and from the first `spread` that is worth threads until the end of `cores`. The number of threads
changes the time, and nothing else.
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
from typing import Any, Generic, TypeVar

from threadpoolctl import ThreadpoolController

S = TypeVar("S")
T = TypeVar("T")

WORTH = 1 << 17
"""The least count of numbers of a piece: handing less work to another thread takes longer than the
work itself.
"""


class _Crew:
    """The threads of one `cores`, which start when there is work for them."""

    def __init__(self, count: int):
        self.count = count
        self.lock = Lock()
        self.things = ExitStack()
        self.pool: ThreadPoolExecutor | None = None
        self.working = 1
        """The number of threads at work, with the one that began."""
        self.pinned = False

    def settle_down(self) -> None:
        """Hold linear algebra to one thread from here on."""
        with self.lock:
            if not self.pinned:
                self.things.enter_context(one_blas_thread())
                self.pinned = True

    def helpers(self, pieces: int) -> int:
        """Reserve the threads that are free to help with these pieces, and return their number."""
        with self.lock:
            free = min(self.count - self.working, pieces - 1)
            self.working += free
            if free and self.pool is None:
                self.pool = self.things.enter_context(ThreadPoolExecutor(self.count - 1, "coterie"))
        return free

    def dismiss(self, helpers: int) -> None:
        """Set that number of threads free again."""
        with self.lock:
            self.working -= helpers

    def share(self, task: _Task[Any, Any], helpers: int) -> None:
        """Let this thread and the helpers work on a task until it is done."""
        assert self.pool is not None
        # Each thread works in a copy of this thread's context: numpy's errstate, and this crew.
        helping = [self.pool.submit(copy_context().run, task.work) for _ in range(helpers)]
        try:
            task.work()
        finally:
            task.waiting.clear()
            for helper in helping:
                if not helper.cancel():
                    helper.result()
            self.dismiss(helpers)


class _Task(Generic[S, T]):
    """The pieces of one `spread`, and their results so far."""

    def __init__(self, function: Callable[[S], T], pieces: Sequence[S]):
        self.function = function
        self.count = len(pieces)
        self.waiting = deque(enumerate(pieces))
        self._results: dict[int, T] = {}
        self._failures: dict[int, BaseException] = {}

    def work(self) -> None:
        """Compute pieces until none is left, or one has failed."""
        # Pieces begin in order: when one fails, all before it have begun, and those after it are
        # not needed.
        while not self._failures:
            try:
                place, piece = self.waiting.popleft()
            except IndexError:
                return
            try:
                self._results[place] = self.function(piece)
            except BaseException as error:
                self._failures[place] = error

    def results(self) -> list[T]:
        """Return the results in the order of the pieces, or raise the failure of the first piece
        that failed.
        """
        if self._failures:
            raise self._failures[min(self._failures)]
        return [self._results[place] for place in range(self.count)]


_crew: ContextVar[_Crew | None] = ContextVar("crew", default=None)


def all_cores() -> int:
    """Return the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@contextmanager
def cores(count: int | None) -> Iterator[None]:
    """Let `spread` use that number of threads, or one for each core. Inside another `cores`, the
    number of the outer one holds.
    """
    if _crew.get() is not None:
        yield
        return
    if count is None:
        count = all_cores()
    crew = _Crew(count)
    token = _crew.set(crew)
    try:
        with crew.things:
            yield
    finally:
        _crew.reset(token)


def spread(function: Callable[[S], T], pieces: Sequence[S], numbers: float) -> list[T]:
    """Return the values of the function for all pieces, in their order. `numbers` is the count of
    numbers per piece.

    If several pieces fail, the first one raises, as in a loop. A piece may itself call `spread`:
    threads that wait for others work on pieces, so there is no deadlock.
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
    task = _Task(function, pieces)
    crew.share(task, helpers)
    return task.results()


_limits: list[Any] = []
"""The limit that is set, once for each thread that needs one."""
_limits_lock = Lock()


@lru_cache(maxsize=1)
def _libraries(modules: int) -> ThreadpoolController:
    """Find the libraries of linear algebra in this process, which takes as long as a small fit.

    They come with imports, so the search is repeated when the number of modules has changed.
    """
    return ThreadpoolController()


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Hold linear algebra to one thread: with several, the digits of a product depend on their
    number.

    The limit holds for the process: the first call sets it, and the end of the last one lifts it.
    """
    with _limits_lock:
        if _limits:
            limit = _limits[0]
        else:
            limit = _libraries(len(sys.modules)).limit(limits=1, user_api="blas")
        _limits.append(limit)
    try:
        yield
    finally:
        with _limits_lock:
            limit = _limits.pop()
            if not _limits:
                limit.restore_original_limits()
