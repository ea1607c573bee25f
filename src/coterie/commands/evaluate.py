"""`coterie evaluate`: how well a fitted model predicts other rows."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

import coterie as co
from coterie.catalogue import names_in
from coterie.commands.agent import ask_for_consent, is_of_party, party_files, rehearsal, saying
from coterie.commands.files import label_roles, numbered, paired_by_position, tables
from coterie.commands.options import (
    Config,
    Consent,
    Deadline,
    Entry,
    Event,
    Exposure,
    Id,
    Json,
    Offset,
    OutputFile,
    SameOrder,
    SecureSums,
    Strata,
    Target,
    Time,
    Weight,
    among,
)
from coterie.commands.output import print_json, show_evaluation
from coterie.errors import InvalidInput
from coterie.run.settings import Placement, Settings

EXAMPLE = (
    "Examples: coterie evaluate coterie-fit/model.npz north-new.csv south-new.csv --target ill · "
    "coterie evaluate party.toml (at every party)"
)


def evaluate(
    model: Annotated[
        Path,
        typer.Argument(
            help="model.npz from `coterie fit`. Between organisations: party.toml, at every party."
        ),
    ],
    data: Annotated[
        list[Path] | None,
        typer.Argument(
            help="Data with labels: Parquet, Arrow, CSV or svmlight. Of several files, each is "
            "one party. With a "
            "party.toml, by default its test."
        ),
    ] = None,
    target: Target = None,
    id: Id = None,
    same_order: SameOrder = Placement.same_order,
    weight: Weight = None,
    offset: Offset = None,
    exposure: Exposure = None,
    time: Time = None,
    event: Event = None,
    entry: Entry = None,
    strata: Strata = None,
    split: Annotated[
        str, among("samples", "features", also=": how the data is partitioned")
    ] = Placement.split,
    per_party: Annotated[
        bool, typer.Option("--per-party", help="Scores of every party, too.")
    ] = False,
    minimum: Annotated[
        int,
        typer.Option(
            help="Least number of rows of each party that has any, in a group that is told."
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
    """Evaluate a fitted model on other rows: deviance, accuracy, AUC, calibration, confusion,
    R².
    """
    if is_of_party(model):
        raise typer.Exit(_with_parties([model, *(data or [])], output, as_json, yes))
    if not data:
        raise typer.BadParameter("name the data to evaluate the model on, after the model.")
    runner = co.engines.engine(engine, deadline)
    roles = {"target": target, "id": id, "weight": weight, "offset": offset, "exposure": exposure}
    fitted = co.models.load_model(model)
    roles |= label_roles(fitted.problem, target, time=time, event=event, entry=entry, strata=strata)
    if part := getattr(fitted, "part", None):
        owner = part.partition(" of ")[0]
        raise InvalidInput(
            f"this is {owner}'s part of a model; use `coterie evaluate party.toml` at every party."
        )
    how: dict[str, Any] = {"split": split, "same_order": paired_by_position(same_order, id, split)}
    rows = _tables(fitted, data, split, roles)
    found = co.evaluate(
        fitted,
        rows,
        engine=runner,
        secure_sums=secure_sums,
        per_party=per_party,
        minimum=minimum,
        **how,
    )
    if not runner.speaks:
        return
    if output is not None:
        found.save(output)
    if as_json:
        print_json({**found.summary(), "output": None if output is None else str(output)})
    else:
        show_evaluation(found)


def _with_parties(given: list[Path], output: Path | None, as_json: bool, yes: bool) -> int:
    """Evaluate the model of a study together with the other parties; several party.toml are all on
    this machine.
    """
    files = party_files([file for file in given if is_of_party(file)])
    data = [file for file in given if not is_of_party(file)]
    if len(data) > (len(files) == 1):
        raise typer.BadParameter(
            "with a party.toml, give one file with your rows, or name it there with `test`."
        )
    if len(files) > 1:
        return rehearsal(files, as_json, "evaluate")
    from coterie.study.scores import EVALUATION, evaluate_together
    from coterie.study.study import load_party

    own, study = load_party(files[0])
    ask_for_consent(files[0], own, study, yes, show=False)
    found = evaluate_together(own, study, data[0] if data else None, say=saying(own.party))
    if found is None:
        _show_elsewhere(own.party, as_json)
        return 0
    if output is not None:
        found.save(output)
    if as_json:
        scores = {**found.summary(), "headline": found.headline()}
        print_json({"party": own.party, **scores, "output": str(output or own.output / EVALUATION)})
    else:
        show_evaluation(found)
    return 0


def _show_elsewhere(party: str, as_json: bool) -> None:
    """Say that another party has the scores."""
    if as_json:
        print_json({"party": party, "scores": None, "headline": "", "output": None})
    else:
        print("The scores are at the party with the labels.")


def _tables(fitted: Any, data: list[Path], split: str, roles: dict[str, Any]) -> list[co.Table]:
    """A table per file, with the columns of the model."""
    ready = fitted.preparation
    if split == "features":
        found = tables(data, split, prepare=ready, **roles)
        return found if isinstance(found, list) else [found]
    wanted = fitted.columns if ready is None else ready.raw
    names = [wanted or numbered(path, fitted.coef_.shape[-1]) for path in data]
    return [
        co.read(path, columns=own, prepare=ready, **roles)
        for path, own in zip(data, names, strict=True)
    ]
