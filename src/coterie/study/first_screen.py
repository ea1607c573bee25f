"""The first screen of a page: three sentences, worst case first, and a table of what is sent, to
which party, and what a recipient can compute.

The rest of the page lists every message in full.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from coterie.study.study import Study

HEADS = ("You send", "To", "A recipient can compute")
WIDTHS = (30, 13, 32)
"""Characters of the columns."""
GAP = "  "
MINIMUM_OF_A_SUM = 3
"""Parties among which a sum hides the message of one."""


@dataclass(frozen=True)
class Row:
    """What is sent at one step."""

    sent: str
    to: str
    learned: str


def hides(study: Study) -> bool:
    """Whether secure sums hide the messages of a party from any other one."""
    return study.has_secure_sums and len(study.party) >= MINIMUM_OF_A_SUM


def recipients(study: Study, party: str) -> str:
    """The parties that receive what this one sends in a sum."""
    network, me, names = study.carrying(), study.index(party), study.names
    others = [name for name in names if name != party]
    if study.messages == "users":
        return ", ".join(others)
    if network.server:
        return names[0] if me else ", ".join(others)
    return ", ".join(names[j] for j in network.neighbours(me))


def receivers_of_sums(study: Study, party: str) -> str:
    """Which party learns what of a sum, in a few words."""
    if hides(study):
        return "all, as a sum"
    return recipients(study, party)


def sentences(study: Study, operation: str, worst: str, most: float | None, kept: str) -> list[str]:
    """What a party has to know first: the worst case, how much it sends, and what it keeps."""
    amount = "an amount that depends on the data"
    if most is not None:
        amount = f"at most {most:,.0f} numbers"
    often = ""
    if operation == "fit":
        often = f", and take part in up to {study.max_rounds:,} rounds"
    return [
        f"Worst case: another party can compute {worst}.",
        f"You send {amount}{often}.",
        f"You do not send: {kept}",
    ]


def table(rows: Sequence[Row]) -> list[str]:
    """The table, in lines of a terminal."""
    lines = [_line(HEADS), _line(tuple("-" * width for width in WIDTHS))]
    for row in rows:
        cells = [
            textwrap.wrap(text, width) or [""]
            for text, width in zip((row.sent, row.to, row.learned), WIDTHS, strict=True)
        ]
        for place in range(max(map(len, cells))):
            lines.append(_line(tuple(cell[place] if place < len(cell) else "" for cell in cells)))
    return lines


def _line(cells: Sequence[str]) -> str:
    padded = [cell.ljust(width) for cell, width in zip(cells, WIDTHS, strict=True)]
    return GAP.join(padded).rstrip()
