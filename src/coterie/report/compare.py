"""Several methods on one problem, side by side: who needs the fewest rounds, the fewest bits, the least time."""

from __future__ import annotations

import math
from collections.abc import Mapping

from matplotlib.figure import Figure

from coterie.families import family_of
from coterie.report.figures import gaps_against
from coterie.report.html import (
    choice,
    count,
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
from coterie.report.winners import MEASURES, winners
from coterie.report.words import number, text
from coterie.result import Result


def comparison_figures(results: Mapping[str, Result], *, logarithmic: bool = True) -> dict[str, Figure]:
    """The gaps of all runs against rounds, bytes and seconds, by the name of the picture."""
    return {f"compare-{against}": gaps_against(results, against, logarithmic, legend=True) for against in AXES}


def comparison_page(results: Mapping[str, Result]) -> str:
    """The whole page."""
    first = next(iter(results.values()))
    solved = [result for result in results.values() if result.status.success]
    best = winners(results)
    title = _headline(results, best)
    problem, people = first.model.problem, first.certificate.participants
    held = f"{count(len(people), 'party' if len(people) == 1 else 'partie')}, {first.certificate.settings['network']}"
    story = (
        f"The same problem ({family_of(problem).words(problem)}; {held}) was solved by "
        f"{count(len(results), 'method')}, each until its relative gap was at most "
        f"{first.certificate.tolerance:g}. {len(solved)} of {len(results)} reached it."
    )
    header = (
        f'<div class="brand"><b>Coterie</b><span>comparison</span></div>\n<h1>{text(title)}</h1>\n'
        f'<p class="lead">{text(story)}</p>\n{_cards(results, best)}'
    )
    sections = [_table(results, best), _curves(results), _elsewhere(results), _settings(first)]
    return document(f"{text(title)} · Coterie", header, sections, foot(first))


def _headline(results: Mapping[str, Result], best: Mapping[str, str | None]) -> str:
    names = {name for name in best.values() if name is not None}
    if not names:
        return "No method reached the tolerance"
    if len(names) == 1:
        return f"{names.pop()} is best in every respect"
    return f"{best['rounds']} needs the fewest rounds, {best['bits']} sends the least"


def _cards(results: Mapping[str, Result], best: Mapping[str, str | None]) -> str:
    cards = []
    for measure, (words, value, written) in MEASURES.items():
        name = best[measure]
        if name is not None:
            figure = written(value(results[name]))
            cards.append(
                f'<div class="card"><dt>{words}</dt><dd>{swatch(name.split(" ")[0])}{text(name)}</dd>'
                f"<dd>{figure}</dd></div>"
            )
    return f'<dl class="cards">{"".join(cards)}</dl>' if cards else ""


def _table(results: Mapping[str, Result], best: Mapping[str, str | None]) -> str:
    def cell(name: str, measure: str) -> str:
        _, value, written = MEASURES[measure]
        shown = written(value(results[name]))
        return f'<span class="winner">{shown} ★</span>' if best[measure] == name else shown

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
            "A star marks the smallest value among the methods that reached the tolerance. Certificates are computed "
            "some rounds apart, so a method may have reached the tolerance a little earlier."
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
