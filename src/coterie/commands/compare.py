"""`coterie compare`: several methods on one problem."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table as RichTable

import coterie as co
from coterie.catalogue import names_in
from coterie.commands.options import Config, Figures, Json, known
from coterie.commands.output import console, print_json, show_model, summary
from coterie.commands.question import Question, taking_question
from coterie.commands.shell_words import in_shell_words
from coterie.errors import InvalidProblem

FLAGS = {
    name: f"--{name}" for name in ("intercept", "loss", "penalty", "method", "network", "split")
}
"""The options that a method's refusal may advise."""
TIMINGS = "timings.json"
EXAMPLE = (
    "Example: coterie compare patients.csv --target ill --loss logistic --strength 0.01 -m newton "
    "-m proximal-2"
)


@taking_question()
def compare(
    question: Question,
    method: Annotated[
        list[str] | None,
        typer.Option(
            "--method",
            "-m",
            help=f"{known(names_in('methods'))}. Can be repeated (default: all that apply).",
        ),
    ] = None,
    output: Annotated[
        Path,
        typer.Option("--output", "-o", help="Output folder for models, certificates and report."),
    ] = Path("coterie-compare"),
    turns: Annotated[
        int, typer.Option(min=1, help="Runs of each method, for a median of the times.")
    ] = 3,
    figures: Figures = None,
    as_json: Json = False,
    config: Config = None,
) -> None:
    """Solve one problem with several methods and compare rounds, bits and seconds.

    Every method is warmed up before its clock starts. Then they take turns, and the time is that of
    the median run.
    """
    able = [name for name, entry in co.methods.METHODS.items() if entry.split == question.split]
    wanted = dict.fromkeys(method or able)
    refused = _warm_up(question, wanted, named=bool(method))
    names = [name for name in wanted if name not in refused]
    runs = _in_turns(question, names, turns, False if as_json else None)
    results = {
        name: sorted(each, key=lambda one: one.seconds)[len(each) // 2]
        for name, each in runs.items()
    }
    timings = {name: [one.seconds for one in each] for name, each in runs.items()}
    if not results:
        raise InvalidProblem(
            "no method can solve this problem: " + " ".join(dict.fromkeys(refused.values()))
        )
    if question.engine.speaks:
        _save(results, timings, output, figures)
        page = co.report.write_comparison(results, output / "report.html", timings)
        show_comparison(results, refused, page, as_json, timings)
    raise typer.Exit(_exit_code(list(results.values())))


def _exit_code(results: list[co.Result]) -> int:
    if any(result.status.success for result in results):
        return 0
    return max(result.status.exit_code for result in results)


def _warm_up(question: Question, names: Iterable[str], *, named: bool) -> dict[str, str]:
    """Run each method for two rounds. Why methods do not take this problem, unless the caller named
    them.
    """
    refused = {}
    for name in names:
        try:
            question.solve(method=name, max_rounds=2, progress=False)
        except InvalidProblem as refusal:
            if named:
                raise
            refused[name] = in_shell_words(str(refusal), FLAGS)
    return refused


def _in_turns(
    question: Question, names: list[str], turns: int, progress: bool | None
) -> dict[str, list[co.Result]]:
    """The results of each method. One that did not reach the tolerance is not run again."""
    runs: dict[str, list[co.Result]] = {name: [] for name in names}
    for turn in range(turns):
        for name in names:
            if turn == 0 or runs[name][0].status.success:
                runs[name].append(question.solve(method=name, progress=progress))
    return runs


def _save(
    results: dict[str, co.Result],
    timings: dict[str, list[float]],
    output: Path,
    figures: str | None,
) -> None:
    for name, result in results.items():
        result.save(output / name)
    (output / TIMINGS).write_text(json.dumps(timings))
    if figures is not None:
        co.report.save_comparison_figures(results, output / "figures", figures)


def show_comparison(
    results: dict[str, co.Result],
    refusals: dict[str, str],
    report: Path,
    as_json: bool,
    timings: dict[str, list[float]] | None = None,
) -> None:
    """One row per method, the least of each column marked."""
    from coterie.report.winners import MEASURES, winners, written

    best = winners(results, timings)
    if as_json:
        entries: list[dict[str, Any]] = [summary(result) for result in results.values()]
        for name, entry in zip(results, entries, strict=True):
            entry["seconds_of_runs"] = (timings or {}).get(name, [results[name].seconds])
        print_json(
            {"winners": best, "methods": entries, "refused": refusals, "report": str(report)}
        )
        return
    table = RichTable("method", "ended", "relative gap", *MEASURES, box=None, header_style="dim")
    for name, result in results.items():
        cells = []
        for measure in MEASURES:
            shown = written(measure, name, result, timings)
            cells.append(f"[bold green]{shown} ★[/bold green]" if name in best[measure] else shown)
        table.add_row(name, result.status.value, f"{result.certificate.relative_gap:.1e}", *cells)
    show_model(next(iter(results.values())))
    out = console()
    out.print(table)
    if refusals:
        out.print(f"[dim]Not for this problem: {', '.join(refusals)} (--json says why).[/dim]")
    out.print(f"[bold]Report[/bold]  {report.resolve().as_uri()}", soft_wrap=True)
