"""The command line in this process, as a shell runs it."""

from __future__ import annotations

import contextlib
import io
import os
import shlex
import sys
from typing import NamedTuple
from unittest import mock

from coterie import cli


class Ended(NamedTuple):
    """How a command ended, and what it printed."""

    exit_code: int
    stdout: str
    stderr: str

    @property
    def output(self) -> str:
        """All that the command printed, errors last."""
        return self.stdout + self.stderr

    @property
    def text(self) -> str:
        """The same in one line."""
        return " ".join(self.output.split())


def shell(*words: object) -> Ended:
    """Run `coterie` with these words."""
    out, err = io.StringIO(), io.StringIO()
    code: object = None
    with (
        mock.patch.object(sys, "argv", ["coterie", *map(str, words)]),
        mock.patch.object(sys, "stdin", io.StringIO()),
        mock.patch.dict(os.environ, COLUMNS="200"),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        try:
            cli.main()
        except SystemExit as ended:
            code = ended.code
    if not isinstance(code, int):
        code = int(code is not None)
    return Ended(code, out.getvalue(), err.getvalue())


def shell_line(command: str) -> Ended:
    """Run a command as a page shows it: `coterie` and its words."""
    program, *words = shlex.split(command)
    assert program == "coterie", command
    return shell(*words)
