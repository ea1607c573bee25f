"""`coterie path`: one model for every strength of the penalty, and which strength is best."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

import coterie as co
from coterie.catalogue import names_in
from coterie.commands.options import (
    Checkpoint,
    Config,
    Figures,
    Folds,
    Json,
    Rule,
    Strengths,
    among,
)
from coterie.commands.output import console, print_json, summary
from coterie.commands.question import Question, any_strength, strengths_of, taking_question
from coterie.run.settings import Algorithm, Settings

EXAMPLE = "Example: coterie path patients.csv --target ill --loss logistic --penalty l1 --cv 5"


@taking_question(any_strength, leave_out="strength")
def path(
    question: Question,
    strengths: Strengths = None,
    cv: Folds = None,
    rule: Rule = "best",
    method: Annotated[str, among("auto", *names_in("methods"))] = Algorithm.method,
    checkpoint: Checkpoint = Settings.checkpoint,
    output: Annotated[
        Path,
        typer.Option(
            "--output", "-o", help="Output folder: path.json, a folder per strength, and report."
        ),
    ] = Path("coterie-path"),
    figures: Figures = None,
    as_json: Json = False,
    config: Config = None,
) -> None:
    """Fit a model for every strength of the penalty, each from the last; --cv says which strength
    is best.
    """
    chosen = strengths_of(strengths)
    output.mkdir(parents=True, exist_ok=True)
    progress = False if as_json else None
    found = question.path(chosen, cv, rule, method=method, checkpoint=checkpoint, progress=progress)
    notes = []
    if question.engine.speaks:
        from coterie.api.replacing import kept_note, place_for, why_path_kept

        why = why_path_kept(output, found)
        if why is not None:
            notes.append(kept_note(output, why))
        output = place_for(output, why)
        found.save(output)
        if figures is not None:
            co.report.save_path_figures(found, output / "figures", figures)
        show_path(
            found, output, co.report.write_path(found, output / "report.html"), as_json, notes
        )
    raise typer.Exit(max(result.status.exit_code for result in found.results))


def show_path(
    found: co.Path, output: Path, report: Path, as_json: bool, notes: Sequence[str] = ()
) -> None:
    """The table of a path, what it cost, and where everything was put."""
    if as_json:
        scored = found.scores is not None
        told = {
            "intercept": found.results[0].has_intercept,
            "strengths": list(found.strengths),
            "table": found.table(),
            "chosen": found.chosen_strength if scored else None,
            "best": found.best_strength if scored else None,
            "rule": found.rule,
            "results": [summary(result) for result in found.results],
            "warnings": list(
                dict.fromkeys(
                    [*(one for result in found.results for one in result.warnings), *notes]
                )
            ),
            "total": vars(found.total),
        }
        print_json({**told, "output": str(output), "report": str(report)})
        return
    out = console()
    out.print(str(found), markup=False, soft_wrap=True)
    for note in notes:
        out.print(note, markup=False, soft_wrap=True)
    sent = co.progress.format_bits(found.total.bits)
    out.print(
        f"[bold]Bill[/bold]  {sent} in total, {co.progress.format_bits(found.validation.bits)} of "
        "it for folds and grid"
    )
    out.print(f"[bold]Report[/bold]  {report.resolve().as_uri()}", soft_wrap=True)
