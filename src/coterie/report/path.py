"""The page about a path: the loss on rows kept back and the coefficients, over the strengths of the penalty."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter

from coterie.arrays import FloatArray
from coterie.errors import count, shortened
from coterie.path import Path
from coterie.progress import format_bits
from coterie.report.figures import BLUE, COLUMN_LETTERS, GREEN, HUES, INK, QUIET, VERMILION, styled
from coterie.report.html import document, figure_block, paragraph, section, table
from coterie.report.page import foot, status_mark
from coterie.report.words import number, plain, text
from coterie.result import Result

INCHES = (4.6, 3.0)
TITLES = {"path-scores": "Loss on rows kept back", "path-coefficients": "Coefficients"}
NAMED = 10
"""So many coefficients have a name and a colour of their own."""


def path_figures(path: Path) -> dict[str, Figure]:
    """The pictures of a path, by their names."""
    drawn = {} if path.scores is None else {"path-scores": scores(path)}
    return {**drawn, "path-coefficients": coefficients(path)}


def path_page(path: Path) -> str:
    """The whole page."""
    first = path.results[0]
    title = _headline(path)
    header = (
        f'<div class="brand"><b>Coterie</b><span>path of strengths</span></div>\n<h1>{text(title)}</h1>\n'
        f'<p class="lead">{text(_story(path))}</p>\n{_cards(path)}'
    )
    return document(f"{text(title)} · Coterie", header, [render(path), _all(path)], foot(first))


def render(path: Path, result: Result | None = None) -> str:
    """The section with the pictures; `result` is the one whose page it stands on, if it is not the path's own."""
    words = "Every strength was fitted to all rows, starting from the answer of the one before."
    if path.scores is not None:
        words += (
            f" Then each of {len(path.scores)} folds was kept back at the parties, and the models of the other rows "
            "were scored on it. Bars are one standard error. "
            f"The least mean loss is at {number(path.best_strength, 4)}; the strongest penalty within one standard "
            f"error of it is {number(path.strengths[path.simplest], 4)}."
        )
    pictures = path_figures(path).items()
    drawn = "".join(figure_block(figure, name, f"{TITLES[name]}, over strengths") for name, figure in pictures)
    return section("Strength of the penalty", paragraph(words), f'<div class="pair">{drawn}</div>', id="path")


def _headline(path: Path) -> str:
    if path.scores is None:
        return f"{len(path.strengths)} strengths of the penalty"
    rule = "the least loss" if path.rule == "best" else "within one standard error of the least loss"
    return f"{path.knob.capitalize()} {number(path.chosen_strength, 4)}: {rule} on rows kept back"


def _story(path: Path) -> str:
    problem, people = path.results[0].model.problem, path.results[0].certificate.participants
    done = sum(result.status.success for result in path.results)
    parties = count(len(people), "party" if len(people) == 1 else "partie")
    return (
        f"{count(len(path.strengths), 'model')} ({problem.kind.words(problem)}) from {parties}, "
        f"{done} of them solved and proven to the tolerance."
    )


def _cards(path: Path) -> str:
    cards = [("Strengths", f"{len(path.strengths)}", f"{number(max(path.strengths))} to {number(min(path.strengths))}")]
    if path.scores is not None:
        cards += [
            ("Chosen", number(path.chosen_strength, 4), f"rule: {path.rule}, {len(path.scores)} folds"),
            ("Loss on rows kept back", number(path.means[path.chosen], 4), f"± {number(path.errors[path.chosen])}"),
        ]
    sent = format_bits(path.validation.bits)
    cards.append(("Data sent", format_bits(path.total.bits), f"{sent} of it for the folds and the grid"))
    inner = "".join(f'<div class="card"><dt>{a}</dt><dd>{b}</dd><dd>{c}</dd></div>' for a, b, c in cards)
    return f'<dl class="cards">{inner}</dl>'


