"""The sections of the report, one file each.

A section is a file here with a number `ORDER`, which says where it stands, and a function `render(result) -> str` that
returns its HTML. `coterie.report.html` has the pieces; an empty string leaves the section out. The file is found by
itself. A page may be given more of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from pkgutil import iter_modules

from coterie.result import Result

__all__ = ["Section", "sections"]

Section = Callable[[Result], str]


MORE = 80
"""Where sections stand that are given to a page."""


def sections(more: Sequence[Section] = ()) -> list[Section]:
    """What renders each section, in order, with more of them before the settings."""
    found = [import_module(f"{__name__}.{module.name}") for module in iter_modules(__path__)]
    known = [(module.ORDER, module.render) for module in found]
    return [render for _, render in sorted([*known, *((MORE, one) for one in more)], key=lambda pair: pair[0])]
