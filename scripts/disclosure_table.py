"""Write the table of methods in docs/disclosure.md, from what the methods state."""

from __future__ import annotations

from pathlib import Path

from coterie.methods import METHODS

PAGE = Path(__file__).parents[1] / "docs" / "disclosure.md"
BEGIN, END = "<!-- made by scripts/disclosure_table.py -->\n", "<!-- end -->\n"


def table() -> str:
    """One line for all methods that say the same."""
    lines = ["| methods | what a party sends | what who sees it can compute | with secure sums |", "|---|---|---|---|"]
    facts = {method.disclosure: None for method in sorted(METHODS.values(), key=lambda one: (one.split, one.name))}
    for one in facts:
        names = ", ".join(f"`{name}`" for name, method in METHODS.items() if method.disclosure == one)
        sent = f"{one.sent}. Beside the rounds: {one.setup}" if one.setup else one.sent
        lines.append(f"| {names} | {sent} | {one.learned} | {one.secure} |")
    return "\n".join(lines) + "\n"


def page(text: str) -> str:
    """The page with the table as it is now."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return before + BEGIN + table() + END + after


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text("utf-8")), "utf-8")
