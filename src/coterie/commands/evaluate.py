"""`coterie evaluate`: how well a fitted model predicts other rows."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

import coterie as co
from coterie.commands.agent import asking, is_of_party, party_files, rehearsal, saying
from coterie.commands.files import (
    as_list,
    label_roles,
    model_columns,
    numbered,
    paired_by_position,
    refuse_part,
    tables,
)
from coterie.commands.options import (
    Config,
    Consent,
    Deadline,
    Engine,
    Entry,
    Event,
    Exposure,
    Id,
    Json,
    Minimum,
    Offset,
    OutputFile,
    PerParty,
    SameOrder,
    SecureSums,
    Strata,
    Target,
    Time,
    Weight,
    among,
)
from coterie.commands.output import print_json, show_evaluation, text_or_none
from coterie.run.settings import Placement, Settings

EXAMPLE = (
    "Examples: coterie evaluate coterie-fit/model.npz north-new.csv south-new.csv --target ill · "
    "coterie evaluate party.toml (at every party)"
)
FittedModel = Annotated[
    Path,
    typer.Argument(
        help="model.npz from `coterie fit`. Between organisations: party.toml, at every party."
    ),
]
NewRows = Annotated[
    list[Path] | None,
    typer.Argument(
        help="Data with labels: Parquet, Arrow, CSV or svmlight. Of several files, each is one "
        "party. With a party.toml, by default its test."
    ),
]
Split = Annotated[str, among("samples", "features", also=": what the parties divide between them")]


def evaluate(
    model: FittedModel,
    data: NewRows = None,
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
    split: Split = Placement.split,
    per_party: PerParty = False,
    minimum: Minimum = 1,
    engine: Engine = Placement.engine,
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
    fitted = co.models.load_model(model)
    roles = {"target": target, "id": id, "weight": weight, "offset": offset, "exposure": exposure}
    roles |= label_roles(fitted.problem, target, time=time, event=event, entry=entry, strata=strata)
    refuse_part(fitted, "evaluate")
    by_position = paired_by_position(same_order, id, split)
    found = co.evaluate(
        fitted,
        _tables(fitted, data, split, roles),
        engine=runner,
        secure_sums=secure_sums,
        per_party=per_party,
        minimum=minimum,
        split=split,
        same_order=by_position,
    )
    if runner.writes_output:
        _show(found, output, {**found.summary(), "output": text_or_none(output)}, as_json)


def _with_parties(given: list[Path], output: Path | None, as_json: bool, yes: bool) -> int:
    """Evaluate the model of a study together with the other parties; several party.toml are all on
    this machine.
    """
    files = party_files([file for file in given if is_of_party(file)])
    data = [file for file in given if not is_of_party(file)]
    rehearses = len(files) > 1
    if len(data) > 1 or (data and rehearses):
        raise typer.BadParameter(
            "with a party.toml, give one file with your rows, or name it there with `test`."
        )
    if rehearses:
        return rehearsal(files, as_json, "evaluate")
    from coterie.study.scores import EVALUATION, evaluate_together
    from coterie.study.study import load_party

    own, study = load_party(files[0])
    consent = asking(files, "evaluate", yes=yes, as_json=as_json)
    own_rows = next(iter(data), None)
    found = evaluate_together(own, study, own_rows, say=saying(own.party), consent=consent)
    if found is None:
        _show_elsewhere(own.party, as_json)
        return 0
    place = output or own.output / EVALUATION
    answer = {"party": own.party, **found.summary(), "headline": found.headline()}
    _show(found, output, {**answer, "output": str(place)}, as_json)
    return 0


def _show_elsewhere(party: str, as_json: bool) -> None:
    """Print that another party has the scores."""
    if as_json:
        print_json({"party": party, "scores": None, "headline": "", "output": None})
    else:
        print("The scores are at the party with the labels.")


def _show(found: co.Evaluation, output: Path | None, answer: dict[str, Any], as_json: bool) -> None:
    if output is not None:
        found.save(output)
    if as_json:
        print_json(answer)
    else:
        show_evaluation(found)


def _tables(fitted: Any, data: list[Path], split: str, roles: dict[str, Any]) -> list[co.Table]:
    """Read a table per file, with the columns of the model."""
    prepare = fitted.preparation
    if split == "features":
        return as_list(tables(data, split, prepare=prepare, **roles))
    found = []
    for path in data:
        columns = model_columns(fitted) or numbered(path, fitted.coef_.shape[-1])
        found.append(co.read(path, columns=columns, prepare=prepare, **roles))
    return found
