"""`coterie predict`: what a fitted model says about new rows."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

import coterie as co
from coterie.commands.agent import predict_with_parties
from coterie.commands.options import Config, Json, Raw, numbered
from coterie.commands.output import console, print_json
from coterie.errors import InvalidInput

EXAMPLE = "Example: coterie predict coterie-fit/model.npz new-patients.csv -o predictions.csv"


def predict(
    model: Annotated[Path, typer.Argument(help="model.npz from `coterie fit`.")],
    data: Annotated[Path, typer.Argument(help="New data with the columns of the model: Parquet, CSV or svmlight.")],
    users: Annotated[str | None, typer.Option(help="Column with the user of each row, for personal models.")] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Output CSV file (default: print).")] = None,
    raw: Raw = False,
    as_json: Json = False,
    config: Config = None,
) -> None:
    """Predict with a fitted model. With a party.toml, do it together with the other parties."""
    if model.suffix == ".toml":
        predict_with_parties(model, data, output, as_json, raw=raw)
        return
    fitted = co.models.load_model(model)
    if part := getattr(fitted, "part", None):
        owner = part.partition(" of ")[0]
        raise InvalidInput(f"this is {owner}'s part of a model; use `coterie predict party.toml` at every party.")
    personal = isinstance(fitted, co.PersonalModel)
    if users is not None and not personal:
        raise InvalidInput("--users is for models of every user, and this file has one model for all; leave it out.")
    names = fitted.columns or (None if personal else numbered(data, len(fitted.coef_)))
    table = co.read(data, id=users, columns=names)
    whose = {"users": table.ids} if personal and users is not None else {}
    predictions = fitted.predict(table.X, **whose).tolist()
    written = co.files.csv_text(["prediction"], ([one] for one in predictions), raw=raw)
    if output is not None:
        co.files.write_atomically(output, written.encode())
    if as_json:
        print_json({"predictions": predictions, "output": str(output) if output else None})
    elif output is None:
        print(written.partition("\n")[2], end="")
    else:
        console().print(f"{len(predictions)} predictions written to [bold]{output}[/bold].")
