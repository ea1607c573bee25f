"""The report's section on survival: a curve for each party and stratum, and the concordance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from coterie.api.result import Result
from coterie.data import Table
from coterie.errors import shortened
from coterie.problems.survival.labels import EVENT
from coterie.problems.survival.likelihood import concordance_counts
from coterie.problems.survival.model import Baseline
from coterie.report.figures import COLUMN_LETTERS, HUES, QUIET, styled
from coterie.report.html import figure_block, paragraph, section
from coterie.report.words import number, plain

INCHES = (5.6, 3.0)
NAMED = 10
"""Number of curves with a name and a colour of their own."""


def render(tables: Sequence[Table], result: Result) -> str:
    """The section with the figure, for tables in this process."""
    model = result.model
    counts = np.zeros(3)
    events = 0
    labelled = [table for table in tables if table.y is not None and table.n]
    for table in labelled:
        y = np.asarray(table.y, float)
        counts += concordance_counts(y, model.predict(table, table.offset), table.weights)
        events += int((y[:, EVENT] > 0).sum())
    lower, equal, every = counts.tolist()
    concordance = "not defined"
    if every:
        concordance = number((lower + 0.5 * equal) / every, 4)
    rows = sum(table.n for table in labelled)
    words = (
        f"{events:,} events in {rows:,} rows. Concordance {concordance}, on these rows: of the "
        "pairs in which the earlier event is known, the share that the scores put in the right "
        "order. The curves show the share without an event, for a row with the average score of "
        "its party. They come from baseline hazards, which no party sent to another: this page "
        "was made where all these files are."
    )
    drawn = curves({table.name: model.baseline(table) for table in labelled})
    figure = figure_block(drawn, "survival", "Share without an event")
    return section("Survival", paragraph(words), figure, id="survival")


@styled
def curves(baselines: Mapping[str, Baseline]) -> Figure:
    """Survival over time, a step at each time of an event."""
    figure = Figure(figsize=INCHES, layout="constrained")
    ax = figure.add_subplot()
    ax.set_title("share without an event", loc="left", size=9, pad=7)
    ax.set_xlabel("time")
    ax.set_ylim(0, 1.02)
    ax.grid(axis="y", color=QUIET, alpha=0.25, linewidth=0.6)
    drawn = 0
    for name, baseline in baselines.items():
        for curve in baseline.curves:
            if not len(curve.times):
                continue
            title = name
            if len(baseline.curves) > 1:
                title = f"{name}, stratum {curve.stratum:g}"
            look: dict[str, Any] = {"color": QUIET, "linewidth": 0.7}
            if drawn < NAMED:
                label = shortened(plain(title), COLUMN_LETTERS).lstrip("_")
                look = {"color": HUES[drawn % len(HUES)], "linewidth": 1.4, "label": label}
            survival = np.exp(-np.append(0.0, curve.hazard))
            ax.step(np.append(0.0, curve.times), survival, where="post", **look)
            drawn += 1
    if drawn:
        legend = ax.legend(
            frameon=False,
            fontsize=7,
            handlelength=1.2,
            loc="upper left",
            bbox_to_anchor=(1.0, 1.03),
        )
        for written in legend.get_texts():
            written.set_parse_math(False)
    return figure
