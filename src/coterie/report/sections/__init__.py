"""The sections of the report, one file each.

A section is a file here with a number `ORDER`, which says where it stands, and a function `render(result) -> str` that
returns its HTML. `coterie.report.html` has the pieces; an empty string leaves the section out. The file is found by
itself.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pkgutil import iter_modules

from coterie.result import Result

__all__ = ["Section", "sections"]

Section = Callable[[Result], str]


def sections() -> list[Section]:
    """What renders each section, in order."""
    found = [import_module(f"{__name__}.{module.name}") for module in iter_modules(__path__)]
    return [module.render for module in sorted(found, key=lambda module: module.ORDER)]
