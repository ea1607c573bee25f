"""`coterie baseline`: the baseline hazard of one party's rows, for its own use."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

import coterie as co
from coterie.commands.options import Config, CsvOutput, Entry, Event, Json, Strata, Time, Weight
from coterie.commands.output import print_json, show_written, text_or_none
from coterie.errors import InvalidInput

EXAMPLE = (
    "Example: coterie baseline result/model.npz patients.csv --time days --event died -o "
    "baseline.csv"
)
CoxModel = Annotated[Path, typer.Argument(help="model.npz of a fit with --loss cox.")]
OwnData = Annotated[Path, typer.Argument(help="This party's data: Parquet, Arrow or CSV.")]


def baseline(
    model: CoxModel,
    data: OwnData,
    time: Time = None,
    event: Event = None,
    entry: Entry = None,
    strata: Strata = None,
    weight: Weight = None,
    output: CsvOutput = None,
    as_json: Json = False,
    config: Config = None,
) -> None:
    """Write the baseline hazard and survival of one party's rows. Nothing is sent."""
    fitted = co.models.load_model(model)
    if not isinstance(fitted, co.SurvivalModel):
        raise InvalidInput("this is no survival model: fit with --loss cox.")
    if time is None or event is None:
        raise InvalidInput("name the columns: --time COLUMN and --event COLUMN.")
    names = fitted.columns
    if fitted.preparation is not None:
        names = fitted.preparation.raw
    roles: dict[str, Any] = {"time": time, "event": event, "entry": entry, "strata": strata}
    table = co.read(data, columns=names, prepare=fitted.preparation, weight=weight, **roles)
    found = fitted.baseline(table)
    if output is not None:
        found.save(output)
    if as_json:
        answer = {"reference": found.reference, "rows": found.table()}
        print_json({**answer, "output": text_or_none(output)})
    elif output is None:
        print(found.csv(), end="")
    else:
        show_written(f"{len(found.table())} times of events", output)
