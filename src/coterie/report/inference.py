"""What the report says of the coefficients' uncertainty."""

from __future__ import annotations

from coterie.inference import Inference
from coterie.report.html import paragraph, section, table
from coterie.report.words import number, text
from coterie.result import Result


def render(inference: Inference, result: Result) -> str:
    """A row for each coefficient, and what the numbers rest on."""
    statistic = inference.statistic
    rows = []
    for row in inference.table():
        name, *numbers = row.values()
        rows.append((text(name), *(f"{x:.3f}" if place == 3 else number(x, 5) for place, x in enumerate(numbers))))
    heads = ["coefficient", "estimate", "standard error", statistic, f"P&gt;|{statistic}|", "lower", "upper"]
    heads += [inference.ratios, "its lower end", "its upper end"] if inference.ratios else []
    share = f"{inference.level:.4g}"
    return section(
        "Standard errors",
        paragraph(f"{text(inference.about)}. Intervals of level {share}; p-values are two-sided."),
        table(heads, rows, numbers_from=1),
        id="inference",
    )
