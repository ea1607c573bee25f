"""`coterie plan`: what a fit would take, before it is run."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.table import Table as RichTable

import coterie as co
from coterie.catalogue import names_in
from coterie.commands.options import Config, Json, known
from coterie.commands.output import console, print_json
from coterie.commands.question import Question, taking_question
from coterie.errors import count
from coterie.run.settings import Algorithm

EXAMPLE = (
    "Example: coterie plan patients.csv --target ill --loss logistic --strength 0.01 --latency "
    "0.05 --bandwidth 2e7"
)


@taking_question()
def plan(
    question: Question,
    method: Annotated[
        str, typer.Option(help=f"auto, {known(names_in('methods'))}")
    ] = Algorithm.method,
    latency: Annotated[
        float | None,
        typer.Option(
            help="Delay of a message between two parties, in seconds (engine local: none)."
        ),
    ] = None,
    bandwidth: Annotated[
        float | None,
        typer.Option(
            help="Bandwidth of a party's link, in bits per second (engine local: memory)."
        ),
    ] = None,
    as_json: Json = False,
    config: Config = None,
) -> None:
    """Estimate rounds, bytes per party and seconds of a fit from a part of the rows."""
    from coterie.api.plan import plan_of

    link = None
    if latency is not None or bandwidth is not None:
        from coterie.methods.auto.costs import LINK  # numpy and more, which --help does without

        link = (
            LINK.latency if latency is None else latency,
            LINK.bandwidth if bandwidth is None else bandwidth,
        )
    found = plan_of(
        question.problem, question.data, question.settings.but(method=method, link=link)
    )
    if as_json:
        print_json({**vars(found), "bits": found.bits, "seconds": found.seconds})
        raise typer.Exit
    out = console()
    out.print("[bold]Model[/bold]  ", end="")
    out.print(found.about, markup=False)
    out.print(f"[bold]{count(found.rounds, 'round')}[/bold]  {found.explanation}")
    everything, busiest = (
        co.progress.format_bits(bits) for bits in (found.bits, max(found.bits_per_party))
    )
    out.print(f"[bold]Sent[/bold]  {everything} in total, {busiest} by the busiest party")
    table = RichTable("", "seconds", box=None, header_style="dim")
    for what, seconds in (
        (f"{found.turns} hops, and the bytes sent", found.wire_seconds),
        ("computation, all parties at the same time", found.computing_seconds),
        (f"engine {question.engine.name}", found.engine_seconds),
        ("total", found.seconds),
    ):
        table.add_row(what, f"{seconds:.2g}")
    out.print(table)
    if found.numbers_per_row:
        sent = RichTable("method", "numbers per row, expected", box=None, header_style="dim")
        for name, numbers in found.numbers_per_row.items():
            sent.add_row(
                f"{name}, which moves the columns" if name == "blocks" else name, f"{numbers:,.0f}"
            )
        out.print(sent)
    out.print(f"[dim]{found.basis}[/dim]")
