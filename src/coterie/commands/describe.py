"""`coterie describe`: summary statistics of the columns of one or several parties."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

import coterie as co
from coterie.commands.agent import asking, is_of_party, party_files, rehearsal, saying
from coterie.commands.files import listed
from coterie.commands.options import (
    Config,
    Consent,
    Deadline,
    Engine,
    Json,
    Minimum,
    OutputFile,
    PartyData,
    PerParty,
    SecureSums,
)
from coterie.commands.output import print_json, show_messages, show_text, text_or_none
from coterie.run.settings import Placement, Settings

EXAMPLE = (
    "Examples: coterie describe north.csv south.csv --target ill · coterie describe party.toml "
    "(at every party)"
)
Classes = Annotated[str | None, typer.Option(help="Column with the labels, to count the classes.")]
Described = Annotated[
    str | None, typer.Option(help="Columns to describe, separated by commas (default: all).")
]
LeaveOut = Annotated[
    list[str] | None,
    typer.Option("--leave-out", help="Column to leave out, such as an id. Can be repeated."),
]
Quantiles = Annotated[
    str, typer.Option(help="Probabilities of the quantiles, separated by commas.")
]
Correlation = Annotated[bool, typer.Option(help="Correlations of columns of numbers.")]


def describe(
    data: PartyData,
    target: Classes = None,
    columns: Described = None,
    leave_out: LeaveOut = None,
    quantiles: Quantiles = "0.05,0.25,0.5,0.75,0.95",
    correlation: Correlation = True,
    minimum: Minimum = 1,
    per_party: PerParty = False,
    engine: Engine = Placement.engine,
    deadline: Deadline = None,
    secure_sums: SecureSums = Settings.secure_sums,
    output: OutputFile = None,
    yes: Consent = False,
    as_json: Json = False,
    config: Config = None,
) -> None:
    """Describe columns: counts, missing values, means, standard deviations, quantiles, categories,
    correlations.
    """
    if all(map(is_of_party, data)):
        raise typer.Exit(_with_parties(party_files(data), output, as_json, yes))
    runner = co.engines.engine(engine, deadline)
    found = co.describe(
        list(data),
        target=target,
        columns=listed(columns),
        leave_out=leave_out or (),
        quantiles=_probabilities(quantiles),
        correlation=correlation,
        minimum=minimum,
        per_party=per_party,
        engine=runner,
        secure_sums=secure_sums,
    )
    if runner.writes_output:
        _show(found, output, {"output": text_or_none(output)}, as_json)


def _probabilities(written: str) -> list[float]:
    try:
        return [float(part) for part in written.split(",") if part.strip()]
    except ValueError:
        raise typer.BadParameter(
            f"--quantiles needs numbers from 0 to 1, e.g. 0.25,0.5,0.75, not {written!r}"
        ) from None


def _with_parties(files: list[Path], output: Path | None, as_json: bool, yes: bool) -> int:
    """Describe the data of a study together with the other parties; several party.toml are all on
    this machine.
    """
    if len(files) > 1:
        return rehearsal(files, as_json, "describe")
    from coterie.study.description import describe_together
    from coterie.study.study import load_party

    own, study = load_party(files[0])
    consent = asking(files, "describe", yes=yes, as_json=as_json)
    found = describe_together(own, study, say=saying(own.party), consent=consent)
    place = output or own.output / "description.json"
    _show(found, output, {"party": own.party, "output": str(place)}, as_json)
    return 0


def _show(
    found: co.Description, output: Path | None, more: dict[str, str | None], as_json: bool
) -> None:
    if output is not None:
        found.save(output)
    if as_json:
        print_json({**found.summary(), **more})
        return
    show_text(str(found))
    show_messages("Description", found.bill)
