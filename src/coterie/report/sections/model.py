"""The report's section on the model: coefficients, singular values, or the numbers of another kind
of model.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from coterie.api.result import Result
from coterie.problems.models import kind_of
from coterie.report.figures import model_figures, shown_of
from coterie.report.html import definitions, details, figure_block, paragraph, section, table
from coterie.report.words import number, text, written_value

ORDER = 50


def render(result: Result) -> str:
    """The model: its figure, its notes, and its largest numbers as a table."""
    statistics = definitions(_statistics_rows(result))
    shown = shown_of(result)
    if shown is None:
        return section("The model", "", statistics, id="model")
    if not shown.bars:
        return section("The model", paragraph(shown.explanation), statistics, id="model")
    drawn = ""
    for name, figure in model_figures(result).items():
        drawn += figure_block(figure, name, name.replace("-", " "))
    rows = []
    for name, value in shown.bars:
        written = f"{value:.1%}" if shown.shares else number(value, 6)
        rows.append((text(name), written))
    folded = details("The same as a table", table(shown.headings, rows, numbers_from=1))
    return section(
        "The model",
        paragraph(shown.explanation),
        f'<div class="pair">{drawn}<div>{statistics}{folded}</div></div>',
        id="model",
    )


def _statistics_rows(result: Result) -> Iterator[tuple[str, str]]:
    model: Any = result.model
    kind = kind_of(model)
    if kind is None:
        yield "Kind", text(type(model).__name__)
        for name, value in sorted(vars(model).items()):
            if isinstance(value, np.ndarray):
                shape = " × ".join(f"{length:,}" for length in value.shape)
                yield text(name), shape or written_value(value.item())
        return
    yield from kind.report.statistics(model, result.network).items()
    for note in result.notes():
        label, _, value = note.partition(": ")
        yield text(label.capitalize()), text(value)
