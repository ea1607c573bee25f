"""`coterie reproduce`: the figures of the papers, and whether what they claim is so."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

import coterie as co
from coterie.commands.options import Config, Json
from coterie.commands.output import console, print_json
from coterie.errors import InvalidInput, MissingData

EXAMPLE = "Example: coterie reproduce 000 fig1 --quick"
UNEXPLAINED = 1


def reproduce(
    which: Annotated[
        list[str] | None, typer.Argument(help="'all', a paper ('000'), or a study ('000 fig1'). --list shows them.")
    ] = None,
    listing: Annotated[bool, typer.Option("--list", help="List the studies and exit.")] = False,
    quick: Annotated[
        bool, typer.Option("--quick", help="Use small problems that take seconds, instead of the paper's.")
    ] = False,
    gallery: Annotated[
        Path | None, typer.Option(help="Folder for figures, with a page next to it, e.g. docs/gallery.")
    ] = None,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Output folder for numbers, claims and figures.")
    ] = Path("coterie-reproduce"),
    checkout: Annotated[
        Path | None,
        typer.Option("--from", help="Checkout of the Coterie repository (default: the installed one, or this folder)."),
    ] = None,
    as_json: Json = False,
    config: Config = None,
) -> None:
    """Run the studies of the papers: figures, numbers, and whether each claim holds.

    The studies are in the repository, not in the installed package: run this in a checkout, or name one with --from.

    The exit code is 1 if a claim does not hold and the study gives no reason.
    """
    papers = _papers(checkout)
    if listing or not which:
        _list(papers.STUDIES, as_json)
        return
    run = import_module("papers.reproduce").reproduce
    records: list[dict[str, Any]] = []
    names = papers.chosen(which)
    for place, name in enumerate(names, start=1):
        study = papers.STUDIES[name]()
        try:
            with console(stderr=True).status(f"{place} of {len(names)}: {name}, {study.title}"):
                record = run(study, output, quick, gallery)
        except MissingData as missing:
            record = {"study": name, "skipped": str(missing), "claims": []}
        records.append(record)
        if not as_json:
            _show(record)
    if as_json:
        print_json({"studies": records})
    else:
        _conclude(records, output)
    open_claims = [c for record in records for c in record["claims"] if not (c["holds"] or c["reason"])]
    raise typer.Exit(UNEXPLAINED if open_claims else 0)


def _papers(checkout: Path | None) -> Any:
    """The package `papers` of that checkout, of the one whose `src/coterie` this is, or of the current folder."""
    places = [Path(co.__file__).parents[2], Path.cwd()] if checkout is None else [checkout.resolve()]
    for place in places:
        if (place / "papers" / "study.py").is_file():
            sys.path.insert(0, str(place))
            return import_module("papers")
    raise InvalidInput(
        "the studies are not part of the installed package, and there is no papers/study.py in "
        f"{' or '.join(map(str, dict.fromkeys(places)))}: clone the repository and run `coterie reproduce` there, "
        "or name the clone with --from."
    )


def _list(studies: Mapping[str, Any], as_json: bool) -> None:
    if as_json:
        entries = [{"study": name, "paper": study.paper, "title": study.title} for name, study in studies.items()]
        print_json({"studies": entries})
        return
    for name, study in studies.items():
        console().print(f"[bold]{name:12}[/bold] {study.title}")


def _show(record: dict[str, Any]) -> None:
    out = console()
    if "skipped" in record:
        out.print(f"[bold]{record['study']}[/bold]  [yellow]skipped[/yellow]: {escape(record['skipped'])}")
        return
    out.print(f"[bold]{record['study']}[/bold]  {record['title']} ({record['seconds']} s)")
    for claim in record["claims"]:
        mark = "[green]✓[/green]" if claim["holds"] else "[red]✗[/red]"
        reason = "" if claim["holds"] or not claim["reason"] else f" {claim['cause'].capitalize()}: {claim['reason']}"
        out.print(f"  {mark} {escape(claim['text'])} [dim]({escape(claim['evidence'])})[/dim]{escape(reason)}")
        out.print(f"    [dim]Fails if {escape(claim['fails_if'])}[/dim]")


def _conclude(records: list[dict[str, Any]], output: Path) -> None:
    claims = [claim for record in records for claim in record["claims"]]
    failing = [claim for claim in claims if not claim["holds"]]
    unexplained = sum(not claim["reason"] for claim in failing)
    reasons = f"{unexplained} of them without a known reason" if unexplained else "for the reasons above"
    rest = f"; {len(failing)} do not, {reasons}" if failing else ""
    console().print(f"{len(claims) - len(failing)} of {len(claims)} claims hold{rest}. Numbers and figures: {output}")
