"""The report of a comparison: rounds, bits and time of several methods on one problem."""

from __future__ import annotations

import math
from collections.abc import Mapping

from matplotlib.figure import Figure

from coterie.api.result import Result
from coterie.errors import count
from coterie.report.figures import gaps_against
from coterie.report.html import (
    cards_list,
    choice,
    definitions,
    document,
    figure_block,
    paragraph,
    section,
    short_digest,
    swatch,
    table,
)
from coterie.report.page import foot, parties_of, status_mark
from coterie.report.sections.bill import elsewhere
from coterie.report.sections.progress import AXES
from coterie.report.sections.settings import problem_rows
from coterie.report.winners import MEASURES, Timings, winners, written
from coterie.report.words import number, text


def comparison_figures(
    results: Mapping[str, Result], *, logarithmic: bool = True
) -> dict[str, Figure]:
    """The gaps of all runs against rounds, bytes and seconds, by the name of the figure."""
    return {
        f"compare-{against}": gaps_against(results, against, logarithmic, legend=True)
        for against in AXES
    }


def comparison_page(results: Mapping[str, Result], timings: Timings | None = None) -> str:
    """The whole page; `timings` has the seconds of every run, if methods took turns."""
    first = next(iter(results.values()))
    solved = [result for result in results.values() if result.status.success]
    best = winners(results, timings)
    title = _headline(results, best)
    problem = first.model.problem
    kind = problem.kind.report.words(problem)
    held = f"{parties_of(first)}, {first.certificate.settings['network']}"
    methods = count(len(results), "method")
    tolerance = first.certificate.tolerance
    story = (
        f"The same problem ({kind}; {held}) was solved by {methods}, each until its relative gap "
        "was at most "
        f"{tolerance:g}. {len(solved)} of {len(results)} reached it."
    )
    header = (
        f'<div class="brand"><b>Coterie</b><span>comparison</span></div>\n<h1>{text(title)}</h1>\n'
        f'<p class="lead">{text(story)}</p>\n{_cards(results, best, timings)}'
    )
    sections = [
        _table(results, best, timings),
        _curves(results),
        _elsewhere(results),
        _settings(first),
    ]
    return document(f"{text(title)} · Coterie", header, sections, foot(first))


Best = Mapping[str, tuple[str, ...]]
TURNS = (
    "Methods were warmed up before the clock started and took turns; the time is that of the "
    "median run."
)


def _headline(results: Mapping[str, Result], best: Best) -> str:
    if not any(best.values()):
        return "No method reached the tolerance"
    for name in results:
        if all(name in names for names in best.values()):
            if any(len(names) > 1 for names in best.values()):
                return f"{name} is best or as good in every respect"
            return f"{name} is best in every respect"
    rounds = best["rounds"]
    bits = best["bits"]
    both = tuple(name for name in rounds if name in bits)
    if both:
        need, send = _verbs(both)
        return f"{' and '.join(both)} {need} the fewest rounds and {send} the least"
    fewest = f"{' and '.join(rounds)} {_verbs(rounds)[0]}"
    least = f"{' and '.join(bits)} {_verbs(bits)[1]}"
    return f"{fewest} the fewest rounds, {least} the least"


def _verbs(names: tuple[str, ...]) -> tuple[str, str]:
    if len(names) > 1:
        return "need", "send"
    return "needs", "sends"


def _cards(results: Mapping[str, Result], best: Best, timings: Timings | None) -> str:
    cards = []
    for measure, (words, value, _) in MEASURES.items():
        values = {name: value(results[name]) for name in best[measure]}
        if not values:
            continue
        tie = " (a tie)" if len(values) > 1 else ""
        least = min(values, key=values.__getitem__)
        shown = written(measure, least, results[least], timings)
        cards.append((f"{words}{tie}", "<br>".join(map(_name, values)), shown))
    if not cards:
        return ""
    return cards_list(cards)


def _name(name: str) -> str:
    """The name of a run, with a dot in the colour of its method."""
    method = name.split(" ")[0]
    return f"{swatch(method)}{text(name)}"


def _table(results: Mapping[str, Result], best: Best, timings: Timings | None) -> str:
    def cell(name: str, measure: str) -> str:
        shown = written(measure, name, results[name], timings)
        if name in best[measure]:
            return f'<span class="winner">{shown} ★</span>'
        return shown

    rows = []
    for name, result in sorted(results.items(), key=lambda item: _rank(item[1])):
        certificate = result.certificate
        measures = [cell(name, measure) for measure in MEASURES]
        gap = f"{certificate.relative_gap:.1e}"
        rows.append(
            [_name(name), status_mark(result.status), *measures, gap, number(certificate.primal, 8)]
        )
    heads = ("method", "ended", "rounds", "data sent", "time", "relative gap", "objective")
    words = (
        "A star marks the smallest value among the methods that reached the tolerance; several "
        "stars are a tie. "
        "Certificates are computed some rounds apart, so a method may have reached the tolerance "
        "a little earlier. "
    )
    if timings:
        words += TURNS
    return section("Comparison", paragraph(words), table(heads, rows, numbers_from=2), id="table")


def _rank(result: Result) -> tuple[bool, float]:
    """The order of methods: those that reached the tolerance by rounds, then the others by gap."""
    if result.status.success:
        return False, result.bill.rounds
    gap = result.certificate.relative_gap
    if math.isfinite(gap):
        return True, gap
    return True, math.inf


def _curves(results: Mapping[str, Result]) -> str:
    charts = []
    for scale, ending in (("log", ""), ("linear", "-linear")):
        logarithmic = scale == "log"
        drawn = []
        for against, words in AXES.items():
            figure = gaps_against(results, against, logarithmic)
            saved = gaps_against(results, against, logarithmic, legend=True)
            drawn.append(
                figure_block(
                    figure, f"compare-{against}{ending}", f"Relative gaps against {words}", saved
                )
            )
        inner = "\n".join(drawn)
        charts.append(f'<div class="charts curves {scale}">{inner}</div>')
    keys = "".join(f'<span class="key">{_name(name)}</span> ' for name in results)
    controls = choice("scale", "Horizontal axis", {"log": "Logarithmic", "linear": "Linear"})
    return section(
        "Progress",
        paragraph("The further down and to the left a curve is, the better."),
        paragraph(keys),
        f'<div class="controls">{controls}</div>',
        *charts,
        id="progress",
    )


def _elsewhere(results: Mapping[str, Result]) -> str:
    return section("Time and price on other links", elsewhere(results), id="elsewhere")


def _settings(first: Result) -> str:
    settings = first.certificate.settings
    shared = (
        *problem_rows(first),
        ("Split by", text(settings["split"])),
        ("Network", text(settings["network"])),
        ("Seed", text(settings["seed"])),
        ("Data digest", short_digest(first.certificate.data_digest)),
    )
    return section(
        "Common settings",
        definitions(shared),
        paragraph(
            (
                "The folder of each method, next to this page, has its model, its certificate and "
                "its "
                "run."
            ),
            "muted small",
        ),
        id="settings",
    )
