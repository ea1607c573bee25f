"""Pictures and pages about a run.

    write_report(result, "report.html")         one page that opens anywhere, also offline
    save_figures(result, "figures", "pdf")      its pictures as files
    write_comparison({"newton": a, "gram": b}, "report.html")     several methods side by side

Matplotlib is only loaded when one of these is called, so that the command line starts quickly.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from coterie.errors import UnknownName
from coterie.evaluation import Evaluation
from coterie.files import write_atomically
from coterie.inference import Inference
from coterie.result import Result

__all__ = [
    "FORMATS",
    "inference_section",
    "save_comparison_figures",
    "save_figures",
    "write_comparison",
    "write_report",
]

FORMATS = ("svg", "pdf", "png")


def write_report(
    result: Result,
    path: str | Path,
    *,
    notes: Sequence[str] = (),
    sections: Sequence[Callable[[Result], str]] = (),
    evaluation: Evaluation | None = None,
) -> Path:
    """Write one self-contained HTML page about the run: what is proven, how it went, what it cost, how to repeat it.

    `notes` are paragraphs for the head of the page, such as whose data this was. `sections` are functions that make
    HTML of the result, for the end of the page. An `evaluation` on other rows stands in the head and in a section.
    """
    from coterie.report.page import page

    return write_atomically(path, page(result, notes, sections, evaluation).encode(), public=True)


def inference_section(inference: Inference) -> Callable[[Result], str]:
    """A section for `write_report`: the table of standard errors, tests and intervals."""
    from coterie.report.inference import render

    return partial(render, inference)


def save_figures(
    result: Result, folder: str | Path, format: str = "svg", *, evaluation: Evaluation | None = None
) -> list[Path]:
    """Write the pictures of the report as files into a folder, as "svg", "pdf" or "png"."""
    from coterie.report.evaluation import evaluation_figures
    from coterie.report.figures import figures

    more = {} if evaluation is None else evaluation_figures(evaluation)
    return _save(lambda: figures(result) | more, folder, format)


def write_comparison(results: Mapping[str, Result], path: str | Path) -> Path:
    """Write one self-contained HTML page about several runs on the same problem, by the names of their methods."""
    from coterie.report.compare import comparison_page

    return write_atomically(path, comparison_page(results).encode(), public=True)


def save_comparison_figures(results: Mapping[str, Result], folder: str | Path, format: str = "svg") -> list[Path]:
    """Write the pictures of a comparison as files into a folder, as "svg", "pdf" or "png"."""
    from coterie.report.compare import comparison_figures

    return _save(lambda: comparison_figures(results), folder, format)


def _save(figures: Callable[[], Mapping[str, Any]], folder: str | Path, format: str) -> list[Path]:
    from coterie.report.figures import rendered

    if format not in FORMATS:
        raise UnknownName("figure format", format, FORMATS)
    return [
        write_atomically(Path(folder) / f"{name}.{format}", rendered(figure, format), public=True)
        for name, figure in figures().items()
    ]
