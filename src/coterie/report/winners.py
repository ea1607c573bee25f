"""Who wins a comparison, measure by measure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from coterie.progress import format_bits
from coterie.report.words import duration
from coterie.result import Result

MEASURES: dict[str, tuple[str, Callable[[Result], float], Callable[[float], str]]] = {
    "rounds": ("fewest rounds", lambda result: result.bill.rounds, lambda value: f"{value:,.0f}"),
    "bits": ("least data sent", lambda result: result.bill.total.bits, format_bits),
    "seconds": ("least time on this machine", lambda result: result.seconds, duration),
}
"""What is compared: its name in words, its value, and how it is written."""
NOISE = 0.05
"""Runs whose times differ by less than this share may as well have differed the other way round."""

Timings = Mapping[str, Sequence[float]]
"""The seconds of every run of a method; the result that is shown is that of the median run."""


def winners(results: Mapping[str, Result], timings: Timings | None = None) -> dict[str, tuple[str, ...]]:
    """Who reached the tolerance with the least of each measure: several for a tie, nobody if nobody reached it."""
    solved = {name: result for name, result in results.items() if result.status.success}
    return {measure: _least(measure, solved, timings or {}) for measure in MEASURES}


def _least(measure: str, solved: Mapping[str, Result], timings: Timings) -> tuple[str, ...]:
    _, value, _ = MEASURES[measure]
    values = {name: value(result) for name, result in solved.items()}
    if not values:
        return ()
    first = min(values, key=values.__getitem__)
    if measure != "seconds":
        return tuple(name for name in values if values[name] == values[first])
    # Times tie where somebody's fastest run is no slower than the slowest of the best, or noise could make it so.
    most = max(*timings.get(first, ()), (1.0 + NOISE) * values[first], 0.0)
    return tuple(name for name in values if min(*timings.get(name, ()), values[name], values[name]) <= most)


def written(measure: str, name: str, result: Result, timings: Timings | None = None) -> str:
    """The value of that measure; for several runs, the median of their times between the least and the most."""
    _, value, in_words = MEASURES[measure]
    shown, runs = in_words(value(result)), (timings or {}).get(name, ())
    return f"{shown} ({duration(min(runs))} to {duration(max(runs))})" if measure == "seconds" and runs[1:] else shown
