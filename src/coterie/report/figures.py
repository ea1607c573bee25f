"""The figures of a report, drawn with matplotlib, neither using nor changing its global settings.

Text and axes have the colour `INK`, which a page replaces by its own colour of text; all other
colours are mid-tones that are visible on a light and on a dark ground. The hues are those of Okabe
and Ito, which colour-blind readers can tell apart, with the light ones darkened.
"""

from __future__ import annotations

import io
import math
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import wraps
from typing import ParamSpec

import matplotlib.style
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

from coterie.api.progress import format_bits
from coterie.api.result import Result
from coterie.errors import shortened
from coterie.methods import METHODS
from coterie.numerics.arrays import FloatArray
from coterie.problems.models import kind_of
from coterie.problems.parts.report import SHOWN, Shown
from coterie.report.networks import draw_network
from coterie.report.words import number, plain

P = ParamSpec("P")

INK = "#1f2a37"
QUIET = "#8b95a3"
BLUE = "#0f7ac0"
VERMILION = "#d55e00"
GREEN = "#009e73"
PURPLE = "#c0669b"
OCHRE = "#b8860b"
SKY = "#3c9fd6"
GREY = "#7b8794"
VIOLET = "#7356d8"
BROWN = "#a3592d"
OLIVE = "#6f8f23"
RED = "#d1495b"
TEAL = "#2a8c8c"

HUES = (GREEN, PURPLE, SKY, BLUE, VERMILION, OCHRE, VIOLET, BROWN, OLIVE, RED, TEAL, GREY)
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "h", "p", "d")
"""Markers differ, too, because some readers cannot tell all of these colours apart."""
STYLE = {
    "svg.fonttype": "none",
    "svg.hashsalt": "coterie",
    "pdf.fonttype": 42,
    "font.size": 9,
    "text.color": INK,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.facecolor": "none",
    "figure.facecolor": "none",
    "xtick.color": INK,
    "ytick.color": INK,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "xtick.major.size": 3,
    "ytick.major.size": 3,
}

GAP_INCHES = (3.3, 2.5)
LEGEND_INCHES = 1.4
WIDE_INCHES, BAR_INCHES = 4.9, 0.235
LABEL_SPACE = 0.28
"""Free space next to the longest bar for its number, as a share of the width of all bars."""
STRIP = 1.8
"""Least ratio of width to height for which a network is drawn across the page."""
NAMED_AGENTS, NAME_LETTERS, COLUMN_LETTERS = 24, 18, 30
MOST_LABELS = 6
"""Largest number of labels on the axis of gaps."""
DOTS_PER_INCH = {"svg": 144, "pdf": 300, "png": 200}
"""Resolution of a figure by format; in vector formats, of parts with too many lines."""
DOTTED_RECORDS = 40
"""Largest number of records for which each one gets a dot."""

AXES: dict[str, tuple[Callable[[Result], FloatArray], str, Callable[[float], str]]] = {
    "rounds": (
        lambda result: result.history["round"].astype(float),
        "rounds",
        lambda x: f"{x:,.0f}",
    ),
    "bytes": (lambda result: result.history["bits"] / 8, "data sent", lambda x: format_bits(8 * x)),
    "seconds": (lambda result: result.history["seconds"], "seconds", lambda x: f"{x:g}"),
}
"""The horizontal axes of gaps: values, label, and format of a tick."""


def colour(method: str) -> str:
    """The colour of a method, the same in every figure. Methods of Coterie for the same problems
    differ.
    """
    return HUES[_place(method) % len(HUES)]


def marker(method: str) -> str:
    """The marker of a method."""
    return MARKERS[_place(method) % len(MARKERS)]


def _place(method: str) -> int:
    ours = {
        name: entry for name, entry in METHODS.items() if entry.__module__.startswith("coterie.")
    }
    if method not in ours:
        return sum(method.encode(errors="replace")) % 5
    split = ours[method].split
    family = ours[method].family
    comparable = [
        name for name, entry in ours.items() if entry.split == split and entry.family == family
    ]
    return comparable.index(method)


