"""The best methods of a comparison, measure by measure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from coterie.api.progress import format_bits
from coterie.api.result import Result
from coterie.report.words import duration

MEASURES: dict[str, tuple[str, Callable[[Result], float], Callable[[float], str]]] = {
    "rounds": ("fewest rounds", lambda result: result.bill.rounds, lambda value: f"{value:,.0f}"),
    "bits": ("least data sent", lambda result: result.bill.total.bits, format_bits),
    "seconds": ("least time on this machine", lambda result: result.seconds, duration),
}
"""The measures of a comparison: name in words, value, and format."""
NOISE = 0.05
"""Times that differ by less than this share count as equal."""

Timings = Mapping[str, Sequence[float]]
"""The seconds of every run of each method; the result is that of the median run."""


def winners(
    results: Mapping[str, Result], timings: Timings | None = None
) -> dict[str, tuple[str, ...]]:
    """The best of the methods that reached the tolerance, by measure: several for a tie, maybe
    none.
    """
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
    # A method ties if its fastest run is no slower than the slowest run of the best method, up to
    # noise.
    most = max([(1.0 + NOISE) * values[first], 0.0, *timings.get(first, ())])
    fastest = {name: min([values[name], *timings.get(name, ())]) for name in values}
    return tuple(name for name in values if fastest[name] <= most)


def written(measure: str, name: str, result: Result, timings: Timings | None = None) -> str:
    """The value of a measure; for several runs, the median time and, in brackets, the range of
    times.
    """
    _, value, in_words = MEASURES[measure]
    shown = in_words(value(result))
    runs = (timings or {}).get(name, ())
    if measure == "seconds" and runs[1:]:
        return f"{shown} ({duration(min(runs))} to {duration(max(runs))})"
    return shown
