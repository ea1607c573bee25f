"""The `coterie` command: it finds the commands in `coterie.commands`, and prints their errors.

A command is a file of its name in `commands/` with a function of that name, and perhaps an
`EXAMPLE`, the last line of its help. A command is imported when it is called. It imports nothing
slow, but writes `co.solve`, so a wrong flag is refused at once. Options that several commands share
are in `commands/options.py`. `@taking_question()` in `commands/question.py` gives a command all
options of a problem and its data. `commands/output.py` prints results. Every command has `--json`
with stable keys, and `--config` (a TOML file) if it has options. It ends with a number from
`commands/exit_codes.py`, and does not catch `CoterieError`s: this file prints them without a
traceback.
"""

from __future__ import annotations

import _thread
import importlib
import logging
import os
import pkgutil
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from types import FrameType
from typing import Annotated, Any

import typer
from rich.markup import escape
from typer.core import TyperGroup

from coterie import __version__, commands
from coterie.commands.exit_codes import BUG, EXIT_CODES, REFUSED, USAGE, VERIFICATION_FAILED
from coterie.commands.output import console, print_json
from coterie.commands.shell_words import in_shell_words
from coterie.errors import (
    CorruptFile,
    CoterieError,
    DataWarning,
    InvalidInput,
    MissingExtra,
    NotRegistered,
    PartyLost,
)
from coterie.run.statuses import Status

USAGE_ERROR: Any = typer.BadParameter.__mro__[1]
"""The class of errors in the command line; its module differs between versions of typer."""
HELPERS = ("files", "options", "output", "question", "shell_words")
"""Files in `commands/` that are not commands."""


class _Commands(Mapping[str, Any]):
    """The commands by name; each is imported at its first use."""

    def __init__(self) -> None:
        self._known: dict[str, Any] = {}

    @cached_property
    def _files(self) -> dict[str, str]:
        found = {}
        for module in pkgutil.iter_modules(commands.__path__):
            if module.name not in HELPERS:
                found[module.name.replace("_", "-")] = module.name
        return found

    def __getitem__(self, name: str) -> Any:
        if name not in self._known:
            file = self._files[name]
            module = importlib.import_module(f"{commands.__name__}.{file}")
            alone = typer.Typer(add_completion=False)
            add = alone.command(epilog=getattr(module, "EXAMPLE", None))
            add(getattr(module, file))
            self._known[name] = typer.main.get_command(alone)
            self._known[name].name = name
        return self._known[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._files)

    def __len__(self) -> int:
        return len(self._files)


class _Group(TyperGroup):
    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands: Any = _Commands()


app = typer.Typer(
    cls=_Group,
    name="coterie",
    help="Learn certified convex models from data that stays where it is.",
    epilog="Exit codes: " + ", ".join(f"{code} {name}" for code, name, _ in EXIT_CODES) + ". "
    "`coterie exit-codes` explains them.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback(invoke_without_command=True)
def _version(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    if version:
        print(__version__)
        raise typer.Exit


def main() -> None:
    """Run the command line; errors that name their fix are printed without a traceback."""
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    pressed = _watch_ctrl_c()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("always", DataWarning)
            warnings.showwarning = _shown_once(warnings.showwarning)
            command: Callable[[], Any] = app
            if "--json" in sys.argv:
                command = _usage_as_json
            sys.exit(_guarded(command))
    except BaseException as ended:
        if not pressed.is_set() or (isinstance(ended, SystemExit) and ended.code in _ENDINGS):
            raise
        # An interrupted import, for example, may raise another exception, and may be incomplete.
        code = _complain("stopped by hand before the end", Status.INTERRUPTED.exit_code)
        _flush()
        sys.stderr.flush()
        os._exit(code)
    finally:
        _flush()


def _shown_once(otherwise: Callable[..., None]) -> Callable[..., None]:
    """Make a function that prints every warning about data once, without a place in the program.

    It passes other warnings to `otherwise`.
    """
    known: set[str] = set()

    def show(message: Warning | str, category: type[Warning], *place: Any) -> None:
        text = str(message)
        if not issubclass(category, DataWarning):
            otherwise(message, category, *place)
        elif text not in known:
            known.add(text)
            console(stderr=True).print(f"[yellow]warning:[/yellow] {escape(text)}", soft_wrap=True)

    return show


_ENDINGS = {code for code, _, _ in EXIT_CODES} - {BUG}
"""The exit codes of commands that were not interrupted."""


def _watch_ctrl_c() -> threading.Event:
    """Let Ctrl-C raise KeyboardInterrupt as usual, and remember it.

    A KeyboardInterrupt that Python could not raise is raised again in the main thread.
    """
    pressed = threading.Event()

    def interrupt(number: int, frame: FrameType | None) -> None:
        pressed.set()
        raise KeyboardInterrupt

    def tell(unraisable: Any, usual: Any = sys.unraisablehook) -> None:
        if issubclass(unraisable.exc_type, KeyboardInterrupt):
            _thread.interrupt_main()
        else:
            usual(unraisable)

    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, interrupt)
        sys.unraisablehook = tell
    return pressed


def _flush() -> None:
    """Write buffered output. If its reader is gone, drop it, so that Python does not try again."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _usage_as_json() -> Any:
    """Run the command; print errors in the command line as JSON, too."""
    try:
        return app(standalone_mode=False)
    except USAGE_ERROR as error:
        return _complain(error.format_message(), USAGE)


def _guarded(command: Callable[[], Any]) -> Any:
    try:
        return command()
    except SystemExit as ended:
        if isinstance(ended.__context__, BrokenPipeError):
            return 0  # the reader closed the pipe
        raise
    except CorruptFile as error:
        return _complain(error, VERIFICATION_FAILED)
    except (InvalidInput, MissingExtra, NotRegistered) as error:
        return _complain(error, REFUSED)
    except CoterieError as error:
        return _complain(error, error.status.exit_code)
    except OSError as error:
        return _complain(f"{error}. Check the path and its permissions.", REFUSED)
    except MemoryError as error:
        return _complain(
            f"memory is out ({error}). Parquet and Arrow files stay on disk with on_disk=True.",
            REFUSED,
        )
    except KeyboardInterrupt:
        return _complain("stopped by hand before the end", Status.INTERRUPTED.exit_code)


def _complain(error: object, code: int) -> int:
    if os.environ.get("OMPI_COMM_WORLD_RANK", os.environ.get("PMI_RANK", "0")) != "0":
        return code  # Under mpiexec, only rank 0 prints.
    message = in_shell_words(str(error), _flags())
    if "--json" in sys.argv:
        name = next(name for known, name, _ in EXIT_CODES if known == code)
        answer: dict[str, Any] = {"error": message, "name": name, "exit_code": code}
        if isinstance(error, PartyLost):
            answer["lost_party"] = error.party or None
        print_json(answer)
    else:
        console(stderr=True).print("[red]error:[/red]", escape(message))
    return code


def _flags() -> dict[str, str]:
    """The long flags of the command that was called, by the names of their parameters."""
    words = [word for word in sys.argv[1:] if not word.startswith("-")]
    called = _Commands().get(next(iter(words), ""))
    if called is None:
        return {}
    return {param.name: param.opts[0] for param in called.params if param.opts[0].startswith("--")}


if __name__ == "__main__":
    main()
