"""`coterie path`: one model for every strength of the penalty, and which strength is best."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

import coterie as co
from coterie.commands.options import (
    Checkpoint,
    Config,
    Figures,
    Folds,
    Json,
    Method,
    Rule,
    Strengths,
)
from coterie.commands.output import print_json, show_report, show_text, show_value, summary
from coterie.commands.question import Question, any_strength, strengths_of, taking_question
from coterie.run.settings import Algorithm, Settings

EXAMPLE = "Example: coterie path patients.csv --target ill --loss logistic --penalty l1 --cv 5"
PathFolder = Annotated[
    Path,
    typer.Option(
        "--output", "-o", help="Output folder: path.json, a folder per strength, and report."
    ),
]


@taking_question(any_strength, leave_out="strength")
def path(
    question: Question,
    strengths: Strengths = None,
    cv: Folds = None,
    rule: Rule = "best",
    method: Method = Algorithm.method,
    checkpoint: Checkpoint = Settings.checkpoint,
    output: PathFolder = Path("coterie-path"),
    figures: Figures = None,
    as_json: Json = False,
    config: Config = None,
) -> None:
    """Fit a model for every strength of the penalty, each with a warm start from the one before.
    With --cv, cross-validation chooses the best strength.
    """
    chosen = strengths_of(strengths)
    output.mkdir(parents=True, exist_ok=True)
    progress = None
    if as_json:
        progress = False
    found = question.path(chosen, cv, rule, method=method, checkpoint=checkpoint, progress=progress)
    if question.engine.writes_output:
        _write(found, output, figures, as_json)
    raise typer.Exit(max(result.status.exit_code for result in found.results))


def _write(found: co.Path, output: Path, figures: str | None, as_json: bool) -> None:
    """Write the path and its report, and print it."""
    from coterie.api.replacing import kept_note, place_for, why_path_kept

    notes = []
    why = why_path_kept(output, found)
    if why is not None:
        notes.append(kept_note(output, why))
    output = place_for(output, why)
    found.save(output)
    if figures is not None:
        co.report.save_path_figures(found, output / "figures", figures)
    page = co.report.write_path(found, output / "report.html")
    show_path(found, output, page, as_json, notes)


def show_path(
    found: co.Path, output: Path, report: Path, as_json: bool, notes: Sequence[str] = ()
) -> None:
    """Print the table of a path, what it cost, and the address of the report."""
    if as_json:
        answer = _summary(found, notes)
        print_json({**answer, "output": str(output), "report": str(report)})
        return
    show_text(str(found))
    for note in notes:
        show_text(note)
    sent = co.progress.format_bits(found.total.bits)
    validation = co.progress.format_bits(found.validation.bits)
    show_value("Bill", f"{sent} in total, {validation} of it for folds and grid")
    show_report(report)


def _summary(found: co.Path, notes: Sequence[str]) -> dict[str, Any]:
    """Collect the numbers of a path under names that do not change."""
    chosen = None
    best = None
    if found.scores is not None:
        chosen = found.chosen_strength
        best = found.best_strength
    warnings: list[str] = []
    for result in found.results:
        warnings += result.warnings
    warnings += notes
    return {
        "intercept": found.results[0].has_intercept,
        "strengths": list(found.strengths),
        "table": found.table(),
        "chosen": chosen,
        "best": best,
        "rule": found.rule,
        "results": [summary(result) for result in found.results],
        "warnings": list(dict.fromkeys(warnings)),
        "total": vars(found.total),
    }
