"""How the report writes names and numbers."""

from __future__ import annotations

import html
import math

from coterie.errors import shortened

SCALES = ((1e12, "trillion"), (1e9, "billion"), (1e6, "million"), (1e3, "thousand"))


def plain(value: object) -> str:
    """The value as one line of printable characters."""
    return "".join(map(_printable, str(value)))


def _printable(character: str) -> str:
    if character.isprintable():
        return character
    if character.isspace():
        return " "
    return "\ufffd"


def text(value: object) -> str:
    """The value as text that is safe inside HTML, between tags and in quoted attributes."""
    return html.escape(plain(value))


def number(value: float, digits: int = 3) -> str:
    """A number with `digits` significant digits, a true minus sign, and no negative zero."""
    if value < 0:
        return f"{value + 0.0:.{digits}g}".replace("-", "−", 1)
    return f"{abs(value):.{digits}g}"


def duration(seconds: float) -> str:
    """A time in one or two units."""
    if seconds < 1:
        return f"{1000 * seconds:.3g} ms"
    if seconds < 59.95:
        return f"{seconds:.3g} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes} min"
    return f"{hours // 24} days {hours % 24} h"


def money(dollars: float) -> str:
    """A price in dollars."""
    if dollars == 0:
        return "free"
    if dollars >= 0.01:
        return f"${dollars:,.2f}"
    if dollars >= 1e-4:
        return f"${dollars:.1g}"
    return "< $0.0001"


def one_part_in(share: float) -> str:
    """A small share in words: "one part in 1.1 million"."""
    if not 0 < share <= 0.5:
        return ""
    parts = min(1 / share, 999e12)
    for scale, word in SCALES:
        if parts >= scale:
            return f"one part in {math.floor(10 * parts / scale) / 10:g} {word}"
    return f"one part in {math.floor(parts)}"


def written_value(value: object) -> str:
    """A setting or label, short."""
    written = plain(value)
    if isinstance(value, float):
        written = number(value, 12)
    return shortened(written, 60)
