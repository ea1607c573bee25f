"""The report's section on standard errors of coefficients."""

from __future__ import annotations

from coterie.api.inference import Inference
from coterie.api.result import Result
from coterie.report.html import paragraph, section, table
from coterie.report.words import number, text

P_VALUE = 3
"""Place of the p-value among the numbers of a row."""


def render(inference: Inference, result: Result) -> str:
    """A row for each coefficient, and the assumptions behind the numbers."""
    statistic = inference.statistic
    rows = []
    for row in inference.table():
        name, *numbers = row.values()
        cells = [number(x, 5) for x in numbers]
        cells[P_VALUE] = f"{numbers[P_VALUE]:.3f}"
        rows.append([text(name), *cells])
    words = {
        "coef": "estimate",
        "std err": "standard error",
        "p": f"P&gt;|{statistic}|",
        "df": "degrees of freedom",
        "exp(coef)": inference.ratios,
        "exp(lower)": "its lower end",
        "exp(upper)": "its upper end",
        "per SD": "estimate per standard deviation",
    }
    heads = ["coefficient", *(words.get(head, head) for head in inference.columns)]
    share = f"{inference.level:.4g}"
    about = f"{text(inference.about)}. Intervals of level {share}; p-values are two-sided."
    return section(
        "Standard errors",
        paragraph(about),
        *(paragraph(text(note)) for note in inference.notes),
        *(paragraph(f"Warning: {text(warning)}") for warning in inference.warnings),
        table(heads, rows, numbers_from=1),
        id="inference",
    )
