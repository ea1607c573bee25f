"""`coterie crosstab`: how many rows have each value of one column and each of another."""

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
    "Examples: coterie crosstab north.csv south.csv --rows city --columns ill --minimum 5 · "
    "coterie crosstab party.toml --rows city --columns ill (at every party)"
)


def crosstab(
    data: Annotated[
        list[Path],
        typer.Argument(
            help="Data: Parquet, Arrow, CSV or svmlight; of several files, each is one party. "
            "Between organisations: "
            "party.toml, at every party."
        ),
    ],
    rows: Annotated[str, typer.Option(help="Column whose values are down.")],
    columns: Annotated[str, typer.Option(help="Column whose values are across.")],
    minimum: Annotated[
        int,
        typer.Option(
            help=(
                "Least number of rows of each party that has any, in a value or a cell that it "
                "tells."
            )
        ),
    ] = 1,
    engine: Annotated[str, among(*names_in("engines"))] = Placement.engine,
    deadline: Deadline = None,
    secure_sums: SecureSums = Settings.secure_sums,
    output: OutputFile = None,
    yes: Consent = False,
    as_json: Json = False,
    config: Config = None,
) -> None:
    """Count rows by the values of two columns; small cells, and those that would tell them, are
    withheld.
    """
    if all(file.suffix == ".toml" or file.is_dir() for file in data):
        raise typer.Exit(
            _with_parties(party_files(data), rows, columns, output, as_json=as_json, yes=yes)
        )
    runner = co.engines.engine(engine, deadline)
    found = co.crosstab(
        list(data), rows, columns, minimum=minimum, engine=runner, secure_sums=secure_sums
    )
    if runner.speaks:
        _show(found, output, {"output": None if output is None else str(output)}, as_json)


def _with_parties(
    files: list[Path], rows: str, columns: str, output: Path | None, *, as_json: bool, yes: bool
) -> int:
    """Count the rows of a study together with the other parties; several party.toml are all on this
    machine.
    """
    if len(files) > 1:
        return rehearsal(files, as_json, "crosstab", options=["--rows", rows, "--columns", columns])
    from coterie.study.crosstab import crosstab_together
    from coterie.study.description import as_fitted, read_raw
    from coterie.study.study import load_party

    own, study = load_party(files[0])
    ask_for_consent(
        files[0], own, study, yes, show=False, table=as_fitted(read_raw(own, study), own)
    )
    found = crosstab_together(own, study, rows, columns, say=saying(own.party))
    place = output or own.output / "crosstab.json"
    _show(found, output, {"party": own.party, "output": str(place)}, as_json)
    return 0


def _show(
    found: co.Crosstab, output: Path | None, more: dict[str, str | None], as_json: bool
) -> None:
    if output is not None:
        found.save(output)
    if as_json:
        print_json({**found.summary(), **more})
        return
    console().print(str(found), markup=False, soft_wrap=True)
    if found.bill is not None and found.bill.total.messages:
        sent = co.progress.format_bits(found.bill.total.bits)
        console().print(f"[bold]Table[/bold]  {found.bill.total.messages} messages, {sent}")
