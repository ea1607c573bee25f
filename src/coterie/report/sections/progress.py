"""How the gap fell: curves over rounds, bytes and seconds, and the same as a table."""

from __future__ import annotations

import numpy as np

from coterie.errors import count
from coterie.progress import format_bits
from coterie.report.figures import gap_against, straighter_in_log
from coterie.report.html import choice, figure_block, paragraph, section, swatch, table
from coterie.report.words import text
from coterie.result import Result

ORDER = 20
AXES = {"rounds": "rounds", "bytes": "data sent", "seconds": "seconds"}
HISTORY_ROWS = 300


def render(result: Result) -> str:
    method = str(result.certificate.settings["method"]["name"])
    known = np.isfinite(result.history["gap"])
    straighter = straighter_in_log(result.history["round"][known], result.history["gap"][known])
    charts = {
        scale: "\n".join(
            figure_block(
                gap_against(result, against, scale == "log"),
                f"gap-{against}" if scale == "linear" else f"gap-{against}-log",
                f"Relative gap against {words}",
            )
            for against, words in AXES.items()
        )
        for scale in ("linear", "log")
    }
    controls = choice("view", "Show", {"curves": "Curves", "table": "Table"}) + choice(
        "scale", "Horizontal axis", {"linear": "Linear", "log": "Logarithmic"}, "log" if straighter else "linear"
    )
    return section(
        "Progress",
        paragraph(
            "The gap bounds the distance to the best possible objective. It was computed in some of the rounds; the "
            "large dot is the model of this report."
        ),
        paragraph(f"{swatch(method)}{text(result.explanation)}", "muted small"),
        f'<div class="controls">{controls}</div>',
        *(f'<div class="charts curves {scale}">{drawn}</div>' for scale, drawn in charts.items()),
        f'<div class="records">{_history(result)}</div>',
        id="progress",
    )


def _history(result: Result) -> str:
    history, unit = result.history, result.certificate.unit
    chosen = np.unique(np.linspace(0, len(history) - 1, min(len(history), HISTORY_ROWS)).round().astype(int))
    rows = (
        (
            f"{row.round:,}",
            f"{row.seconds:.3f}",
            format_bits(row.bits),
            f"{row.primal + 0.0:.8g}",
            f"{row.dual + 0.0:.8g}",
            f"{row.gap + 0.0:.2e}",
            f"{row.gap / unit + 0.0:.2e}",
        )
        for row in (history[int(index)] for index in chosen)
    )
    records = table(
        ("round", "seconds", "sent", "objective", "lower bound", "gap", "relative gap"), rows, numbers_from=0
    )
    shown = "" if len(chosen) == len(history) else f", of which {len(chosen)} are shown"
    return paragraph(f"{count(len(history), 'record')}{shown}.", "muted small") + records
