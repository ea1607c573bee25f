"""`coterie doctor`: what is installed, and whether it works."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table as RichTable

import coterie as co
from coterie.commands.options import Config, Json
from coterie.commands.output import console, print_json

Quick = Annotated[
    bool, typer.Option("--quick", help="Do not start the engines that are installed.")
]


def doctor(quick: Quick = False, as_json: Json = False, config: Config = None) -> None:
    """Show what is installed and whether it works. Every installed engine fits a tiny problem."""
    findings = co.doctor.diagnose(quick=quick)
    fixes = co.doctor.lines_to_type(findings)
    healthy = all(finding.works for finding in findings if finding.needed)
    if as_json:
        entries = [vars(finding) for finding in findings]
        print_json({"works": healthy, "findings": entries, "to_type": fixes})
    else:
        _show(findings, fixes)
    raise typer.Exit(int(not healthy))


def _show(findings: list[co.doctor.Finding], fixes: dict[str, str]) -> None:
    table = RichTable("", "part", "found", box=None, header_style="dim")
    for finding in findings:
        table.add_row(_mark(finding), finding.what, escape(finding.detail))
    console().print(table)
    for why, line in fixes.items():
        console().print(f"{why}, type  [bold]{escape(line)}[/bold]", highlight=False)


def _mark(finding: co.doctor.Finding) -> str:
    if finding.works:
        return "[green]✓[/green]"
    if finding.needed:
        return "[red]✗[/red]"
    return "[dim]–[/dim]"
