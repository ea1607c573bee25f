"""`coterie exit-codes`: the exit codes of all commands, each explained."""

from __future__ import annotations

from rich.table import Table as RichTable

from coterie.commands.options import Json
from coterie.commands.output import console, print_json
from coterie.run.statuses import Status

BUG = 1
USAGE = 2
REFUSED = 3
VERIFICATION_FAILED = 4
SUCCESSES = [(0, status.value, status.advice) for status in Status if status.success]
FAILURES = [
    (status.exit_code, status.value, status.advice) for status in Status if not status.success
]
EXIT_CODES = (
    *SUCCESSES,
    (BUG, "bug", "An error in Coterie itself. Please report it, with the output."),
    (
        USAGE,
        "usage",
        "The command line is wrong. The message names the flag; --help lists all flags.",
    ),
    (
        REFUSED,
        "refused",
        "A file, an option or data cannot be used; nothing was sent. The message names the fix.",
    ),
    (
        VERIFICATION_FAILED,
        "verification_failed",
        "A file was changed, or a certificate is wrong. Do not trust the model.",
    ),
    *FAILURES,
)
"""Every exit code with its name and the next step."""


def exit_codes(as_json: Json = False) -> None:
    """List the exit codes and what each means."""
    if as_json:
        names = ("code", "name", "advice")
        entries = [dict(zip(names, row, strict=True)) for row in EXIT_CODES]
        print_json({"exit_codes": entries})
        return
    table = RichTable("code", "name", "meaning", box=None, header_style="dim")
    for code, name, advice in EXIT_CODES:
        table.add_row(str(code), name, advice)
    console().print(table)
