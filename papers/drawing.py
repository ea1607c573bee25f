"""Panels of lines in the house's style: the same ground, ink and hues as in the reports."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import matplotlib.style
import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.colors import LinearSegmentedColormap, to_hex
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

from coterie.report.figures import (
    BLUE,
    GREEN,
    GREY,
    INK,
    OCHRE,
    PURPLE,
    QUIET,
    SKY,
    STYLE,
    VERMILION,
    colour,
    rendered,
)
from papers.study import Curve, Numbers

LADDER = (SKY, BLUE, GREEN, OCHRE, VERMILION, PURPLE, GREY)
"""Hues for what is counted or tuned, in this order, where the method is the same in all curves."""
PALE = "#e5e7eb"
"""What text turns to on a dark ground."""
PANEL_INCHES = (2.7, 2.15)
FEW_DECADES, MULTIPLES = 1.7, (range(1, 10), (1, 2, 5), (1, 3))
"""On a logarithmic axis with fewer decades, as many multiples of a power of ten are labelled as
there is room for.
"""
PLAIN = (0.1, 1000)
"""Between these, powers of ten are written out."""
FLOOR = 1e-16
"""Values at or below it are drawn there: rounding is all that is left of them."""

Hue = Callable[[Curve], str]
Stroke = Callable[[Curve], Any]
SOLID, DASHED, DOTTED = "-", (0, (4.0, 2.0)), (0, (1.0, 1.5))


def dashed(wanted: Callable[[Curve], bool]) -> Stroke:
    """Dashed where wanted, solid elsewhere."""
    return lambda curve: DASHED if wanted(curve) else SOLID


@contextmanager
def house_style() -> Iterator[None]:
    """Within it, figures look like those of the reports."""
    with matplotlib.style.context(["default", STYLE]):
        yield


def panels(
    numbers: Numbers,
    names: Sequence[str],
    labels: Mapping[str, tuple[str, str]] | tuple[str, str],
    columns: int = 3,
    hue: Hue | None = None,
    stroke: Stroke = lambda curve: SOLID,
    log_x: bool | Collection[str] = False,
    floor: float = FLOOR,
    log_y: bool = True,
    key: Mapping[str, Any] | None = None,
) -> Figure:
    """One panel per name, curves in their method's colour or in what `hue` says, and one legend
    below.

    `key`: names of strokes for the legend below; methods are then beside each row. `log_x`: all
    panels, or some. `floor`: what is below leaves the frame; an arrow says where to.
    """
    rows = math.ceil(len(names) / columns)
    columns = min(columns, len(names))
    with house_style():
        figure = Figure(
            figsize=(PANEL_INCHES[0] * columns, PANEL_INCHES[1] * rows + 0.5), layout="constrained"
        )
        grid = figure.subplots(rows, columns, squeeze=False)
        shown: dict[str, Line2D] = {}
        hue = hue or (lambda curve: colour(curve.method))
        for place, ax in enumerate(grid.flat):
            if place >= len(names):
                ax.set_visible(False)
                continue
            name = names[place]
            across, up = labels[name] if isinstance(labels, Mapping) else labels
            curves = [curve for curve in numbers if curve.panel == name]
            logarithmic = log_x if isinstance(log_x, bool) else name in log_x
            lines(ax, curves, across, up, hue, stroke, logarithmic, floor, log_y)
            ax.set_title(name, loc="left", size=9)
            for curve in curves:
                style: Any = SOLID if key else stroke(curve)
                line = Line2D([], [], color=hue(curve), linestyle=style, linewidth=1.4)
                shown.setdefault(curve.method if key else curve.label, line)
            if key and place % columns == columns - 1:
                beside = {
                    "loc": "center left",
                    "bbox_to_anchor": (1.0, 0.5),
                    "frameon": False,
                    "fontsize": 8,
                }
                ax.legend(shown.values(), shown.keys(), **beside)
                shown = {}
        if key:
            shown = {
                name: Line2D([], [], color=INK, linestyle=style, linewidth=1.4)
                for name, style in key.items()
            }
        letters = 13.5 * PANEL_INCHES[0] * columns
        fit = max(1, min(len(shown), int(letters / (max(map(len, shown)) + 6))))
        figure.legend(
            shown.values(),
            shown.keys(),
            loc="outside lower center",
            ncols=fit,
            frameon=False,
            fontsize=8,
        )
    return figure


def ladder(step: int, steps: int) -> str:
    """A hue for what is counted: from blue for few through green and ochre to vermilion for
    many.
    """
    climb = (
        (SKY, BLUE, GREEN, OCHRE, VERMILION)
        if steps <= 5
        else (SKY, BLUE, GREEN, "#7d9a2d", OCHRE, VERMILION, "#a3301c")
    )
    share = step / max(steps - 1, 1)
    if steps <= len(climb):
        return climb[round(share * (len(climb) - 1))]
    return to_hex(LinearSegmentedColormap.from_list("ladder", climb)(share))


def lines(
    ax: Axes,
    curves: Sequence[Curve],
    across: str,
    up: str,
    hue: Hue,
    stroke: Stroke = lambda curve: SOLID,
    log_x: bool = False,
    floor: float = FLOOR,
    log_y: bool = True,
) -> None:
    """The curves, by default on a logarithmic axis of heights."""
    for curve in curves:
        heights = np.where(np.isfinite(curve.y), curve.y, np.nan)
        ax.plot(
            curve.x,
            np.maximum(heights, FLOOR) if log_y else heights,
            color=hue(curve),
            linestyle=stroke(curve),
            linewidth=1.4,
            marker="o" if len(curve.x) == 1 else None,
            markersize=3.0,
            label=curve.label,
            # Where curves coincide, what is below shows between the dashes.
            zorder=2.0 if stroke(curve) == SOLID else 2.1,
        )
    if log_y:
        _scale_heights(ax, curves, floor)
        for curve in curves:
            _point_below(ax, curve, floor, hue(curve))
    else:
        ax.yaxis.set_major_locator(MaxNLocator(nbins=5))
    if log_x:
        ax.set_xscale("log")
        positive = [x for curve in curves for x in curve.x if x > 0]
        _label_decades(ax.xaxis, min(positive), max(positive), 4)
    else:
        places = np.concatenate([curve.x for curve in curves])
        # 2.5 rows are none; where there are many of them, ticks are whole by themselves.
        whole = bool(np.ptp(places) < 20 and np.all(places == np.round(places)))
        ax.xaxis.set_major_locator(MaxNLocator(nbins=4, steps=[1, 2, 2.5, 5, 10], integer=whole))
    ax.grid(axis="y", color=QUIET, alpha=0.25, linewidth=0.6)
    ax.set_axisbelow(True)
    ax.set_xlabel(across, size=8)
    ax.set_ylabel(up, size=8)
    ax.tick_params(labelsize=8)


def _scale_heights(ax: Axes, curves: Sequence[Curve], floor: float) -> None:
    ax.set_yscale("log")
    heights = np.concatenate([np.maximum(curve.y[np.isfinite(curve.y)], FLOOR) for curve in curves])
    least, most = max(heights.min(), floor), min(heights.max(), 1e3 * np.median(heights) + 10)
    low, high = math.log10(float(least)), math.log10(float(most))
    ax.set_ylim(10 ** (low - 0.05 * (high - low) - 0.1), 10 ** (high + 0.05 * (high - low) + 0.1))
    _label_decades(ax.yaxis, float(least), float(most), 6 if high - low > 1 else 4)


def _point_below(ax: Axes, curve: Curve, floor: float, hue: str) -> None:
    """An arrow on the lower edge at the first point of a curve below the frame, and how far down it
    gets.
    """
    below = np.flatnonzero(curve.y < floor)
    if below.size and floor > FLOOR:
        place, edge = (float(curve.x[below[0]]), 0.0), ax.get_xaxis_transform()
        ax.plot(
            *place, marker="v", markersize=5.0, color=hue, transform=edge, clip_on=False, zorder=3.0
        )
        text = f"{float(np.min(curve.y[below])):.0e}"
        where: dict[str, Any] = {"xytext": (5, 5), "textcoords": "offset points"}
        ax.annotate(text, place, xycoords=edge, size=7, color=hue, **where)


def _label_decades(axis: Axis, least: float, most: float, ticks: int) -> None:
    """Powers of ten, and where there are few of them, some or all of their multiples as well."""
    decades = math.log10(most / least)
    if decades < FEW_DECADES:
        multiples = next(
            (some for some in MULTIPLES if decades * len(some) <= ticks), MULTIPLES[-1]
        )
        axis.set_major_locator(LogLocator(subs=multiples, numticks=12))
    else:
        axis.set_major_locator(LogLocator(numticks=ticks))
    if decades < FEW_DECADES or (least > PLAIN[0] and most < PLAIN[1]):
        axis.set_major_formatter(FuncFormatter(lambda value, _: _number(value)))
    axis.set_minor_locator(NullLocator())


def _number(value: float) -> str:
    digits, _, power = f"{value:g}".partition("e")
    return rf"${digits}\cdot10^{{{int(power)}}}$" if power else digits


def themed_svg(figure: Figure) -> bytes:
    """The figure as an SVG on no ground, whose text is dark in a light theme and pale in a dark
    one.
    """
    drawing = rendered(figure, "svg", ground="none").decode()
    drawing = drawing.replace(INK, "currentColor")
    rule = (
        f"svg {{ color: {INK} }} @media screen and (prefers-color-scheme: dark) {{ svg {{ color: "
        f"{PALE} }} }}"
    )
    return re.sub(r"(<svg[^>]*>)", rf"\1<style>{rule}</style>", drawing, count=1).encode()