def figures(result: Result) -> dict[str, Figure]:
    """Every figure of the report by its name; a model with nothing to show has no figure."""
    found = {f"gap-{against}": gap_against(result, against) for against in AXES}
    found["network"] = network(result)
    return found | model_figures(result)


def rendered(figure: Figure, format: str, *, ground: str = "white") -> bytes:
    """The figure as the content of a file, the same bytes every time."""
    left_out = {
        "svg": ("Creator", "Date", "Format", "Type"),
        "pdf": ("CreationDate",),
        "png": ("Software",),
    }
    metadata = dict.fromkeys(left_out[format])
    buffer = io.BytesIO()
    with style(), warnings.catch_warnings():
        # An SVG shows a name in the fonts of the reader, even if matplotlib's font lacks its
        # script.
        warnings.filterwarnings("ignore", message=r".*Glyph .* missing from font")
        warnings.filterwarnings(
            "ignore", message=r".*Matplotlib currently does not support .* natively"
        )
        figure.savefig(
            buffer, format=format, facecolor=ground, dpi=DOTS_PER_INCH[format], metadata=metadata
        )
    return buffer.getvalue()


@contextmanager
def style() -> Iterator[None]:
    """Fonts and lines of all figures, independent of the settings of matplotlib."""
    with matplotlib.style.context(["default", STYLE]):
        yield


def styled(drawing: Callable[P, Figure]) -> Callable[P, Figure]:
    """A decorator: draw a figure in the style of all figures."""

    @wraps(drawing)
    def drawn(*given: P.args, **named: P.kwargs) -> Figure:
        with style():
            return drawing(*given, **named)

    return drawn


# -- the gap ---------------------------------------------------------------------------------------


def gap_against(result: Result, against: str, logarithmic: bool | None = None) -> Figure:
    """The relative gap against "rounds", "bytes" or "seconds", with the tolerance.

    The axis of gaps is logarithmic. Without `logarithmic`, the other axis is the one for which the
    curve is straighter.
    """
    return gaps_against({_method(result): result}, against, logarithmic)


