"""The gap over rounds, bytes and seconds, as curves and as a table."""

from __future__ import annotations

import numpy as np

from coterie.api.progress import format_bits
from coterie.api.result import Result
from coterie.errors import count
from coterie.report.figures import gap_against, straighter_in_log
from coterie.report.html import choice, figure_block, paragraph, section, swatch, table
from coterie.report.words import text

ORDER = 20
AXES = {"rounds": "rounds", "bytes": "data sent", "seconds": "seconds"}
HISTORY_ROWS = 300


def render(result: Result) -> str:
    method = str(result.certificate.settings["method"]["name"])
    known = np.isfinite(result.history["gap"])
    straighter = straighter_in_log(result.history["round"][known], result.history["gap"][known])
    charts = []
    for scale, ending in (("linear", ""), ("log", "-log")):
        drawn = []
        for against, words in AXES.items():
            figure = gap_against(result, against, scale == "log")
            drawn.append(
                figure_block(figure, f"gap-{against}{ending}", f"Relative gap against {words}")
            )
        inner = "\n".join(drawn)
        charts.append(f'<div class="charts curves {scale}">{inner}</div>')
    first_scale = "log" if straighter else "linear"
    views = choice("view", "Show", {"curves": "Curves", "table": "Table"})
    scales = choice(
        "scale", "Horizontal axis", {"linear": "Linear", "log": "Logarithmic"}, first_scale
    )
    return section(
        "Progress",
        paragraph(
            "The gap bounds the distance to the best possible objective. It was computed in some "
            "of the rounds; the "
            "large dot is the model of this report."
        ),
        paragraph(f"{swatch(method)}{text(result.explanation)}", "muted small"),
        f'<div class="controls">{views}{scales}</div>',
        *charts,
        f'<div class="records">{_history(result)}</div>',
        id="progress",
    )


def _history(result: Result) -> str:
    history = result.history
    unit = result.certificate.unit
    places = np.linspace(0, len(history) - 1, min(len(history), HISTORY_ROWS))
    chosen = np.unique(places.round().astype(int))
    rows = []
    for place in chosen:
        record = history[int(place)]
        cells = [
            f"{record.round:,}",
            f"{record.seconds:.3f}",
            format_bits(record.bits),
            f"{record.primal + 0.0:.8g}",
            f"{record.dual + 0.0:.8g}",
            f"{record.gap + 0.0:.2e}",
            f"{record.gap / unit + 0.0:.2e}",
        ]
        rows.append(cells)
    heads = ("round", "seconds", "sent", "objective", "lower bound", "gap", "relative gap")
    records = table(heads, rows, numbers_from=0)
    shown = ""
    if len(chosen) < len(history):
        shown = f", of which {len(chosen)} are shown"
    return paragraph(f"{count(len(history), 'record')}{shown}.", "muted small") + records
