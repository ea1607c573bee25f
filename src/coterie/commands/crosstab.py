"""`coterie crosstab`: the number of rows with each value of one column and each of another."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

import coterie as co
from coterie.commands.agent import asking, is_of_party, party_files, rehearsal, saying
from coterie.commands.options import (
    Config,
    Consent,
    Deadline,
    Engine,
    Json,
    Minimum,
    OutputFile,
    PartyData,
    SecureSums,
)
from coterie.commands.output import print_json, show_messages, show_text, text_or_none
from coterie.run.settings import Placement, Settings

EXAMPLE = (
    "Examples: coterie crosstab north.csv south.csv --rows city --columns ill --minimum 5 · "
    "coterie crosstab party.toml --rows city --columns ill (at every party)"
)
Down = Annotated[str, typer.Option(help="Column whose values name the rows of the table.")]
Across = Annotated[str, typer.Option(help="Column whose values name the columns of the table.")]


def crosstab(
    data: PartyData,
    rows: Down,
    columns: Across,
    minimum: Minimum = 1,
    engine: Engine = Placement.engine,
    deadline: Deadline = None,
    secure_sums: SecureSums = Settings.secure_sums,
    output: OutputFile = None,
    yes: Consent = False,
    as_json: Json = False,
    config: Config = None,
) -> None:
    """Count rows by the values of two columns. Small cells are withheld, and so are cells from
    which they could be computed.
    """
    if all(map(is_of_party, data)):
        files = party_files(data)
        raise typer.Exit(_with_parties(files, (rows, columns), output, as_json=as_json, yes=yes))
    runner = co.engines.engine(engine, deadline)
    found = co.crosstab(
        list(data), rows, columns, minimum=minimum, engine=runner, secure_sums=secure_sums
    )
    if runner.writes_output:
        _show(found, output, {"output": text_or_none(output)}, as_json)


def _with_parties(
    files: list[Path], names: tuple[str, str], output: Path | None, *, as_json: bool, yes: bool
) -> int:
    """Count the rows of a study together with the other parties; several party.toml are all on this
    machine.
    """
    rows, columns = names
    if len(files) > 1:
        return rehearsal(files, as_json, "crosstab", options=["--rows", rows, "--columns", columns])
    from coterie.study.crosstab import crosstab_together
    from coterie.study.study import load_party

    own, study = load_party(files[0])
    consent = asking(files, "crosstab", yes=yes, as_json=as_json)
    found = crosstab_together(own, study, rows, columns, say=saying(own.party), consent=consent)
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
    show_text(str(found))
    show_messages("Table", found.bill)