def gaps_against(
    results: Mapping[str, Result],
    against: str,
    logarithmic: bool | None = None,
    *,
    legend: bool = False,
) -> Figure:
    """The relative gaps of several runs in one figure. The first word of a name, the method,
    decides its colour.
    """
    values, label, written = AXES[against]
    curves = []
    rounds = []
    for result in results.values():
        gaps = result.history["gap"] / result.certificate.unit
        known = np.isfinite(gaps)
        curves.append((values(result)[known], gaps[known]))
        rounds.append(result.history["round"][known])
    x, y = (np.concatenate(parts) for parts in zip(*curves, strict=True))
    tolerance = next(iter(results.values())).certificate.tolerance
    if logarithmic is None:
        logarithmic = straighter_in_log(rounds[0], curves[0][1])
    wider = 1.0
    if legend:
        wider += LEGEND_INCHES / GAP_INCHES[0]
    with style():
        figure = Figure(figsize=(GAP_INCHES[0] * wider, GAP_INCHES[1]))
        ax = figure.add_axes((0.145 / wider, 0.18, 0.79 / wider, 0.70))
        ax.set_yscale("log")
        low, high = _decades([*y[y > 0], tolerance], below=bool((y == 0).any()))
        bottom = 10.0**low
        top = 10.0**high
        ax.set_ylim(bottom, top)
        stride = math.ceil((high - low) / MOST_LABELS)
        exponents = range(-(-low // stride) * stride, high + 1, stride)
        ax.set_yticks(
            [10.0**exponent for exponent in exponents], list(map(_power_of_ten, exponents))
        )
        ax.yaxis.set_minor_locator(NullLocator())
        ax.grid(axis="y", color=QUIET, alpha=0.25, linewidth=0.6)
        ax.set_axisbelow(True)
        _scale_x(ax, x, written, logarithmic)
        ax.set_xlabel(label)
        ax.set_title("relative gap", loc="left", size=9, pad=7)
        ax.axhline(tolerance, color=VERMILION, linewidth=1.0, linestyle=(0, (4, 3)))
        offset, alignment = 3, "bottom"
        if math.log10(tolerance) > high - 0.1 * (high - low):  # no space above the line
            offset, alignment = -3, "top"
        ax.annotate(
            f"tolerance {tolerance:g}",
            (0.0, tolerance),
            xycoords=("axes fraction", "data"),
            xytext=(4, offset),
            textcoords="offset points",
            va=alignment,
            color=VERMILION,
            size=8,
        )
        for name, (across, heights) in zip(results, curves, strict=True):
            _draw_gaps(ax, across, heights, bottom, name)
        if legend:
            _draw_legend(ax, results)
    return figure


def _draw_legend(ax: Axes, names: Iterable[str]) -> None:
    keys = []
    for name in names:
        method = name.split(" ")[0]
        keys.append(Line2D([], [], color=colour(method), marker=marker(method), label=name))
    ax.legend(
        handles=keys,
        frameon=False,
        fontsize=8,
        handlelength=1.2,
        loc="upper left",
        bbox_to_anchor=(1.03, 1.0),
    )


def _draw_gaps(ax: Axes, x: FloatArray, y: FloatArray, bottom: float, name: str) -> None:
    method = name.split(" ")[0]
    hue = colour(method)
    if not len(y):
        ax.text(0.5, 0.5, "no finite gap", transform=ax.transAxes, ha="center", va="center")
        return
    # A logarithmic axis has no 0: a gap of exactly 0 is an arrow at the foot that points down.
    drawn = np.where(y > 0, y, 1.6 * bottom)
    dots = "" if len(y) > DOTTED_RECORDS else marker(method)
    ax.plot(x, drawn, color=hue, linewidth=1.6, marker=dots, markersize=3.2, clip_on=False)
    best = len(y) - 1 - int(np.argmin(y[::-1]))
    point = (x[best], drawn[best])
    if y[best] == 0:
        ax.plot(*point, "v", color=hue, markersize=7, clip_on=False)
        ax.annotate("0", point, xytext=(0, 6), textcoords="offset points", ha="center", color=hue)
    else:
        ax.plot(*point, marker(method), color=hue, markersize=6, clip_on=False)


def _scale_x(ax: Axes, x: FloatArray, written: Callable[[float], str], logarithmic: bool) -> None:
    end = float(x.max(initial=0.0)) or 1.0
    least = float(x[x > 0].min(initial=end))
    if logarithmic and least < end:
        decades = math.log10(end / least)
        ax.set_xscale("log")
        ax.set_xlim(least, end * 10 ** (0.03 * decades))
        subs: tuple[float, ...] = (1.0, 2.0, 5.0)
        if decades > 2:
            subs = (1.0,)
        elif decades > 1:
            subs = (1.0, 3.0)
        ax.xaxis.set_major_locator(LogLocator(subs=subs, numticks=5))
        ax.xaxis.set_minor_locator(NullLocator())
    else:
        ax.set_xlim(0.0, 1.03 * end)
        whole = end >= 1 and written(0.5) == "0"
        ax.xaxis.set_major_locator(MaxNLocator(nbins=4, steps=[1, 2, 2.5, 5, 10], integer=whole))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: written(value)))


def straighter_in_log(rounds: FloatArray, y: FloatArray) -> bool:
    """Whether log gap is straighter against log rounds (a power law) than against rounds (a linear
    rate).
    """
    usable = (rounds > 0) & (y > 0)
    if usable.sum() < 4:
        return False
    heights = np.log(y[usable])
    if np.ptp(heights) == 0:
        return False
    linear = abs(np.corrcoef(rounds[usable], heights)[0, 1])
    logarithmic = abs(np.corrcoef(np.log(rounds[usable]), heights)[0, 1])
    return bool(logarithmic > linear)