def _all(path: Path) -> str:
    low_rank = hasattr(path.results[0].model, "rank_")
    heads = [path.knob, "ended", "objective", "relative gap", "rank" if low_rank else "not zero", "rounds", "sent"]
    heads += [] if path.scores is None else ["loss, rows kept back", "standard error"]
    rows = []
    for place, (row, result) in enumerate(zip(path.table(), path.results, strict=True)):
        chosen = path.scores is not None and place == path.chosen
        strength = number(row[path.knob], 5)
        cells = [
            f'<span class="winner">{strength} ★</span>' if chosen else strength,
            status_mark(result.status),
            number(row["objective"], 8),
            f"{row['relative gap']:.1e}",
            f"{row['rank' if low_rank else 'nonzero']:,}",
            f"{row['rounds']:,}",
            format_bits(result.bill.total.bits),
        ]
        rows.append(cells + ([number(row["cv loss"], 6), number(row["cv error"])] if path.scores is not None else []))
    words = "The folder of each strength, next to this page, has its model, its certificate and its run."
    marked = " A star marks the strength that was chosen." if path.scores is not None else ""
    return section(
        "All strengths", paragraph(words + marked, "muted small"), table(heads, rows, numbers_from=2), id="strengths"
    )


# -- pictures ----------------------------------------------------------------------------------------------------------


@styled
def scores(path: Path) -> Figure:
    """The mean loss on rows kept back with its standard error, and the strengths that the two rules choose."""
    figure, ax = _axes("mean loss on rows kept back", path.strengths)
    order = np.argsort(path.strengths)
    x, means, errors = np.array(path.strengths)[order], path.means[order], path.errors[order]
    ax.errorbar(x, means, errors, color=BLUE, ecolor=QUIET, elinewidth=1.0, capsize=2, linewidth=1.4, marker="o", ms=3)
    limit = path.means[path.best] + path.errors[path.best]
    ax.axhline(limit, color=QUIET, linewidth=0.8, linestyle=(0, (1, 2)))
    low, high = float(np.min(means - errors)), float(np.max(means + errors))
    ax.set_ylim(low - 0.05 * (high - low or 1.0), high + 0.16 * (high - low or 1.0))
    same = path.best == path.simplest
    for name, place, hue in (("best", path.best, GREEN), ("1se", path.simplest, VERMILION)):
        if name == "1se" and same:
            continue
        label = "best, 1se" if same else name
        ax.axvline(path.strengths[place], color=hue, linewidth=1.0, linestyle=(0, (4, 3)))
        right = path.strengths[place] >= path.strengths[path.best if name == "1se" else path.simplest]
        ax.annotate(
            label,
            (path.strengths[place], 1.0),
            xycoords=("data", "axes fraction"),
            xytext=(3 if right else -3, -3),
            textcoords="offset points",
            ha="left" if right else "right",
            va="top",
            color=hue,
            size=8,
        )
    return figure


@styled
def coefficients(path: Path) -> Figure:
    """Every coefficient over the strengths; of several classes, the length of a column's coefficients."""
    several = path.coefficients.ndim == 3
    what = "length of a column's coefficients" if several else "coefficients"
    figure, ax = _axes(what, path.strengths)
    order = np.argsort(path.strengths)
    model: Any = path.results[0].model
    # A matrix of low rank has a row for every column of the data, or is the matrix itself.
    low_rank, completed = hasattr(model, "rank_"), getattr(model.problem.loss, "kind", None) == "entries"
    values: FloatArray = np.linalg.norm(path.coefficients, axis=1 + low_rank) if several else path.coefficients
    x, values = np.array(path.strengths)[order], values[order]
    names = None if completed else model.columns
    if names is None:
        names = [f"{'row' if completed else 'column'} {j}" for j in range(values.shape[1])]
        if completed and model.row_ids is not None:
            names = model.row_ids.tolist()
    largest = np.argsort(-np.abs(values).max(axis=0), kind="stable")
    ax.axhline(0, color=INK, linewidth=0.6)
    for j in reversed(largest[NAMED:].tolist()):
        ax.plot(x, values[:, j], color=QUIET, linewidth=0.7, alpha=0.6)
    shown = [j for j in largest[:NAMED].tolist() if values[:, j].any()]
    shown.sort(key=lambda j: -values[0, j])  # as the lines begin, from above
    for place, j in enumerate(shown):
        name = shortened(plain(str(names[j])), COLUMN_LETTERS)
        ax.plot(x, values[:, j], color=HUES[place % len(HUES)], linewidth=1.4, label=name.lstrip("_"))
    if path.scores is not None:
        ax.axvline(path.chosen_strength, color=INK, linewidth=0.8, linestyle=(0, (4, 3)))
    if shown:
        legend = ax.legend(frameon=False, fontsize=7, handlelength=1.2, loc="upper left", bbox_to_anchor=(1.0, 1.03))
        for written in legend.get_texts():
            written.set_parse_math(False)
    return figure


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
