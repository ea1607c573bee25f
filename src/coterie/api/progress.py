"""A live line on the terminal while data is read and a run lasts: rows, then rounds, gap, bits."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.text import Text

from coterie.run.bill import format_bits as format_bits
from coterie.run.stages import listening
from coterie.run.stopping import Record

PATIENCE_SECONDS = 1.0
"""The time after which a line is shown."""
PAUSE_SECONDS = 0.1


Show = Callable[[Callable[[float], Text], float], None]
"""Shows a line, given the seconds since the beginning, unless the last line is too recent."""


def shows_lines(wanted: bool | None) -> bool:
    """Whether lines are shown; `wanted=None` means: if there is a terminal."""
    if wanted is None:
        return sys.stderr is not None and sys.stderr.isatty()
    return bool(wanted)


@contextmanager
def progress_watch(
    wanted: bool | None, title: str
) -> Iterator[Callable[[int, Record | None], None]]:
    """Make a callback that updates one line; `wanted=None` means: if there is a terminal."""
    with _live_line(wanted, title) as show:

        def watch(t: int, record: Record | None) -> None:
            show(lambda seconds: _line(title, t, record, seconds), PAUSE_SECONDS)

        yield watch


@contextmanager
def stage_watch(wanted: bool | None) -> Iterator[None]:
    """Show how many rows have been read or checked; `wanted=None` means: if there is a terminal."""
    with _live_line(wanted) as show:

        def listen(stage: str, done: int, total: int) -> None:
            rows = f"  {done:,} of {total:,} rows"
            show(
                lambda seconds: Text.assemble((stage, "bold"), f"{rows}  {seconds:.0f} s"),
                PAUSE_SECONDS,
            )

        with listening(listen):
            yield


@contextmanager
def _live_line(wanted: bool | None, compiles: str = "") -> Iterator[Show]:
    """Make a function that shows a line, if lines are shown.

    With `compiles`, a title, the line also says that kernels are being compiled.
    """
    if not shows_lines(wanted):
        yield lambda line, pause: None
        return
    began = shown = time.monotonic()
    live = Live(Text(), console=Console(stderr=True), auto_refresh=False, transient=True)

    def show(line: Callable[[float], Text], pause: float) -> None:
        nonlocal shown
        now = time.monotonic()
        if now - began >= PATIENCE_SECONDS and now - shown >= pause:
            live.update(line(now - began), refresh=True)
            shown = now

    def compiling() -> None:
        show(lambda _: Text.assemble((compiles, "bold"), "  compiling, once on this machine"), 0.0)

    listener: AbstractContextManager[None] = nullcontext()
    if compiles:
        listener = _before_compiling(compiling)
    # First the listener: numba keeps the streams that it finds when it is imported, and a live line
    # replaces them.
    with listener, live:
        yield show


@contextmanager
def _before_compiling(show: Callable[[], None]) -> Iterator[None]:
    """Call `show` whenever numba compiles a kernel that is not in its cache yet."""
    from numba.core import event

    class Listener(event.Listener):
        def on_start(self, event: Any) -> None:
            show()

        def on_end(self, event: Any) -> None:
            pass

    with event.install_listener("numba:compile", Listener()):
        yield


def _line(title: str, t: int, record: Record | None, seconds: float) -> Text:
    line = Text.assemble((title, "bold"), f"  round {t}  {seconds:.0f} s")
    if record is not None:
        line.append(f"  gap {record.gap:.2e}", "cyan")
        line.append(f"  sent {format_bits(record.bits)}")
    line.append("  Ctrl-C stops with the best model so far", "dim")
    return line
