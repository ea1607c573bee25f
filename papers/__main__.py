"""`python -m papers`: draw the figures of the papers and check their claims."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from coterie.commands.options import Json
from coterie.commands.output import console, print_json
from coterie.errors import MissingData, UnknownName
from papers import STUDIES, chosen
from papers.reproduce import reproduce

UNEXPLAINED = 1
UNKNOWN = 2
app = typer.Typer(add_completion=False, context_settings={"help_option_names": ["-h", "--help"]})


@app.command(epilog="Example: python -m papers 000 fig1 --quick")
def main(
    which: Annotated[
        list[str] | None,
        typer.Argument(help="'all', a paper ('000'), or a study ('000 fig1'). --list shows them."),
    ] = None,
    listing: Annotated[bool, typer.Option("--list", help="List the studies and exit.")] = False,
    quick: Annotated[
        bool,
        typer.Option(
            "--quick", help="Use small problems that take seconds, instead of the paper's."
        ),
    ] = False,
    gallery: Annotated[
        Path | None,
        typer.Option(help="Folder for figures, with a page next to it, e.g. docs/gallery."),
    ] = None,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Output folder for numbers, claims and figures.")
    ] = Path("coterie-reproduce"),
    as_json: Json = False,
) -> None:
    """Run the studies of the papers: figures, numbers, and whether each claim holds.

    The exit code is 1 if a claim does not hold and the study gives no reason.
    """
    if listing or not which:
        _list(as_json)
        return
    try:
        names = chosen(which)
    except UnknownName as error:
        console(stderr=True).print("[red]error:[/red]", escape(str(error)))
        raise typer.Exit(UNKNOWN) from None
    records: list[dict[str, Any]] = []
    for place, name in enumerate(names, start=1):
        study = STUDIES[name]()
        try:
            with console(stderr=True).status(f"{place} of {len(names)}: {name}, {study.title}"):
                record = reproduce(study, output, quick, gallery)
        except MissingData as missing:
            record = {"study": name, "skipped": str(missing), "claims": []}
        records.append(record)
        if not as_json:
            _show(record)
    if as_json:
        print_json({"studies": records})
    else:
        _conclude(records, output)
    open_claims = [
        c for record in records for c in record["claims"] if not (c["holds"] or c["reason"])
    ]
    raise typer.Exit(UNEXPLAINED if open_claims else 0)


def _list(as_json: bool) -> None:
    if as_json:
        entries = [
            {"study": name, "paper": study.paper, "title": study.title}
            for name, study in STUDIES.items()
        ]
        print_json({"studies": entries})
        return
    for name, study in STUDIES.items():
        console().print(f"[bold]{name:12}[/bold] {study.title}")


def _show(record: dict[str, Any]) -> None:
    out = console()
    if "skipped" in record:
        out.print(
            f"[bold]{record['study']}[/bold]  [yellow]skipped[/yellow]: {escape(record['skipped'])}"
        )
        return
    out.print(f"[bold]{record['study']}[/bold]  {record['title']} ({record['seconds']} s)")
    for claim in record["claims"]:
        mark = "[green]✓[/green]" if claim["holds"] else "[red]✗[/red]"
        reason = (
            ""
            if claim["holds"] or not claim["reason"]
            else f" {claim['cause'].capitalize()}: {claim['reason']}"
        )
        out.print(
            f"  {mark} {escape(claim['text'])} "
            f"[dim]({escape(claim['evidence'])})[/dim]{escape(reason)}"
        )
        out.print(f"    [dim]Fails if {escape(claim['fails_if'])}[/dim]")


def _conclude(records: list[dict[str, Any]], output: Path) -> None:
    claims = [claim for record in records for claim in record["claims"]]
    failing = [claim for claim in claims if not claim["holds"]]
    unexplained = sum(not claim["reason"] for claim in failing)
    reasons = (
        f"{unexplained} of them without a known reason" if unexplained else "for the reasons above"
    )
    rest = f"; {len(failing)} do not, {reasons}" if failing else ""
    console().print(
        f"{len(claims) - len(failing)} of {len(claims)} claims hold{rest}. Numbers and figures: "
        f"{output}"
    )


if __name__ == "__main__":
    app()
