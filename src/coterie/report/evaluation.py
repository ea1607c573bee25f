"""The report's section on held-out rows: scores, calibration, ROC curve, confusion matrix."""

from __future__ import annotations

import math

import numpy as np
from matplotlib.figure import Figure

from coterie.api.evaluation import WORDS, Evaluation
from coterie.api.result import Result
from coterie.errors import shortened
from coterie.report.figures import BLUE, GAP_INCHES, HUES, QUIET, style
from coterie.report.html import definitions, details, figure_block, paragraph, section, table
from coterie.report.words import number, plain, text, written_value

MOST_CURVES, NAME_LETTERS = 8, 16
MOST_CLASSES = 40
"""Largest number of classes for which the confusion matrix is shown."""


def render(evaluation: Evaluation, result: Result) -> str:
    """Scores next to the figures; the confusion matrix and the bins as tables."""
    scores = definitions((text(name), text(value)) for name, value in evaluation.table())
    drawn = ""
    for name, figure in evaluation_figures(evaluation).items():
        drawn += figure_block(figure, name, name.replace("-", " "))
    words = f"How well the model predicts rows that it was not fitted to: {text(evaluation.about)}."
    if evaluation.auc_bound:
        words += (
            " The AUC and the ROC curve come from counts on a grid of scores; the AUC of the "
            "pooled rows is within "
            f"{number(evaluation.auc_bound, 1)} of this one."
        )
    charts = f'<div class="charts">{scores}{drawn}</div>'
    tables = [_confusion(evaluation), _bins(evaluation), _parties(evaluation)]
    return section(
        "Held-out rows", paragraph(words), charts, *filter(None, tables), id="evaluation"
    )


def evaluation_figures(evaluation: Evaluation) -> dict[str, Figure]:
    """The figures, by name."""
    found = {}
    if any(one.weight for one in evaluation.calibration):
        found["calibration"] = _calibration(evaluation)
    if any(len(points) for points in evaluation.roc.values()):
        found["roc"] = _roc(evaluation)
    return found


def _calibration(evaluation: Evaluation) -> Figure:
    filled = [one for one in evaluation.calibration if one.weight]
    x = np.array([one.predicted for one in filled])
    y = np.array([one.observed for one in filled])
    if evaluation.classes:
        low, high = 0.0, 1.0
        predicted, observed = "predicted probability", "observed share"
    else:
        low = float(min(x.min(), y.min()))
        high = float(max(x.max(), y.max()))
        predicted, observed = "predicted", "observed"
    weights = np.array([one.weight / evaluation.weight for one in filled])
    margin = 0.03 * ((high - low) or 1.0)
    with style():
        figure = Figure(figsize=GAP_INCHES, layout="constrained")
        ax = figure.add_subplot()
        ax.plot([low, high], [low, high], color=QUIET, linewidth=1.0, linestyle=(0, (4, 3)))
        ax.plot(x, y, color=BLUE, linewidth=1.2)
        ax.scatter(x, y, 12 + 60 * np.sqrt(weights), color=BLUE)
        ax.set_xlim(low - margin, high + margin)
        ax.set_ylim(low - margin, high + margin)
        ax.set_xlabel(predicted)
        ax.set_title(observed, loc="left", size=9, pad=7)
    return figure


def _roc(evaluation: Evaluation) -> Figure:
    shown = list(evaluation.roc.items())[:MOST_CURVES]
    with style():
        figure = Figure(figsize=GAP_INCHES, layout="constrained")
        ax = figure.add_subplot()
        ax.plot([0, 1], [0, 1], color=QUIET, linewidth=1.0, linestyle=(0, (4, 3)))
        for place, (name, points) in enumerate(shown):
            hue = BLUE if len(shown) == 1 else HUES[place % len(HUES)]
            ax.plot(*points.T, color=hue, linewidth=1.4, label=shortened(plain(name), NAME_LETTERS))
        ax.set_xlim(0, 1.01)
        ax.set_ylim(0, 1.01)
        ax.set_xlabel("false positive rate")
        ax.set_title("true positive rate", loc="left", size=9, pad=7)
        if len(shown) > 1:
            legend = ax.legend(frameon=False, fontsize=8, handlelength=1.2, loc="lower right")
            for label in legend.get_texts():
                label.set_parse_math(False)
    return figure


def _confusion(evaluation: Evaluation) -> str:
    matrix = evaluation.confusion
    classes = evaluation.classes
    if matrix is None or classes is None or len(classes) > MOST_CLASSES:
        return ""
    names = [text(written_value(label)) for label in classes]
    rows = []
    for name, row in zip(names, matrix.tolist(), strict=True):
        rows.append([name, *(number(cell, 6) for cell in row)])
    heading = paragraph("Confusion matrix: true classes down, predicted classes across.")
    return heading + table(("true class", *names), rows, numbers_from=1)


def _bins(evaluation: Evaluation) -> str:
    if not evaluation.calibration:
        return ""
    rows = [
        (text(one.span), number(one.weight, 6), _number(one.predicted), _number(one.observed))
        for one in evaluation.calibration
    ]
    return details(
        "Calibration as a table", table(("prediction", "rows", "predicted", "observed"), rows, 1)
    )


def _parties(evaluation: Evaluation) -> str:
    if not evaluation.parties:
        return ""
    names: dict[str, None] = {}
    for scores in evaluation.parties.values():
        names |= dict.fromkeys(scores)
    rows = []
    for party, scores in evaluation.parties.items():
        rows.append([text(party), *(_number(scores.get(name, math.nan)) for name in names)])
    heads = ["party", *(text(WORDS.get(name, name)) for name in names)]
    return paragraph("Single parties, on their rows.") + table(heads, rows, numbers_from=1)


def _number(value: float) -> str:
    if math.isfinite(value):
        return number(value, 4)
    return "–"
