"""`coterie demo`: eight hospitals, one model."""

from __future__ import annotations

from pathlib import Path

import typer
from rich.text import Text

import coterie as co
from coterie.commands.options import Config, FitFolder, Json
from coterie.commands.output import Saved, console, show_result

TOLERANCE = 1e-9


def demo(
    output: FitFolder = Path("coterie-demo"), as_json: Json = False, config: Config = None
) -> None:
    """Fit one model at eight hospitals without pooling their patients. Shows certificate, bill and
    report.
    """
    story, problem, parties, check = co.demo.demo_problem()
    progress = None
    if as_json:
        progress = False
    else:
        console().print(story)
    result = co.solve(problem, parties, tol=TOLERANCE, progress=progress)
    result.save(output)
    comparison = check(result)
    notes = (Text.from_markup(story).plain, comparison)
    page = co.report.write_report(result, output / "report.html", notes=notes)
    show_result(Saved(result, output, page), as_json)
    if not as_json:
        console().print(comparison)
    raise typer.Exit(result.status.exit_code)
