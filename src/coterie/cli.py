"""The `coterie` command: the door to `coterie.commands`.

A command is a file in `commands/` with a function `register(app: typer.Typer) -> None` that adds it (or a small group)
to the app; it is found by itself. Options that several commands share, and `@taking(question)`, which gives a command
all options of a problem and its data, are in `commands/options.py`; what is printed, in `commands/output.py`. Every
command has `--json` with stable keys, and `--config` (a TOML file) if it has options; it ends with a number from
`commands/exit_codes.py`, and lets `CoterieError`s pass: they are printed here, without a traceback.
"""

from __future__ import annotations

import importlib
import os
import pkgutil
import sys
from collections.abc import Callable
from typing import Annotated, Any

import typer
from rich.markup import escape

from coterie import __version__, commands
from coterie.commands.exit_codes import EXIT_CODES, REFUSED, UNTRUE
from coterie.commands.output import console, print_json
from coterie.errors import CorruptFile, CoterieError, InvalidInput, MissingExtra
from coterie.statuses import Status

__all__ = ["app", "main"]

app = typer.Typer(
    name="coterie",
    help="Learn certified convex models from data that stays where it is.",
    epilog="Exit codes: " + ", ".join(f"{code} {name}" for code, (name, _) in EXIT_CODES.items()) + ". "
    "`coterie exit-codes` explains them.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback(invoke_without_command=True)
def _version(version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False) -> None:
    if version:
        print(__version__)
        raise typer.Exit


def _register_commands() -> None:
    for found in pkgutil.iter_modules(commands.__path__):
        module = importlib.import_module(f"{commands.__name__}.{found.name}")
        if hasattr(module, "register"):
            module.register(app)


_register_commands()


def main() -> None:
    """Run the command line; errors that name their fix are printed without a traceback."""
    sys.exit(_guarded(app))


def _guarded(command: Callable[[], Any]) -> Any:
    try:
        return command()
    except CorruptFile as error:
        return _complain(error, UNTRUE)
    except (InvalidInput, MissingExtra) as error:
        return _complain(error, REFUSED)
    except CoterieError as error:
        return _complain(error, error.status.exit_code)
    except OSError as error:
        return _complain(f"{error}. Is the path right, and may you read and write there?", REFUSED)
    except KeyboardInterrupt:
        return _complain("stopped before the first round was over", Status.INTERRUPTED.exit_code)


def _complain(error: object, code: int) -> int:
    if os.environ.get("OMPI_COMM_WORLD_RANK", os.environ.get("PMI_RANK", "0")) != "0":
        return code  # Under mpiexec, one rank speaks for all.
    if "--json" in sys.argv:
        print_json({"error": str(error), "name": EXIT_CODES[code][0], "exit_code": code})
    else:
        console(stderr=True).print("[red]error:[/red]", escape(str(error)))
    return code


if __name__ == "__main__":
    main()
