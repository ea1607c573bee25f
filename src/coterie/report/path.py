"""The report of a path: the loss on held-out rows and the coefficients, over the strengths of the
penalty.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter

from coterie.api.path import Path
from coterie.api.progress import format_bits
from coterie.api.result import Result
from coterie.errors import count, shortened
from coterie.numerics.arrays import FloatArray
from coterie.report.figures import BLUE, COLUMN_LETTERS, GREEN, HUES, INK, QUIET, VERMILION, styled
from coterie.report.html import cards_list, document, figure_block, paragraph, section, table
from coterie.report.page import foot, parties_of, status_mark
from coterie.report.words import number, plain, text

INCHES = (4.6, 3.0)
TITLES = {"path-scores": "Loss on held-out rows", "path-coefficients": "Coefficients"}
NAMED = 10
"""Number of coefficients with a name and a colour of their own."""


def path_figures(path: Path) -> dict[str, Figure]:
    """The figures of a path, by name."""
    drawn = {}
    if path.scores is not None:
        drawn["path-scores"] = scores(path)
    drawn["path-coefficients"] = coefficients(path)
    return drawn


def path_page(path: Path) -> str:
    """The HTML page of a path."""
    first = path.results[0]
    title = _headline(path)
    header = (
        '<div class="brand"><b>Coterie</b><span>path of '
        f"strengths</span></div>\n<h1>{text(title)}</h1>\n"
        f'<p class="lead">{text(_story(path))}</p>\n{_cards(path)}'
    )
    return document(f"{text(title)} · Coterie", header, [render(path), _all(path)], foot(first))


def render(path: Path, result: Result | None = None) -> str:
    """The section with the figures. `result` is the result of the page, if it is not the path's own
    page.
    """
    words = "Every strength was fitted to all rows, starting from the answer of the one before."
    if path.scores is not None:
        words += (
            f" Then each of {len(path.scores)} folds was held out at the parties, and the models "
            "of the other rows "
            "were scored on it. Bars are one standard error. "
            f"The least mean loss is at {number(path.best_strength, 4)}; the strongest penalty "
            "within one standard "
            f"error of it is {number(path.strengths[path.simplest], 4)}."
        )
    drawn = ""
    for name, figure in path_figures(path).items():
        drawn += figure_block(figure, name, f"{TITLES[name]}, over strengths")
    return section(
        "Strength of the penalty", paragraph(words), f'<div class="pair">{drawn}</div>', id="path"
    )


def _headline(path: Path) -> str:
    if path.scores is None:
        return f"{len(path.strengths)} strengths of the penalty"
    rule = "within one standard error of the least loss"
    if path.rule == "best":
        rule = "the least loss"
    return f"{path.knob.capitalize()} {number(path.chosen_strength, 4)}: {rule} on held-out rows"


def _story(path: Path) -> str:
    first = path.results[0]
    problem = first.model.problem
    models = count(len(path.strengths), "model")
    kind = problem.kind.report.words(problem)
    parties = parties_of(first)
    done = sum(result.status.success for result in path.results)
    return f"{models} ({kind}) from {parties}, {done} of them solved and proven to the tolerance."


def _cards(path: Path) -> str:
    span = f"{number(max(path.strengths))} to {number(min(path.strengths))}"
    cards = [("Strengths", f"{len(path.strengths)}", span)]
    if path.scores is not None:
        cards += [
            (
                "Chosen",
                number(path.chosen_strength, 4),
                f"rule: {path.rule}, {len(path.scores)} folds",
            ),
            (
                "Loss on held-out rows",
                number(path.means[path.chosen], 4),
                f"± {number(path.errors[path.chosen])}",
            ),
        ]
    sent = format_bits(path.validation.bits)
    cards.append(
        ("Data sent", format_bits(path.total.bits), f"{sent} of it for the folds and the grid")
    )
    return cards_list(cards)


def _all(path: Path) -> str:
    size, size_head = "nonzero", "not zero"
    if hasattr(path.results[0].model, "rank_"):
        size = size_head = "rank"
    heads = [path.knob, "ended", "objective", "relative gap", size_head, "rounds", "sent"]
    words = (
        "The folder of each strength, next to this page, has its model, its certificate and its "
        "run."
    )
    if path.scores is not None:
        heads += ["loss, held-out rows", "standard error"]
        words += " A star marks the strength that was chosen."
    rows = []
    for place, (row, result) in enumerate(zip(path.table(), path.results, strict=True)):
        strength = number(row[path.knob], 5)
        if path.scores is not None and place == path.chosen:
            strength = f'<span class="winner">{strength} ★</span>'
        cells = [
            strength,
            status_mark(result.status),
            number(row["objective"], 8),
            f"{row['relative gap']:.1e}",
            f"{row[size]:,}",
            f"{row['rounds']:,}",
            format_bits(result.bill.total.bits),
        ]
        if path.scores is not None:
            cells += [number(row["cv loss"], 6), number(row["cv error"])]
        rows.append(cells)
    listed = table(heads, rows, numbers_from=2)
    return section("All strengths", paragraph(words, "muted small"), listed, id="strengths")


# -- pictures --------------------------------------------------------------------------------------


@styled
def scores(path: Path) -> Figure:
    """The mean loss on held-out rows with its standard error, and the strengths that the two rules
    choose.
    """
    figure, ax = _axes("mean loss on held-out rows", path.strengths)
    order = np.argsort(path.strengths)
    x = np.array(path.strengths)[order]
    means = path.means[order]
    errors = path.errors[order]
    ax.errorbar(
        x,
        means,
        errors,
        color=BLUE,
        ecolor=QUIET,
        elinewidth=1.0,
        capsize=2,
        linewidth=1.4,
        marker="o",
        ms=3,
    )
    limit = path.means[path.best] + path.errors[path.best]
    ax.axhline(limit, color=QUIET, linewidth=0.8, linestyle=(0, (1, 2)))
    low = float(np.min(means - errors))
    high = float(np.max(means + errors))
    ax.set_ylim(low - 0.05 * (high - low or 1.0), high + 0.16 * (high - low or 1.0))
    best = path.strengths[path.best]
    simplest = path.strengths[path.simplest]
    if path.best == path.simplest:
        _mark_strength(ax, "best, 1se", best, GREEN, right=True)
    else:
        _mark_strength(ax, "best", best, GREEN, right=best >= simplest)
        _mark_strength(ax, "1se", simplest, VERMILION, right=simplest >= best)
    return figure


def _mark_strength(ax: Axes, label: str, strength: float, hue: str, right: bool) -> None:
    """Draw a vertical line at a strength, with a label to its right or left."""
    ax.axvline(strength, color=hue, linewidth=1.0, linestyle=(0, (4, 3)))
    offset, alignment = (3, "left") if right else (-3, "right")
    ax.annotate(
        label,
        (strength, 1.0),
        xycoords=("data", "axes fraction"),
        xytext=(offset, -3),
        textcoords="offset points",
        ha=alignment,
        va="top",
        color=hue,
        size=8,
    )


@styled
def coefficients(path: Path) -> Figure:
    """Every coefficient over the strengths; for several classes, the norm of each column's
    coefficients.
    """
    model: Any = path.results[0].model
    title = "coefficients"
    values: FloatArray = path.coefficients
    if values.ndim == 3:
        title = "length of a column's coefficients"
        # A matrix of low rank has a row for every column of the data, or is the matrix itself.
        low_rank = hasattr(model, "rank_")
        values = np.linalg.norm(values, axis=1 + low_rank)
    figure, ax = _axes(title, path.strengths)
    order = np.argsort(path.strengths)
    x = np.array(path.strengths)[order]
    values = values[order]
    names = _coefficient_names(model, values.shape[1])
    largest = np.argsort(-np.abs(values).max(axis=0), kind="stable")
    ax.axhline(0, color=INK, linewidth=0.6)
    for j in reversed(largest[NAMED:].tolist()):
        ax.plot(x, values[:, j], color=QUIET, linewidth=0.7, alpha=0.6)
    shown = [j for j in largest[:NAMED].tolist() if values[:, j].any()]
    shown.sort(
        key=lambda j: -values[0, j]
    )  # in the order of the left ends of the lines, from above
    for place, j in enumerate(shown):
        name = shortened(plain(str(names[j])), COLUMN_LETTERS)
        ax.plot(
            x, values[:, j], color=HUES[place % len(HUES)], linewidth=1.4, label=name.lstrip("_")
        )
    if path.scores is not None:
        ax.axvline(path.chosen_strength, color=INK, linewidth=0.8, linestyle=(0, (4, 3)))
    if shown:
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


def _coefficient_names(model: Any, count: int) -> Sequence[Any]:
    """The names of the columns of the data; of the rows for a completed matrix."""
    if getattr(model.problem.loss, "kind", None) == "entries":
        if model.row_ids is not None:
            return list(model.row_ids.tolist())
        return [f"row {j}" for j in range(count)]
    if model.columns is not None:
        return list(model.columns)
    return [f"column {j}" for j in range(count)]


def _axes(title: str, strengths: Sequence[float]) -> tuple[Figure, Axes]:
    figure = Figure(figsize=INCHES, layout="constrained")
    ax = figure.add_subplot()
    ax.set_title(title, loc="left", size=9, pad=7)
    ax.set_xlabel("strength of the penalty")
    if min(strengths) > 0:
        ax.set_xscale("log")
        ax.xaxis.set_major_locator(LogLocator(numticks=6))
        ax.xaxis.set_minor_formatter(NullFormatter())
    ax.grid(axis="y", color=QUIET, alpha=0.25, linewidth=0.6)
    ax.set_axisbelow(True)
    return figure, ax
