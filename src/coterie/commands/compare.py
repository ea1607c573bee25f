"""`coterie compare`: several methods on one problem."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table as RichTable

import coterie as co
from coterie.catalogue import names_in
from coterie.commands.options import Config, Figures, FitFolder, Json, known
from coterie.commands.output import console, print_json, show_model, show_report, summary
from coterie.commands.question import Question, taking_question
from coterie.commands.shell_words import in_shell_words
from coterie.errors import InvalidProblem

ADVISED = ("intercept", "loss", "penalty", "method", "network", "split")
FLAGS = {name: f"--{name}" for name in ADVISED}
"""The options that a method's refusal may advise."""
TIMINGS = "timings.json"
EXAMPLE = (
    "Example: coterie compare patients.csv --target ill --loss logistic --strength 0.01 -m newton "
    "-m proximal-2"
)
Methods = Annotated[
    list[str] | None,
    typer.Option(
        "--method",
        "-m",
        help=f"{known(names_in('methods'))}. Can be repeated (default: all that apply).",
    ),
]
Turns = Annotated[
    int, typer.Option(min=1, help="Runs of each method; the times shown are of the median run.")
]


@taking_question()
def compare(
    question: Question,
    method: Methods = None,
    output: FitFolder = Path("coterie-compare"),
    turns: Turns = 3,
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
    progress = None
    if as_json:
        progress = False
    runs = _in_turns(question, names, turns, progress)
    results = {name: _median_run(each) for name, each in runs.items()}
    timings = {name: [one.seconds for one in each] for name, each in runs.items()}
    if not results:
        reasons = " ".join(dict.fromkeys(refused.values()))
        raise InvalidProblem(f"no method can solve this problem: {reasons}")
    if question.engine.writes_output:
        _save(results, timings, output, figures)
        page = co.report.write_comparison(results, output / "report.html", timings)
        show_comparison(results, refused, page, as_json, timings)
    raise typer.Exit(_exit_code(list(results.values())))


def _median_run(runs: list[co.Result]) -> co.Result:
    by_time = sorted(runs, key=lambda one: one.seconds)
    return by_time[len(runs) // 2]


def _exit_code(results: list[co.Result]) -> int:
    if any(result.status.success for result in results):
        return 0
    return max(result.status.exit_code for result in results)


def _warm_up(question: Question, names: Iterable[str], *, named: bool) -> dict[str, str]:
    """Run each method for two rounds; return why some methods do not take this problem.

    A method that the caller named raises its refusal.
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
    """Run the methods in turns. One that did not reach the tolerance is not run again."""
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
    """Print one row per method, with the smallest of each column marked."""
    from coterie.report.winners import winners

    best = winners(results, timings)
    if as_json:
        entries = []
        for name, result in results.items():
            seconds = (timings or {}).get(name, [result.seconds])
            entries.append({**summary(result), "seconds_of_runs": seconds})
        answer = {"winners": best, "methods": entries, "refused": refusals}
        print_json({**answer, "report": str(report)})
        return
    show_model(next(iter(results.values())))
    console().print(_table(results, best, timings))
    if refusals:
        line = f"Not for this problem: {', '.join(refusals)} (--json gives the reasons)."
        console().print(f"[dim]{line}[/dim]")
    show_report(report)


def _table(
    results: dict[str, co.Result],
    best: dict[str, tuple[str, ...]],
    timings: dict[str, list[float]] | None,
) -> RichTable:
    from coterie.report.winners import MEASURES, written

    table = RichTable("method", "ended", "relative gap", *MEASURES, box=None, header_style="dim")
    for name, result in results.items():
        cells = []
        for measure in MEASURES:
            shown = written(measure, name, result, timings)
            if name in best[measure]:
                shown = f"[bold green]{shown} ★[/bold green]"
            cells.append(shown)
        gap = f"{result.certificate.relative_gap:.1e}"
        table.add_row(name, result.status.value, gap, *cells)
    return table
