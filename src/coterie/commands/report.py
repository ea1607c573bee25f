"""`coterie report`: the page about a run, made again from what was saved."""

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


def report(
    answer: Annotated[
        Path, typer.Argument(help="Folder that `coterie fit`, `path` or `compare` wrote.")
    ],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Output page (default: report.html in the folder)."),
    ] = None,
    note: Annotated[
        list[str] | None, typer.Option(help="Paragraph for the top of the page. Can be repeated.")
    ] = None,
    figures: Figures = None,
    as_json: Json = False,
    config: Config = None,
) -> None:
    """Write the report of a saved answer again, and its figures as files."""
    page = output or answer / "report.html"
    if (answer / "certificate.json").is_file():
        _report_fit(answer, page, note or (), figures, as_json)
    elif (answer / "path.json").is_file():
        path = co.Path.load(answer)
        if figures is not None:
            co.report.save_path_figures(path, answer / "figures", figures)
        show_path(path, answer, co.report.write_path(path, page), as_json)
    else:
        _report_comparison(answer, page, figures, as_json)


def _report_fit(
    answer: Path, page: Path, notes: Sequence[str], figures: str | None, as_json: bool
) -> None:
    result = co.Result.load(answer)
    tested, saved = answer / "evaluation.json", answer / "inference.json"
    scores = co.Evaluation.load(tested) if tested.is_file() else None
    if scores is not None and scores.model != result.certificate.model_digest:
        scores = None  # of a model that was here before
    if figures is not None:
        co.report.save_figures(result, answer / "figures", figures, evaluation=scores)
    found = co.Inference.load(saved) if saved.is_file() else None
    path = _path_of(result, answer / "path")
    sections = [] if path is None else [co.report.path_section(path)]
    sections += [] if found is None else [co.report.inference_section(found)]
    written = co.report.write_report(
        result, page, notes=notes, sections=sections, evaluation=scores
    )
    show_result(Saved(result, answer, written, found, path, scores), as_json)


def _report_comparison(answer: Path, page: Path, figures: str | None, as_json: bool) -> None:
    results = {
        file.parent.name: co.Result.load(file.parent)
        for file in sorted(answer.glob("*/certificate.json"))
    }
    if not results:
        raise InvalidInput(
            f"{answer} has no certificate.json: give the folder that coterie fit or compare wrote."
        )
    if figures is not None:
        co.report.save_comparison_figures(results, answer / "figures", figures)
    spent = answer / TIMINGS
    timings = json.loads(spent.read_text()) if spent.is_file() else None
    show_comparison(
        results, {}, co.report.write_comparison(results, page, timings), as_json, timings
    )


def _path_of(result: co.Result, folder: Path) -> co.Path | None:
    """The path that this model was chosen from, if it lies there, and not that of another model."""
    if not (folder / "path.json").is_file():
        return None
    found = co.Path.load(folder)
    models = [one.certificate.model_digest for one in found.results]
    return found if result.certificate.model_digest in models else None
