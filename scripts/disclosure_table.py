"""Write the tables in docs/disclosure.md, from what methods, operations and broadcasts declare."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from coterie.methods import METHODS
from coterie.numerics.acceleration import ADVANCES
from coterie.problems import kinds
from coterie.run.disclosure import SPLITS, Disclosure, declared_by
from coterie.stats.choosing import sums_of_choice
from coterie.stats.fitting import Fit
from coterie.stats.folds import mean_loss, rows_outside_folds
from coterie.stats.inferring import Infer
from coterie.stats.preparing import Prepare
from coterie.study.disclosure import MESSAGES, OPERATIONS

STEPS: dict[str, Callable[[Any], tuple[Any, ...]]] = {
    "ranges": lambda kind: Fit.discloses if kind.name == "personal" else (),
    "introduction": lambda kind: kind.proof.introduces,
    "preparation": lambda kind: Prepare.discloses,
    "acceleration": lambda kind: ADVANCES,
    "certificate": lambda kind: kind.proof.proves,
    "strengths of a path": lambda kind: kind.local.finds_strengths,
    "folds of a path": lambda kind: (rows_outside_folds, mean_loss),
    "choice among models": lambda kind: (sums_of_choice,) if kind.name == "shared" else (),
    "standard errors": lambda kind: Infer.discloses if kind.stats.has_errors else (),
}
PAGE = Path(__file__).parents[1] / "docs" / "disclosure.md"
END = "<!-- end -->\n"


def declared(protocols: tuple[Any, ...]) -> list[Disclosure]:
    """The declarations of these protocols."""
    return [one for protocol in protocols for one in declared_by(protocol)]


def methods() -> str:
    """One line for all methods that say the same."""
    lines = [
        "| methods | what you send | what a recipient can compute | with secure sums |",
        "|---|---|---|---|",
    ]
    statistics = {
        method.disclosure: None
        for method in sorted(METHODS.values(), key=lambda one: (one.split, one.name))
    }
    for one in statistics:
        names = ", ".join(
            f"`{name}`" for name, method in METHODS.items() if method.disclosure == one
        )
        sent = f"{one.sent}. Outside the rounds: {one.setup}" if one.setup else one.sent
        lines.append(f"| {names} | {sent} | {one.learned} | {one.secure} |")
    return "\n".join(lines) + "\n"


def broadcasts() -> str:
    """One line for every message outside of sums, about in the order in which they are sent."""
    lines = ["| message | sent by | to | what it says |", "|---|---|---|---|"]
    lines += [
        f"| {one.about} | {', '.join(one.operations)} | {one.to or 'all'} | {one.sent} |"
        for one in MESSAGES
    ]
    return "\n".join(lines) + "\n"


def operations() -> str:
    """One line for every declaration of the operations."""
    lines = [
        "| operation | split by | what you send | what a recipient can compute |",
        "|---|---|---|---|",
    ]
    for operation in OPERATIONS:
        for one in declared(operation.discloses):
            splits = ", ".join(split for split in one.splits if split in operation.splits)
            lines.append(
                f"| `coterie {operation.name}` | {splits} | {one.sent} | {one.learned or '–'} |"
            )
    return "\n".join(dict.fromkeys(lines)) + "\n"


def fits() -> str:
    """One line for every declaration of the steps of a fit that all methods have in common."""
    lines = ["| step | kinds | what you send | what a recipient can compute |", "|---|---|---|---|"]
    for step, protocols in STEPS.items():
        of_kind = {
            kind.name: declared(protocols(kind))
            for kind in sorted(kinds(), key=lambda kind: kind.name)
        }
        for one in dict.fromkeys(one for found in of_kind.values() for one in found):
            names = [name for name, found in of_kind.items() if one in found]
            known = "all" if len(names) == len(of_kind) else ", ".join(names)
            by = "" if one.splits == SPLITS else f" (split by {', '.join(one.splits)})"
            lines.append(f"| {step}{by} | {known} | {one.sent} | {one.learned or '–'} |")
    return "\n".join(lines) + "\n"


def page(text: str) -> str:
    """The page with the tables as they are now."""
    for table in (methods, broadcasts, fits, operations):
        begin = f"<!-- {table.__name__}: made by scripts/disclosure_table.py -->\n"
        before, _, rest = text.partition(begin)
        _, _, after = rest.partition(END)
        text = before + begin + table() + END + after
    return text


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text("utf-8")), "utf-8")
