"""`coterie doctor`: is everything there, and does it work?"""

from __future__ import annotations

from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table as RichTable

import coterie as co
from coterie.commands.options import Config, Json
from coterie.commands.output import console, print_json


def doctor(
    quick: Annotated[
        bool, typer.Option("--quick", help="Do not start the engines that are installed.")
    ] = False,
    as_json: Json = False,
    config: Config = None,
) -> None:
    """Show what is installed and whether it works. Every installed engine fits a tiny problem."""
    findings = co.doctor.diagnose(quick=quick)
    healthy = all(finding.works for finding in findings if finding.needed)
    if as_json:
        told = [vars(finding) for finding in findings]
        print_json(
            {"works": healthy, "findings": told, "to_type": co.doctor.lines_to_type(findings)}
        )
    else:
        table = RichTable("", "what", "found", box=None, header_style="dim")
        for finding in findings:
            mark = (
                "[green]✓[/green]"
                if finding.works
                else ("[red]✗[/red]" if finding.needed else "[dim]–[/dim]")
            )
            table.add_row(mark, finding.what, escape(finding.detail))
        console().print(table)
        for why, line in co.doctor.lines_to_type(findings).items():
            console().print(f"{why}, type  [bold]{escape(line)}[/bold]", highlight=False)
    raise typer.Exit(0 if healthy else 1)