def _decades(values: list[float], below: bool) -> tuple[int, int]:
    """The exponents around the values, with some space at the foot, and one more if `below`."""
    low = math.floor(math.log10(min(values)) - 0.3)
    high = math.ceil(math.log10(max(values)))
    return max(low - below, -300), min(max(high, low + 1), 300)


def _power_of_ten(exponent: int) -> str:
    if exponent == 0:
        return "1"
    return "10" + str(exponent).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))


def _method(result: Result) -> str:
    return str(result.certificate.settings["method"]["name"])


# -- the network and the model ---------------------------------------------------------------------


def network(result: Result) -> Figure:
    """The network with the traffic of each link, and the names of the parties if there are few."""
    names = [plain(participant.name) for participant in result.certificate.participants]
    numbered = (
        all(name == f"agent {j}" for j, name in enumerate(names)) or len(names) > NAMED_AGENTS
    )
    labels = None
    if not numbered:
        labels = [shortened(name, NAME_LETTERS) for name in names]
    traffic = None
    if result.bill.network is result.network or result.bill.network.server == result.network.server:
        traffic = result.bill.per_edge
    with style():
        figure = draw_network(
            result.network, traffic=traffic, labels=labels, unit=format_bits
        ).figure
        assert isinstance(figure, Figure)
        width, height = figure.get_size_inches()
        if width < STRIP * height:
            # As wide as the bars, so that letters have the same size in all figures.
            figure = Figure(figsize=(WIDE_INCHES, WIDE_INCHES * height / width))
            axes = figure.add_axes((0.0, 0.0, 1.0, 1.0))
            draw_network(result.network, axes, traffic=traffic, labels=labels, unit=format_bits)
        for written in figure.axes[0].texts:
            written.set_parse_math(False)
    return figure


def shown_of(result: Result) -> Shown | None:
    """The numbers of a model to draw; None for a model of an unknown family."""
    kind = kind_of(result.model)
    if kind is None:
        return None
    return kind.report.shown(result.model, result.certificate.participants)


def model_figures(result: Result) -> dict[str, Figure]:
    """The figures of the model, by name; they depend on its kind."""
    shown = shown_of(result)
    if shown is not None and shown.bars:
        return {shown.picture: bars(shown.bars[:SHOWN])}
    return {}


def bars(shown: Sequence[tuple[str, float]]) -> Figure:
    """Names and values as horizontal bars, positive ones in another colour than negative ones."""
    values = np.array([value for _, value in shown])
    with style():
        figure = Figure(figsize=(WIDE_INCHES, BAR_INCHES * len(shown) + 0.45), layout="constrained")
        ax = figure.add_subplot()
        ax.spines[["left", "bottom"]].set_visible(False)
        ax.axvline(0, color=INK, linewidth=0.6)
        places = np.arange(len(shown))
        ax.barh(places, values, height=0.62, color=np.where(values > 0, BLUE, VERMILION).tolist())
        names = [shortened(plain(name), COLUMN_LETTERS) for name, _ in shown]
        ax.set_yticks(places, names, parse_math=False)
        ax.tick_params(axis="y", length=0)
        ax.xaxis.set_visible(False)
        ax.set_ylim(len(shown) - 0.4, -0.6)
        low = min(values.min(), 0.0)
        high = max(values.max(), 0.0)
        space = LABEL_SPACE * (high - low)
        ax.set_xlim(low - space * (low < 0), high + space * (high > 0))
        for place, value in zip(places, values.tolist(), strict=True):
            ax.annotate(
                number(value),
                (value, place),
                xytext=(math.copysign(4, value), 0),
                textcoords="offset points",
                ha="left" if value > 0 else "right",
                va="center",
                size=8,
            )
    return figure
