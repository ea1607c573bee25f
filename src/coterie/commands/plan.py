"""`coterie plan`: the expected cost of a fit, before it is run."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.table import Table as RichTable

import coterie as co
from coterie.catalogue import names_in
from coterie.commands.options import Config, Json, known
from coterie.commands.output import console, print_json, show_value
from coterie.commands.question import Question, taking_question
from coterie.errors import count
from coterie.run.settings import Algorithm

EXAMPLE = (
    "Example: coterie plan patients.csv --target ill --loss logistic --strength 0.01 --latency "
    "0.05 --bandwidth 2e7"
)
Method = Annotated[str, typer.Option(help=f"auto, {known(names_in('methods'))}")]
Latency = Annotated[
    float | None,
    typer.Option(help="Delay of a message between two parties, in seconds (engine local: none)."),
]
Bandwidth = Annotated[
    float | None,
    typer.Option(help="Bandwidth of a party's link, in bits per second (engine local: memory)."),
]


@taking_question()
def plan(
    question: Question,
    method: Method = Algorithm.method,
    latency: Latency = None,
    bandwidth: Bandwidth = None,
    as_json: Json = False,
    config: Config = None,
) -> None:
    """Estimate rounds, bytes per party and seconds of a fit from a part of the rows."""
    from coterie.api.plan import plan_of

    link = _link(latency, bandwidth)
    settings = question.settings.but(method=method, link=link)
    found = plan_of(question.problem, question.data, settings)
    if as_json:
        print_json({**vars(found), "bits": found.bits, "seconds": found.seconds})
    else:
        _show(found, question.engine.name)


def _link(latency: float | None, bandwidth: float | None) -> tuple[float, float] | None:
    """The latency and the bandwidth of a link; the method's defaults stand in for a missing one."""
    if latency is None and bandwidth is None:
        return None
    from coterie.methods.auto.costs import LINK  # imports numpy, which --help does without

    if latency is None:
        latency = LINK.latency
    if bandwidth is None:
        bandwidth = LINK.bandwidth
    return latency, bandwidth


def _show(found: co.Plan, engine: str) -> None:
    show_value("Model", found.about)
    show_value("Rounds", f"{found.rounds}. {found.explanation}")
    total = co.progress.format_bits(found.bits)
    busiest = co.progress.format_bits(max(found.bits_per_party))
    show_value("Sent", f"{total} in total, {busiest} by the busiest party")
    table = RichTable("", "seconds", box=None, header_style="dim")
    table.add_row(f"{count(found.turns, 'hop')}, and the bytes sent", f"{found.wire_seconds:.2g}")
    table.add_row("computation, all parties at the same time", f"{found.computing_seconds:.2g}")
    table.add_row(f"engine {engine}", f"{found.engine_seconds:.2g}")
    table.add_row("total", f"{found.seconds:.2g}")
    console().print(table)
    if found.numbers_per_row:
        console().print(_per_row(found.numbers_per_row))
    console().print(f"[dim]{found.basis}[/dim]")


def _per_row(numbers_per_row: dict[str, float]) -> RichTable:
    table = RichTable("method", "numbers per row, expected", box=None, header_style="dim")
    for name, numbers in numbers_per_row.items():
        label = name
        if name == "blocks":
            label = "blocks, which moves the columns"
        table.add_row(label, f"{numbers:,.0f}")
    return table
