"""`coterie evaluate`: how well a fitted model predicts other rows."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

import coterie as co
from coterie.catalogue import names_in
from coterie.commands.options import (
    Config,
    Deadline,
    Entry,
    Event,
    Exposure,
    Id,
    Json,
    Offset,
    Strata,
    Target,
    Time,
    Weight,
    among,
    numbered,
    survival_roles,
    tables,
)
from coterie.commands.output import print_json, show_evaluation
from coterie.errors import InvalidInput

EXAMPLE = "Example: coterie evaluate coterie-fit/model.npz north-new.csv south-new.csv --target ill"


def evaluate(
    model: Annotated[Path, typer.Argument(help="model.npz from `coterie fit`.")],
    data: Annotated[
        list[Path],
        typer.Argument(help="Data with labels: Parquet, CSV or svmlight. Of several files, each is one party."),
    ],
    target: Target = None,
    id: Id = None,
    weight: Weight = None,
    offset: Offset = None,
    exposure: Exposure = None,
    time: Time = None,
    event: Event = None,
    entry: Entry = None,
    strata: Strata = None,
    split: Annotated[str, among("samples", "features", also=": how the data is partitioned")] = "samples",
    per_party: Annotated[bool, typer.Option("--per-party", help="Scores of every party, too.")] = False,
    minimum: Annotated[
        int, typer.Option(help="Least number of rows in a bin of scores that is looked into further, for the AUC.")
    ] = 1,
    engine: Annotated[str, among(*names_in("engines"))] = "local",
    deadline: Deadline = None,
    secure_sums: Annotated[
        bool | None,
        typer.Option(help="Exact sums, masked between organisations. There the default, with 3 parties or more."),
    ] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Output JSON file.")] = None,
    as_json: Json = False,
    config: Config = None,
) -> None:
    """Evaluate a fitted model on other rows: deviance, accuracy, AUC, calibration, confusion, R²."""
    runner = co.engines.engine(engine, deadline)
    roles = {"target": target, "id": id, "weight": weight, "offset": offset, "exposure": exposure}
    fitted = co.models.load_model(model)
    survival = fitted.problem.family == "survival"
    roles |= survival_roles(survival, target, time=time, event=event, entry=entry, strata=strata)
    if part := getattr(fitted, "part", None):
        owner = part.partition(" of ")[0]
        raise InvalidInput(f"this is {owner}'s part of a model; use `coterie evaluate party.toml` at every party.")
    rows = _tables(fitted, data, split, roles)
    found = co.evaluate(
        fitted, rows, split=split, engine=runner, secure_sums=secure_sums, per_party=per_party, minimum=minimum
    )
    if not runner.speaks:
        return
    if output is not None:
        found.save(output)
    if as_json:
        print_json({**found.summary(), "output": None if output is None else str(output)})
    else:
        show_evaluation(found)


def _tables(fitted: Any, data: list[Path], split: str, roles: dict[str, Any]) -> list[co.Table]:
    """A table per file, with the columns of the model."""
    if split == "features":
        found = tables(data, split, **roles)
        return found if isinstance(found, list) else [found]
    names = [fitted.columns or numbered(path, fitted.coef_.shape[-1]) for path in data]
    return [co.read(path, columns=own, **roles) for path, own in zip(data, names, strict=True)]
