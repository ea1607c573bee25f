"""The sections of the report, one file each.

A section is a file in this folder with a number `ORDER`, its place on the page, and a function
`render(result) -> str` that returns its HTML; an empty string leaves the section out.
`coterie.report.html` has functions for pieces of HTML. A new file needs no registration. A caller
may add sections to a page.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from pkgutil import iter_modules

from coterie.api.result import Result

__all__ = ["Section", "sections"]

Section = Callable[[Result], str]


MORE = 80
"""The `ORDER` of sections that a caller adds."""


def sections(more: Sequence[Section] = ()) -> list[Section]:
    """The functions of all sections in order, with `more` before the settings."""
    ordered: list[tuple[int, Section]] = []
    for entry in iter_modules(__path__):
        module = import_module(f"{__name__}.{entry.name}")
        ordered.append((module.ORDER, module.render))
    ordered += [(MORE, render) for render in more]
    ordered.sort(key=lambda pair: pair[0])
    return [render for _, render in ordered]
