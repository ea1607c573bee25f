"""Several methods on one problem, side by side: who needs the fewest rounds, the fewest bits, the least time."""

from __future__ import annotations

import math
from collections.abc import Mapping

from matplotlib.figure import Figure

from coterie.errors import count
from coterie.report.figures import gaps_against
from coterie.report.html import (
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
from coterie.report.page import foot, status_mark
from coterie.report.sections.bill import elsewhere
from coterie.report.sections.progress import AXES
from coterie.report.sections.settings import problem_facts
from coterie.report.winners import MEASURES, Timings, winners, written
from coterie.report.words import number, text
from coterie.result import Result


def comparison_figures(results: Mapping[str, Result], *, logarithmic: bool = True) -> dict[str, Figure]:
    """The gaps of all runs against rounds, bytes and seconds, by the name of the picture."""
    return {f"compare-{against}": gaps_against(results, against, logarithmic, legend=True) for against in AXES}


def comparison_page(results: Mapping[str, Result], timings: Timings | None = None) -> str:
    """The whole page; `timings` has the seconds of every run where methods took turns."""
    first = next(iter(results.values()))
    solved = [result for result in results.values() if result.status.success]
    best = winners(results, timings)
    title = _headline(results, best)
    problem, people = first.model.problem, first.certificate.participants
    held = f"{count(len(people), 'party' if len(people) == 1 else 'partie')}, {first.certificate.settings['network']}"
    story = (
        f"The same problem ({problem.kind.words(problem)}; {held}) was solved by "
        f"{count(len(results), 'method')}, each until its relative gap was at most "
        f"{first.certificate.tolerance:g}. {len(solved)} of {len(results)} reached it."
    )
    header = (
        f'<div class="brand"><b>Coterie</b><span>comparison</span></div>\n<h1>{text(title)}</h1>\n'
        f'<p class="lead">{text(story)}</p>\n{_cards(results, best, timings)}'
    )
    sections = [_table(results, best, timings), _curves(results), _elsewhere(results), _settings(first)]
    return document(f"{text(title)} · Coterie", header, sections, foot(first))


Best = Mapping[str, tuple[str, ...]]
TURNS = "Methods were warmed up before the clock started and took turns; the time is that of the median run."


def _headline(results: Mapping[str, Result], best: Best) -> str:
    if not any(best.values()):
        return "No method reached the tolerance"
    for name in results:
        if all(name in names for names in best.values()):
            shared = any(len(names) > 1 for names in best.values())
            return f"{name} is best{' or as good' if shared else ''} in every respect"
    rounds, bits = best["rounds"], best["bits"]
    if both := tuple(name for name in rounds if name in bits):
        need, send = _verbs(both)
        return f"{' and '.join(both)} {need} the fewest rounds and {send} the least"
    fewest, least = f"{' and '.join(rounds)} {_verbs(rounds)[0]}", f"{' and '.join(bits)} {_verbs(bits)[1]}"
    return f"{fewest} the fewest rounds, {least} the least"


def _verbs(names: tuple[str, ...]) -> tuple[str, str]:
    return ("need", "send") if len(names) > 1 else ("needs", "sends")


def _cards(results: Mapping[str, Result], best: Best, timings: Timings | None) -> str:
    cards = []
    for measure, (words, _, _) in MEASURES.items():
        names = best[measure]
        if names:
            who = "<br>".join(f"{swatch(name.split(' ')[0])}{text(name)}" for name in names)
            tie = " (a tie)" if len(names) > 1 else ""
            least = min(names, key=lambda name: MEASURES[measure][1](results[name]))
            figure = written(measure, least, results[least], timings)
            cards.append(f'<div class="card"><dt>{words}{tie}</dt><dd>{who}</dd><dd>{figure}</dd></div>')
    return f'<dl class="cards">{"".join(cards)}</dl>' if cards else ""


def _table(results: Mapping[str, Result], best: Best, timings: Timings | None) -> str:
    def cell(name: str, measure: str) -> str:
        shown = written(measure, name, results[name], timings)
        return f'<span class="winner">{shown} ★</span>' if name in best[measure] else shown

    rows = (
        (
            f"{swatch(name.split(' ')[0])}{text(name)}",
            status_mark(result.status),
            *(cell(name, measure) for measure in MEASURES),
            f"{result.certificate.relative_gap:.1e}",
            number(result.certificate.primal, 8),
        )
        for name, result in sorted(results.items(), key=lambda item: _place(item[1]))
    )
    heads = ("method", "ended", "rounds", "data sent", "time", "relative gap", "objective")
    return section(
        "Comparison",
        paragraph(
            "A star marks the smallest value among the methods that reached the tolerance; several stars are a tie. "
            "Certificates are computed some rounds apart, so a method may have reached the tolerance a little earlier. "
            + (TURNS if timings else "")
        ),
        table(heads, rows, numbers_from=2),
        id="table",
    )


def _place(result: Result) -> tuple[bool, float]:
    gap = result.certificate.relative_gap
    return not result.status.success, result.bill.rounds if result.status.success else (
        gap if math.isfinite(gap) else math.inf
    )


def _curves(results: Mapping[str, Result]) -> str:
    charts = {
        scale: "\n".join(
            figure_block(
                gaps_against(results, against, scale == "log"),
                f"compare-{against}" + ("" if scale == "log" else "-linear"),
                f"Relative gaps against {words}",
                saved=gaps_against(results, against, scale == "log", legend=True),
            )
            for against, words in AXES.items()
        )
        for scale in ("log", "linear")
    }
    controls = choice("scale", "Horizontal axis", {"log": "Logarithmic", "linear": "Linear"})
    return section(
        "Progress",
        paragraph("The further down and to the left a curve is, the better."),
        paragraph("".join(f'<span class="key">{swatch(name.split(" ")[0])}{text(name)}</span> ' for name in results)),
        f'<div class="controls">{controls}</div>',
        *(f'<div class="charts curves {scale}">{drawn}</div>' for scale, drawn in charts.items()),
        id="progress",
    )


def _elsewhere(results: Mapping[str, Result]) -> str:
    return section("Time and price on other links", elsewhere(results), id="elsewhere")


def _settings(first: Result) -> str:
    settings = first.certificate.settings
    shared = (
        *problem_facts(first),
        ("Split by", text(settings["split"])),
        ("Network", text(settings["network"])),
        ("Seed", text(settings["seed"])),
        ("Data digest", short_digest(first.certificate.data_digest)),
    )
    return section(
        "Common settings",
        definitions(shared),
        paragraph(
            "The folder of each method, next to this page, has its model, its certificate and its run.", "muted small"
        ),
        id="settings",
    )
