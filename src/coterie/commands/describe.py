"""`coterie describe`: what the columns of one or several parties look like."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

import coterie as co
from coterie.catalogue import names_in
from coterie.commands.agent import ask_for_consent, party_files, rehearsal, saying
from coterie.commands.options import Config, Consent, Deadline, Json, OutputFile, SecureSums, among
from coterie.commands.output import console, print_json
from coterie.run.settings import Placement, Settings

EXAMPLE = (
    "Examples: coterie describe north.csv south.csv --target ill · coterie describe party.toml "
    "(at every party)"
)


def describe(
    data: Annotated[
        list[Path],
        typer.Argument(
            help="Data: Parquet, Arrow, CSV or svmlight; of several files, each is one party. "
            "Between organisations: "
            "party.toml, at every party."
        ),
    ],
    target: Annotated[
        str | None, typer.Option(help="Column with the labels, to count the classes.")
    ] = None,
    columns: Annotated[
        str | None, typer.Option(help="Columns to describe, separated by commas (default: all).")
    ] = None,
    leave_out: Annotated[
        list[str] | None,
        typer.Option("--leave-out", help="Column to leave out, such as an id. Can be repeated."),
    ] = None,
    quantiles: Annotated[
        str, typer.Option(help="Probabilities of the quantiles, separated by commas.")
    ] = "0.05,0.25,0.5,0.75,0.95",
    correlation: Annotated[bool, typer.Option(help="Correlations of columns of numbers.")] = True,
    minimum: Annotated[
        int,
        typer.Option(
            help="Least number of rows of each party that has any, in a group that is told."
        ),
    ] = 1,
    per_party: Annotated[
        bool, typer.Option("--per-party", help="Description of every party, too.")
    ] = False,
    engine: Annotated[str, among(*names_in("engines"))] = Placement.engine,
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
    if all(file.suffix == ".toml" or file.is_dir() for file in data):
        raise typer.Exit(_with_parties(party_files(data), output, as_json, yes))
    runner = co.engines.engine(engine, deadline)
    found = co.describe(
        list(data),
        target=target,
        columns=None if columns is None else [name.strip() for name in columns.split(",")],
        leave_out=leave_out or (),
        quantiles=_probabilities(quantiles),
        correlation=correlation,
        minimum=minimum,
        per_party=per_party,
        engine=runner,
        secure_sums=secure_sums,
    )
    if runner.speaks:
        _show(found, output, as_json)


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
    from coterie.study.description import as_fitted, describe_together, read_raw
    from coterie.study.study import load_party

    own, study = load_party(files[0])
    ask_for_consent(
        files[0], own, study, yes, show=False, table=as_fitted(read_raw(own, study), own)
    )
    found = describe_together(own, study, say=saying(own.party))
    _show(
        found,
        output,
        as_json,
        {"party": own.party, "output": str(output or own.output / "description.json")},
    )
    return 0


def _show(
    found: co.Description,
    output: Path | None,
    as_json: bool,
    more: dict[str, str | None] | None = None,
) -> None:
    if output is not None:
        found.save(output)
    if as_json:
        print_json(
            {**found.summary(), **(more or {"output": None if output is None else str(output)})}
        )
        return
    console().print(str(found), markup=False, soft_wrap=True)
    if found.bill is not None and found.bill.total.messages:
        sent = co.progress.format_bits(found.bill.total.bits)
        console().print(f"[bold]Description[/bold]  {found.bill.total.messages} messages, {sent}")
