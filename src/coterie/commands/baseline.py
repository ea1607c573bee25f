"""`coterie baseline`: the baseline hazard of one party's rows, for its own use."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

import coterie as co
from coterie.commands.options import Config, Entry, Event, Json, Strata, Time, Weight
from coterie.commands.output import console, print_json
from coterie.errors import InvalidInput

EXAMPLE = (
    "Example: coterie baseline result/model.npz patients.csv --time days --event died -o "
    "baseline.csv"
)


def baseline(
    model: Annotated[Path, typer.Argument(help="model.npz of a fit with --loss cox.")],
    data: Annotated[Path, typer.Argument(help="This party's data: Parquet, Arrow or CSV.")],
    time: Time = None,
    event: Event = None,
    entry: Entry = None,
    strata: Strata = None,
    weight: Weight = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Output CSV file (default: print).")
    ] = None,
    as_json: Json = False,
    config: Config = None,
) -> None:
    """Write the baseline hazard and survival of one party's rows. Nothing is sent: they stay where
    the rows are.
    """
    fitted = co.models.load_model(model)
    if not isinstance(fitted, co.SurvivalModel):
        raise InvalidInput("this is no survival model: fit with --loss cox.")
    if time is None or event is None:
        raise InvalidInput("name the columns: --time COLUMN and --event COLUMN.")
    names = fitted.columns if fitted.preparation is None else fitted.preparation.raw
    roles: dict[str, Any] = {
        "time": time,
        "event": event,
        "entry": entry,
        "strata": strata,
        "weight": weight,
    }
    found = fitted.baseline(co.read(data, columns=names, prepare=fitted.preparation, **roles))
    if output is not None:
        found.save(output)
    if as_json:
        print_json(
            {
                "reference": found.reference,
                "rows": found.table(),
                "output": str(output) if output else None,
            }
        )
    elif output is None:
        print(found.csv(), end="")
    else:
        console().print(f"{len(found.table())} times of events written to [bold]{output}[/bold].")
