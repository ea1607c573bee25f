"""`coterie demo`: eight hospitals, one model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

import coterie as co
from coterie.commands.options import Config, Json
from coterie.commands.output import Saved, console, show_result

TOLERANCE = 1e-9


def demo(
    output: Annotated[
        Path,
        typer.Option("--output", "-o", help="Output folder for model, certificate and report."),
    ] = Path("coterie-demo"),
    as_json: Json = False,
    config: Config = None,
) -> None:
    """Fit one model at eight hospitals without pooling their patients. Shows certificate, bill and
    report.
    """
    story, problem, parties, check = co.demo.demo_problem()
    if not as_json:
        console().print(story)
    result = co.solve(problem, parties, tol=TOLERANCE, progress=False if as_json else None)
    result.save(output)
    notes = (Text.from_markup(story).plain, check(result))
    page = co.report.write_report(result, output / "report.html", notes=notes)
    show_result(Saved(result, output, page), as_json)
    if not as_json:
        console().print(notes[1])
    raise typer.Exit(result.status.exit_code)
