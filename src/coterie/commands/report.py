"""`coterie report`: the page about a run, made again from its saved files."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

import coterie as co
from coterie.commands.compare import TIMINGS, show_comparison
from coterie.commands.options import Config, Figures, Json
from coterie.commands.output import Saved, show_result
from coterie.commands.path import show_path
from coterie.errors import InvalidInput

EXAMPLE = "Example: coterie report coterie-fit --figures pdf"
Answer = Annotated[
    Path, typer.Argument(help="Folder that `coterie fit`, `path` or `compare` wrote.")
]
Page = Annotated[
    Path | None,
    typer.Option("--output", "-o", help="Output page (default: report.html in the folder)."),
]
Notes = Annotated[
    list[str] | None, typer.Option(help="Paragraph for the top of the page. Can be repeated.")
]


def report(
    answer: Answer,
    output: Page = None,
    note: Notes = None,
    figures: Figures = None,
    as_json: Json = False,
    config: Config = None,
) -> None:
    """Write the report of a saved answer again, and its figures as files."""
    page = output or answer / "report.html"
    if (answer / "certificate.json").is_file():
        _report_fit(answer, page, note or (), figures, as_json)
    elif (answer / "path.json").is_file():
        _report_path(answer, page, figures, as_json)
    else:
        _report_comparison(answer, page, figures, as_json)


def _report_fit(
    answer: Path, page: Path, notes: Sequence[str], figures: str | None, as_json: bool
) -> None:
    result = co.Result.load(answer)
    scores = _scores_of(result, answer / "evaluation.json")
    if figures is not None:
        co.report.save_figures(result, answer / "figures", figures, evaluation=scores)
    sections = []
    path = _path_of(result, answer / "path")
    if path is not None:
        sections.append(co.report.path_section(path))
    inference = None
    saved = answer / "inference.json"
    if saved.is_file():
        inference = co.Inference.load(saved)
        sections.append(co.report.inference_section(inference))
    written = co.report.write_report(
        result, page, notes=notes, sections=sections, evaluation=scores
    )
    show_result(Saved(result, answer, written, inference, path, scores), as_json)


def _report_path(answer: Path, page: Path, figures: str | None, as_json: bool) -> None:
    path = co.Path.load(answer)
    if figures is not None:
        co.report.save_path_figures(path, answer / "figures", figures)
    show_path(path, answer, co.report.write_path(path, page), as_json)


def _report_comparison(answer: Path, page: Path, figures: str | None, as_json: bool) -> None:
    results = {}
    for file in sorted(answer.glob("*/certificate.json")):
        results[file.parent.name] = co.Result.load(file.parent)
    if not results:
        raise InvalidInput(
            f"{answer} has no certificate.json: give the folder that coterie fit or compare wrote."
        )
    if figures is not None:
        co.report.save_comparison_figures(results, answer / "figures", figures)
    timings = None
    saved = answer / TIMINGS
    if saved.is_file():
        timings = json.loads(saved.read_text())
    written = co.report.write_comparison(results, page, timings)
    show_comparison(results, {}, written, as_json, timings)


def _scores_of(result: co.Result, file: Path) -> co.Evaluation | None:
    """Load the scores of this model; None if there are none, or scores of another model."""
    if not file.is_file():
        return None
    scores = co.Evaluation.load(file)
    if scores.model != result.certificate.model_digest:
        return None
    return scores


def _path_of(result: co.Result, folder: Path) -> co.Path | None:
    """Load the path that this model was chosen from; None if there is none, or one of another
    model.
    """
    if not (folder / "path.json").is_file():
        return None
    found = co.Path.load(folder)
    models = [one.certificate.model_digest for one in found.results]
    if result.certificate.model_digest not in models:
        return None
    return found
