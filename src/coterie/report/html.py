"""Pieces of HTML: sections, tables, figures that a reader can save, and controls that need no
script.

A control is a group of radio buttons; the style sheet shows and hides parts with
`:has(#id:checked)`. Pass text that comes from data through `words.text` first.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Mapping, Sequence
from importlib.resources import files
from string import Template

from matplotlib.figure import Figure

from coterie.report.figures import INK, colour, rendered
from coterie.report.words import text

DIGEST_LETTERS = 12


def document(title: str, header: str, sections: Iterable[str], footer: str) -> str:
    """A whole page."""
    template = Template(
        files("coterie.report").joinpath("template.html").read_text(encoding="utf-8")
    )
    theme = choice("theme", "Theme", {"auto": "Auto", "light": "Light", "dark": "Dark"})
    return template.substitute(
        title=title, theme=theme, header=header, sections="\n".join(sections), footer=footer
    )


def section(title: str, *content: str, id: str) -> str:
    """A part of the page with a heading."""
    return f'<section id="{id}">\n<h2>{title}</h2>\n' + "\n".join(content) + "\n</section>"


def paragraph(sentence: str, kind: str = "") -> str:
    """A paragraph."""
    if kind:
        return f'<p class="{kind}">{sentence}</p>'
    return f"<p>{sentence}</p>"


def table(
    headings: Sequence[str],
    rows: Iterable[Sequence[str]],
    numbers_from: int,
    total: Sequence[str] = (),
) -> str:
    """A table whose first column names the rows and whose columns from `numbers_from` on hold
    numbers.
    """

    def row(cells: Sequence[str], first: str, rest: str) -> str:
        written = ""
        for place, cell in enumerate(cells):
            tag = rest if place else first
            kind = ""
            if place >= numbers_from and "share" not in cell:
                kind = ' class="number"'
            written += f"<{tag}{kind}>{cell}</{tag}>"
        return f"<tr>{written}</tr>"

    head = f"<thead>{row(headings, 'th', 'th')}</thead>"
    body = "<tbody>" + "\n".join(row(cells, "th", "td") for cells in rows) + "</tbody>"
    foot = ""
    if total:
        foot = f"<tfoot>{row(total, 'td', 'td')}</tfoot>"
    return f'<div class="scroll"><table>{head}\n{body}{foot}</table></div>'


def share(part: float, whole: float) -> str:
    """A bar whose length is part / whole."""
    percent = 100 * part / whole if whole else 0
    return f'<div class="share"><i style="width:{percent:.1f}%"></i></div>'


def details(summary: str, content: str) -> str:
    """Content that a reader can unfold."""
    return f"<details><summary>{summary}</summary>\n{content}\n</details>"


def definitions(pairs: Iterable[tuple[str, str]]) -> str:
    """A list of terms and their meanings."""
    inner = "".join(f"<dt>{term}</dt><dd>{meaning}</dd>" for term, meaning in pairs)
    return f'<dl class="settings">{inner}</dl>'


def cards_list(cards: Iterable[tuple[str, str, str]]) -> str:
    """Cards, each with a heading, a value and a remark."""
    inner = "".join(
        f'<div class="card"><dt>{a}</dt><dd>{b}</dd><dd>{c}</dd></div>' for a, b, c in cards
    )
    return f'<dl class="cards">{inner}</dl>'


def choice(name: str, question: str, options: Mapping[str, str], chosen: str | None = None) -> str:
    """A control with several options; the id of each is `name-key`. Without `chosen`, the first one
    is chosen.
    """
    if chosen is None:
        chosen = next(iter(options))
    buttons = ""
    for key, words in options.items():
        checked = " checked" if key == chosen else ""
        button = f'<input type="radio" name="{name}" id="{name}-{key}"{checked}>'
        buttons += f"<label>{button}<span>{words}</span></label>"
    return f'<fieldset class="choice {name}"><legend>{question}</legend>{buttons}</fieldset>'


def figure_block(figure: Figure, name: str, title: str, saved: Figure | None = None) -> str:
    """A figure in the colours of the page, and a link that saves it (or `saved`) as an SVG file."""
    drawing = rendered(figure, "svg", ground="none").decode()
    file = drawing
    if saved is not None:
        file = rendered(saved, "svg", ground="none").decode()
    content = base64.b64encode(_on_white(file).encode()).decode()
    return (
        f'<figure class="picture">{_inline_svg(drawing, name, title)}<figcaption class="save">'
        f'<a download="{name}.svg" href="data:image/svg+xml;base64,{content}">Save as '
        "SVG</a></figcaption></figure>"
    )


def swatch(method: str) -> str:
    """A dot in the colour of a method."""
    return f'<span class="swatch" style="background:{colour(method)}"></span>'


def short_digest(digest: str) -> str:
    """The beginning of a digest; all of it appears when the reader hovers over it."""
    return f'<code title="{text(digest)}">{text(digest[:DIGEST_LETTERS])}…</code>'


def _on_white(drawing: str) -> str:
    """A drawing with a white ground, for a file of its own."""
    return re.sub(
        r"(<svg[^>]*>)", r'\1<rect width="100%" height="100%" fill="#ffffff"/>', drawing, count=1
    )


def _inline_svg(drawing: str, name: str, title: str) -> str:
    """The drawing as an `<svg>` element whose ids begin with `name`; `title` describes it."""
    head, body = drawing[drawing.index("<svg") :].strip().split(">", 1)
    view = re.search(r'viewBox="[^"]*"', head)
    assert view is not None
    body = re.sub(r"<defs>\s*<style[^>]*>[^<]*</style>\s*</defs>", "", body, count=1)
    body = re.sub(r"<[^<>]*>", lambda tag: _adapted(tag[0], name), body)
    return f'<svg class="figure" {view[0]} role="img" aria-label="{text(title)}">{body}'


def _adapted(tag: str, name: str) -> str:
    """Adapt one tag. Text between tags stays unchanged, because a party may have any name."""
    tag = re.sub(r' id="', f' id="{name}-', tag)
    tag = tag.replace('xlink:href="#', f'href="#{name}-').replace("xlink:href=", "href=")
    tag = tag.replace("url(#", f"url(#{name}-").replace(INK, "currentColor")
    # Keep the font size of the figure, and use the font family of the page; older matplotlibs write
    # both as one `font`.
    tag = re.sub(r"font-family: [^;\"]*(; )?", "", tag)
    return re.sub(r"font: [^;\"]*?([\d.]+px)[^;\"]*", r"font-size: \1", tag)
