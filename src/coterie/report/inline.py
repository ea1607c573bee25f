"""A figure as part of an HTML page: an SVG that takes the page's colour and font of text, and whose ids are its own."""

from __future__ import annotations

import re

from coterie.report.figures import INK
from coterie.report.words import text


def on_white(drawing: str) -> str:
    """A drawing without a ground, as a file of its own that is read anywhere."""
    return re.sub(r"(<svg[^>]*>)", r'\1<rect width="100%" height="100%" fill="#ffffff"/>', drawing, count=1)


def inline_svg(drawing: str, name: str, title: str) -> str:
    """The drawing as an `<svg>` element whose ids begin with `name`; `title` says in words what it shows."""
    head, body = drawing[drawing.index("<svg") :].strip().split(">", 1)
    view = re.search(r'viewBox="[^"]*"', head)
    assert view is not None
    body = re.sub(r"<defs>\s*<style[^>]*>[^<]*</style>\s*</defs>", "", body, count=1)
    body = re.sub(r"<[^<>]*>", lambda tag: _adapted(tag[0], name), body)
    return f'<svg class="figure" {view[0]} role="img" aria-label="{text(title)}">{body}'


def _adapted(tag: str, name: str) -> str:
    """One tag, never the text between tags: a party may be called anything."""
    tag = re.sub(r' id="', f' id="{name}-', tag)
    tag = tag.replace('xlink:href="#', f'href="#{name}-').replace("xlink:href=", "href=")
    tag = tag.replace("url(#", f"url(#{name}-").replace(INK, "currentColor")
    # The size of a letter is the figure's, its family the page's; older matplotlibs write both as one `font`.
    tag = re.sub(r"font-family: [^;\"]*(; )?", "", tag)
    return re.sub(r"font: [^;\"]*?([\d.]+px)[^;\"]*", r"font-size: \1", tag)
