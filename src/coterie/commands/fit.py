"""`coterie fit`: a certified model from files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

import coterie as co
from coterie.catalogue import names_in
from coterie.commands.options import Config, Figures, Json, Question, among, question, taking
from coterie.commands.output import show_result

EXAMPLE = "Example: coterie fit patients.csv --target ill --loss logistic --penalty l1 --strength 0.01 --agents 4"


@taking(question)
def fit(
    question: Question,
    method: Annotated[str, among("auto", *names_in("methods"))] = "auto",
    checkpoint: Annotated[
        Path | None, typer.Option(help="Checkpoint folder. The same command continues a stopped run.")
    ] = None,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Output folder for model, certificate and report.")
    ] = Path("coterie-fit"),
    figures: Figures = None,
    as_json: Json = False,
    config: Config = None,
) -> None:
    """Fit a model to data held by several parties. Writes model, certificate and report."""
    output.mkdir(parents=True, exist_ok=True)  # before the fit: an answer without a place would be lost
    result = co.solve(
        question.problem,
        question.data,
        method=method,
        checkpoint=checkpoint,
        progress=False if as_json else None,
        **question.settings,
        **question.options,
    )
    if not question.settings["engine"].speaks:
        raise typer.Exit(result.status.exit_code)
    result.save(output)
    if figures is not None:
        co.report.save_figures(result, output / "figures", figures)
    show_result(result, output, co.report.write_report(result, output / "report.html"), as_json)
    raise typer.Exit(result.status.exit_code)
