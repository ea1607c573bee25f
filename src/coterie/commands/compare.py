"""`coterie compare`: several methods on one problem."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table as RichTable

import coterie as co
from coterie.catalogue import names_in
from coterie.commands.options import Config, Figures, Json, Question, known, question, taking
from coterie.commands.output import console, print_json, summary
from coterie.errors import InvalidProblem

EXAMPLE = "Example: coterie compare patients.csv --target ill --loss logistic --strength 0.01 -m newton -m proximal-2"


@taking(question)
def compare(
    question: Question,
    method: Annotated[
        list[str] | None,
        typer.Option(
            "--method", "-m", help=f"{known(names_in('methods'))}. Can be repeated (default: all that apply)."
        ),
    ] = None,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Output folder for models, certificates and report.")
    ] = Path("coterie-compare"),
    figures: Figures = None,
    as_json: Json = False,
    config: Config = None,
) -> None:
    """Solve one problem with several methods and compare rounds, bits and seconds."""
    able = [name for name, entry in co.methods.METHODS.items() if entry.split == question.split]
    names = list(dict.fromkeys(method)) if method else able
    speaks = question.settings["engine"].speaks
    results: dict[str, co.Result] = {}
    refusals: dict[str, str] = {}
    for name in names:
        try:
            results[name] = co.solve(
                question.problem,
                question.data,
                method=name,
                progress=False if as_json else None,
                **question.settings,
                **question.options,
            )
        except InvalidProblem as refusal:
            if method:
                raise
            refusals[name] = str(refusal)
            continue
        if speaks:
            results[name].save(output / name)
    if not results:
        raise InvalidProblem("no method can solve this problem: " + " ".join(refusals.values()))
    if speaks and figures is not None:
        co.report.save_comparison_figures(results, output / "figures", figures)
    if speaks:
        show_comparison(results, refusals, co.report.write_comparison(results, output / "report.html"), as_json)
    reached = any(result.status.success for result in results.values())
    raise typer.Exit(0 if reached else max(result.status.exit_code for result in results.values()))


def show_comparison(results: dict[str, co.Result], refusals: dict[str, str], report: Path, as_json: bool) -> None:
    """One row per method, the least of each column marked."""
    from coterie.report.winners import MEASURES, winners

    best = winners(results)
    if as_json:
        entries: list[dict[str, Any]] = [summary(result) for result in results.values()]
        print_json({"winners": best, "methods": entries, "refused": refusals, "report": str(report)})
        return
    table = RichTable("method", "ended", "relative gap", *MEASURES, box=None, header_style="dim")
    for name, result in results.items():
        cells = []
        for measure, (_, value, written) in MEASURES.items():
            shown = written(value(result))
            cells.append(f"[bold green]{shown} ★[/bold green]" if best[measure] == name else shown)
        table.add_row(name, result.status.value, f"{result.certificate.relative_gap:.1e}", *cells)
    out = console()
    out.print(table)
    if refusals:
        out.print(f"[dim]Not for this problem: {', '.join(refusals)} (--json says why).[/dim]")
    out.print(f"[bold]Report[/bold]  {report.resolve().as_uri()}", soft_wrap=True)
