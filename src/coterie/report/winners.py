"""Who wins a comparison, measure by measure."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from coterie.progress import format_bits
from coterie.report.words import duration
from coterie.result import Result

MEASURES: dict[str, tuple[str, Callable[[Result], float], Callable[[float], str]]] = {
    "rounds": ("fewest rounds", lambda result: result.bill.rounds, lambda value: f"{value:,.0f}"),
    "bits": ("least data sent", lambda result: result.bill.total.bits, format_bits),
    "seconds": ("least time on this machine", lambda result: result.seconds, duration),
}
"""What is compared: its name in words, its value, and how it is written."""


def winners(results: Mapping[str, Result]) -> dict[str, str | None]:
    """Who reached the tolerance with the least of each measure; nobody, if nobody reached it."""
    solved = {name: result for name, result in results.items() if result.status.success}
    return {
        measure: min(solved, key=lambda name: value(solved[name]), default=None)
        for measure, (_, value, _) in MEASURES.items()
    }
