"""Write the tables in docs/disclosure.md, from what methods, operations and broadcasts declare."""

from __future__ import annotations

from pathlib import Path

from coterie.methods import METHODS
from coterie.stats.inferring import Infer
from coterie.study.broadcasts import BROADCASTS
from coterie.study.disclosure import OPERATIONS

PAGE = Path(__file__).parents[1] / "docs" / "disclosure.md"
END = "<!-- end -->\n"


def methods() -> str:
    """One line for all methods that say the same."""
    lines = ["| methods | what a party sends | what who sees it can compute | with secure sums |", "|---|---|---|---|"]
    facts = {method.disclosure: None for method in sorted(METHODS.values(), key=lambda one: (one.split, one.name))}
    for one in facts:
        names = ", ".join(f"`{name}`" for name, method in METHODS.items() if method.disclosure == one)
        sent = f"{one.sent}. Beside the rounds: {one.setup}" if one.setup else one.sent
        lines.append(f"| {names} | {sent} | {one.learned} | {one.secure} |")
    return "\n".join(lines) + "\n"


def broadcasts() -> str:
    """One line for every message that is told to all, in the order in which they are sent."""
    lines = ["| message | sent by | what it says |", "|---|---|---|"]
    lines += [f"| {one.about} | {', '.join(one.operations)} | {one.sent} |" for one in BROADCASTS]
    return "\n".join(lines) + "\n"


def operations() -> str:
    """One line for every query and protocol of the operations that are declared as such."""
    lines = ["| operation | split by | what a party sends |", "|---|---|---|"]
    named = [(f"`coterie {operation.name}`", operation) for operation in OPERATIONS]
    for name, operation in [*named, ("`coterie agent`, with `inference` in the study", Infer)]:
        for one in operation.discloses:
            splits = ", ".join(split for split in one.splits if split in operation.splits)
            lines.append(f"| {name} | {splits} | {one.disclosure.sent} |")
    return "\n".join(dict.fromkeys(lines)) + "\n"


def page(text: str) -> str:
    """The page with the tables as they are now."""
    for table in (methods, broadcasts, operations):
        begin = f"<!-- {table.__name__}: made by scripts/disclosure_table.py -->\n"
        before, _, rest = text.partition(begin)
        _, _, after = rest.partition(END)
        text = before + begin + table() + END + after
    return text


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text("utf-8")), "utf-8")
