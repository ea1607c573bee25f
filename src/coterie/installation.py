"""Commands that install missing packages for the running interpreter."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

CLONE = Path(__file__).resolve().parents[2]
"""The folder above src/coterie, if this is a clone of the repository."""


def install_command(*packages: str) -> str:
    """The command that installs these packages for the interpreter in use."""
    return " ".join([pip_install(), *map(shlex.quote, packages)])


def extra_command(extra: str) -> str:
    """The command that installs an extra of Coterie for the interpreter in use."""
    return install_command(own_package(extra))


def own_package(extra: str = "") -> str:
    """The package for pip: the folder of a clone, otherwise the name of the installed package."""
    package = "coterie"
    if (CLONE / "pyproject.toml").is_file() and (CLONE / "src" / "coterie").is_dir():
        package = str(CLONE)
        if Path.cwd() == CLONE:
            package = "."
    if extra:
        return f"{package}[{extra}]"
    return package


def pip_install() -> str:
    """The first words of every such command."""
    return f"{shlex.quote(sys.executable or 'python')} -m pip install"
