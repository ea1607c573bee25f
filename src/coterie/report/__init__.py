"""Figures and reports of a run.

    write_report(result, "report.html")         one page that opens anywhere, also offline
    save_figures(result, "figures", "pdf")      its figures as files
    write_path(path, "report.html")             a path of strengths
    write_comparison({"newton": a, "gram": b}, "report.html")     several methods side by side
    draw_network(network).figure.savefig("network.png")     agents and their links

Matplotlib is only loaded when one of these is called, so that the command line starts quickly.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path as FilePath
from typing import TYPE_CHECKING, Any

from coterie.api.evaluation import Evaluation
from coterie.api.inference import Inference
from coterie.api.result import Result
from coterie.data.archives import write_atomically
from coterie.errors import UnknownName
from coterie.report.networks import draw_network

if TYPE_CHECKING:
    from coterie.api.path import Path

__all__ = [
    "FORMATS",
    "draw_network",
    "inference_section",
    "path_section",
    "save_comparison_figures",
    "save_figures",
    "save_path_figures",
    "write_comparison",
    "write_path",
    "write_report",
]

FORMATS = ("svg", "pdf", "png")


def write_report(
    result: Result,
    path: str | FilePath,
    *,
    notes: Sequence[str] = (),
    sections: Sequence[Callable[[Result], str]] = (),
    evaluation: Evaluation | None = None,
) -> FilePath:
    """Write one self-contained HTML page about a run: proof, progress, communication cost and
    settings.

    `notes` are paragraphs for the head of the page, such as the source of the data. `sections` are
    functions that make HTML of the result; they come before the settings. An `evaluation` on other
    rows gets a card in the head and a section.
    """
    from coterie.report.page import page

    return write_atomically(path, page(result, notes, sections, evaluation).encode(), public=True)


def inference_section(inference: Inference) -> Callable[[Result], str]:
    """A section for `write_report`: the table of standard errors, tests and intervals."""
    from coterie.report.inference import render

    return partial(render, inference)


def path_section(path: Path) -> Callable[[Result], str]:
    """A section for `write_report`: the strengths of a path, and the choice of one."""
    from coterie.report.path import render

    return partial(render, path)


def write_path(path: Path, file: str | FilePath) -> FilePath:
    """Write one self-contained HTML page about a path: scores and coefficients over the strengths,
    and the choice.
    """
    from coterie.report.path import path_page

    return write_atomically(file, path_page(path).encode(), public=True)


def save_path_figures(path: Path, folder: str | FilePath, format: str = "svg") -> list[FilePath]:
    """Write the pictures of a path as files into a folder, as "svg", "pdf" or "png"."""
    from coterie.report.path import path_figures

    return _save(lambda: path_figures(path), folder, format)


def save_figures(
    result: Result,
    folder: str | FilePath,
    format: str = "svg",
    *,
    evaluation: Evaluation | None = None,
) -> list[FilePath]:
    """Write the pictures of the report as files into a folder, as "svg", "pdf" or "png"."""
    from coterie.report.evaluation import evaluation_figures
    from coterie.report.figures import figures

    def drawn() -> dict[str, Any]:
        found = dict(figures(result))
        if evaluation is not None:
            found |= evaluation_figures(evaluation)
        return found

    return _save(drawn, folder, format)


def write_comparison(
    results: Mapping[str, Result],
    path: str | FilePath,
    timings: Mapping[str, Sequence[float]] | None = None,
) -> FilePath:
    """Write one self-contained HTML page about several runs on the same problem, by the names of
    their methods.

    If every method ran several times, `timings` has the seconds of every run, and `results` the
    median runs.
    """
    from coterie.report.compare import comparison_page

    return write_atomically(path, comparison_page(results, timings).encode(), public=True)


def save_comparison_figures(
    results: Mapping[str, Result], folder: str | FilePath, format: str = "svg"
) -> list[FilePath]:
    """Write the pictures of a comparison as files into a folder, as "svg", "pdf" or "png"."""
    from coterie.report.compare import comparison_figures

    return _save(lambda: comparison_figures(results), folder, format)


def _save(
    figures: Callable[[], Mapping[str, Any]], folder: str | FilePath, format: str
) -> list[FilePath]:
    from coterie.report.figures import rendered

    if format not in FORMATS:
        raise UnknownName("figure format", format, FORMATS)
    written = []
    for name, figure in figures().items():
        file = FilePath(folder) / f"{name}.{format}"
        written.append(write_atomically(file, rendered(figure, format), public=True))
    return written
